"""Call code of classes that other people wrote: a value's `__repr__`, a model's serialiser, a type's validator.

This code may raise any exception, but no exception may end a run. Only two places catch every exception: `attempt_call` here,
and `runner.py`, which runs the functions of tools.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


MISSING: Any = object()
"""Means that there is no value. None cannot mean this, because None may be the value."""


class ToolStopped(BaseException):
    """Raised in the thread of a sync tool to stop it. It is not an `Exception`, because tools may catch every `Exception`."""


@dataclass(frozen=True)
class Raised:
    """Returned by `attempt_call` if the called code has raised an exception. Holds the exception."""

    error: BaseException


def attempt_call(code: Callable[..., T], *arguments: object) -> T | Raised:
    """Call `code(*arguments)` and return its value. If an exception is raised, return the exception as `Raised`.

    KeyboardInterrupt and ToolStopped are not returned but raised, because they come from outside of `code`.
    """
    try:
        return code(*arguments)
    except BaseException as error:
        if is_interrupt(error) or issubclass(type(error), ToolStopped):
            raise
        return Raised(error)


_DEEPEST = 10
"""At most this many levels of groups in groups are searched for a KeyboardInterrupt."""


def is_interrupt(error: BaseException) -> bool:
    """Return True if the error is a `KeyboardInterrupt`, or an exception group that contains a `KeyboardInterrupt`."""
    level = {id(error): error}  # an error that is in several groups of one level is searched once
    for _ in range(_DEEPEST + 1):
        if any(issubclass(type(one), KeyboardInterrupt) for one in level.values()):
            return True
        level = {id(inner): inner for one in level.values() for inner in list_inner(one)}
    return False


def list_inner(error: BaseException) -> tuple[BaseException, ...]:
    """Return the errors of an exception group; () for any other error."""
    # `BaseExceptionGroup` is found by its name, because on Python 3.10 a separate package defines it.
    is_group = any(kind.__name__ == "BaseExceptionGroup" for kind in type(error).__mro__)
    inner = attempt_call(getattr, error, "exceptions", ()) if is_group else ()
    return inner if type(inner) is tuple else ()


def is_exactly(value: object, *texts: str) -> bool:
    """Return True if `value` is one of `texts`. Only a `str` is compared: objects of other classes may claim to be equal."""
    return type(value) is str and value in texts


def shorten_repr(value: object, most: int = 80) -> str:
    """Return at most `most` characters of the value's `repr`. If `repr` raises, return the name of the value's type."""
    text = attempt_call(repr, value)
    return f"<{type(value).__name__}>" if isinstance(text, Raised) else _cut(text, most)


def get_message(error: BaseException, most: int | None = None) -> str:
    """Return at most `most` characters of the error's own text. Never raises, even if the error's `__str__` raises."""
    message = attempt_call(str, error)
    if isinstance(message, Raised):
        return f"<without a text: {type(message.error).__name__}>"
    return _cut(message, most)


def describe_error(error: BaseException, most: int | None = None) -> str:
    """Return "Name: message" or "Name" for an error. The message has at most `most` characters. Never raises."""
    message = get_message(error, most)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


_MOST_PARTS = 10
"""For each error, at most this many notes and this many inner errors are shown."""
_MOST_LEVELS = 4
_MOST_TEXT, _MOST_IN_ALL = 100_000, 200_000
"""The largest number of characters that are read from one text of an error, and from all its texts together."""


def explain_error(error: BaseException) -> str:
    """Return an error as text. The text includes the error's notes, its inner errors and its cause. Never raises."""
    return "\n".join(_explain_lines(error, 0, [_MOST_IN_ALL]))


def _explain_lines(error: BaseException, level: int, left: list[int]) -> list[str]:
    """Return the lines of `explain_error`. `left[0]` is how many characters may still be read; this function lowers it.

    `level` is 0 for the outermost error, and one more for each group around `error`.
    """
    lines: list[str] = []

    def take(text: str) -> None:
        text = _cut(text, max(1, min(left[0], _MOST_TEXT)))
        left[0] -= len(text)
        lines.extend(text.split("\n"))

    take(describe_error(error))
    notes = attempt_call(getattr, error, "__notes__", None)
    for note in notes[:_MOST_PARTS] if isinstance(notes, list) else ():
        if type(note) is str:
            take(note)
    if level == _MOST_LEVELS:
        return lines
    inner = list_inner(error)
    for one in inner[:_MOST_PARTS]:
        first, *rest = _explain_lines(one, level + 1, left)
        lines += [f"- {first}", *(f"  {line}" for line in rest)]
    if len(inner) > _MOST_PARTS:
        lines.append(f"- and {len(inner) - _MOST_PARTS:,} more")
    cause: object = attempt_call(getattr, error, "__cause__", None)
    if isinstance(cause, BaseException) and get_message(cause, _MOST_TEXT) not in "\n".join(lines):
        first, *rest = _explain_lines(cause, level + 1, left)
        lines += [f"caused by {first}", *rest]
    return lines


# This room imports no other room, so it cannot use `shorten` of core/text.
def _cut(text: str, most: int | None) -> str:
    text = str.__str__(text)  # an exact `str`, even if `__repr__` has returned a subclass
    return text if most is None or len(text) <= most else text[: most - 1] + "…"
