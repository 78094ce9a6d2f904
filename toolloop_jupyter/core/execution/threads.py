"""Threads for code that is not ours and not async: a tool's body, a callback.

They are daemons and not asyncio's pool: a thread that a cancelled run leaves behind must neither use up the pool nor
keep the interpreter from ending (the pool's threads are joined at exit). One that has done its work waits a while for
more, since to start a thread costs more than all else in a step of the loop; one that was asked to stop never gets more.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import ctypes
import functools
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .guard import ToolStopped, describe_error

TOOL_THREAD = "toolloop-tool"
"""The name of a thread while it runs a tool."""
IDLE_THREAD = "toolloop-idle"
"""The name of a thread that waits for work."""
IDLE = 5.0
"""Seconds that a thread waits for work before it ends."""
STOP_GRACE = 0.2
"""Seconds that a cancelled tool's thread gets to notice that it is stopped."""


async def in_thread(function: Callable[[], Any], on_left_behind: Callable[[bool], None] | None = None) -> Any:
    """Run `function` in a daemon thread with a copy of the current context variables.

    When cancelled, asks the thread to stop (`ToolStopped` is raised in its Python code), waits `STOP_GRACE` seconds
    and reports through `on_left_behind(stopped)` whether it ended or runs on. Its result is dropped then.
    """
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()
    future: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    job = _Job(functools.partial(context.run, function), functools.partial(_deliver, loop, future))
    worker = _Worker.given(job)
    try:
        value, raised = await future
    except asyncio.CancelledError:
        if future.cancelled() and not job.ended:
            stopped = await asyncio.shield(worker.stop(job))
            if on_left_behind is not None:
                on_left_behind(stopped)
        raise
    if raised is not None:
        raise raised
    return value


def _deliver(
    loop: asyncio.AbstractEventLoop,
    future: asyncio.Future[tuple[Any, BaseException | None]],
    value: object,
    raised: BaseException | None,
) -> None:
    """Hand a thread's outcome to the loop; nobody takes it when the wait was cancelled or the loop is closed.

    Both as a value: a future that raised GeneratorExit or StopIteration would end all that awaits it.
    """

    def settle() -> None:
        if not future.done():
            future.set_result((value, raised))

    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(settle)


@dataclass(eq=False)
class _Job:
    """One function to call, and what takes its value or what it raised."""

    function: Callable[[], Any]
    deliver: Callable[[object, BaseException | None], None]
    ended: bool = False
    """Whether the function has returned: from then on its thread is not stopped any more."""

    def outcome(self) -> tuple[object, BaseException | None]:
        try:
            return self.function(), None
        except ToolStopped:
            raise
        except StopIteration as error:  # a coroutine cannot raise it
            return None, RuntimeError(describe_error(error))
        except BaseException as error:  # noqa: BLE001 - carried to the loop, where `attempt` sorts it
            return None, error


_waiting: list[_Worker] = []
"""Those without work, the one that got free last at the end."""
_lock = threading.Lock()
"""Held when a worker joins or leaves those waiting, and when one is asked to stop."""


class _Worker:
    """A thread that does one job after the other, until none comes for a while or it was asked to stop."""

    def __init__(self) -> None:
        self.jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._asked_to_stop = False
        self.thread = threading.Thread(target=self._run, name=TOOL_THREAD, daemon=True)

    @classmethod
    def given(cls, job: _Job) -> _Worker:
        """The worker that does this job: one that waits, or a new one."""
        with _lock:
            while _waiting:
                worker = _waiting.pop()
                if worker.thread.is_alive():  # a forked process has the list, but not the threads
                    worker.jobs.put(job)
                    return worker
        worker = cls()
        worker.jobs.put(job)
        worker.thread.start()
        return worker

    def _run(self) -> None:
        with contextlib.suppress(ToolStopped):  # one that was sent before the job's end may come after it
            goes_on = True
            while goes_on:
                job = self._next()
                goes_on = job is not None and self._do(job)
                del job  # a waiting thread keeps nothing of a tool's alive

    def _next(self) -> _Job | None:
        try:
            return self.jobs.get(timeout=IDLE)
        except queue.Empty:
            with _lock:
                if self in _waiting:
                    _waiting.remove(self)
                    return None
            return self.jobs.get()  # it was given one just now

    def _do(self, job: _Job) -> bool:
        """Do a job; False when this thread is to end."""
        self.thread.name = TOOL_THREAD
        value, raised = job.outcome()
        asyncio.set_event_loop(None)  # a tool may have set one: not for the next
        with _lock:
            job.ended = True
            goes_on = not self._asked_to_stop
            if goes_on:  # before the outcome is told, so that the next call finds this thread
                self.thread.name = IDLE_THREAD
                _waiting.append(self)
        job.deliver(value, raised)
        return goes_on

    async def stop(self, job: _Job) -> bool:
        """Ask the thread's Python code to stop; True when it did within the grace time.

        CPython's `PyThreadState_SetAsyncExc`: raised at the thread's next bytecode, so not while it sleeps or waits in C.
        """
        with _lock:
            if self.thread.ident is not None and not job.ended:
                self._asked_to_stop = True
                ident, exception = ctypes.c_ulong(self.thread.ident), ctypes.py_object(ToolStopped)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, exception)
        waited = 0.0
        while waited < STOP_GRACE and self.thread.is_alive() and not job.ended:
            await asyncio.sleep(0.01)
            waited += 0.01
        return job.ended or not self.thread.is_alive()
