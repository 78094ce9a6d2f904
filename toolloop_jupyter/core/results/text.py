"""Convert the result of a tool to a text for the model. The length of the text is limited.

A text is not changed. A value with a JSON form becomes strict JSON. Any other value is described in words. The description
of a table has its shape, its columns and its first rows. The description of a figure lists the things that are drawn in
it. The same value gives the same text in every run: sets are sorted, and memory addresses are left out. The text is never
empty. The public functions of this module never raise.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import html
import itertools
import json
import math
import pathlib
import re
import sys
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping, ValuesView
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_jsonable_python

from ..execution import MISSING, FirstItems, Raised, attempt_call, explain_error
from .images import describe_picture, is_drawable, read_picture
from .tracebacks import cut_traceback

LIMIT = 20_000
"""The most characters of a result that the model gets, unless the tool or the run sets another limit."""

_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
_NESTED_LIMIT = 2_000  # the most characters for a table or a picture inside a list or an object
_MAX_ITEMS = 20_000  # the most values of a structure that are read; far fewer values already fill the limit of the text
_MAX_DEPTH = 50
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]{4,}")
_VIEWS = ("_repr_markdown_", "_repr_latex_", "_repr_html_", "_repr_svg_")
_TAG = re.compile(r"<(script|style)\b.*?</\1\s*>|<[^>]*>", re.DOTALL | re.IGNORECASE)

_ROWS = 10  # the number of first rows that are shown of a long table
_ALL_ROWS = 50  # a table of up to this number of rows is shown completely
_COLUMNS = 40
_SMALL_ARRAY = 1_000  # an array of up to this number of values is shown completely


class Described(NamedTuple):
    """A result as text for the model."""

    text: str
    full_length: int
    """The number of characters before the text was shortened. For large tables and structures, it is an estimate."""
    fault: str = ""
    """The name of the exception that code of the value raised, if any. `text` then says that the value has no text."""


def tell(
    value: object, limit: int | None = None, name_code: Callable[[str], str] = lambda code: code
) -> Described:
    """Return the text of a value for the model. The value is in a prompt, or is a tool's result. Never raises.

    The text of a raised exception is its traceback. `describe` makes the text of any other value. In a traceback,
    `name_code` replaces the file names of cells by names that a person knows.
    """
    error: Any = value
    # `isinstance` would read the attribute `__class__` of the value, and this may raise.
    if not issubclass(type(value), BaseException) or attempt_call(getattr, error, "__traceback__") is None:
        return describe(value, limit)
    text = name_code(cut_traceback(error)).rstrip()
    return Described(cut(text, LIMIT if limit is None else max(limit, 1)), len(text))


def describe(value: object, limit: int | None = None) -> Described:
    """Return a description of a value, in at most `limit` characters (LIMIT if `limit` is None). Never raises."""
    limit = LIMIT if limit is None else max(limit, 1)
    made = attempt_call(_describe, value, limit)
    described = (
        Described(_name_textless(value, made), 0, _name_fault(made)) if isinstance(made, Raised) else made
    )
    text, length, fault = described
    if type(value) is FirstItems:  # `isinstance` would read the attribute `__class__` of the value
        kept = f"the first {len(value):,}" if value else "none"
        more = f"\n… the generator gave {value.given:,} items; {kept} are kept"
        text, length = text + more, length + len(more)
    text = text or "(no output)"
    if (
        not text.isascii()
    ):  # file names that cannot be decoded have lone surrogates, which a request cannot contain
        text = text.encode("utf-8", "backslashreplace").decode()
    if len(text) > limit:
        size = attempt_call(_count_items, value)
        text = cut(text, limit, "" if isinstance(size, Raised) else size, length)
    return Described(text, max(length, len(text)), fault)


def _describe(value: object, limit: int) -> Described:
    """Return a description of a value. Its text may be longer than `limit`."""
    if isinstance(value, str) and not isinstance(value, enum.Enum):
        text = str.__str__(value)
        if text and not text[:1000].strip() and not text.strip():
            text = f"(only whitespace: {text[:40]!r})"
        return Described(text, len(text))
    plain, left_out, fault = _read_scalar(value), 0.0, ""
    if plain is MISSING:
        found = describe_table(value) or describe_picture(value, limit)
        if found is not None:
            return Described(*found)
        reader = _Reader()
        plain, fault = reader.read(value), reader.fault
        left_out = reader.left_out / reader.seen
    text = plain if isinstance(plain, str) else _JSON.encode(plain)
    # The full length is an estimate: each value that was not read counts with the average length of the read values.
    return Described(text, int(len(text) * (1 + left_out)), fault)


class _Reader:
    """Converts a structure to plain JSON data. A part without a JSON form becomes a text. Reads at most _MAX_ITEMS values."""

    def __init__(self) -> None:
        self.seen = 0
        self.left_out = 0
        self.fault = ""
        """The name of the exception that the outermost value raised, if any. A part that raises is replaced by a note."""
        self._inside: set[int] = set()

    def read(self, value: object, depth: int = 0) -> object:
        self.seen += 1
        if (scalar := _read_scalar(value)) is not MISSING:
            return scalar
        if id(value) in self._inside:
            return f"<the same {_name_type(value)} again>"
        if depth > _MAX_DEPTH:
            return f"<{_name_type(value)}, nested deeper>"
        self._inside.add(id(value))
        made = attempt_call(self._read_compound, value, depth + 1)
        self._inside.discard(id(value))
        if not isinstance(made, Raised):
            return made
        self.fault = _name_fault(made) if depth == 0 else self.fault
        return _name_textless(value, made)

    def _read_compound(self, value: object, depth: int) -> object:
        found = describe_table(value) or describe_picture(value, _NESTED_LIMIT)
        if found is not None:
            return cut(found[0], _NESTED_LIMIT)
        # Methods are looked up on the type, since instances of proxies and mocks seem to have every attribute.
        if callable(own := getattr(type(value), "_repr_model_", None)) and isinstance(
            text := own(value), str
        ):
            return text
        if isinstance(value, BaseModel):
            return self.read(_read_model(value), depth)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = {
                one.name: getattr(value, one.name, None) for one in dataclasses.fields(value) if one.repr
            }
        elif isinstance(value, tuple) and hasattr(value, "_fields"):
            value = dict(zip(value._fields, value, strict=False))
        room = max(_MAX_ITEMS - self.seen, 6)
        if isinstance(value, Mapping):
            entries = {self._name(key): self.read(value[key], depth) for key in itertools.islice(value, room)}
            return {**entries, **self._note(len(value) - room, "entries", "…")}
        if isinstance(value, AbstractSet):
            self._note(len(value) - room, "items")
            items = [self.read(item, depth) for item in itertools.islice(value, room)]
            return sorted(items, key=lambda item: (type(item).__name__, json.dumps(item)))
        if not isinstance(value, (list, tuple, deque, ValuesView)):
            return _describe_object(value)
        values = value if isinstance(value, (list, tuple)) else list(value)
        note = self._note(len(values) - room, "items")
        end = room // 3 if note else 0
        items = [self.read(item, depth) for item in itertools.islice(values, room - end)]
        return [*items, *note.values(), *(self.read(item, depth) for item in values[len(values) - end :])]

    def _note(self, missing: int, what: str, name: str = "") -> dict[str, object]:
        """Return a note that replaces the values that are left out; {} if there are none. `missing` is their number.

        The number is also added to `left_out`.
        """
        self.left_out += max(missing, 0)
        return {name: f"… {missing:,} more {what} left out …"} if missing > 0 else {}

    def _name(self, key: object) -> str:
        plain = self.read(key, _MAX_DEPTH - 1)
        return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _read_scalar(value: object) -> object:
    """Return the JSON scalar for a value, also for a scalar of NumPy or pandas; MISSING if the value has no such form."""
    if isinstance(value, enum.Enum):
        inner = _read_scalar(value.value)
        return f"{value}" if inner is MISSING else inner
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value) if value.bit_length() < 10_000 else f"an integer of {value.bit_length():,} bits"
    numpy, pandas = sys.modules.get("numpy"), sys.modules.get("pandas")
    if pandas is not None and (value is pandas.NaT or value is pandas.NA):
        return None
    if numpy is not None and isinstance(value, numpy.generic):
        if isinstance(value, numpy.floating):
            value = float(str(value))  # 0.1 for float32(0.1), where item() gives 0.10000000149011612
        elif isinstance(value, (numpy.bool_, numpy.integer, numpy.str_)):
            return value.item()
        else:
            return str(value)
    if isinstance(value, float):
        number = float(value)
        return number if math.isfinite(number) else json.dumps(number)  # text: JSON has no NaN
    if isinstance(value, (dt.datetime, dt.date, dt.time, dt.timedelta)):
        return to_jsonable_python(value)
    is_text = isinstance(value, (pathlib.PurePath, uuid.UUID, decimal.Decimal, complex))
    return str(value) if is_text else MISSING


def _read_model(model: BaseModel) -> object:
    """Return the JSON data of a pydantic model from the model's own serialisers. If they fail, return the model's fields."""
    try:
        return model.model_dump(mode="json", by_alias=True, warnings="none")
    except (PydanticSerializationError, ValueError, TypeError, RecursionError):
        names = type(model).model_fields
        return {name: getattr(model, name, None) for name, field in names.items() if field.repr}


def _describe_object(value: object) -> str:
    """Return a text for an object without a JSON form.

    The text is the first of these that the object has: its `str` or `repr`; its Markdown, LaTeX, HTML or SVG form for
    notebooks; a description of its picture; its type.
    """
    if isinstance(value, BaseException):
        return explain_error(value)
    kind = type(value)
    if hasattr(kind, "__next__"):
        return f"<{_name_type(value)}, an iterator whose items were not read>"
    own = any("__str__" in vars(base) or "__repr__" in vars(base) for base in kind.__mro__[:-1])
    text = _ADDRESS.sub("", str(value)) if own else ""
    if text and not text.startswith("<"):
        return text
    # Methods are looked up on the type, since instances of proxies and mocks seem to have every attribute.
    for name in _VIEWS:
        if callable(view := getattr(kind, name, None)) and isinstance(shown := view(value), str) and shown:
            if name == "_repr_html_":
                shown = re.sub(r"\s+", " ", html.unescape(_TAG.sub(" ", shown))).strip()
            if shown:
                return shown
    if is_drawable(value) and (data := read_picture(value)) and (picture := describe_picture(data, LIMIT)):
        return f"{_name_type(value)}: {picture[0]}"
    return text or f"<{_name_type(value)} object, without a text form>"


def _name_textless(value: object, raised: Raised) -> str:
    return f"<{_name_type(value)} without a text form: {_name_fault(raised)}>"


def _name_fault(raised: Raised) -> str:
    return type(raised.error).__name__


def _name_type(value: object) -> str:
    kind = type(value)
    is_known = kind.__module__ in ("builtins", "__main__")
    return kind.__qualname__ if is_known else f"{kind.__module__}.{kind.__qualname__}"


def _count_items(value: object) -> str:
    """Return how many items a value has, in words, for the note in a shortened text; "" for a value without items."""
    if isinstance(value, Mapping):
        return f"an object with {len(value):,} entries; "
    if isinstance(value, FirstItems):
        return f"a list of {value.given:,} items; "
    return f"a list of {len(value):,} items; " if isinstance(value, (list, tuple, set, frozenset)) else ""


def cut(text: str, limit: int, what: str = "", full_length: int = 0) -> str:
    """Shorten a text to at most `limit` characters, and return it.

    The middle of the text is left out. A note in its place states the length of the text and the number of characters left
    out. If a line ends near a cut, the cut is made there. `what`: words about the value, for the beginning of the note.
    `full_length`: the length of the whole text, if `text` is only a part of it.
    """
    if len(text) <= limit:
        return text
    full_length = max(len(text), full_length)
    note = (
        f"\n[… {what}{full_length:,} characters, of which about {full_length - limit:,} are left out here; "
        "ask for a smaller part to see them …]\n"
    )
    room = limit - len(note)
    if room < limit // 2:  # the note would fill more than half of the text
        return text[: limit - 1] + "…"
    head, tail = text[: room * 2 // 3], text[len(text) - (room - room * 2 // 3) :]
    near = room // 20
    if (end := head.rfind("\n", len(head) - near)) > 0:
        head = head[:end]
    if (start := tail.find("\n", 0, near)) >= 0:
        tail = tail[start + 1 :]
    return f"{head}{note}{tail}"


# Tables and arrays of pandas, polars and NumPy. These packages are not imported here: the code that made the table or
# array has already imported them. The text of a table has its shape, its columns (with the type and the number of missing
# values), and its first rows as CSV.


def describe_table(value: Any) -> tuple[str, int] | None:
    """Return (the text, the length of the full text) for a table or an array; None for any other value."""
    pandas, polars, numpy = sys.modules.get("pandas"), sys.modules.get("polars"), sys.modules.get("numpy")
    kind = type(value).__name__
    if pandas is not None:
        if type(value).__module__ == "pandas.io.formats.style":
            value, kind = value.data, "DataFrame"  # a Styler: only its data is for the model
        if isinstance(value, pandas.Index):
            value = value.to_frame(index=False)
        elif isinstance(value, pandas.Series):
            value = value.to_frame()
        if isinstance(value, pandas.DataFrame):
            missing = value.iloc[:, :_COLUMNS].isna().sum()
            return _describe_columns(kind, value.iloc[:, :_COLUMNS], missing, value.shape)
    if polars is not None and hasattr(polars, "DataFrame"):
        if isinstance(value, polars.Series):
            value = value.to_frame()
        if isinstance(value, polars.DataFrame):
            part = value[:, :_COLUMNS]
            return _describe_columns(kind, part, part.null_count().row(0), value.shape)
    return _describe_array(value) if numpy is not None and isinstance(value, numpy.ndarray) else None


def _describe_columns(
    kind: str, part: Any, missing: Iterable[int], shape: tuple[int, int]
) -> tuple[str, int]:
    """Return (the text, the length of the full text) for a table.

    `part`: the first columns of the table. The text shows these columns and the first rows, and says how many rows and
    columns the table has.
    """
    (rows, width), shown = shape, part.shape[1]
    columns = [
        f"{name} ({dtype}{f', {count:,} missing' if count else ''})"
        for name, dtype, count in zip(part.columns, part.dtypes, missing, strict=True)
    ]
    text = f"{kind}: {rows:,} rows × {width:,} columns\ncolumns: {', '.join(columns) or 'none'}"
    text += f" and {width - shown:,} more" if width > shown else ""
    count = rows if rows <= _ALL_ROWS else _ROWS
    first = part.head(count)
    body, form = attempt_call(first.to_csv if hasattr(first, "to_csv") else first.write_csv), "CSV"
    if isinstance(body, Raised):  # the table has values without a CSV form
        body, form = repr(first), "text"
    text += f"\n{'' if count == rows else f'first {count:,} of {rows:,} rows, '}as {form}:\n{body}".rstrip(
        "\n"
    )
    if count < rows or shown < width:
        text += "\nTo see other rows or columns, ask for them: by row numbers, column names, a filter or a summary."
    return text, len(text) + len(body) * (rows - count) // max(count, 1)


def _describe_array(array: Any) -> tuple[str, int] | None:
    numpy = sys.modules["numpy"]
    if array.ndim == 0:
        return None if array.dtype.hasobject else (str(array.item()), len(str(array.item())))
    unknown = array.size - int(numpy.isfinite(array).sum()) if array.dtype.kind in "fc" else 0
    text = f"array of shape {array.shape}, dtype {array.dtype}{f', {unknown:,} not finite' if unknown else ''}:\n"
    with numpy.printoptions(threshold=_SMALL_ARRAY, edgeitems=5, linewidth=120):
        text += numpy.array2string(array, separator=", ")
    if array.size <= _SMALL_ARRAY:
        return text, len(text)
    text += f"\nOf {array.size:,} values, only the corners are shown; to see others, ask for a smaller part of the array."
    return text, len(text) * max(2, array.size // _SMALL_ARRAY)
