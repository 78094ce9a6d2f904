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
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import PurePath
from typing import Any, NamedTuple

from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    ByteSize,
    RootModel,
    SecretBytes,
    SecretStr,
)
from pydantic.types import Secret
from pydantic_core import MultiHostUrl, Url, to_jsonable_python

from ..events import same_json, thawed
from ..execution import Raised, attempt_call
from .messages import InvalidArguments, path_text, shortened
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
    told = attempt_call(_tell, value, sent)
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
    told = attempt_call(_jsonable, value)
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
        by_value = attempt_call(sorted, told.shown)  # its order is nobody's, and another one after each edit
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
    read = attempt_call(json.loads, sent)
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


# --- What a person made of a call's shown arguments -> JSON to validate, and whether the outcome is what they did. ---
#
# What is shown of a call is not always what makes it: a secret is a note of its length, a `Json` text is what it holds.
# So an edit starts from what the model sent, with only the parts replaced that the person has touched. All three are
# JSON of one shape: `edited` (from the person), `shown` (what they had before them), `again` (what makes that again).

_Path = tuple["int | str", ...]


def candidates(
    edited: Mapping[str, Any], shown: Mapping[str, Any], again: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """The arguments to validate: the call's own with the edits, then the edited ones as they stand.

    The second is for validators that do not give twice the same for what was sent, or that put it into another order.
    Raises InvalidArguments for the note of a secret in another's place.
    """
    first = _merged(edited, shown, again)
    yield first
    second = {
        key: value if key not in shown or not same_json(value, shown[key]) else first.get(key, ABSENT)
        for key, value in edited.items()
    }
    second = {key: value for key, value in second.items() if value is not ABSENT}
    if not same_json(first, second) and not any(map(_has_note, second.values())):
        yield second


def _merged(edited: Any, shown: Any, again: Any) -> Any:
    if shown is not ABSENT and same_json(edited, shown):
        return again
    if isinstance(again, str) and isinstance(edited, (dict, list)) and not isinstance(shown, str):
        inner = attempt_call(json.loads, again)
        return edited if isinstance(inner, Raised) else json.dumps(_merged(edited, shown, inner))
    if isinstance(edited, Mapping) and isinstance(shown, Mapping) and isinstance(again, Mapping):
        parts = {
            key: _merged(value, shown.get(key, ABSENT), again.get(key, ABSENT))
            for key, value in edited.items()
        }
        unseen = {key: value for key, value in again.items() if key not in shown}
        return {key: value for key, value in {**unseen, **parts}.items() if value is not ABSENT}
    lists = isinstance(edited, list) and isinstance(shown, list) and isinstance(again, list)
    # A set, or what a validator has built: its items are known as they are shown, so a secret of it is not known.
    if lists and len(shown) == len(again) and not (_has_note(edited) and same_json(shown, again)):
        places = _places(edited, shown)
        return [
            _merged(item, *((ABSENT, ABSENT) if at is None else (shown[at], again[at])))
            for item, at in zip(edited, places, strict=True)
        ]
    if _has_note(edited):
        raise InvalidArguments(
            f"{shortened(edited)}: this stands for a hidden value, and which one is not certain here; "
            "type it anew, or leave what stands beside it as it was"
        )
    return edited


def _places(edited: list[Any], shown: list[Any]) -> list[int | None]:
    """Which item each item of an edited list was; None for what is new, or could be one of several.

    An item that is there once before and after is the same one, wherever it stands; so is one that has only got new
    secrets. What is left is taken by its index, in a list of the same length or in one that was only appended to: but an
    item with a secret only where nothing else of it has changed, so that no secret goes to what has taken another's place.
    """
    now, before = (
        [json.dumps(item, sort_keys=True, default=repr) for item in items] for items in (edited, shown)
    )
    seen, again, stood = Counter(before), Counter(now), {item: index for index, item in enumerate(before)}
    places = [stood[item] if seen[item] == again[item] == 1 else None for item in now]
    _place_new_secrets(places, edited, shown)
    if len(now) != len(before) and now[: len(before)] != before:
        return places
    taken = set(places)
    for index, was in enumerate(shown):
        if places[index] is None and index not in taken:
            item = edited[index]
            # A list of one has no other's secrets.
            if len(shown) == 1 or not _has_note(item) or _same_but_secrets(item, was):
                places[index] = index
    return places


def _place_new_secrets(places: list[int | None], edited: list[Any], shown: list[Any]) -> None:
    taken = set(places)
    free = [at for at, was in enumerate(shown) if at not in taken and _has_note(was)]
    if not free:
        return
    left = [index for index, at in enumerate(places) if at is None]
    pairs = [(index, at) for index in left for at in free if _same_but_secrets(edited[index], shown[at])]
    once, of_once = Counter(index for index, _ in pairs), Counter(at for _, at in pairs)
    for index, at in pairs:
        if once[index] == of_once[at] == 1:
            places[index] = at


def _same_but_secrets(edited: Any, shown: Any) -> bool:
    if isinstance(shown, str) and NOTE.fullmatch(shown):
        return True
    if isinstance(edited, Mapping) and isinstance(shown, Mapping):
        return edited.keys() == shown.keys() and all(
            _same_but_secrets(edited[key], shown[key]) for key in shown
        )
    if isinstance(edited, list) and isinstance(shown, list) and len(edited) == len(shown):
        return all(map(_same_but_secrets, edited, shown))
    return same_json(edited, shown)


def _has_note(value: Any) -> bool:
    if isinstance(value, str):
        return NOTE.fullmatch(value) is not None
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return any(map(_has_note, items))


def _touched(edited: Any, shown: Any, path: _Path = ()) -> Iterator[tuple[_Path, Any]]:
    """(where the person changed or added something, what was shown of it before).

    What they took away is not there to be looked at.
    """
    if shown is not ABSENT and same_json(edited, shown):
        return
    if isinstance(edited, Mapping) and isinstance(shown, Mapping):
        for key, value in edited.items():
            yield from _touched(value, shown.get(key, ABSENT), (*path, key))
    elif isinstance(edited, list) and isinstance(shown, list) and len(edited) == len(shown):
        for index, (value, at) in enumerate(zip(edited, _places(edited, shown), strict=True)):
            yield from _touched(value, ABSENT if at is None else shown[at], (*path, index))
    else:
        yield path, shown


def _at(value: Any, path: _Path) -> Any:
    for key in path:
        try:
            value = value[key]
        except (LookupError, TypeError):
            return ABSENT
    return value


def with_marks(
    made: Mapping[str, Any], edited: Mapping[str, Any], shown: Mapping[str, Any]
) -> dict[str, Any]:
    """The new call's JSON with a mark at each secret that was edited: it may be as long as the old one."""
    marked: dict[str, Any] = thawed(made)
    for path, before in _touched(edited, shown):
        now, holder = _at(marked, path), _at(marked, path[:-1])
        if all(isinstance(text, str) and NOTE.fullmatch(text) for text in (before, now)):
            holder[path[-1]] = f"{now} (edited)"
    return marked


def unheeded(
    made: Mapping[str, Any], edited: Mapping[str, Any], shown: Mapping[str, Any]
) -> tuple[str, bool]:
    """Where an edit has changed nothing, and whether that is wrong: the new call is still as the old one was shown.

    It is not where the edit is read as what was there (`" a"` for "a"), nor mentioned for an equal number (1.0 for 1).
    It is wrong in a field of an object: that may not be read under this name. ("", False) if there is no such place.
    """
    said = ""
    for path, before in _touched(edited, shown):
        value = _at(edited, path)
        if before is ABSENT or value == before or not same_json(_at(made, path), before):
            continue
        said = (
            said
            or f"{path_text(path)}: {shortened(value)} would change nothing, it stays {shortened(before)}"
        )
        if len(path) > 1 and isinstance(path[-1], str):
            return said, True
    return said, False


def spoilt(made: Any, edited: Any, shown: Any) -> bool:
    """Whether something has changed that the person has not touched."""
    if same_json(edited, shown):
        return not same_json(made, shown)
    if all(isinstance(one, Mapping) for one in (made, edited, shown)):
        return any(spoilt(made.get(key, ABSENT), edited[key], shown[key]) for key in edited if key in shown)
    if all(isinstance(one, list) for one in (made, edited, shown)) and len(made) == len(edited) == len(shown):
        places = _places(edited, shown)
        return any(
            spoilt(made[index], edited[index], shown[at]) for index, at in enumerate(places) if at is not None
        )
    return False
