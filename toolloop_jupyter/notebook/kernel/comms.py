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
import inspect
import logging
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, ClassVar, TypeAlias

from . import interrupts
from .capture import clean_context, flush
from .cells import Cell, in_callback
from .where import _kernel

# --- the cell waits, clicks arrive ----------------------------------------------------------------------------


@asynccontextmanager
async def attending() -> AsyncIterator[None]:
    """While entered, clicks arrive although the cell waits, and Stop is noticed at once.

    Re-entrant and counted. In an awaited cell of a terminal IPython, Ctrl-C cancels the run instead of leaving its
    task half-done on IPython's loop. Elsewhere outside a kernel it does nothing.
    """
    with _quiet_late_clicks():
        async with _attending(None):
            yield


@asynccontextmanager
async def attending_to_cell(*, may_be_cleared: bool = True) -> AsyncIterator[None]:
    """The same for a run of the API, whose tools' output goes to the cell that started it, whatever runs meanwhile."""
    async with attending():
        with Cell.here().run(may_be_cleared=may_be_cleared):
            yield


@contextmanager
def _quiet_late_clicks() -> Iterator[None]:
    """While entered, a click on a card that is gone does not print "No such comm" (package comm 0.2, logger "Comm")."""

    def passes(record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith("No such comm:")

    logger = logging.getLogger("Comm")
    logger.addFilter(passes)
    try:
        yield
    finally:
        logger.removeFilter(passes)


@asynccontextmanager
async def _attending(outer: asyncio.Task[Any] | None) -> AsyncIterator[None]:
    """`outer` is the task in whose midst a nested run waits."""
    kernel = _kernel()
    kernel_loop = getattr(getattr(kernel, "io_loop", None), "asyncio_loop", None)
    if kernel_loop is None:
        with interrupts.ctrl_c():
            yield
    elif kernel_loop is asyncio.get_running_loop():
        pump = Pump.join(kernel, outer)
        try:
            yield
        finally:
            await pump.leave()
    else:  # a run in another thread or in a subshell: it is the kernel's loop that has to let clicks pass
        joined: list[Pump] = []
        kernel_loop.call_soon_threadsafe(lambda: joined.append(Pump.join(kernel, None)))
        try:
            yield
        finally:
            if not kernel_loop.is_closed():
                kernel_loop.call_soon_threadsafe(lambda: joined.pop().leave_soon())


# --- How comm messages overtake the running cell on ipykernel 6, and how a quiet loop is kept awake on all versions. ---
#
# Why this is needed is told in `kernel.py`.

_TICK = 0.2
"""Seconds between two wake-ups of a quiet loop, so that Stop is noticed."""
_POLL = 0.01
"""Seconds between two looks into the message queue of ipykernel 6."""

_Dispatch: TypeAlias = Callable[..., Coroutine[Any, Any, None]]


class Pump:
    """Keeps the kernel's loop awake and, on ipykernel 6, lets comm messages overtake the running cell.

    One for all runs that wait at once. A run that waits *inside* the handling of a comm message (`run_sync` in a
    widget callback) gets one of its own, since the one that dispatched the message is held up until it ends; only
    the newest one dispatches, so messages keep their order. Used on the kernel's loop alone.
    """

    _levels: ClassVar[list[Pump]] = []

    def __init__(self, kernel: Any, outer: asyncio.Task[Any] | None) -> None:
        self._kernel, self._outer, self._users = kernel, outer, 0
        # private: msg_queue, ipykernel 6.0 to 6.x: a tornado Queue of (number, dispatch, arguments). From 7.4 on
        # comm messages overtake by themselves.
        self._queue = getattr(kernel, "msg_queue", None)
        self._seen = -1
        self._dispatching: asyncio.Task[None] | None = None
        self._kept: tuple[Any, ...] = ()
        self._handler: Any = None
        # Not in the run's own context: what a widget callback prints is not the run's output.
        self._task: asyncio.Task[None] = clean_context().run(asyncio.ensure_future, self._run())

    @classmethod
    def join(cls, kernel: Any, outer: asyncio.Task[Any] | None) -> Pump:
        """The pump that serves a run from now on; `outer` is the task in whose midst it waits, if any."""
        if not cls._levels or cls._levels[-1]._holds(outer):
            cls._levels.append(cls(kernel, outer))
        pump = cls._levels[-1]
        pump._users += 1
        return pump

    async def leave(self) -> None:
        """Leave; the last one out waits until a message that is being dispatched is done."""
        left = self.leave_soon()
        if left:
            await asyncio.wait(left)

    def leave_soon(self) -> list[asyncio.Task[None]]:
        """Leave without waiting. Gives the tasks that are about to end."""
        self._users -= 1
        if self._users:
            return []
        self._levels.remove(self)
        self._task.cancel()
        held_up = any(self._holds(level._outer) for level in self._levels)
        return [self._task] if self._dispatching is None or held_up else [self._task, self._dispatching]

    def _holds(self, task: asyncio.Task[Any] | None) -> bool:
        return task is not None and task is self._dispatching

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_TICK if self._queue is None else _POLL)
            while self is self._levels[-1] and (item := self._next_comm()) is not None:
                self._dispatching = asyncio.ensure_future(self._dispatch(*item))
                await asyncio.wait([self._dispatching])
                error = self._dispatching.exception()
                if error is not None:  # as the kernel's own dispatch_queue does
                    self._kernel.log.error("Error in message handler", exc_info=error)
                self._dispatching = None

    def _next_comm(self) -> tuple[_Dispatch, tuple[Any, ...]] | None:
        """Take the oldest comm message out of the queue. No await, so that nobody sees the queue half-empty."""
        queue, found = self._queue, None
        if queue is None:
            return None
        for _ in range(queue.qsize()):
            item = queue.get_nowait()
            number, dispatch, arguments = item
            if found is None and number > self._seen and self._is_comm(arguments):
                found = dispatch, arguments
                continue
            if found is None:
                self._seen = max(self._seen, number)
            queue.put_nowait(item)
        return found

    def _is_comm(self, arguments: tuple[Any, ...]) -> bool:
        if not arguments or not isinstance(arguments[0], list):
            return False  # not a message: an eventloop integration queues its own steps
        session = self._kernel.session
        try:
            # Only the header is read here: deserialising the whole message now would make the kernel's own
            # deserialising a "duplicate signature". The kernel checks the signature when it dispatches.
            _, frames = session.feed_identities(list(arguments[0]), copy=False)
            return session.unpack(frames[1].bytes)["msg_type"] in ("comm_open", "comm_msg", "comm_close")
        except (ValueError, LookupError, TypeError):
            return False  # malformed: the kernel's to report

    async def _dispatch(self, dispatch: _Dispatch, arguments: tuple[Any, ...]) -> None:
        """Let the kernel handle a message amid a cell, and give the cell its parent and SIGINT handler back."""
        kernel, self._handler = self._kernel, None
        self._kept = _current(kernel)
        found = kernel.set_parent

        def set_parent(ident: Any, parent: Any, channel: str = "shell") -> None:
            if (
                channel == "shell"
            ):  # the message becomes the parent now; 6.17 gives what is unsent the newest one
                del kernel.set_parent
                self._kept = _current(kernel)
                flush(None)
            found(ident, parent, channel)

        kernel.set_parent = set_parent
        try:
            await dispatch(*arguments)
        finally:
            if vars(kernel).get("set_parent") is set_parent:
                del kernel.set_parent
            _restore(kernel, self._kept)
            if self._handler is not None:
                signal.signal(signal.SIGINT, self._handler)

    @classmethod
    def holding(cls, task: asyncio.Task[Any] | None) -> Pump | None:
        """The pump that dispatches a message in this task just now."""
        return next((level for level in cls._levels if level._holds(task)), None)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Around a wait in the handling of a message: the cell that it came amid goes on, as its own parent.

        That cell may even end, and the next one begin.
        """
        callback, handler = _current(self._kernel), signal.getsignal(signal.SIGINT)
        flush(None)
        _restore(self._kernel, self._kept)
        try:
            yield
        finally:
            self._kept = _current(self._kernel)
            flush(None)
            _restore(self._kernel, callback)
            now = signal.getsignal(signal.SIGINT)
            if now is not handler:  # left by a cell that has begun since
                self._handler = now


# private: _parent_ident (set_parent and get_parent are public) and saved_sigint_handler, ipykernel 6.0 to 6.x: what
# dispatching a message sets for the whole process and the running cell still needs. From 7.4 on the kernel does it.


def _current(kernel: Any) -> tuple[Any, ...]:
    return (
        kernel._parent_ident["shell"],
        kernel.get_parent("shell"),
        getattr(kernel, "saved_sigint_handler", None),
    )


def _restore(kernel: Any, state: tuple[Any, ...]) -> None:
    ident, parent, handler = state
    kernel.set_parent(ident, parent, channel="shell")
    kernel.saved_sigint_handler = handler


@contextmanager
def aside(kernel: Any, outer: asyncio.Task[Any] | None) -> Iterator[None]:
    """Around a run that waits in the midst of the task `outer`, which may be the handling of a comm message."""
    pump = Pump.holding(outer)
    if pump is not None:
        with pump.aside():
            yield
    elif outer is None or kernel is None or hasattr(kernel, "msg_queue") or not in_callback(kernel):
        yield
    else:
        with _HeldBack.cells(kernel):
            yield


class _HeldBack:
    """On ipykernel 7, keeps the next cell from beginning while a callback's run waits (the present one may end).

    When the callback is done, the kernel puts back the parent that was current when its message came: it would be
    the wrong one for a cell that has begun since, which then never comes to rest in the front-end.
    """

    @classmethod
    @contextmanager
    def cells(cls, kernel: Any) -> Iterator[None]:
        # `should_handle` is the kernel's hook for subclasses; it may be async since 7.0. It has no registration, so
        # it is set on the one kernel object, for the time of the wait.
        found, ended = kernel.should_handle, asyncio.Event()

        async def should_handle(stream: Any, msg: Any, idents: Any) -> bool:
            if msg["header"]["msg_type"] == "execute_request":
                await ended.wait()
                kernel.set_parent(idents, msg, channel="shell")
            answer = found(stream, msg, idents)
            return bool(await answer if inspect.isawaitable(answer) else answer)

        kernel.should_handle = should_handle
        try:
            yield
        finally:
            if vars(kernel).get("should_handle") is should_handle:
                del kernel.should_handle
                if getattr(found, "__self__", None) is not kernel:  # a run in a callback in a callback
                    kernel.should_handle = found
            # Not before the kernel has put the parent back.
            asyncio.get_running_loop().call_later(_TICK / 10, ended.set)
