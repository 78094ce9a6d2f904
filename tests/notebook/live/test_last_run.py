"""`%toolloop show` and `%toolloop export` show the last run of a shell, whether a cell or the API started it."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from toolloop_jupyter import Harness, aagent, agent, agent_session
from toolloop_jupyter.notebook import kernel
from toolloop_jupyter.notebook.live import presenter
from toolloop_jupyter.teaching.scripted import ScriptedModel, call


@pytest.fixture
def shell(monkeypatch):
    """A shell in which nothing has run yet."""
    monkeypatch.setattr(kernel, "get_shell", object)
    monkeypatch.setattr(presenter, "_last", [])


def said(text):
    return {"model": ScriptedModel(text), "tools": []}


def test_each_way_of_the_api(shell):
    """After `agent()`, `await aagent()`, a stream or a session's turn, its Result is the last one."""
    assert presenter.get_last() is None
    assert agent(Harness.TOOL_LOOP, "go", **said("one")) is presenter.get_last()
    assert asyncio.run(awaited()) is presenter.get_last()
    for _ in agent(Harness.TOOL_LOOP, "go", stream=True, **said("two")):
        pass
    assert presenter.get_last().text == "two"
    with agent_session(Harness.TOOL_LOOP, **said("three")) as session:
        assert session.run("go") is presenter.get_last()


async def awaited():
    return await aagent(Harness.TOOL_LOOP, "go", **said("awaited"))


def test_a_cancelled_run(shell):
    """A run that was stopped counts, too, although nobody got its Result."""

    async def waits() -> str:
        """Wait."""
        await asyncio.sleep(30)
        return "waited"

    async def stop_it():
        run = aagent(Harness.TOOL_LOOP, "go", model=ScriptedModel(call("waits")), tools=[waits])
        task = asyncio.ensure_future(run)
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(stop_it())
    assert presenter.get_last().stop_reason == "cancelled"
    assert presenter.get_last().calls[0].name == "waits"


def test_only_one_is_kept(shell):
    """An earlier Result is not kept in memory, even if a cell has shown it."""
    first = agent(Harness.TOOL_LOOP, "go", **said("one"))
    presenter.mark_shown(first)
    gone = weakref.ref(first)
    del first
    assert gone() is not None
    agent(Harness.TOOL_LOOP, "go", **said("two"))
    gc.collect()
    assert gone() is None


def test_a_script_keeps_none(monkeypatch):
    """Without a shell, no Result is kept."""
    monkeypatch.setattr(presenter, "_last", [])
    agent(Harness.TOOL_LOOP, "go", **said("one"))
    assert presenter.get_last() is None
