"""The events of one turn on their way to whoever reads them, and the way back: a stop."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from ..events import Event, OutputInvalid, Result, Retry, StopReason, Text

MOST_UNREAD = 256
"""Events that may wait for their reader before the turn waits for it."""


class Ended(NamedTuple):
    """What a turn leaves: its Result, and what is raised behind it."""

    result: Result
    invalid: OutputInvalid | None


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


def join_shown_text(events: Sequence[Event]) -> str:
    """All the text of a turn, as it was shown: without what a retry has taken back."""
    text = ""
    for event in events:
        if isinstance(event, Text):
            text += event.delta
        elif isinstance(event, Retry) and event.discard:
            text = text.removesuffix(event.discard)
    return text
