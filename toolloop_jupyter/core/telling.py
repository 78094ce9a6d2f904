"""A validated value -> JSON that tells all of it: what a person is asked about is what the function gets.

A class may print itself as it likes: fields left out (`Field(exclude=True)`), shortened by a serialiser, a `__repr__`
that says something else, an iterator that is used up by looking at it. So no class is asked:

- plain data (texts, numbers, dates, paths, enums, lists, dicts …) is told by its content, which is all there is to it;
- a model or a dataclass is told field by field under the names that a model sends, and with everything that was sent
  for it and is no field (an `InitVar`, what only a validator reads);
- an object of any other class is told as what the model sent for it, since nothing else reached it;
- a secret is told as hidden, with its length: a person sees that there is something that they do not see.

Not told: what a class's own code keeps beside its fields, or takes from elsewhere.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import fractions
import ipaddress
import json
import math
import re
import uuid
from collections import deque
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any, NamedTuple

from pydantic import AliasChoices, AliasPath, BaseModel, ByteSize, RootModel, SecretBytes, SecretStr
from pydantic.types import Secret
from pydantic_core import MultiHostUrl, Url, to_jsonable_python

from .foreign import Raised, attempt
from .schema import strict_json


class _Nothing:
    pass


ABSENT: Any = _Nothing()
"""In the place of what was sent: the model sent nothing, so the value is a default."""
_UNKNOWN: Any = _Nothing()
"""In the place of what was sent: a validator has built something else of it, and which part came from what is not known."""

NOTE = re.compile(r"hidden, [\d,]+ characters?(?: \(edited\))?")
"""What is told of a secret."""

_PLAIN = frozenset({str, int, bool, type(None)})
_LEAVES = frozenset(
    {
        float,
        bytes,
        bytearray,
        complex,
        decimal.Decimal,
        fractions.Fraction,
        dt.date,
        dt.datetime,
        dt.time,
        dt.timedelta,
        uuid.UUID,
        re.Pattern,
        ipaddress.IPv4Address,
        ipaddress.IPv4Interface,
        ipaddress.IPv4Network,
        ipaddress.IPv6Address,
        ipaddress.IPv6Interface,
        ipaddress.IPv6Network,
        ByteSize,
        Url,
        MultiHostUrl,
    }
)
_LISTS = frozenset({list, tuple, deque})
_SETS = frozenset({set, frozenset})
_DICTS = frozenset({dict, collections.OrderedDict, collections.Counter, collections.defaultdict})


class Told(NamedTuple):
    """What is known of one value."""

    shown: Any
    """JSON to show and to keep."""
    again: Any
    """JSON that validates to this value again; ABSENT where that is the default, which needs none."""
    whole: bool = True
    """Whether `shown` tells all that came from the model."""


def tell(value: Any, sent: Any = ABSENT) -> Told:
    """Tell a value by its content and by what was sent for it. Runs no code of the value's class; never raises."""
    if type(value) in _PLAIN:
        return Told(value, sent)
    told = attempt(_tell, value, sent)
    if isinstance(told, Raised):  # it holds itself, or cannot be looked at
        return Told(snapshot(value), ABSENT) if sent is ABSENT else Told(sent, sent)
    return told


def is_plain(value: object) -> bool:
    """Whether the value cannot change."""
    return type(value) in _PLAIN


def snapshot(value: Any) -> Any:
    """A value as JSON data by its class's own account of it; `repr` where it has none. Never raises."""
    if hasattr(type(value), "__next__"):
        return f"<{type(value).__name__}>"  # it would be used up
    told = attempt(_jsonable, value)
    return f"<{type(value).__name__}>" if isinstance(told, Raised) else strict_json(told)


def _jsonable(value: Any) -> Any:
    return to_jsonable_python(value, by_alias=True, fallback=_other_json)


def _other_json(value: Any) -> Any:
    """What pydantic before 2.14 does not put into JSON."""
    if isinstance(value, deque):
        return list(value)
    return str(value) if type(value).__module__ == "ipaddress" else repr(value)


def _tell(value: Any, sent: Any) -> Told:
    kind = type(value)
    if kind in _PLAIN:
        return Told(value, value if sent is _UNKNOWN else sent)
    if kind is float:
        return Told(value if math.isfinite(value) else strict_json(value), _or(sent, value))
    told = _by_kind(value, kind, sent)
    if told.whole or sent is ABSENT or sent is _UNKNOWN:
        return told
    return Told(sent, sent)


def _by_kind(value: Any, kind: type, sent: Any) -> Told:
    if isinstance(value, (SecretStr, SecretBytes, Secret)):
        size = (
            len(value) if isinstance(value, (SecretStr, SecretBytes)) else len(str(value.get_secret_value()))
        )
        return Told(f"hidden, {size:,} character{'' if size == 1 else 's'}", _or(sent, ABSENT))
    if _is_leaf(value, kind):
        shown = strict_json(_jsonable(value))
        return Told(shown, _or(sent, shown))
    if isinstance(sent, str) and (read := _read(sent)) is not ABSENT:  # a `Json[...]`
        told = _by_kind(value, kind, read)
        return Told(told.shown, sent, told.whole)
    if kind in _LISTS or (isinstance(value, tuple) and hasattr(kind, "_fields")):
        return _told_list(list(value), sent)
    if kind in _SETS:
        told = _told_list(list(value), sent if sent is ABSENT else _UNKNOWN)
        by_value = attempt(sorted, told.shown)  # its order is nobody's, and another one after each edit
        shown = sorted(told.shown, key=json.dumps) if isinstance(by_value, Raised) else by_value
        return Told(shown, shown, told.whole)
    if kind in _DICTS:
        return _told_dict(value, sent)
    if isinstance(value, RootModel):
        return _tell(value.root, sent)
    if isinstance(value, BaseModel) or dataclasses.is_dataclass(value):
        return _told_fields(value, kind, sent)
    if sent is ABSENT or sent is _UNKNOWN:
        return Told(snapshot(value), ABSENT, whole=sent is ABSENT)
    return Told(sent, sent)


def _or(sent: Any, otherwise: Any) -> Any:
    return otherwise if sent is _UNKNOWN else sent


def _is_leaf(value: Any, kind: type) -> bool:
    """Whether the JSON of a value is all there is to it."""
    if kind in _LEAVES or isinstance(value, Enum):
        return True
    home = kind.__module__  # pathlib's own classes, and pydantic's for addresses
    return home == "pydantic.networks" or (isinstance(value, PurePath) and home.startswith("pathlib"))


def _read(sent: str) -> Any:
    if sent.lstrip()[:1] not in ("[", "{"):
        return ABSENT
    read = attempt(json.loads, sent)
    return ABSENT if isinstance(read, Raised) else read


def _told_list(items: list[Any], sent: Any) -> Told:
    if sent is ABSENT:
        parts = [ABSENT] * len(items)
    elif isinstance(sent, list) and len(sent) == len(items):
        parts = sent
    else:
        parts = [_UNKNOWN] * len(items)
    told = [_tell(item, part) for item, part in zip(items, parts, strict=True)]
    shown = [one.shown for one in told]
    again = [one.again for one in told] if parts is sent else _or(sent, shown)
    return Told(shown, again, all(one.whole for one in told))


def _told_dict(value: Mapping[Any, Any], sent: Any) -> Told:
    shown, whole = {}, True
    again = dict(sent) if isinstance(sent, dict) else None
    for key, item in value.items():
        name = key if isinstance(key, str) else next(iter(_jsonable({key: None})))
        told = _tell(item, _part(sent, name))
        shown[name] = told.shown
        if again is not None and name in again:
            again[name] = told.again
        whole = whole and told.whole
    return Told(shown, _or(sent, shown) if again is None else again, whole)


def _part(sent: Any, key: str) -> Any:
    if sent is ABSENT:
        return ABSENT
    return sent.get(key, _UNKNOWN) if isinstance(sent, dict) else _UNKNOWN


def _told_fields(value: Any, kind: type, sent: Any) -> Told:
    """An object with fields: the fields by the names that a model sends, and all else that was sent."""
    given = sent if isinstance(sent, dict) else {}
    if given is not sent and sent is not ABSENT and sent is not _UNKNOWN:
        return Told(sent, sent)  # made of a text or a list: its fields may not be all that it keeps of that
    shown: dict[str, Any] = {}
    again: dict[str, Any] = {}
    for name, info in _fields(value, kind):
        key = _key(name, info, given)
        told = _tell(getattr(value, name), _UNKNOWN if sent is _UNKNOWN else given.get(key, ABSENT))
        shown[key] = told.shown
        if key in given:
            again[key] = told.again
        elif _is_made_anew(info):
            again[key] = told.shown
    for key, rest in given.items():
        if key not in shown:
            shown[key] = again[key] = rest
    return Told(shown, _or(sent, shown) if given is not sent else again, whole=sent is not _UNKNOWN)


def _fields(value: Any, kind: type) -> Iterator[tuple[str, Any]]:
    """(name, what is known of the field) of a model's or a dataclass's fields, then of the extra ones of a model."""
    if isinstance(value, BaseModel):
        yield from kind.model_fields.items()  # type: ignore[attr-defined]
        yield from ((name, None) for name in value.__pydantic_extra__ or ())
        return
    known = getattr(kind, "__pydantic_fields__", {})
    yield from ((field.name, known.get(field.name, field)) for field in dataclasses.fields(value))


def _key(name: str, info: Any, given: Mapping[str, Any]) -> str:
    """The name under which a field was sent, or would be."""
    alias = getattr(info, "validation_alias", None) or getattr(info, "alias", None)
    choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
    names = [choice for choice in choices if isinstance(choice, str)]
    names += [choice.path[0] for choice in choices if isinstance(choice, AliasPath) and len(choice.path) == 1]  # type: ignore[misc]
    return next((one for one in (*names, name) if one in given), names[0] if names else name)


def _is_made_anew(info: Any) -> bool:
    """Whether the field's default is another one each time."""
    return getattr(info, "default_factory", None) not in (None, dataclasses.MISSING)
