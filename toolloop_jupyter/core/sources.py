"""A function -> its source code as a person may rely on it: of all that runs, and only what really runs."""

from __future__ import annotations
import __future__

import ast
import functools
import inspect
import linecache
import textwrap
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from .foreign import Raised, attempt
from .signatures import layers

STALE = (
    "# The source of {name} is not shown: what runs is not what is written there now "
    "(changed since it was loaded, or changed while it was)."
)
_FUTURES = functools.reduce(
    int.__or__, (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
)


def source_of(function: Callable[..., Any]) -> str:
    """The source of a function and of what it wraps, in the order in which they run; "" where there is none.

    Where the text that Python finds is not the code that runs (a module's file that was edited after the import), a
    comment says so in its place.
    """
    parts = [(layer, _text(layer)) for layer in layers(function) if _runs(layer)]
    if not any(text for _, text in parts):
        return ""
    if len(parts) == 1:
        return parts[0][1]
    order = [
        f"# {number} of {len(parts)}, {'which runs' if number == 1 else 'which it says it wraps'}: {_name(layer)}\n"
        + (text or "# There is no Python source of it.\n")
        for number, (layer, text) in enumerate(parts, 1)
    ]
    return "\n".join(order)


def _runs(layer: Any) -> bool:
    """Whether a layer does something by itself. A partial, a method and a callable object only lead to what does."""
    return (inspect.isroutine(layer) and not inspect.ismethod(layer)) or hasattr(layer, "__wrapped__")


def _name(layer: Any) -> str:
    code = getattr(layer, "__code__", None)
    name = getattr(code, "co_qualname", None) or getattr(code, "co_name", None) or type(layer).__qualname__
    return str(name)


def _text(layer: Any) -> str:
    code = getattr(layer, "__code__", None)
    if not isinstance(code, types.CodeType):
        return ""
    # Of the code: of a function, `inspect` gives the source of what it wraps. It may raise anything on a changed file.
    text = attempt(inspect.getsource, code)
    if isinstance(text, str) and _is_code_of(code):
        return textwrap.dedent(text)
    return STALE.format(name=_name(layer)) + "\n" if linecache.getlines(code.co_filename) else ""


def _is_code_of(code: types.CodeType) -> bool:
    """Whether the file, or the notebook's cell, still has this code where it says."""
    text = "".join(linecache.getlines(code.co_filename))
    flags = code.co_flags & _FUTURES | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    compiled = attempt(_compiled, text, code.co_filename, flags)
    return not isinstance(compiled, Raised) and any(one == code for one in _codes(compiled))


@functools.lru_cache(maxsize=8)
def _compiled(text: str, filename: str, flags: int) -> types.CodeType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they were said when the code was compiled to be run
        compiled: types.CodeType = compile(text, filename, "exec", flags, dont_inherit=True)
    return compiled


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)
