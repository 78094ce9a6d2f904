"""Show the exact request to the model and the model's exact reply, in step mode and in dry runs.

The block has a line for each new message; the JSON that is sent is folded. So a lesson can show what a model sees.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...core.events import Observer, Reply, Request, ToolCall, make_plain
from ..html import (
    BLOCK,
    NAME,
    WIDE,
    block,
    esc,
    fold,
    highlight,
    inline,
    pre,
    put_in_a_line,
    put_style_behind,
    take_first_line,
    tell_count,
)
from ..transcript import Block, join_reason, shorten_arguments
from .asking import Means, find_means, read_line
from .view import CellRun

_MARKS = {"system": "⚙", "user": "☺", "assistant": "◆", "tool": "›"}


def draw_request(
    request: Request,
    *,
    sent: bool = True,
    title_of: str = "",
    last: Mapping[str, Any] | None = None,
    reply: Mapping[str, Any] | None = None,
) -> Block:
    """Return the block that shows a request before it is sent to the model. `sent` is False in a dry run, which sends nothing.

    If `sent` is True, the block lists only the messages that are new since `last`, the previous request of the run. `reply` is
    the model's answer to `last`. If `sent` is False, the block lists all messages, and its title names the model (`title_of`; if
    this is "", the request's model). Of API keys and headers, only the names are shown.
    """
    shown = request.shown()
    messages, tools = shown["messages"], [tool["function"]["name"] for tool in shown["tools"]]
    seen_count = _count_known(messages, last) if sent else 0
    facts = [
        tell_count(len(messages), "message")
        + (f", {len(messages) - seen_count or 'none'} of them new" if seen_count else "")
    ]
    lines = [_describe_message(message, reply) for message in messages[seen_count:]]
    if last is None or shown["tools"] != last["tools"]:
        facts.append(tell_count(len(tools), "tool"))
        lines += [("tools", ", ".join(tools))] if tools else []
    # Most requests have stream=True, so it is not listed.
    usual = {"stream": True} if sent else {}
    options, old = _list_options(shown), _list_options(usual if last is None else last)
    changed = [f"{key}={_shorten(value)}" for key, value in options.items() if old.get(key) != value]
    changed += [f"no {key}" for key in old if key not in options] if last is not None else []
    lines += [("options", ", ".join(changed) or "none")] if changed or not sent else []
    if request.secrets and last is None:
        lines.append(("not shown", ", ".join(request.secrets)))
    # LiteLLM (1.110) sends neither an empty list of tools nor a message's null fields.
    whole = {**shown, "messages": [cut_bytes(_drop_nulls(message)) for message in messages]}
    if not tools:
        del whole["tools"]
    where = "to the model" if sent else f"would be sent to {title_of or request.model}"
    made = _make_block("→", f"{where}: {', '.join(facts)}", lines, "the whole request", whole)
    # The page of a dry run has no head with the style sheet.
    return made if sent else Block(put_style_behind(made.html), made.text)


def _count_known(messages: Sequence[Mapping[str, Any]], last: Mapping[str, Any] | None) -> int:
    """Return how many of `messages` a person has seen before: in the last model call, or in earlier turns of the conversation."""
    if last is not None:
        earlier = last["messages"]
        return len(earlier) if messages[: len(earlier)] == earlier else 0
    roles = [message.get("role") for message in messages]
    newest = len(roles) - 1 - roles[::-1].index("user") if "user" in roles else 0
    return newest if "assistant" in roles[:newest] else 0


def _list_options(shown: Mapping[str, Any]) -> dict[str, Any]:
    no_options = ("messages", "tools", "model", "stream_options")
    return {key: value for key, value in shown.items() if key not in no_options}


_MOST_BYTES = 200
"""If the base64 text of a picture, sound or file has more characters than this, it is shortened."""


def cut_bytes(value: Any, name: str = "") -> Any:
    """Copy JSON data. Shorten long `data:` URLs (pictures and files) and each long text under the key "data" (sounds)."""
    if isinstance(value, dict):
        return {key: cut_bytes(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [cut_bytes(item) for item in value]
    is_bytes = isinstance(value, str) and (value.startswith("data:") or name == "data")
    if not is_bytes or len(value) <= _MOST_BYTES:
        return value
    return f"{value[:60]}… {len(value) - 60:,} more characters"


def _drop_nulls(message: Mapping[str, Any]) -> dict[str, Any]:
    return {key: part for key, part in message.items() if part is not None}


_ENDS = {
    "length": "an answer that is cut off: it reached the token limit",
    "content_filter": "an answer that the provider's filter has cut off",
}


def draw_reply(reply: Reply) -> Block:
    """Return the block that shows the tool calls and the tokens of a model's reply. The text of the reply is shown already."""
    usage, asked = reply.usage, [call["function"] for call in reply.message.get("tool_calls") or ()]
    if asked:
        brought = f"it asks for {tell_count(len(asked), 'tool call')}"
    elif reply.refusal:
        brought = "it refuses"
    else:
        brought = _ENDS.get(
            reply.finish_reason or "", "the answer above" if reply.message.get("content") else "nothing"
        )
    title = f"from the model: {brought} · {tell_count(usage.input_tokens, 'token')} read, {usage.output_tokens} written"
    lines = [(str(call["name"]), take_first_line(str(call["arguments"]), 160)) for call in asked]
    return _make_block("←", title, lines, "the whole message", reply.message)


def _describe_message(message: Mapping[str, Any], reply: Mapping[str, Any] | None) -> tuple[str, str]:
    """Return (the role, the content in one line). A part that is not text is named by its type, for example "[image_url]"."""
    role, content = str(message.get("role")), message.get("content") or []
    label = f"{_MARKS.get(role, '·')} {role}"
    if reply is not None and _drop_nulls(message) == _drop_nulls(reply):
        return label, "its own reply, unchanged"
    parts = content if isinstance(content, list) else [{"text": content}]
    words = [" ".join(str(part.get("text") or f"[{part.get('type')}]") for part in parts)] if parts else []
    asked = [call["function"] for call in message.get("tool_calls") or ()]
    words += [f"calls {one['name']}({one['arguments']})" for one in asked]
    text = " · ".join(words)
    line, more = take_first_line(text, 160), len(text.strip().splitlines()) - 1
    if line.endswith(":"):  # the first line is only an introduction to the next lines
        line, more = join_reason(text), 0
    return label, f"{line} … {tell_count(more, 'more line')}" if more > 0 else line


def _shorten(value: object) -> str:
    return take_first_line(json.dumps(value, ensure_ascii=False, default=repr), 120)


def _make_block(mark: str, title: str, lines: list[tuple[str, str]], name: str, whole: object) -> Block:
    """Return the block of a step: `title`, a row for each of `lines`, and the JSON of `whole`, which a click on `title` shows."""
    rows = "".join(
        f'<tr><td style="text-align:left;white-space:nowrap"><code>{esc(label)}</code></td>'
        f'<td style="text-align:left">{inline(text)}</td></tr>'
        for label, text in lines
    )
    line = f'<span>{mark}</span> <span style="{NAME};flex:1">{inline(title)}</span> <span class="tlj-time">{esc(name)}</span>'
    json_html = pre(highlight(json.dumps(whole, ensure_ascii=False, indent=2, default=repr), "json"))
    table = f'<table style="margin:0 0 4px 12px">{rows}</table>' if rows else ""
    html = block("tlj-step", fold(line, json_html, "tlj-call") + table, f"{BLOCK};{WIDE}")
    words = [
        f"{mark} {put_in_a_line(title)}",
        *(f"    {label:<12} {put_in_a_line(text)}" for label, text in lines),
    ]
    return Block(html, "\n".join(words))


class Stepper(Observer):
    """Makes a run wait for Next before each model call and each tool call. After "Run to end", calls are only shown."""

    def __init__(self, run: CellRun, means: Means = "auto") -> None:
        self._run, self._means = run, means
        self._is_holding = True
        self._last: Mapping[str, Any] | None = None
        """The last request."""
        self._reply: Mapping[str, Any] | None = None

    async def before_model(self, request: Request) -> None:
        """Show the new messages of the request, and wait for Next."""
        block = draw_request(request, last=self._last, reply=self._reply)
        self._last, self._reply = request.shown(), None
        await self._show_and_hold(block, "call the model")

    async def after_model(self, reply: Reply) -> None:
        await self._run.caught_up()
        self._run.put(draw_reply(reply))
        self._reply = make_plain(reply.message)

    async def before_call(self, call: ToolCall, arguments: Mapping[str, object]) -> None:
        """Show the tool call, and wait for Next. In ask mode, the approval card of the call is shown after that."""
        title = f"next: run {call.name}({shorten_arguments(arguments)})"
        block = _make_block("›", title, [], "the arguments", dict(arguments))
        await self._show_and_hold(block, f"run {call.name}")

    async def _show_and_hold(self, block: Block, what: str) -> None:
        await self._run.caught_up()
        self._run.put(block)
        means = find_means(self._means) if self._is_holding else "nobody"
        if means == "card":
            await self._hold_by_card(what)
        elif means == "input":
            await self._hold_by_prompt(what)

    async def _hold_by_card(self, what: str) -> None:
        from ..widgets import StepCard

        loop, answered = asyncio.get_running_loop(), asyncio.Event()

        def go_on(*, is_holding: bool) -> None:
            self._is_holding = is_holding
            loop.call_soon_threadsafe(answered.set)  # a subshell's thread may handle the click

        card = StepCard(what, lambda: go_on(is_holding=True), lambda: go_on(is_holding=False))
        output = self._run.output()
        output.put({"text/plain": f"waiting: Next to {what}", **card.make_reference()})
        card.enter_page()
        self._run.hooks.say(f"waiting for Next: {what}")
        try:
            await answered.wait()
        finally:
            card.finish()
            output.draw(None)

    async def _hold_by_prompt(self, what: str) -> None:
        try:
            answer = read_line(f"  [Enter] to {what}, r to run to the end, s to stop: ")
        except EOFError:  # nobody is there any more
            answer = "r"
        except asyncio.CancelledError:  # Ctrl-C, which no other code has handled
            answer = "s"
        letter = answer.lower()[:1]
        self._is_holding = letter != "r"
        if letter == "s":
            self._run.stop()
            await asyncio.sleep(0)  # the run is cancelled here, before anything is sent
