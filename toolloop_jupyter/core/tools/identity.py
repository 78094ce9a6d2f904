"""What a function is at one moment: to tell later whether it is still what a person was shown and allowed; and its source.

A version has all that runs, and all that was filled in beforehand:

- the function and all that it wraps: partials, methods, decorators that keep `__wrapped__`, the class of a callable object;
- of each the code, the defaults, a partial's arguments and what its closure holds: functions as the function itself; plain
  values; lists, dicts and the like, dataclasses and pydantic's models to the bottom; of a class what it has beside methods;
- of the object whose method, or which itself, is called: which one it is, and the functions in its attributes.

A version is *fixed* when there is nothing else. A DataFrame or a connection in a closure, a default or a partial can change
unseen: of those it has which one it is, and an approval holds for one call. What a function looks up when it runs (globals,
modules, attributes of objects) is its own affair.
"""

from __future__ import annotations
import __future__

import ast
import dataclasses
import datetime as dt
import enum
import functools
import inspect
import linecache
import pathlib
import re
import textwrap
import types
import warnings
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from ..execution import Raised, attempt_call
from .signature import Function, list_layers

MOST = 1_000
"""Parts of a version that are looked at; one with more is not fixed."""
_UNSEEN = object()
"""Stands behind a part that can change without another part doing so."""
_BY_VALUE = frozenset({str, bytes, int, float, bool, complex, type(None), types.CodeType})
_UNCHANGING = _BY_VALUE | {object, types.ModuleType, type(...), range, re.Pattern, Decimal, FieldInfo}
_UNCHANGING |= {type(pathlib.Path()), dt.date, dt.datetime, dt.time, dt.timedelta}
_BUILTIN = (types.BuiltinFunctionType, types.WrapperDescriptorType, types.MethodDescriptorType)
_ROUTINES = (types.FunctionType, types.MethodType, *_BUILTIN, type(functools.lru_cache(len)))
_OF_THE_CLASS = (
    "_abc_impl",
    "_member_map_",
    "_value2member_map_",
    "_unhashable_values_",
    "_hashable_values_",
)
"""Attributes of classes that Python keeps itself."""
_CONTAINERS = (list, tuple, set, frozenset, bytearray, deque)


@dataclass(frozen=True)
class Version:
    """A function's parts, to be compared by identity, or by value where they are plain."""

    parts: tuple[object, ...]
    data: tuple[object, ...] = ()
    """What its closures hold beside functions. A counter, a log or a cache changes there with each call."""

    @classmethod
    def of(cls, function: Function) -> Version:
        """The version of now. Never raises: what cannot be looked at is the same as nothing else."""
        data = _Parts()
        parts = _Parts(data)
        if isinstance(attempt_call(parts.add_function, function), Raised):
            return cls((object(), _UNSEEN))
        return cls(tuple(parts.found[:MOST]), tuple(data.found[:MOST]))

    @property
    def fixed(self) -> bool:
        """Whether all of it is compared, so that an approval may hold for later calls."""
        return all(len(p) < MOST and not any(part is _UNSEEN for part in p) for p in (self.parts, self.data))

    def is_still(self, now: Version) -> bool:
        """Whether nothing of what runs was replaced since; the data of its closures may be other."""
        return _are_same(self.parts, now.parts)

    def covers(self, now: Version) -> bool:
        """Whether what was allowed for good when this was the version is allowed now: it is the same to the bottom."""
        return self.fixed and now.fixed and self.is_still(now) and _are_same(self.data, now.data)


def _are_same(before: tuple[object, ...], now: tuple[object, ...]) -> bool:
    return len(before) == len(now) and all(
        one is other or (type(one) is type(other) and type(one) in _BY_VALUE and one == other)
        for one, other in zip(before, now, strict=True)
    )


class _Parts:
    """The parts of a function, in the order in which they are found; its closures' data is put apart."""

    def __init__(self, data: _Parts | None = None) -> None:
        self.found: list[object] = []
        self._data = data or self
        self._seen: set[int] = set()

    def add_function(self, function: Function) -> None:
        for layer in list_layers(function):
            if inspect.ismethod(layer):  # another object at each look
                self._add_object(layer.__self__)
            elif not self._add_new(layer):
                return
            elif isinstance(layer, functools.partial):
                self.add((layer.args, layer.keywords))
            elif inspect.isfunction(layer):
                self.add((layer.__code__, layer.__defaults__, layer.__kwdefaults__))
                for cell in layer.__closure__ or ():
                    held = attempt_call(getattr, cell, "cell_contents")  # may be empty yet
                    (self if callable(held) else self._data).add(
                        _UNSEEN if isinstance(held, Raised) else held
                    )
            elif isinstance(layer, types.BuiltinFunctionType):
                self._data.add(layer.__self__)
            elif not isinstance(layer, _ROUTINES):
                self._add_object(layer)

    def add(self, value: object) -> None:
        """Add what a closure, a default or a partial holds."""
        kind = type(value)
        if kind in _UNCHANGING or len(self.found) > MOST:
            self.found.append(value)
        elif isinstance(value, (type, enum.Enum)):
            if self._add_new(value):
                for item in _list_attributes(value):
                    self._data.add(item)
        elif isinstance(value, (*_ROUTINES, functools.partial)):
            self.add_function(value)
            if inspect.ismethod(value):
                self._data.add(value.__self__)
        elif (content := _list_content(value)) is not None:
            self.found += (kind, len(content))
            if kind in (tuple, frozenset) or self._add_new(value):
                for item in islice(content, MOST + 1):
                    self.add(item)
        else:
            self.found += (value, _UNSEEN)
            if callable(value):
                self.add_function(value)

    def _add_new(self, part: object) -> bool:
        """Add which object it is; False for one whose content is known already."""
        self.found.append(part)
        known = id(part) in self._seen
        self._seen.add(id(part))
        return not known

    def _add_object(self, owner: object) -> None:
        self.found.append(owner)
        for name, value in list(getattr(owner, "__dict__", {}).items()):
            if isinstance(value, (*_ROUTINES, functools.partial)):
                self.found.append(name)
                self.add_function(value)


def _list_attributes(value: type | enum.Enum) -> Iterator[object]:
    """What a class, or a member of an Enum, has beside its methods: it can be replaced, and changed, in place."""
    owners = value.__mro__ if isinstance(value, type) else (value,)
    for owner in owners:
        for name, item in list(vars(owner).items()):
            if not (name in _OF_THE_CLASS or name.startswith("__") or hasattr(type(item), "__get__")):
                yield from (name, item)


def _list_content(value: object) -> Collection[object] | None:
    """All that makes a value what it is, or None where that cannot be told."""
    if type(value) is dict:
        return value.items()
    if type(value) in _CONTAINERS:
        return value  # type: ignore[return-value]
    if isinstance(value, BaseModel):
        return (*vars(value).items(), value.__pydantic_extra__, value.__pydantic_private__)
    bases = type(value).__mro__[:-1]
    is_data = all(dataclasses.is_dataclass(base) and "__slots__" not in vars(base) for base in bases)
    return tuple(vars(value).items()) if is_data else None


def read_source(function: Function) -> str:
    """The source of a function and of what it wraps, in the order in which they run; "" where there is none.

    Where the text that Python finds is not the code that runs (a module's file that was edited after the import), a
    comment says so in its place.
    """
    # A partial, a method and a callable object only lead to what does something.
    layers = [
        layer
        for layer in list_layers(function)
        if (inspect.isroutine(layer) and not inspect.ismethod(layer)) or hasattr(layer, "__wrapped__")
    ]
    texts = [_read_layer(getattr(layer, "__code__", None)) for layer in layers]
    if len(texts) < 2 or not any(texts):
        return "".join(texts)
    parts = []
    for number, (layer, text) in enumerate(zip(layers, texts, strict=True), 1):
        role = "which runs" if number == 1 else "which it says it wraps"
        name = _get_code_name(getattr(layer, "__code__", None)) or type(layer).__qualname__
        parts.append(f"# {number} of {len(texts)}, {role}: {name}\n{text or _NO_SOURCE}")
    return "\n".join(parts)


def _get_code_name(code: object) -> str:
    return str(getattr(code, "co_qualname", getattr(code, "co_name", "")))  # Python 3.10 has only the latter


def _read_layer(code: object) -> str:
    """The source of a layer's code; "" where there is none."""
    if not isinstance(code, types.CodeType):
        return ""
    # Of the code: of a function, `inspect` gives the source of what it wraps. It may raise anything on a changed file.
    text = attempt_call(inspect.getsource, code)
    written = "".join(linecache.getlines(code.co_filename))  # as `inspect` has just read it
    compiled = attempt_call(_compile_all, written, code.co_filename, code.co_flags & _FUTURES)
    if isinstance(text, str) and not isinstance(compiled, Raised) and code in compiled:
        return textwrap.dedent(text)
    return _STALE.format(name=_get_code_name(code)) if written else ""


_NO_SOURCE = "# There is no Python source of it.\n"
_STALE = (
    "# The source of {name} is not shown: what runs is not what is written there now "
    "(changed since it was loaded, or changed while it was).\n"
)
_FUTURES = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)


@functools.lru_cache(maxsize=8)
def _compile_all(text: str, filename: str, futures: int) -> frozenset[types.CodeType]:
    """All code of a file, or of a notebook's cell."""
    flags = futures | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they were said when the code was compiled to be run
        codes = [compile(text, filename, "exec", flags, dont_inherit=True)]
    for code in codes:  # grows
        codes += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return frozenset(codes)
