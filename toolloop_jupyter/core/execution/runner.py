"""Run foreign code (a tool's body, a callback, a provider's adapter) in such a way that this code cannot break the loop.

`attempt` and `_Worker.run` catch every exception. Sync code runs in a thread.

The threads are daemon threads and do not belong to asyncio's thread pool. After a cancel, a thread may still run. It must not
take a place in the pool, and it must not prevent the interpreter from ending (at exit, Python waits for the threads of the
pool). A thread that has done its work waits a while for more work, because to start a new thread takes more time than
everything else in a step of the loop. A thread that was asked to stop gets no more work.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import ctypes
import functools
import inspect
import itertools
import queue
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from .guard import Raised, ToolStopped, attempt_call, describe_error, get_message, is_interrupt

WAS_CANCELLED = "the code awaited a task or a future that was cancelled"
NOT_TO_STOP = "code of a run must not stop the event loop that the run is on"
STOP_WAIT = 1.0
"""After a time limit or a cancel, async code has this many seconds to end."""


class RunEnded(Exception):
    """Foreign code raised KeyboardInterrupt. The run ends, but the kernel does not."""


class Cancelled(Exception):
    """Foreign code awaited a task or future that was cancelled. The run itself was not cancelled."""


class ToolTimeout(Exception):
    """A tool took longer than its own `timeout`."""


class Outcome(NamedTuple):
    """How foreign code ended: the `value` that it returned, or the `error` that it raised."""

    value: Any = None
    error: BaseException | None = None


def _fail(error: BaseException) -> Outcome:
    """Return the outcome of code that raised `error`. KeyboardInterrupt becomes `RunEnded`: asyncio would let
    KeyboardInterrupt out of the event loop, and the kernel would end.
    """
    if issubclass(type(error), asyncio.CancelledError):
        return Outcome(error=Cancelled(get_message(error) or WAS_CANCELLED))
    return Outcome(error=RunEnded(describe_error(error)) if is_interrupt(error) else error)


async def attempt(work: Awaitable[object]) -> Outcome:
    """Await foreign code and return its outcome, even if the code raises.

    If the current task is cancelled, CancelledError is raised.
    """
    task = asyncio.current_task()
    try:
        return Outcome(await work)
    except BaseException as error:
        if issubclass(type(error), asyncio.CancelledError) and _is_cancelled(task):
            raise
        if issubclass(type(error), GeneratorExit) and not _is_at_work(task):
            raise
        return _fail(error)


async def attempt_apart(
    work: Awaitable[object], on_left_behind: Callable[[bool], None] | None = None
) -> Outcome:
    """Do the same as `attempt`, but run the work in a separate task. If the work cancels its task, the run continues.

    If the run is cancelled, the work is cancelled, too. If the work then does not end within `STOP_WAIT` seconds, it continues
    to run, and `on_left_behind(False)` is called.

    Without the separate task, a cancel by the work would look like a cancel of the run. And if the work awaited a future that
    raises GeneratorExit, this error would close all coroutines up to the run itself.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def wake(_: object = None) -> None:
        if not ended.done():
            ended.set_result(None)

    async def work_and_wake() -> object:
        value = await work
        wake()  # the task's callback would wake the run one step of the event loop later
        return value

    task = loop.create_task(attempt(work_and_wake()))
    # Needed after an error or a cancel: `work_and_wake` has then not called `wake`.
    task.add_done_callback(wake)
    try:
        await ended
    except asyncio.CancelledError:
        if not task.cancel():  # the work had already ended
            raise
        await asyncio.wait({task}, timeout=STOP_WAIT)
        if not task.done() and on_left_behind is not None:
            on_left_behind(False)
        if not task.done() or task.cancelled() or isinstance(task.result().error, Cancelled):
            raise
    return Outcome(error=Cancelled(WAS_CANCELLED)) if task.cancelled() else task.result()


def _is_at_work(task: asyncio.Task[object] | None) -> bool:
    """Return True if the task runs now. If it does not run, Python raises GeneratorExit in it to close its coroutine."""
    with contextlib.suppress(RuntimeError):  # no event loop runs now
        return asyncio.current_task() is task
    return False


def _is_cancelled(task: asyncio.Task[object] | None) -> bool:
    """Return True if the task is being cancelled. Python 3.10 has no method for this question, so True is returned there."""
    return task is None or not hasattr(task, "cancelling") or task.cancelling() > 0


_protected_loop: contextvars.ContextVar[asyncio.AbstractEventLoop | None] = contextvars.ContextVar(
    "toolloop_kept_going", default=None
)
"""The event loop that code in this context (a run and its tools) must not stop; None outside of a run."""
_runs_on_loop: Counter[int] = Counter()
"""Id of an event loop -> how many runs use this loop."""


@contextlib.contextmanager
def keep_loop_running() -> Iterator[None]:
    """Return a context. In it, `loop.stop()` raises RuntimeError in the current task, and in tasks and threads that it starts.

    If a tool stopped the loop, the kernel would end. Other tasks can still call `loop.stop()`. This context does nothing if
    `loop.stop` cannot be replaced, or if other code has replaced it.
    """
    loop: Any = asyncio.get_running_loop()
    is_replaced, stop = _runs_on_loop[id(loop)] > 0, loop.stop
    if not is_replaced and "stop" in getattr(loop, "__dict__", {"stop": stop}):
        yield
        return

    def stop_for_others() -> None:
        if _protected_loop.get() is loop and _runs_on_loop[id(loop)]:
            raise RuntimeError(NOT_TO_STOP)
        stop()

    _protected_loop.set(loop)  # no reset is needed: the value disappears with the task's context
    if not is_replaced:
        loop.stop = stop_for_others
    _runs_on_loop[id(loop)] += 1
    try:
        yield
    finally:
        _runs_on_loop[id(loop)] -= 1
        if not _runs_on_loop[id(loop)]:
            del _runs_on_loop[id(loop)], loop.stop


async def run_function(
    function: Callable[[], object],
    *,
    thread: bool,
    limit: float | None,
    on_item: Callable[[object], None],
    on_left_behind: Callable[[bool], None],
) -> Outcome:
    """Run a tool's function (sync, async or a generator) and return its outcome. The function is called without arguments.

    If `thread` is True, the function is called in a worker thread, else in the thread of the event loop. If the function
    returns an awaitable, the awaitable is awaited. If the function is a generator, the value is the list of its items, or
    `FirstItems` if there were more items than are kept; `on_item` is called with each item when the item comes. If the
    function takes longer than `limit` seconds, the outcome has the error ToolTimeout. For `on_left_behind`, see `attempt_apart`
    and `attempt_in_thread`.
    """

    def start() -> object:
        value = function()
        if inspect.isgenerator(value):
            return _drain(value, on_item)
        if inspect.isasyncgen(value):
            return _Pending(_drain_async(value, on_item))
        return _Pending(value) if inspect.isawaitable(value) else value

    async def work() -> object:
        value = await run_in_thread(start, on_left_behind) if thread else start()
        return await value.work if type(value) is _Pending else value

    if limit is not None:
        return await attempt_apart(_limit(work(), limit), on_left_behind)
    if not thread:
        return await attempt_apart(work(), on_left_behind)
    outcome = await attempt_in_thread(start, on_left_behind)  # code in a thread cannot cancel this task
    value = outcome.value
    return await attempt_apart(value.work, on_left_behind) if type(value) is _Pending else outcome


class _Pending(NamedTuple):
    """Contains the awaitable that a function returned. Nothing has awaited it yet."""

    work: Awaitable[object]


async def _limit(running: Awaitable[object], limit: float) -> object:
    """Await `running`. After `limit` seconds, raise ToolTimeout. A TimeoutError then always comes from the tool itself."""
    took_longer, began = f"the tool took longer than its timeout of {limit} s", time.monotonic()
    task = asyncio.ensure_future(attempt(running))
    try:
        await asyncio.wait({task}, timeout=limit)
        took = time.monotonic() - began
        if task.done() and (error := task.result().error) is not None:
            raise error
        if task.done() and took <= limit + 0.1:
            return task.result().value
    finally:
        if is_late := not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=STOP_WAIT)
    if not is_late:
        raise ToolTimeout(f"{took_longer}; it blocked the kernel for {took:.1f} s, and its result is dropped")
    raise ToolTimeout(
        took_longer if task.done() else f"{took_longer} and does not stop; its result is dropped"
    )


# --- generators -----------------------------------------------------------------------------------------------

KEPT_ITEMS = 20_000
"""At most this many items of a generator are kept. If there are more, the first items and the total number are kept."""
KEPT_BYTES = 100_000_000
"""After the kept items take this many bytes, no more items are kept. The sizes are estimated (see `_measure`)."""
MOST_ITEMS = 1_000_000
"""A generator that yields more items than this is ended."""
_ITEMS_BEFORE_PAUSE = 100
"""After this many items of an async generator, other tasks may run. A generator that never awaits would block them."""
_MEASURED_PARTS = 1_000


class FirstItems(list[Any]):
    """The first items of a generator that yielded more items than are kept."""

    given: int = 0
    """How many items the generator yielded in total."""


class TooManyItems(Exception):
    """A generator yielded more than MOST_ITEMS items."""


def _measure(item: object) -> int:
    """Return about how many bytes an item takes: the sum of `sys.getsizeof` for the item and its first _MEASURED_PARTS parts."""
    total, parts = 0, [item]
    for part in parts:  # the loop appends to this list
        size = attempt_call(sys.getsizeof, part)
        total += 0 if isinstance(size, Raised) else size
        fields = part if type(part) is dict else attempt_call(getattr, part, "__dict__", None)
        within: Any = fields.values() if type(fields) is dict else part
        if within is not part or type(part) in (list, tuple, set, frozenset, deque):
            # Another thread may change the parts meanwhile, and then `list` raises.
            some: Any = attempt_call(list, itertools.islice(within, _MEASURED_PARTS - len(parts)))
            parts += some if type(some) is list else []
    return total


class _Items:
    """Collects the items of a generator, up to KEPT_ITEMS items and about KEPT_BYTES bytes."""

    def __init__(self, on_item: Callable[[object], None]) -> None:
        self._on_item = on_item
        self._kept = FirstItems()
        self._bytes = 0
        self._is_full = False

    def take(self, item: object) -> int:
        """Add an item, and return the number of items so far. Raises TooManyItems if there are more than MOST_ITEMS items."""
        self._kept.given += 1
        if self._kept.given > MOST_ITEMS:
            raise TooManyItems(
                f"the generator gave more than {MOST_ITEMS:,} items and was ended; none of them is kept"
            )
        self._on_item(item)
        self._is_full = self._is_full or len(self._kept) == KEPT_ITEMS or self._bytes > KEPT_BYTES
        if not self._is_full:
            self._bytes += _measure(item)
            self._kept.append(item)
        return self._kept.given

    def value(self) -> list[Any]:
        """Return the list of all items, or `FirstItems` if some items were not kept."""
        return self._kept if self._is_full else list(self._kept)


def _drain(generator: Generator[Any, Any, Any], on_item: Callable[[object], None]) -> list[Any]:
    items = _Items(on_item)
    with contextlib.closing(generator):
        for item in generator:
            items.take(item)
    return items.value()


async def _drain_async(generator: AsyncGenerator[Any, Any], on_item: Callable[[object], None]) -> list[Any]:
    items = _Items(on_item)
    async with contextlib.aclosing(generator):
        async for item in generator:
            if items.take(item) % _ITEMS_BEFORE_PAUSE == 0:
                await asyncio.sleep(0)
    return items.value()


# --- threads --------------------------------------------------------------------------------------------------

TOOL_THREAD = "toolloop-tool"
"""The name of a thread while it runs a tool."""
IDLE_THREAD = "toolloop-idle"
"""The name of a thread that waits for work."""
IDLE = 5.0
"""Seconds that a thread waits for work before it ends."""
STOP_GRACE = 0.2
"""After a cancel, the thread of a tool has at most this many seconds to stop."""


async def run_in_thread(
    function: Callable[[], object], on_left_behind: Callable[[bool], None] | None = None
) -> Any:
    """Run `function` in a daemon thread (see `attempt_in_thread`). Return its value, or raise its exception."""
    outcome = await attempt_in_thread(function, on_left_behind)
    if outcome.error is not None:
        raise outcome.error
    return outcome.value


async def attempt_in_thread(
    function: Callable[[], object], on_left_behind: Callable[[bool], None] | None = None
) -> Outcome:
    """Run `function` in a daemon thread, with a copy of the current context variables. Return the outcome.

    If the awaiting task is cancelled, the thread is asked to stop: `ToolStopped` is raised in its Python code. When the thread
    has stopped, `on_left_behind(True)` is called. If it still runs after `STOP_GRACE` seconds, `on_left_behind(False)` is called.
    """
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    # The future gets an Outcome, and never an exception: a GeneratorExit in it would close every coroutine that awaits it.
    future: asyncio.Future[Outcome] = loop.create_future()

    def settle(outcome: Outcome) -> None:
        if not future.done():
            future.set_result(outcome)

    def deliver(outcome: Outcome) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, outcome)

    job = _Job(functools.partial(context.run, function), deliver)
    worker = _Worker.assign(job)
    try:
        return await future
    except asyncio.CancelledError:
        if future.cancelled() and not job.ended:
            stopped = await asyncio.shield(worker.stop(job))
            if on_left_behind is not None:
                on_left_behind(stopped)
        raise


@dataclass(eq=False)
class _Job:
    """A function that a thread calls, and a callback that gets the outcome of the function."""

    function: Callable[[], object]
    deliver: Callable[[Outcome], None]
    ended: bool = False
    """True if the function has ended. From then on, its thread is no longer asked to stop."""


_waiting: list[_Worker] = []
"""The workers that have no job, in the order in which they finished their jobs."""
STOP_LOCK = threading.RLock()
"""A thread holds this lock while a worker enters or leaves `_waiting`, and while a worker is asked to stop. So code that
holds the lock is not stopped halfway."""


class _Worker(threading.Thread):
    """A thread that runs one job after the other. It ends if no job comes for IDLE seconds, or if it was asked to stop."""

    def __init__(self) -> None:
        super().__init__(name=TOOL_THREAD, daemon=True)
        self.jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._asked_to_stop = False

    @classmethod
    def assign(cls, job: _Job) -> _Worker:
        """Give the job to a waiting worker, or to a new worker. Return the worker that got the job."""
        with STOP_LOCK:
            while _waiting:
                worker = _waiting.pop()
                if worker.is_alive():  # a forked process has the list, but not the threads
                    worker.jobs.put(job)
                    return worker
        worker = cls()
        worker.jobs.put(job)
        worker.start()
        return worker

    def run(self) -> None:
        with contextlib.suppress(ToolStopped):  # ToolStopped may be raised late, after the job has ended
            while (job := self._next()) is not None:
                self.name = TOOL_THREAD
                try:
                    outcome = Outcome(job.function())
                except ToolStopped:
                    raise
                except BaseException as error:  # noqa: BLE001 - the loop gets the error in the Outcome
                    outcome = _fail(error)
                # A tool may have set an event loop. The next tool must not get this loop.
                asyncio.set_event_loop(None)
                with STOP_LOCK:
                    job.ended = True
                    takes_more = not self._asked_to_stop
                    # This comes before the outcome is delivered: then the next call can find this thread.
                    if takes_more:
                        self.name = IDLE_THREAD
                        _waiting.append(self)
                job.deliver(outcome)
                del job, outcome  # otherwise, the waiting thread would keep a tool's objects in memory
                if not takes_more:
                    return

    def _next(self) -> _Job | None:
        try:
            return self.jobs.get(timeout=IDLE)
        except queue.Empty:
            with STOP_LOCK:
                if self in _waiting:
                    _waiting.remove(self)
                    return None
            return self.jobs.get()  # `assign` has just taken this worker from the list, and gives it a job

    async def stop(self, job: _Job) -> bool:
        """Ask the thread's Python code to stop. Return True if `job` or the thread ended within `STOP_GRACE` seconds.

        CPython's `PyThreadState_SetAsyncExc` raises ToolStopped when the thread runs its next bytecode. A thread that
        sleeps or waits in C code stops only after it has returned from the C code.
        """
        with STOP_LOCK:
            if self.ident is not None and not job.ended:
                self._asked_to_stop = True
                ident, exception = ctypes.c_ulong(self.ident), ctypes.py_object(ToolStopped)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, exception)
        until = time.monotonic() + STOP_GRACE  # on a busy machine, each sleep takes longer than it should
        # A thread that ToolStopped ends cannot set an event of this loop.
        while time.monotonic() < until and self.is_alive() and not job.ended:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return job.ended or not self.is_alive()


# --- the time limit of a run ----------------------------------------------------------------------------------

_limits: contextvars.ContextVar[tuple[TimeLimit, ...]] = contextvars.ContextVar(
    "toolloop_time_limits", default=()
)
"""The time limits that apply to the present code. There are several if a tool of a run begins another run."""
_SHORTEST_DELAY = 0.01
"""The shortest time, in seconds, after which a time limit looks at the clock again."""


class TimeLimit:
    """A context manager. When its context has lasted for `seconds`, it calls `reached` on the running event loop.

    The time in `uncounted()` does not count.
    """

    def __init__(self, seconds: float, reached: Callable[[], None]) -> None:
        self._seconds, self._reached = seconds, reached
        self._lock = threading.Lock()  # a tool's thread may call `count_wait`, too
        self._deadline = self._wait_began = 0.0
        self._waits = 0
        """The number of `uncounted()` contexts that are open now."""
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle
        self._token: contextvars.Token[tuple[TimeLimit, ...]]

    def __enter__(self) -> None:
        self._deadline = self._now() + self._seconds
        self._timer = self._loop.call_later(self._seconds, self._look)
        self._token = _limits.set((*_limits.get(), self))

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        # A task that still runs may keep this object in memory. The callback is removed, so that it does not keep the run in
        # memory, too.
        del self._reached
        with contextlib.suppress(ValueError):  # the garbage collector may call this in another context
            _limits.reset(self._token)

    def count_wait(self, change: int) -> None:
        """Note that a wait begins (`change` is 1) or ends (-1). When no wait is left, move the deadline by the time waited."""
        with self._lock:
            if not self._waits:
                self._wait_began = self._now()
            self._waits += change
            if not self._waits:
                self._deadline += self._now() - self._wait_began

    def _now(self) -> float:
        return self._loop.time()

    def _look(self) -> None:
        with self._lock:
            left, is_waiting = self._deadline - self._now(), bool(self._waits)
        if left <= 0 and not is_waiting:
            self._reached()
        else:
            self._timer = self._loop.call_later(max(left, _SHORTEST_DELAY), self._look)


@contextlib.contextmanager
def uncounted() -> Iterator[None]:
    """Return a context. The time inside it does not count for any `TimeLimit` around it."""
    limits = _limits.get()
    for limit in limits:
        limit.count_wait(1)
    try:
        yield
    finally:
        for limit in limits:
            limit.count_wait(-1)
