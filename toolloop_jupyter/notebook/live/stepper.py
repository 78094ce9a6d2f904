"""Step mode and dry runs: what goes out to the model and what comes back, exactly.

Shown as a short picture of what is new (a line for each message) and, folded, as the JSON that is sent. The point for a
lesson: "the model" only ever sees messages and schemas.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ...core.events import Observer, Reply, Request, ToolCall, make_plain
from .. import kernel
from ..html import (
    BLOCK,
    NAME,
    WIDE,
    block,
    counted,
    esc,
    first_line,
    fold,
    highlight,
    in_a_line,
    inline,
    pre,
    put_style_behind,
)
from ..transcript import Block, reason_in, short_arguments
from .asking import Means, means_of_asking
from .view import CellRun

_MARKS = {"system": "⚙", "user": "☺", "assistant": "◆", "tool": "›"}


@dataclass(frozen=True)
class Sent:
    """What a run has shown of its last model call."""

    request: Mapping[str, Any]
    reply: Mapping[str, Any] | None = None
    """The message that came back."""


def request_block(
    request: Request, *, sent: bool = True, title_of: str = "", last: Sent | None = None
) -> Block:
    """A model call before it goes out (or, in a dry run, instead of that); `title_of` is the model in a person's words.

    With `sent` it shows what is new since `last`, the call before it in this run; the whole request is folded behind that.
    Keys and headers are named, and not shown.
    """
    shown = request.shown()
    messages, tools = shown["messages"], _names(shown)
    known = _count_known(messages, last) if sent else 0
    facts = [
        counted(len(messages), "message")
        + (f", {len(messages) - known or 'none'} of them new" if known else "")
    ]
    lines = [_line(message, last) for message in messages[known:]]
    if last is None or tools != _names(last.request):
        facts.append(counted(len(tools), "tool"))
        lines += [("tools", ", ".join(tools))] if tools else []
    options, before = _options(shown), {"stream": True} if sent else {}  # which goes without saying
    before = before if last is None else _options(last.request)
    changed = [f"{key}={_short(value)}" for key, value in options.items() if before.get(key) != value]
    changed += [f"no {key}" for key in before if key not in options] if last is not None else []
    lines += [("options", ", ".join(changed) or "none")] if changed or not sent else []
    if request.secrets and last is None:
        lines.append(("not shown", ", ".join(request.secrets)))
    where = "to the model" if sent else f"would be sent to {title_of or request.model}"
    made = _picture("→", f"{where}: {', '.join(facts)}", lines, "the whole request", _on_the_wire(shown))
    return made if sent else Block(put_style_behind(made.html), made.text)  # it stands alone


def _count_known(messages: Sequence[Mapping[str, Any]], last: Sent | None) -> int:
    """How many of the messages a person has seen: those of the call before, or of the conversation's earlier turns."""
    if last is not None:
        earlier = last.request["messages"]
        return len(earlier) if messages[: len(earlier)] == earlier else 0
    roles = [message.get("role") for message in messages]
    if "assistant" not in roles or "user" not in roles:
        return 0
    newest = len(roles) - 1 - roles[::-1].index("user")
    return newest if "assistant" in roles[:newest] else 0


def _names(shown: Mapping[str, Any]) -> list[str]:
    return [tool["function"]["name"] for tool in shown["tools"]]


def _options(shown: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in shown.items() if key not in _NO_OPTIONS}


_NO_OPTIONS = ("messages", "tools", "model", "stream_options")


def _on_the_wire(shown: Mapping[str, Any]) -> dict[str, Any]:
    """A request without what does not go out: LiteLLM (1.110) drops the fields of a message that are null. The bytes of
    pictures and files are cut.
    """
    messages = [_cut_bytes(_without_nulls(one)) for one in shown["messages"]]
    return {
        key: value for key, value in {**shown, "messages": messages}.items() if (key, value) != ("tools", [])
    }


_MOST_BYTES = 200
"""Characters of a picture's or a file's bytes."""


def _cut_bytes(value: Any, name: str = "") -> Any:
    """Plain data with the beginning of each data address, and of each sound's `data`."""
    if isinstance(value, dict):
        return {key: _cut_bytes(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_cut_bytes(item) for item in value]
    is_bytes = isinstance(value, str) and (value.startswith("data:") or name == "data")
    if not is_bytes or len(value) <= _MOST_BYTES:
        return value
    return f"{value[:60]}… {len(value) - 60:,} more characters"


def _words_of(content: object) -> str:
    """A message's content in words: its texts, and what its other parts are."""
    if not isinstance(content, list):
        return str(content)
    return " ".join(str(part.get("text") or f"[{part.get('type')}]") for part in content)


def _without_nulls(message: Mapping[str, Any]) -> dict[str, Any]:
    return {key: part for key, part in message.items() if part is not None}


_ENDS = {
    "length": "an answer that is cut off: it reached the token limit",
    "content_filter": "an answer that the provider's filter has cut off",
}


def reply_block(reply: Reply) -> Block:
    """What a model call brought, with its tokens. Its text has been shown as it came."""
    usage, asked = reply.usage, [call["function"] for call in reply.message.get("tool_calls") or ()]
    if asked:
        brought = f"it asks for {counted(len(asked), 'tool call')}"
    elif reply.refusal:
        brought = "it refuses"
    else:
        brought = _ENDS.get(
            reply.finish_reason or "", "the answer above" if reply.message.get("content") else "nothing"
        )
    title = f"from the model: {brought} · {counted(usage.input_tokens, 'token')} read, {usage.output_tokens} written"
    lines = [(str(call["name"]), first_line(str(call["arguments"]), 160)) for call in asked]
    return _picture("←", title, lines, "the whole message", reply.message)


def call_preview(name: str, arguments: Mapping[str, object]) -> Block:
    """A tool call before its function runs."""
    title = f"next: run {name}({short_arguments(arguments)})"
    return _picture("›", title, [], "the arguments", dict(arguments))


def _line(message: Mapping[str, Any], last: Sent | None) -> tuple[str, str]:
    role, content = str(message.get("role")), message.get("content")
    if last is not None and last.reply is not None and _without_nulls(message) == _without_nulls(last.reply):
        return f"{_MARKS.get(role, '·')} {role}", "its own message, as it came"
    words = [_words_of(content)] if content else []
    asked = [call["function"] for call in message.get("tool_calls") or ()]
    words += [f"calls {one['name']}({one['arguments']})" for one in asked]
    text = " · ".join(words)
    line, more = first_line(text, 160), len(text.strip().splitlines()) - 1
    if line.endswith(":"):  # what it announces is worth more than that
        line, more = reason_in(text), 0
    return f"{_MARKS.get(role, '·')} {role}", f"{line} … {counted(more, 'more line')}" if more > 0 else line


def _short(value: object) -> str:
    return first_line(json.dumps(value, ensure_ascii=False, default=repr), 120)


def _picture(mark: str, title: str, lines: list[tuple[str, str]], name: str, whole: object) -> Block:
    """A step: its title, with `whole` as JSON folded behind that, and below it a line for each thing of note."""
    rows = "".join(
        f'<tr><td style="text-align:left;white-space:nowrap"><code>{esc(label)}</code></td>'
        f'<td style="text-align:left">{inline(text)}</td></tr>'
        for label, text in lines
    )
    line = f'<span>{mark}</span> <span style="{NAME};flex:1">{inline(title)}</span> <span class="tlj-time">{esc(name)}</span>'
    json_html = pre(highlight(json.dumps(whole, ensure_ascii=False, indent=2, default=repr), "json"))
    table = f'<table style="margin:0 0 4px 12px">{rows}</table>' if rows else ""
    html = block("tlj-step", fold(line, json_html, "tlj-call") + table, f"{BLOCK};{WIDE}")
    words = [f"{mark} {in_a_line(title)}", *(f"    {label:<12} {in_a_line(text)}" for label, text in lines)]
    return Block(html, "\n".join(words))


class Stepper(Observer):
    """Holds a run before each step until Next is clicked; "Run to end" lets the rest go on without showing less."""

    def __init__(self, run: CellRun, means: Means = "auto") -> None:
        self._run, self._means = run, means
        self._is_holding = True
        self._last: Sent | None = None

    async def before_model(self, request: Request) -> None:
        """Show what is new in the request, and hold."""
        block = request_block(request, last=self._last)
        self._last = Sent(request.shown())
        await self._show_and_hold(block, "call the model")

    async def after_model(self, reply: Reply) -> None:
        """Show what came back."""
        await self._run.caught_up()
        self._run.put(reply_block(reply))
        if self._last is not None:
            self._last = replace(self._last, reply=make_plain(reply.message))

    async def before_call(self, call: ToolCall, arguments: Mapping[str, object]) -> None:
        """Show the call, and hold; in ask mode its card comes next."""
        await self._show_and_hold(call_preview(call.name, arguments), f"run {call.name}")

    async def _show_and_hold(self, block: Block, what: str) -> None:
        await self._run.caught_up()
        self._run.put(block)
        means = means_of_asking(self._means) if self._is_holding else "nobody"
        if means == "card":
            await self._hold_by_card(what)
        elif means == "input":
            await self._hold_by_prompt(what)

    async def _hold_by_card(self, what: str) -> None:
        from ..widgets import StepCard

        loop, answered = asyncio.get_running_loop(), asyncio.Event()

        def go_on(answer: Literal["next", "run"]) -> None:
            self._is_holding = answer == "next"
            loop.call_soon_threadsafe(answered.set)  # a click may come on a subshell's thread

        card = StepCard(what, lambda: go_on("next"), lambda: go_on("run"))
        output = self._run.output()
        output.put({"text/plain": f"waiting: Next to {what}", **card.mimebundle()})
        card.came_up()
        self._run.hooks.say(f"waiting for Next: {what}")
        try:
            await answered.wait()
        finally:
            card.finish()
            output.draw(None)

    async def _hold_by_prompt(self, what: str) -> None:
        try:
            with kernel.allow_interrupts():
                answer = _read(f"  [Enter] to {what}, r to run to the end, s to stop: ")
        except EOFError:  # nobody is there any more
            answer = "r"
        except asyncio.CancelledError:  # by Ctrl-C, which nobody else has been told of yet
            answer = "s"
        self._is_holding = not answer.startswith("r")
        if answer.startswith("s"):
            self._run.stop()
            await asyncio.sleep(0)  # the stop reaches the run here, before anything goes out


def _read(prompt: str) -> str:
    """One line from the keyboard. The kernel waits, as for any input()."""
    return input(prompt).strip().lower()
