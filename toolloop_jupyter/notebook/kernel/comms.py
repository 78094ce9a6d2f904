"""Deliver clicks to a cell that is waiting, and notice interrupts at once. `__init__.py` of this package explains the reasons."""

from __future__ import annotations

import asyncio
import inspect
import logging
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import (
    AbstractContextManager,
    ExitStack,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from threading import get_ident
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

from ...core.execution import describe_error
from .interrupts import WAKE_UP, cancelling_on_ctrl_c
from .output import Cell, MethodHooks, flush_streams, get_target, redirect_output
from .where import Kernel, Message, find_kernel_loop, get_kernel, get_kind, is_in_callback

T = TypeVar("T")
_Dispatch: TypeAlias = Callable[..., Coroutine[object, Any, None]]


@asynccontextmanager
async def serving_clicks(outer: asyncio.Task[object] | None = None) -> AsyncIterator[None]:
    """Deliver clicks during the `async with` block, and notice interrupts at once. In plain Python, the block does nothing.

    `outer` is the task whose sync code waits for the run; None if no sync code waits.
    """
    kernel, kernel_loop = get_kernel(), find_kernel_loop()
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
    else:  # the run is in another thread or in a subshell, but the pump must run on the kernel's loop
        joined: list[_Pump] = []
        kernel_loop.call_soon_threadsafe(lambda: joined.append(_Pump.join(kernel, None)))
        try:
            yield
        finally:
            if not kernel_loop.is_closed():
                kernel_loop.call_soon_threadsafe(lambda: joined.pop().leave())


@asynccontextmanager
async def running_in_cell(*, may_be_cleared: bool) -> AsyncIterator[None]:
    """Do the same as `serving_clicks` for a run of the Python API. Also send its tools' output to the run's cell."""
    async with serving_clicks():
        with Cell.here().outputs_of_run(may_be_cleared=may_be_cleared):
            yield


class _State(NamedTuple):
    """Settings of the kernel that belong to the running cell. The dispatch of another message changes these settings.

    private: ipykernel 6.0 to 6.x have `_parent_ident` and `saved_sigint_handler`. (`set_parent` and `get_parent` are public.) In
    ipykernel >= 7.4, the kernel itself saves and restores these settings.
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
    """Wakes the kernel's loop again and again. In ipykernel 6, it also dispatches comm messages while a cell is running.

    One pump serves all runs that wait at the same time. But while a widget's callback waits for a run, the pump that has
    dispatched the widget's message is blocked, so this run gets a new pump. Only the newest pump dispatches,
    so the messages keep their order.
    """

    def __init__(self, kernel: Kernel, outer: asyncio.Task[object] | None) -> None:
        self._kernel, self._outer, self._users = kernel, outer, 0
        # private: ipykernel 6.0 to 6.x have `msg_queue`, a tornado Queue of (number, dispatch, arguments). ipykernel >= 7.4 has
        # no such queue, and dispatches comm messages itself while a cell is running.
        self._queue: Any = getattr(kernel, "msg_queue", None)
        self._seen = -1
        """The number of the newest message that the pump has checked and left in the queue."""
        self._woken = asyncio.get_running_loop().create_future()
        self._dispatching: asyncio.Task[None] | None = None
        self._of_cell: _State
        """The state of the waiting cell. The pump restores this state after each message."""
        self._new_handler: Any = None
        """The SIGINT handler of a cell that began while a callback waited."""
        # This task does not get the run's output target, because the prints of a widget's callback are not output of the run.
        with redirect_output(None):
            self._task = asyncio.ensure_future(self._run())

    @staticmethod
    def join(kernel: Kernel, outer: asyncio.Task[object] | None) -> _Pump:
        """Return the pump for a run, and count the run. `outer` is the task whose sync code waits for the run, or None."""
        if not _pumps:
            _contain_exits(asyncio.get_running_loop())
            _drop_late_clicks()
            _send_idle_after_comms(kernel)
            _wake_for_messages(kernel)
        if not _pumps or _pumps[-1].dispatches_in(outer):
            _pumps.append(_Pump(kernel, outer))
        _pumps[-1]._users += 1
        return _pumps[-1]

    def leave(self) -> list[asyncio.Task[None]]:
        """Count one run less. If no run is left, end the pump. Return the pump's tasks, for which the caller has to wait.

        If another run waits in the task that is dispatching a message, this task is not returned.
        """
        self._users -= 1
        if self._users:
            return []
        _pumps.remove(self)
        if not _pumps:
            _while_pumping.close()
        self._task.cancel()
        held_up = any(self.dispatches_in(pump._outer) for pump in _pumps)
        return [self._task] if self._dispatching is None or held_up else [self._task, self._dispatching]

    def dispatches_in(self, task: asyncio.Task[object] | None) -> bool:
        """Return True if `task` is handling the message that the pump has taken out of the queue."""
        return task is not None and task is self._dispatching

    def wake(self) -> None:
        """Let the pump check the queue at once, not only after `WAKE_UP` seconds."""
        if not self._woken.done():
            self._woken.set_result(None)

    async def _run(self) -> None:
        while True:
            while self is _pumps[-1] and (item := self._take_comm()) is not None:
                self._dispatching = asyncio.ensure_future(self._dispatch(*item))
                await asyncio.wait([self._dispatching])
                error = self._dispatching.exception()
                if error is not None:  # the kernel's `dispatch_queue` logs such errors, too
                    self._kernel.log.error("Error in message handler", exc_info=error)
                self._dispatching = None
            self._woken = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._woken], timeout=WAKE_UP)

    def _take_comm(self) -> tuple[_Dispatch, tuple[object, ...]] | None:
        """Take the oldest comm message out of the queue; None if there is none. The other messages keep their order.

        This code awaits nothing, so no other code sees an incomplete queue.
        """
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
            return False  # not a message: a GUI event loop may put its steps into the queue, too
        session = self._kernel.session
        try:
            # Only the header is read here. If the whole message were deserialised here, its signature would be stored, and the
            # kernel would later reject the message because of a "duplicate signature". The kernel checks the signature itself.
            _, frames = session.feed_identities(list(arguments[0]), copy=False)
            return session.unpack(frames[1].bytes)["msg_type"] in ("comm_open", "comm_msg", "comm_close")
        except (ValueError, LookupError, TypeError):
            return False  # the message is malformed, and the kernel will report this

    async def _dispatch(self, dispatch: _Dispatch, arguments: tuple[object, ...]) -> None:
        """Let the kernel handle a message while a cell is running. Then restore the cell's parent message and SIGINT handler."""
        kernel, self._new_handler = self._kernel, None
        self._of_cell = _State.of(kernel)
        set_parent_before = kernel.set_parent

        def set_parent(ident: object, parent: Message, channel: str = "shell") -> None:
            if channel == "shell":
                # From now on, the message is the parent of all output. In ipykernel 6.17, it would also become the parent of
                # output that is still in the buffers. So the buffers are flushed first.
                hook.remove()
                self._of_cell = _State.of(kernel)
                flush_streams()
            set_parent_before(ident, parent, channel)

        hook = MethodHooks(kernel, set_parent=set_parent)
        try:
            await dispatch(*arguments)
        finally:
            hook.remove()
            self._of_cell.give_back(kernel)
            if self._new_handler is not None:
                signal.signal(signal.SIGINT, self._new_handler)

    @contextmanager
    def lend_to_cell(self) -> Iterator[None]:
        """While a callback waits, let the waiting cell continue: restore its parent message and its SIGINT handler."""
        of_callback, handler = _State.of(self._kernel), signal.getsignal(signal.SIGINT)
        flush_streams()
        self._of_cell.give_back(self._kernel)
        try:
            yield
        finally:
            self._of_cell = _State.of(self._kernel)
            flush_streams()
            of_callback.give_back(self._kernel)
            handler_now = signal.getsignal(signal.SIGINT)
            if handler_now is not handler:  # a cell that has begun meanwhile has set this handler
                self._new_handler = handler_now


_pumps: list[_Pump] = []
"""The active pumps. A pump handles clicks while a cell waits. The newest pump is the last one."""
_while_pumping = ExitStack()
"""What the first pump has changed in the kernel. It is restored when the last pump ends."""


def while_callback_waits(outer: asyncio.Task[object] | None) -> AbstractContextManager[None]:
    """Return a context for the time in which sync code of the task `outer` waits for a run.

    The context matters only if a widget's callback waits. In ipykernel 6, a cell that waits for another run can then go on.
    In ipykernel 7, no new cell begins until the callback's run has ended.
    """
    kernel = get_kernel()
    for pump in _pumps:
        if pump.dispatches_in(outer):
            return pump.lend_to_cell()
    if outer is None or kernel is None or hasattr(kernel, "msg_queue") or not is_in_callback(kernel):
        return nullcontext()
    return _holding_back_cells(kernel)


@contextmanager
def _holding_back_cells(kernel: Kernel) -> Iterator[None]:
    """Let no new cell begin during the `with` block, in which a callback waits for its run. The present cell may end.

    This is for ipykernel 7. After the callback, the kernel restores the parent that it had before. For a cell that began during
    the callback, this would be the wrong parent, and the front-end would show for ever that this cell is running.
    """
    # Subclasses of the kernel may override `should_handle`. Since ipykernel 7.0, it may be async. A kernel has no public
    # hook that holds cells back.
    before, ended = kernel.should_handle, asyncio.Event()

    async def should_handle(stream: object, msg: Message, idents: object) -> bool:
        if msg["header"]["msg_type"] == "execute_request":
            await ended.wait()
            kernel.set_parent(idents, msg, channel="shell")
        answer = before(stream, msg, idents)
        return bool(await answer if inspect.isawaitable(answer) else answer)

    hook = MethodHooks(kernel, should_handle=should_handle)
    try:
        yield
    finally:
        hook.remove()
        # The cells wait a little longer, until the kernel has restored the parent.
        asyncio.get_running_loop().call_later(0.02, ended.set)


class CardComms:
    """Handles the comms of one card's widgets. The object must be made on the thread of the card's run."""

    def __init__(self) -> None:
        # private: ipykernel 7.0 to 7.4 have `shell_channel_thread` and its `manager`.
        shells: Any = getattr(getattr(get_kernel(), "shell_channel_thread", None), "manager", None)
        self._subshell: str | None = None
        """The subshell in which the card's run waits; None for the main shell."""
        if shells is not None:
            # In a thread of the user's code, this raises RuntimeError. Then the main shell handles the card's messages.
            with suppress(RuntimeError):
                self._subshell = shells.subshell_id_from_thread_id(get_ident())

    def keep_order(self, comm: object) -> None:
        """Let one shell handle all messages to this comm, so that the messages keep their order.

        A person may change a field and then click a button. If two shells handled the two messages, the click could be handled
        first. By default, ipykernel 7.4 chooses the shell that was the last to send a message over this comm.

        private: in ipykernel 7.4, a comm has `_reply_subshell_for`. Older versions have no subshells, or are not supported.
        """
        if hasattr(comm, "_reply_subshell_for"):
            comm._reply_subshell_for = lambda _data, _default: self._subshell

    def is_click(self, comm: object) -> bool:
        """Return True if a person has clicked, and not code: then the kernel is handling a front-end's message to this comm.

        In a kernel that is not ipykernel, a person and code cannot be distinguished, and the result is True.
        """
        kernel = get_kernel()
        if kernel is None:
            return True
        parent: Message = kernel.get_parent("shell")
        return get_kind(parent) == "comm_msg" and (parent.get("content") or {}).get("comm_id") == getattr(
            comm, "comm_id", ""
        )


def _wake_for_messages(kernel: Kernel) -> None:
    """Until the last pump ends, wake the newest pump for each message that comes into the queue of ipykernel 6."""
    queue: Any = getattr(kernel, "msg_queue", None)
    if queue is None:
        return
    before = queue.put_nowait

    def put_nowait(item: object) -> None:
        before(item)
        _pumps[-1].wake()

    _while_pumping.callback(MethodHooks(queue, put_nowait=put_nowait).remove)


def _send_idle_after_comms(kernel: Kernel) -> None:
    """Until the last pump ends, send the status "idle" after each comm message that was handled while a cell is running.

    ipykernel 7.4 does not send this status itself. In a front-end, ipywidgets sends the next change of a field only after it has
    received "idle" for the previous change. Without "idle", the kernel would not get a second change of the same field.

    private: ipykernel 6.0 to 7.4 have `_publish_status`. ipykernel 7.4 has the parameter `concurrent` of `dispatch_shell`.
    """
    before: Any = kernel.dispatch_shell
    if "concurrent" not in inspect.signature(before).parameters:
        return

    async def dispatch_shell(*arguments: object, **options: object) -> None:
        await before(*arguments, **options)
        if options.get("concurrent"):
            kernel._publish_status("idle", "shell")  # the parent is still the comm message

    _while_pumping.callback(MethodHooks(kernel, dispatch_shell=dispatch_shell).remove)


def _drop_late_clicks() -> None:
    """Until the last pump ends, drop the message that comm 0.2 logs if a person clicks on a removed card."""

    def passes(record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith("No such comm:")

    logger = logging.getLogger("Comm")
    logger.addFilter(passes)
    _while_pumping.callback(logger.removeFilter, passes)


def _contain_exits(loop: asyncio.AbstractEventLoop) -> None:
    """Until the last pump ends: if code of a run raises SystemExit in a task, raise RuntimeError instead.

    SystemExit would end the loop and the kernel.
    """
    below: Any = loop.get_task_factory()

    def make_task(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[object]:
        contained = work if get_target() is None else _replace_exit(work)
        task = below(loop, contained, **options) if below else asyncio.Task(contained, loop=loop, **options)
        # If a task is cancelled before it begins, it never awaits `work`. `close()` prevents Python's warning about this.
        task.add_done_callback(lambda _: work.close())
        return task

    def restore() -> None:
        if loop.get_task_factory() is make_task:
            loop.set_task_factory(below)

    loop.set_task_factory(cast("Any", make_task))
    _while_pumping.callback(restore)


async def _replace_exit(work: Coroutine[object, Any, T]) -> T:
    try:
        return await work
    except SystemExit as error:
        raise RuntimeError(describe_error(error)) from error
