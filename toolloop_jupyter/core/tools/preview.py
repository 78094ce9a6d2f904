"""Shows a validated value as complete JSON, so that the function gets the value that the person saw.

The code of a class may show a value incompletely: it may leave out fields (`Field(exclude=True)`), shorten a value in a
serialiser, or show something else in its `__repr__`. Reading an iterator uses it up. So no code of the value's class is
called:

- plain data (texts, numbers, dates, paths, enums, lists, dicts …) is shown with its complete content;
- a pydantic model or a dataclass is shown field by field, with the names in the sent JSON. Data that was sent for the object
  but is not a field is shown, too: an `InitVar`, or data that only a validator reads;
- any other object is shown as the JSON that was sent for it. An object with fields is shown in the same way if the model sent
  no JSON object for it, but for example a text;
- a secret is shown as "hidden" with its length.

Data that the code of a class stores outside of the fields, or reads from elsewhere, is not shown.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeAlias

from pydantic import AliasChoices, BaseModel, ByteSize, RootModel, SecretBytes, SecretStr
from pydantic.types import Secret
from pydantic_core import to_jsonable_python

from ..execution import MISSING, Raised, attempt_call
from .schema import make_strict_json

JsonObject: TypeAlias = dict[str, object]
_UNKNOWN = object()
"""Means that the JSON that was sent for a part of a value is not known, because a validator has changed the whole value."""
PLAIN = frozenset({str, int, bool, type(None)})
"""The types of values that are their own JSON, and that cannot change."""
_LEAVES = frozenset({float, bytes, bytearray, complex, ByteSize})
_LEAF_MODULES = frozenset({"datetime", "decimal", "fractions", "ipaddress", "pathlib", "pathlib._local"})
_LEAF_MODULES |= {"pydantic.networks", "pydantic_core._pydantic_core", "re", "uuid"}
_LISTS = frozenset({list, tuple, collections.deque})
_SETS = frozenset({set, frozenset})
_DICTS = frozenset({dict, collections.OrderedDict, collections.Counter, collections.defaultdict})
_NOTE = re.compile(r"hidden, [\d,]+ characters?")
"""The note that is shown instead of a secret."""


class _Unclear(Exception):
    """A value cannot be shown completely. The JSON that was sent for the value, or for its container, is shown instead."""


def preview(value: object, sent: object = MISSING) -> object:
    """Return `value` as the JSON that is shown and stored. `sent` is the JSON that the model sent for it, or MISSING.

    Never raises. Code of the value's class runs only if `sent` is MISSING: then the value is a default.
    """
    shown = attempt_call(_look, value, sent)
    if not isinstance(shown, Raised):
        return shown
    return snapshot(value) if sent is MISSING else sent  # for example, the value contains itself


def snapshot(value: object) -> object:
    """Return `value` as JSON data, from its serialiser or `repr`; "<TYPE>" for an iterator, or if this raises. Never raises."""
    is_iterator = hasattr(type(value), "__next__")  # reading an iterator would use it up
    made = MISSING if is_iterator else attempt_call(_make_json, value)
    return f"<{type(value).__name__}>" if is_iterator or isinstance(made, Raised) else make_strict_json(made)


def _make_json(value: object) -> Any:
    def write(other: object) -> object:  # pydantic before 2.14 cannot serialise deques and IP addresses
        if isinstance(other, collections.deque):
            return list(other)
        return str(other) if type(other).__module__ == "ipaddress" else repr(other)

    return to_jsonable_python(value, by_alias=True, fallback=write)


def _look(value: object, sent: object) -> object:
    try:
        return _look_inside(value, type(value), sent)
    except _Unclear:
        if sent is MISSING or sent is _UNKNOWN:
            raise
        return sent


def _look_inside(value: Any, kind: type, sent: object) -> object:
    if kind in PLAIN:
        return value
    if isinstance(value, (SecretStr, SecretBytes, Secret)):
        hidden = value.get_secret_value()
        size = len(hidden if isinstance(hidden, (str, bytes)) else str(hidden))
        return f"hidden, {size:,} character{'' if size == 1 else 's'}"
    is_iterator = hasattr(kind, "__next__")
    if not is_iterator and (kind in _LEAVES or isinstance(value, Enum) or kind.__module__ in _LEAF_MODULES):
        return make_strict_json(_make_json(value))  # this JSON shows the whole value
    otherwise = MISSING if sent is MISSING else _UNKNOWN
    if kind in _LISTS or (isinstance(value, tuple) and hasattr(kind, "_fields")):
        items = [*tuple.__iter__(value)] if isinstance(value, tuple) else [*value]
        parts = sent if isinstance(sent, list) and len(sent) == len(items) else [otherwise] * len(items)
        return [*map(_look, items, parts)]
    if kind in _SETS:
        shown = [_look(item, otherwise) for item in value]
        # A set has no order; without sorting, the JSON would differ after each edit.
        by_value = attempt_call(sorted, shown)
        return sorted(shown, key=json.dumps) if isinstance(by_value, Raised) else by_value
    if kind in _DICTS:
        given = sent if isinstance(sent, dict) else {}
        for key in value:
            _look_inside(key, type(key), otherwise)
        keys = (key if isinstance(key, str) else next(iter(_make_json({key: None}))) for key in value)
        pairs = zip(keys, value.values(), strict=True)
        return {key: _look(item, given.get(key, otherwise)) for key, item in pairs}
    if isinstance(value, RootModel):
        return _look(value.root, sent)
    if isinstance(value, BaseModel) or dataclasses.is_dataclass(value):
        return _look_at_fields(value, sent)
    if sent is MISSING:
        return snapshot(value)
    raise _Unclear


def _look_at_fields(value: Any, sent: object) -> object:
    """Return the JSON of an object with fields: its fields with the names in the sent JSON, and all other data that was sent."""
    if sent is not MISSING and not isinstance(sent, dict):
        raise _Unclear  # the object was made from a text or a list, so its fields may not show all its data
    given: JsonObject = {} if sent is MISSING else sent
    if isinstance(value, BaseModel):
        fields = {**type(value).model_fields, **dict.fromkeys(value.__pydantic_extra__ or ())}
    else:
        fields_of_model = getattr(type(value), "__pydantic_fields__", {})
        fields = {field.name: fields_of_model.get(field.name, field) for field in dataclasses.fields(value)}
    shown = dict(given)
    for name, info in fields.items():
        alias = getattr(info, "validation_alias", None) or getattr(info, "alias", None)
        choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
        names = [*(choice for choice in choices if isinstance(choice, str)), name]
        key = next((one for one in names if one in given), names[0])
        shown[key] = _look(getattr(value, name), given.get(key, MISSING))
    return shown


def holds_note(value: object) -> bool:
    """Return True if JSON data contains, at any depth, the note that is shown instead of a secret."""
    if isinstance(value, str):
        return _NOTE.fullmatch(value) is not None
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return any(map(holds_note, items))
