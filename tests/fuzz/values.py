"""Odd values and errors of foreign code. Each has a name, so that an input stays plain JSON data."""

from __future__ import annotations

import array
import asyncio
import collections
import dataclasses
import datetime as dt
import decimal
import enum
import io
import math
import pathlib
import types
import uuid
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, model_serializer


class Fails(Exception):
    """Raised by the code of an odd value."""


def _fail(*_: Any, **__: Any) -> Any:
    raise Fails("odd")


class NoText:
    __str__ = __repr__ = _fail


class OddText:
    def __repr__(self) -> Any:
        return 5


class OddClass:
    __class__ = property(_fail)  # type: ignore[assignment]


class OddAttributes:
    __getattr__ = __getattribute__ = _fail


class OddMapping(Mapping):  # type: ignore[type-arg]
    def __init__(self, length: Any = 2) -> None:
        self._length = length

    __getitem__ = _fail

    def __iter__(self) -> Any:
        return iter(("a", "b"))

    def __len__(self) -> Any:
        return self._length


class OddList(list):  # type: ignore[type-arg]
    __iter__ = __len__ = __getitem__ = _fail


class OddStr(str):
    __str__ = __len__ = __getitem__ = __add__ = encode = isascii = strip = _fail
    __hash__ = str.__hash__
    __slots__ = ()


class OddInt(int):
    __int__ = __repr__ = __str__ = bit_length = _fail


class OddFloat(float):
    __float__ = __repr__ = __str__ = _fail


class OddBool:
    __bool__ = __eq__ = _fail
    __hash__ = None  # type: ignore[assignment]


class OddIterator:
    def __iter__(self) -> Any:
        return self

    __next__ = _fail


class OddAwaitable:
    __await__ = _fail


class OddView:
    _repr_html_ = _repr_markdown_ = _repr_png_ = _repr_mimebundle_ = _fail


class OddPicture:
    def _repr_png_(self) -> Any:
        return b"\x89PNG\r\n\x1a\n" + b"no picture"


class EmptyPicture:
    def _repr_png_(self) -> Any:
        return None


class Everything:
    """An object that has every attribute, as a mock has."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self


class Color(enum.Enum):
    RED = "red"
    ODD = NoText()


class Model(BaseModel):
    n: int = 1

    @model_serializer
    def serialise(self) -> Any:
        raise Fails("odd")


@dataclasses.dataclass
class Data:
    n: Any = dataclasses.field(default_factory=NoText)


class Slots:
    __slots__ = ("a",)


def _deep(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


def _inside_itself(kind: Callable[[], Any]) -> Any:
    made = kind()
    if isinstance(made, dict):
        made["again"] = made
    else:
        made.append(made)
    return made


def _numpy(make: Callable[[Any], Any]) -> Callable[[], Any]:
    def made() -> Any:
        import numpy as np

        return make(np)

    return made


def _pandas(make: Callable[[Any], Any]) -> Callable[[], Any]:
    def made() -> Any:
        import pandas as pd

        return make(pd)

    return made


VALUES: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "nan": lambda: math.nan,
    "infinity": lambda: -math.inf,
    "huge int": lambda: 10**5000,
    "long text": lambda: "x" * 30_000,
    "half a pair": lambda: "a\ud83d",
    "control": lambda: "\x1b[31mred\x00\x08\r\n\u202e",
    "bytes": lambda: b"\xff\x00",
    "bytearray": lambda: bytearray(b"ab"),
    "memoryview": lambda: memoryview(b"ab"),
    "png": lambda: b"\x89PNG\r\n\x1a\n\x00",
    "array": lambda: array.array("d", [1.0]),
    "set": lambda: {1, "a", (2,)},
    "odd keys": lambda: {1: 2, None: 3, (1, 2): 4, "\ud83d": 5},
    "keys that are one": lambda: {1: "a", "1": "b"},
    "no text": NoText,
    "odd text": OddText,
    "odd class": OddClass,
    "odd attributes": OddAttributes,
    "odd mapping": OddMapping,
    "mapping of odd length": lambda: OddMapping(10**9),
    "mapping of no length": lambda: OddMapping("two"),
    "odd list": lambda: OddList([1]),
    "odd str": lambda: OddStr("text"),
    "odd int": lambda: OddInt(3),
    "odd float": lambda: OddFloat(3.5),
    "odd bool": OddBool,
    "odd iterator": OddIterator,
    "odd view": OddView,
    "odd picture": OddPicture,
    "empty picture": EmptyPicture,
    "everything": Everything,
    "enum": lambda: Color.RED,
    "odd enum": lambda: Color.ODD,
    "model": Model,
    "dataclass": Data,
    "slots": Slots,
    "type": lambda: Data,
    "function": lambda: _fail,
    "module": lambda: types.ModuleType("m"),
    "deep": lambda: _deep(3_000),
    "list in itself": lambda: _inside_itself(list),
    "dict in itself": lambda: _inside_itself(dict),
    "many": lambda: list(range(50_000)),
    "range": lambda: range(10**9),
    "generator": lambda: (n for n in range(3)),
    "deque": lambda: collections.deque([1]),
    "counter": lambda: collections.Counter("ab"),
    "named": lambda: collections.namedtuple("Named", "a b")(1, NoText()),  # noqa: PYI024
    "date": lambda: dt.datetime(2020, 1, 1, tzinfo=dt.timezone.utc),
    "span": lambda: dt.timedelta.max,
    "decimal": lambda: decimal.Decimal("NaN"),
    "uuid": lambda: uuid.UUID(int=1),
    "path": lambda: pathlib.PurePosixPath("/a\udcff"),
    "file": io.StringIO,
    "proxy": lambda: weakref.proxy(Data),
    "gone": lambda: weakref.proxy(NoText()),
    "error": lambda: ValueError("a value"),
    "odd error": lambda: ERRORS["no text"](),
    "numpy": _numpy(lambda np: np.arange(3)),
    "numpy objects": _numpy(lambda np: np.array([NoText(), None], dtype=object)),
    "numpy scalar": _numpy(lambda np: np.float32("nan")),
    "numpy empty": _numpy(lambda np: np.zeros((0, 3))),
    "numpy text": _numpy(lambda np: np.array(["\ud83d"])),
    "numpy record": _numpy(lambda np: np.zeros(2, dtype=[("a", "i4"), ("b", "U3")])),
    "numpy date": _numpy(lambda np: np.array(["NaT"], dtype="datetime64[ns]")),
    "pandas": _pandas(lambda pd: pd.DataFrame({"a": [1, None], "b": ["x", "\ud83d"]})),
    "pandas empty": _pandas(lambda pd: pd.DataFrame()),
    "pandas odd": _pandas(lambda pd: pd.DataFrame({"a": [NoText()], 5: [1]})),
    "pandas twice": _pandas(lambda pd: pd.DataFrame([[1, 2]], columns=["a", "a"])),
    "pandas levels": _pandas(lambda pd: pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("a", "b")]))),
    "pandas NA": _pandas(lambda pd: pd.NA),
    "series": _pandas(lambda pd: pd.Series([1, NoText()], name=("a", 1))),
}
"""Name -> a function that makes the value."""


class NoTextError(Exception):
    __str__ = __repr__ = _fail


class OddArgs(Exception):
    args = property(_fail)  # type: ignore[assignment]


class OddNotes(Exception):
    __notes__ = ("a", 5, NoText())


class OddCause(Exception):
    __cause__ = property(_fail)  # type: ignore[assignment]
    __context__ = property(_fail)  # type: ignore[assignment]


class OddTraceback(Exception):
    __traceback__ = property(_fail)  # type: ignore[assignment]


class Base(BaseException):
    pass


class Silent(BaseException):
    def __bool__(self) -> bool:
        raise Fails


def _chained() -> BaseException:
    first, second = ValueError("one"), KeyError("two")
    first.__cause__, second.__cause__ = second, first
    return first


def _deep_chain() -> BaseException:
    error: BaseException = ValueError("0")
    for number in range(2_000):
        outer = ValueError(str(number))
        outer.__cause__ = error
        error = outer
    return error


def _group(*errors: BaseException) -> BaseException:
    kind = getattr(__builtins__, "BaseExceptionGroup", None) or __import__("builtins").__dict__.get(
        "BaseExceptionGroup"
    )
    return kind("several", list(errors)) if kind is not None else ValueError("several")


ERRORS: dict[str, Callable[[], BaseException]] = {
    "ValueError": lambda: ValueError("a value"),
    "KeyError": lambda: KeyError("key"),
    "empty": lambda: Exception(""),
    "no text": NoTextError,
    "half a pair": lambda: ValueError("a\ud83d"),
    "control": lambda: ValueError("\x1b]0;t\x07\u202e\x00"),
    "long": lambda: ValueError("x" * 30_000),
    "odd args": lambda: OddArgs("x"),
    "odd notes": OddNotes,
    "odd cause": OddCause,
    "odd traceback": OddTraceback,
    "circle": _chained,
    "deep chain": _deep_chain,
    "group": lambda: _group(ValueError("a"), _group(KeyError("b"), NoTextError())),
    "group with an interrupt": lambda: _group(KeyboardInterrupt()),
    "StopIteration": lambda: StopIteration(5),
    "StopAsyncIteration": lambda: StopAsyncIteration(5),
    "GeneratorExit": GeneratorExit,
    "SystemExit": lambda: SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt,
    "CancelledError": asyncio.CancelledError,
    "TimeoutError": asyncio.TimeoutError,
    "RecursionError": lambda: RecursionError("deep"),
    "MemoryError": MemoryError,
    "UnicodeDecodeError": lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "odd"),
    "BaseException": lambda: Base("base"),
    "silent": Silent,
    "SyntaxError": lambda: SyntaxError("bad", ("f", 1, 1, "x", 1, 5)),
    "odd SyntaxError": lambda: SyntaxError(5, (None, "a", -1, NoText())),
    "OSError": lambda: OSError(2, "gone", "/a\udcff"),
    "ImportError": lambda: ModuleNotFoundError("no", name=5),  # type: ignore[arg-type]
    "NameError": lambda: NameError("x", name="x"),
}
"""Name -> a function that makes the error."""


def make_value(given: Any) -> Any:
    """Make the value that an input describes: {"odd": name}, {"list": […]}, {"tuple": […]}, {"dict": {…}}, {"json": …}."""
    ((kind, inner),) = given.items()
    if kind == "odd":
        return VALUES[inner]()
    if kind in ("list", "tuple"):
        items = [make_value(item) for item in inner]
        return tuple(items) if kind == "tuple" else items
    if kind == "dict":
        return {key: make_value(item) for key, item in inner.items()}
    return inner
