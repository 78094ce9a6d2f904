"""Sync over async, without a kernel: `sync.py` and `interrupts.py`."""

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
from toolloop_jupyter.notebook.kernel import sync as bridge
from toolloop_jupyter.notebook.kernel.interrupts import allow_interrupts, await_with_cleanup
from toolloop_jupyter.notebook.kernel.sync import drive


def sync(make):
    """Call `drive` as `run_sync` does."""
    return drive(make, contextvars.copy_context())


begun = threading.Event()
"""The run that is to be stopped has begun."""


async def value(result=1, seconds=0.0):
    begun.set()
    await asyncio.sleep(seconds)
    return result


def block(seconds):
    """Block the loop's thread, as a sync tool does."""
    begun.set()
    time.sleep(seconds)


def press_stop(*pauses):
    """Send SIGINT to this process once a run has begun, after each of these pauses; returns the event of the last one."""
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


def test_nest_without_a_kernel_or_a_loop_of_asyncios(monkeypatch):
    """`nest_loop` says what to write where there is no kernel or its loop is another one's, and changes nothing."""
    before = asyncio.run, "nest_asyncio2" in sys.modules
    with pytest.raises(Mistake, match="there is no kernel here"):
        bridge.nest_loop()
    monkeypatch.setattr(bridge, "find_kernel_loop", object)
    with pytest.raises(Mistake, match=r"\(builtins.object\) cannot be entered again: write await main\(\)"):
        bridge.nest_loop()
    assert (asyncio.run, "nest_asyncio2" in sys.modules) == before


def test_no_loop_running():
    """Without a running loop the result, or the exception, comes back, and all calls use one loop."""

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
    """In another thread a loop is made for the call and closed after it."""
    found = []

    async def loop():
        found.append(asyncio.get_running_loop())

    thread = threading.Thread(target=sync, args=(loop,))
    thread.start()
    thread.join()
    assert found[0].is_closed()


async def test_inside_a_running_loop():
    """Inside a task the nested run has tasks of its own, and the outer task is the current one again afterwards."""
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


async def test_five_levels():
    """A run in a run in a run: each gets its own result."""

    async def level(n):
        await asyncio.sleep(0)
        return [n, *(sync(lambda: level(n - 1)) if n else [])]

    assert sync(lambda: level(5)) == [5, 4, 3, 2, 1, 0]


def test_the_outer_turn_finds_its_handles():
    """Handles that were due in the turn in which a nested run began are run by it, and the outer turn goes on."""
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
    """A handle whose context is entered further up the stack still runs, in a copy that sees the same values."""
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
    """A nested run leaves every class and function of asyncio and the loop's own attributes untouched."""
    loop = asyncio.get_running_loop()

    def state():
        classes = (asyncio.Task, asyncio.Future, asyncio.Handle, asyncio.BaseEventLoop, type(loop))
        return [dict(vars(each)) for each in classes], asyncio.run, sorted(vars(loop)), asyncio.all_tasks()

    before = state()
    sync(value)
    assert state() == before


async def test_two_that_overlap():
    """A second nested run that begins inside the first and lasts longer: both end, in the order of the stack."""
    ended = []

    async def first():
        asyncio.get_running_loop().call_soon(lambda: ended.append(sync(lambda: value("second", 0.05))))
        await asyncio.sleep(0.01)
        return "first"

    ended.append(sync(first))
    assert ended == ["second", "first"]


async def test_a_loop_that_is_none_of_asyncios(monkeypatch):
    """On a loop that cannot be entered (uvloop) the error gives the caller's own advice, in one line."""

    class Loop:
        pass

    monkeypatch.setattr(asyncio, "_get_running_loop", Loop)
    with pytest.raises(RuntimeError, match=r"Loop\): write `await aagent") as raised:
        drive(value, contextvars.copy_context(), "write `await aagent(…)`")
    assert isinstance(raised.value, HarnessError)


def test_a_loop_that_is_stopped():
    """When the loop is told to stop (the kernel shuts down) the run is cancelled, and the loop does stop."""
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
    """SIGINT while a run waits, with and without a running loop."""

    @pytest.fixture(params=["outermost", "nested"])
    def call(self, request):
        """Call a function without, or inside, a running loop."""
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
        """The wait ends at once with KeyboardInterrupt."""
        press_stop(0.1)
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            call(lambda: sync(lambda: value(seconds=60)))
        assert time.monotonic() - began < 30

    def test_result_after_a_cancel(self, call):
        """What the run returns after the cancel is returned; a second press does not disturb it."""

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
        """A run that does not come to an end is cancelled again by a press after PATIENCE seconds."""
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
        """Blocking code inside `allow_interrupts()` is left at once, as a cancel."""
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
        """A press that finds the loop blocked since the last one breaks the blocking call."""

        async def blocks():
            block(60)

        press_stop(0.1, 0.5)
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            call(lambda: sync(blocks))
        assert time.monotonic() - began < 30


class TestAwaitWithCleanup:
    """A cancelled run finishes its cleanup."""

    async def test_result(self):
        """A result after a cancel is delivered, and the cancel is settled: the task counts no open one."""

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
        """A run that lets the cancel pass cancels the awaiting task."""
        task = asyncio.ensure_future(await_with_cleanup(asyncio.sleep(10)))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def test_error(self):
        """Without a cancel it is an ordinary await: errors come through."""

        async def fails():
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            await await_with_cleanup(fails())


def test_a_run_after_the_kept_loop_was_closed():
    """At exit, the loop of the main thread is closed; code that runs still later at exit gets another one."""
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
