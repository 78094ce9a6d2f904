"""Run code that is not ours (a tool's body, a callback, a provider's adapter) without letting it break the loop.

`attempt` is the one place of the package that catches every exception.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from .guard import Raised, attempt_call, describe_error, get_message, is_interrupt
from .threads import in_thread

WAS_CANCELLED = "what it waited for was cancelled"
NOT_TO_STOP = "code of a run must not stop the event loop that the run is on"


class RunEnded(Exception):
    """Foreign code raised KeyboardInterrupt: the run ends, the kernel lives."""


class Cancelled(Exception):
    """Something that foreign code awaited was cancelled, though the run was not."""


@dataclass(frozen=True)
class Outcome:
    """What came of foreign code: `value`, or the `error` that it raised."""

    value: Any = None
    error: BaseException | None = None


async def attempt(work: Awaitable[Any]) -> Outcome:
    """Await foreign code; whatever it raises is returned, not raised. Cancellation goes through.

    KeyboardInterrupt becomes `RunEnded` here, inside the task: asyncio raises it (and SystemExit) out of the event
    loop itself, which would end the kernel.
    """
    task = asyncio.current_task()
    try:
        return Outcome(await work)
    except asyncio.CancelledError as error:
        if _is_cancelled():
            raise
        return Outcome(error=Cancelled(get_message(error) or WAS_CANCELLED))
    except BaseException as error:
        if isinstance(error, GeneratorExit) and not _is_at_work(task):
            raise
        return Outcome(error=RunEnded(describe_error(error)) if is_interrupt(error) else error)


async def attempt_apart(work: Awaitable[Any]) -> Outcome:
    """Like `attempt`, in a task of the work's own: one that cancels its task has failed, and the run is not cancelled.

    A cancel of ours is passed on. Without the task nobody could tell whose cancellation it is, and a GeneratorExit
    that comes out of a future would end all that awaits it.
    """
    task, cancelled = asyncio.ensure_future(attempt(work)), False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
            if not task.cancel():  # it has come to its end by itself
                raise
    outcome = Outcome(error=Cancelled(WAS_CANCELLED)) if task.cancelled() else task.result()
    if cancelled and isinstance(outcome.error, Cancelled):
        raise asyncio.CancelledError
    return outcome


def _is_at_work(task: asyncio.Task[Any] | None) -> bool:
    """Whether this is a step of the task; else its coroutine is being closed, which raises GeneratorExit in it."""
    try:
        return asyncio.current_task() is task
    except RuntimeError:  # no loop is running any more
        return False


_kept_going: ContextVar[asyncio.AbstractEventLoop | None] = ContextVar("toolloop_kept_going", default=None)
"""The loop that code of this context must not stop."""
_keeping: Counter[int] = Counter()
"""How many runs are on the loop with this id."""


@contextmanager
def keep_loop_running() -> Iterator[None]:
    """While entered, `loop.stop()` raises RuntimeError in this task and what it starts, and does its work for all others.

    A tool that stops the loop would end the kernel, or the script that waits for the run. Does nothing for a loop
    that takes no `stop` of ours, or has somebody else's.
    """
    loop: Any = asyncio.get_running_loop()
    ours, stop = _keeping[id(loop)] > 0, loop.stop
    if not ours and "stop" in getattr(loop, "__dict__", {"stop": stop}):
        yield
        return

    def stop_for_others() -> None:
        if _kept_going.get() is loop and _keeping[id(loop)]:
            raise RuntimeError(NOT_TO_STOP)
        stop()

    _kept_going.set(loop)  # not taken back: the context ends with the task
    if not ours:
        loop.stop = stop_for_others
    _keeping[id(loop)] += 1
    try:
        yield
    finally:
        _keeping[id(loop)] -= 1
        if not _keeping[id(loop)]:
            del _keeping[id(loop)], loop.stop


def _is_cancelled() -> bool:
    """Whether the current task is being cancelled; Python 3.10 cannot tell, so there every CancelledError counts."""
    task = asyncio.current_task()
    return task is None or not hasattr(task, "cancelling") or task.cancelling() > 0


async def call_function(
    function: Callable[[], Any],
    *,
    check: Callable[[], None],
    thread: bool,
    on_item: Callable[[object], None],
    on_left_behind: Callable[[bool], None] | None = None,
) -> Any:
    """Call a tool's function (its arguments already bound) and return its value, whatever kind of function it is.

    A coroutine function runs on the loop; so does anything awaitable that a plain function returns. Everything else
    runs in a worker thread, or on the loop's own thread with `thread=False`. The items of a generator are the
    result, a list (`FirstItems` where it gave more than are kept); each is told to `on_item` as it comes. `check` is called on the function's thread right before it;
    what it raises is raised in the function's stead.
    """

    def run() -> object:
        check()
        value = function()
        return _drain(value, on_item) if inspect.isgenerator(value) else value

    target = getattr(function, "func", function)
    if inspect.iscoroutinefunction(target) or inspect.isasyncgenfunction(target) or not thread:
        value = run()
    else:
        value = await in_thread(run, on_left_behind)
    if inspect.isasyncgen(value):
        return await _adrain(value, on_item)
    if inspect.isawaitable(value):
        return await value
    return value


# --- generators -----------------------------------------------------------------------------------------------

KEPT_ITEMS = 20_000
"""Items of a generator that are its result; of more the first ones, and how many there were."""
KEPT_BYTES = 100_000_000
"""About so many bytes of them, as the items themselves say."""
MOST_ITEMS = 1_000_000
"""Items after which a generator is ended."""
_BREATH = 100
"""Items of an async generator after which the loop has a turn: one that awaits nothing would hold it."""


class FirstItems(list[Any]):
    """The first items of a generator that gave more than are kept."""

    given: int = 0
    """How many it gave."""


class TooManyItems(Exception):
    """A generator gave more than MOST_ITEMS items."""

    def __init__(self) -> None:
        super().__init__(
            f"the generator gave more than {MOST_ITEMS:,} items and was ended; nothing of them is kept"
        )


class _Items:
    """Collects what a generator gives, within bounds."""

    def __init__(self, on_item: Callable[[object], None]) -> None:
        self._on_item = on_item
        self._kept: list[Any] = []
        self._bytes = 0
        self.count = 0

    def take(self, item: object) -> None:
        """Take one more. Raises TooManyItems."""
        self.count += 1
        if self.count > MOST_ITEMS:
            raise TooManyItems
        self._on_item(item)
        if self.count > len(self._kept) + 1 or len(self._kept) == KEPT_ITEMS or self._bytes > KEPT_BYTES:
            return
        size = attempt_call(sys.getsizeof, item)
        self._bytes += 0 if isinstance(size, Raised) else size
        self._kept.append(item)

    def value(self) -> list[Any]:
        """All of them, or `FirstItems`."""
        if self.count == len(self._kept):
            return self._kept
        first = FirstItems(self._kept)
        first.given = self.count
        return first


def _drain(generator: Generator[Any, Any, Any], on_item: Callable[[object], None]) -> list[Any]:
    items = _Items(on_item)
    with contextlib.closing(generator):
        for item in generator:
            items.take(item)
    return items.value()


async def _adrain(generator: AsyncGenerator[Any, Any], on_item: Callable[[object], None]) -> list[Any]:
    items = _Items(on_item)
    async with contextlib.aclosing(generator):
        async for item in generator:
            items.take(item)
            if items.count % _BREATH == 0:
                await asyncio.sleep(0)
    return items.value()
