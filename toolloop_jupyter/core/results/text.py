"""Convert the result of a tool, or a value in a prompt, to a text for the model. The length of the text is limited.

A text is not changed. A value with a JSON form becomes strict JSON. An exception that was raised becomes its traceback. Any other
value is described in words: a table by its shape, its columns and its first rows; a figure by the things that are drawn in it.
The same value gives the same text in every run: sets are sorted, and memory addresses are left out. The text is never empty. The
public functions of this module never raise.
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
import sysconfig
import traceback
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping, ValuesView
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from ..execution import (
    MISSING,
    FirstItems,
    Raised,
    attempt_call,
    describe_error,
    explain_error,
    get_message,
    list_inner,
)
from ..text import join_surrogates, shorten
from .images import describe_picture, is_drawable, read_picture

LIMIT = 20_000
"""The largest number of characters of a result that the model gets, unless the tool or the run sets another limit."""

_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
_NESTED_LIMIT = 2_000  # the most characters for a table or a picture inside a list or an object
_MAX_ITEMS = 20_000  # at most this many values are read; far fewer already fill a text to its limit
_MAX_DEPTH = 50
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]{4,}")
_VIEWS = ("_repr_markdown_", "_repr_latex_", "_repr_html_", "_repr_svg_")
_TAG = re.compile(r"<(script|style)\b.*?</\1\s*>|<[^>]*>", re.DOTALL | re.IGNORECASE)

_ROWS = 10  # of a long table, this many rows are shown, from the first row on
_ALL_ROWS = 50  # a table of up to this number of rows is shown completely
_COLUMNS = 40
_SMALL_ARRAY = 1_000  # an array of up to this number of values is shown completely


class Described(NamedTuple):
    """A result as text for the model."""

    text: str
    full_length: int
    """The number of characters before the text was shortened. For large tables and structures, it is an estimate."""
    fault: str = ""
    """If the value's own code raised an error: the name of the error. `text` then says that the value has no text. Else ""."""


def describe(
    value: Any, limit: int | None = None, name_code: Callable[[str], str] | None = None
) -> Described:
    """Return the text of a value for the model, in at most `limit` characters (LIMIT if `limit` is None). Never raises.

    For an exception that was raised, the text is its message; if `name_code` is given, it is the traceback. `name_code` takes the
    traceback, and replaces the file names of cells by names that a person knows.
    """
    limit = LIMIT if limit is None else max(limit, 1)
    reader = _Reader(limit)
    plain: object
    # `isinstance` would read the attribute `__class__` of the value, and this may raise.
    is_error = name_code is not None and issubclass(type(value), BaseException)
    if name_code and is_error and attempt_call(getattr, value, "__traceback__") is not None:
        plain = name_code(cut_traceback(value)).rstrip()
    elif (plain := attempt_call(_read_scalar, value)) is MISSING:
        plain = reader.read(value)
    if isinstance(plain, Raised):
        reader.fault = type(plain.error).__name__
        plain = _name_textless(value, plain)
    text = plain if isinstance(plain, str) else _JSON.encode(plain)
    # This length is an estimate: each value that was not read counts with the average length of the read values.
    length = reader.full_length or int(len(text) * (1 + reader.left_out / max(reader.seen, 1)))
    if type(value) is FirstItems:
        kept = f"the first {len(value):,}" if value else "none"
        more = f"\n… the generator gave {value.given:,} items; {kept} are kept"
        text, length = text + more, length + len(more)
    text = f"(only whitespace: {text[:40]!r})" if text.isspace() else text or "(no output)"
    if not text.isascii():  # file names may contain lone surrogates; a request cannot contain them
        text = text.encode("utf-8", "backslashreplace").decode()
    length = max(length, len(text))
    text = cut(text, limit, reader.size, length) if len(text) > limit else text
    return Described(text, length, reader.fault)


@dataclasses.dataclass
class _Reader:
    """Converts a value to plain JSON data. A part without a JSON form becomes a text. Reads at most _MAX_ITEMS values."""

    limit: int
    size: str = ""
    """The number of items of the outermost value, in words, for the note in a shortened text."""
    full_length: int = 0
    """If the outermost value is a table or a picture, the length of its full text; else 0."""
    fault: str = ""
    """The name of the exception that reading the outermost value raised; else "". A part that raises is replaced by a note."""
    seen: int = 0
    left_out: int = 0
    _inside: set[int] = dataclasses.field(default_factory=set)

    def read(self, value: object, depth: int = 0) -> object:
        self.seen += 1
        if (scalar := _read_scalar(value)) is not MISSING:
            return scalar
        if id(value) in self._inside:
            return f"<the same {_name_type(value)} again>"
        if depth > _MAX_DEPTH:
            return f"<{_name_type(value)}, nested deeper>"
        self._inside.add(id(value))
        made = attempt_call(self._read_compound, value, depth)
        self._inside.discard(id(value))
        if not isinstance(made, Raised):
            return made
        self.fault = "" if depth else type(made.error).__name__
        return _name_textless(value, made)

    def _read_compound(self, value: Any, depth: int) -> object:
        if described := describe_table(value) or describe_picture(
            value, _NESTED_LIMIT if depth else self.limit
        ):
            self.full_length = self.full_length if depth else described[1]
            return cut(described[0], _NESTED_LIMIT) if depth else described[0]
        # Instances of proxies seem to have every attribute.
        own_text = getattr(type(value), "_repr_model_", None)
        if callable(own_text) and isinstance(text := own_text(value), str):
            return text
        if isinstance(value, BaseModel):
            dumped = attempt_call(lambda: value.model_dump(mode="json", by_alias=True, warnings="none"))
            if not isinstance(dumped, Raised):
                return self.read(dumped, depth)
            fields = type(value).model_fields.items()
            value = {name: getattr(value, name, None) for name, field in fields if field.repr}
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = {
                one.name: getattr(value, one.name, None) for one in dataclasses.fields(value) if one.repr
            }
        elif isinstance(value, tuple) and hasattr(value, "_fields"):
            value = dict(zip(value._fields, value, strict=False))
        if isinstance(value, (Mapping, AbstractSet, list, tuple, deque, ValuesView)):
            count = value.given if type(value) is FirstItems else len(value)
            kind = "an object with {:,} entries; " if isinstance(value, Mapping) else "a list of {:,} items; "
            self.size = self.size if depth else kind.format(count)
            return self._read_items(value, depth + 1)
        return _describe_object(value)

    def _read_items(self, values: Any, depth: int) -> object:
        """Read a mapping, a set or a sequence. If items are left out, a note in the JSON says how many."""
        room = max(_MAX_ITEMS - self.seen, 6)
        missing = max(len(values) - room, 0)
        self.left_out += missing
        first = itertools.islice(values, room)
        if isinstance(values, Mapping):
            entries = {self._name(key): self.read(values[key], depth) for key in first}
            return {**entries, "…": f"… {missing:,} more entries left out …"} if missing else entries
        if isinstance(values, AbstractSet):
            items = [self.read(item, depth) for item in first]
            return sorted(items, key=lambda item: (type(item).__name__, json.dumps(item)))
        if not missing:
            return [self.read(item, depth) for item in first]
        values = values if isinstance(values, (list, tuple)) else list(values)
        end = room // 3
        note = f"… {missing:,} more items left out …"
        head = [self.read(item, depth) for item in itertools.islice(values, room - end)]
        return [*head, note, *(self.read(item, depth) for item in values[len(values) - end :])]

    def _name(self, key: object) -> str:
        plain = self.read(key, _MAX_DEPTH - 1)
        return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _read_scalar(value: object) -> object:
    """Return a value as a JSON scalar; MISSING if it has no such form. The value may be one of NumPy or pandas."""
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
    return (
        str(value) if isinstance(value, (pathlib.PurePath, uuid.UUID, decimal.Decimal, complex)) else MISSING
    )


def _describe_object(value: object) -> str:
    """Return the first of these that is not empty: `str` or `repr`, the form for notebooks, the picture in words, the type."""
    if isinstance(value, BaseException):
        return explain_error(value)
    kind = type(value)
    if hasattr(kind, "__next__"):
        return f"<{_name_type(value)}, an iterator whose items were not read>"
    has_own_text = any("__str__" in vars(base) or "__repr__" in vars(base) for base in kind.__mro__[:-1])
    text = _ADDRESS.sub("", str(value)) if has_own_text else ""
    if text and not text.startswith("<"):
        return text
    # Methods are looked up on the type, because instances of proxies and mocks seem to have every attribute.
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
    return f"<{_name_type(value)} without a text form: {type(raised.error).__name__}>"


def _name_type(value: object) -> str:
    kind = type(value)
    is_known = kind.__module__ in ("builtins", "__main__")
    return kind.__qualname__ if is_known else f"{kind.__module__}.{kind.__qualname__}"


def cut(text: str, limit: int, what: str = "", full_length: int = 0) -> str:
    """Return the text without its middle, in at most `limit` characters. A note in the middle says how much is left out.

    If a line ends near a cut, the cut is made there. `what`: words about the value, for the beginning of the note.
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
        return shorten(text, limit)
    head, tail = text[: room * 2 // 3], text[len(text) - (room - room * 2 // 3) :]
    near = room // 20
    if (end := head.rfind("\n", len(head) - near)) > 0:
        head = head[:end]
    if (start := tail.find("\n", 0, near)) >= 0:
        tail = tail[start + 1 :]
    return f"{head}{note}{tail}"


# --- tables and arrays ----------------------------------------------------------------------------------------

# pandas, polars and NumPy are not imported here: the code that made the table or array has already imported them.


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
    if numpy is None or not isinstance(value, numpy.ndarray) or (value.ndim == 0 and value.dtype.hasobject):
        return None
    if value.ndim == 0:
        return str(value.item()), 0
    unknown = value.size - int(numpy.isfinite(value).sum()) if value.dtype.kind in "fc" else 0
    text = f"array of shape {value.shape}, dtype {value.dtype}{f', {unknown:,} not finite' if unknown else ''}:\n"
    with numpy.printoptions(threshold=_SMALL_ARRAY, edgeitems=5, linewidth=120):
        text += numpy.array2string(value, separator=", ")
    if value.size <= _SMALL_ARRAY:
        return text, len(text)
    text += f"\nOf {value.size:,} values, only the corners are shown; to see others, ask for a smaller part of the array."
    return text, len(text) * max(2, value.size // _SMALL_ARRAY)


def _describe_columns(
    kind: str, part: Any, missing: Iterable[int], shape: tuple[int, int]
) -> tuple[str, int]:
    """Describe a table by its shape, the columns in `part` (the first columns of the table), and its first rows."""
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


# --- tracebacks -----------------------------------------------------------------------------------------------

_LIBRARIES = tuple(
    {
        sysconfig.get_path(name).replace("\\", "/").rstrip("/") + "/"
        for name in ("stdlib", "platstdlib", "purelib", "platlib")
    }
)
_PACKAGES = ("/site-packages/", "/dist-packages/")
_MOST_FOREIGN = 3  # if no frame is in the person's own code, at most this many frames are kept
_MOST_TRACEBACK = 100_000  # at most this many characters of a traceback are kept
_MOST_ERRORS = (
    200  # with more errors in groups and chains of causes, only the outermost error gets a traceback
)


def cut_traceback(error: BaseException) -> str:
    """Return the traceback of an error and its causes, without the frames of this package and of libraries. Never raises.

    If all frames are in a library, the last frames stay. If code of the error raises, the traceback is one line.
    """
    made = attempt_call(_write_traceback, error)
    return join_surrogates(f"{describe_error(error)}\n" if isinstance(made, Raised) else made)


def _write_traceback(error: BaseException) -> str:
    errors, seen = [error], {id(error)}
    for one in errors:  # the loop appends to `errors`
        links = (one.__cause__, one.__context__)
        new = {id(link): link for link in links if link is not None and id(link) not in seen}
        seen.update(new)
        errors += [*list_inner(one), *new.values()]
        # `traceback` would read all of these errors. If several groups contain an error, it would read the error several times.
        if len(errors) > _MOST_ERRORS:
            text = f"{get_message(error, 10_000)} (with more than {_MOST_ERRORS} other errors)"
            alone: BaseException = type(type(error).__name__, (Exception,), {"__module__": "builtins"})(text)
            error = alone.with_traceback(error.__traceback__)
            break
    whole = traceback.TracebackException.from_exception(error)
    parts: list[Any] = [whole]
    for part in parts:  # the loop appends to `parts`
        frames = [one for one in part.stack if "/toolloop_jupyter/" not in one.filename.replace("\\", "/")]
        own_frames = [one for one in frames if not _is_of_library(one.filename)]
        shown = own_frames or [_shorten(one) for one in frames[-_MOST_FOREIGN:]]
        part.stack = traceback.StackSummary.from_list(shown)
        groups = getattr(part, "exceptions", None) or ()  # from Python 3.11 on
        parts += filter(None, (part.__cause__, part.__context__, *groups))
    return cut("".join(whole.format()), _MOST_TRACEBACK)


def _is_of_library(filename: str) -> bool:
    name = filename.replace("\\", "/")
    if name.startswith("<") and not name.startswith(("<ipython-input", "<stdin", "<string")):
        return True  # such as <frozen importlib._bootstrap> or <__array_function__ internals>
    return name.startswith(_LIBRARIES) or any(folder in name for folder in _PACKAGES)


def _shorten(frame: traceback.FrameSummary) -> traceback.FrameSummary:
    """Return the frame with a short file name, without the folders of this machine."""
    name = frame.filename.replace("\\", "/")
    folder = next((one for one in (*_LIBRARIES, *_PACKAGES) if one in name), "/")
    return traceback.FrameSummary(name.rpartition(folder)[2], frame.lineno, frame.name, line=frame.line)
