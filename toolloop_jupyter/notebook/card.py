"""What an approval card says, as HTML: the question, every argument in full, what the tool does, why it asks."""

from __future__ import annotations

import html
import inspect
import json
from collections.abc import Callable

from ..core.cleaning import plain
from ..core.events import Approval
from .highlight import highlight
from .inert import counted, esc, first_line, inline, shorten, visible_json, visible_text
from .style import BLOCK, CELL, CODE, DIM, INLINE_CODE, SUMMARY, TABLE, pre

_FOLD = 400
"""Characters from which an argument is folded behind its beginning; it is there in full all the same."""
MOST = 200_000
"""Characters of one argument that the card shows at first: its beginning and its end."""


def question_html(approval: Approval, position: str = "", *, whole: bool = False) -> str:
    """The card without its buttons.

    Nothing of the arguments is left out, but for the middle of a text that would be too much for a page (MOST); with
    `whole` that, too, is there.
    """
    where = f' <span style="{DIM}">{inline(position)}</span>' if position else ""
    # An alert is read aloud when it comes up, wherever the focus is; "polite" lets what is being said end first.
    title = (
        f'<div role="alert" aria-live="polite"><p class="tlj-title" role="heading" aria-level="4"><span class="tlj-ask" '
        f'aria-hidden="true">?</span> <b>Run <code>{esc(approval.tool)}</code> with exactly this?</b>{where}</p></div>'
    )
    rows = "".join(
        f'<tr><th scope="row" style="{CELL}"><code>{esc(str(name))}</code></th><td style="{CELL}">{full_value(value, whole=whole)}</td></tr>'
        for name, value in approval.input.items()
    )
    table = f'<table style="{TABLE}">{rows}</table>' if rows else f'<p style="{DIM}">no arguments</p>'
    why = f'<p style="{DIM}">asked because {inline(approval.why)}</p>' if approval.why else ""
    label = esc(f"Approval: run {plain(approval.tool)}, {position}".rstrip(", "))
    return f'<div class="tlj" role="group" aria-label="{label}">{title}{table}{_what_it_does(approval)}{why}</div>'


def _what_it_does(approval: Approval) -> str:
    if not approval.description and not approval.source:
        return ""
    summary = (
        f"what it does: {first_line(approval.description, 160)}" if approval.description else "what it does"
    )
    description = inspect.cleandoc(approval.description)
    words = f'<p style="white-space:pre-wrap">{inline(description)}</p>' if description else ""
    source = pre(highlight(approval.source, "python")) if approval.source else ""
    hint = " (source)" if approval.source else ""
    return f'<details style="{BLOCK}"><summary style="{SUMMARY};{DIM}">{inline(summary)}{hint}</summary>{words}{source}</details>'


def left_out(approval: Approval) -> int:
    """How many characters the longest argument has, when `question_html` leaves out its middle; else 0."""
    longest = max((len(_as_text(value)) for value in approval.input.values()), default=0)
    return longest if longest > MOST else 0


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else _json(value, indent=2)


def full_value(value: object, *, whole: bool = False) -> str:
    """One argument: text as text with its blanks, controls and hidden characters visible, the rest as JSON."""
    if isinstance(value, str) and ("\n" in value or len(value) > 120):
        lines = value.count("\n") + (not value.endswith("\n"))
        size = f"text, {counted(len(value), 'character')}, {counted(lines, 'line')}"
        return _long(value, size, visible_text, whole=whole)
    if isinstance(value, (dict, list)) and len(_json(value)) > 80:
        size = counted(len(value), "entry", "entries")
        return _long(_json(value, indent=2), size, visible_json, whole=whole)
    return f'<code style="{INLINE_CODE}">{html.escape(visible_json(_json(value)))}</code>'


def _long(text: str, size: str, shown: Callable[[str], str], *, whole: bool) -> str:
    """A text with its size, folded behind its beginning where it is long; `shown` makes it visible."""
    if len(text) <= _FOLD:
        return f'<pre style="{CODE}">{html.escape(shown(text))}</pre><div style="{DIM}">{size}</div>'
    parts = pre(html.escape(shown(text)))
    if len(text) > MOST and not whole:
        size += f", the middle {len(text) - MOST:,} characters not on this page yet"
        middle = f"… {len(text) - MOST:,} characters: “Show all” below brings them …"
        first, last = (pre(html.escape(shown(part))) for part in (text[: MOST // 2], text[-MOST // 2 :]))
        parts = f"{first}<p>{inline(middle)}</p>{last}"
    start = html.escape(shorten(shown(first_line(text, 200)), 100))
    return (
        f'<details><summary style="{SUMMARY}"><code style="{INLINE_CODE}">{start}</code> '
        f'<span style="{DIM}">{size}</span></summary>{parts}</details>'
    )


def _json(value: object, indent: int | None = None) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent)
    except (TypeError, ValueError, RecursionError):
        return repr(value)


def error_html(message: str) -> str:
    """What is wrong with edited arguments, for the card; read aloud by a screen reader at once."""
    return f'<div class="tlj" role="alert" style="white-space:pre-wrap"><span class="tlj-bad">✗</span> {inline(message)}</div>'
