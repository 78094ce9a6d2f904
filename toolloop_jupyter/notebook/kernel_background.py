"""The steps of a sync stream, all on one loop.

A sync stream is read step by step, and between two steps nobody turns a loop (`OneLoop`). Where none is running, its
turn is therefore on a loop of its own thread, and each step may be asked for by another thread: by a web server's pool,
by a tool's own.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ..core.stream import STOPPED
from .kernel_loop import LISTENS, Interrupted, close_at_exit

T = TypeVar("T")


class OneLoop:
    """Runs the steps of one stream, all on one loop: the one that runs where the first is asked for, or the background one."""

    def __init__(self, run_sync: Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any]) -> None:
        """`run_sync` runs a step on the loop that is running here."""
        self._run_sync = run_sync
        self._loop: asyncio.AbstractEventLoop | None = None

    def __call__(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run `make()` to its end from sync code, in any thread, and return its result. Raises as `drive` does."""
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        loop = self._loop = self._loop or here or _background_loop()
        if loop is here:
            return self._run_sync(make)  # type: ignore[no-any-return]
        if not loop.is_running():
            raise RuntimeError("the event loop on which this stream began has ended: make a new stream")
        if here is None:
            return _elsewhere(loop, make)

        async def awaited() -> T:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(make(), loop))

        return self._run_sync(awaited)  # type: ignore[no-any-return]


def _elsewhere(loop: asyncio.AbstractEventLoop, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run `make()` on a loop of another thread, in the context of this one.

    An interrupt (or what else is raised in this thread) cancels it; an interrupt waits for its end, a second one does not.
    """
    tasks: list[asyncio.Task[T]] = []
    ended, interrupted = threading.Event(), False

    def begin() -> None:
        tasks.append(loop.create_task(make()))
        tasks[0].add_done_callback(lambda _: ended.set())

    def cancel() -> None:  # comes to the loop after `begin`, where that was called
        if tasks:
            tasks[0].cancel()

    asked = False
    while True:
        try:
            if not asked:  # in here: something may be raised at any moment, also right after it
                asked = True
                loop.call_soon_threadsafe(begin)
            while not ended.wait(LISTENS):
                pass
            break
        except KeyboardInterrupt:
            loop.call_soon_threadsafe(cancel)
            if interrupted:
                raise
            interrupted = True
        except BaseException:
            loop.call_soon_threadsafe(cancel)
            raise
    try:
        return tasks[0].result()
    except asyncio.CancelledError as error:
        if interrupted:
            raise Interrupted(str(error) or STOPPED) from None
        raise


_background: list[tuple[asyncio.AbstractEventLoop, threading.Thread]] = []
"""The loop that runs in a thread of its own, once there is one."""
_lock = threading.Lock()
"""Held while it is made."""


def _background_loop() -> asyncio.AbstractEventLoop:
    with _lock:
        # A forked process has the loop, but not the thread.
        if not _background or not _background[-1][1].is_alive():
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=loop.run_forever, name="toolloop-background", daemon=True)
            thread.start()
            _background[:] = [(loop, thread)]
            atexit.register(_end, loop, thread)
        return _background[-1][0]


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    if thread.is_alive():
        loop.call_soon_threadsafe(loop.stop)
        thread.join(1)  # no longer: a tool may block it
    close_at_exit(loop)
