"""The approval card. It shows a request with all its arguments, the buttons that decide on the request, and an edit form."""

from __future__ import annotations

import html
import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import ipywidgets

from ...core.events import Approval, DecidedBy, Scope
from ...core.text import shorten
from ...core.tools import resolve_reference
from ..html import (
    CARD_STYLE,
    CODE,
    INLINE_CODE,
    STYLE,
    SUMMARY,
    dim,
    esc,
    escape_json,
    fold,
    hides,
    highlight,
    inline,
    mark_hidden,
    mark_hidden_and_blanks,
    mark_hidden_in_json,
    pre,
    put_in_a_line,
    table,
    take_first_line,
    tell_count,
)
from ..transcript import tell_reach, tell_why, write_value
from .controls import Card, Comms, close, hold_cards, list_parts, make_button


class ApprovalCard(Card):
    """Shows one request to run a tool, and passes the person's decision on to the `Approval`.

    `comms` says whether a person or code clicked; if it is None, every click counts as a person's.
    """

    def __init__(self, approval: Approval, comms: Comms | None = None) -> None:
        self._approval, self._comms = approval, comms
        self._form, self._question, self._error = EditForm(), ipywidgets.HTML(), ipywidgets.HTML("")
        tool, is_question = mark_hidden(approval.tool), bool(approval.question)
        if is_question:
            self._form.open(approval.schema, approval.input)
            run, no = ("Send", "Send exactly this to the server"), ("Decline", "Send nothing")
        else:
            run = ("Approve", f"Run {tool} with exactly these arguments")
            no = ("Deny", f"Do not run {tool}; the model is told")
        self._approve, deny = make_button(*run, "tlj-go"), make_button(*no, "tlj-no")
        self._edit = make_button("Edit…", "Change the arguments before the tool runs")
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
            self._edit: approval.editable and not is_question,
            self._reason: not is_question,
            self._scope: len(covers) > 1,
        }
        unused = [control for control, is_offered in offered.items() if not is_offered]
        self._controls = [self._approve, self._edit, deny, self._reason, self._scope]
        row = [control for control in self._controls if control not in unused]
        parts = (self._question, self._form.widget, self._error)
        super().__init__(*parts, buttons=row, allowing=[self._approve], beside=unused)
        self._keep_order(self.widget, *unused)
        # The buttons are connected last, when the card is complete. A tool's code may press a button as soon as the button is
        # connected.
        self._approve.on_click(self._on_approve)
        self._edit.on_click(self._on_edit)
        deny.on_click(self._on_deny)

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
        self._question.value = STYLE + CARD_STYLE + draw_question(self._approval, is_edited=is_edited)

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
            self._error.value = draw_error(str(error))

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
                for part in list_parts(widget):
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


def name_place(approval: Approval) -> str:
    """Return the row that the question is about: "row 17 of 1,000". If there is no row, return the number of the call in its run.

    The text begins with "asked in" if a running tool asks. It is "" if neither a row nor a number is known.
    """
    if approval.row or not approval.number:
        return approval.row
    return f"{'asked in ' if approval.question else ''}call {approval.number} of this run"


def draw_question(approval: Approval, *, is_edited: bool = False) -> str:
    """Return the HTML of a card without its buttons. If `is_edited` is true, the arguments are also left out."""
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
        (f"<code>{esc(str(name))}</code>", draw_full_value(value)) for name, value in approval.input.items()
    )
    arguments = "" if is_edited else table(rows, head="th") or dim("no arguments", "p")
    origin = f'<p class="tlj-origin">{inline(approval.origin)}</p>' if approval.origin else ""
    why = dim(inline(words), "p") if (words := tell_why(approval)) else ""
    asked = f"Question: {approval.question}" if approval.question else f"Approval: run {approval.tool}"
    label = esc(put_in_a_line(f"{asked}, {position}".rstrip(", ")))
    return f'<div class="tlj" role="group" aria-label="{label}">{title}{origin}{arguments}{_draw_what_it_does(approval)}{why}</div>'


def _draw_what_it_does(approval: Approval) -> str:
    if not approval.description and not approval.source:
        return ""
    description = inspect.cleandoc(approval.description)
    title = f": {inline(take_first_line(description, 160))}" if description else ""
    words = f'<p style="white-space:pre-wrap">{inline(description)}</p>' if description else ""
    source = pre(highlight(approval.source, "python")) if approval.source else ""
    return fold(f"what the tool does{title}{' (source)' * bool(source)}", words + source)


def draw_full_value(value: object) -> str:
    """Return an argument as HTML: a long text as text, any other value as JSON. Hidden characters are made visible."""
    if isinstance(value, str) and ("\n" in value or len(value) > 120):
        lines = value.count("\n") + (not value.endswith("\n"))
        size = f"text, {tell_count(len(value), 'character')}, {tell_count(lines, 'line')}"
        text, beginning, make_visible = value, take_first_line(value, 200), mark_hidden_and_blanks
    elif isinstance(value, (dict, list)) and len(beginning := write_value(value)) > 80:
        size = tell_count(len(value), "entry", "entries")
        text, make_visible = write_value(value, 2), mark_hidden_in_json
    else:
        return f'<code style="{INLINE_CODE}">{html.escape(mark_hidden_in_json(write_value(value)))}</code>'
    if len(text) <= _FOLD:
        return f'<pre style="{CODE}">{html.escape(make_visible(text))}</pre>{dim(size)}'
    start = html.escape(shorten(make_visible(beginning[:200]), 80))
    return (
        f'<details><summary style="{SUMMARY}"><code style="{INLINE_CODE}">{start}</code> '
        f"{dim(size, 'span')}</summary>{pre(html.escape(make_visible(text)))}</details>"
    )


def draw_error(message: str) -> str:
    """Return the HTML of an error about edited arguments. A screen reader reads this error aloud at once."""
    return f'<div class="tlj" role="alert" style="white-space:pre-wrap"><span class="tlj-bad">✗</span> {inline(message)}</div>'


# --- the edit form: a field for each argument, whose content becomes a JSON value ------------------------------------

_LONG_LINE = 80
"""A text with more characters than this gets a field of several lines. One line of this field has about this many characters."""


@dataclass(frozen=True)
class FieldSpec:
    """Describes the field of one argument: its kind, its first content, and how to turn its content into the argument.

    A number is edited in a text field: in a number field, the kernel would keep the old value when a person empties the field.
    """

    name: str
    kind: Literal["text", "textarea", "number", "choice", "checkbox", "json"]
    shown: object
    given: bool = True
    """True if the call has this argument. If not, the field takes JSON, and an empty field leaves the argument out."""
    when_empty: tuple[object, ...] = ()
    """(value,) if an emptied number or JSON field means this value; () if an emptied field is an error."""
    choices: tuple[tuple[str, object], ...] = ()
    description: str = ""

    @property
    def note_html(self) -> str:
        """HTML with the argument's description and a hint on how to write its value; "" if there is neither."""
        notes = ["as JSON"] if self.kind == "json" else []
        if self.given and self.kind in ("json", "number"):
            notes += [f"empty means {json.dumps(value, ensure_ascii=False)}" for value in self.when_empty]
        words = " · ".join(inline(part) for part in (*notes, self.description) if part)
        return f'<div class="tlj">{dim(words)}</div>' if words else ""

    def put_into(self, arguments: dict[str, object], content: object) -> None:
        """Set the argument to the content of the field. Raises ValueError if the content is not valid."""
        if content == self.shown:
            return  # untouched: the argument keeps its value
        if self.kind not in ("json", "number"):
            arguments[self.name] = content
        elif text := str(content).strip():
            arguments[self.name] = self._read(text)
        elif not self.given:
            arguments.pop(self.name, None)
        elif self.when_empty:
            arguments[self.name] = self.when_empty[0]
        else:
            raise ValueError(f"{self.name} is empty, and it needs a value")

    def _read(self, text: str) -> object:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            if self.kind == "json":
                advice = 'text goes in quotes: "like this"'
                raise ValueError(f"{self.name} is not JSON ({error}); {advice}") from None
            value = None
        if self.kind == "number" and (type(value) not in (int, float) or value - value != 0):
            raise ValueError(f"{self.name} is not a number: {shorten(text, 80)!r}")
        return value


def make_field_specs(schema: Mapping[str, object], given: Mapping[str, object]) -> list[FieldSpec]:
    """Return the fields for all arguments: first the arguments in the JSON schema, in its order, then the arguments that only
    the call has.
    """
    described, in_schema = (
        part if isinstance(part := schema.get(key), Mapping) else {} for key in ("properties", "$defs")
    )
    parts = {name: described.get(name) for name in [*described, *given]}
    return [
        _make_field_spec(name, resolve_reference(part, in_schema) if isinstance(part, Mapping) else {}, given)
        for name, part in parts.items()
    ]


def _make_field_spec(name: str, schema: Mapping[str, object], given: Mapping[str, object]) -> FieldSpec:
    description = str(schema.get("description", ""))
    if name not in given:
        return FieldSpec(name, "json", "", given=False, description=description)
    value, choices, kinds = given[name], schema.get("enum"), _list_kinds(schema)
    if (
        isinstance(choices, list)
        and value in choices
        and all(isinstance(item, (str, int)) for item in choices)
    ):
        labels = tuple((str(item), item) for item in choices)
        return FieldSpec(name, "choice", value, choices=labels, description=description)
    when_empty: tuple[object, ...] = (None,) if "null" in kinds else ()
    when_empty = (schema["default"],) if "default" in schema else when_empty
    if isinstance(value, bool):
        if kinds == {"boolean"}:
            return FieldSpec(name, "checkbox", value, description=description)
    elif isinstance(value, (int, float)) and kinds - {"null"} in ({"integer"}, {"number"}):
        return FieldSpec(name, "number", json.dumps(value), when_empty=when_empty, description=description)
    elif kinds == {"string"} and isinstance(value, str) and not hides(value):
        long = len(value) > _LONG_LINE or "\n" in value
        return FieldSpec(name, "textarea" if long else "text", value, description=description)
    shown = json.dumps(value, ensure_ascii=False, indent=2 if isinstance(value, (dict, list)) else None)
    return FieldSpec(name, "json", escape_json(shown), when_empty=when_empty, description=description)


def _list_kinds(schema: Mapping[str, object]) -> set[object]:
    """Return the JSON types that a schema allows in its "type" and "anyOf"."""
    options = schema.get("anyOf")
    parts = [schema, *options] if isinstance(options, list) else [schema]
    named = [part.get("type") for part in parts if isinstance(part, Mapping)]
    return {kind for one in named for kind in (one if isinstance(one, list) else [one])} - {None}


# --- the fields as widgets ---


def _write_label(text: str) -> str:
    """Return the label of a field, which a screen reader reads as its name.

    ipywidgets 7 reads a description as HTML, ipywidgets 8 as text (jupyter-widgets/ipywidgets#2785). Both would typeset text
    between dollar signs as a formula, so dollar signs are replaced.
    """
    text = mark_hidden(text).replace("$", "\uff04").replace("\\", "\uff3c")
    return html.escape(text) if ipywidgets.__version__.startswith("7.") else text


class Field:
    """The widgets of one argument: its field and, if there is a note, the note below it."""

    def __init__(self, spec: FieldSpec) -> None:
        self.spec = spec
        given = {"value": spec.shown, "description": _write_label(spec.name)}
        # Without continuous updates, the front-end sends a text when the focus leaves the field: before the next click. If the
        # front-end sent the text during typing, it would hold back new text until the kernel has handled the old text. Then a
        # click could reach the kernel before the new text.
        match spec.kind:
            case "checkbox":
                self.input = ipywidgets.Checkbox(**given, indent=False)
            case "choice":
                self.input = ipywidgets.Dropdown(options=spec.choices, **given)
            case "text" | "number":
                self.input = ipywidgets.Text(**given, continuous_update=False)
            case _:
                rows = sum(1 + len(line) // _LONG_LINE for line in str(spec.shown).split("\n"))
                self.input = ipywidgets.Textarea(**given, rows=min(max(rows, 3), 16), continuous_update=False)
        if spec.kind != "checkbox":
            self.input.style.description_width = "initial"
        note = [ipywidgets.HTML(spec.note_html)] if spec.note_html else []
        self.widget = ipywidgets.VBox([self.input, *note])
        self.widget.add_class("tlj-field")


class EditForm:
    """A form with a field for each argument. The form has no fields until `open` is called."""

    def __init__(self) -> None:
        self.widget = ipywidgets.VBox([])
        self.widget.add_class("tlj-form")
        self.fields: list[Field] = []

    def open(self, schema: Mapping[str, object], given: Mapping[str, object]) -> None:
        self.fields = [Field(spec) for spec in make_field_specs(schema, given)]
        self.widget.children = tuple(one.widget for one in self.fields)

    def close(self) -> None:
        """Remove the fields, and with them the person's changes."""
        old, self.fields, self.widget.children = self.widget.children, [], ()
        for child in old:
            close(child)

    def read(self, given: Mapping[str, object]) -> dict[str, object] | None:
        """Return `given` with the content of the fields; None if the form is closed. Raises ValueError for wrong content."""
        if not self.fields:
            return None
        arguments = dict(given)
        for one in self.fields:
            one.spec.put_into(arguments, one.input.value)
        return arguments
