"""The approval card: a request with every argument in full, and the buttons that decide on it."""

from __future__ import annotations

import html
import inspect
import json
from collections.abc import Callable, Mapping

import ipywidgets

from ...core.events import Approval, DecidedBy, Decision, Scope
from ...core.text import plain
from ..html import (
    BLOCK,
    CARD_STYLE,
    CELL,
    CODE,
    DIM,
    INLINE_CODE,
    STYLE,
    SUMMARY,
    TABLE,
    counted,
    esc,
    first_line,
    highlight,
    inline,
    pre,
    shorten,
    visible_json,
    visible_text,
)
from .controls import Hold, _button, _Field, _Panel, _tree
from .edit_form import field_specs

_SCOPES: dict[Scope, str] = {
    "call": "this call only",
    "run": "all calls of {} in this run",
    "session": "all calls of {} in this session",
}


class ApprovalCard(_Panel):
    """Shows one request to run a tool, and passes the person's decision on to the `Approval`.

    `position` says where in the run it is ("call 4"). Where the request may be approved for more than this call, a
    choice offers to. `is_clicked(comm id)` tells whether the front-end has sent the click that is handled now. `came_up()` is to be called when it is on the page: it may then be held for a moment (`holding`).
    """

    def __init__(
        self, approval: Approval, *, position: str = "", is_clicked: Callable[[str], bool] = lambda _: True
    ) -> None:
        self._approval = approval
        self._is_clicked = is_clicked
        self._position = position
        self._hold = Hold(self._show_held)
        self._fields: list[_Field] = []
        tool = plain(approval.tool)
        self._question = ipywidgets.HTML(STYLE + CARD_STYLE + question_html(approval, position))
        self._whole = _button(
            f"Show all {size:,} characters" if (size := left_out(approval)) else "",
            "Show the arguments to their last character",
            "",
            self._on_whole,
        )
        self._form = ipywidgets.VBox([])
        self._form.add_class("tlj-form")
        self._error = ipywidgets.HTML("")
        self._approve = _button(
            "Approve", f"Run {tool} with exactly these arguments", "tlj-go", self._on_approve
        )
        self._edit = _button("Edit…", "Change the arguments before the tool runs", "", self._on_edit)
        self._deny = _button("Deny", f"Do not run {tool}; the model is told", "", self._on_deny)
        self._reason = ipywidgets.Text(description="Deny because", placeholder="optional; the model is told")
        self._reason.style.description_width = "initial"
        self._reason.add_class("tlj-why")
        self._scope = ipywidgets.Dropdown(
            options=[
                (words.format(tool), scope) for scope, words in _SCOPES.items() if scope in approval.scopes
            ],
            value="call",
            description="Approve covers",
        )
        self._scope.style.description_width = "initial"
        self._scope.add_class("tlj-all")
        wider = [self._scope] if len(self._scope.options) > 1 else []
        edit = [self._edit] if approval.editable else []
        row = ipywidgets.Box([self._approve, *edit, self._deny, self._reason, *wider])
        row.add_class("tlj-row")
        whole = [self._whole] if self._whole.description else []
        card = ipywidgets.VBox([self._question, *whole, self._form, self._error, row])
        card.add_class("tlj-card")
        shown = (*wider, *whole, *edit)
        self._unused = [one for one in (self._scope, self._whole, self._edit) if one not in shown]
        super().__init__(card)
        self._hold.begin(only_soon=True)

    def came_up(self) -> None:
        """The card is on the page: hold Approve for a moment if a click came shortly before, which may be a double click.

        That click's button is gone with its card, and the focus with it: it goes on to this card, to the one control
        that no key decides with.
        """
        focus = getattr(self._reason, "focus", None)  # ipywidgets 8
        if self._hold.came_up() and focus is not None:
            focus()

    def finish(self, decision: Decision | None = None) -> None:
        """Take the card away: nothing on it acts any more, and all its comms are closed. Safe to call twice."""
        if self._finished:
            return
        self._hold.gone()
        self._disable()
        self._close()
        for unused in self._unused:
            for widget in _tree(unused):
                widget.close()

    def _on_approve(self, _: object) -> None:
        if self._hold.on:
            return
        by = self._by(self._approve)
        # Disabled first: as soon as there is a decision, the run (on another thread, with subshells) closes the card.
        self._disable()
        if self._finished or self._approval.answered:
            return
        Hold.after_click(self._hold)
        try:
            self._approval.allow(self._edited(), by=by, scope=self._scope.value)
        except ValueError as error:
            self._disable(off=False)
            self._error.value = error_html(str(error))

    def _on_deny(self, _: object) -> None:
        by = self._by(self._deny)
        self._disable()
        if not self._finished and not self._approval.answered:
            Hold.after_click(self._hold)
            self._approval.deny(self._reason.value.strip(), by=by)

    def _by(self, button: ipywidgets.Button) -> DecidedBy:
        """Who works a button: a person, or code (`button.click()` in a thread that a tool left behind)."""
        return "click" if self._is_clicked(getattr(button.comm, "comm_id", "")) else "code"

    def _on_whole(self, _: object) -> None:
        if not self._finished and not self._approval.answered:
            question = question_html(self._approval, self._position, whole=True)
            self._question.value = STYLE + CARD_STYLE + question
            self._whole.layout.display = "none"

    def _on_edit(self, _: object) -> None:
        if self._finished or self._approval.answered:
            return
        self._error.value = ""
        if self._fields:
            self._drop_form()
            return
        specs = field_specs(self._approval.schema, self._approval.input)
        self._fields = [_Field(spec) for spec in specs]
        self._form.children = tuple(field.widget for field in self._fields)
        self._edit.description = "Undo edits"
        self._approve.description = "Approve edited"
        focus = getattr(self._fields[0].input, "focus", None) if self._fields else None
        if focus is not None:  # ipywidgets 8
            focus()

    def _drop_form(self) -> None:
        old = self._form.children
        self._fields = []
        self._form.children = ()
        for child in old:
            for widget in _tree(child):
                widget.close()
        self._edit.description = "Edit…"
        self._approve.description = "Approve"

    def _edited(self) -> Mapping[str, object] | None:
        """The arguments of the form, or None when nobody changed anything."""
        if not self._fields:
            return None
        arguments = dict(self._approval.input)
        for field in self._fields:
            field.put_into(arguments)
        return arguments

    def _show_held(self, held: bool) -> None:  # noqa: FBT001 - called with one value
        if not self._finished and not self._approval.answered:
            self._approve.disabled = held

    def _disable(self, *, off: bool = True) -> None:
        if not self._finished:
            for widget in (self._approve, self._edit, self._deny, self._reason, self._scope, self._whole):
                widget.disabled = off


# --- what the card says, as HTML: the question, every argument in full, what the tool does, why it asks ---

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
