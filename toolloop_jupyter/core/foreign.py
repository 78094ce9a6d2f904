"""Running code of other people's classes: a value's `__repr__`, a model's serialiser, a type's validator.

Such code may raise anything, and none of it may end a run. This is the one place of the core that catches it all,
beside the one that runs a tool's own body.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Raised:
    """What the code raised instead of returning."""

    error: Exception


def attempt(code: Callable[..., T], *arguments: object) -> T | Raised:
    """What `code(*arguments)` returns, or what it raised; `KeyboardInterrupt` and its like go through."""
    try:
        return code(*arguments)
    except Exception as error:  # noqa: BLE001 - see the top of this file
        return Raised(error)


def is_exactly(value: object, *texts: str) -> bool:
    """Whether the value is one of these texts. An object of another class is not asked: it says what it is equal to."""
    return type(value) is str and value in texts


def told(value: object, most: int = 80) -> str:
    """A value as its own `__repr__` tells it, cut; its type's name where that raises."""
    return _cut(value, attempt(repr, value), most)


def told_error(error: BaseException, most: int = 500) -> str:
    """What an error says of itself, cut; its type's name where that raises."""
    return _cut(error, attempt(str, error), most)


def _cut(value: object, text: str | Raised, most: int) -> str:
    if isinstance(text, Raised):
        return f"<{type(value).__name__}>"
    text = str.__str__(text)  # an exact text, whatever class `__repr__` gave
    return text if len(text) <= most else text[: most - 1] + "…"
