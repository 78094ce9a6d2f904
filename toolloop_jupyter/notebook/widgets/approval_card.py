"""The approval card. It shows a request with all its arguments, and the buttons that decide on the request."""

from __future__ import annotations

import html
import inspect
from collections.abc import Callable

import ipywidgets

from ...core.events import Approval, DecidedBy, Scope
from ...core.text import shorten
from ..html import (
    CARD_STYLE,
    CODE,
    INLINE_CODE,
    STYLE,
    SUMMARY,
    counted,
    dim,
    esc,
    first_line,
    fold,
    highlight,
    in_a_line,
    inline,
    pre,
    table,
    visible,
    visible_json,
    visible_text,
)
from ..transcript import tell_reach, tell_why, value_text
from .controls import Card, Comms, button, hold_cards, parts_of
from .edit_form import EditForm


class ApprovalCard(Card):
    """Shows one request to run a tool, and passes the person's decision on to the `Approval`.

    `comms` says whether a person or code clicked; if it is None, every click counts as a person's.
    """

    def __init__(self, approval: Approval, comms: Comms | None = None) -> None:
        self._approval, self._comms = approval, comms
        self._is_whole = False
        self._form, self._question, self._error = EditForm(), ipywidgets.HTML(), ipywidgets.HTML("")
        tool, size, is_question = visible(approval.tool), left_out(approval), bool(approval.question)
        if is_question:
            self._form.open(approval.schema, approval.input)
            run, no = ("Send", "Send exactly this to the server"), ("Decline", "Send nothing")
        else:
            run = ("Approve", f"Run {tool} with exactly these arguments")
            no = ("Deny", f"Do not run {tool}; the model is told")
        self._approve, deny = button(*run, "tlj-go"), button(*no, "tlj-no")
        self._edit = button("Edit…", "Change the arguments before the tool runs")
        whole = button(f"Show all {size:,} characters", "Show the arguments to their last character")
        self._reason = ipywidgets.Text(
            description="Deny because",
            placeholder="optional",
            tooltip="The model is told",
            continuous_update=False,
        )
        self._reason.add_class("tlj-why")
        covers = _list_scopes(approval, tool)
        self._scope = ipywidgets.Dropdown(options=covers, value="call", description="Approve covers")
        self._scope.add_class("tlj-all")
        for field in (self._reason, self._scope):
            field.style.description_width = "initial"
        self._draw()
        offered = {
            whole: size > 0,
            self._edit: approval.editable and not is_question,
            self._reason: not is_question,
            self._scope: len(covers) > 1,
        }
        unused = [control for control, is_offered in offered.items() if not is_offered]
        parts = [
            part for part in (self._question, whole, self._form.widget, self._error) if part not in unused
        ]
        self._controls = [self._approve, self._edit, deny, self._reason, self._scope, whole]
        row = [control for control in self._controls[:-1] if control not in unused]
        super().__init__(*parts, buttons=row, allowing=[self._approve], beside=unused)
        self._keep_order(self.widget, *unused)
        # The buttons are connected last, when the card is complete. A tool's code may press a button as soon as the button is
        # connected.
        self._approve.on_click(self._on_approve)
        self._edit.on_click(self._on_edit)
        deny.on_click(self._on_deny)
        whole.on_click(self._on_whole)

    @property
    def is_decided(self) -> bool:
        return self._finished or self._approval.answered

    def finish(self) -> None:
        """Remove the card and close all its comms. After this, its buttons do nothing."""
        self._disable()
        super().finish()

    def _draw(self) -> None:
        """Draw the request, without the arguments if the open edit form shows them."""
        is_edited = bool(self._form.fields)
        asked = question_html(self._approval, whole=self._is_whole, is_edited=is_edited)
        self._question.value = STYLE + CARD_STYLE + asked

    def _on_whole(self, pressed: ipywidgets.Button) -> None:
        if not self.is_decided:
            self._is_whole = True
            pressed.layout.display = "none"
            self._draw()

    def _on_approve(self, pressed: ipywidgets.Button) -> None:
        if self.is_held:
            return
        by = self._by(pressed)
        # The buttons are disabled first. The run may be on another thread, and it closes the card as soon as there is a
        # decision.
        self._disable()
        if self.is_decided:
            return
        hold_cards(self)
        try:
            edited = self._form.read(self._approval.input)
            self._approval.allow(edited, by=by, scope=self._scope.value)
        except ValueError as error:
            self._disable(off=False)
            self._error.value = error_html(str(error))

    def _on_deny(self, pressed: ipywidgets.Button) -> None:
        by = self._by(pressed)
        self._disable()
        if not self.is_decided:
            hold_cards(self)
            self._approval.deny(self._reason.value.strip(), by=by)

    def _by(self, button: ipywidgets.Button) -> DecidedBy:
        """Return "click", or "code" if code has pressed the button: a thread of an ended tool may call `button.click()`."""
        return "click" if self._comms is None or self._comms.is_click(button.comm) else "code"

    def _keep_order(self, *widgets: ipywidgets.Widget) -> None:
        if self._comms is not None:
            for widget in widgets:
                for part in parts_of(widget):
                    self._comms.keep_order(part.comm)

    def _on_edit(self, _: object) -> None:
        if self.is_decided:
            return
        self._error.value = ""
        if self._form.fields:
            self._form.close()
            self._edit.description, self._approve.description = "Edit…", "Approve"
        else:
            self._form.open(self._approval.schema, self._approval.input)
            self._keep_order(self._form.widget)
            self._edit.description, self._approve.description = "Undo edits", "Approve edited"
        self._draw()

    def _disable(self, *, off: bool = True) -> None:
        if not self._finished:
            for widget in self._controls:
                widget.disabled = off


def _list_scopes(approval: Approval, tool: str) -> list[tuple[str, Scope]]:
    """Return the choices of "Approve covers" as pairs (label, scope)."""
    reach = tell_reach(approval).items()
    wider = [(f"all calls of {tool} in {of}", scope) for scope, of in reach if scope in approval.scopes]
    return [("this call only", "call"), *wider]


# --- the card's HTML: the question, every argument in full, what the tool does, why somebody is asked ---

_FOLD = 400
"""If an argument has more characters than this, only its beginning is visible until a person unfolds it."""
MOST = 200_000
"""If an argument has more characters than this, the card at first shows only its beginning and its end."""


def name_place(approval: Approval) -> str:
    """Return which row is asked about, or else which call of the run, or else ""; "asked in …" for a question of a running call."""
    if approval.row or not approval.number:
        return approval.row
    return f"{'asked in ' if approval.question else ''}call {approval.number} of this run"


def question_html(approval: Approval, *, whole: bool = False, is_edited: bool = False) -> str:
    """Return the HTML of a card without its buttons. If `is_edited` is true, the arguments are also left out.

    Unless `whole` is true, only the beginning and the end of an argument with more than `MOST` characters are shown.
    """
    position = name_place(approval)
    where = f" {dim(inline(position), 'span')}" if position else ""
    # A screen reader reads an alert aloud wherever the focus is. It first ends its sentence if the alert is "polite".
    question = (
        inline(approval.question)
        if approval.question
        else f"Run <code>{esc(approval.tool)}</code>{' with these arguments' * is_edited}?"
    )
    title = (
        f'<div role="alert" aria-live="polite"><p class="tlj-title"><span class="tlj-ask" '
        f'aria-hidden="true">?</span> <b>{question}</b>{where}</p></div>'
    )
    rows = (
        (f"<code>{esc(str(name))}</code>", full_value(value, whole=whole))
        for name, value in approval.input.items()
    )
    arguments = "" if is_edited else table(rows, head="th") or dim("no arguments", "p")
    origin = f'<p class="tlj-origin">{inline(approval.origin)}</p>' if approval.origin else ""
    why = dim(inline(words), "p") if (words := tell_why(approval)) else ""
    asked = f"Question: {approval.question}" if approval.question else f"Approval: run {approval.tool}"
    label = esc(in_a_line(f"{asked}, {position}".rstrip(", ")))
    return f'<div class="tlj" role="group" aria-label="{label}">{title}{origin}{arguments}{_what_it_does(approval)}{why}</div>'


def _what_it_does(approval: Approval) -> str:
    if not approval.description and not approval.source:
        return ""
    description = inspect.cleandoc(approval.description)
    title = f": {inline(first_line(description, 160))}" if description else ""
    words = f'<p style="white-space:pre-wrap">{inline(description)}</p>' if description else ""
    source = pre(highlight(approval.source, "python")) if approval.source else ""
    return fold(f"what it does{title}{' (source)' * bool(source)}", words + source)


def left_out(approval: Approval) -> int:
    """Return the length of the longest argument if the card at first leaves out its middle. Otherwise return 0."""
    values = approval.input.values()
    longest = max((len(one if isinstance(one, str) else value_text(one, 2)) for one in values), default=0)
    return longest if longest > MOST else 0


def full_value(value: object, *, whole: bool = False) -> str:
    """Return an argument as HTML: a long text as text, any other value as JSON. Hidden characters are made visible."""
    if isinstance(value, str) and ("\n" in value or len(value) > 120):
        lines = value.count("\n") + (not value.endswith("\n"))
        size = f"text, {counted(len(value), 'character')}, {counted(lines, 'line')}"
        return _long(value, size, visible_text, first_line(value, 200), whole=whole)
    if isinstance(value, (dict, list)) and len(value_text(value)) > 80:
        size = counted(len(value), "entry", "entries")
        return _long(value_text(value, 2), size, visible_json, value_text(value), whole=whole)
    return f'<code style="{INLINE_CODE}">{html.escape(visible_json(value_text(value)))}</code>'


def _long(text: str, size: str, shown: Callable[[str], str], beginning: str, *, whole: bool) -> str:
    """Return `text` and its `size` as HTML. A long text is folded behind `beginning`. `shown` makes hidden characters visible."""
    if len(text) <= _FOLD:
        return f'<pre style="{CODE}">{html.escape(shown(text))}</pre>{dim(size)}'
    parts = pre(html.escape(shown(text)))
    if len(text) > MOST and not whole:
        size += f", the middle {len(text) - MOST:,} characters are not on this page yet"
        middle = f"… {len(text) - MOST:,} characters: “Show all” below shows them …"
        first, last = (pre(html.escape(shown(part))) for part in (text[: MOST // 2], text[-MOST // 2 :]))
        parts = f"{first}<p>{inline(middle)}</p>{last}"
    start = html.escape(shorten(shown(beginning[:200]), 100))
    return (
        f'<details><summary style="{SUMMARY}"><code style="{INLINE_CODE}">{start}</code> '
        f"{dim(size, 'span')}</summary>{parts}</details>"
    )


def error_html(message: str) -> str:
    """Return the HTML of an error about edited arguments. A screen reader reads this error aloud at once."""
    return f'<div class="tlj" role="alert" style="white-space:pre-wrap"><span class="tlj-bad">✗</span> {inline(message)}</div>'
