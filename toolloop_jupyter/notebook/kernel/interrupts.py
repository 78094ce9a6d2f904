"""The kernel: the only file that imports ipykernel, with its two helpers `kernel_pump.py` and `kernel_loop.py`.

A cell that waits for a click, version by version
-------------------------------------------------

A front-end sends a click as a `comm_msg` on the shell channel, behind the cell that waits for it, and a kernel
handles one shell message at a time. Three things have to happen while our cell waits: the comm message overtakes it,
everything else keeps its place, and Stop is noticed.

*ipykernel 6.17 to 6.x.* `Kernel.schedule_dispatch` puts each shell message into `kernel.msg_queue`, and one
coroutine takes them out and awaits them one by one; ours is the one being awaited. `attending()` runs a background
coroutine (`Pump`, in `kernel_pump.py`) that takes the comm messages out of that queue, puts all else back in order,
and lets the kernel dispatch them. Dispatching a message makes it the "parent" of whatever is printed next, for the
whole process, and remembers the SIGINT handler in one attribute of the kernel; both are put back when it is done.

*ipykernel 7.0 to 7.3.* No such queue: an asyncio lock held by the running cell. Not supported (excluded by the
dependency): clicks wait for the cell unless the front-end sends them over a subshell.

*ipykernel 7.4 and later.* The kernel itself dispatches comm messages concurrently while a cell awaits, in the main
thread, also when the front-end uses subshells. Nothing to do.

*All of them.* A SIGINT during a quiet await is noticed when the loop wakes for another reason, because the handler's
`add_callback` does not wake it (tornado 6.6): so something of ours wakes it five times a second. A subshell (7.x) is
a thread with its own loop: code called there must use `call_soon_threadsafe` to reach a future of the main one.

Called from sync code (`run_sync`), the same has to hold inside a loop that is already running: `kernel_loop.py` says
how. `%%toolloop` itself is an awaited cell and does not need that. When the sync code is a widget callback that came
amid a waiting cell, that cell goes on, and may end, before the callback does: on ipykernel 6 it gets its parent back
for so long, and on 7.4 the next cell begins when the callback is done (`aside`, in `kernel_pump.py`).

Output goes to the cell that started the run: `Cell.here()` copies the kernel's own output objects (two `OutStream`s,
one `ZMQDisplayPublisher`) and sets their parent once and for all, so neither a comm message nor a later cell can
redirect them; `kernel_output.py` brings prints and displays there.

Private names are marked "private:", here and in the helpers, with the versions that have them and what would replace
them.
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

from .capture import shell

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


# --- A terminal IPython (7.34 to 9): no kernel and no running loop between cells. Its loop, the cell's task, and Ctrl-C. ---
#
# IPython runs a cell with an `await` in it as a task of its own loop, by `run_until_complete`. By default Ctrl-C raises
# KeyboardInterrupt in the midst of that loop: the cell ends with the loop's traceback, and what it awaited stays where it
# was, half-done, and goes on under the next cell that awaits something. `ctrl_c()` cancels the cell's task instead, as ■
# does in a kernel: a cancel passes down to whatever the cell awaits, a run among it.


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


async def stopped(error: asyncio.CancelledError) -> None:
    """Prepare what an interrupted run of the API is about to raise in its cell."""
    ends_its_cell(error)
    await let_a_second_one_pass(time.monotonic())


def ends_its_cell(error: BaseException) -> None:
    """Let a cell that ends with this `error`, by an interrupt, say so in one line and be no failure.

    A front-end drops all cells that are queued behind a failed one; ■ ends a run, as it does in a `%%toolloop` cell.
    IPython (7 to 9) asks an exception for its `_render_traceback_`, and tells `post_run_cell` what came of the cell
    before ipykernel (6.17 to 7.4) answers the front-end.
    """
    if shell() is None:
        return
    events, name = shell().events, type(error).__name__
    if not hasattr(error, "_render_traceback_"):
        error._render_traceback_ = lambda: [f"{name}: {error}"]  # type: ignore[attr-defined]

    def ended(result: Any) -> None:
        events.unregister("post_run_cell", ended)
        if getattr(result, "error_in_exec", None) is error:
            result.error_in_exec = None

    events.register("post_run_cell", ended)
