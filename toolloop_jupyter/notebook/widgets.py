"""The widgets with which a person acts: approval card, toolbar, step card. The only importer of ipywidgets.

All three are built of plain buttons, fields and escaped HTML, work on ipywidgets 7.7.1 and 8, and close every comm they
opened when they are done (a widget's layout and style have comms of their own). What a click does is decided by the
`Approval`; a card only passes it on, so a late or second click does nothing.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from typing import Any

import ipywidgets

from ..core.cleaning import plain
from ..core.events import Approval, Decision, Scope, Usage
from .blocks import money
from .card import error_html, left_out, question_html
from .form import FieldSpec, field_specs
from .holding import Hold
from .inert import counted, inline
from .style import CARD_STYLE, DIM, STYLE

WIDGET_MIME = "application/vnd.jupyter.widget-view+json"


class _Panel:
    """Widgets shown together and closed together."""

    def __init__(self, widget: ipywidgets.Widget) -> None:
        self.widget = widget
        self._finished = False

    def mimebundle(self) -> dict[str, Any]:
        """What to put into a display message: the reference that a front-end replaces by the widget."""
        reference = {"version_major": 2, "version_minor": 0, "model_id": self.widget.model_id}
        return {WIDGET_MIME: reference}

    def _close(self) -> None:
        self._finished = True
        for widget in _tree(self.widget):
            widget.close()


def _tree(widget: Any) -> list[Any]:
    """A widget and all that it made: children, layouts and styles, each once, children first."""
    found: dict[int, Any] = {}

    def walk(one: Any) -> None:
        for child in getattr(one, "children", ()):
            walk(child)
        for part in (one, getattr(one, "layout", None), getattr(one, "style", None)):
            if isinstance(part, ipywidgets.Widget):
                found[id(part)] = part

    walk(widget)
    return list(found.values())


def _button(label: str, tooltip: str, css: str, clicked: Callable[[Any], object]) -> ipywidgets.Button:
    button = ipywidgets.Button(description=label, tooltip=tooltip, layout=ipywidgets.Layout(width="auto"))
    button.add_class("tlj-btn")
    if css:
        button.add_class(css)
    button.on_click(clicked)
    return button


_SCOPES: dict[Scope, str] = {
    "call": "this call only",
    "run": "all calls of {} in this run",
    "session": "all calls of {} in this session",
}


class ApprovalCard(_Panel):
    """Shows one request to run a tool, and passes the person's decision on to the `Approval`.

    `position` says where in the run it is ("call 4"). Where the request may be approved for more than this call, a
    choice offers to. `came_up()` is to be called when it is on the page: it may then be held for a moment (`holding`).
    """

    def __init__(self, approval: Approval, *, position: str = "") -> None:
        self._approval = approval
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

    def _on_approve(self, _: Any) -> None:
        if self._hold.on:
            return
        # Disabled first: as soon as there is a decision, the run (on another thread, with subshells) closes the card.
        self._disable()
        if self._finished or self._approval.answered:
            return
        Hold.after_click(self._hold)
        try:
            self._approval.allow(self._edited(), by="click", scope=self._scope.value)
        except ValueError as error:
            self._disable(off=False)
            self._error.value = error_html(str(error))

    def _on_deny(self, _: Any) -> None:
        self._disable()
        if not self._finished and not self._approval.answered:
            Hold.after_click(self._hold)
            self._approval.deny(self._reason.value.strip(), by="click")

    def _on_whole(self, _: Any) -> None:
        if not self._finished and not self._approval.answered:
            question = question_html(self._approval, self._position, whole=True)
            self._question.value = STYLE + CARD_STYLE + question
            self._whole.layout.display = "none"

    def _on_edit(self, _: Any) -> None:
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


def _label(text: str) -> str:
    """A field's label, which is also its name for a screen reader.

    ipywidgets 7 takes descriptions as HTML, 8 as text (jupyter-widgets/ipywidgets#2785); both typeset what stands
    between dollars.
    """
    text = plain(text).replace("$", "\uff04").replace("\\", "\uff3c")
    return html.escape(text) if ipywidgets.__version__.startswith("7.") else text


class _Field:
    """One argument in the edit form."""

    def __init__(self, spec: FieldSpec) -> None:
        self.spec = spec
        self.input = _input(spec)
        if spec.kind != "checkbox":
            self.input.style.description_width = "initial"
        note = [ipywidgets.HTML(spec.note_html)] if spec.note_html else []
        self.widget = ipywidgets.VBox([self.input, *note])
        self.widget.add_class("tlj-field")

    def put_into(self, arguments: dict[str, object]) -> None:
        """Set the argument, or leave it out. Raises ValueError for text that is no JSON."""
        self.spec.put_into(arguments, self.input.value)


def _input(spec: FieldSpec) -> Any:
    label = _label(spec.name)
    if spec.kind == "checkbox":
        return ipywidgets.Checkbox(value=bool(spec.shown), description=label, indent=False)
    if spec.kind == "choice":
        return ipywidgets.Dropdown(options=spec.choices, value=spec.shown, description=label)
    if spec.kind == "integer":
        return ipywidgets.IntText(value=spec.shown, description=label)
    if spec.kind == "number":
        return ipywidgets.FloatText(value=spec.shown, description=label)
    if spec.kind == "text":
        return ipywidgets.Text(value=spec.shown, description=label)
    lines = min(max(str(spec.shown).count("\n") + 1, 3), 16)
    return ipywidgets.Textarea(value=spec.shown, rows=lines, description=label)


class Toolbar(_Panel):
    """State, elapsed time, model calls, tokens and cost of a run, with the Stop button."""

    def __init__(self, on_stop: Callable[[], None]) -> None:
        self._on_stop = on_stop
        self._status = ipywidgets.HTML("")
        self._stop = _button("Stop", "Stop this run", "", self._clicked)
        bar = ipywidgets.Box([self._status, self._stop])
        bar.add_class("tlj-bar")
        self.update("starting", Usage(), 0.0, 0.0)
        super().__init__(bar)

    def update(self, state: str, usage: Usage, cost: float | None, elapsed: float) -> None:
        """Show where the run is: one small message, and none when nothing changed. `elapsed` in seconds."""
        css = "tlj-ask" if "waiting" in state else "tlj-ok"
        facts = [f"{int(elapsed) // 60}:{int(elapsed) % 60:02}"]
        if usage.calls:
            facts.append(
                f"{counted(usage.calls, 'model call')} · {counted(usage.total_tokens, 'token')} · {money(cost)}"
            )
        rest = "".join(f" <span>{inline(fact)}</span>" for fact in facts)
        value = f'{CARD_STYLE}<div class="tlj tlj-status"><span class="{css}">●</span> <b>{inline(state)}</b>{rest}</div>'
        if self._status.value != value:
            self._status.value = value

    def finish(self) -> None:
        """Take the toolbar away and close its comms. Safe to call twice."""
        if not self._finished:
            self._stop.disabled = True
            self._close()

    def _clicked(self, _: Any) -> None:
        if self._stop.disabled:
            return
        self._stop.disabled = True
        Hold.after_click()
        self._on_stop()


class StepCard(_Panel):
    """Holds a run before its next step: Next lets one step go on, Run to end all that follow, Stop none."""

    def __init__(
        self,
        what: str,
        on_next: Callable[[], None],
        on_run: Callable[[], None],
        on_stop: Callable[[], None] | None = None,
    ) -> None:
        self._hold = Hold(self._show_held)
        self._next = _button(
            "Next", "Go on with this step", "tlj-go", lambda _: self._go(on_next, held=self._hold.on)
        )
        self._run = _button(
            "Run to end", "Go on without holding again", "", lambda _: self._go(on_run, held=self._hold.on)
        )
        label = ipywidgets.HTML(
            f'{STYLE}{CARD_STYLE}<div class="tlj"><span style="{DIM}">next:</span> {inline(what)}</div>'
        )
        self._buttons = [self._next, self._run]
        self._answered = False
        if on_stop is not None:
            self._buttons.append(_button("Stop", "Stop this run", "", lambda _: self._go(on_stop)))
        row = ipywidgets.Box(self._buttons)
        row.add_class("tlj-row")
        card = ipywidgets.VBox([label, row])
        card.add_class("tlj-card")
        super().__init__(card)
        self._hold.begin(only_soon=True)

    def came_up(self) -> None:
        """The card is on the page: hold it for a moment if a click came shortly before."""
        self._hold.came_up()

    def finish(self) -> None:
        """Take the card away and close its comms. Safe to call twice."""
        if not self._finished:
            self._hold.gone()
            self._close()

    def _go(self, act: Callable[[], None], *, held: bool = False) -> None:
        if self._finished or self._answered or held:
            return
        self._answered = True
        for button in self._buttons:
            button.disabled = True
        Hold.after_click(self._hold)
        act()

    def _show_held(self, held: bool) -> None:  # noqa: FBT001 - called with one value
        if not self._finished and not self._answered:
            self._next.disabled = self._run.disabled = held


class ClickTest(_Panel):
    """A button that only wants to be clicked: `%toolloop doctor` finds out whether clicks come back."""

    def __init__(self, wait: float, on_click: Callable[[], object]) -> None:
        label = ipywidgets.HTML(
            f"{STYLE}{CARD_STYLE}<div class='tlj'>Does a click come back? ({wait:g} s)</div>"
        )
        button = _button("Click me", "Tell the doctor that clicks arrive", "tlj-go", lambda _: on_click())
        card = ipywidgets.VBox([label, button])
        card.add_class("tlj-card")
        super().__init__(card)

    def finish(self) -> None:
        """Take the button away and close its comms. Safe to call twice."""
        if not self._finished:
            self._close()


def output_for(msg_id: str) -> bool:
    """Whether an Output widget is entered that takes what is shown in answer to the message of this id."""
    # private: _instances, ipywidgets 8; before, it was `Widget.widgets`, which 8 still has but warns of.
    instances = getattr(ipywidgets.widgets.widget, "_instances", None)
    if instances is None:
        instances = ipywidgets.Widget.widgets
    outputs = [widget for widget in list(instances.values()) if isinstance(widget, ipywidgets.Output)]
    return any(output.msg_id == msg_id for output in outputs)


__all__ = ["WIDGET_MIME", "ApprovalCard", "ClickTest", "StepCard", "Toolbar", "output_for"]
