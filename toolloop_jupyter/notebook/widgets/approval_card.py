"""The approval card. It shows a request with all its arguments, and the buttons that decide on the request."""

from __future__ import annotations

import html
import inspect
import json
from collections.abc import Callable, Mapping

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
from ..transcript import REACH, tell_why
from .controls import Comms, Hold, _Panel, button, parts_of, put_into_card
from .edit_form import EditForm


class Question:
    """The part of a card above the buttons. It shows the request and its arguments."""

    def __init__(self, approval: Approval, position: str) -> None:
        self._approval, self._position, self._is_whole = approval, position, False
        self.widget = ipywidgets.HTML()
        size = left_out(approval)
        self.is_cut = size > 0
        """True if the card at first leaves out the middle of an argument."""
        self.show_all = button(f"Show all {size:,} characters", "Show the arguments to their last character")
        """The button that shows the middle of such an argument, too."""

    def draw(self, *, is_edited: bool) -> None:
        """Draw the request. If `is_edited` is true, draw no arguments, since the edit form shows the arguments."""
        asked = question_html(self._approval, self._position, whole=self._is_whole, is_edited=is_edited)
        self.widget.value = STYLE + CARD_STYLE + asked

    def complete(self) -> None:
        """Hide the button `show_all`. Later calls of `draw` show every argument in full."""
        self._is_whole = True
        self.show_all.layout.display = "none"


class ApprovalCard(_Panel):
    """Shows one request to run a tool, and passes the person's decision on to the `Approval`.

    `position` says which call of the run this is ("call 4 of this run"). If the approval may cover more calls, the card
    offers a choice of scopes, and `reach` has the words for each scope. `comms` says whether a person or code clicked. If
    `comms` is None, every click counts as a person's click. Call `came_up()` when the card is on the page. After this,
    Approve may be disabled for a moment (see `Hold`).
    """

    def __init__(
        self,
        approval: Approval,
        *,
        position: str = "",
        reach: Mapping[Scope, str] = REACH,
        comms: Comms | None = None,
    ) -> None:
        self._approval = approval
        self._comms = comms
        hold, tool = Hold(self._show_held), visible(approval.tool)
        self._form = EditForm()
        if approval.question:
            self._form.open(approval.schema, approval.input)
        self._question = Question(approval, position)
        self._draw_question()
        self._error = ipywidgets.HTML("")
        self._approve = button("Approve", f"Run {tool} with exactly these arguments", "tlj-go")
        self._edit = button("Edit…", "Change the arguments before the tool runs")
        deny = button("Deny", f"Do not run {tool}; the model is told", "tlj-no")
        if approval.question:
            self._approve.description, self._approve.tooltip = "Send", "Send exactly this to the server"
            deny.description, deny.tooltip = "Decline", "Send nothing"
        self._reason = ipywidgets.Text(
            description="Deny because",
            placeholder="optional",
            tooltip="The model is told",
            continuous_update=False,
        )
        self._reason.add_class("tlj-why")
        covers = _covers(approval, tool, reach)
        self._scope = ipywidgets.Dropdown(options=covers, value="call", description="Approve covers")
        self._scope.add_class("tlj-all")
        for field in (self._reason, self._scope):
            field.style.description_width = "initial"

        whole = self._question.show_all
        shown = (
            (whole, self._question.is_cut),
            (self._edit, approval.editable and not approval.question),
            (self._reason, not approval.question),
            (self._scope, len(covers) > 1),
        )
        beside = [one for one, is_shown in shown if not is_shown]
        question = self._question.widget
        parts = [one for one in (question, whole, self._form.widget, self._error) if one not in beside]
        self._controls = [self._approve, self._edit, deny, self._reason, self._scope, whole]
        row = [one for one in self._controls[:-1] if one not in beside]
        super().__init__(put_into_card(*parts, buttons=row), *beside, hold=hold)
        self._keep_order(self.widget, *beside)
        # The buttons are connected last, when the card is complete. A tool's code may press a button as soon as the button is
        # connected.
        self._approve.on_click(self._on_approve)
        self._edit.on_click(self._on_edit)
        deny.on_click(self._on_deny)
        whole.on_click(self._on_whole)
        hold.begin(only_soon=True)

    def came_up(self) -> None:
        """Register that the card is on the page.

        If a click came just before, Approve is disabled for a moment, since the second click of a double click may follow.
        """
        if self._hold is not None:
            self._hold.came_up()

    def finish(self) -> None:
        """Remove the card and close all its comms.

        After this, the card's buttons do nothing. A second call of this method does nothing.
        """
        self._disable()
        super().finish()

    def _draw_question(self) -> None:
        self._question.draw(is_edited=bool(self._form.fields))

    def _on_whole(self, _: object) -> None:
        if not self._finished and not self._approval.answered:
            self._question.complete()
            self._draw_question()

    def _on_approve(self, pressed: ipywidgets.Button) -> None:
        if self._hold is not None and self._hold.on:
            return
        by = self._by(pressed)
        # The buttons are disabled first. The run may be on another thread, and it closes the card as soon as there is a
        # decision.
        self._disable()
        if self._finished or self._approval.answered:
            return
        Hold.after_click(self._hold)
        try:
            edited = self._form.read(self._approval.input)
            self._approval.allow(edited, by=by, scope=self._scope.value)
        except ValueError as error:
            self._disable(off=False)
            self._error.value = error_html(str(error))

    def _on_deny(self, pressed: ipywidgets.Button) -> None:
        by = self._by(pressed)
        self._disable()
        if not self._finished and not self._approval.answered:
            Hold.after_click(self._hold)
            self._approval.deny(self._reason.value.strip(), by=by)

    def _by(self, button: ipywidgets.Button) -> DecidedBy:
        """Return who pressed a button: "click" for a person, "code" for code.

        For example, a thread that a tool has left behind may call `button.click()`.
        """
        return "click" if self._comms is None or self._comms.is_click(button.comm) else "code"

    def _keep_order(self, *widgets: ipywidgets.Widget) -> None:
        if self._comms is not None:
            for widget in widgets:
                for part in parts_of(widget):
                    self._comms.keep_order(part.comm)

    def _on_edit(self, _: object) -> None:
        if self._finished or self._approval.answered:
            return
        self._error.value = ""
        if self._form.fields:
            self._form.close()
            self._edit.description, self._approve.description = "Edit…", "Approve"
        else:
            self._form.open(self._approval.schema, self._approval.input)
            self._keep_order(self._form.widget)
            self._edit.description, self._approve.description = "Undo edits", "Approve edited"
        self._draw_question()

    def _show_held(self, held: bool) -> None:  # noqa: FBT001 - called with one value
        if not self._finished and not self._approval.answered:
            self._approve.disabled = held

    def _disable(self, *, off: bool = True) -> None:
        if not self._finished:
            for widget in self._controls:
                widget.disabled = off


def _covers(approval: Approval, tool: str, reach: Mapping[Scope, str]) -> list[tuple[str, Scope]]:
    """Return the choices of "Approve covers" as pairs (label, scope)."""
    wider = [
        (f"all calls of {tool} in {of}", scope) for scope, of in reach.items() if scope in approval.scopes
    ]
    return [("this call only", "call"), *wider]


# --- the card's HTML: the question, every argument in full, what the tool does, why somebody is asked ---

_FOLD = 400
"""If an argument has more characters than this, it is folded: only its beginning is visible until a person unfolds the
argument.
"""
MOST = 200_000
"""If an argument has more characters than this, the card at first shows only its beginning and its end."""


def question_html(
    approval: Approval, position: str = "", *, whole: bool = False, is_edited: bool = False
) -> str:
    """Return the HTML of a card without its buttons. If `is_edited` is true, the arguments are also left out.

    If an argument has more than `MOST` characters, only its beginning and its end are shown. All other arguments are shown in
    full. If `whole` is true, every argument is shown in full.
    """
    where = f" {dim(inline(position), 'span')}" if position else ""
    # A screen reader reads an alert aloud wherever the focus is. With "polite", the screen reader first finishes what it is
    # reading.
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
    """Return the number of characters of the longest argument if the card at first leaves out the middle of this argument;
    else 0.
    """
    longest = max((len(_as_text(value)) for value in approval.input.values()), default=0)
    return longest if longest > MOST else 0


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else _json(value, indent=2)


def full_value(value: object, *, whole: bool = False) -> str:
    """Return an argument as HTML.

    A long text is shown as text, any other value as JSON. Control characters, hidden characters and blanks that are easily
    missed are made visible.
    """
    if isinstance(value, str) and ("\n" in value or len(value) > 120):
        lines = value.count("\n") + (not value.endswith("\n"))
        size = f"text, {counted(len(value), 'character')}, {counted(lines, 'line')}"
        return _long(value, size, visible_text, first_line(value, 200), whole=whole)
    if isinstance(value, (dict, list)) and len(_json(value)) > 80:
        size = counted(len(value), "entry", "entries")
        return _long(_json(value, indent=2), size, visible_json, _json(value), whole=whole)
    return f'<code style="{INLINE_CODE}">{html.escape(visible_json(_json(value)))}</code>'


def _long(text: str, size: str, shown: Callable[[str], str], beginning: str, *, whole: bool) -> str:
    """Return `text` and its `size` as HTML.

    A long text is folded behind its `beginning`. `shown` is a function that makes hidden characters visible.
    """
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


def _json(value: object, indent: int | None = None) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, indent=indent)
    except (TypeError, ValueError, RecursionError):
        return repr(value)


def error_html(message: str) -> str:
    """Return the HTML of an error message about edited arguments. A screen reader reads the message aloud at once."""
    return f'<div class="tlj" role="alert" style="white-space:pre-wrap"><span class="tlj-bad">✗</span> {inline(message)}</div>'
