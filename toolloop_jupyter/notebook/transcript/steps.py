"""Turn a run's events into steps, the steps into blocks, and the blocks into the output of a cell or a file.

    event --Steps.take--> steps that are new or changed --Page.draw--> Block --make_bundle--> an output of a cell

The live page, a finished run that is shown again, the exports and the terminal use these functions. So all show the same content.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic_core import to_jsonable_python

from ...core.events import (
    Approval,
    Attachment,
    Compaction,
    Done,
    Event,
    FileChange,
    Mistake,
    Reasoning,
    Result,
    Retry,
    Text,
    ToolCall,
    ToolResult,
)
from ...core.execution import Raised, attempt_call
from ...core.text import hide, hide_in, write_whole
from ..html import DARK_PAGE, escape_json, mark_hidden_in_prose, show_formulas_as_source
from .blocks import (
    Block,
    draw_file,
    draw_head,
    draw_notice,
    draw_reasoning,
    draw_retry,
    draw_run_end,
    draw_text,
    remove_style,
)
from .calls import CallStep, draw_call
from .diagram import draw_timeline_picture
from .values import draw_answer, draw_attachment

FULL_STEPS = (
    100  # this many of a run's last tool calls are shown in full; each earlier call is shown as one line
)
MOST_FILES = 200  # at most this many of a run's changed files are shown
OF_RUN = 20_000_000  # limit for a run's HTML, in characters; a step that would exceed it is shown as one line
TOO_LARGE = "too large to keep in the output of the run"


@dataclass(eq=False)
class TextStep:
    """A text of the model: a part of its answer or, if `is_thought` is true, its reasoning."""

    is_thought: bool
    pieces: list[str] = field(default_factory=list)
    is_whole: bool = False  # True if the text is complete
    output: object = None  # the validated `output=` instance, if it was read from this text

    @property
    def text(self) -> str:
        return "".join(self.pieces)


@dataclass(frozen=True)
class Notice:
    """A message, for example about an event of LiteLLM for which this package has no class."""

    text: str
    kind: Literal["info", "warning", "error"] = "info"
    part: str = ""
    """The Result's attribute that the message is about, such as "files"; "" if there is none."""


Step: TypeAlias = TextStep | CallStep | Attachment | FileChange | Retry | Notice | Done
"""A part of a run that a page shows. Later events change a TextStep or a CallStep. The other steps never change."""


class Steps:
    """The steps of one run, in the order in which they began. Call `take` with each event of the run."""

    def __init__(self) -> None:
        self.all: list[Step] = []
        self._open: TextStep | None = None  # the text that the model is writing now
        self._calls: dict[
            str, CallStep
        ] = {}  # by id; a later call replaces an earlier call that has the same id
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
                # After most retries, the model continues the text that is open now.
                begins_anew = event.discard or event.of_answer or (self._open and self._open.is_thought)
                ended = self.end_text() if begins_anew else ()
                return [*ended, *self._take_back(event.discard), *self._add(event)]
        return [*self.end_text(), *self._take_whole(event)]

    def end_text(self) -> Sequence[Step]:
        """End the text that the model is writing, and return its step. The next delta begins a new text."""
        ended, self._open = self._open, None
        if ended is None:
            return ()
        ended.is_whole = True
        return (ended,)

    def end_calls(self) -> Sequence[Step]:
        """End the calls that have no result, because no result will come. Returns the steps of these calls."""
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

    def _last_texts(self) -> Iterator[TextStep]:
        """Yield the answer's texts after the last call, from the last text to the first."""
        for step in reversed(self.all):
            if isinstance(step, CallStep):
                return
            if isinstance(step, TextStep) and not step.is_thought:
                yield step

    def _take_back(self, discard: str) -> list[Step]:
        """Remove the text `discard`, which a retry has dropped, from the end of the answer. Returns the changed steps."""
        changed: list[Step] = []
        for step in self._last_texts():
            text = step.text
            if not discard or not (text.endswith(discard) or discard.endswith(text)):
                break
            if text:
                is_part = discard.endswith(text)
                step.pieces = ["" if is_part else text.removesuffix(discard)]
                discard = discard.removesuffix(text) if is_part else ""
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
        """Add the step of a call. `within`: True for a question of a running call; `call.id` then begins with that call's id."""
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
            # The text from which the output was read becomes the output. If the output came as a call, there is no text.
            step = next((one for one in self._last_texts() if one.text.strip()), None)
            if step is None:
                self._add(step := TextStep(is_thought=False, is_whole=True))
            step.pieces, step.output = [result.text], result.output
            changed.append(step)
        if not self._file_count:  # LiteLLM's harnesses may report files only in the Result
            changed += [step for change in result.files for step in self._take_whole(change)]
        if self._file_count > MOST_FILES:
            more = f"… {self._file_count - MOST_FILES:,} more changed files"
            changed += self._add(Notice(more, part="files"))
        if result.error:
            is_failure = result.stop_reason == "runtime_error"
            changed += self._add(Notice(result.error, "error" if is_failure else "warning"))
        return changed


class Page:
    """Draws the steps of one run as blocks. A call, file or picture that does not fit into `OF_RUN` is drawn as one line."""

    def __init__(self, name: str | None = None, hint: str | None = "") -> None:
        """`name` is the notebook's variable that holds the Result.

        Where a part of the Result is not shown, the page shows the expression for this part, followed by `hint`. If `hint` is
        None, no variable can hold the Result, and the page shows no expression.
        """
        self._name, self._hint = name, hint
        self._sizes: dict[int, int] = {}  # the length of the HTML of each drawn step, by the step's `id`
        self._used = 0

    def draw(self, step: Step) -> Block | None:
        """Return the block of a step; None if the step has nothing to show."""
        match step:
            case CallStep():
                return self.draw_call(step)
            case TextStep() if step.output is not None:
                return draw_answer(step.text, step.output)
            case TextStep():
                if not (text := step.text).strip():
                    return None
                return (
                    draw_reasoning(text, streaming=not step.is_whole) if step.is_thought else draw_text(text)
                )
            case Attachment():
                block = draw_attachment(step)
                return block if self._has_room(step, block) else draw_notice(f"{step.name}: {TOO_LARGE}")
            case FileChange():
                block = draw_file(step)
                note = self._name_part(f"its diff is {TOO_LARGE}", "files")
                without_diff = dataclasses.replace(step, diff="")
                return block if self._has_room(step, block) else draw_file(without_diff, note)
            case Retry():
                return draw_retry(step)
            case Notice():
                return draw_notice(self._name_part(step.text, step.part), step.kind)
            case Done():
                return draw_run_end(step.result, self._name, picture=draw_timeline_picture(step.result))

    def draw_call(self, step: CallStep, outputs: Sequence[tuple[str, object]] | None = None) -> Block:
        """Return the block of a call. `outputs`: its prints and displays (see `draw_call`); None: the prints in its result."""
        if outputs is None:
            outputs = [("stdout", step.result.printed)] if step.result and step.result.printed else []
        whole = self._name_part("", f"tool_results[{step.index}].value")
        arguments = "" if step.question else self._name_part("", f"calls[{step.index}].input")
        block = draw_call(step, outputs, value_name=whole, input_name=arguments)
        if self._has_room(step, block) or not step.is_over:
            return block
        note = ": ".join(filter(None, (TOO_LARGE, whole)))
        return draw_call(dataclasses.replace(step, is_brief=True), note=note)

    def _name_part(self, text: str, part: str) -> str:
        """Return `text`, followed by the expression for a part of the Result."""
        is_named = part and self._hint is not None
        expression = f"{self._name or 'result'}.{part}{self._hint}" if is_named else ""
        return ": ".join(filter(None, (text, expression)))

    def _has_room(self, step: Step, block: Block) -> bool:
        """Return False if the run has no room for `block`. Otherwise, count the length of `block` in place of the length of
        the step's earlier block.
        """
        size = len(block.html)
        used = self._used + size - self._sizes.get(id(step), 0)
        if used > OF_RUN:
            return False
        self._used, self._sizes[id(step)] = used, size
        return True


def join_blocks(blocks: Iterable[Block]) -> Block:
    """Join several blocks into one, because some front-ends show only a limited number of outputs (JupyterLab: 50)."""
    blocks = list(blocks)
    html = "".join(block.html for block in blocks)
    return Block(html, "\n".join(block.text for block in blocks if block.text))


def make_bundle(blocks: Block | Iterable[Block]) -> dict[str, str]:
    """Return the MIME bundle of blocks, without API keys. Every block that a run shows goes through this function.

    The bundle has only "text/html" and "text/plain", which no front-end executes. The HTML is one line, because `nbconvert
    --to markdown` copies it into a Markdown file. There, a blank line would end the HTML, and a tool's result behind it could
    load a picture or draw a heading. A browser reads the character references as line breaks, for example inside `<pre>`.
    """
    one = blocks if isinstance(blocks, Block) else join_blocks(blocks)
    html = hide(one.html).replace("\r", "&#13;").replace("\n", "&#10;")
    return {"text/html": html, "text/plain": hide(one.text)}


# --- a whole run: shown again, or written to a file -----------------------------------------------------------


def render(result: Result, name: str | None = None) -> list[Block]:
    """Return the blocks of a finished run. `name` is the notebook's variable that holds `result`."""
    return [remove_style(_make_head(result, result.prompt)), *_draw_steps(result, name)]


def _make_head(result: Result, prompt: str = "") -> Block:
    """Return the line above a finished run. All facts in the line come from the Result."""
    names = list(dict.fromkeys(call.name for call in result.calls))
    output = type(result.output).__name__ if result.output is not None else None
    return draw_head(
        result.model or "model", names, "ask" if result.approvals else "full", output, None, prompt
    )


def _draw_steps(result: Result, name: str | None) -> list[Block]:
    """Return the blocks of a run, except the line above the run."""
    steps, page = Steps(), Page(name)
    for event in (*result.events, Done(result)):
        steps.take(event)
    return [block for step in steps.all if (block := page.draw(step)) is not None]


# The page has no scripts, so formulas are not typeset. The page has no Jupyter theme, so the reader's system selects light or
# dark colours.
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>toolloop run</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<style>:root{{color-scheme:light dark}}body{{background:Canvas;color:CanvasText;font:14px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em}}</style>
</head><body>
<main>{body}</main>
{dark}
</body></html>
"""


def write(result: Result, path: str) -> Path:
    """Write a run to a file. The ending of `path` selects the format: .md or .html for people, .json for programs.

    Raises Mistake for another ending, and OSError if the file cannot be written.
    """
    target = Path(path)
    match target.suffix.lower():
        case ".md":
            text = write_markdown(result)
        case ".html":
            text = _PAGE.format(
                body=show_formulas_as_source(make_bundle(render(result))["text/html"]), dark=DARK_PAGE
            )
        case ".json":
            text = write_run_as_json(result)
        case _:
            raise Mistake(f"{path!r} must end in .md, .html or .json")
    write_whole(target, text)
    return target


def write_markdown(result: Result, name: str | None = None) -> str:
    """Return the run as Markdown: plain text in fenced code blocks, which is harmless in every viewer."""
    parts = [_write_fence(_make_head(result).text)]
    if result.prompt:
        parts.append(
            "\n".join(
                f"> {line}" for line in _write_fence(mark_hidden_in_prose(result.prompt).strip()).split("\n")
            )
        )
    parts += [_write_fence(block.text) for block in _draw_steps(result, name)]
    return hide("\n\n".join(parts)) + "\n"


def _write_fence(text: str) -> str:
    """Return `text` as a fenced code block. The fence is longer than every series of backticks in the text."""
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", text))])
    return f"{fence}text\n{text}\n{fence}"


def write_run_as_json(result: Result) -> str:
    """Return the run as JSON text: its events, files and totals. Hidden characters are written as JSON escapes."""
    apart = ("output", "events", "files", "presenter")
    facts = {
        **{
            one.name: getattr(result, one.name) for one in dataclasses.fields(result) if one.name not in apart
        },
        "output": _make_data(result.output),
        "events": [_list_facts(event) for event in result.events],
        "files": [_list_facts(change) for change in result.files],
    }
    # A live object becomes plain data, so that `hide_in` finds an API key in it.
    data = json.loads(json.dumps(facts, default=_make_data))
    return escape_json(json.dumps(hide_in(data), ensure_ascii=False, indent=1)) + "\n"


def _make_data(value: object) -> object:
    """Return `value` as JSON data. What pydantic cannot convert becomes its `repr`. If pydantic still fails, all of `value`
    becomes its `repr`.
    """
    data = attempt_call(functools.partial(to_jsonable_python, by_alias=False, fallback=repr), value)
    return repr(value) if isinstance(data, Raised) else data


def _list_facts(event: Event | FileChange) -> dict[str, object]:
    """Return the fields that the event's `repr` shows, and the event's decision."""
    shown = [one.name for one in dataclasses.fields(event) if one.repr and not one.name.startswith("_")]
    facts = {name: getattr(event, name) for name in shown}
    if (decision := getattr(event, "decision", None)) is not None:
        facts["decision"] = decision
    return {"event": type(event).__name__, **facts}
