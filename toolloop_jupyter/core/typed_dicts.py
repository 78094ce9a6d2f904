"""`typing.TypedDict` for pydantic on Python 3.10 and 3.11, where it takes only `typing_extensions.TypedDict`.

The older classes do not say which keys an inherited TypedDict requires, so pydantic refuses them; here the
annotation of a parameter is rebuilt with the same keys. Python 3.12 and up need none of this.
"""

from __future__ import annotations

import operator
import sys
import types
import typing
from typing import Annotated, Any

import typing_extensions

_REQUIRED = (typing_extensions.Required, getattr(typing, "Required", typing_extensions.Required))
_NOT_REQUIRED = (typing_extensions.NotRequired, getattr(typing, "NotRequired", typing_extensions.NotRequired))


def understood(annotation: Any) -> Any:
    """The annotation with every `typing.TypedDict` in it replaced by an equal one that pydantic takes."""
    return annotation if sys.version_info >= (3, 12) else _convert(annotation, frozenset())


def _convert(annotation: Any, inside: frozenset[Any]) -> Any:
    if _is_old(annotation):
        # A recursive one stays what it is: pydantic then says what to use instead.
        return annotation if annotation in inside else _equal(annotation, inside | {annotation})
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is None or origin is typing.Literal:
        return annotation
    if origin is Annotated:
        converted = _convert(arguments[0], inside)
        return (
            annotation
            if converted is arguments[0]
            else operator.getitem(Annotated, (converted, *arguments[1:]))
        )
    members = tuple(_convert(argument, inside) for argument in arguments)
    if all(new is old for new, old in zip(members, arguments, strict=True)):
        return annotation
    if origin in (typing.Union, types.UnionType):
        return typing.Union[members]  # noqa: UP007 - the members are known at run time only
    return annotation.copy_with(members) if hasattr(annotation, "copy_with") else origin[members]


def _is_old(annotation: Any) -> bool:
    return isinstance(annotation, type) and type(annotation) is getattr(typing, "_TypedDictMeta", None)


def _equal(old: Any, inside: frozenset[Any]) -> Any:
    hints = typing_extensions.get_type_hints(old, include_extras=True)
    fields = {name: _field(name, hint, old, inside) for name, hint in hints.items()}
    make: Any = typing_extensions.TypedDict
    new = make(old.__name__, fields)
    new.__doc__, new.__module__ = old.__doc__, old.__module__
    return new


def _field(name: str, hint: Any, old: Any, inside: frozenset[Any]) -> Any:
    required = name in old.__required_keys__
    if typing.get_origin(hint) in (*_REQUIRED, *_NOT_REQUIRED):
        required = typing.get_origin(hint) in _REQUIRED
        hint = typing.get_args(hint)[0]
    converted = _convert(hint, inside)
    return typing_extensions.Required[converted] if required else typing_extensions.NotRequired[converted]
