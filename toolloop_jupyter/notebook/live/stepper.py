"""Step mode and dry runs: what goes out to the model and what comes back, exactly.

Shown as a short picture of the conversation (a line for each message) and, folded, as the JSON that is sent. The
point for a lesson: "the model" only ever sees messages and schemas.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Literal

from ...core.events import Observer, Reply, Request, ToolCall
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
from ..transcript import Block
from .asking import Means, means_of_asking
from .view import CellRun

_MARKS = {"system": "⚙", "user": "☺", "assistant": "◆", "tool": "›"}


def request_block(request: Request, *, sent: bool = True, title_of: str = "") -> Block:
    """A model call before it goes out (or, in a dry run, instead of that); `title_of` is the model in a person's words.

    Keys and headers are named, and not shown.
    """
    shown = request.shown()
    tools = [tool["function"]["name"] for tool in shown["tools"]]
    options = {
        key: value
        for key, value in shown.items()
        if key not in ("messages", "tools", "model", "stream_options")
    }
    where = "to the model" if sent else f"would be sent to {title_of or request.model}"
    title = f"{where}: {counted(len(shown['messages']), 'message')}, {counted(len(tools), 'tool')}"
    lines = [_line(message) for message in shown["messages"]]
    lines.append(("tools", ", ".join(tools) or "none"))
    lines.append(("options", ", ".join(f"{k}={_short(v)}" for k, v in options.items()) or "none"))
    if request.secrets:
        lines.append(("not shown", ", ".join(request.secrets)))
    made = _picture("→", title, lines, {"the whole request": _on_the_wire(shown)})
    return made if sent else Block(put_style_behind(made.html), made.text)  # it stands alone


def _on_the_wire(shown: Mapping[str, Any]) -> dict[str, Any]:
    """A request without what does not go out: LiteLLM (1.110) drops the fields of a message that are null."""
    messages = [{key: part for key, part in one.items() if part is not None} for one in shown["messages"]]
    return {
        key: value for key, value in {**shown, "messages": messages}.items() if (key, value) != ("tools", [])
    }


def reply_block(reply: Reply) -> Block:
    """What a model call brought, with its tokens."""
    usage = reply.usage
    title = f"from the model: {counted(usage.input_tokens, 'token')} read, {usage.output_tokens} written, {reply.finish_reason}"
    return _picture("←", title, [_line(reply.message)], {"the whole message": reply.message})


def call_preview(name: str, arguments: Mapping[str, object]) -> Block:
    """A tool call before its function runs."""
    return _picture(
        "›", f"next: run {name}", [("arguments", _short(arguments))], {"the arguments": dict(arguments)}
    )


def _line(message: Mapping[str, Any]) -> tuple[str, str]:
    role, content = str(message.get("role")), message.get("content")
    words = (
        [content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)] if content else []
    )
    asked = [call["function"] for call in message.get("tool_calls") or ()]
    words += [f"calls {one['name']}({one['arguments']})" for one in asked]
    return f"{_MARKS.get(role, '·')} {role}", first_line(" · ".join(words), 160)


def _short(value: object) -> str:
    return first_line(json.dumps(value, ensure_ascii=False, default=repr), 120)


def _picture(mark: str, title: str, lines: list[tuple[str, str]], data: Mapping[str, object]) -> Block:
    rows = "".join(
        f'<tr><td style="text-align:left;white-space:nowrap"><code>{esc(name)}</code></td>'
        f'<td style="text-align:left">{inline(text)}</td></tr>'
        for name, text in lines
    )
    folded = ""
    for name, value in data.items():
        whole = highlight(json.dumps(value, ensure_ascii=False, indent=2, default=repr), "json")
        folded += fold(name, pre(whole), "tlj-call")
    line = f'<div><span>{mark}</span> <span style="{NAME}">{inline(title)}</span></div>'
    html = block("tlj-step", f"{line}<table>{rows}</table>{folded}", f"{BLOCK};{WIDE}")
    words = [f"{mark} {in_a_line(title)}", *(f"    {name:<12} {in_a_line(text)}" for name, text in lines)]
    return Block(html, "\n".join(words))


class Stepper(Observer):
    """Holds a run before each step until Next is clicked; "Run to end" lets the rest go on without showing less."""

    def __init__(self, run: CellRun, means: Means = "auto") -> None:
        self._run, self._means = run, means
        self._is_holding = True

    async def before_model(self, request: Request) -> None:
        """Show the request, and hold."""
        await self._show_and_hold(request_block(request), "call the model")

    async def after_model(self, reply: Reply) -> None:
        """Show what came back."""
        await self._run.caught_up()
        self._run.put(reply_block(reply))

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

        card = StepCard(what, lambda: go_on("next"), lambda: go_on("run"), self._run.stop)
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
