"""What a function is at one moment, to tell later whether it is still the same.

`%autoreload` and the like replace code within the same function object, and what a function does may hang on others.
A version covers the code that runs and the arguments that the notebook has filled in:

- the function, and all that it wraps: partials, methods, decorators that keep `__wrapped__`, the class of a callable object;
- of each of them the code, the defaults and, of a partial, the arguments, with the content of lists, dicts and models;
- functions in the closures of these, and in the attributes of the object whose method, or which itself, is called.

Not covered is what they work with or call by name: global variables and functions, other methods of the object's
class, imported modules, and plain data in closures and attributes (a counter or a cache changes with each call).
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from pydantic import BaseModel

from .foreign import Raised, attempt
from .signatures import layers

_MOST = 1_000
"""Parts of a version, and of one default within it, that are looked at."""
_BY_VALUE = frozenset({str, bytes, int, float, bool, complex, type(None), types.CodeType})
_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial)


@dataclass(frozen=True)
class Version:
    """A function's parts, to be compared by identity, or by value where they are plain."""

    parts: tuple[object, ...]

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Version:
        """The version of now. Never raises: what cannot be looked at is the same as nothing else."""
        parts = attempt(lambda: tuple(islice(_parts(function, set()), _MOST)))
        return cls((object(),) if isinstance(parts, Raised) else parts)

    def is_still(self, now: Version) -> bool:
        """Whether nothing was replaced since."""
        return len(self.parts) == len(now.parts) and all(map(_same, self.parts, now.parts))


def _same(one: object, other: object) -> bool:
    return one is other or (type(one) is type(other) and type(one) in _BY_VALUE and one == other)


def _parts(function: Callable[..., Any], seen: set[int]) -> Iterator[object]:
    for layer in layers(function):
        if inspect.ismethod(layer):  # another object at each look
            yield from _attributes(layer.__self__, seen)
            continue
        if id(layer) in seen:
            return
        seen.add(id(layer))
        yield layer
        if isinstance(layer, functools.partial):
            yield from islice(_content([layer.args, layer.keywords], set()), _MOST)
        elif inspect.isfunction(layer):
            yield layer.__code__
            yield from islice(_content([layer.__defaults__, layer.__kwdefaults__], set()), _MOST)
            for cell in layer.__closure__ or ():
                content = attempt(getattr, cell, "cell_contents")  # may be empty yet
                if not isinstance(content, Raised) and callable(content):
                    yield from _parts(content, seen)
        elif not inspect.isroutine(layer):
            yield from _attributes(layer, seen)


def _attributes(owner: object, seen: set[int]) -> Iterator[object]:
    yield owner
    for name, value in list(getattr(owner, "__dict__", {}).items()):
        if isinstance(value, _FUNCTIONS):
            yield name
            yield from _parts(value, seen)


def _content(value: Any, inside: set[int]) -> Iterator[object]:
    """A default or a filled argument: by its content where it is data, else the object itself."""
    is_object = isinstance(value, BaseModel) or (
        dataclasses.is_dataclass(value) and not isinstance(value, type) and hasattr(value, "__dict__")
    )
    if type(value) not in (list, tuple, set, frozenset, dict) and not is_object:
        yield value
        return
    yield type(value)
    if id(value) in inside:
        return
    inside.add(id(value))
    data = vars(value) if is_object else value
    yield len(data)
    for item in islice(data.items() if isinstance(data, dict) else data, _MOST):
        yield from _content(item, inside)
    inside.discard(id(value))
