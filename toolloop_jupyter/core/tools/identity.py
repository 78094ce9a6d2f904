"""What a function is at one moment: to tell later whether it is still what a person was shown and allowed; and its source.

A version has all that runs, and all that was filled in beforehand:

- the function and all that it wraps: partials, methods, decorators that keep `__wrapped__`, the class of a callable object;
- of each the code, the defaults, a partial's arguments and what its closure holds: functions as the function itself; plain
  values; lists, dicts and the like, dataclasses and pydantic's models to the bottom;
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
from collections.abc import Collection
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from typing import Any

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
_CONTAINERS = (list, tuple, set, frozenset, dict, bytearray, deque)
_STALE = (
    "# The source of {name} is not shown: what runs is not what is written there now "
    "(changed since it was loaded, or changed while it was).\n"
)
_FUTURES = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)


@dataclass(frozen=True)
class Version:
    """A function's parts, to be compared by identity, or by value where they are plain."""

    parts: tuple[object, ...]
    data: tuple[object, ...] = ()
    """What its closures hold beside functions. A counter, a log or a cache changes there with each call."""

    @classmethod
    def of(cls, function: Function) -> Version:
        """The version of now. Never raises: what cannot be looked at is the same as nothing else."""
        look = _Look(_Look())
        if isinstance(attempt_call(look.at_function, function), Raised):
            return cls((object(), _UNSEEN))
        return cls(tuple(look.parts[:MOST]), tuple(look.data.parts[:MOST]))

    @property
    def fixed(self) -> bool:
        """Whether all of it is compared, so that an approval may hold for later calls."""
        return all(len(p) < MOST and all(part is not _UNSEEN for part in p) for p in (self.parts, self.data))

    def is_still(self, now: Version) -> bool:
        """Whether nothing of what runs was replaced since; the data of its closures may be other."""
        return _are_same(self.parts, now.parts)

    def covers(self, now: Version) -> bool:
        """Whether what was allowed for good when this was the version is allowed now: it is the same to the bottom."""
        return self.fixed and now.fixed and _are_same(self.parts + self.data, now.parts + now.data)


def _are_same(before: tuple[object, ...], now: tuple[object, ...]) -> bool:
    return len(before) == len(now) and all(
        one is other or (type(one) is type(other) and type(one) in _BY_VALUE and one == other)
        for one, other in zip(before, now, strict=True)
    )


class _Look:
    """One look at a function; its closures' data is put apart."""

    def __init__(self, data: _Look | None = None) -> None:
        self.parts: list[object] = []
        self.data = data or self
        self._seen: set[int] = set()

    def _is_new(self, part: object) -> bool:
        """Note which object it is; False for one whose content is known already."""
        self.parts.append(part)
        known = len(self._seen)
        self._seen.add(id(part))
        return len(self._seen) > known

    def at_function(self, function: Function) -> None:
        for layer in list_layers(function):
            if inspect.ismethod(layer):  # another object at each look
                self._at_object(layer.__self__)
            elif not self._is_new(layer):
                return
            elif isinstance(layer, functools.partial):
                self.at_value((layer.args, layer.keywords))
            elif inspect.isfunction(layer):
                self.at_value((layer.__code__, layer.__defaults__, layer.__kwdefaults__))
                for cell in layer.__closure__ or ():
                    held = attempt_call(getattr, cell, "cell_contents")  # may be empty yet
                    look = self if callable(held) else self.data
                    look.at_value(_UNSEEN if isinstance(held, Raised) else held)
            elif type(layer) is types.BuiltinFunctionType:
                self.parts.append(layer.__self__)
            elif type(layer) not in _ROUTINES:
                self._at_object(layer)

    def _at_object(self, owner: object) -> None:
        self.parts.append(owner)
        for name, value in list(getattr(owner, "__dict__", {}).items()):
            if isinstance(value, (*_ROUTINES, functools.partial)):
                self.parts.append(name)
                self.at_function(value)

    def at_value(self, value: Any) -> None:
        """Look at what a closure, a default or a partial holds."""
        kind = type(value)
        if kind in _UNCHANGING or isinstance(value, type | enum.Enum) or len(self.parts) > MOST:
            self.parts.append(value)
        elif kind in _ROUTINES or kind is functools.partial:
            self.at_function(value)
        elif (content := _list_content(value)) is None:
            self.parts += (value, _UNSEEN)
            if callable(value):
                self.at_function(value)
        else:
            self.parts += (kind, len(content))
            if kind in (tuple, frozenset) or self._is_new(value):
                for item in islice(content, MOST + 1):
                    self.at_value(item)


def _list_content(value: Any) -> Collection[Any] | None:
    """All that makes a value what it is, or None where that cannot be told."""
    if type(value) in _CONTAINERS:
        return value.items() if isinstance(value, dict) else value
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
    layered = [layer for layer in list_layers(function) if _does_something(layer)]
    texts = [_read_source(layer) for layer in layered]
    if len(texts) < 2 or not any(texts):
        return "".join(texts)
    return "\n".join(
        f"# {number} of {len(texts)}, {'which runs' if number == 1 else 'which it says it wraps'}: {_get_code_name(layer)}\n"
        + (text or "# There is no Python source of it.\n")
        for number, (layer, text) in enumerate(zip(layered, texts, strict=True), 1)
    )


def _does_something(layer: object) -> bool:
    """Whether a layer does something by itself. A partial, a method and a callable object only lead to what does."""
    return (inspect.isroutine(layer) and not inspect.ismethod(layer)) or hasattr(layer, "__wrapped__")


def _get_code_name(layer: object) -> str:
    code = getattr(layer, "__code__", None)
    return str(getattr(code, "co_qualname", getattr(code, "co_name", type(layer).__qualname__)))


def _read_source(layer: object) -> str:
    code = getattr(layer, "__code__", None)
    if not isinstance(code, types.CodeType):
        return ""
    # Of the code: of a function, `inspect` gives the source of what it wraps. It may raise anything on a changed file.
    text = attempt_call(inspect.getsource, code)
    written = "".join(linecache.getlines(code.co_filename))  # as `inspect` has just read it
    flags = code.co_flags & _FUTURES | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    compiled = attempt_call(_compile_all, written, code.co_filename, flags)
    if isinstance(text, str) and not isinstance(compiled, Raised) and code in compiled:
        return textwrap.dedent(text)
    return _STALE.format(name=_get_code_name(layer)) if written else ""


@functools.lru_cache(maxsize=8)
def _compile_all(text: str, filename: str, flags: int) -> frozenset[types.CodeType]:
    """All code of a file, or of a notebook's cell."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they were said when the code was compiled to be run
        codes = [compile(text, filename, "exec", flags, dont_inherit=True)]
    for code in codes:  # grows
        codes += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return frozenset(codes)
