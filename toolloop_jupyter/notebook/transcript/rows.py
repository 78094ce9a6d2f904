"""Draw a rows run as one block: the progress while rows run, and the finished rows at the end.

Each row is one line with its number, its input, and its answer or error. Of a thousand finished rows, the block shows the
first and the last few, and some rows that failed. The run's Rows object has the whole transcripts (`rows[17]`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from ...core.events import Row, Rows, RowsProgress
from ...core.execution import Raised, attempt_call
from ...core.text import shorten, tell_duration, write_duration
from ..html import BLOCK, CELL, DIM, TABLE, WIDE, dim, esc, inline, put_in_a_line, table, tell_count
from .blocks import Block, draw_foot, draw_status, tell_cost
from .calls import shorten_arguments
from .values import list_fields

ENDS = 5
"""The block of a finished rows run shows this many rows of the beginning and this many rows of the end."""
MOST_FAILURES = 20
"""The block of a finished rows run shows at most this many of the failed rows that are between the first and the last rows."""
_MOST_INPUT = 60
"""At most this many characters of a row's input are shown."""
_MOST_ANSWER = 160
"""At most this many characters of a row's answer or error are shown."""


# --- while they run -------------------------------------------------------------------------------------------


def draw_running_rows(progress: RowsProgress, state: str = "") -> Block:
    """Draw the progress: `state` ("waiting for you"), the counts, a bar, and the rows that ended last."""
    facts = [*([state] if state else []), *_tell_counts(progress), *_tell_pace(progress)]
    status = f'<div class="tlj-status">{draw_status(facts[0], facts[1:], is_waiting=bool(state))}</div>'
    note, last = _tell_pause(progress), _draw_table(map(_draw_row, progress.last))
    words = dim(inline(note)) if note else ""
    html = f'<div class="tlj tlj-rows" style="{BLOCK}">{status}{_draw_bar(progress)}{words}{last.html}</div>'
    texts = [put_in_a_line(" · ".join(facts)), put_in_a_line(note), last.text]
    return Block(html, "\n".join(text for text in texts if text))


def tell_running_rows(progress: RowsProgress, width: int = 0) -> str:
    """Return the progress as one line for a terminal. The line has at most `width` characters; 0 means no limit."""
    facts = [*_tell_counts(progress), *_tell_pace(progress), _tell_pause(progress)]
    text = put_in_a_line(" · ".join(filter(None, facts)))
    return shorten(text, width) if width else text


def _tell_counts(progress: RowsProgress, waiting: str = "waiting") -> list[str]:
    """Return the counts as texts. `waiting` is the word for rows that have not begun."""
    ended, total = progress.done + progress.failed, progress.total
    counts = [
        (progress.failed, "failed"),
        (progress.running, "running"),
        (progress.waiting, waiting),
        (progress.from_store, "from the store"),
        (progress.again, "tried again"),
    ]
    rows = tell_count(ended, "row") if total is None else f"{ended:,} of {tell_count(total, 'row')}"
    return [rows, *(f"{number:,} {word}" for number, word in counts if number)]


def _tell_pace(progress: RowsProgress) -> list[str]:
    facts = [f"{progress.speed.rate:.3g} rows/s"] if progress.speed.rate else []
    facts += [tell_cost(progress.cost)] if progress.cost else []
    facts.append(write_duration(progress.seconds, whole=True))
    return facts + ([f"{write_duration(progress.left, whole=True)} left"] if progress.left else [])


def _tell_pause(progress: RowsProgress) -> str:
    pause = f"paused for {write_duration(progress.speed.pause, whole=True)}" if progress.speed.pause else ""
    return ": ".join(filter(None, (pause, shorten(progress.message, 300))))


def _draw_bar(progress: RowsProgress) -> str:
    """Draw a bar: the share of rows that are done, and the share that failed. Return "" if the number of rows is not known."""
    if not progress.total:
        return ""
    parts = ((progress.done, "tlj-ok"), (progress.failed, "tlj-bad"))
    shares = "".join(
        f'<div class="{css}" style="width:{100 * number / progress.total:.4g}%;background:currentColor"></div>'
        for number, css in parts
    )
    label = f"{progress.done + progress.failed:,} of {tell_count(progress.total, 'row')}"
    style = "display:flex;height:6px;margin:6px 0;border-radius:3px;overflow:hidden;background:rgba(128,128,128,.25)"
    return f'<div role="img" aria-label="{label}" style="{style}">{shares}</div>'


# --- the finished rows ---------------------------------------------------------------------------------------------


def draw_finished_rows(rows: Rows, name: str | None = None) -> Block:
    """Draw a finished rows run: the first and the last rows, rows that failed, and the counts.

    The HTML contains the style sheet. `name` is the notebook's variable that holds the rows; None if no variable holds them.
    """
    ended = list(rows)
    first, between, last = ended[:ENDS], ended[ENDS:-ENDS], ended[ENDS:][-ENDS:]
    failed = [row for row in between if row.error is not None]
    lines = [
        *map(_draw_row, first),
        *_tell_more(len(between), "more row", name and f"{name}.frame"),
        *map(_draw_row, last),
        *([_draw_line(f"{len(failed):,} of those between failed:")] if failed else []),
        *map(_draw_row, failed[:MOST_FAILURES]),
        *_tell_more(len(failed) - MOST_FAILURES, "more failed row", name and f"{name}.failed"),
    ]
    parts = [_draw_table(lines), _draw_end(rows, name)]
    html = "".join(part.html for part in parts)
    text = "\n".join(part.text for part in parts if part.text)
    return Block(f'<div class="tlj tlj-rows" style="{BLOCK}">{html}</div>', text)


def _draw_end(rows: Rows, name: str | None) -> Block:
    """Draw the last line: why the run ended, the counts, the cost, the time. A click on it shows a table with more counts."""
    progress = rows.progress
    state, css = (shorten(rows.message, 500), "tlj-ask") if rows.message else ("done", "")
    facts = [*_tell_counts(progress, "not run"), tell_cost(rows.cost), tell_duration(progress.seconds)]
    usage = rows.usage
    counts = (
        ("model calls", f"{usage.calls:,}"),
        ("tokens", f"{usage.total_tokens:,}"),
        ("rows taken from the store", f"{progress.from_store:,}"),
        ("rows that had failed before", f"{progress.again:,}"),
        ("rows ended by a stop", f"{len(rows.cut):,}"),
    )
    expression = f"{name}.frame" if name else ""
    return draw_foot([state, *filter(None, facts)], css, expression, ("the counts", table(counts, head="th")))


def _tell_more(count: int, word: str, expression: str | None) -> list[Block]:
    """Return a list with one line about `count` rows that are not shown; [] if all rows are shown."""
    return [_draw_line(f"… {tell_count(count, word)}", expression or "")] if count > 0 else []


# --- the lines of the table -----------------------------------------------------------------------------------


def _draw_table(lines: Iterable[Block]) -> Block:
    """Join lines to a table. Its plain text has one line for each line of the table."""
    made = list(lines)
    rows = "".join(one.html for one in made)
    html = f'<div style="{WIDE}"><table style="{TABLE}">{rows}</table></div>' if rows else ""
    return Block(html, "\n".join(one.text for one in made))


def _draw_line(words: str, expression: str = "") -> Block:
    """Draw a line of words, for example about rows that are not shown. `expression` is Python code that gets these rows."""
    code = f": <code>{esc(expression)}</code>" if expression else ""
    html = f'<tr><td colspan="5" style="{CELL}">{dim(words + code)}</td></tr>'
    return Block(html, put_in_a_line(": ".join(filter(None, (words, expression)))))


def _draw_row(row: Row) -> Block:
    mark, css = ("✓", "tlj-ok") if row.error is None else ("✗", "tlj-bad")
    # An object in the input may raise an error when it is written as text.
    written = attempt_call(shorten_arguments, dict(islice(row.input.items(), 20)), _MOST_INPUT)
    given = "…" if isinstance(written, Raised) else written
    end, took = _tell_end(row), tell_duration(row.seconds)
    cells = (
        f'<span class="{css}">{mark}</span>',
        dim(f"{row.number:,}", "span"),
        f"<code>{esc(given)}</code>",
        inline(end),
        f'<span style="{DIM};white-space:nowrap">{took}</span>',
    )
    html = "<tr>" + "".join(f'<td style="{CELL}">{cell}</td>' for cell in cells) + "</tr>"
    text = "  ".join(filter(None, (f"{mark} {row.number:,}", given, f"→ {end}", took)))
    return Block(html, put_in_a_line(text))


def _tell_end(row: Row) -> str:
    """Return one line with the row's error, or with the fields of its output, or with its answer as text."""
    text = row.error or ""
    if row.error is None and row.result is not None:
        text = row.result.text
        fields = attempt_call(list_fields, row.result.output)
        if isinstance(fields, Mapping):
            line = attempt_call(shorten_arguments, fields, _MOST_ANSWER)
            if not isinstance(line, Raised):
                return line
    return shorten(" ".join(text[: 4 * _MOST_ANSWER].split()), _MOST_ANSWER)
