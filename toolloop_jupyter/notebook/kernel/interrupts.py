"""Let an interrupt cancel a run, and let the cancelled run clean up. An interrupt is the button ■ in a front-end, or Ctrl-C.

It arrives as the signal SIGINT in the main thread. If the run was started by sync code, or in an awaited cell of IPython in a
terminal, the signal has a handler of this module (`Interrupts`). In an awaited cell of a kernel, ipykernel's handler cancels the
task of the cell, and `await_with_cleanup` passes this cancel on to the run.
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
"""How many seconds a cancelled run has to clean up. After this time, another interrupt cancels the run again."""
_BLOCKED = 0.3
"""If a loop does not handle an interrupt within this number of seconds, a callback is blocking the loop."""
WAKE_UP = 0.1
"""Seconds after which a waiting loop or thread wakes up. Python handles a signal, or an exception from another thread, only
between two instructions of Python code. A signal that arrives just before `select()` is handled only after `select()` has
returned, which may take as long as a tool's timeout. (This happened once in 150 tests that interrupted a run at its start.)"""
_REPEATED = 0.5
"""A second interrupt within this number of seconds is ignored, and the interrupted cell ends only after this time. Between two
cells, the second interrupt would interrupt ipykernel itself (6.17 to 7.4), which would then never answer one of the two cells.
"""


class Interrupted(KeyboardInterrupt):
    """Raised in sync code if an interrupt has ended its run.

    It is shown in one line, because a second interrupt could arrive while IPython makes a traceback.
    """

    def _render_traceback_(self) -> list[str]:
        return [f"KeyboardInterrupt: {self}"]


class Interrupts:
    """Lets SIGINT cancel `task` during a `with` block, instead of raising KeyboardInterrupt in the code that is running.

    Another interrupt within `PATIENCE` seconds is ignored, so that the task can clean up. If a callback blocks the loop, the
    first interrupt has no effect, and the next interrupt raises KeyboardInterrupt in the callback. Python handles signals only in
    the main thread. In other threads, the block does nothing.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[object] | None) -> None:
        self._loop, self._task = loop, task
        self._handler_before: Any = None
        self.came_at: float | None = None
        """The time at which an interrupt arrived; None if there was none."""
        self._is_handled = False
        """True if the loop has cancelled the task for this interrupt."""
        self._next_wake_up: asyncio.TimerHandle | None = None

    def __enter__(self) -> Interrupts:
        if _can_handle_signals():
            self._handler_before = signal.signal(signal.SIGINT, self._interrupt)
            _entered.append(self)
            self._wake_up()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._handler_before is not None:
            _entered.remove(self)
            if self._next_wake_up is not None:
                self._next_wake_up.cancel()
            # If a cell has ended meanwhile, the kernel may have set another handler. Then the kernel's handler stays.
            if signal.getsignal(signal.SIGINT) == self._interrupt:
                signal.signal(signal.SIGINT, self._handler_before)

    def cancel_soon(self) -> None:
        """Cancel the task. This is called after an interrupt has stopped blocking code, which may be in another task."""
        self.came_at = time.monotonic()
        self._loop.call_soon(self._cancel)

    def ignore_repeated_interrupt(self) -> None:
        """If an interrupt has arrived, wait until a second interrupt no longer counts as a repetition (`_REPEATED`)."""
        if self.came_at is not None:
            time.sleep(max(0.0, self.came_at + _REPEATED - time.monotonic()))

    def _interrupt(self, signum: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.came_at is None or (self._is_handled and now - self.came_at > PATIENCE):
            for run in _entered:  # includes outer runs, because a tool may have called `agent()`
                run.came_at, run._is_handled = now, False
                run._loop.call_soon_threadsafe(run._cancel)  # this also wakes a loop that is waiting
            outermost = _entered[0]._handler_before
            if str(getattr(outermost, "__module__", "")).startswith("ipykernel"):
                # ipykernel's handler cancels the awaited cell that contains the runs.
                outermost(signum, frame)
        elif not self._is_handled and now - self.came_at > _BLOCKED:
            raise KeyboardInterrupt

    def _wake_up(self) -> None:
        self._next_wake_up = self._loop.call_later(WAKE_UP, self._wake_up)

    def _cancel(self) -> None:
        self._is_handled = True
        if self._task is not None:
            self._task.cancel()


_entered: list[Interrupts] = []
"""The `Interrupts` whose `with` blocks are active in the main thread. The innermost is the last one."""


def _can_handle_signals() -> bool:
    """Return True if this is the main thread, and Python knows the present SIGINT handler, so that we can restore it."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    return in_main_thread and signal.getsignal(signal.SIGINT) is not None


@contextmanager
def allow_interrupts() -> Iterator[None]:
    """Let an interrupt stop blocking code in the `with` block. The block then raises CancelledError.

    Outside the main thread, this does nothing.
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
    """Await a run. Return its value, or raise its error. If the awaiting task is cancelled, cancel the run, and let it clean up.

    Later cancels within `PATIENCE` seconds are ignored. If the run returns a value, the awaiting task counts as not cancelled.
    """
    run = asyncio.ensure_future(awaitable)
    came_at, swallowed = None, 0
    while not run.done():
        try:
            await asyncio.wait([run], timeout=WAKE_UP)
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
    """Until `_REPEATED` seconds after `came_at`, ignore every cancel. Return the number of ignored cancels."""
    ignored = 0
    while (left := came_at + _REPEATED - time.monotonic()) > 0:
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            ignored += 1
    return ignored


# --- The end of an interrupted cell.


async def end_interrupted_cell(error: asyncio.CancelledError) -> None:
    """Let the cell show `error` in one line, and ignore a second interrupt (`_REPEATED`). The caller must then raise `error`."""
    show_in_one_line(error)
    await _ignore_repeated_cancel(time.monotonic())


def show_in_one_line(error: BaseException) -> None:
    """Show `error` in one line in the present cell, and do not count the cell as failed. An interrupt has caused `error`.

    If a cell fails, a front-end drops all cells that are waiting behind it. But an interrupt should end only the run. IPython
    (7 to 9) calls an exception's `_render_traceback_`, and calls `forgive` before ipykernel (6.17 to 7.4) answers the front-end.
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
    """Return the loop on which IPython runs awaited cells; None if this loop already runs. Sync calls use it, too."""
    from IPython.core import async_helpers

    helpers: Any = async_helpers
    # private: IPython 7 has `_asyncio_runner.loop`. IPython >= 8 has the public `get_asyncio_loop()` instead.
    newer = hasattr(helpers, "get_asyncio_loop")
    loop: asyncio.AbstractEventLoop = helpers.get_asyncio_loop() if newer else helpers._asyncio_runner.loop
    return None if loop.is_running() else loop


def cancelling_on_ctrl_c() -> AbstractContextManager[object]:
    """Let Ctrl-C cancel the awaited cell that is running on this loop, unless SIGINT has another handler than Python's.

    Otherwise Ctrl-C would raise KeyboardInterrupt in the code of the loop, and the task would continue when the next cell awaits.
    """
    if get_shell() is None or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return nullcontext()
    return _TerminalInterrupts(asyncio.get_running_loop())


class _TerminalInterrupts(Interrupts):
    """Lets Ctrl-C cancel the awaited cell that is running when Ctrl-C comes. This may be a later cell than the run's cell.

    If no awaited cell is running (at IPython's prompt, or in a cell without `await`), Ctrl-C raises KeyboardInterrupt as usual.
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
            self._task, self.came_at = task, None
        super()._interrupt(signum, frame)


def _find_task_of_cell(loop: asyncio.AbstractEventLoop) -> asyncio.Task[object] | None:
    """Return the task that is running an awaited cell, or None. The coroutine of this task is IPython's `run_cell_async`."""
    code = type(get_shell()).run_cell_async.__code__
    if not loop.is_running():
        return None
    cells = [task for task in asyncio.all_tasks(loop) if getattr(task.get_coro(), "cr_code", None) is code]
    return cells[-1] if cells else None
