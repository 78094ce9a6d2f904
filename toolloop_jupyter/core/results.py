"""What a tool returned -> the bounded text that the model gets.

Text stays as it is; everything else becomes strict JSON where it has a JSON form, and words where it has none: a
table is its shape, columns and first rows, a picture is what is drawn in it. The same value gives the same text
in every run (sets are sorted, addresses left out), the text is never empty, and nothing here raises.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import html
import json
import math
import pathlib
import re
import uuid
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_jsonable_python

from . import pictures, tables
from .foreign import Raised, attempt, words_of

LIMIT = 20_000
"""Characters of a result that the model gets unless the tool or the run says otherwise."""

_NESTED_LIMIT = 2_000  # characters of a table or picture that is one value inside a list or an object
_MAX_ITEMS = 20_000  # values of a structure that are read at all; the text of far fewer fills the limit
_MAX_DEPTH = 50
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]{4,}")
_VIEWS = ("_repr_markdown_", "_repr_latex_", "_repr_html_")
_TAG = re.compile(r"<(script|style)\b.*?</\1\s*>|<[^>]*>", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True)
class Described:
    """A result as text for the model."""

    text: str
    full_length: int
    """Characters before the cut, `len(text)` when nothing was cut; estimated for large tables and structures."""


def describe(value: Any, limit: int | None = None) -> Described:
    """The value as text of at most `limit` characters (LIMIT when None). Never raises."""
    limit = LIMIT if limit is None else max(limit, 1)
    described = attempt(_describe, value, limit)
    if isinstance(described, Raised):
        text = _textless(value, described)
        described = Described(text, len(text))
    size = attempt(_size, value)
    size = "" if isinstance(size, Raised) else size
    text = cut(_encodable(described.text), limit, size, described.full_length)
    return Described(text, max(described.full_length, len(text)))


def _describe(value: Any, limit: int) -> Described:
    if isinstance(value, str) and not isinstance(value, enum.Enum):
        text = str.__str__(value)
        if not text[:1000].strip() and not text.strip():
            text = f"(only whitespace: {text[:40]!r})" if text else "(no output)"
        return Described(text, len(text))
    for reader in (tables.table, pictures.picture):
        if (found := reader(value, limit)) is not None:
            return Described(*found)
    if isinstance(value, float) and not math.isfinite(value):
        text = _not_finite(value)
        return Described(text, len(text))
    walk = _Walk()
    plain = walk.plain(value, 0)
    text = plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False, allow_nan=False)
    text = text or "(no output)"
    # What was not read is as long as what was, on the average.
    left_out = walk.left_out * len(text) // max(walk.seen, 1)
    return Described(text, len(text) + left_out)


class _Walk:
    """One way through a structure, to plain JSON data."""

    def __init__(self) -> None:
        self.seen = 0
        self.left_out = 0
        self._inside: set[int] = set()

    def plain(self, value: Any, depth: int) -> Any:
        """JSON data for the value; text where it has no JSON form."""
        self.seen += 1
        scalar = _scalar(value)
        if scalar is not _NO_SCALAR:
            return scalar
        if id(value) in self._inside:
            return f"<the same {_type_name(value)} again>"
        if depth > _MAX_DEPTH:
            return f"<{_type_name(value)}, nested deeper>"
        self._inside.add(id(value))
        found = attempt(self._compound, value, depth + 1)
        self._inside.discard(id(value))
        return _textless(value, found) if isinstance(found, Raised) else found

    def _compound(self, value: Any, depth: int) -> Any:
        for reader in (tables.table, pictures.picture):
            if (found := reader(value, _NESTED_LIMIT)) is not None:
                return cut(found[0], _NESTED_LIMIT)
        if isinstance(value, BaseModel):
            return self.plain(_model_fields(value), depth)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = (field.name for field in dataclasses.fields(value) if field.repr)
            return self._mapping({name: getattr(value, name, None) for name in fields}, depth)
        if isinstance(value, Mapping):
            return self._mapping(value, depth)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return self._mapping(dict(zip(value._fields, value, strict=False)), depth)
        if isinstance(value, AbstractSet):
            items = [self.plain(item, depth) for item in self._some(value, len(value))]
            return sorted(
                items, key=lambda item: (type(item).__name__, json.dumps(item) if _nested(item) else item)
            )
        if isinstance(value, (list, tuple)) or type(value).__name__ in ("deque", "dict_keys", "dict_values"):
            return self._sequence(value, depth)
        return _words(value)

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        found = {self._key(key): self.plain(value[key], depth) for key in self._some(value, len(value))}
        if (missing := len(value) - len(found)) > 0 and self.left_out:
            found["…"] = f"{missing:,} more entries left out"
        return found

    def _key(self, key: Any) -> str:
        if isinstance(key, str) and not isinstance(key, enum.Enum):
            return str.__str__(key)
        plain = self.plain(key, _MAX_DEPTH - 1)
        return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)

    def _sequence(self, value: Any, depth: int) -> list[Any]:
        room = max(_MAX_ITEMS - self.seen, 6)
        if len(value) <= room or not isinstance(value, (list, tuple)):
            return [self.plain(item, depth) for item in self._some(value, len(value))]
        end = room // 3
        missing = len(value) - room
        self.left_out += missing
        begin = [self.plain(item, depth) for item in value[: room - end]]
        return [
            *begin,
            f"… {missing:,} items left out …",
            *(self.plain(item, depth) for item in value[-end:]),
        ]

    def _some(self, items: Iterable[Any], length: int) -> Iterable[Any]:
        """The items, as long as it is of use to read more."""
        room = max(_MAX_ITEMS - self.seen, 6)
        self.left_out += max(length - room, 0)
        for index, item in enumerate(items):
            if index >= room:
                return
            yield item


_NO_SCALAR = object()


def _scalar(value: Any) -> Any:
    """The JSON scalar for values that have one, or _NO_SCALAR."""
    if isinstance(value, enum.Enum):
        return _scalar(value.value) if _scalar(value.value) is not _NO_SCALAR else f"{value}"
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value) if value.bit_length() < 10_000 else f"an integer of {value.bit_length():,} bits"
    if (found := tables.scalar(value)) is not tables.NO_SCALAR:
        return found if not isinstance(found, float) or math.isfinite(found) else _not_finite(found)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else _not_finite(value)
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return to_jsonable_python(value)
    if isinstance(value, (pathlib.PurePath, uuid.UUID, decimal.Decimal, complex)):
        return str(value)
    return _NO_SCALAR


def _not_finite(value: float) -> str:
    """JSON has no such numbers, so they are named in text."""
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _nested(item: Any) -> bool:
    return isinstance(item, (list, dict)) or item is None


def _model_fields(model: BaseModel) -> Any:
    """A model as its own serialisers say; field by field where they fail or give what JSON has not."""
    try:
        return model.model_dump(mode="json", by_alias=True, warnings="none")
    except (PydanticSerializationError, ValueError, TypeError, RecursionError):
        names = type(model).model_fields
        return {name: getattr(model, name, None) for name, field in names.items() if field.repr}


def _words(value: Any) -> str:
    """Text for an object without a JSON form: its own `str` or `repr`, or another view of it, or what it is."""
    if isinstance(value, BaseException):
        return words_of(value)
    kind = type(value)
    if hasattr(kind, "__next__"):
        return f"<{_type_name(value)}, an iterator whose items were not read>"
    own = any("__str__" in vars(base) or "__repr__" in vars(base) for base in kind.__mro__[:-1])
    text = _ADDRESS.sub("", str(value)) if own else ""
    if text and not text.startswith("<"):
        return text
    # Looked up on the type, since proxies and mocks answer to any attribute.
    for name in _VIEWS:
        if callable(view := getattr(kind, name, None)) and isinstance(shown := view(value), str) and shown:
            return shown if name != "_repr_html_" else _html_text(shown)
    if pictures.draws_itself(value) and (shown_picture := pictures.picture(pictures.bytes_of(value), LIMIT)):
        return f"{_type_name(value)}: {shown_picture[0]}"
    return text or f"<{_type_name(value)} object, without a text form>"


def _html_text(markup: str) -> str:
    return re.sub(r"\s+", " ", html.unescape(_TAG.sub(" ", markup))).strip()


def _textless(value: Any, raised: Raised) -> str:
    return f"<{_type_name(value)} without a text form: {type(raised.error).__name__}>"


def _type_name(value: Any) -> str:
    kind = type(value)
    return (
        kind.__qualname__
        if kind.__module__ in ("builtins", "__main__")
        else f"{kind.__module__}.{kind.__qualname__}"
    )


def _size(value: Any) -> str:
    """What was cut, when a number of items says more than a number of characters."""
    if isinstance(value, Mapping):
        return f"an object with {len(value):,} entries; "
    if isinstance(value, (list, tuple, set, frozenset)):
        return f"a list of {len(value):,} items; "
    return ""


def cut(text: str, limit: int, what: str = "", full_length: int = 0) -> str:
    """At most `limit` characters: the beginning and the end, and between them how much was left out.

    Cuts at line ends where one is near. `what` is put before the note's number, which counts `full_length` where
    `text` itself is only a part.
    """
    if len(text) <= limit:
        return text
    full_length = max(len(text), full_length)
    note = (
        f"\n[… {what}{full_length:,} characters, of which about {full_length - limit:,} are left out here; "
        "ask for a smaller part to see them …]\n"
    )
    room = limit - len(note)
    if room < limit // 2:  # so little that the note would be most of it
        return text[: limit - 1] + "…"
    head, tail = text[: room * 2 // 3], text[len(text) - (room - room * 2 // 3) :]
    near = room // 20
    if (end := head.rfind("\n", len(head) - near)) > 0:
        head = head[:end]
    if (start := tail.find("\n", 0, near)) >= 0:
        tail = tail[start + 1 :]
    return f"{head}{note}{tail}"


def _encodable(text: str) -> str:
    """The text without lone surrogates (undecodable file names have them), which no request can carry."""
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
