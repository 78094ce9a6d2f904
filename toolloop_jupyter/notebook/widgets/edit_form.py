"""The edit form of an approval: which kind of field each argument gets, and its way back to JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ...core.tools import resolve_reference
from ..html import DIM, escaped_json, hides, inline

_EXACT = 2**53
"""Integers from here on are not exact in a browser: they are edited as JSON text."""
_LONG = 80


@dataclass(frozen=True)
class FieldSpec:
    """One argument: the field's kind, what it shows at first, and how its content becomes the argument."""

    name: str
    kind: Literal["text", "textarea", "integer", "number", "choice", "checkbox", "json"]
    shown: Any
    original: Any = None
    given: bool = True
    """Whether the call has this argument; an empty JSON field of one that it has not leaves it out."""
    choices: tuple[tuple[str, Any], ...] = ()
    description: str = ""

    @property
    def note_html(self) -> str:
        """What the argument means, and the notation of its field; "" when there is nothing to say."""
        notes = ["as JSON"] if self.kind == "json" else []
        words = " · ".join(inline(part) for part in (*notes, self.description) if part)
        return f'<div class="tlj" style="{DIM}">{words}</div>' if words else ""

    def put_into(self, arguments: dict[str, object], content: Any) -> None:
        """Set the argument from the field's content. Raises ValueError for text that is no JSON."""
        if content == self.shown:
            return  # untouched: the value that was shown, not what a browser made of it
        if self.kind != "json":
            arguments[self.name] = content
        elif not str(content).strip() and not self.given:
            arguments.pop(self.name, None)
        else:
            try:
                arguments[self.name] = json.loads(content)
            except (ValueError, RecursionError) as error:
                raise ValueError(
                    f'{self.name} is not JSON ({error}); text goes in quotes: "like this"'
                ) from None


def field_specs(schema: Mapping[str, object], given: Mapping[str, object]) -> list[FieldSpec]:
    """The fields for the arguments of a JSON schema, in its order, then those that the schema does not name."""
    properties = schema.get("properties")
    described: dict[str, Any] = dict(properties) if isinstance(properties, Mapping) else {}
    names = [*described, *(name for name in given if name not in described)]
    definitions = schema.get("$defs")
    known = definitions if isinstance(definitions, Mapping) else {}
    parts = {name: described.get(name) for name in names}
    return [
        _field(name, resolve_reference(part, known) if isinstance(part, Mapping) else {}, given)
        for name, part in parts.items()
    ]


def _field(name: str, schema: Mapping[str, Any], given: Mapping[str, object]) -> FieldSpec:
    description = str(schema.get("description", ""))
    if name not in given:
        return FieldSpec(name, "json", "", given=False, description=description)
    value = given[name]
    choices = schema.get("enum")
    if (
        isinstance(choices, list)
        and value in choices
        and all(isinstance(item, (str, int)) for item in choices)
    ):
        labels = tuple((str(item), item) for item in choices)
        return FieldSpec(name, "choice", value, value, choices=labels, description=description)
    kind = schema.get("type")
    if kind == "boolean" and isinstance(value, bool):
        return FieldSpec(name, "checkbox", value, value, description=description)
    if kind == "integer" and isinstance(value, int) and not isinstance(value, bool) and abs(value) < _EXACT:
        return FieldSpec(name, "integer", value, value, description=description)
    if (
        kind == "number"
        and isinstance(value, (int, float))
        and not isinstance(value, bool)
        and abs(value) < _EXACT
    ):
        return FieldSpec(name, "number", float(value), value, description=description)
    if kind == "string" and isinstance(value, str) and not hides(value):
        long = len(value) > _LONG or "\n" in value
        return FieldSpec(name, "textarea" if long else "text", value, value, description=description)
    shown = json.dumps(value, ensure_ascii=False, indent=2 if isinstance(value, (dict, list)) else None)
    return FieldSpec(name, "json", escaped_json(shown), value, description=description)
