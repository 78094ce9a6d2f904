"""Interrupts (■ in a front-end, Ctrl-C): they cancel a run, and let it clean up.

An interrupt comes as SIGINT, in the main thread. It reaches a run in one of two ways. A run in sync code, or in an awaited cell
of a terminal IPython, has its own handler of the signal (`Interrupts`). In an awaited cell of a kernel, ipykernel's handler
cancels the cell's task, and that cancel reaches the run (`await_with_cleanup`).
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Awaitable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType
from typing import Any, TypeVar

from .where import get_shell

T = TypeVar("T")

PATIENCE = 5.0
"""Seconds that a cancelled run has to clean up. After that time, a further interrupt cancels the run again."""
_BLOCKED = 0.3
"""If a loop has not handled an interrupt after so many seconds, one of its callbacks blocks it."""
LOOK_UP = 0.1
"""Seconds after which a waiting loop or thread wakes up. Python handles a signal, or an exception raised from another thread,
only between two of its own steps. A signal that comes just before `select()` would wait until `select()` returns, perhaps as
long as a tool's timeout. (If ■ was pressed at once, this happened once in 150 times.)"""
_REPEATED = 0.5
"""Seconds in which a second interrupt counts as the same one. The interrupted cell ends only after that time: an interrupt
between two cells would hit ipykernel itself (6.17 to 7.4), which then never answers one of the two."""


class Interrupted(KeyboardInterrupt):
    """An interrupt that has ended a run in sync code. The kernel shows it as one line.

    A traceback of some fifteen frames would say no more, and a second interrupt could hit IPython while it makes the traceback.
    """

    def _render_traceback_(self) -> list[str]:
        return [f"KeyboardInterrupt: {self}"]


class Interrupts:
    """While entered, SIGINT cancels `task`, and does not raise KeyboardInterrupt in the code that happens to run.

    The first interrupt cancels. Further ones within `PATIENCE` seconds do nothing, so that they do not disturb the cleanup. If
    a callback blocks the loop, the first interrupt has no effect; the next one raises KeyboardInterrupt in the callback. Does
    nothing outside the main thread, since Python handles signals only there.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[object] | None) -> None:
        self._loop, self._task = loop, task
        self._handler_before: Any = None
        self._came_at: float | None = None
        self._taken_up = False
        self._next_look: asyncio.TimerHandle | None = None

    def __enter__(self) -> Interrupts:
        if _can_handle_signals():
            self._handler_before = signal.signal(signal.SIGINT, self._interrupt)
            _entered.append(self)
            self._look_up()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._handler_before is not None:
            _entered.remove(self)
            if self._next_look is not None:
                self._next_look.cancel()
            # A cell that ended meanwhile may have put back a handler of its own.
            if signal.getsignal(signal.SIGINT) == self._interrupt:
                signal.signal(signal.SIGINT, self._handler_before)

    @property
    def happened(self) -> bool:
        """True if an interrupt came."""
        return self._came_at is not None

    def cancel_soon(self) -> None:
        """Cancel the task. Called after an interrupt has broken into blocking code, which may run in another task."""
        self._came_at = time.monotonic()
        self._loop.call_soon(self._cancel)

    def ignore_repeated_interrupt(self) -> None:
        """If an interrupt came, wait as long as a second interrupt counts as the same one."""
        if self._came_at is not None:
            time.sleep(max(0.0, self._came_at + _REPEATED - time.monotonic()))

    def _interrupt(self, signum: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._came_at is None or (self._taken_up and now - self._came_at > PATIENCE):
            for run in _entered:  # the runs around this one, too: a tool may have called `agent()`
                run._came_at, run._taken_up = now, False
                run._loop.call_soon_threadsafe(run._cancel)  # the threadsafe one also wakes a quiet loop
            outermost = _entered[0]._handler_before
            if str(getattr(outermost, "__module__", "")).startswith("ipykernel"):
                outermost(signum, frame)  # ipykernel's handler cancels the awaited cell around the runs
        elif not self._taken_up and now - self._came_at > _BLOCKED:
            raise KeyboardInterrupt

    def _look_up(self) -> None:
        self._next_look = self._loop.call_later(LOOK_UP, self._look_up)

    def _cancel(self) -> None:
        self._taken_up = True
        if self._task is not None:
            self._task.cancel()


_entered: list[Interrupts] = []
"""The `Interrupts` that are entered in the main thread, the innermost last."""


def _can_handle_signals() -> bool:
    """Return whether this is the main thread, and Python knows the present handler of SIGINT, so that we can put it back."""
    return (
        threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is not None
    )


@contextmanager
def allow_interrupts() -> Iterator[None]:
    """While entered, an interrupt breaks into blocking code on the loop's own thread, and becomes a CancelledError.

    Used for a sync tool that runs on the loop, and for `input()` in a terminal. Otherwise an interrupt would wait until the
    loop runs again. Does nothing outside the main thread.
    """
    if not _can_handle_signals():
        yield
        return
    before: Any = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        if _entered:
            _entered[-1].cancel_soon()
        elif callable(before):  # the kernel's own handler, which cancels the cell
            before(signal.SIGINT, None)
        raise asyncio.CancelledError from None
    finally:
        signal.signal(signal.SIGINT, before)


async def await_with_cleanup(awaitable: Awaitable[T]) -> T:
    """Await a run so that it can be cancelled, but not while it cleans up.

    The first cancel of the awaiting task is passed on to the run; later ones within `PATIENCE` seconds are ignored. If the run
    then returns a value, this function returns it, and the awaiting task counts as not cancelled. If the run raises
    CancelledError, this function raises it, too.
    """
    run = asyncio.ensure_future(awaitable)
    came_at, swallowed = None, 0
    while not run.done():
        try:
            await asyncio.wait([run], timeout=LOOK_UP)
        except asyncio.CancelledError:
            swallowed += 1
            if came_at is None or time.monotonic() - came_at > PATIENCE:
                came_at = time.monotonic()
                run.cancel()
    if came_at is not None:
        swallowed += await _ignore_repeated_cancel(came_at)
    if swallowed and not run.cancelled():
        task: Any = asyncio.current_task()
        for _ in range(swallowed if hasattr(task, "uncancel") else 0):  # Python >= 3.11 counts cancels
            task.uncancel()
    return run.result()


async def _ignore_repeated_cancel(came_at: float) -> int:
    """Wait as long as a second interrupt counts as the one at `came_at`; returns how many cancels were ignored."""
    ignored = 0
    while (left := came_at + _REPEATED - time.monotonic()) > 0:
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            ignored += 1
    return ignored


# --- The end of an interrupted cell.


async def end_interrupted_cell(error: asyncio.CancelledError) -> None:
    """Prepare the end of a cell. Its run was stopped, and is about to raise `error`."""
    show_in_one_line(error)
    await _ignore_repeated_cancel(time.monotonic())


def show_in_one_line(error: BaseException) -> None:
    """Let the cell that ends with `error`, an interrupt, show one line, and not count as failed.

    A front-end drops all cells that are queued behind a failed cell. But ■ should end only the run, as it does in a `%%toolloop`
    cell. We use two hooks: IPython (7 to 9) calls an exception's `_render_traceback_`, and gives the cell's result to
    `post_run_cell` before ipykernel (6.17 to 7.4) answers the front-end.
    """
    shell = get_shell()
    if shell is None:
        return
    if not hasattr(error, "_render_traceback_"):
        error._render_traceback_ = lambda: [f"{type(error).__name__}: {error}"]  # type: ignore[attr-defined]

    def forgive(result: Any) -> None:
        shell.events.unregister("post_run_cell", forgive)
        if getattr(result, "error_in_exec", None) is error:
            result.error_in_exec = None

    shell.events.register("post_run_cell", forgive)


# --- A terminal IPython (7.34 to 9): no kernel, and no running loop between cells.


def find_idle_loop() -> asyncio.AbstractEventLoop | None:
    """Return the loop on which IPython runs awaited cells, so that sync calls use it, too; None while the loop is running."""
    from IPython.core import async_helpers

    helpers: Any = async_helpers
    # private: _asyncio_runner.loop, IPython 7; get_asyncio_loop() is there from 8 on.
    newer = hasattr(helpers, "get_asyncio_loop")
    loop: asyncio.AbstractEventLoop = helpers.get_asyncio_loop() if newer else helpers._asyncio_runner.loop
    return None if loop.is_running() else loop


def cancelling_on_ctrl_c() -> AbstractContextManager[object]:
    """While entered, Ctrl-C cancels the awaited cell that runs on this loop. Does nothing if SIGINT has another handler.

    By default, Ctrl-C raises KeyboardInterrupt inside the loop. Then the cell ends with the loop's traceback, and the work that
    it awaited stays half-done and goes on during the next cell that awaits something.
    """
    if get_shell() is None or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return nullcontext()
    return _TerminalInterrupts(asyncio.get_running_loop())


class _TerminalInterrupts(Interrupts):
    """Cancels the cell that runs when Ctrl-C comes, which may be a later cell than the one that began the run.

    If no awaited cell runs (at IPython's prompt, in a cell without `await`), Ctrl-C raises KeyboardInterrupt, as always.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop, _find_task_of_cell(loop))

    def cancel_soon(self) -> None:
        self._task = _find_task_of_cell(self._loop) or self._task
        super().cancel_soon()

    def _interrupt(self, signum: int, frame: FrameType | None) -> None:
        task = _find_task_of_cell(self._loop)
        if task is None:
            signal.default_int_handler(signum, frame)
        if task is not self._task:
            self._task, self._came_at = task, None
        super()._interrupt(signum, frame)


def _find_task_of_cell(loop: asyncio.AbstractEventLoop) -> asyncio.Task[object] | None:
    """Return the task that runs an awaited cell, or None. Its coroutine is the shell's `run_cell_async`, which is public."""
    code = type(get_shell()).run_cell_async.__code__
    if not loop.is_running():
        return None
    cells = [task for task in asyncio.all_tasks(loop) if getattr(task.get_coro(), "cr_code", None) is code]
    return cells[-1] if cells else None
