"""The time limit of a run, on a clock that the test sets."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import types
import weakref

import pytest

from toolloop_jupyter.core.execution import TimeLimit, runner, uncounted


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves only if the test moves it."""
    clock = types.SimpleNamespace(now=0.0)
    monkeypatch.setattr(runner.TimeLimit, "_now", lambda _: clock.now)
    return clock


async def test_only_waits_inside_uncounted_are_free(clock):
    """The time inside `uncounted()` does not count. The time before it and after it counts."""
    reached = []
    with (limit := TimeLimit(1000, lambda: reached.append(clock.now))):
        clock.now += 600
        with uncounted():
            clock.now += 5000
            limit._look()
        clock.now += 399
        limit._look()
        assert reached == []
        clock.now += 1
        limit._look()
    assert reached == [6000]


async def test_waits_beside_one_another(clock):
    """Two waits overlap, one of them in another thread: until the last one has ended, no time counts."""
    reached = []
    with (limit := TimeLimit(1000, lambda: reached.append(clock.now))):
        with uncounted():
            thread = threading.Thread(target=limit.count_wait, args=(1,))
            thread.start()
            thread.join()
            clock.now += 2000
        clock.now += 2000
        limit.count_wait(-1)
        clock.now += 999
        limit._look()
        assert reached == []


async def test_a_limit_within_a_limit(clock):
    """A wait in an inner run does not count for the outer run either. After a run, its limit is gone."""
    reached = []
    with (outer := TimeLimit(10, lambda: reached.append("outer"))):
        with (inner := TimeLimit(10, lambda: reached.append("inner"))), uncounted():
            clock.now += 100
        inner._look()
        outer._look()
        assert reached == []
        clock.now += 10
        outer._look()
    assert reached == ["outer"]
    assert runner._limits.get() == ()


async def test_it_ends_by_itself():
    """On the real clock, a limit is reached without any help from the test."""
    reached = asyncio.Event()
    with TimeLimit(0.01, reached.set):
        await asyncio.wait_for(reached.wait(), 60)


async def test_nothing_of_a_run_is_kept():
    """A task that outlives its run has the run's context, with its limit. Still, this does not keep the object in memory that
    the limit would stop.
    """

    class Channel:
        def stop(self):
            """Stop the run."""

    channel = Channel()
    kept = weakref.ref(channel)
    with TimeLimit(1000, channel.stop):
        left_behind = asyncio.ensure_future(asyncio.sleep(1000))
    del channel
    gc.collect()
    assert kept() is None
    left_behind.cancel()


async def test_a_block_that_another_context_ends():
    """The garbage collector may close a coroutine in another context than its own. The block then ends without an error."""
    limit = TimeLimit(1000, never)
    contextvars.copy_context().run(limit.__enter__)
    limit.__exit__()


def never():
    raise AssertionError
