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

A sync stream is read step by step, and between two steps nobody turns a loop (`OneLoop`). Where none is running, its
turn is therefore on a loop of its own thread, and each step may be asked for by another thread: by a web server's pool,
by a tool's own.

The private names `_run_once`, `_ready`, `_stopping`, `Handle._context`, `_enter_task` and `_leave_task` are the same
in CPython 3.10 to 3.14 (run on 3.10 to 3.13). A public way to turn a running loop would replace them; none is planned.
"""

from __future__ import annotations

import asyncio
import atexit
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")

STOPPED = "the run was stopped"
PATIENCE = 5.0
"""Seconds that a cancelled run may take to clean up before a further interrupt cancels it again."""
_BLOCKED = 0.3
"""Seconds after which a loop that did not take up an interrupt counts as blocked by one of its callbacks."""
_LISTENS = 0.1
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
            self._asked_at, self._taken_up = now, False
            self._loop.call_soon_threadsafe(self._cancel)  # the threadsafe one also wakes a quiet loop
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

    def cancel() -> None:  # comes to the loop after `begin`
        tasks[0].cancel()

    loop.call_soon_threadsafe(begin)
    while True:
        try:
            while not ended.wait(_LISTENS):
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
            return context.run(asyncio.run, make())
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


_kept: list[asyncio.AbstractEventLoop] = []
"""The loop of the main thread, once there is one."""


def _kept_loop() -> asyncio.AbstractEventLoop:
    if not _kept or _kept[-1].is_closed():
        _kept[:] = [asyncio.new_event_loop()]
        atexit.register(_close, _kept[-1])
    return _kept[-1]


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
    _close(loop)


def _close(loop: asyncio.AbstractEventLoop) -> None:
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
