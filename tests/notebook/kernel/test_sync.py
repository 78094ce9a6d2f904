"""Without a kernel: async code runs from sync code, and interrupts end it (`sync.py`, `interrupts.py`)."""

from __future__ import annotations

import asyncio
import contextvars
import signal
import subprocess
import sys
import threading
import time

import pytest

from support.signals import interrupt_this_process
from toolloop_jupyter.core.events import HarnessError, Mistake
from toolloop_jupyter.notebook.kernel import interrupts
from toolloop_jupyter.notebook.kernel import sync as sync_module
from toolloop_jupyter.notebook.kernel.interrupts import allow_interrupts, await_with_cleanup
from toolloop_jupyter.notebook.kernel.sync import drive


def sync(make):
    """Call `drive` as `run_sync` does."""
    return drive(make, contextvars.copy_context())


begun = threading.Event()
"""Set when the run that the test will interrupt has begun."""


async def value(result=1, seconds=0.0):
    begun.set()
    await asyncio.sleep(seconds)
    return result


def block(seconds):
    """Block the loop's thread, as a sync tool does."""
    begun.set()
    time.sleep(seconds)


def press_stop(*pauses):
    """When a run has begun, send SIGINT after each pause. Return an event, which is set after the last SIGINT."""
    begun.clear()
    pressed = threading.Event()

    def press():
        begun.wait()
        for pause in pauses:
            time.sleep(pause)
            interrupt_this_process()
        pressed.set()

    threading.Thread(target=press, daemon=True).start()
    return pressed


def test_nest_without_a_kernel_or_with_another_loop(monkeypatch):
    """Without a kernel, or if the kernel's loop is not asyncio's own, `nest_loop` says what to write, and changes nothing."""
    before = asyncio.run, "nest_asyncio2" in sys.modules
    with pytest.raises(Mistake, match="there is no kernel here"):
        sync_module.nest_loop()
    monkeypatch.setattr(sync_module, "find_kernel_loop", object)
    with pytest.raises(Mistake, match=r"\(builtins.object\) cannot be entered again: write await main\(\)"):
        sync_module.nest_loop()
    assert (asyncio.run, "nest_asyncio2" in sys.modules) == before


def test_no_loop_running():
    """If no loop is running, a call returns the result or raises the exception. All calls use the same loop."""

    async def loop():
        return asyncio.get_running_loop()

    async def fails():
        raise ValueError("no")

    first = sync(loop)
    assert sync(loop) is first
    assert not first.is_closed()
    with pytest.raises(ValueError, match="no"):
        sync(fails)


def test_in_a_thread():
    """In another thread, each call makes a loop, and closes it at its end."""
    loops = []

    async def loop():
        loops.append(asyncio.get_running_loop())

    thread = threading.Thread(target=sync, args=(loop,))
    thread.start()
    thread.join()
    assert loops[0].is_closed()


async def test_inside_a_running_loop():
    """In a task, the run has a task of its own. Afterwards, the outer task is the current task again."""
    outer = asyncio.current_task()
    ticks = []

    async def tick():
        while True:
            ticks.append(1)
            await asyncio.sleep(0.005)

    async def nested():
        while len(ticks) < 5:  # noqa: ASYNC110 - the ticks are what is waited for
            await asyncio.sleep(0.005)
        return asyncio.current_task()

    ticker = asyncio.ensure_future(tick())
    assert sync(nested) is not outer
    assert asyncio.current_task() is outer
    assert len(ticks) >= 5
    await asyncio.sleep(0.02)
    ticker.cancel()


async def test_six_levels():
    """Six runs are nested in each other: each gets its own result."""

    async def level(n):
        await asyncio.sleep(0)
        return [n, *(sync(lambda: level(n - 1)) if n else [])]

    assert sync(lambda: level(5)) == [5, 4, 3, 2, 1, 0]


def test_the_outer_turn_finds_its_handles():
    """A nested run also runs the callbacks that were due before it. Afterwards, the outer loop continues without an error."""
    loop, ran, problems = asyncio.new_event_loop(), [], []
    loop.set_exception_handler(lambda _, context: problems.append(context))

    def outer():
        ran.append(sync(lambda: value("nested", 0.01)))
        loop.call_later(0.05, loop.stop)

    loop.call_soon(outer)
    for n in range(5):
        loop.call_soon(ran.append, n)
    loop.run_forever()
    loop.close()
    assert (ran, problems) == ([0, 1, 2, 3, 4, "nested"], [])


def test_a_context_that_is_entered():
    """The function that waits runs in a callback's context: the callback runs in a copy of the context, with the same values."""
    variable, loop, seen, problems = contextvars.ContextVar("v"), asyncio.new_event_loop(), [], []
    loop.set_exception_handler(lambda _, context: problems.append(context))
    context = contextvars.copy_context()
    context.run(variable.set, "shared")

    def cell():
        loop.call_soon(lambda: seen.append(variable.get()), context=context)
        sync(value)
        seen.append("cell")
        loop.stop()

    loop.call_soon(cell, context=context)
    loop.run_forever()
    loop.close()
    assert (seen, problems) == (["shared", "cell"], [])


async def test_asyncio_stays_as_it_is():
    """A nested run changes no class or function of asyncio, and no attribute of the loop."""
    loop = asyncio.get_running_loop()

    def state():
        classes = (asyncio.Task, asyncio.Future, asyncio.Handle, asyncio.BaseEventLoop, type(loop))
        return [dict(vars(each)) for each in classes], asyncio.run, sorted(vars(loop)), asyncio.all_tasks()

    before = state()
    sync(value)
    assert state() == before


async def test_two_that_overlap():
    """A second nested run begins in the first, and lasts longer: both end, the second one first."""
    ended = []

    async def first():
        asyncio.get_running_loop().call_soon(lambda: ended.append(sync(lambda: value("second", 0.05))))
        await asyncio.sleep(0.01)
        return "first"

    ended.append(sync(first))
    assert ended == ["second", "first"]


async def test_a_loop_that_is_not_of_asyncio(monkeypatch):
    """If the running loop is not asyncio's own (uvloop), the error contains the caller's advice, in one line."""

    class Loop:
        pass

    monkeypatch.setattr(asyncio, "_get_running_loop", Loop)
    with pytest.raises(RuntimeError, match=r"Loop\): write `await aagent") as raised:
        drive(value, contextvars.copy_context(), "write `await aagent(…)`")
    assert isinstance(raised.value, HarnessError)


def test_a_loop_that_is_stopped():
    """If the loop is stopped (the kernel shuts down), the run is cancelled, and the loop stops."""
    loop, ended = asyncio.new_event_loop(), []

    async def waits():
        try:
            await asyncio.sleep(10)
        finally:
            ended.append("cleaned up")

    def cell():
        loop.call_later(0.02, loop.stop)
        with pytest.raises(asyncio.CancelledError):
            sync(waits)
        ended.append("cell")

    loop.call_soon(cell)
    began = time.monotonic()
    loop.run_forever()
    loop.close()
    assert ended == ["cleaned up", "cell"]
    assert time.monotonic() - began < 10


class TestInterrupts:
    """A SIGINT arrives while a run waits."""

    @pytest.fixture(params=["outermost", "nested"])
    def call(self, request):
        """Call a function outside a running loop, or inside one."""
        if request.param == "outermost":
            return lambda function: function()

        async def inside(function):
            return function()

        return lambda function: asyncio.run(inside(function))

    @pytest.fixture(autouse=True)
    def handler(self):
        found = signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        signal.signal(signal.SIGINT, found)

    def test_cancels(self, call):
        """The wait ends at once. It raises KeyboardInterrupt."""
        press_stop(0.1)
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            call(lambda: sync(lambda: value(seconds=60)))
        assert time.monotonic() - began < 30

    def test_result_after_a_cancel(self, call):
        """If the run returns a value after the cancel, this value is returned. A second SIGINT changes nothing."""

        async def answers():
            begun.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                while not pressed.is_set():  # noqa: ASYNC110 - set by a thread
                    await asyncio.sleep(0.01)
                return "partial"

        pressed = press_stop(0.1, 0.1)
        assert call(lambda: sync(answers)) == "partial"

    def test_impatient(self, call, monkeypatch):
        """If a cancelled run does not end, a SIGINT after `PATIENCE` seconds cancels it again."""
        monkeypatch.setattr(interrupts, "PATIENCE", 0.2)

        async def stubborn():
            begun.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                await asyncio.sleep(60)

        press_stop(0.1, 0.4)
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            call(lambda: sync(stubborn))
        assert time.monotonic() - began < 30

    def test_blocking_code(self, call):
        """A SIGINT stops blocking code in `allow_interrupts()` at once. The code sees a CancelledError."""
        seen = []

        async def blocks():
            try:
                with allow_interrupts():
                    block(60)
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise

        press_stop(0.1)
        with pytest.raises(KeyboardInterrupt):
            call(lambda: sync(blocks))
        assert seen == ["cancelled"]

    def test_blocked(self, call):
        """If the loop has been blocked since the first SIGINT, a second one stops the blocking call."""

        async def blocks():
            block(60)

        press_stop(0.1, 0.5)
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            call(lambda: sync(blocks))
        assert time.monotonic() - began < 30


class TestAwaitWithCleanup:
    """A cancelled run can clean up."""

    async def test_result(self):
        """If the run returns a value after a cancel, the value is returned, and the task no longer counts as cancelled."""

        async def run():
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                await asyncio.sleep(0.05)
                return "partial"

        async def cell():
            result = await await_with_cleanup(run())
            await asyncio.sleep(0)
            task = asyncio.current_task()
            return result, task.cancelling() if sys.version_info >= (3, 11) else 0

        task = asyncio.ensure_future(cell())
        await asyncio.sleep(0.01)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0.01)
        assert await task == ("partial", 0)

    async def test_cancelled(self):
        """If the run is cancelled, so is the task that awaits it."""
        task = asyncio.ensure_future(await_with_cleanup(asyncio.sleep(10)))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def test_error(self):
        """Without a cancel, the run's error is raised, as by `await`."""

        async def fails():
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            await await_with_cleanup(fails())


def test_a_run_after_the_kept_loop_was_closed():
    """At exit, the main thread's loop is closed. Code that runs later at exit gets a new loop."""
    code = (
        "import atexit\n"
        "from toolloop_jupyter import agent, Harness\n"
        "def ask(): print(agent(Harness.TOOL_LOOP, 'Hi', model='toolloop/demo').stop_reason)\n"
        "atexit.register(ask)\n"
        "ask()\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.stdout.split(), ended.stderr) == (["done", "done"], "")
