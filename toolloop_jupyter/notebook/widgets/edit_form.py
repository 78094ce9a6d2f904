"""The edit form of an approval. It has a field for each argument, and turns the content of the fields into JSON values."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import ipywidgets

from ...core.text import shorten
from ...core.tools import resolve_reference
from ..html import dim, escaped_json, hides, inline, visible
from .controls import close

_LONG = 80
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
        """Set the argument to the content of the field. Raises ValueError if the content is no JSON, no number, or empty."""
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


def field_specs(schema: Mapping[str, object], given: Mapping[str, object]) -> list[FieldSpec]:
    """Return the fields for all arguments: those in the JSON schema, in its order; then those that only the call has."""
    described, known = (
        part if isinstance(part := schema.get(key), Mapping) else {} for key in ("properties", "$defs")
    )
    parts = {name: described.get(name) for name in [*described, *given]}
    return [
        _field(name, resolve_reference(part, known) if isinstance(part, Mapping) else {}, given)
        for name, part in parts.items()
    ]


def _field(name: str, schema: Mapping[str, object], given: Mapping[str, object]) -> FieldSpec:
    description = str(schema.get("description", ""))
    if name not in given:
        return FieldSpec(name, "json", "", given=False, description=description)
    value, choices, kinds = given[name], schema.get("enum"), _kinds(schema)
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
        long = len(value) > _LONG or "\n" in value
        return FieldSpec(name, "textarea" if long else "text", value, description=description)
    shown = json.dumps(value, ensure_ascii=False, indent=2 if isinstance(value, (dict, list)) else None)
    return FieldSpec(name, "json", escaped_json(shown), when_empty=when_empty, description=description)


def _kinds(schema: Mapping[str, object]) -> set[object]:
    """Return the JSON types that a schema allows in its "type" and "anyOf"."""
    options = schema.get("anyOf")
    parts = (
        [schema, *(one for one in options if isinstance(one, Mapping))]
        if isinstance(options, list)
        else [schema]
    )
    named = [part.get("type") for part in parts if part is schema or len(part) <= 1 or "type" in part]
    flat = [kind for one in named for kind in (one if isinstance(one, list) else [one])]
    return {kind for kind in flat if kind is not None}


# --- the fields as widgets ---


def _label(text: str) -> str:
    """Return the label of a field, which a screen reader reads as its name.

    ipywidgets 7 reads a description as HTML, ipywidgets 8 as text (jupyter-widgets/ipywidgets#2785). Both would typeset text
    between dollar signs as a formula, so dollar signs are replaced.
    """
    text = visible(text).replace("$", "\uff04").replace("\\", "\uff3c")
    return html.escape(text) if ipywidgets.__version__.startswith("7.") else text


class Field:
    """The widgets of one argument: its field and, if there is a note, the note below it."""

    def __init__(self, spec: FieldSpec) -> None:
        self.spec = spec
        self.input = _input(spec)
        if spec.kind != "checkbox":
            self.input.style.description_width = "initial"
        note = [ipywidgets.HTML(spec.note_html)] if spec.note_html else []
        self.widget = ipywidgets.VBox([self.input, *note])
        self.widget.add_class("tlj-field")


def _input(spec: FieldSpec) -> ipywidgets.Widget:
    # Without continuous updates, the front-end sends a text when the focus leaves the field: before the next click. If the
    # front-end sent the text during typing, it would hold back new text until the kernel has handled the old text. Then a click
    # could reach the kernel before the new text.
    given = {"value": spec.shown, "description": _label(spec.name)}
    match spec.kind:
        case "checkbox":
            return ipywidgets.Checkbox(**given, indent=False)
        case "choice":
            return ipywidgets.Dropdown(options=spec.choices, **given)
        case "text" | "number":
            return ipywidgets.Text(**given, continuous_update=False)
    rows = sum(1 + len(line) // _LONG for line in str(spec.shown).split("\n"))
    rows = min(max(rows, 3), 16)
    return ipywidgets.Textarea(**given, rows=rows, continuous_update=False)


class EditForm:
    """A form with a field for each argument. The form has no fields until `open` is called."""

    def __init__(self) -> None:
        self.widget = ipywidgets.VBox([])
        self.widget.add_class("tlj-form")
        self.fields: list[Field] = []

    def open(self, schema: Mapping[str, object], given: Mapping[str, object]) -> None:
        self.fields = [Field(spec) for spec in field_specs(schema, given)]
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
