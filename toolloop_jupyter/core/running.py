"""Run code that is not ours (a tool's body, a callback, a provider's adapter) without letting it break the loop.

`attempt` is the one place of the package that catches every exception.

A sync tool runs in a daemon thread of its own, not in asyncio's pool: a thread that a cancelled run leaves behind
must neither use up the pool nor keep the interpreter from ending (the pool's threads are joined at exit).
"""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

STOP_GRACE = 0.2
"""Seconds that a cancelled tool's thread gets to notice that it is stopped."""


class ToolStopped(BaseException):
    """Raised inside the thread of a sync tool whose run was cancelled. Not an Exception: tools must not swallow it."""


class RunEnded(Exception):  # noqa: N818 - a signal, not an error
    """A tool raised KeyboardInterrupt or SystemExit: the run ends, the kernel lives."""


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
    except (KeyboardInterrupt, SystemExit) as exit_request:
        return Outcome(error=RunEnded(f"{type(exit_request).__name__}: {exit_request}".rstrip(": ")))
    except Exception as error:  # noqa: BLE001 - the one place: foreign code may raise anything
        return Outcome(error=error)


async def in_thread(function: Callable[[], Any], on_left_behind: Callable[[bool], None] | None = None) -> Any:
    """Run `function` in a daemon thread with a copy of the current context variables.

    When cancelled, asks the thread to stop (`ToolStopped` is raised in its Python code), waits `STOP_GRACE` seconds
    and reports through `on_left_behind(stopped)` whether it ended or runs on. Its result is dropped then.
    """
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    future: asyncio.Future[Any] = loop.create_future()
    ended = threading.Event()

    def deliver(outcome: BaseException | None, value: object) -> None:
        if future.done():
            return
        if outcome is not None:
            future.set_exception(outcome)
        else:
            future.set_result(value)

    def body() -> None:
        value: object = None
        raised: BaseException | None = None
        try:
            value = context.run(function)
        except ToolStopped:
            raised = asyncio.CancelledError()
        except StopIteration as error:  # a future cannot carry it
            raised = RuntimeError(f"StopIteration: {error}")
        except BaseException as error:  # noqa: BLE001 - carried to the loop, where `attempt` sorts it
            raised = error
        finally:
            ended.set()
        if not loop.is_closed():
            loop.call_soon_threadsafe(deliver, raised, value)

    thread = threading.Thread(target=body, name="toolloop-tool", daemon=True)
    thread.start()
    try:
        return await future
    except asyncio.CancelledError:
        if not ended.is_set():
            stopped = await asyncio.shield(_stop(thread, ended))
            if on_left_behind is not None:
                on_left_behind(stopped)
        raise


async def _stop(thread: threading.Thread, ended: threading.Event) -> bool:
    """Ask the thread's Python code to stop; True when it did within the grace time.

    CPython's `PyThreadState_SetAsyncExc`: raised at the thread's next bytecode, so not while it sleeps or waits in C.
    """
    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident), ctypes.py_object(ToolStopped)
        )
    waited = 0.0
    while waited < STOP_GRACE and not ended.is_set():
        await asyncio.sleep(0.01)
        waited += 0.01
    return ended.is_set()


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
