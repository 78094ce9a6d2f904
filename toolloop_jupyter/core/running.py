"""Run code that is not ours (a tool's body, a callback, a provider's adapter) without letting it break the loop.

`attempt` is the one place of the package that catches every exception.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .workers import in_thread

WAS_CANCELLED = "what it waited for was cancelled"


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
