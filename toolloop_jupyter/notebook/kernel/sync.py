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
import atexit
import os
import threading
import time
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from typing import Any

from ...core.events import STOPPED
from . import interrupts as kernel_terminal
from .capture import into, shell
from .cells import Cell, in_callback
from .comms import _attending, aside
from .interrupts import LISTENS, Interrupted, Interrupts, T, ends_its_cell
from .where import _kernel, in_kernel

# --- sync over async ------------------------------------------------------------------------------------------


def run_sync(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run `make()` to its end from sync code and return what it returns. The only bridge from sync to async.

    Works in a cell, in a function or a widget callback (the kernel's loop is running there: it is turned from
    inside, so clicks and other tasks go on), in a thread, in a terminal and in plain Python.

    An interrupt cancels the coroutine, which runs to its end; what it returns then is returned. Raises
    KeyboardInterrupt only when it lets the cancel pass.
    """
    try:
        outer = asyncio.current_task()
    except RuntimeError:  # no loop is running here
        outer = None

    said: list[str] = []
    kernel = _kernel()
    # Of a widget's callback, now: while it waits, the cell that it came amid is the parent again.
    cell = Cell.here() if kernel is not None and in_callback(kernel) else None

    async def attended() -> T:
        async with _attending(outer):
            try:
                return await make()
            except asyncio.CancelledError as error:
                said.append(str(error))
                raise

    context = copy_context()
    if cell is not None:
        context.run(cell.let_be_here)
    # ipykernel 7 runs all messages in the context of the cell that is now waiting here: none of them may inherit
    # the target of our output from it.
    try:
        with into(None), aside(kernel, outer):
            return drive(attended, context, _idle_loop())
    except Interrupted as error:
        error.args = tuple(text for text in said if text) or error.args
        if cell is not None:  # no cell shows the callback's error
            cell.display({"text/plain": f"KeyboardInterrupt: {error}"})
        ends_its_cell(error)
        raise


def one_loop() -> OneLoop:
    """As `run_sync`, for the steps of one stream: all on one loop, where none is running here on one in the background."""
    return OneLoop(run_sync)


def _idle_loop() -> asyncio.AbstractEventLoop | None:
    """The loop on which a terminal IPython runs awaited cells, so that both ways use one loop."""
    return None if shell() is None or in_kernel() else kernel_terminal.idle_loop()


_SHUTDOWN_GRACE = 2.0
"""Seconds that a run may take to clean up when its loop is being stopped (the kernel shuts down)."""


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

    def cancel() -> None:  # comes to the loop after `begin`, where that was called
        if tasks:
            tasks[0].cancel()

    asked = False
    while True:
        try:
            if not asked:  # in here: something may be raised at any moment, also right after it
                asked = True
                loop.call_soon_threadsafe(begin)
            while not ended.wait(LISTENS):
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
    close_at_exit(loop)
