"""The fields of a delta or a message, whether LiteLLM made an object of it or it is a plain dict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def get(source: object, name: str) -> Any:
    """Read the field `name` of LiteLLM's objects and of plain dicts alike; None when it is not there.

    This is most of what a delta costs, so a pydantic object's own dicts are read: its `__getattr__` takes some 3 µs to
    say that a field is absent, as most of them are in most deltas.
    """
    if source is None:
        return None
    if type(source) is dict:
        return source.get(name)
    fields = getattr(source, "__dict__", None)
    if fields is not None and name in fields:
        return fields[name]
    if hasattr(type(source), "__pydantic_fields__"):
        extra = source.__pydantic_extra__  # type: ignore[attr-defined]  # a pydantic model has it
        return extra.get(name) if extra else None
    return source.get(name) if isinstance(source, Mapping) else getattr(source, name, None)


def plain(value: Any) -> Any:
    """Turn LiteLLM's pydantic objects inside `value` into plain JSON data."""
    if hasattr(value, "model_dump"):
        return value.model_dump(exclude_none=True)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def text_of(content: object) -> str:
    """The text of a delta's content, which a few providers send as a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(str(get(part, "text") or "") for part in content)
    return ""
