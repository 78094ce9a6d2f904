"""Annotations that mean more than pydantic makes of them, rewritten before it sees them.

- `Iterable[int]` and `Collection[int]` become `list[int]`: pydantic checks an iterable only while the function
  reads it, so a bad item would be found in the middle of the work; and it takes no collections.
- `typing.TypedDict` on Python 3.10 and 3.11 becomes the `typing_extensions.TypedDict` with the same keys, the only
  one pydantic takes there (the older classes do not say which inherited keys are required).
"""

from __future__ import annotations

import collections.abc
import operator
import sys
import types
import typing
from typing import Annotated, Any

import typing_extensions

_LISTS = (collections.abc.Iterable, collections.abc.Collection, collections.abc.Reversible)
_REQUIRED = (typing_extensions.Required, getattr(typing, "Required", typing_extensions.Required))
_NOT_REQUIRED = (typing_extensions.NotRequired, getattr(typing, "NotRequired", typing_extensions.NotRequired))


def understood(annotation: Any) -> Any:
    """The annotation in pydantic's terms; itself where nothing has to be rewritten."""
    return _convert(annotation, frozenset())


def _convert(annotation: Any, inside: frozenset[Any]) -> Any:
    if _is_old_typed_dict(annotation):
        # A recursive one stays what it is: pydantic then says what to use instead.
        return annotation if annotation in inside else _equal(annotation, inside | {annotation})
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        converted = _convert(arguments[0], inside)
        return (
            annotation
            if converted is arguments[0]
            else operator.getitem(Annotated, (converted, *arguments[1:]))
        )
    if (annotation if origin is None else origin) in _LISTS:
        return list[_convert(arguments[0], inside)] if arguments else list  # type: ignore[misc]
    if origin is None or origin is typing.Literal:
        return annotation
    return _rebuilt(annotation, tuple(_convert(argument, inside) for argument in arguments))


def with_references(annotation: Any) -> Any:
    """`list["Node"]` with a reference in place of the text: Python 3.10 evaluates only those of `typing`'s generics."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if not arguments or origin is typing.Literal:
        return annotation
    if origin is Annotated:
        first = with_references(arguments[0])
        return annotation if first is arguments[0] else operator.getitem(Annotated, (first, *arguments[1:]))
    builtin = isinstance(annotation, types.GenericAlias)
    return _rebuilt(
        annotation,
        tuple(
            typing.ForwardRef(a) if builtin and isinstance(a, str) else with_references(a) for a in arguments
        ),
    )


def _rebuilt(annotation: Any, members: tuple[Any, ...]) -> Any:
    """The same generic of other members; itself if they are the same."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if all(new is old for new, old in zip(members, arguments, strict=True)):
        return annotation
    if origin in (typing.Union, types.UnionType):
        return operator.getitem(typing.Union, members)
    return (
        annotation.copy_with(members)
        if hasattr(annotation, "copy_with")
        else operator.getitem(origin, members)
    )


def _is_old_typed_dict(annotation: Any) -> bool:
    known = sys.version_info < (3, 12) and getattr(
        typing, "_TypedDictMeta", None
    )  # there is no public test for it
    return isinstance(annotation, type) and type(annotation) is known


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
    wrap: Any = typing_extensions.Required if required else typing_extensions.NotRequired
    return operator.getitem(wrap, _convert(hint, inside))
