"""Draw a rows run as one block: the progress while rows run, and the finished rows at the end.

Each row is one line with its number, its input, and its answer or error. Of a thousand finished rows, the block shows the
first and the last few, and some rows that failed. The run's Rows object has the whole transcripts (`rows[17]`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from ...core.events import Result, Usage
from ...core.execution import Raised, attempt_call
from ...core.text import duration, shorten, tell_duration
from ..html import BLOCK, CELL, DIM, STYLE, SUMMARY, TABLE, WIDE, counted, dim, esc, in_a_line, inline, table
from .blocks import Block, money
from .calls import short_arguments
from .values import list_fields

ENDS = 5
"""The block of a finished rows run shows this many rows of the beginning and this many rows of the end."""
MOST_FAILURES = 20
"""The block of a finished rows run shows at most this many of the failed rows that are between the first and the last rows."""
_ASKED = 60
"""At most this many characters of a row's input are shown."""
_CAME = 160
"""At most this many characters of a row's answer or error are shown."""


class RowLike(Protocol):
    """The attributes of a `core.rows.Row` that this module reads. `notebook.transcript` must not import `core.rows`."""

    @property
    def number(self) -> int: ...
    @property
    def input(self) -> Mapping[str, object]: ...
    @property
    def result(self) -> Result | None: ...
    @property
    def error(self) -> str | None: ...
    @property
    def seconds(self) -> float: ...


class SpeedLike(Protocol):
    """The attributes of a `core.rows.RowsSpeed` that this module reads."""

    @property
    def rate(self) -> float: ...
    @property
    def pause(self) -> float: ...


class ProgressLike(Protocol):
    """The attributes of a `core.rows.RowsProgress` that this module reads."""

    @property
    def total(self) -> int | None: ...
    @property
    def done(self) -> int: ...
    @property
    def failed(self) -> int: ...
    @property
    def running(self) -> int: ...
    @property
    def waiting(self) -> int | None: ...
    @property
    def from_store(self) -> int: ...
    @property
    def again(self) -> int: ...
    @property
    def cost(self) -> float: ...
    @property
    def seconds(self) -> float: ...
    @property
    def speed(self) -> SpeedLike: ...
    @property
    def left(self) -> float | None: ...
    @property
    def last(self) -> Sequence[RowLike]: ...
    @property
    def message(self) -> str: ...


class RowsLike(Protocol):
    """The attributes of a `core.rows.Rows` that this module reads."""

    @property
    def ended(self) -> Mapping[int, RowLike]: ...
    @property
    def progress(self) -> ProgressLike: ...
    @property
    def cut(self) -> Sequence[RowLike]: ...
    @property
    def message(self) -> str: ...
    @property
    def usage(self) -> Usage: ...
    @property
    def cost(self) -> float | None: ...


# --- while they run -------------------------------------------------------------------------------------------


def draw_running_rows(progress: ProgressLike, state: str = "") -> Block:
    """Draw the progress: the counts, a bar, and the rows that ended last.

    `state` ("waiting for you") is shown before the counts.
    """
    facts = [*([state] if state else []), *_tell_counts(progress), *_tell_pace(progress)]
    css = "tlj-ask" if state else "tlj-ok"
    items = "".join(f" <span>{inline(fact)}</span>" for fact in facts[1:])
    status = f'<div class="tlj-status"><span class="{css}">●</span> <b>{inline(facts[0])}</b>{items}</div>'
    note, last = _tell_pause(progress), _draw_rows(progress.last)
    words = dim(inline(note)) if note else ""
    html = f'<div class="tlj tlj-rows" style="{BLOCK}">{status}{_draw_bar(progress)}{words}{last.html}</div>'
    texts = [in_a_line(" · ".join(facts)), in_a_line(note), last.text]
    return Block(html, "\n".join(text for text in texts if text))


def tell_running_rows(progress: ProgressLike, width: int = 0) -> str:
    """Return the progress as one line for a terminal. The line has at most `width` characters; 0 means no limit."""
    facts = [*_tell_counts(progress), *_tell_pace(progress), _tell_pause(progress)]
    text = in_a_line(" · ".join(filter(None, facts)))
    return shorten(text, width) if width else text


def name_row(number: int, total: int | None) -> str:
    """Return a row's name for a page, such as "row 17 of 1,000"."""
    return f"row {number:,}" + ("" if total is None else f" of {total:,}")


def _tell_counts(progress: ProgressLike, waiting: str = "waiting") -> list[str]:
    """Return the counts as texts: how many rows have ended, how many failed, and so on.

    `waiting` is the word for rows that have not begun.
    """
    ended, total = progress.done + progress.failed, progress.total
    counts = [
        (progress.failed, "failed"),
        (progress.running, "running"),
        (progress.waiting, waiting),
        (progress.from_store, "from the store"),
        (progress.again, "tried again"),
    ]
    rows = counted(ended, "row") if total is None else f"{ended:,} of {counted(total, 'row')}"
    return [rows, *(f"{number:,} {word}" for number, word in counts if number)]


def _tell_pace(progress: ProgressLike) -> list[str]:
    facts = [f"{progress.speed.rate:.3g} rows/s"] if progress.speed.rate else []
    facts += [money(progress.cost)] if progress.cost else []
    facts.append(duration(progress.seconds, whole=True))
    return facts + ([f"{duration(progress.left, whole=True)} left"] if progress.left else [])


def _tell_pause(progress: ProgressLike) -> str:
    pause = f"paused for {duration(progress.speed.pause, whole=True)}" if progress.speed.pause else ""
    return ": ".join(filter(None, (pause, shorten(progress.message, 300))))


def _draw_bar(progress: ProgressLike) -> str:
    """Draw a bar with two parts: the share of rows that are done, and the share of rows that failed.

    Return "" if the number of rows is not known.
    """
    if not progress.total:
        return ""
    parts = ((progress.done, "tlj-ok"), (progress.failed, "tlj-bad"))
    shares = "".join(
        f'<div class="{css}" style="width:{100 * number / progress.total:.4g}%;background:currentColor"></div>'
        for number, css in parts
    )
    label = f"{progress.done + progress.failed:,} of {counted(progress.total, 'row')}"
    style = "display:flex;height:6px;margin:6px 0;border-radius:3px;overflow:hidden;background:rgba(128,128,128,.25)"
    return f'<div role="img" aria-label="{label}" style="{style}">{shares}</div>'


# --- the finished rows ---------------------------------------------------------------------------------------------


def draw_finished_rows(rows: RowsLike, name: str | None = None) -> Block:
    """Draw a finished rows run: the first and the last rows, rows that failed, and the counts.

    The HTML contains the style sheet. `name` is the notebook's variable that holds the rows; None if no variable holds them.
    """
    ended = list(rows.ended.values())
    first, last = ended[:ENDS], ended[max(ENDS, len(ended) - ENDS) :]
    between = ended[ENDS : max(ENDS, len(ended) - ENDS)]
    failed = [row for row in between if row.error is not None]
    lines: list[RowLike | _Line] = [
        *first,
        *_tell_more(len(between), "more row", name and f"{name}.frame"),
        *last,
        *([_Line(f"{len(failed):,} of those between failed:")] if failed else []),
        *failed[:MOST_FAILURES],
        *_tell_more(len(failed) - MOST_FAILURES, "more failed row", name and f"{name}.failed"),
    ]
    parts = [_draw_rows(lines), _draw_end(rows, name)]
    html = "".join(part.html for part in parts)
    text = "\n".join(part.text for part in parts if part.text)
    return Block(f'<div class="tlj tlj-rows" style="{BLOCK}">{html}</div>', text)


def _draw_end(rows: RowsLike, name: str | None) -> Block:
    """Draw the last line: why the run ended, the number of rows, the cost, the time, and the expression for the rows.

    A table with more counts is folded behind the line.
    """
    progress = rows.progress
    state, css = (shorten(rows.message, 500), "tlj-ask") if rows.message else ("done", "")
    facts = [*_tell_counts(progress, "not run"), money(rows.cost), tell_duration(progress.seconds)]
    facts = [state, *filter(None, facts)]
    end = f"{name}.frame" if name else ""
    items = ["", *map(inline, facts[1:]), *([f"<code>{esc(end)}</code>"] if end else [])]
    line = f'<span class="{css}" style="{"font-size:90%" if css else DIM}">{inline(state)}</span>'
    line += dim(" · ".join(items), "span")
    counts = (
        ("model calls", f"{rows.usage.calls:,}"),
        ("tokens", f"{rows.usage.total_tokens:,}"),
        ("rows taken from the store", f"{progress.from_store:,}"),
        ("rows that had failed before", f"{progress.again:,}"),
        ("rows ended by a stop", f"{len(rows.cut):,}"),
    )
    html = (
        f'<details class="tlj tlj-foot" style="{BLOCK}"><summary style="{SUMMARY}" title="unfold the counts">{line}'
        f"</summary>{table(counts, head='th')}{STYLE}</details>"
    )
    return Block(html, in_a_line(" · ".join([*facts, *([end] if end else [])])))


@dataclass(frozen=True)
class _Line:
    """A line of words between the rows, for example about rows that are not shown.

    `expression` is the Python expression for these rows; "" if there is none.
    """

    words: str
    expression: str = ""


def _tell_more(count: int, word: str, expression: str | None) -> list[_Line]:
    """Return a list with one line about `count` rows that are not shown; [] if all rows are shown."""
    return [_Line(f"… {counted(count, word)}", expression or "")] if count > 0 else []


# --- one row --------------------------------------------------------------------------------------------------


def _draw_rows(lines: Iterable[RowLike | _Line]) -> Block:
    """Draw rows, and lines of words between the rows.

    The HTML is a table. The plain text has one line for each row of the table.
    """
    made = [_draw_line(line) if isinstance(line, _Line) else _draw_row(line) for line in lines]
    rows = "".join(one.html for one in made)
    html = f'<div style="{WIDE}"><table style="{TABLE}">{rows}</table></div>' if rows else ""
    return Block(html, "\n".join(one.text for one in made))


def _draw_line(line: _Line) -> Block:
    code = f": <code>{esc(line.expression)}</code>" if line.expression else ""
    html = f'<tr><td colspan="5" style="{CELL}">{dim(line.words + code)}</td></tr>'
    return Block(html, in_a_line(": ".join(filter(None, (line.words, line.expression)))))


def _draw_row(row: RowLike) -> Block:
    mark, css = ("✓", "tlj-ok") if row.error is None else ("✗", "tlj-bad")
    asked, came, took = _tell_input(row), _tell_end(row), tell_duration(row.seconds)
    cells = (
        f'<span class="{css}">{mark}</span>',
        dim(f"{row.number:,}", "span"),
        f"<code>{esc(asked)}</code>",
        inline(came),
        f'<span style="{DIM};white-space:nowrap">{took}</span>',
    )
    html = "<tr>" + "".join(f'<td style="{CELL}">{cell}</td>' for cell in cells) + "</tr>"
    return Block(
        html, in_a_line("  ".join(filter(None, (f"{mark} {row.number:,}", asked, f"→ {came}", took))))
    )


def _tell_input(row: RowLike) -> str:
    """Return the beginning of the row's input in one line; "…" if an object in the input cannot be written as text."""
    first = dict(islice(row.input.items(), 20))
    text = attempt_call(short_arguments, first, _ASKED)
    return "…" if isinstance(text, Raised) else text


def _tell_end(row: RowLike) -> str:
    """Return one line with the row's error, or with the fields of its output, or with its answer as text."""
    if row.error is not None or row.result is None:
        return _put_in_line(row.error or "")
    fields = attempt_call(list_fields, row.result.output)
    if not isinstance(fields, Mapping):
        return _put_in_line(row.result.text)
    told = attempt_call(short_arguments, fields, _CAME)
    return _put_in_line(row.result.text) if isinstance(told, Raised) else told


def _put_in_line(text: str) -> str:
    return shorten(" ".join(text[: 4 * _CAME].split()), _CAME)
