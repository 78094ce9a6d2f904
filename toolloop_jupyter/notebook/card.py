"""What an approval card says, as HTML: the question, every argument in full, what the tool does, why it asks."""

from __future__ import annotations

import html
import inspect
import json

from ..core.events import Approval
from .highlight import highlight
from .inert import esc, first_line, inline, shorten, visible
from .style import BLOCK, CELL, CODE, DIM, SUMMARY, TABLE, pre

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
    title = (
        f'<p class="tlj-title" role="heading" aria-level="4"><span class="tlj-ask">?</span> '
        f"<b>Run <code>{esc(approval.tool)}</code> with exactly this?</b>{where}</p>"
    )
    rows = "".join(
        f'<tr><th scope="row" style="{CELL}"><code>{esc(str(name))}</code></th><td style="{CELL}">{full_value(value, whole=whole)}</td></tr>'
        for name, value in approval.input.items()
    )
    table = f'<table style="{TABLE}">{rows}</table>' if rows else f'<p style="{DIM}">no arguments</p>'
    why = f'<p style="{DIM}">asked because {inline(approval.why)}</p>' if approval.why else ""
    return f'<div class="tlj">{title}{table}{_what_it_does(approval)}{why}</div>'


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
        size = f"text, {len(value):,} characters, {value.count(chr(10)) + 1:,} lines"
        return _long(value, size, whole=whole)
    if isinstance(value, (dict, list)):
        one_line = _json(value)
        if len(one_line) <= 80:
            return f"<code>{_shown(one_line)}</code>"
        return _long(_json(value, indent=2), f"{len(value):,} entries", whole=whole)
    return f"<code>{_shown(_json(value))}</code>"


def _long(text: str, size: str, *, whole: bool) -> str:
    if len(text) <= _FOLD:
        return f'<pre style="{CODE}">{_shown(text)}</pre><div style="{DIM}">{size}</div>'
    shown = pre(_shown(text))
    if len(text) > MOST and not whole:
        size += f", the middle {len(text) - MOST:,} characters not on this page yet"
        middle = f"… {len(text) - MOST:,} characters: “Show all” below brings them …"
        shown = pre(_shown(text[: MOST // 2])) + f"<p>{inline(middle)}</p>" + pre(_shown(text[-MOST // 2 :]))
    start = esc(shorten(first_line(text, 200), 100))
    return f'<details><summary style="{SUMMARY}"><code>{start}</code> <span style="{DIM}">{size}</span></summary>{shown}</details>'


def _json(value: object, indent: int | None = None) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent)
    except (TypeError, ValueError, RecursionError):
        return repr(value)


def _shown(text: str) -> str:
    return html.escape(visible(text, spaces=True))


def error_html(message: str) -> str:
    """What is wrong with edited arguments, for the card; read aloud by a screen reader at once."""
    return f'<div class="tlj" role="alert" style="white-space:pre-wrap"><span class="tlj-bad">✗</span> {inline(message)}</div>'
