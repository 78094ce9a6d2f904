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
