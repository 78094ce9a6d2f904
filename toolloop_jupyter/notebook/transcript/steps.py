"""Turn a run's events into steps, and the steps into blocks.

    event --Steps.take--> steps that are new or changed --Page.draw--> Block --make_bundle--> an output of a cell

The live page of a run, a finished run that is shown again, the exports and the terminal all use these functions. So all
of them show the same content. Below the block of a running call, the live page also shows the prints so far and the elapsed
seconds.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ...core.events import (
    Approval,
    Attachment,
    Compaction,
    Done,
    Event,
    FileChange,
    Reasoning,
    Result,
    Retry,
    Text,
    ToolCall,
    ToolResult,
)
from ...core.text import hide
from .blocks import (
    Block,
    file_block,
    foot,
    head,
    notice,
    reasoning_block,
    retry_block,
    text_block,
    without_style,
)
from .calls import CallStep, call_block
from .diagram import picture
from .values import answer_block, attachment_block

FULL_STEPS = 100
"""This many of a run's last tool calls are shown in full. Each earlier call is shown as one line."""
MOST_FILES = 200
"""At most this many changed files of a run are shown."""
OF_RUN = 20_000_000
"""The HTML of a run's steps has at most this many characters. A step that would exceed this limit is shown as one line."""
TOO_LARGE = "too large to keep in the output of the run"


# --- the steps ------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class TextStep:
    """A text of the model: a part of its answer or, if `is_thought` is true, its reasoning."""

    is_thought: bool
    pieces: list[str] = field(default_factory=list)
    is_whole: bool = False
    """True if the text is complete."""
    output: object = None
    """The validated `output=` instance, if it was read from this text."""

    @property
    def text(self) -> str:
        return "".join(self.pieces)


@dataclass(frozen=True)
class MoreFiles:
    """A step for the changed files that are not shown. `count` is their number."""

    count: int


@dataclass(frozen=True)
class Notice:
    """A message, for example about an event of LiteLLM for which this package has no class."""

    text: str
    kind: Literal["info", "warning", "error"] = "info"


Step: TypeAlias = TextStep | CallStep | Attachment | FileChange | MoreFiles | Retry | Notice | Done
"""A part of a run that a page shows. Later events change a TextStep or a CallStep. The other steps never change."""


# --- from events to steps -------------------------------------------------------------------------------------


class Steps:
    """The steps of one run, in the order in which they began. Call `take` with each event of the run."""

    def __init__(self) -> None:
        self.all: list[Step] = []
        self._open: TextStep | None = None
        """The text that the model is writing now, if any."""
        self._calls: dict[str, CallStep] = {}
        """The calls by their ids. A later call replaces an earlier call that has the same id."""
        self._call_count = 0
        self._in_full: deque[CallStep] = deque()
        self._file_count = 0

    def take(self, event: Event | Compaction | Notice) -> Sequence[Step]:
        """Add an event to the steps. Returns the steps that are new or changed."""
        match event:
            case Text():
                return self._write(event.delta, is_thought=False)
            case Reasoning():
                return self._write(event.delta, is_thought=True)
            case Retry():
                return self._try_again(event)
        return [*self.end_text(), *self._take_whole(event)]

    def end_text(self) -> Sequence[Step]:
        """End the text that the model is writing, and return its step. The next delta begins a new text."""
        ended, self._open = self._open, None
        if ended is None:
            return ()
        ended.is_whole = True
        return (ended,)

    def end_calls(self) -> Sequence[Step]:
        """End the calls that have no result, since no result will come. Returns the steps of these calls."""
        left = self.open_calls
        for step in left:
            step.is_over = True
        return left

    @property
    def open_calls(self) -> list[CallStep]:
        """The calls that have no result yet."""
        return [step for step in self._calls.values() if not step.is_over]

    def _add(self, *steps: Step) -> Sequence[Step]:
        self.all += steps
        return steps

    def _write(self, delta: str, *, is_thought: bool) -> Sequence[Step]:
        changed: Sequence[Step] = ()
        if self._open is None or self._open.is_thought != is_thought:
            changed = self.end_text()
            self._open = TextStep(is_thought)
            self._add(self._open)
        self._open.pieces.append(delta)
        return [*changed, self._open]

    def _try_again(self, retry: Retry) -> Sequence[Step]:
        """Add a retry to the steps.

        Usually the next answer continues the open text. A new text begins if the retry discards text, if the model is asked for
        another answer, or if the open text is reasoning.
        """
        changed: Sequence[Step] = ()
        if retry.discard or retry.of_answer or (self._open is not None and self._open.is_thought):
            changed = self.end_text()
        return [*changed, *self._take_back(retry.discard), *self._add(retry)]

    def _take_back(self, discard: str) -> list[Step]:
        """Remove `discard` from the end of the texts that were shown last. Returns the steps that have changed."""
        changed: list[Step] = []
        for step in reversed(self.all):
            if not discard or isinstance(step, CallStep):
                break
            if not isinstance(step, TextStep) or step.is_thought or not (text := step.text):
                continue
            kept = text.removesuffix(discard)
            if kept == text and not discard.endswith(text):
                break
            discard, kept = ("", kept) if kept != text else (discard.removesuffix(text), "")
            step.pieces = [kept]
            changed.append(step)
        return changed

    def _take_whole(self, event: Event | Compaction | Notice) -> Sequence[Step]:
        match event:
            case ToolCall():
                return [self._begin_call(event)]
            case Approval():
                asked = ToolCall(event.call_id, event.tool, event.tool, event.input)
                step = self._calls.get(event.call_id) or self._begin_call(asked, within=bool(event.question))
                step.approval = event
                return [step]
            case ToolResult():
                return self._end_call(event)
            case FileChange():
                self._file_count += 1
                return self._add(event) if self._file_count <= MOST_FILES else ()
            case Compaction():
                before, after = event.tokens_before, event.tokens_after
                counts = f": {before:,} tokens before, {after:,} after" if before and after else ""
                return self._add(Notice(f"the agent has shortened its conversation{counts}"))
            case Done():
                return [*self._end(event.result), *self._add(event)]
            case Attachment() | Notice():
                return self._add(event)
        return ()

    def _begin_call(self, call: ToolCall, *, within: bool = False) -> CallStep:
        """Add the step of a call.

        If `within` is true, the call is a question that a running tool asks. The id of the question begins with the id of the
        tool's call.
        """
        outer = self._calls.get(call.id.rpartition(".")[0]) if within else None
        step = self._calls[call.id] = CallStep(call, self._call_count if outer is None else outer.index)
        self._call_count += not within
        self._add(step)
        return step

    def _end_call(self, result: ToolResult) -> Sequence[Step]:
        step = self._calls.get(result.id)
        if step is None:
            return ()
        step.result, step.is_over = result, True
        self._in_full.append(step)
        if len(self._in_full) <= FULL_STEPS:
            return [step]
        early = self._in_full.popleft()
        early.is_brief = True
        return [step, early]

    def _end(self, result: Result) -> Sequence[Step]:
        changed = [*self.end_calls()]
        if result.output is not None:
            changed.append(self._answer(result))
        if not self._file_count:  # LiteLLM's harnesses may report files only in the Result
            changed += [step for change in result.files for step in self._take_whole(change)]
        if self._file_count > MOST_FILES:
            changed += self._add(MoreFiles(self._file_count - MOST_FILES))
        if result.error:
            kind: Literal["error", "warning"] = (
                "error" if result.stop_reason == "runtime_error" else "warning"
            )
            changed += self._add(Notice(result.error, kind))
        return changed

    def _answer(self, result: Result) -> TextStep:
        """Turn the last text into the output that was read from this text.

        If the output came as a tool call, add a step for the output.
        """
        step = TextStep(is_thought=False, is_whole=True)
        for earlier in reversed(self.all):
            if isinstance(earlier, CallStep):
                break
            if isinstance(earlier, TextStep) and not earlier.is_thought and earlier.text.strip():
                step = earlier
                break
        if step not in self.all:
            self._add(step)
        step.pieces, step.output = [result.text], result.output
        return step


# --- from steps to blocks -------------------------------------------------------------------------------------


class Page:
    """Draws the steps of one run as blocks.

    Calls, files and pictures have together at most `OF_RUN` characters of HTML. If a step does not fit into this limit, the
    step is drawn as one line.
    """

    def __init__(self, name: str | None = None, hint: str | None = "") -> None:
        """`name` is the notebook's variable that holds the Result.

        For a part of the Result that is not shown, the page shows the Python expression for this part, followed by `hint`. If
        `hint` is None, no variable can hold the Result, and no expression is shown.
        """
        self._name, self._hint = name, hint
        self._sizes: dict[CallStep, int] = {}
        self._used = 0

    def draw(self, step: Step) -> Block | None:
        """Return the block of a step; None if the step has nothing to show."""
        match step:
            case CallStep():
                return self.draw_call(step)
            case TextStep():
                return _draw_text(step)
            case Attachment():
                block = attachment_block(step)
                return block if self._take_room(block) else notice(f"{step.name}: {TOO_LARGE}")
            case FileChange():
                block = file_block(step)
                return block if self._take_room(block) else self._draw_without_diff(step)
            case MoreFiles():
                return notice(f"… {step.count:,} more changed files{self._of('files')}")
            case Retry():
                return retry_block(step)
            case Notice():
                return notice(step.text, step.kind)
            case Done():
                return foot(step.result, self._name, picture=picture(step.result))

    def _of(self, part: str) -> str:
        """Return a colon and the expression for a part of the Result; "" if no variable can hold the Result."""
        return "" if self._hint is None else f": {self._name or 'result'}.{part}{self._hint}"

    def draw_call(self, step: CallStep, outputs: Sequence[tuple[str, object]] | None = None) -> Block:
        """Return the block of a call.

        `outputs` are the tool's prints and displays: ("stdout", text) or ("display", MIME bundle). If `outputs` is None, the
        block shows the prints in the call's result.
        """
        if outputs is None:
            outputs = [("stdout", step.result.printed)] if step.result and step.result.printed else []
        whole = self._of(f"tool_results[{step.index}].value").removeprefix(": ")
        arguments = "" if step.question else self._of(f"calls[{step.index}].input").removeprefix(": ")
        block = call_block(step, outputs, value_name=whole, input_name=arguments)
        if self._take_room(block, step) or not step.is_over:
            return block
        note = f"{TOO_LARGE}: {whole}".removesuffix(": ")
        return call_block(dataclasses.replace(step, is_brief=True), note=note)

    def _draw_without_diff(self, change: FileChange) -> Block:
        note = f"its diff is {TOO_LARGE}{self._of('files')}"
        return file_block(dataclasses.replace(change, diff=""), note)

    def _take_room(self, block: Block, call: CallStep | None = None) -> bool:
        """Add the length of a block to the length of the run's blocks.

        If the sum would exceed `OF_RUN`, return False and add nothing. If `call` is given, the block replaces the earlier
        block of this call. Then only the length of the new block counts.
        """
        size = len(block.html)
        used = self._used + size - (self._sizes.get(call, 0) if call else 0)
        if used > OF_RUN:
            return False
        self._used = used
        if call:
            self._sizes[call] = size
        return True


def _draw_text(step: TextStep) -> Block | None:
    if step.output is not None:
        return answer_block(step.text, step.output)
    text = step.text
    if not text.strip():
        return None
    return reasoning_block(text, streaming=not step.is_whole) if step.is_thought else text_block(text)


def together(blocks: Iterable[Block]) -> Block:
    """Join several blocks into one block.

    This is for front-ends that show only a limited number of outputs, such as JupyterLab (50).
    """
    blocks = list(blocks)
    html = "".join(block.html for block in blocks)
    return Block(html, "\n".join(block.text for block in blocks if block.text))


def make_bundle(blocks: Block | Iterable[Block]) -> dict[str, str]:
    """Return the MIME bundle of one or several blocks, without API keys. Every block that a run shows goes through this
    function.

    The bundle has only "text/html" and "text/plain", which no front-end executes. The HTML is one line, because `nbconvert
    --to markdown` copies it into a Markdown file. In this file, a blank line would end the HTML, and the text after the blank
    line would be read as Markdown. A tool's result could then load a picture or draw a heading. Line breaks are written as
    character references. A browser reads these as line breaks, for example inside `<pre>`.
    """
    one = blocks if isinstance(blocks, Block) else together(blocks)
    html = hide(one.html).replace("\r", "&#13;").replace("\n", "&#10;")
    return {"text/html": html, "text/plain": hide(one.text)}


# --- a whole run again ----------------------------------------------------------------------------------------


def render(result: Result, name: str | None = None) -> list[Block]:
    """Return the blocks of a finished run. `name` is the notebook's variable that holds `result`."""
    return [without_style(make_head(result, result.prompt)), *draw_steps(result, name)]


def make_head(result: Result, prompt: str = "") -> Block:
    """Return the line above a finished run. All facts in the line come from the Result."""
    names = list(dict.fromkeys(call.name for call in result.calls))
    output = type(result.output).__name__ if result.output is not None else None
    return head(result.model or "model", names, "ask" if result.approvals else "full", output, None, prompt)


def draw_steps(result: Result, name: str | None = None) -> list[Block]:
    """Return the blocks of a run, except the line above the run."""
    steps, page = Steps(), Page(name)
    for event in (*result.events, Done(result)):
        steps.take(event)
    return [block for step in steps.all if (block := page.draw(step)) is not None]
