"""Draw a run as a timeline: what the person, the model and the tools did, and how long each step took.

The picture is an SVG inside an `<img>` element. If a notebook is not trusted, front-ends remove an inline `<svg>`, but keep an
image whose address contains its data (measured with JupyterLab 4.6, Notebook 7 and nbconvert). An SVG inside an image can
neither run scripts nor load anything. For viewers that remove the image, there are the `alt` text and the same timeline in
characters. An image does not know the colours of its page, so the same colours are used on light and dark pages.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...core.events import Result
from ...core.text import are_times_kept, shorten, tell_duration
from ..html import WIDE, block, esc, fold, pre, put_in_a_line
from .blocks import Block, find_status, name_models

MOST = 60  # at most this many rows are in the picture; of a longer run, it shows the first and the last rows
_WIDTH, _ROW, _LEFT, _RIGHT = 640, 20, 176, 84
"""In pixels: the picture's width, the height of a row, the space for names on the left, the space for seconds on the right."""
# Each colour has a contrast of more than 3.5 to white, and to the dark page colours of JupyterLab and VS Code.
_TEXT, _GRID = "#7b7b7b", "#8a8a8a"
_COLORS = {"you": "#a8761c", "model": "#4285c8", "tool": "#3d8b5f", "error": "#e0524d", "denied": "#a8761c"}
_BAR = 32  # in the timeline in characters, the whole time of the run is this many characters wide
_NOT_XML = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")
"""Characters that XML 1.0 forbids, even in escaped form. A viewer does not show a picture that contains one of them."""


@dataclass(frozen=True)
class _Row:
    """One row of the picture. `start` and `end` are in seconds since the run began."""

    who: str
    """A key of `_MARKS`, for the row's mark and colour; "" for a row that says how many rows are left out."""
    label: str
    start: float = 0.0
    end: float = 0.0

    @property
    def took(self) -> str:
        is_moment = self.end <= self.start and self.who in ("", "you")
        return "" if is_moment else tell_duration(self.end - self.start)


_MARKS = {"you": "?", "model": "◆", "tool": "›", "error": "✗", "denied": "⊘", "stopped": "■", "": " "}


def draw_timeline(result: Result) -> Block:
    """Return the timeline of a run's model calls, approvals and tool calls, as a picture and in characters."""
    rows, end = _list_rows(result)
    lines = []
    for row in rows:
        name = f"{_MARKS[row.who]} {put_in_a_line(shorten(row.label, 23))}"
        lines.append(f"{name:<26} {_draw_bar(row, end) if row.took else ''} {row.took}".rstrip())
    if any(row.took for row in rows):
        lines.append(f"{'':<26} 0{_tell_time(end):>{_BAR - 1}}")
    text = "\n".join(lines)
    return Block(
        block("tlj-time-line", draw_timeline_picture(result) + fold("as text", pre(esc(text)))), text
    )


def draw_timeline_picture(result: Result) -> str:
    """Return only the picture, as an `<img>` element. On a narrow page, a person can scroll it sideways."""
    rows, end = _list_rows(result)
    height = (len(rows) + 1) * _ROW + 8
    data = base64.b64encode(_draw_svg(rows, end, height).encode()).decode()
    spoken = [f"{row.label} {row.took}".strip() for row in rows if row.who]
    more = f", and {len(spoken) - 12} more" if len(spoken) > 12 else ""
    alt = esc(f"timeline: {', '.join(spoken[:12])}{more}")
    return (
        f'<div style="{WIDE}"><img src="data:image/svg+xml;base64,{data}" alt="{alt}" width="{_WIDTH}" '
        f'height="{height}" style="max-width:100%;min-width:26em;height:auto"></div>'
    )


def _list_rows(result: Result) -> tuple[list[_Row], float]:
    """Return (the rows of the picture, the number of seconds that the picture covers)."""
    spans, names = list(result.spans), name_models(result)
    if not are_times_kept():  # then all spans get the same length, so that two runs give the same picture
        spans = [replace(span, start=float(number), end=number + 1.0) for number, span in enumerate(spans)]
    denials = [find_status(one, one.decision) == "denied" for one in result.tool_results]
    is_in_order = len(denials) == sum(span.kind == "tool" for span in spans)
    next_denial = iter(denials if is_in_order else ())
    rows = []
    for span in spans:
        who: str = "error" if span.is_error else span.kind
        label = names.get(span.name, span.name)
        if span.kind == "approval":
            who, label = "you", f"{'denied' if span.is_error else 'allowed'} {span.name}"
        elif span.kind == "tool":
            who, label = "denied" if next(next_denial, False) else who, span.name
        rows.append(_Row(who, label, span.start, span.end))
    if rows and result.stop_reason == "cancelled" and rows[-1].who == "error":
        rows[-1] = replace(rows[-1], who="stopped")  # the person has stopped the run, which is not an error
    if len(rows) > MOST:
        left_out, last = len(rows) - MOST, MOST // 4
        rows = [*rows[: MOST - last], _Row("", f"… {left_out:,} more"), *rows[-last:]]
    return [_Row("you", "you ask"), *rows], max((span.end for span in spans), default=0.0) or 1.0


def _draw_svg(rows: Sequence[_Row], end: float, height: int) -> str:
    room, bottom = _WIDTH - _LEFT - _RIGHT, height - _ROW
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}" '
        f'font-family="system-ui,sans-serif" font-size="12" fill="{_TEXT}">'
    )
    # Of a run of a few milliseconds, all times between the first and the last would be written as "0.01 s".
    parts = range(5) if end > 0.1 else (0, 4)
    marks = [(f"{_LEFT + room * part / 4:.1f}", end * part / 4) for part in parts]
    grid = (f'<path d="M{x} 4V{bottom}" stroke="{_GRID}" stroke-opacity=".3"/>' for x, _ in marks)
    lines = (_draw_svg_row(row, 4 + number * _ROW, room / end) for number, row in enumerate(rows))
    scale = ""
    if any(row.took for row in rows):
        y = bottom + 14
        scale = "".join(
            f'<text x="{x}" y="{y}" text-anchor="middle">{_tell_time(at)}</text>' for x, at in marks
        )
    return "".join([head, *grid, *lines, scale, "</svg>"])


def _draw_svg_row(row: _Row, top: int, scale: float) -> str:
    middle, color = top + _ROW / 2, _COLORS.get(row.who, _TEXT)
    name = html.escape(_NOT_XML.sub("\ufffd", put_in_a_line(shorten(row.label, 23))))
    label = f'<text x="4" y="{middle + 4:g}"><tspan fill="{color}">{_MARKS[row.who]}</tspan> {name}</text>'
    if not row.who:
        return label
    x = _LEFT + row.start * scale
    if row.end <= row.start and row.who == "you":
        return f'{label}<circle cx="{x:.1f}" cy="{middle:g}" r="4" fill="{color}"/>'
    width = max((row.end - row.start) * scale, 2.0)
    bar = f'<rect x="{x:.1f}" y="{top + 4}" width="{width:.1f}" height="{_ROW - 8}" rx="2" fill="{color}"/>'
    return f'{label}{bar}<text x="{x + width + 6:.1f}" y="{middle + 4:g}">{row.took}</text>'


def _tell_time(seconds: float) -> str:
    return tell_duration(seconds) if seconds or not are_times_kept() else "0"


def _draw_bar(row: _Row, end: float) -> str:
    first = min(int(row.start / end * _BAR), _BAR - 1)
    length = max(round((row.end / end - row.start / end) * _BAR), 1)
    return ("·" * first + "█" * length)[:_BAR].ljust(_BAR, "·")
