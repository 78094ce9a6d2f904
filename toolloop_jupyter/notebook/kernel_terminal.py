"""A terminal IPython (7.34 to 9): no kernel and no running loop between cells. Its loop, the cell's task, and Ctrl-C.

IPython runs a cell with an `await` in it as a task of its own loop, by `run_until_complete`. By default Ctrl-C raises
KeyboardInterrupt in the midst of that loop: the cell ends with the loop's traceback, and what it awaited stays where it
was, half-done, and goes on under the next cell that awaits something. `ctrl_c()` cancels the cell's task instead, as ■
does in a kernel: a cancel passes down to whatever the cell awaits, a run among it.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import AbstractContextManager, nullcontext
from types import FrameType
from typing import Any

from .kernel_loop import Interrupts
from .kernel_output import shell


def idle_loop() -> asyncio.AbstractEventLoop | None:
    """The loop on which IPython runs awaited cells, so that both ways use one loop; None where it is running."""
    import IPython.core.async_helpers

    helpers: Any = IPython.core.async_helpers
    # private: _asyncio_runner.loop, IPython 7; get_asyncio_loop() is there from 8 on.
    newer = hasattr(helpers, "get_asyncio_loop")
    loop: asyncio.AbstractEventLoop = helpers.get_asyncio_loop() if newer else helpers._asyncio_runner.loop
    return None if loop.is_running() else loop


def ctrl_c() -> AbstractContextManager[object]:
    """While entered, Ctrl-C cancels the awaited cell that runs on this loop. Does nothing where somebody else listens."""
    if shell() is None or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return nullcontext()
    return _CtrlC(asyncio.get_running_loop())


class _CtrlC(Interrupts):
    """Cancels whichever cell runs when Ctrl-C comes: a run that a cell began as a task may outlive that cell.

    Where none does (IPython's prompt, a cell without `await`), Ctrl-C raises KeyboardInterrupt, as ever.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop, _task_of_cell(loop))

    def note(self) -> None:
        self._task = _task_of_cell(self._loop) or self._task
        super().note()

    def _interrupt(self, signum: int, frame: FrameType | None) -> None:
        task = _task_of_cell(self._loop)
        if task is None:
            signal.default_int_handler(signum, frame)
        if task is not self._task:
            self._task, self._asked_at = task, None
        super()._interrupt(signum, frame)


def _task_of_cell(loop: asyncio.AbstractEventLoop) -> asyncio.Task[Any] | None:
    """The task that runs an awaited cell, or None. Its coroutine is the shell's `run_cell_async`, which is public."""
    code = type(shell()).run_cell_async.__code__
    if not loop.is_running():
        return None
    cells = [task for task in asyncio.all_tasks(loop) if getattr(task.get_coro(), "cr_code", None) is code]
    return cells[-1] if cells else None
