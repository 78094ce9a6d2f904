"""Lets clicks overtake a cell whose run waits, and notices Stop at once. The essay in `__init__.py` says why that is needed.

`serving_clicks` and `running_in_cell` are entered around a run. One `_Pump` serves all runs that wait at the same time: it
wakes the kernel's loop and, on ipykernel 6, takes comm messages out of the queue. A run in a widget's callback may interrupt a
waiting cell. `while_callback_waits` lets that cell go on.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext, suppress
from threading import get_ident
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

from ...core.execution import describe_error
from .capture import copy_context_without_target, flush, get_target
from .cells import Cell, in_callback
from .interrupts import cancelling_on_ctrl_c
from .where import Kernel, Message, get_kernel

T = TypeVar("T")
_Dispatch: TypeAlias = Callable[..., Coroutine[object, Any, None]]

_WAKE_UP = 0.2
"""Seconds between two wake-ups of a quiet loop, so that Stop is noticed."""
_LOOK = 0.01
"""Seconds between two checks of ipykernel 6's message queue."""


@asynccontextmanager
async def serving_clicks() -> AsyncIterator[None]:
    """While entered, clicks arrive although the cell waits, and Stop is noticed at once.

    Several runs may be inside at once. In an awaited cell of a terminal IPython, Ctrl-C cancels the run, so that the run's task
    does not stay half-done on IPython's loop. In plain Python, this does nothing.
    """
    with _silence_late_clicks():
        async with serving_nested_run(None):
            yield


@asynccontextmanager
async def running_in_cell(*, may_be_cleared: bool = True) -> AsyncIterator[None]:
    """Like `serving_clicks`, for a run of the API. The output of the run's tools goes to the cell that started the run."""
    async with serving_clicks():
        with Cell.here().outputs_of_run(may_be_cleared=may_be_cleared):
            yield


@contextmanager
def _silence_late_clicks() -> Iterator[None]:
    """While entered, a click on a removed card does not print "No such comm" (package comm 0.2, logger "Comm")."""

    def passes(record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith("No such comm:")

    logger = logging.getLogger("Comm")
    logger.addFilter(passes)
    try:
        yield
    finally:
        logger.removeFilter(passes)


@asynccontextmanager
async def serving_nested_run(outer: asyncio.Task[object] | None) -> AsyncIterator[None]:
    """Like `serving_clicks`, for a run in sync code that the task `outer` (if any) has called."""
    kernel = get_kernel()
    kernel_loop = getattr(getattr(kernel, "io_loop", None), "asyncio_loop", None)
    if kernel is None or kernel_loop is None:
        with cancelling_on_ctrl_c():
            yield
    elif kernel_loop is asyncio.get_running_loop():
        pump = _Pump.join(kernel, outer)
        try:
            yield
        finally:
            if ending := pump.leave():
                await asyncio.wait(ending)
    else:  # a run in another thread or in a subshell: the pump belongs on the kernel's loop
        joined: list[_Pump] = []
        kernel_loop.call_soon_threadsafe(lambda: joined.append(_Pump.join(kernel, None)))
        try:
            yield
        finally:
            if not kernel_loop.is_closed():
                kernel_loop.call_soon_threadsafe(lambda: joined.pop().leave())


class _State(NamedTuple):
    """The settings of the kernel that the running cell needs, and that the dispatch of another message changes.

    private: _parent_ident (set_parent and get_parent are public) and saved_sigint_handler, ipykernel 6.0 to 6.x. From 7.4
    on, the kernel saves them itself.
    """

    ident: object
    parent: Message
    handler: object

    @classmethod
    def of(cls, kernel: Kernel) -> _State:
        handler = getattr(kernel, "saved_sigint_handler", None)
        return cls(kernel._parent_ident["shell"], kernel.get_parent("shell"), handler)

    def give_back(self, kernel: Kernel) -> None:
        kernel.set_parent(self.ident, self.parent, channel="shell")
        kernel.saved_sigint_handler = self.handler


class _Pump:
    """Keeps the kernel's loop awake and, on ipykernel 6, lets comm messages overtake the running cell.

    One pump serves all runs that wait at the same time. But a run that waits *inside* the handling of a comm message (`run_sync`
    in a widget callback) gets a pump of its own, since the pump that dispatched the message is blocked until the run ends. Only
    the newest pump dispatches, so messages keep their order. Used on the kernel's loop only.
    """

    def __init__(self, kernel: Kernel, outer: asyncio.Task[object] | None) -> None:
        self._kernel, self._outer, self._users = kernel, outer, 0
        # private: msg_queue, ipykernel 6.0 to 6.x: a tornado Queue of (number, dispatch, arguments). From 7.4 on
        # comm messages overtake by themselves.
        self._queue: Any = getattr(kernel, "msg_queue", None)
        self._seen = -1
        """The number of the newest message that the pump has seen and left in the queue."""
        self._dispatching: asyncio.Task[None] | None = None
        self._of_cell: _State
        """The state of the interrupted cell, which the cell gets back later."""
        self._new_handler: Any = None
        """The SIGINT handler of a cell that began while a callback waited."""
        # Not in the run's own context, since prints of a widget callback are not the run's output.
        self._task: asyncio.Task[None] = copy_context_without_target().run(asyncio.ensure_future, self._run())

    @staticmethod
    def join(kernel: Kernel, outer: asyncio.Task[object] | None) -> _Pump:
        """Find or make the pump for a run, and count the run as a user. `outer`: the task whose sync code waits for the run."""
        if not _pumps:
            _contain_exits(asyncio.get_running_loop())
            _send_idle_after_comms(kernel)
        if not _pumps or _pumps[-1].dispatches_in(outer):
            _pumps.append(_Pump(kernel, outer))
        _pumps[-1]._users += 1
        return _pumps[-1]

    def leave(self) -> list[asyncio.Task[None]]:
        """Count one user less. The last user ends the pump.

        Returns the tasks that the last user has to wait for: the pump's own, and that of a message that is being dispatched.
        """
        self._users -= 1
        if self._users:
            return []
        _pumps.remove(self)
        if not _pumps:
            _let_exits_pass(asyncio.get_running_loop())
            _stop_sending_idle(self._kernel)
        self._task.cancel()
        held_up = any(self.dispatches_in(pump._outer) for pump in _pumps)
        return [self._task] if self._dispatching is None or held_up else [self._task, self._dispatching]

    def dispatches_in(self, task: asyncio.Task[object] | None) -> bool:
        """Return whether `task` handles the message that the pump has taken out of the queue."""
        return task is not None and task is self._dispatching

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_WAKE_UP if self._queue is None else _LOOK)
            while self is _pumps[-1] and (item := self._take_comm()) is not None:
                self._dispatching = asyncio.ensure_future(self._dispatch(*item))
                await asyncio.wait([self._dispatching])
                error = self._dispatching.exception()
                if error is not None:  # as the kernel's own dispatch_queue does
                    self._kernel.log.error("Error in message handler", exc_info=error)
                self._dispatching = None

    def _take_comm(self) -> tuple[_Dispatch, tuple[object, ...]] | None:
        """Take the oldest comm message out of the queue. Has no await, so that no other task sees the queue half empty."""
        queue, taken = self._queue, None
        if queue is None:
            return None
        for _ in range(queue.qsize()):
            item = queue.get_nowait()
            number, dispatch, arguments = item
            if taken is None and number > self._seen and self._is_comm(arguments):
                taken = dispatch, arguments
                continue
            if taken is None:
                self._seen = max(self._seen, number)
            queue.put_nowait(item)
        return taken

    def _is_comm(self, arguments: tuple[object, ...]) -> bool:
        if not arguments or not isinstance(arguments[0], list):
            return False  # not a message: an eventloop integration queues its own steps
        session = self._kernel.session
        try:
            # Only the header is read here: deserialising the whole message now would make the kernel's own
            # deserialising a "duplicate signature". The kernel checks the signature when it dispatches.
            _, frames = session.feed_identities(list(arguments[0]), copy=False)
            return session.unpack(frames[1].bytes)["msg_type"] in ("comm_open", "comm_msg", "comm_close")
        except (ValueError, LookupError, TypeError):
            return False  # malformed: the kernel will report it

    async def _dispatch(self, dispatch: _Dispatch, arguments: tuple[object, ...]) -> None:
        """Let the kernel handle a message while a cell runs. Then give the cell back its parent and its SIGINT handler."""
        kernel, self._new_handler = self._kernel, None
        self._of_cell = _State.of(kernel)
        set_parent_before = kernel.set_parent

        def set_parent(ident: object, parent: Message, channel: str = "shell") -> None:
            if channel == "shell":
                # The message becomes the parent now. Unsent output would get that parent, too (6.17), so it is sent first.
                del kernel.set_parent
                self._of_cell = _State.of(kernel)
                flush(None)
            set_parent_before(ident, parent, channel)

        kernel.set_parent = set_parent
        try:
            await dispatch(*arguments)
        finally:
            if vars(kernel).get("set_parent") is set_parent:
                del kernel.set_parent
            self._of_cell.give_back(kernel)
            if self._new_handler is not None:
                signal.signal(signal.SIGINT, self._new_handler)

    @contextmanager
    def lend_to_cell(self) -> Iterator[None]:
        """While entered, the interrupted cell has its parent and SIGINT handler back, so that it can go on, and even end.

        The callback that handles the message enters this while it waits for a run. Afterwards the callback has its own parent
        and handler again.
        """
        of_callback, handler = _State.of(self._kernel), signal.getsignal(signal.SIGINT)
        flush(None)
        self._of_cell.give_back(self._kernel)
        try:
            yield
        finally:
            self._of_cell = _State.of(self._kernel)
            flush(None)
            of_callback.give_back(self._kernel)
            handler_now = signal.getsignal(signal.SIGINT)
            if handler_now is not handler:  # set by a cell that has begun meanwhile
                self._new_handler = handler_now


_pumps: list[_Pump] = []
"""The pumps, the newest one last. Only the newest pump dispatches messages; the others are blocked."""


def while_callback_waits(outer: asyncio.Task[object] | None) -> AbstractContextManager[None]:
    """Return the context manager to enter while sync code in the task `outer` waits for a run.

    If the task handles a comm message, the cell that the message has interrupted goes on meanwhile.
    """
    kernel = get_kernel()
    for pump in _pumps:
        if pump.dispatches_in(outer):
            return pump.lend_to_cell()
    if outer is None or kernel is None or hasattr(kernel, "msg_queue") or not in_callback(kernel):
        return nullcontext()
    return _holding_back_cells(kernel)


@contextmanager
def _holding_back_cells(kernel: Kernel) -> Iterator[None]:
    """On ipykernel 7: while entered, no new cell begins (the present cell may end). Entered while a callback waits for its run.

    When the callback is done, the kernel puts back the parent from before the callback's message. If a new cell had begun since,
    that would be the wrong parent for it, and the front-end would show the new cell as running for ever.
    """
    # `should_handle` is the kernel's hook for subclasses; it may be async since 7.0. Nobody can register a function for it, so
    # ours is set on the one kernel object, for the time of the wait.
    before, ended = kernel.should_handle, asyncio.Event()

    async def should_handle(stream: object, msg: Message, idents: object) -> bool:
        if msg["header"]["msg_type"] == "execute_request":
            await ended.wait()
            kernel.set_parent(idents, msg, channel="shell")
        answer = before(stream, msg, idents)
        return bool(await answer if inspect.isawaitable(answer) else answer)

    kernel.should_handle = should_handle
    try:
        yield
    finally:
        if vars(kernel).get("should_handle") is should_handle:
            del kernel.should_handle
            if (
                getattr(before, "__self__", None) is not kernel
            ):  # true if this callback runs while another callback waits
                kernel.should_handle = before
        # The cells wait a little longer, until the kernel has put the parent back.
        asyncio.get_running_loop().call_later(_WAKE_UP / 10, ended.set)


class CardComms:
    """The comms of one card's widgets. Make it on the thread of the card's run."""

    def __init__(self) -> None:
        # private: shell_channel_thread and its manager, ipykernel 7.0 to 7.4.
        shells: Any = getattr(getattr(get_kernel(), "shell_channel_thread", None), "manager", None)
        self._subshell: str | None = None
        """The subshell in which the card's run waits; None for the main shell."""
        if shells is not None:
            with suppress(RuntimeError):  # a thread of the user's code: the main shell serves its cards
                self._subshell = shells.subshell_id_from_thread_id(get_ident())

    def keep_order(self, comm: object) -> None:
        """Let one shell handle all messages to this comm, so that a click does not overtake the change of a field before it.

        By default, ipykernel 7.4 chooses the shell that has sent to the comm last. That may be another shell for each field.

        private: `_reply_subshell_for` of a comm, ipykernel 7.4. Older versions have no subshells, or are excluded.
        """
        if hasattr(comm, "_reply_subshell_for"):
            comm._reply_subshell_for = lambda _data, _default: self._subshell

    def is_click(self, comm: object) -> bool:
        """Return whether the code that runs now handles a front-end's message to this comm. If so, a person has clicked; if not,
        code has called the callback of the click. True if the kernel is not ipykernel, since nobody can tell there.
        """
        kernel = get_kernel()
        if kernel is None:
            return True
        parent: Message = kernel.get_parent("shell")
        is_message = (parent.get("header") or {}).get("msg_type") == "comm_msg"
        return is_message and (parent.get("content") or {}).get("comm_id") == getattr(comm, "comm_id", "")


def _send_idle_after_comms(kernel: Kernel) -> None:
    """On ipykernel 7.4, send "idle" after a comm message that was handled while a cell runs. The kernel itself does not send it.

    In a front-end, ipywidgets sends a field's next change only after the "idle" for the change before. Without this "idle", the
    kernel would not hear that a person has changed a choice back.

    private: `_publish_status` (ipykernel 6.0 to 7.4), and the option `concurrent`.
    """
    before: Any = kernel.dispatch_shell
    if "concurrent" not in inspect.signature(before).parameters:
        return

    async def dispatch_shell(*arguments: object, **options: object) -> None:
        await before(*arguments, **options)
        if options.get("concurrent"):
            kernel._publish_status("idle", "shell")  # the message is still the parent

    dispatch_shell._toolloop_below = before  # type: ignore[attr-defined]
    kernel.dispatch_shell = dispatch_shell


def _stop_sending_idle(kernel: Kernel) -> None:
    below = getattr(vars(kernel).get("dispatch_shell"), "_toolloop_below", None)
    if below is not None:
        del kernel.dispatch_shell
        if getattr(below, "__self__", None) is not kernel:  # other code has set it
            kernel.dispatch_shell = below


# --- Tasks that a tool starts: asyncio would raise a SystemExit in such a task out of the loop, and the kernel would end.


def _contain_exits(loop: asyncio.AbstractEventLoop) -> None:
    """Turn SystemExit into an ordinary error (RuntimeError) in the tasks that code of a run starts on this loop."""
    below: Any = loop.get_task_factory()

    def make_task(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[object]:
        contained = work if get_target() is None else _contain_exit(work)
        task = below(loop, contained, **options) if below else asyncio.Task(contained, loop=loop, **options)
        # A task that was cancelled before it began never awaits `work`.
        task.add_done_callback(lambda _: work.close())
        return task

    make_task._toolloop_below = below  # type: ignore[attr-defined]
    loop.set_task_factory(cast("Any", make_task))


def _let_exits_pass(loop: asyncio.AbstractEventLoop) -> None:
    factory: Any = loop.get_task_factory()
    if hasattr(factory, "_toolloop_below"):
        loop.set_task_factory(factory._toolloop_below)


async def _contain_exit(work: Coroutine[object, Any, T]) -> T:
    try:
        return await work
    except SystemExit as error:
        raise RuntimeError(describe_error(error)) from error
