"""Sessions and streams for code without `await`. The repr of `Pending`, a wrapped coroutine, says that `await` is missing."""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Iterator
from pathlib import Path
from typing import Any, TypeVar

from ..events import Event, Result, RunSync, Usage
from .session import AsyncEventStream, AsyncSession, Given


class Session:
    """A session for code without `await`. It also works in a notebook cell. Use it as a context manager."""

    def __init__(self, inner: AsyncSession) -> None:
        self._inner, self._run_sync = inner, inner.config.host.run_sync
        self._on_the_turns_loop: RunSync = self._run_sync
        """A function that runs a coroutine on an event loop: the loop of the turn that `stream` started last."""

    @property
    def aio(self) -> AsyncSession:
        """The AsyncSession that this session uses."""
        return self._inner

    def start(self) -> Session:
        self._run_sync(self._inner.start)
        return self

    def __enter__(self) -> Session:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def run(self, prompt: Given) -> Result:
        result: Result = self._run_sync(lambda: self._inner.arun(prompt))
        return result

    def stream(self, prompt: Given) -> EventStream:
        self._on_the_turns_loop = self._inner.config.host.one_loop()
        return EventStream(self._inner.astream(prompt), self._on_the_turns_loop)

    async def arun(self, prompt: Given) -> Result:
        return await self._inner.arun(prompt)

    def astream(self, prompt: Given) -> AsyncEventStream:
        return self._inner.astream(prompt)

    def history(self) -> list[dict[str, Any]]:
        if not self._inner.busy:
            return self._inner.messages()
        messages: list[dict[str, Any]] = self._on_the_turns_loop(self._inner.history)
        return messages

    def rewind(self, turn: int) -> None:
        self._inner.rewind(turn)

    def save(self, path: str | Path) -> None:
        self._inner.save(path)

    def close(self) -> None:
        self._run_sync(self._inner.aclose)

    @property
    def results(self) -> list[Result]:
        return list(self._inner.results)

    @property
    def usage(self) -> Usage:
        return self._inner.usage

    @property
    def cost(self) -> float | None:
        return self._inner.cost

    @property
    def session_id(self) -> str:
        return self._inner.session_id

    @property
    def closed(self) -> bool:
        return self._inner.closed


async def _anext(stream: AsyncEventStream) -> Event | None:
    try:
        return await stream.__anext__()
    except StopAsyncIteration:
        return None


class EventStream:
    """Iterator over the events of one turn, for code without `await`. Each step runs one step of an AsyncEventStream. The
    iterator works in any thread.
    """

    def __init__(self, stream: AsyncEventStream, run_sync: RunSync) -> None:
        """`run_sync` runs all steps of this stream on one loop."""
        self._stream, self._run_sync = stream, run_sync

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        try:
            event: Event | None = self._run_sync(lambda: _anext(self._stream))
        except KeyboardInterrupt:
            self.cancel()  # needed if the interrupt came just after the step had ended
            raise
        if event is None:
            raise StopIteration
        return event

    def __enter__(self) -> EventStream:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def aio(self) -> AsyncEventStream:
        """The AsyncEventStream that this stream uses."""
        return self._stream

    @property
    def result(self) -> Result | None:
        return self._stream.result

    def cancel(self) -> None:
        """Stop the turn. Iteration still ends with `Done(stop_reason="cancelled")`."""
        self._stream.cancel()

    def close(self) -> None:
        """Close the stream and stop its turn."""
        self._run_sync(self._stream.aclose)


# --- A coroutine whose repr and AttributeError say that `await` was forgotten. -----------------------------------

T = TypeVar("T")


class Pending(Coroutine[object, None, T]):
    """Wraps a coroutine. The wrapper can be awaited or passed to asyncio in the same way as the coroutine.

    `call` is the source text of the call, such as "aagent(…)". The messages show this text.
    """

    def __init__(self, coroutine: Coroutine[object, None, T], call: str) -> None:
        self._coroutine, self._call = coroutine, call

    def __await__(self) -> Generator[object, None, T]:
        return self._coroutine.__await__()

    def send(self, value: None) -> object:
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> object:
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    def __repr__(self) -> str:
        return f"<nothing has run yet: write `await {self._call}`>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(f"nothing has run yet, so there is no .{name}: write `await {self._call}`")
