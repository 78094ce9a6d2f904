"""A run as a row of blocks: events in, safe HTML and text out; the whole run again from its `Result`.

This is the module that the live view and `Result` displays import from; the blocks themselves are in `blocks.py`,
`calls.py` and `answer.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from ...core.events import (
    Approval,
    Attachment,
    FileChange,
    Reasoning,
    Result,
    Retry,
    Text,
    ToolCall,
    ToolResult,
)
from ...core.text import hide, plain
from .blocks import (
    TOO_LARGE,
    Block,
    Room,
    files_block,
    foot,
    head,
    notice,
    reasoning_block,
    retry_block,
    text_block,
)
from .calls import call_block
from .diagram import picture
from .values import answer_block, attachment_block

FULL_STEPS = 100
"""A run shown again has this many of its last tool calls in full; earlier ones are one line each."""


def together(blocks: Iterable[Block]) -> Block:
    """Several blocks as one, for a front-end that shows only so many outputs of a cell (JupyterLab: 50)."""
    blocks = list(blocks)
    html = "".join(block.html for block in blocks)
    return Block(html, "\n".join(block.text for block in blocks if block.text))


def mimebundle(blocks: Block | Iterable[Block]) -> dict[str, str]:
    """The display data of one block or several. Only "text/html" and "text/plain", which no front-end runs.

    The HTML is one line: `nbconvert --to markdown` writes it into a Markdown file as it is, where a blank line ends an
    HTML block, and what comes behind it is Markdown again: a tool's result would load a picture, or draw a heading. A
    line break that counts (in `<pre>`) is a character reference, which a browser reads as the line break it is.
    Everything that a run shows goes through here, and leaves the runs' keys behind.
    """
    one = blocks if isinstance(blocks, Block) else together(blocks)
    html = hide(one.html).replace("\r", "&#13;").replace("\n", "&#10;")
    return {"text/html": html, "text/plain": hide(one.text)}


def render(result: Result, name: str | None = None) -> list[Block]:
    """The whole run again, from what it left. `name` is the notebook's variable that holds `result`."""
    blocks = [_head(result, result.prompt)]
    room, number = Room(), -len(result.calls)
    for step in _steps(result):
        if isinstance(step, _Call):
            expression = f"{name or 'result'}.tool_results[{number + len(result.calls)}].value"
            block = step.block(expression, brief=number < -FULL_STEPS)
            number += 1
            blocks.append(block if room.holds(number, block) else step.block(expression, too_large=True))
        elif isinstance(step, FileChange):
            block = files_block([step])
            blocks += [block] if room.holds_file(block) else []
        else:
            blocks.append(step)
    last = blocks.pop() if len(blocks) > 1 and _ends_in_text(result) else None
    if result.output is not None or last is not None:
        blocks.append(answer_block(_last_text(result), result.output))
    if result.files and not any(isinstance(event, FileChange) for event in result.events):
        blocks += [block for change in result.files if room.holds_file(block := files_block([change]))]
    if room.files_left_out:
        blocks.append(notice(room.files_note(f"{name or 'result'}.files")))
    blocks += _error(result)
    blocks.append(foot(result, name, picture=picture(result)))
    return blocks


def _error(result: Result) -> list[Block]:
    """Why the run ended before its end, if it did."""
    kind = "error" if result.stop_reason == "runtime_error" else "warning"
    return [notice(result.error, kind)] if result.error else []


def _head(result: Result, prompt: str = "") -> Block:
    names = list(dict.fromkeys(call.name for call in result.calls))
    output = type(result.output).__name__ if result.output is not None else None
    return head(result.model or "model", names, "ask" if result.approvals else "full", output, None, prompt)


class _Call:
    """A call that collects its approval and its result while the events go by."""

    def __init__(self, call: ToolCall) -> None:
        self.call = call
        self.approval: Approval | None = None
        self.result: ToolResult | None = None

    def block(self, expression: str, *, brief: bool = False, too_large: bool = False) -> Block:
        """The call as a block, `brief` or `too_large` for the run's record as one line."""
        approval = self.approval
        return call_block(
            self.call,
            arguments=approval.input if approval else None,
            decision=approval.decision if approval else None,
            result=self.result,
            value_name=expression,
            brief=brief or too_large,
            note=f"{TOO_LARGE}: {expression}" if too_large else "",
        )


def _steps(result: Result) -> Iterator[Block | _Call | FileChange]:
    """Finished blocks, calls and changed files in the order in which they began."""
    calls: dict[str, _Call] = {}
    current: _Call | None = None
    order: list[Block | _Call | FileChange] = []
    written: list[str] = []
    kind: type = Text

    def flush() -> None:
        text = "".join(written)
        written.clear()
        if text.strip():
            order.append(text_block(text) if kind is Text else reasoning_block(text))

    for event in result.events:
        if isinstance(event, (Text, Reasoning)):
            if type(event) is not kind:
                flush()
                kind = type(event)
            written.append(event.delta)
            continue
        if isinstance(event, Retry) and event.discard and kind is Text:
            text = "".join(written)
            written[:] = [text.removesuffix(event.discard)]
        flush()
        if isinstance(event, ToolCall):
            current = calls[event.id] = _Call(event)
            order.append(current)
        elif isinstance(event, Approval):
            target = calls.get(event.call_id, current)
            if target is not None:
                target.approval = event
        elif isinstance(event, ToolResult):
            target = calls.get(event.id, current)
            if target is not None:
                target.result = event
        elif isinstance(event, Attachment):
            order.append(attachment_block(event))
        elif isinstance(event, Retry):
            order.append(retry_block(event))
        elif isinstance(event, FileChange):
            order.append(event)
    flush()
    yield from order


def _tail(result: Result) -> Sequence[object]:
    """The events after the last tool result, retry or file change that are text."""
    tail: list[object] = []
    for event in reversed(result.events):
        if isinstance(event, Text):
            tail.append(event)
        elif isinstance(event, (ToolCall, ToolResult, Approval, Attachment, Reasoning, Retry, FileChange)):
            break
    return tail[::-1]


def _ends_in_text(result: Result) -> bool:
    return any(isinstance(event, Text) and event.delta.strip() for event in _tail(result))


def _last_text(result: Result) -> str:
    return result.text or "".join(event.delta for event in _tail(result) if isinstance(event, Text))


# -- as markdown ---------------------------------------------------------------------------------------------------


def to_markdown(result: Result, name: str | None = None) -> str:
    """The run as Markdown that stays inert wherever it is rendered: every part of it stands in fenced code, as it was written."""
    parts = [write_fence(_head(result).text)]
    if result.prompt:
        parts.append("\n".join(f"> {line}" for line in write_fence(plain(result.prompt).strip()).split("\n")))
    for step in _steps(result):
        if isinstance(step, _Call):
            parts.append(write_fence(step.block(f"{name or 'result'}.value").text))
        else:
            parts.append(write_fence((files_block([step]) if isinstance(step, FileChange) else step).text))
    if result.output is not None:
        parts.append(write_fence(answer_block("", result.output).text))
    parts += [write_fence(block.text) for block in [*_error(result), foot(result, name)]]
    return hide("\n\n".join(parts)) + "\n"


def write_fence(text: str) -> str:
    """A text as fenced code, whatever fences it has."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"
