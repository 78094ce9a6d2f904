"""JSON schemas as providers' strict modes want them: OpenAI's rules, which the others have taken over.

Every object closed and all its properties required; no `default`; an object, not a reference, at the top; `anyOf`
instead of `oneOf`; nothing beside a `$ref`. What cannot be said so (a free-form dict, a tuple, a set) is sent with
strict off.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_UNSAYABLE = frozenset(
    {
        "prefixItems",
        "uniqueItems",
        "patternProperties",
        "propertyNames",
        "allOf",
        "not",
        "if",
        "dependentRequired",
        "contains",
    }
)


def with_object_on_top(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with a reference at its top (a recursive model's) replaced by what it refers to."""
    top = schema.get("$ref", "")
    name = top.rpartition("/")[2]
    definitions = schema.get("$defs", {})
    if name not in definitions:
        return schema
    return {**definitions[name], "$defs": definitions}


def can_be_met(schema: Any) -> bool:
    """Whether strict mode can say all of a cleaned schema."""
    return not any(_is_free_form(node) or _UNSAYABLE & set(node) for node in _nodes(schema))


def is_plain(schema: dict[str, Any]) -> bool:
    """Whether LiteLLM's own conversion of the model's class, to which strict is always true, is right for it."""
    return (
        "$ref" not in schema
        and can_be_met(schema)
        and not any("default" in node or "oneOf" in node for node in _nodes(schema))
    )


def cleaned(schema: Any) -> Any:
    """The schema closed, with every property required and without what strict mode refuses."""
    if isinstance(schema, list):
        return [cleaned(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {k: _cleaned_at(k, v) for k, v in schema.items() if k not in ("default", "discriminator")}
    if "oneOf" in kept:
        kept["anyOf"] = kept.pop("oneOf")
    if "$ref" in kept and len(kept) > 1 and "$defs" not in kept:
        kept["anyOf"] = [{"$ref": kept.pop("$ref")}]
    if isinstance(kept.get("properties"), dict) and kept.get("type") == "object":
        kept.setdefault("additionalProperties", False)
        if kept["additionalProperties"] is False:
            kept["required"] = list(kept["properties"])
    return kept


def _cleaned_at(key: str, value: Any) -> Any:
    """Under these keys are names, not keywords: a property may be called "default"."""
    if key in ("properties", "$defs") and isinstance(value, dict):
        return {name: cleaned(inner) for name, inner in value.items()}
    return value if key in ("enum", "const", "examples") else cleaned(value)


def _nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """Every schema inside a schema."""
    if isinstance(schema, list):
        for item in schema:
            yield from _nodes(item)
    elif isinstance(schema, dict):
        yield schema
        for key, value in schema.items():
            if key in ("properties", "$defs") and isinstance(value, dict):
                for inner in value.values():
                    yield from _nodes(inner)
            elif key not in ("enum", "const", "examples", "default"):
                yield from _nodes(value)


def _is_free_form(node: dict[str, Any]) -> bool:
    return node.get("additionalProperties") not in (None, False) or (
        node.get("type") == "object" and "properties" not in node
    )
