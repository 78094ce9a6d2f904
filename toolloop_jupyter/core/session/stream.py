"""The event streams of one turn: the channel that carries its events, and what its reader holds.

A turn runs in a task of its own, so that it can be cancelled at every await point for one of several reasons, and
always ends with a Result. A stream that is no longer read or held by anybody cancels its turn.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Sequence
from typing import NamedTuple, Protocol

from ..events import (
    STOPPED,
    Approval,
    Done,
    Event,
    Observer,
    OutputInvalid,
    Result,
    Retry,
    StopReason,
    Text,
)
from ..loop import Approver, Config, find_approver

WIND_DOWN = 1.0
"""Seconds that a stopped turn gets to end before its reader is told."""
MOST_UNREAD = 256
"""Events that may wait for their reader before the turn waits for it."""


class Ended(NamedTuple):
    """What a turn leaves: its Result, and what is raised behind it."""

    result: Result
    invalid: OutputInvalid | None


class Turns(Protocol):
    """What a stream needs of its session."""

    config: Config

    def begin(self, prompt: str, *, streamed: bool, observers: Sequence[Observer]) -> Channel:
        """Start the turn."""

    async def wait_until_settled(self) -> None:
        """Wait for an earlier turn that was told to stop."""

    async def aclose(self) -> None:
        """Refuse further turns."""


class Channel:
    """Events on their way from a turn to its reader, and the way to stop the turn."""

    task: asyncio.Task[Ended]
    """The turn."""

    def __init__(self, *, is_read: bool) -> None:
        self.is_read = is_read
        """Whether somebody takes the events; else they are only recorded."""
        self.events: deque[Event] = deque()
        self.recorded: list[Event] = []
        self.changed = asyncio.Event()
        self.room = asyncio.Event()
        self.room.set()
        self.reason: StopReason | None = None
        """Why the turn ends: set once, by a stop or by its own end."""
        self.told_to_stop = False
        """Whether it is to stop: known before its loop has heard of it."""
        self.started = False
        """Whether the task has begun: one that is cancelled before never runs its first line."""

    def checkpoint(self) -> None:
        """End the turn here when it is to stop: what it awaited may have swallowed the CancelledError."""
        if self.reason is not None:
            raise asyncio.CancelledError

    def record(self, event: Event) -> None:
        """Send an event, also of a turn that is to stop or has ended."""
        self.recorded.append(event)
        if self.is_read:
            self.events.append(event)
            self.changed.set()

    async def emit(self, event: Event) -> None:
        """Send an event, and wait for a reader that is far behind; raises CancelledError when the turn is to stop."""
        self.checkpoint()
        self.record(event)
        if len(self.events) >= MOST_UNREAD and self.reason is None:
            self.room.clear()
            await self.room.wait()

    def take(self) -> Event:
        event = self.events.popleft()
        if len(self.events) < MOST_UNREAD:
            self.room.set()
        return event

    def stop(self, reason: StopReason) -> None:
        """Cancel the turn, once; the first reason counts. On the turn's own loop."""
        self.room.set()
        if self.reason is None and not self.task.done():
            self.reason, self.told_to_stop = reason, True
            if self.started:
                self.task.cancel()

    def stop_soon(self, reason: StopReason) -> None:
        """The same from any thread (a click on a subshell's thread, the garbage collector's)."""
        if self.task.done():
            return
        self.told_to_stop = True
        loop = self.task.get_loop()
        try:
            here = asyncio.get_running_loop() is loop
        except RuntimeError:
            here = False
        if here:
            self.stop(reason)
            return
        with contextlib.suppress(RuntimeError):  # the loop may be closed already
            loop.call_soon_threadsafe(self.stop, reason)

    async def wait_for_end(self) -> None:
        """Wait until the turn has ended, however it does; from any loop. Not for one whose own loop stands still."""
        loop = self.task.get_loop()
        if loop is asyncio.get_running_loop():
            await asyncio.wait({self.task})
        elif not self.task.done() and loop.is_running():
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.wait_for_end(), loop))


class AsyncEventStream:
    """Async iterator over the events of one turn; the last one is `Done`. `.result` is set with it.

    With `permissions="ask"` and no `on_approval`, answer each `Approval` before asking for the next event; one that
    is not answered by then is denied (LiteLLM's rule).
    """

    def __init__(
        self,
        session: Turns,
        prompt: str,
        *,
        streamed: bool,
        close_session: bool = False,
        observers: Sequence[Observer] = (),
    ) -> None:
        """`streamed`: its reader sees the events, and answers the requests for which there is no `on_approval`.

        Otherwise `collect` it.
        """
        self._session, self._prompt, self._streamed = session, prompt, streamed
        self._close_session = close_session
        self._channel: Channel | None = None
        self._asked: Approval | None = None
        self._result: Result | None = None
        self._cancelled = False
        self._ended = False
        self._observers = tuple(observers)

    def observe(self, observer: Observer) -> bool:
        """Let `observer` be called around the steps of this turn, too; False when it has begun already."""
        if self._channel is not None:
            return False
        self._observers = (observer, *self._observers)
        return True

    @property
    def model(self) -> str:
        """The model that this turn asks."""
        return self._session.config.route.model

    @property
    def approver(self) -> Approver:
        """Who answers this turn's requests."""
        return find_approver(self._session.config, streamed=self._streamed)

    def __aiter__(self) -> AsyncEventStream:
        return self

    async def __anext__(self) -> Event:
        if self._ended:
            raise StopAsyncIteration
        channel = self._channel or await self._begin()
        if self._asked is not None:
            self._asked.deny("approval not answered", by="unattended")
            self._asked = None
        while not (channel.events or channel.task.done()):
            channel.changed.clear()
            await self._wait(channel, channel.changed.wait())
        if not channel.events:
            return await self._finish(channel)
        event = channel.take()
        if isinstance(event, Approval) and self.approver == "reader":
            self._asked = event  # for the reader of this stream to answer
        return event

    async def collect(self) -> Result:
        """Run the turn to its end and return its Result; of a stream that nobody reads. Raises OutputInvalid."""
        channel = await self._begin()
        while not channel.task.done():
            await self._wait(channel, channel.wait_for_end())
        result = (await self._finish(channel)).result
        with contextlib.suppress(StopAsyncIteration):
            await self._finish(channel)
        return result

    async def _begin(self) -> Channel:
        await self._session.wait_until_settled()
        channel = self._session.begin(self._prompt, streamed=self._streamed, observers=self._observers)
        self._channel = channel
        if self._cancelled:
            channel.stop("cancelled")
        return channel

    async def _wait(self, channel: Channel, what: Awaitable[object]) -> None:
        """Await it; stop the turn when this is cancelled."""
        try:
            await what
        except asyncio.CancelledError as error:
            channel.stop("cancelled")
            await self._wind_down(channel.task, error)
            raise

    async def _wind_down(self, task: asyncio.Task[Ended], error: asyncio.CancelledError) -> None:
        """Give a stopped turn a moment to end, and `error` what the person should know of its end."""
        with contextlib.suppress(asyncio.CancelledError):  # stopped again: no more waiting
            await asyncio.wait({task}, timeout=WIND_DOWN)
        note = None
        if task.done() and not task.cancelled() and task.exception() is None:
            note = task.result().result.error
        error.args = (f"{STOPPED}; {note}" if note else STOPPED,)
        await self._session.config.host.stopped(error)

    async def _finish(self, channel: Channel) -> Done:
        """The Done event; then, at the next call, OutputInvalid or the end."""
        turn = channel.task
        if self._result is None:
            self._ended = turn.cancelled()  # by somebody else: the same is not raised again and again
            self._result = turn.result().result
            if self._close_session:
                await self._session.aclose()
            return Done(self._result)
        self._ended = True
        if (invalid := turn.result().invalid) is not None:
            raise invalid
        raise StopAsyncIteration

    @property
    def result(self) -> Result | None:
        """The Result, once `Done` has been read or the stream has been closed."""
        return self._result

    def cancel(self) -> None:
        """Stop the turn, from any thread. The stream still ends with `Done(stop_reason="cancelled")`."""
        self._cancelled = True
        if self._channel is not None:
            self._channel.stop_soon("cancelled")

    async def aclose(self) -> None:
        """Stop the turn and wait until it has ended."""
        self._ended = True
        if self._channel is not None:
            self._channel.stop("cancelled")
            await self._channel.wait_for_end()
            if self._result is None and not self._channel.task.cancelled():
                self._result = self._channel.task.result().result
        if self._close_session:
            await self._session.aclose()

    close = aclose

    def __del__(self) -> None:
        channel = getattr(self, "_channel", None)
        if channel is not None:
            channel.stop_soon("cancelled")


def join_shown_text(events: Sequence[Event]) -> str:
    """All the text of a turn, as it was shown: without what a retry has taken back."""
    text = ""
    for event in events:
        if isinstance(event, Text):
            text += event.delta
        elif isinstance(event, Retry) and event.discard:
            text = text.removesuffix(event.discard)
    return text
