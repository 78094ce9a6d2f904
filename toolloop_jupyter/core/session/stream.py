"""A turn while it runs in its own task, and the streams that read its events."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Coroutine, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from ..conversation import Prompt
from ..events import (
    NOT_ANSWERED,
    STOPPED,
    Approval,
    Done,
    Event,
    ModelCallFailed,
    Observer,
    OutputInvalid,
    Result,
    RunSync,
    StopReason,
)
from ..execution import Outcome, RunEnded, TimeLimit, attempt, keep_loop_running
from ..loop import Approver, Config, Turn, TurnCancelled, TurnEnd, find_approver, run_turn, wait_for_import
from ..models import log_unexpected
from .sandbox import Watch

MOST_UNREAD = 256
"""The largest number of unread events. When this number is reached, the turn waits until the reader has read an event."""
WIND_DOWN = 1.0
"""The largest number of seconds that the reader of a stopped turn waits for the end of the turn."""

PromptLike: TypeAlias = "str | Sequence[object] | Prompt"
"""A prompt from a caller: a text, a list (of texts, pictures, paths and other values) or a Prompt that is ready to be sent."""


class Ended(NamedTuple):
    """The end of a turn: the turn's Result, and the error that the reader gets after the Result (None without an error)."""

    result: Result
    invalid: OutputInvalid | None


class Channel:
    """Carries events from a turn to its reader, and stops the turn."""

    task: asyncio.Task[Ended]
    """The task that runs the turn."""

    def __init__(self, *, is_read: bool) -> None:
        self.is_read = is_read
        """True if somebody reads the events. If False, the events are only recorded."""
        self.events: deque[Event] = deque()
        self.recorded: list[Event] = []
        self.changed = asyncio.Event()
        """Set if there is an event to read, or if the turn has ended."""
        self.has_room = asyncio.Event()
        """Set if the turn may send an event. Not set while the turn waits for the reader."""
        self.has_room.set()
        self.reason: StopReason | None = None
        """Why the turn ends; None before. Set once: by `stop`, or at the end of the turn."""
        self.told_to_stop = False
        """True if a stop was requested. `stop_soon` sets this at once, in any thread. The turn stops a little later."""
        self._is_running = False
        """True if `run_to_end` has begun. A task that is cancelled earlier never runs, so the turn would have no Result."""

    def start(self, work: Coroutine[object, None, Ended]) -> None:
        """Run `work` in the task of the turn."""
        self.task = asyncio.ensure_future(work)
        self.task.add_done_callback(lambda _: self.changed.set())

    def checkpoint(self) -> None:
        """Raise CancelledError if the turn has to stop: a tool may have caught the CancelledError that stopped the task."""
        if self.reason is not None:
            raise asyncio.CancelledError

    def record(self, event: Event) -> None:
        """Record an event and send it to the reader, even if the turn has to stop or has ended."""
        self.recorded.append(event)
        if self.is_read:
            self.events.append(event)
            self.changed.set()

    async def emit(self, event: Event) -> None:
        """Send an event. After MOST_UNREAD unread events, wait for the reader. Raises CancelledError if the turn has to stop."""
        self.checkpoint()
        self.record(event)
        if len(self.events) >= MOST_UNREAD and self.reason is None:
            self.has_room.clear()
            await self.has_room.wait()

    def take(self) -> Event:
        """Return the oldest unread event, and let the turn go on if it waits for the reader."""
        self.has_room.set()
        return self.events.popleft()

    def stop(self, reason: StopReason) -> None:
        """Cancel the turn. If this is called twice, the first reason counts. Call this on the turn's own event loop."""
        self.has_room.set()
        if self.reason is None and not self.task.done():
            self.reason, self.told_to_stop = reason, True
            if self._is_running:
                self.task.cancel()

    def stop_soon(self, reason: StopReason) -> None:
        """Cancel the turn. May be called in any thread: a subshell's thread may handle a click, any thread may run `__del__`."""
        loop = self.task.get_loop()
        self.told_to_stop = True
        try:
            here = asyncio.get_running_loop() is loop
        except RuntimeError:
            here = False
        if here:
            self.stop(reason)
            return
        with contextlib.suppress(RuntimeError):  # the loop may be closed already
            loop.call_soon_threadsafe(self.stop, reason)

    async def run_to_end(self, turn: Turn, watch: Watch | None) -> TurnEnd:
        """Run the turn and return how the turn ended, even if the session has stopped it. If other code cancels the task, raise
        CancelledError.
        """
        outcome, note, self._is_running = Outcome(TurnEnd()), "", True
        try:
            self.checkpoint()
            loading = wait_for_import(turn.config.route.model, turn.config.host, turn.observers)
            outcome = Outcome(TurnEnd(), (await attempt(loading)).error)
            if outcome.error is None:
                seconds = turn.config.limits.timeout
                limit = None if seconds is None else TimeLimit(seconds, lambda: self.stop("timeout"))
                with limit or contextlib.nullcontext(), keep_loop_running():
                    if watch is not None:
                        await watch.start()
                    outcome = await attempt(run_turn(turn))
            if self.reason is not None:
                # If the turn ended first, asyncio raises the stop's CancelledError here.
                await asyncio.sleep(0)
        except asyncio.CancelledError as cancelled:
            if self.reason is None:
                raise  # other code has cancelled the task, as asyncio does when the loop shuts down
            note = str(cancelled) if isinstance(cancelled, TurnCancelled) else ""
            # The cancellation is handled, so it must not count any more. Python 3.11 and later count the cancellations of a task.
            getattr(self.task, "uncancel", int)()
        if self.reason is not None:
            ended: TurnEnd = outcome.value if outcome.error is None else TurnEnd("runtime_error")
            return TurnEnd(self.reason, note or (ended.error if ended.reason == "done" else None))
        end: TurnEnd = outcome.value if outcome.error is None else _make_end(outcome.error)
        self.reason = end.reason  # from here on, a stop has no effect
        return end

    async def wait_for_end(self) -> None:
        """Wait until the turn has ended. This works on any event loop. If the turn's own loop is not running, return at once."""
        loop = self.task.get_loop()
        if loop is asyncio.get_running_loop():
            await asyncio.wait({self.task})
        elif not self.task.done() and loop.is_running():
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.wait_for_end(), loop))


def _make_end(error: BaseException) -> TurnEnd:
    """Return the TurnEnd of a turn that raised `error`."""
    if isinstance(error, RunEnded):
        return TurnEnd("cancelled", str(error))
    message = str(error) if isinstance(error, ModelCallFailed) else log_unexpected(error)
    return TurnEnd("runtime_error", message)


class Turns(Protocol):
    """The part of a session that a stream uses."""

    config: Config

    async def begin(self, given: PromptLike, *, streamed: bool, observers: Sequence[Observer]) -> Channel:
        """Start a turn."""


class AsyncEventStream:
    """Async iterator over the events of one turn. `Done` is the last event. When `Done` has been read, `.result` is set.

    If `permissions` are "ask" and there is no `on_approval`, answer each `Approval` before you read the next event. Reading the
    next event denies an Approval that has no answer. LiteLLM has the same rule.
    """

    _channel: Channel | None = None  # set on the class: `__del__` runs even if `__init__` has failed
    _cancelled = False

    def __init__(
        self, session: Turns, prompt: PromptLike, *, streamed: bool, observers: Sequence[Observer] = ()
    ) -> None:
        """`streamed`: True if somebody reads the events. If there is no `on_approval`, the reader answers the Approvals. If
        `streamed` is False, call `collect`.
        """
        self._session, self._prompt, self._streamed = session, prompt, streamed
        self._asked: Approval | None = None
        self.result: Result | None = None
        """The Result of the turn; None before `Done` has been read or the stream has been closed."""
        self._ended = False
        self._observers = tuple(observers)

    def observe(self, observer: Observer) -> bool:
        """Add an observer of this turn's steps, and return True. If the turn has begun, only return False."""
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
        """Return who decides about this turn's tool calls: "callback", "reader", "host" or "nobody"."""
        return find_approver(self._session.config, streamed=self._streamed)

    def __aiter__(self) -> AsyncEventStream:
        return self

    async def __anext__(self) -> Event:
        if self._ended:
            raise StopAsyncIteration
        channel = self._channel or await self._begin()
        if self._asked is not None:
            if not channel.told_to_stop:  # after a stop, `wait_for_decision` denies the Approval
                self._asked.deny(NOT_ANSWERED, by="unattended")
            self._asked = None
        while not (channel.events or channel.task.done()):
            channel.changed.clear()
            await self._wait(channel, channel.changed.wait())
        if channel.events:
            event = channel.take()
            if isinstance(event, Approval) and self.approver == "reader":
                self._asked = event  # for the reader of this stream to answer
            return event
        # If other code has cancelled the task, `result()` raises CancelledError, and the stream ends after that.
        self._ended = channel.task.cancelled() or self.result is not None
        result, invalid = channel.task.result()
        if not self._ended:
            self.result = result
            return Done(result)
        raise StopAsyncIteration if invalid is None else invalid

    async def collect(self) -> Result:
        """Run the turn to its end and return its Result. This is for a stream whose events nobody reads. Raises OutputInvalid."""
        channel = await self._begin()
        await self._wait(channel, asyncio.wait({channel.task}))
        self._ended = True
        self.result, invalid = channel.task.result()
        if invalid is not None:
            raise invalid
        return self.result

    async def _begin(self) -> Channel:
        self._channel = await self._session.begin(
            self._prompt, streamed=self._streamed, observers=self._observers
        )
        if self._cancelled:
            self._channel.stop("cancelled")
        return self._channel

    async def _wait(self, channel: Channel, what: Awaitable[object]) -> None:
        """Await `what`. If the waiting task is cancelled, stop the turn, wait up to WIND_DOWN seconds for its end, and raise a
        CancelledError that says that the run was stopped.
        """
        try:
            await what
        except asyncio.CancelledError as error:
            channel.stop("cancelled")
            task, note = channel.task, None
            with contextlib.suppress(asyncio.CancelledError):  # cancelled again: do not wait any longer
                await asyncio.wait({task}, timeout=WIND_DOWN)
            if task.done() and not task.cancelled() and task.exception() is None:
                note = task.result().result.error
            error.args = (f"{STOPPED}; {note}" if note else STOPPED,)
            await self._session.config.host.stopped(error)
            raise

    def cancel(self) -> None:
        """Stop the turn. This works in any thread. The stream still ends with `Done(stop_reason="cancelled")`."""
        self._cancelled = True
        if self._channel is not None and not self._channel.task.done():
            self._channel.stop_soon("cancelled")

    async def aclose(self) -> None:
        """Stop the turn and wait until it has ended."""
        self._ended = True
        if self._channel is not None:
            self._channel.stop("cancelled")
            await self._channel.wait_for_end()
            if self.result is None and not self._channel.task.cancelled():
                self.result = self._channel.task.result().result

    close = aclose

    __del__ = cancel


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
        async def read() -> Event | None:  # `anext(stream, None)` does not pass a cancel on (Python 3.11)
            try:
                return await self._stream.__anext__()
            except StopAsyncIteration:
                return None

        try:
            event: Event | None = self._run_sync(read)
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
