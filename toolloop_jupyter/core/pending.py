"""A coroutine that helps when `await` was forgotten: as a cell's value, and where its result was expected."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


class Pending(Coroutine[Any, Any, T]):
    """Wraps a coroutine; awaited, or given to asyncio, it is that coroutine.

    `call` is how it is written, for the messages: "aagent(…)".
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T], call: str) -> None:
        self._coroutine, self._call = coroutine, call

    def __await__(self) -> Generator[Any, Any, T]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    def __repr__(self) -> str:
        return f"<nothing has run yet: write `await {self._call}`>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(f"nothing has run yet, so there is no .{name}: write `await {self._call}`")
