"""Many turns of one conversation, and the event streams that run them.

A turn runs in a task of its own (`_Channel` carries its events to whoever reads them), so that it can be cancelled at
every await point for one of several reasons, and always ends with a Result. A stream that is no longer read or held
by anybody cancels its turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from . import history as conversation
from .approvals import Allowed, asks_sometimes
from .config import Config
from .errors import HarnessError, ModelCallFailed, OutputInvalid, SessionClosed
from .events import Approval, Done, Event, Reasoning, Result, Retry, StopReason, Text, Usage
from .loop import Turn, TurnEnded, make_request, run_turn
from .model import Request
from .running import attempt
from .sandbox import Watch

T = TypeVar("T")
RunSync = Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any]

MOST_UNREAD = 256
"""Events that may wait for their reader before the turn waits for it."""


class _Channel:
    """Events on their way from a turn to its reader, and the way to stop the turn."""

    def __init__(self) -> None:
        self.events: deque[Event] = deque()
        self.recorded: list[Event] = []
        self.changed = asyncio.Event()
        self.room = asyncio.Event()
        self.room.set()
        self.reason: StopReason | None = None
        self.task: asyncio.Task[Result] | None = None

    async def emit(self, event: Event) -> None:
        self.recorded.append(event)
        self.events.append(event)
        self.changed.set()
        if len(self.events) >= MOST_UNREAD:
            self.room.clear()
            await self.room.wait()

    def take(self) -> Event:
        event = self.events.popleft()
        if len(self.events) < MOST_UNREAD:
            self.room.set()
        return event

    def stop(self, reason: StopReason) -> None:
        """Cancel the turn, once; the first reason counts."""
        self.room.set()
        if self.reason is None and self.task is not None and not self.task.done():
            self.reason = reason
            self.task.cancel()


class AsyncEventStream:
    """Async iterator over the events of one turn; the last one is `Done`. `.result` is set with it.

    With `permissions="ask"` and no `on_approval`, answer each `Approval` before asking for the next event; one that
    is not answered by then is denied (LiteLLM's rule).
    """

    def __init__(
        self, session: AsyncSession, prompt: str, *, interactive: bool, close_session: bool = False
    ) -> None:
        self._session, self._prompt, self._interactive = session, prompt, interactive
        self._close_session = close_session
        self._channel: _Channel | None = None
        self._asked: Approval | None = None
        self._result: Result | None = None
        self._ended = False

    def __aiter__(self) -> AsyncEventStream:
        return self

    async def __anext__(self) -> Event:
        if self._ended:
            raise StopAsyncIteration
        if self._channel is None:
            self._channel = self._session._start(self._prompt, interactive=self._interactive)  # noqa: SLF001 - one module
        if self._asked is not None:
            self._asked.deny("approval not answered", by="unattended")
            self._asked = None
        event = await self._next(self._channel)
        if isinstance(event, Approval) and self._session.config.on_approval is None:
            self._asked = event
        return event

    async def _next(self, channel: _Channel) -> Event:
        task = channel.task
        assert task is not None  # noqa: S101 - _start has set it
        while not channel.events:
            if task.done():
                return await self._finish(task)
            channel.changed.clear()
            try:
                await channel.changed.wait()
            except asyncio.CancelledError:
                channel.stop("cancelled")
                raise
        return channel.take()

    async def _finish(self, task: asyncio.Task[Result]) -> Event:
        """The Done event; then, at the next call, OutputInvalid or the end."""
        if self._result is None:
            self._result = task.result()
            if self._close_session:
                await self._session.aclose()
            return Done(self._result)
        self._ended = True
        self._session._raise_output_invalid(self._result)  # noqa: SLF001 - one module
        raise StopAsyncIteration

    @property
    def result(self) -> Result | None:
        """The Result, once `Done` has been read."""
        return self._result

    def cancel(self) -> None:
        """Stop the turn. The stream still ends with `Done(stop_reason="cancelled")`."""
        if self._channel is not None:
            self._channel.stop("cancelled")

    async def aclose(self) -> None:
        """Stop the turn and wait until it has ended."""
        self._ended = True
        if self._channel is not None and self._channel.task is not None:
            self._channel.stop("cancelled")
            await asyncio.wait({self._channel.task})
        if self._close_session:
            await self._session.aclose()

    def __del__(self) -> None:
        channel = getattr(self, "_channel", None)
        if channel is not None and channel.task is not None and not channel.task.done():
            with contextlib.suppress(RuntimeError):  # the loop may be closed already
                channel.stop("cancelled")


class AsyncSession:
    """A conversation of many turns. `async with` it, or `await` it, or just use it.

    `config` may be replaced between turns (`dataclasses.replace`): the conversation stays.
    """

    def __init__(
        self, config: Config, history: Sequence[Mapping[str, Any]] = (), *, interactive: bool = True
    ) -> None:
        """Raises ValueError when somebody has to be asked and nobody can be; HistoryInvalid for a bad `history`."""
        if asks_sometimes(config.permissions) and config.on_approval is None and not interactive:
            raise ValueError(
                "permissions='ask' needs on_approval=, or use stream() and answer Approval events"
            )
        self.config = config
        self.results: list[Result] = []
        self.session_id = uuid.uuid4().hex
        self._history = conversation.History(history)
        self._allowed = Allowed()
        self._problems: dict[int, tuple[str, str]] = {}
        self._busy = False
        self._closed = False

    async def start(self) -> AsyncSession:
        """Nothing to start; there for the common API."""
        if self._closed:
            raise SessionClosed(
                "session is closed; make a new one with agent_session(…, history=session.history())"
            )
        return self

    def __await__(self) -> Generator[Any, None, AsyncSession]:
        return self.start().__await__()

    async def __aenter__(self) -> AsyncSession:
        return await self.start()

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    def astream(self, prompt: str) -> AsyncEventStream:
        """Run one turn as a stream of events."""
        return AsyncEventStream(self, prompt, interactive=True)

    async def arun(self, prompt: str) -> Result:
        """Run one turn to its end. Raises OutputInvalid (with `.result`), SessionClosed, HarnessError when busy."""
        return await collect(AsyncEventStream(self, prompt, interactive=False))

    stream = astream
    run = arun

    async def history(self) -> list[dict[str, Any]]:
        """The conversation in OpenAI format, a copy; valid at every moment, also in the middle of a turn."""
        return self._history.copy()

    def messages(self) -> list[dict[str, Any]]:
        """The same without awaiting."""
        return self._history.copy()

    def preview(self, prompt: str) -> Request:
        """The first request of a turn with this prompt, exactly as it would be sent, without sending it."""
        turn = self._turn(prompt, _nowhere, interactive=False)
        turn.history = conversation.History(self._history.copy())
        turn.history.begin_turn(self.config.instructions)
        turn.history.add_user(prompt)
        return make_request(turn, in_words=self.config.output is None)

    def rewind(self, turn: int) -> None:
        """Forget turn number `turn` (0 is the first) and all after it. Raises HarnessError while a turn runs."""
        if self._busy:
            raise HarnessError("a turn is running on this session; stop it before rewinding")
        self._history.rewind(turn)
        del self.results[turn:]

    def save(self, path: str | Path) -> None:
        """Write the conversation to a readable JSON file (no keys are in it)."""
        conversation.dump(self._history.copy(), path)

    @property
    def usage(self) -> Usage:
        return sum((result.usage for result in self.results), Usage())

    @property
    def cost(self) -> float | None:
        """US dollars of all turns; None when one of them is not known."""
        costs = [result.cost for result in self.results]
        return (
            None if any(cost is None for cost in costs) else sum(cost for cost in costs if cost is not None)
        )

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def busy(self) -> bool:
        """Whether a turn is running."""
        return self._busy

    async def aclose(self) -> None:
        """Refuse further turns. Safe to call twice."""
        self._closed = True

    close = aclose

    def _turn(
        self, prompt: str, emit: Callable[[Event], Coroutine[Any, Any, None]], *, interactive: bool
    ) -> Turn:
        return Turn(self.config, self._history, prompt, emit, self._allowed, interactive)

    def _start(self, prompt: str, *, interactive: bool) -> _Channel:
        if self._closed:
            raise SessionClosed(
                "session is closed; make a new one with agent_session(…, history=session.history())"
            )
        if self._busy:
            raise HarnessError("a turn is already running on this session")
        if not isinstance(prompt, str) or not prompt.strip():
            raise ValueError("the prompt is empty: say what the model should do")
        self._busy = True
        channel = _Channel()
        turn = self._turn(prompt, channel.emit, interactive=interactive)
        channel.task = asyncio.ensure_future(self._run(turn, channel))
        channel.task.add_done_callback(lambda _: channel.changed.set())
        return channel

    async def _run(self, turn: Turn, channel: _Channel) -> Result:
        """One turn, to a Result, whatever happens."""
        loop, watch = asyncio.get_running_loop(), Watch(self.config.sandbox)
        limit = self.config.timeout
        timer = None if limit is None else loop.call_later(limit, channel.stop, "timeout")
        try:
            reason, error = await self._outcome(turn, watch, channel)
            channel.reason = channel.reason or reason  # from here on a stop comes too late
            files = await watch.changes()
            for change in files:
                await channel.emit(change)
            result = self._result(turn, channel, reason, error, files)
            self.results.append(result)
            return result
        finally:
            self._busy = False
            if timer is not None:
                timer.cancel()

    async def _outcome(self, turn: Turn, watch: Watch, channel: _Channel) -> tuple[StopReason, str | None]:
        try:
            await watch.start()
            outcome = await attempt(run_turn(turn))
        except asyncio.CancelledError:
            if channel.reason is None:
                raise  # not ours: the loop is shutting down
            _take_back_cancel()
            return channel.reason, turn.note
        if outcome.error is None:
            return "done", None
        if isinstance(outcome.error, TurnEnded):
            return outcome.error.reason, outcome.error.error
        if isinstance(outcome.error, ModelCallFailed):
            return "runtime_error", str(outcome.error)
        return "runtime_error", f"{type(outcome.error).__name__}: {outcome.error}"

    def _result(
        self, turn: Turn, channel: _Channel, reason: StopReason, error: str | None, files: list[Any]
    ) -> Result:
        text = turn.final_text or shown_text(channel.recorded)
        if reason == "runtime_error" and error:
            text = f"{text}\n\n{error}" if text else error
        result = Result(
            text=text,
            output=turn.output,
            files=files,
            events=channel.recorded,
            usage=turn.usage,
            cost=turn.cost,
            stop_reason=reason,
            session_id=self.session_id,
            error=error,
            model=self.config.route.model,
            prompt=turn.prompt,
            spans=tuple(turn.spans),
            output_attempts=turn.output_attempts,
        )
        if reason == "done" and turn.output_problem is not None:
            self._problems[id(result)] = (turn.output_problem, turn.final_text)
        return result

    def _raise_output_invalid(self, result: Result) -> None:
        problem = self._problems.pop(id(result), None)
        if problem is not None and self.config.output is not None:
            message = f"Final answer did not match {self.config.output.name}: {problem[0]}"
            raise OutputInvalid(message, raw=problem[1], result=result)


def _take_back_cancel() -> None:
    """Tell the task that its cancellation has been dealt with (Python 3.11 counts them)."""
    task = asyncio.current_task()
    if task is not None and hasattr(task, "uncancel"):
        task.uncancel()


async def _nowhere(event: Event) -> None:
    return None


def shown_text(events: Sequence[Event]) -> str:
    """All the text of a turn, as it was shown: without what a retry has taken back."""
    text = ""
    for event in events:
        if isinstance(event, Text):
            text += event.delta
        elif isinstance(event, Retry) and event.discard:
            text = text.removesuffix(event.discard)
    return text


async def collect(stream: AsyncIterator[Event]) -> Result:
    """Read a stream to its end and return its Result. Raises what the stream raises after `Done`."""
    result: Result | None = None
    async for event in stream:
        if isinstance(event, Done):
            result = event.result
    if result is None:
        raise HarnessError("turn ended without a result")
    return result


async def _anext(stream: AsyncEventStream) -> Event | None:
    try:
        return await stream.__anext__()
    except StopAsyncIteration:
        return None


class EventStream:
    """Sync iterator over the events of one turn: an AsyncEventStream, one step of the loop at a time."""

    def __init__(self, stream: AsyncEventStream, run_sync: RunSync) -> None:
        self._stream, self._run_sync = stream, run_sync

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        event: Event | None = self._run_sync(lambda: _anext(self._stream))
        if event is None:
            raise StopIteration
        return event

    def __enter__(self) -> EventStream:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def result(self) -> Result | None:
        return self._stream.result

    def cancel(self) -> None:
        """Stop the turn. Iteration still ends with `Done(stop_reason="cancelled")`."""
        self._stream.cancel()

    def close(self) -> None:
        """Abandon the stream and stop its turn."""
        self._run_sync(self._stream.aclose)


class Session:
    """An AsyncSession for code without `await`; works in a notebook cell, too. Use as a context manager."""

    def __init__(self, inner: AsyncSession, run_sync: RunSync) -> None:
        self._inner, self._run_sync = inner, run_sync

    @property
    def aio(self) -> AsyncSession:
        """The AsyncSession behind this one."""
        return self._inner

    def start(self) -> Session:
        self._run_sync(self._inner.start)
        return self

    def __enter__(self) -> Session:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def run(self, prompt: str) -> Result:
        result: Result = self._run_sync(lambda: self._inner.arun(prompt))
        return result

    def stream(self, prompt: str) -> EventStream:
        return EventStream(self._inner.astream(prompt), self._run_sync)

    async def arun(self, prompt: str) -> Result:
        return await self._inner.arun(prompt)

    def astream(self, prompt: str) -> AsyncEventStream:
        return self._inner.astream(prompt)

    def history(self) -> list[dict[str, Any]]:
        return self._inner.messages()

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


def replace_config(session: AsyncSession, **changes: Any) -> None:
    """Change the configuration of a session for its next turns."""
    session.config = dataclasses.replace(session.config, **changes)


__all__ = ["AsyncEventStream", "AsyncSession", "EventStream", "Reasoning", "Session", "collect", "shown_text"]
