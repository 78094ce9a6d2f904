"""The version of a function (the parts that it has at one moment), and its source code.

Is a function still the one that a person saw and allowed? To find out, its version at that time is compared with its version
now. The parts of a version are:

- the function and all its layers: partials, methods, decorators that keep `__wrapped__`, the class of a callable object;
- for each layer: its code, its defaults, a partial's arguments and the values in its closure. If such a value is a function,
  list, dict, set or tuple, its parts are included, too;
- for an object that is called, or whose method is called: its identity, and the functions in its attributes.

A version is *fixed* if no part can change unnoticed. A DataFrame, a model or a connection can change unnoticed, because only its
identity is listed. If a version has such a part, it is not fixed, and an approval holds only for one call. What a function looks
up while it runs, such as a global, is not part of its version.
"""

from __future__ import annotations
import __future__

import ast
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
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from typing import Any

from pydantic.fields import FieldInfo

from ..execution import Raised, attempt_call
from .signature import Function, list_layers

MOST = 1_000  # the most parts that a version lists; with more parts, the version is not fixed
# A mark in the list of parts: the part before it can change and still have the same identity.
_UNSEEN = object()
_BY_VALUE = frozenset({str, bytes, int, float, bool, complex, type(None), types.CodeType})
_UNCHANGING = _BY_VALUE | {object, types.ModuleType, type(...), range, re.Pattern, Decimal, FieldInfo}
_UNCHANGING |= {type(pathlib.Path()), dt.date, dt.datetime, dt.time, dt.timedelta}
_ROUTINES = (
    *(types.FunctionType, types.MethodType, type(functools.lru_cache(len)), functools.partial),
    *(types.BuiltinFunctionType, types.WrapperDescriptorType, types.MethodDescriptorType),
)
_CONTAINERS = (list, tuple, set, frozenset, dict)


@dataclass(frozen=True)
class Version:
    """The parts of a function at one moment. Plain values are compared by value. Other parts are compared by identity."""

    parts: tuple[object, ...]

    @classmethod
    def of(cls, function: Function) -> Version:
        """Return the function's version now. If its parts cannot be read, return a version unlike all others. Never raises."""
        parts = attempt_call(lambda: tuple(islice(_list_parts(function, set()), MOST)))
        return cls((object(), _UNSEEN)) if isinstance(parts, Raised) else cls(parts)

    @property
    def fixed(self) -> bool:
        """True if no part can change unnoticed, so that an approval may hold for later calls."""
        return len(self.parts) < MOST and not any(part is _UNSEEN for part in self.parts)

    def is_still(self, now: Version) -> bool:
        """Return True if a later version of the function, `now`, has the same parts as this version."""
        return len(self.parts) == len(now.parts) and all(
            one is other or (type(one) is type(other) and type(one) in _BY_VALUE and one == other)
            for one, other in zip(self.parts, now.parts, strict=True)
        )


def _list_parts(function: Function, seen: set[int]) -> Iterator[object]:
    """Yield the parts of a function. `seen` has the ids of the objects whose parts were yielded already."""
    for layer in list_layers(function):
        if inspect.ismethod(layer):  # the method itself is not yielded: each access makes a new object
            yield from _list_object(layer.__self__, seen)
            continue
        yield layer
        if id(layer) in seen:
            return
        seen.add(id(layer))
        if isinstance(layer, functools.partial):
            yield from _list_value_parts((layer.args, layer.keywords), seen)
        elif inspect.isfunction(layer):
            yield from _list_value_parts((layer.__code__, layer.__defaults__, layer.__kwdefaults__), seen)
            for cell in layer.__closure__ or ():
                content = attempt_call(getattr, cell, "cell_contents")  # the variable may have no value yet
                yield from _list_value_parts(_UNSEEN if isinstance(content, Raised) else content, seen)
        elif isinstance(layer, types.BuiltinFunctionType):
            yield from _list_value_parts(layer.__self__, seen)
        elif not isinstance(layer, _ROUTINES):
            yield from _list_object(layer, seen)


def _list_value_parts(value: Any, seen: set[int]) -> Iterator[object]:
    """Yield the parts of a value in a closure, a default or a partial."""
    kind, can_change = type(value), type(value) in (list, set, dict)
    if isinstance(value, _ROUTINES):
        yield from _list_parts(value, seen)
        if inspect.ismethod(value):
            yield from _list_value_parts(value.__self__, seen)
        return
    if kind not in (tuple, frozenset):
        yield value
    if kind in _UNCHANGING or isinstance(value, type):
        return
    if isinstance(value, enum.Enum):
        yield from _list_value_parts(value.value, seen)
    elif kind not in _CONTAINERS:
        yield _UNSEEN
        if callable(value):
            yield from _list_parts(value, seen)
    elif not can_change or id(value) not in seen:
        if can_change:
            seen.add(id(value))
        yield len(value)
        for item in value.items() if kind is dict else value:
            yield from _list_value_parts(item, seen)


def _list_object(owner: object, seen: set[int]) -> Iterator[object]:
    """Yield `owner` itself. For each function in its attributes, yield the attribute's name and the function's parts."""
    yield owner
    for name, value in list(getattr(owner, "__dict__", {}).items()):
        if isinstance(value, _ROUTINES):
            yield name
            yield from _list_parts(value, seen)


def read_source(function: Function) -> str:
    """Return the source of a function and of the functions inside it, from the outside in; "" if there is no source.

    If the text in the file is not the source of the code that runs, a comment says so instead.
    """
    # A partial, a method or a callable object has no code of its own. The code is in the next layer.
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
        role = "which runs" if number == 1 else "which the function above claims to wrap"
        code = getattr(layer, "__code__", None)
        name = _get_name(code) if code else type(layer).__qualname__
        parts.append(f"# {number} of {len(texts)}, {role}: {name}\n{text or _NO_SOURCE}")
    return "\n".join(parts)


def _read_layer(code: object) -> str:
    """Return the source of a layer's code; "" if there is no source."""
    if not isinstance(code, types.CodeType):
        return ""
    # `getsource` gets the code object, because for a function it would return the source of the wrapped function. If the file has
    # changed, `getsource` may raise any error.
    text = attempt_call(inspect.getsource, code)
    written = "".join(linecache.getlines(code.co_filename))  # the same text that `inspect` has just read
    compiled = attempt_call(_compile_all, written, code.co_filename, code.co_flags & _FUTURES)
    if isinstance(text, str) and not isinstance(compiled, Raised) and code in compiled:
        return textwrap.dedent(text)
    return _STALE.format(name=_get_name(code)) if written else ""


def _get_name(code: types.CodeType) -> str:
    return str(getattr(code, "co_qualname", code.co_name))  # Python 3.10 has no `co_qualname`


_NO_SOURCE = "# It has no Python source.\n"
_STALE = (
    "# The source of {name} is not shown: its file has changed since it was loaded, or while it was "
    "being loaded, so the code that runs is another one.\n"
)
_FUTURES = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)


@functools.lru_cache(maxsize=8)
def _compile_all(text: str, filename: str, futures: int) -> frozenset[types.CodeType]:
    """Compile `text`, the source of a file or of a cell, and return all code objects in it."""
    flags = futures | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python showed these warnings when it first compiled the code
        codes = [compile(text, filename, "exec", flags, dont_inherit=True)]
    for code in codes:  # the next line appends to the list
        codes += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return frozenset(codes)
