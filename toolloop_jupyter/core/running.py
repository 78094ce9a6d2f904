"""Run code that is not ours (a tool's body, a callback, a provider's adapter) without letting it break the loop.

`attempt` is the one place of the package that catches every exception.

A sync tool runs in a daemon thread of its own, not in asyncio's pool: a thread that a cancelled run leaves behind
must neither use up the pool nor keep the interpreter from ending (the pool's threads are joined at exit).
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import ctypes
import functools
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

TOOL_THREAD = "toolloop-tool"
"""The name of every thread that runs a tool."""
STOP_GRACE = 0.2
"""Seconds that a cancelled tool's thread gets to notice that it is stopped."""


WAS_CANCELLED = "what it waited for was cancelled"


class ToolStopped(BaseException):
    """Raised inside the thread of a sync tool whose run was cancelled. Not an Exception: tools must not swallow it."""


class RunEnded(Exception):
    """A tool raised KeyboardInterrupt or SystemExit: the run ends, the kernel lives."""


class Cancelled(Exception):
    """Something that foreign code awaited was cancelled, though the run was not."""


@dataclass(frozen=True)
class Outcome:
    """What came of foreign code: `value`, or the `error` that it raised."""

    value: Any = None
    error: Exception | None = None


async def attempt(work: Awaitable[Any]) -> Outcome:
    """Await foreign code; an exception is returned, not raised. Cancellation goes through.

    KeyboardInterrupt and SystemExit become `RunEnded` here, inside the task: asyncio raises those two out of the
    event loop itself, which would end the kernel.
    """
    try:
        return Outcome(await work)
    except asyncio.CancelledError as error:
        if _is_cancelled():
            raise
        return Outcome(error=Cancelled(str(error) or WAS_CANCELLED))
    except (KeyboardInterrupt, SystemExit) as exit_request:
        return Outcome(error=RunEnded(f"{type(exit_request).__name__}: {exit_request}".rstrip(": ")))
    except Exception as error:  # noqa: BLE001 - the one place: foreign code may raise anything
        return Outcome(error=error)


async def attempt_apart(work: Awaitable[Any]) -> Outcome:
    """Like `attempt`, and also on Python 3.10 a CancelledError of the work's own is an error of the work.

    3.10 cannot tell whose cancellation it is, so there the work gets a task of its own, which passes ours on.
    """
    if hasattr(asyncio.Task, "cancelling"):
        return await attempt(work)
    task, cancelled = asyncio.ensure_future(attempt(work)), False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
            task.cancel()
    if task.cancelled() and cancelled:
        raise asyncio.CancelledError
    return Outcome(error=Cancelled(WAS_CANCELLED)) if task.cancelled() else task.result()


def _is_cancelled() -> bool:
    """Whether the current task is being cancelled; Python 3.10 cannot tell, so there every CancelledError counts."""
    task = asyncio.current_task()
    return task is None or not hasattr(task, "cancelling") or task.cancelling() > 0


async def in_thread(function: Callable[[], Any], on_left_behind: Callable[[bool], None] | None = None) -> Any:
    """Run `function` in a daemon thread with a copy of the current context variables.

    When cancelled, asks the thread to stop (`ToolStopped` is raised in its Python code), waits `STOP_GRACE` seconds
    and reports through `on_left_behind(stopped)` whether it ended or runs on. Its result is dropped then.
    """
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    future: asyncio.Future[Any] = loop.create_future()
    worker = _Worker(functools.partial(context.run, function), functools.partial(_deliver, loop, future))
    worker.thread.start()
    try:
        return await future
    except asyncio.CancelledError:
        if future.cancelled() and not worker.ended:
            stopped = await asyncio.shield(worker.stop())
            if on_left_behind is not None:
                on_left_behind(stopped)
        raise


def _deliver(
    loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any], value: object, raised: BaseException | None
) -> None:
    """Hand a thread's outcome to the loop; nobody takes it when the wait was cancelled or the loop is closed."""

    def settle() -> None:
        if future.done():
            return
        if raised is not None:
            future.set_exception(raised)
        else:
            future.set_result(value)

    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(settle)


class _Worker:
    """A thread that calls one function and can be asked to stop."""

    def __init__(
        self, function: Callable[[], Any], deliver: Callable[[object, BaseException | None], None]
    ) -> None:
        self._function, self._deliver = function, deliver
        self._lock = threading.Lock()
        self.ended = False
        """Whether the function has returned: from then on the thread is not stopped any more."""
        self.thread = threading.Thread(target=self._run, name=TOOL_THREAD, daemon=True)

    def _run(self) -> None:
        with contextlib.suppress(ToolStopped):  # one that was sent before `ended` may come after it
            value, raised = self._outcome()
            with self._lock:
                self.ended = True
            self._deliver(value, raised)

    def _outcome(self) -> tuple[object, BaseException | None]:
        try:
            return self._function(), None
        except ToolStopped:
            raise
        except StopIteration as error:  # a future cannot carry it
            return None, RuntimeError(f"StopIteration: {error}")
        except BaseException as error:  # noqa: BLE001 - carried to the loop, where `attempt` sorts it
            return None, error

    async def stop(self) -> bool:
        """Ask the thread's Python code to stop; True when it did within the grace time.

        CPython's `PyThreadState_SetAsyncExc`: raised at the thread's next bytecode, so not while it sleeps or waits in C.
        """
        with self._lock:
            if self.thread.ident is not None and not self.ended:
                ident, exception = ctypes.c_ulong(self.thread.ident), ctypes.py_object(ToolStopped)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, exception)
        waited = 0.0
        while waited < STOP_GRACE and self.thread.is_alive():
            await asyncio.sleep(0.01)
            waited += 0.01
        return not self.thread.is_alive()


async def call_function(
    function: Callable[[], Any],
    *,
    thread: bool,
    on_item: Callable[[object], None],
    on_left_behind: Callable[[bool], None] | None = None,
) -> Any:
    """Call a tool's function (its arguments already bound) and return its value, whatever kind of function it is.

    A coroutine function runs on the loop; so does anything awaitable that a plain function returns. Everything else
    runs in a worker thread, or on the loop's own thread with `thread=False`. The items of a generator are the
    result, a list; each is told to `on_item` as it comes.
    """
    target = getattr(function, "func", function)
    if inspect.iscoroutinefunction(target) or inspect.isasyncgenfunction(target) or not thread:
        value = function()
        value = _drain(value, on_item) if inspect.isgenerator(value) else value
    else:
        value = await in_thread(lambda: _drain_if_generator(function(), on_item), on_left_behind)
    if inspect.isasyncgen(value):
        return await _adrain(value, on_item)
    if inspect.isawaitable(value):
        return await value
    return value


def _drain_if_generator(value: object, on_item: Callable[[object], None]) -> object:
    return _drain(value, on_item) if inspect.isgenerator(value) else value


def _drain(items: Iterator[Any], on_item: Callable[[object], None]) -> list[Any]:
    collected = []
    for item in items:
        on_item(item)
        collected.append(item)
    return collected


async def _adrain(items: AsyncIterator[Any], on_item: Callable[[object], None]) -> list[Any]:
    collected = []
    async for item in items:
        on_item(item)
        collected.append(item)
    return collected
