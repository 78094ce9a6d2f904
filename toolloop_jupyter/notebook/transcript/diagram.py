"""Draw a run as a timeline: what the person, the model and the tools did, and how long each step took.

The picture is an SVG inside an `<img>` element. If a notebook is not trusted, front-ends remove an inline `<svg>`. They keep
an image whose address contains its data (measured with JupyterLab 4.6, Notebook 7 and nbconvert). An SVG inside an image can
neither run scripts nor load anything. For viewers that remove the image, there are the `alt` text and the same timeline in
characters. The same colours are used on light and dark pages, since an image does not know the colours of its page.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...core.events import Result, Span
from ...core.text import are_times_kept, shorten, tell_duration
from ..html import block, esc, fold, in_a_line, pre
from .blocks import Block, find_status

MOST = 60
"""The picture has at most this many rows. Of a longer run, the picture shows the first and the last rows."""
_WIDTH, _ROW, _LEFT, _RIGHT = 640, 20, 176, 84
"""In pixels: the picture's width, the height of a row, the space for names on the left, the space for seconds on the right."""
# Each colour has a contrast of more than 3.5 to white, and to the dark page colours of JupyterLab and VS Code.
_TEXT, _GRID = "#7b7b7b", "#8a8a8a"
_COLORS = {"you": "#a8761c", "model": "#4285c8", "tool": "#3d8b5f", "error": "#e0524d", "denied": "#a8761c"}
_NOT_XML = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")
"""Characters that XML 1.0 forbids, even in escaped form. A viewer does not show a picture that contains one of them."""


@dataclass(frozen=True)
class _Row:
    """One row of the picture. `start` and `end` are in seconds since the run began."""

    who: str
    """One of "you", "model", "tool", "error", "denied" and "stopped"; it selects the row's colour and mark.

    It is "" for a row that says how many rows are left out.
    """
    label: str
    start: float = 0.0
    end: float = 0.0

    @property
    def took(self) -> str:
        return (
            tell_duration(self.end - self.start)
            if self.end > self.start or self.who not in ("", "you")
            else ""
        )


_MARKS = {"you": "?", "model": "◆", "tool": "›", "error": "✗", "denied": "⊘", "stopped": "■", "": " "}


def timeline(result: Result) -> Block:
    """Return the timeline of a run's model calls, approvals and tool calls.

    The block has the picture, and the same timeline in characters.
    """
    rows, end = _rows(result)
    text = _in_characters(rows, end)
    return Block(block("tlj-time-line", picture(result) + fold("as text", pre(esc(text)))), text)


def picture(result: Result) -> str:
    """Return only the picture, as an `<img>` element."""
    rows, end = _rows(result)
    data = base64.b64encode(_svg(rows, end).encode()).decode()
    spoken = [f"{row.label} {row.took}".strip() for row in rows if row.who]
    more = f", and {len(spoken) - 12} more" if len(spoken) > 12 else ""
    alt = esc(f"timeline: {', '.join(spoken[:12])}{more}")
    return (
        f'<img src="data:image/svg+xml;base64,{data}" alt="{alt}" width="{_WIDTH}" height="{_height(rows)}" '
        'style="max-width:100%;height:auto">'
    )


def _rows(result: Result) -> tuple[list[_Row], float]:
    """Return (the rows of the picture, the number of seconds that the picture covers)."""
    spans = _tell_spans(result.spans)
    rows = _tell_denials([_row(span, result.model) for span in spans], result)
    if rows and result.stop_reason == "cancelled" and rows[-1].who == "error":
        rows[-1] = replace(rows[-1], who="stopped")  # the person has stopped the run, which is no error
    if len(rows) > MOST:
        left_out, last = len(rows) - MOST, MOST // 4
        rows = [*rows[: MOST - last], _Row("", f"… {left_out:,} more"), *rows[-last:]]
    return [_Row("you", "you ask"), *rows], max((span.end for span in spans), default=0.0) or 1.0


def _tell_denials(rows: list[_Row], result: Result) -> list[_Row]:
    """Mark the rows of denied calls, so that these rows are not drawn as errors.

    The rows of tool calls have the same order as the results in `result.tool_results`.
    """
    calls = [number for number, span in enumerate(result.spans) if span.kind == "tool"]
    if len(calls) == len(result.tool_results):
        for number, call in zip(calls, result.tool_results, strict=True):
            if find_status(call, call.decision) == "denied":
                rows[number] = replace(rows[number], who="denied")
    return rows


def _row(span: Span, model: str) -> _Row:
    if span.kind == "approval":
        decision = "denied" if span.is_error else "allowed"  # by a person, or because nobody could be asked
        return _Row("you", f"{decision} {span.name}", span.start, span.end)
    if span.kind == "model":
        # The row of a scripted or recorded model has the name that a person knows. The internal name is different in each
        # kernel.
        name = model if span.name.startswith("toolloop/") and model else span.name
        return _Row("error" if span.is_error else "model", name, span.start, span.end)
    return _Row("error" if span.is_error else "tool", span.name, span.start, span.end)


def _height(rows: Sequence[_Row]) -> int:
    return (len(rows) + 1) * _ROW + 8


def _svg(rows: Sequence[_Row], end: float) -> str:
    height, room = _height(rows), _WIDTH - _LEFT - _RIGHT
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}" '
        f'font-family="system-ui,sans-serif" font-size="12" fill="{_TEXT}">'
    )
    ends = height - _ROW
    marks = [(f"{_LEFT + room * part / 4:.1f}", end * part / 4) for part in range(5)]
    grid = (f'<path d="M{x} 4V{ends}" stroke="{_GRID}" stroke-opacity=".3"/>' for x, _ in marks)
    lines = (_svg_row(row, 4 + number * _ROW, room / end) for number, row in enumerate(rows))
    scale = [f'<text x="{x}" y="{ends + 14}" text-anchor="middle">{_scale(at)}</text>' for x, at in marks]
    return "".join([head, *grid, *lines, *(scale if _has_length(rows) else ()), "</svg>"])


def _has_length(rows: Sequence[_Row]) -> bool:
    return any(row.took for row in rows)


def _svg_row(row: _Row, top: int, scale: float) -> str:
    middle, color = top + _ROW / 2, _COLORS.get(row.who, _TEXT)
    label = f'<text x="4" y="{middle + 4:g}"><tspan fill="{color}">{_MARKS[row.who]}</tspan> {_xml(shorten(row.label, 23))}</text>'
    if not row.who:
        return label
    x = _LEFT + row.start * scale
    if row.end <= row.start and row.who == "you":
        return f'{label}<circle cx="{x:.1f}" cy="{middle:g}" r="4" fill="{color}"/>'
    width = max((row.end - row.start) * scale, 2.0)
    bar = f'<rect x="{x:.1f}" y="{top + 4}" width="{width:.1f}" height="{_ROW - 8}" rx="2" fill="{color}"/>'
    return f'{label}{bar}<text x="{x + width + 6:.1f}" y="{middle + 4:g}">{row.took}</text>'


def _xml(text: str) -> str:
    return html.escape(_NOT_XML.sub("\ufffd", in_a_line(text)))


def _scale(seconds: float) -> str:
    if not seconds:
        return "0" if are_times_kept() else ""
    return tell_duration(seconds)


def _in_characters(rows: Sequence[_Row], end: float) -> str:
    lines = []
    for row in rows:
        name = f"{_MARKS[row.who]} {in_a_line(shorten(row.label, 23))}"
        bar = _bar(row.start / end, row.end / end) if row.took else ""
        lines.append(f"{name:<26} {bar} {row.took}".rstrip())
    if _has_length(rows):
        lines.append(f"{'':<26} 0{_scale(end):>{_BAR - 1}}")
    return "\n".join(lines)


_BAR = 32
"""In the timeline in characters, the whole time of the run is this many characters wide."""


def _bar(start: float, end: float) -> str:
    first = min(int(start * _BAR), _BAR - 1)
    length = max(round((end - start) * _BAR), 1)
    return ("·" * first + "█" * length)[:_BAR].ljust(_BAR, "·")


def _tell_spans(spans: Sequence[Span]) -> list[Span]:
    """Return a run's spans for the timeline.

    If the user has turned times off, the returned spans have equal lengths and do not overlap.
    """
    if are_times_kept():
        return list(spans)
    return [replace(span, start=float(number), end=number + 1.0) for number, span in enumerate(spans)]
