"""Waiting for a coroutine from sync code, and what an interrupt does meanwhile. Knows asyncio, not ipykernel.

How a loop that is already running is entered again (`_nested`): asyncio forbids it for four reasons, and each is
met here for the time of the wait alone, so nothing of asyncio stays changed afterwards:

    1. `run_until_complete` refuses a running loop.   We turn the loop ourselves, one `_run_once` at a time.
    2. A task step refuses to start inside another.   The outer task is taken off (`_leave_task`), then put back.
    3. The outer turn has counted the handles that    If we ran some of them, as many empty ones are put in their
       it is going to run, and would find none left.  place before we return.
    4. A handle whose context is entered further up   It runs in a copy of that context. ipykernel 7 runs all cells
       the stack cannot run ("cannot enter context"). in one context, so this is every message behind the cell.

nest_asyncio does 1 to 3 by replacing Task, Future, run and the loop's methods for good; its continuation
nest_asyncio2 (1.7.4) keeps the handles of 4 back until the nested run has ended, and a click is one of them. Either
may have been applied by somebody else: what is done here holds with it, without it, and on Python 3.14.

The private names `_run_once`, `_ready`, `_stopping`, `Handle._context`, `_enter_task` and `_leave_task` are the same
in CPython 3.10 to 3.14 (run on 3.10 to 3.13). A public way to turn a running loop would replace them; none is planned.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context
from types import FrameType
from typing import Any, TypeVar

from ..core.stream import STOPPED

T = TypeVar("T")

PATIENCE = 5.0
"""Seconds that a cancelled run may take to clean up before a further interrupt cancels it again."""
_BLOCKED = 0.3
"""Seconds after which a loop that did not take up an interrupt counts as blocked by one of its callbacks."""
LISTENS = 0.1
"""Seconds after which a thread that waits for a step looks up: only then does Python stop it (a cancelled tool; Windows)."""
_AFTERWARDS = 0.3
"""Seconds after an interrupt in which a cell that it has ended stays, so that a second one of a nervous finger still
falls on it. Between two cells it would hit ipykernel itself (6.17 to 7.4), which then never answers one of them."""
_SHUTDOWN_GRACE = 2.0
"""Seconds that a run may take to clean up when its loop is being stopped (the kernel shuts down)."""


class Interrupted(KeyboardInterrupt):
    """An interrupt that a run in sync code has taken up. The kernel shows it as one line.

    A traceback of some fifteen frames would say no more, and while IPython makes it a second interrupt can hit it.
    """

    def _render_traceback_(self) -> list[str]:
        return [f"KeyboardInterrupt: {self}"]


class Interrupts:
    """While entered, SIGINT cancels `task` instead of raising KeyboardInterrupt in whatever runs just then.

    The first interrupt cancels; those within `PATIENCE` seconds do nothing, so cleanup is not disturbed. When a
    callback blocks the loop, so that the first could not take effect, the next one raises KeyboardInterrupt there.
    Does nothing outside the main thread: Python handles signals there alone.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any] | None) -> None:
        self._loop, self._task = loop, task
        self._found: Any = None
        self._asked_at: float | None = None
        self._taken_up = False

    def __enter__(self) -> Interrupts:
        if (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is not None
        ):
            self._found = signal.signal(signal.SIGINT, self._interrupt)
            _listening.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._found is not None:
            _listening.remove(self)
            # Somebody who came later (a cell that ended meanwhile) may have put back a handler of its own.
            if signal.getsignal(signal.SIGINT) == self._interrupt:
                signal.signal(signal.SIGINT, self._found)

    @property
    def happened(self) -> bool:
        """Whether an interrupt came."""
        return self._asked_at is not None

    def note(self) -> None:
        """An interrupt broke into blocking code (`interruptible`), which may be in a task of its own: it cancels, too."""
        self._asked_at = time.monotonic()
        self._loop.call_soon(self._cancel)

    def let_a_second_one_pass(self) -> None:
        """Wait as the function of that name does, in sync code."""
        if self._asked_at is not None:
            time.sleep(max(0.0, self._asked_at + _AFTERWARDS - time.monotonic()))

    def _interrupt(self, signum: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._asked_at is None or (self._taken_up and now - self._asked_at > PATIENCE):
            for run in _listening:  # the runs around this one, too: a tool may have called `agent()`
                run._asked_at, run._taken_up = now, False
                run._loop.call_soon_threadsafe(run._cancel)  # the threadsafe one also wakes a quiet loop
            outermost = _listening[0]._found
            if str(getattr(outermost, "__module__", "")).startswith("ipykernel"):
                outermost(signum, frame)  # it cancels the awaited cell around them
        elif not self._taken_up and now - self._asked_at > _BLOCKED:
            raise KeyboardInterrupt

    def _cancel(self) -> None:
        self._taken_up = True
        if self._task is not None:
            self._task.cancel()


_listening: list[Interrupts] = []
"""Those entered in the main thread, innermost last."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Let an interrupt break into blocking code on the loop's own thread; it comes out as `CancelledError`.

    For a sync tool that runs on the loop, and for `input()` in a terminal. Elsewhere an interrupt waits until the
    loop turns again. Does nothing outside the main thread.
    """
    found = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or found is None:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        if _listening:
            _listening[-1].note()
        elif callable(found):  # a kernel's own, which cancels the cell
            found(signal.SIGINT, None)
        raise asyncio.CancelledError from None
    finally:
        signal.signal(signal.SIGINT, found)


async def uninterrupted(awaitable: Awaitable[T]) -> T:
    """Await a run so that it can be cancelled, but not while it cleans up.

    The first cancel of the awaiting task is handed on to the run; later ones within `PATIENCE` seconds are not. What
    the run then returns is returned (and the cancel is thereby settled); its `CancelledError` is raised.
    """
    run = asyncio.ensure_future(awaitable)
    asked_at, swallowed = None, 0
    while not run.done():
        try:
            await asyncio.wait([run])
        except asyncio.CancelledError:
            swallowed += 1
            if asked_at is None or time.monotonic() - asked_at > PATIENCE:
                asked_at = time.monotonic()
                run.cancel()
    if asked_at is not None:
        swallowed += await let_a_second_one_pass(asked_at)
    if swallowed and not run.cancelled():
        task: Any = asyncio.current_task()
        for _ in range(swallowed if hasattr(task, "uncancel") else 0):  # Python >= 3.11 counts cancels
            task.uncancel()
    return run.result()


async def let_a_second_one_pass(asked_at: float) -> int:
    """Wait as long as an interrupt may follow at once upon the one at `asked_at` (monotonic); returns how many it ignored."""
    ignored = 0
    while (left := asked_at + _AFTERWARDS - time.monotonic()) > 0:
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            ignored += 1
    return ignored


def drive(
    make: Callable[[], Coroutine[Any, Any, T]],
    context: Context,
    idle: asyncio.AbstractEventLoop | None = None,
) -> T:
    """Run `make()` as a task in `context` to its end and return its result, whether or not a loop runs here.

    `idle` is the loop to use in the main thread when none is running; without it one loop is kept for all calls
    (LiteLLM's logging worker complains, in the output, about every change of loops).

    Raises what the coroutine raises; Interrupted (a KeyboardInterrupt) when an interrupt came and the coroutine let the cancel pass.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        if threading.current_thread() is not threading.main_thread():
            return context.run(asyncio.run, _ticking(make()))
        loop = idle or _kept_loop()
        wait = _outermost
    else:
        if not isinstance(loop, asyncio.BaseEventLoop):
            raise RuntimeError(
                f"the running loop is a {type(loop).__name__}, which cannot be entered from sync code: "
                "use `await aagent(...)` instead of `agent(...)`"
            ) from None
        wait = _nested
    task = context.run(loop.create_task, make())
    with Interrupts(loop, task) as interrupts:
        wait(loop, task)
        interrupts.let_a_second_one_pass()
    if task.cancelled() and interrupts.happened:
        raise Interrupted(STOPPED)
    return task.result()


async def _ticking(work: Coroutine[Any, Any, T]) -> T:
    """Wake the loop again and again: what is raised in this thread from outside (a tool's stop) breaks in only then."""
    loop = asyncio.get_running_loop()
    timer: list[asyncio.TimerHandle] = []

    def tick() -> None:
        timer[:] = [loop.call_later(LISTENS, tick)]

    tick()
    try:
        return await work
    finally:
        timer[0].cancel()


def _outermost(loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
    waiter = loop.create_task(asyncio.wait([task]))
    while not waiter.done():
        try:
            loop.run_until_complete(waiter)
        except KeyboardInterrupt:  # raised in a callback that blocked the loop; the task is cancelled already
            continue


def _nested(loop: Any, task: asyncio.Task[Any]) -> None:
    outer = asyncio.current_task(loop)
    counted = len(loop._ready)
    if outer is not None:
        asyncio.tasks._leave_task(loop, outer)
    try:
        stopping_since = None
        while not task.done():
            _free_contexts(list(loop._ready))
            try:
                # BaseEventLoop's own, also where nest_asyncio has put another on the loop's class.
                asyncio.BaseEventLoop._run_once(loop)  # type: ignore[attr-defined]
            except KeyboardInterrupt:
                continue  # as in _outermost
            if loop._stopping:  # the kernel shuts down: a loop told to stop no longer waits, it spins
                if stopping_since is None:
                    stopping_since = time.monotonic()
                    task.cancel()
                elif time.monotonic() - stopping_since > _SHUTDOWN_GRACE:
                    raise RuntimeError("the event loop was stopped while a run was waiting")
                time.sleep(0.001)
    except BaseException:
        task.cancel()
        raise
    finally:
        if outer is not None:
            asyncio.tasks._enter_task(loop, outer)
        while len(loop._ready) < counted:
            loop.call_soon(_nothing)


def _free_contexts(handles: list[Any]) -> None:
    """Give a copy of its context to each handle whose context is entered further up the stack."""
    for handle in handles:
        try:
            handle._context.run(_nothing)
        except RuntimeError:
            handle._context = handle._context.copy()


def _nothing() -> None:
    pass


_kept: list[tuple[asyncio.AbstractEventLoop, int]] = []
"""The loop of the main thread, once there is one, and the process that made it: a forked one cannot use it."""


def _kept_loop() -> asyncio.AbstractEventLoop:
    if not _kept or _kept[-1][0].is_closed() or _kept[-1][1] != os.getpid():
        _kept[:] = [(asyncio.new_event_loop(), os.getpid())]
        atexit.register(close_at_exit, _kept[-1][0])
    return _kept[-1][0]


def close_at_exit(loop: asyncio.AbstractEventLoop) -> None:
    """End what is left on a loop at exit, as `asyncio.run` does after each call."""
    if loop.is_closed() or loop.is_running():
        return
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=1))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
