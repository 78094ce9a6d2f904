"""Many rows as one block: how far they are while they run, and what is kept of them at the end.

A row is one line: its number, what was asked, what came of it. Whole transcripts stay in the value (`rows[17]`): the page
of a thousand rows has the first and the last few, and those that failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from ...core.events import Result
from ...core.execution import Raised, attempt_call
from ...core.text import duration, tell_duration
from ..html import BLOCK, CELL, DIM, TABLE, WIDE, block, counted, dim, esc, in_a_line, inline, shorten
from .blocks import Block, money
from .calls import short_arguments
from .values import fields_of

ENDS = 5
"""Rows at either end that the record shows."""
MOST_FAILURES = 20
_ASKED = 60
_CAME = 160
"""Characters of what was asked, and of what came of it."""


class RowLike(Protocol):
    """What is read of a row."""

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


class ProgressLike(Protocol):
    """What is read of how far the rows are."""

    @property
    def total(self) -> int | None: ...
    @property
    def done(self) -> int: ...
    @property
    def failed(self) -> int: ...
    @property
    def running(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    @property
    def from_store(self) -> int: ...
    @property
    def cost(self) -> float | None: ...
    @property
    def rate(self) -> float | None: ...
    @property
    def seconds(self) -> float: ...
    @property
    def left(self) -> float | None: ...
    @property
    def last(self) -> Sequence[RowLike]: ...
    @property
    def pause(self) -> float: ...
    @property
    def message(self) -> str: ...


# --- while they run -------------------------------------------------------------------------------------------


def draw_running_rows(progress: ProgressLike, state: str = "") -> Block:
    """How far the rows are: a line of counts, a bar, the rows that have just ended. `state` stands before it: "stopping"."""
    facts = [*([state] if state else []), *_tell_counts(progress), *_tell_pace(progress)]
    css = "tlj-ask" if state else "tlj-ok"
    line = "".join(f" <span>{inline(fact)}</span>" for fact in facts[1:])
    status = f'<div class="tlj-status"><span class="{css}">●</span> <b>{inline(facts[0])}</b>{line}</div>'
    note = _tell_pause(progress)
    words, last = dim(inline(note)) if note else "", _draw_rows(progress.last)
    html = f'<div class="tlj tlj-rows">{status}{_bar(progress)}{words}{last.html}</div>'
    lines = [in_a_line(line) for line in (" · ".join(facts), note) if line]
    return Block(html, "\n".join([*lines, *([last.text] if last.text else [])]))


def tell_running_rows(progress: ProgressLike, width: int = 0) -> str:
    """The same in one line for a terminal, cut to `width` characters (0: as it is)."""
    facts = [*_tell_counts(progress), *_tell_pace(progress), _tell_pause(progress)]
    text = in_a_line(" · ".join(filter(None, facts)))
    return shorten(text, width) if width else text


def _tell_counts(progress: ProgressLike) -> list[str]:
    finished = progress.done + progress.failed
    of = "" if progress.total is None else f" of {progress.total:,}"
    counts = [
        (progress.failed, "failed"),
        (progress.running, "running"),
        (progress.waiting, "waiting"),
        (progress.from_store, "from the store"),
    ]
    return [f"{finished:,}{of} rows", *(f"{number:,} {word}" for number, word in counts if number)]


def _tell_pace(progress: ProgressLike) -> list[str]:
    facts = [f"{progress.rate:.3g} rows/s"] if progress.rate else []
    facts += [money(progress.cost)] if progress.done or progress.failed else []
    facts.append(duration(progress.seconds, whole=True))
    return facts + ([f"about {duration(progress.left, whole=True)} left"] if progress.left else [])


def _tell_pause(progress: ProgressLike) -> str:
    pause = f"paused for {duration(progress.pause, whole=True)}" if progress.pause else ""
    return ": ".join(filter(None, (pause, shorten(progress.message, 300))))


def _bar(progress: ProgressLike) -> str:
    """The share of the rows that are done, and that failed; nothing where nobody knows how many come."""
    if not progress.total:
        return ""
    parts = ((progress.done, "tlj-ok"), (progress.failed, "tlj-bad"))
    shares = "".join(
        f'<div class="{css}" style="width:{100 * number / progress.total:.4g}%;background:currentColor"></div>'
        for number, css in parts
    )
    label = f"{progress.done + progress.failed:,} of {progress.total:,} rows"
    style = "display:flex;height:6px;margin:6px 0;border-radius:3px;overflow:hidden;background:rgba(128,128,128,.25)"
    return f'<div role="img" aria-label="{label}" style="{style}">{shares}</div>'


# --- what is kept ---------------------------------------------------------------------------------------------


def draw_finished_rows(rows: Sequence[RowLike], progress: ProgressLike, name: str | None = None) -> Block:
    """The rows at their end: the first and the last, those that failed, and the counts. `name` is the variable that has them."""
    first, last = rows[:ENDS], rows[max(ENDS, len(rows) - ENDS) :]
    shown = {row.number for row in (*first, *last)}
    failed = [row for row in rows if row.error is not None and row.number not in shown]
    parts = [
        _draw_rows(first),
        _tell_more(len(rows) - len(shown), "more row", name and f"{name}.frame"),
        _draw_rows(last),
        *([Block(dim("failed, of those"), "failed, of those:"), _draw_rows(failed[:MOST_FAILURES])] if failed else []),
        _tell_more(len(failed) - MOST_FAILURES, "more that failed", name and f"{name}.failed"),
        _draw_end(progress, name),
    ]
    html = "".join(part.html for part in parts)
    text = "\n".join(part.text for part in parts if part.text)
    return Block(f'<div class="tlj tlj-rows" style="{BLOCK}">{html}</div>', text)


def _draw_end(progress: ProgressLike, name: str | None) -> Block:
    """The line below: why it ended, how many rows, cost, time, and what has them."""
    state, css = ("done", "") if not progress.message else (progress.message, "tlj-ask")
    counts = _tell_counts(progress)
    facts = [*counts, money(progress.cost), *filter(None, [tell_duration(progress.seconds)])]
    items = ["", *map(inline, facts)] + ([f"<code>{esc(name)}.frame</code>"] if name else [])
    line = f'<span class="{css}" style="{DIM if not css else "font-size:90%"}">{inline(state)}</span>'
    html = block("tlj-foot", line + dim(" · ".join(items), "span"))
    return Block(html, in_a_line(" · ".join([state, *facts, *([f"{name}.frame"] if name else [])])))


def _tell_more(count: int, words: str, expression: str | None) -> Block:
    if count <= 0:
        return Block("", "")
    text = f"… {counted(count, words, words + 's' * words.endswith('row'))}"
    code = f": <code>{esc(expression)}</code>" if expression else ""
    return Block(dim(inline(text) + code), text + (f": {expression}" if expression else ""))


# --- one row --------------------------------------------------------------------------------------------------


def _draw_rows(rows: Iterable[RowLike]) -> Block:
    """Rows as lines of a table, and as lines of text."""
    html, lines = "", []
    for row in rows:
        mark, css = ("✓", "tlj-ok") if row.error is None else ("✗", "tlj-bad")
        asked, came = _tell_input(row), _tell_end(row)
        took = "" if row.result is None else tell_duration(row.seconds)
        cells = (
            f'<span class="{css}">{mark}</span>',
            dim(f"{row.number:,}", "span"),
            f"<code>{esc(asked)}</code>",
            inline(came),
            dim(inline(took), "span"),
        )
        html += "<tr>" + "".join(f'<td style="{CELL}">{cell}</td>' for cell in cells) + "</tr>"
        lines.append(in_a_line("  ".join(filter(None, (f"{mark} {row.number:,}", asked, f"→ {came}", took)))))
    table = f'<div style="{WIDE}"><table style="{TABLE}">{html}</table></div>' if html else ""
    return Block(table, "\n".join(lines))


def _tell_input(row: RowLike) -> str:
    text = attempt_call(short_arguments, row.input, _ASKED)  # a cell of a table may be any object
    return "cannot be shown" if isinstance(text, Raised) else text


def _tell_end(row: RowLike) -> str:
    """Why it failed, or the fields of its output, or its answer; in one line."""
    if row.error is not None:
        return _fold(row.error)
    if row.result is None:
        return ""
    fields = attempt_call(fields_of, row.result.output)
    if isinstance(fields, Mapping):
        told = attempt_call(short_arguments, fields, _CAME)
        return _fold(row.result.text) if isinstance(told, Raised) else told
    return _fold(row.result.text)


def _fold(text: str) -> str:
    return shorten(" ".join(text[: 4 * _CAME].split()), _CAME)
