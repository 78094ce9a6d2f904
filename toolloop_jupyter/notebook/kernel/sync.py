"""Run async code from sync code: `run_sync` runs one coroutine, `StreamRunner` runs the steps of a stream.

If no event loop runs in the calling thread, the main thread uses one loop for all its calls, and another thread makes a new
loop for each call. In a cell or a widget's callback, a loop runs already. Four rules of asyncio then forbid sync code to run
this loop. `_turn_running_loop` works around these rules while it waits. Afterwards asyncio is as it was before:

1. `run_until_complete` refuses a running loop. We run the loop ourselves, one `_run_once` at a time.
2. asyncio refuses to run a task while another task is the current one. We make the outer task not current (`_leave_task`), and
   make it current again after the wait.
3. The outer `_run_once` has counted the handles (asyncio's objects for callbacks) that it is going to run. If we have run some
   of these handles, too few are left. So before we return, we add a handle without effect for each handle that we have run.
4. A handle cannot run if a function that has not returned yet runs in the same context ("cannot enter context"). We run the
   handle in a copy of its context. ipykernel 7 runs all cells in one context, so each message that waits behind the cell needs
   this copy.

private: `_run_once`, `_ready`, `_stopping`, `Handle._context`, `_enter_task` and `_leave_task` are the same in CPython
3.10 to 3.14. We have tested 3.10 to 3.13. CPython plans no public function that could replace these names. Loops that are not
asyncio's own (uvloop) lack these names, and `run_sync` raises `LoopUnsupported` there.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import os
import threading
import time
import warnings
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import nullcontext
from contextvars import Context, copy_context
from typing import Any, TypeAlias, TypeVar

from ...core.events import STOPPED, HarnessError, Mistake
from .comms import serving_clicks, while_callback_waits
from .interrupts import WAKE_UP, Interrupted, Interrupts, find_idle_loop, show_in_one_line
from .output import Cell, redirect_output
from .where import find_kernel_loop, get_kernel, get_shell, is_in_callback, is_in_kernel

T = TypeVar("T")
Make: TypeAlias = Callable[[], Coroutine[object, Any, T]]

AWAIT_IT = "await the coroutine"

_SHUTDOWN_GRACE = 2.0
"""Seconds that a run may take to clean up when its loop is stopped because the kernel shuts down."""


class LoopUnsupported(HarnessError, RuntimeError):
    """Sync code cannot wait for async code here: the running loop is not asyncio's own."""


def run_sync(make: Make[T], *, instead: str = AWAIT_IT) -> T:
    """Run the coroutine `make()` to its end from sync code, and return its result.

    `run_sync` works in a cell, in a widget's callback, in another thread, in a terminal and in plain Python. In a cell and in a
    callback, it runs the kernel's running loop itself. So the kernel still handles clicks, and other tasks continue.

    An interrupt cancels the coroutine. If the coroutine still returns a value, `run_sync` returns this value. Otherwise,
    `run_sync` raises KeyboardInterrupt. In a running loop that is not asyncio's own, `run_sync` raises LoopUnsupported.
    `instead` is the advice in this error's message: what to call instead.
    """
    outer = asyncio.current_task() if asyncio._get_running_loop() else None
    kernel = get_kernel()
    # In a widget's callback, find the cell for the callback's output now. While the callback waits, another cell may continue,
    # and the kernel's parent message is then the execute request of that cell.
    cell = Cell.here() if kernel is not None and is_in_callback(kernel) else None

    async def serve_and_run() -> T:
        async with serving_clicks(outer):
            with nullcontext() if cell is None else cell.outputs():
                return await make()

    context = copy_context()
    # ipykernel 7 handles all messages in the context of the cell that waits here. Their output must not go to our run's cell.
    try:
        with redirect_output(None), while_callback_waits(outer):
            return drive(serve_and_run, context, instead)
    except Interrupted as error:
        if cell is not None:  # no cell shows the callback's error, so we do
            cell.display({"text/plain": f"KeyboardInterrupt: {error}"})
        show_in_one_line(error)
        raise


def can_run_sync() -> bool:
    """Return whether `run_sync` works here: no loop is running in this thread, or the running loop is asyncio's own."""
    loop = asyncio._get_running_loop()
    return loop is None or isinstance(loop, asyncio.BaseEventLoop)


def drive(make: Make[T], context: Context, instead: str = AWAIT_IT) -> T:
    """Run `make()` as a task in `context` to its end, and return its result. Raises Interrupted and LoopUnsupported."""
    loop, wait = asyncio._get_running_loop(), _turn_running_loop
    if not can_run_sync():
        kind = f"{type(loop).__module__}.{type(loop).__name__}"
        raise LoopUnsupported(f"sync code cannot wait inside the running event loop ({kind}): {instead}")
    if loop is None:
        if threading.current_thread() is not threading.main_thread():
            return context.run(asyncio.run, _run_awake(make()))
        # IPython in a terminal has one loop for its awaited cells. Sync calls use this loop, too.
        idle = None if get_shell() is None or is_in_kernel() else find_idle_loop()
        loop, wait = idle or _get_kept_loop(), _turn_idle_loop
    task = context.run(loop.create_task, make())
    with Interrupts(loop, task) as interrupts:
        wait(loop, task)
        interrupts.ignore_repeated_interrupt()
    try:
        return task.result()
    except asyncio.CancelledError as error:
        if interrupts.came_at is None:
            raise
        # In Python 3.10, `error` may have no message. Then its `__context__` is the CancelledError with the message.
        ended = error if error.args else error.__context__
        raise Interrupted(
            str(ended if isinstance(ended, asyncio.CancelledError) and ended.args else STOPPED)
        ) from None


async def _run_awake(work: Coroutine[object, Any, T]) -> T:
    """Await `work`, and wake the loop every `WAKE_UP` seconds.

    To stop a tool, another thread sets an exception in this thread. Python raises this exception only when the loop is awake.
    """
    task = asyncio.ensure_future(work)
    while not task.done():
        await asyncio.wait([task], timeout=WAKE_UP)
    return task.result()


def _turn_idle_loop(loop: asyncio.AbstractEventLoop, task: asyncio.Task[object]) -> None:
    waiter = loop.create_task(asyncio.wait([task]))
    while not waiter.done():
        try:
            loop.run_until_complete(waiter)
        except KeyboardInterrupt:  # a callback blocked the loop; `Interrupts` has cancelled the task already
            continue


def _turn_running_loop(loop: Any, task: asyncio.Task[object]) -> None:
    outer = asyncio.current_task(loop)
    counted = len(loop._ready)
    if outer is not None:
        asyncio.tasks._leave_task(loop, outer)
    try:
        stopping_since = None
        while not task.done():
            _free_contexts(list(loop._ready))
            try:
                # We call BaseEventLoop's method, because nest_asyncio may have replaced the method in the loop's own class.
                asyncio.BaseEventLoop._run_once(loop)  # type: ignore[attr-defined]
            except KeyboardInterrupt:
                continue  # a callback blocked the loop; `Interrupts` has cancelled the task already
            if loop._stopping:  # the kernel shuts down: `_run_once` does not wait any more, so `sleep` waits
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
            loop.call_soon(_do_nothing)


def _free_contexts(handles: list[Any]) -> None:
    """Replace the context of a handle by a copy if a function that has not returned yet runs in that context."""
    for handle in handles:
        try:
            handle._context.run(_do_nothing)
        except RuntimeError:
            handle._context = handle._context.copy()


def _do_nothing() -> None:
    pass


# --- `%toolloop nest`: the user's own `asyncio.run(main())` works in cells, with nest_asyncio2. On ipykernel 7, it would delay
# every click (see `__init__`). So the kernel's loop gets a `run_until_complete` that waits as `run_sync` does.


def nest_loop() -> None:
    """Make `asyncio.run` and `run_until_complete` work in cells, until the kernel ends. A second call changes nothing.

    Raises Mistake if there is no kernel, or if its loop is not asyncio's own (uvloop).
    """
    loop = find_kernel_loop()
    if loop is None:
        raise Mistake("there is no kernel here: asyncio.run(main()) works as it is, and so does await main()")
    if not isinstance(loop, asyncio.BaseEventLoop):
        kind = f"{type(loop).__module__}.{type(loop).__name__}"
        raise Mistake(f"this kernel's event loop ({kind}) cannot be entered again: write await main()")
    if is_nested():
        return
    import nest_asyncio2

    with warnings.catch_warnings():
        # nest_asyncio2 warns if nest_asyncio was applied before (Colab does that). We replace nest_asyncio's method below.
        warnings.filterwarnings("ignore", "asyncio is already patched", UserWarning)
        # run_close_loop (Python >= 3.12): `asyncio.run` in a thread makes a loop. This option closes that loop at the end, as
        # `asyncio.run` does without nest_asyncio2.
        nest_asyncio2.apply(loop, run_close_loop=True)
    loop.run_until_complete = functools.partial(_run_until_complete, loop)  # type: ignore[method-assign]


def is_nested() -> bool:
    """Return whether `nest_loop` was called in this kernel."""
    made = vars(find_kernel_loop() or object).get("run_until_complete")
    return getattr(made, "func", None) is _run_until_complete


def _run_until_complete(loop: Any, future: Awaitable[T]) -> T:
    """Await `future` from sync code, also inside the running `loop`. Replaces the loop's `run_until_complete`."""
    if asyncio._get_running_loop() is not loop:
        result: T = type(loop).run_until_complete(loop, future)
        return result
    work = asyncio.ensure_future(future, loop=loop)

    async def wait() -> T:
        return await work

    return run_sync(wait)


class StreamRunner:
    """Runs the steps of one stream from sync code, in any thread: on the loop of the first step, or on a background loop."""

    def __init__(self, *, instead: str = AWAIT_IT) -> None:
        """`instead` is the advice in the message of LoopUnsupported: what to call instead."""
        self._instead = instead
        self._loop: asyncio.AbstractEventLoop | None = None

    def __call__(self, make: Make[T]) -> T:
        """Run `make()` to its end, and return its result. Raises the same exceptions as `drive`."""
        here = asyncio._get_running_loop()
        loop = self._loop = self._loop or here or _get_background_loop()
        if loop is here:
            return run_sync(make, instead=self._instead)
        if not loop.is_running():
            raise RuntimeError("the event loop on which this stream began has ended: make a new stream")
        if here is None:
            return _run_in_its_thread(loop, make)

        async def wait() -> T:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(make(), loop))

        return run_sync(wait, instead=self._instead)


def _run_in_its_thread(loop: asyncio.AbstractEventLoop, make: Make[T]) -> T:
    """Run `make()` as a task on `loop`, which runs in another thread. The task has a copy of this thread's context.

    An exception in this thread cancels the task. After a first interrupt, but not after other exceptions, we wait until the task
    ends.
    """
    tasks: list[asyncio.Task[T]] = []
    ended, asked, interrupted = threading.Event(), False, False

    def begin() -> None:
        tasks.append(loop.create_task(make()))
        tasks[0].add_done_callback(lambda _: ended.set())

    def cancel() -> None:  # the loop calls `cancel` after `begin`
        if tasks:
            tasks[0].cancel()

    while True:
        try:
            if not asked:  # inside `try`, because an exception may come at any moment
                asked = True
                loop.call_soon_threadsafe(begin)
            while not ended.wait(WAKE_UP):
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


_kept: dict[int, asyncio.AbstractEventLoop] = {}
"""The id of a process -> its loop. A forked process cannot use the loop of its parent process."""


def _get_kept_loop() -> asyncio.AbstractEventLoop:
    """Return the loop that all calls of the main thread share. (LiteLLM's logging worker warns of each new loop.)"""
    loop = _kept.get(os.getpid())
    # The loop is closed at exit, but code that runs later at exit may need a loop, too.
    if loop is None or loop.is_closed():
        loop = _kept[os.getpid()] = asyncio.new_event_loop()
        atexit.register(_close, loop)
    return loop


_background: list[tuple[asyncio.AbstractEventLoop, threading.Thread]] = []
"""[(the loop of the background thread, the background thread)]; [] if no stream has needed this thread yet."""
_lock = threading.Lock()


def _get_background_loop() -> asyncio.AbstractEventLoop:
    """Return the loop of the background thread. Start this thread if it is not running, as in a forked process."""
    with _lock:
        if not _background or not _background[0][1].is_alive():
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=loop.run_forever, name="toolloop-background", daemon=True)
            thread.start()
            atexit.register(_close, loop, thread)
            _background[:] = [(loop, thread)]
        return _background[0][0]


def _close(loop: asyncio.AbstractEventLoop, thread: threading.Thread | None = None) -> None:
    """At exit, cancel all unfinished tasks of `loop`, and close `loop`. `thread` is the thread that runs `loop`, or None."""
    if thread is not None and thread.is_alive():
        loop.call_soon_threadsafe(loop.stop)
        thread.join(1)  # not longer than a second, because a tool may block this thread
    if loop.is_closed() or loop.is_running():
        return
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=1))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()
