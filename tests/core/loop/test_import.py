"""A run waits for LiteLLM's import: the person is told, and the wait does not count for the run's time limit."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import threading
import types
from concurrent.futures import Executor

import pytest

from support.asking import replace_config
from support.servers import answer
from toolloop_jupyter import Harness, ToolLoopOptions, aagent_session
from toolloop_jupyter.core.events import Host, Observer
from toolloop_jupyter.core.execution import runner
from toolloop_jupyter.core.loop import Approvals, Limits
from toolloop_jupyter.core.models import client
from toolloop_jupyter.core.rows import RowsOptions, RowsRun
from toolloop_jupyter.teaching import ScriptedModel, call, error

LOOP = Harness.TOOL_LOOP
TIMEOUT = 600


class Importing(Host):
    """A host that ends the import when it has told the person, and keeps a log. Meanwhile, its clock goes on."""

    def __init__(self, ended, clock):
        self.ended, self.clock, self.log = ended, clock, []

    @contextlib.contextmanager
    def importing(self):
        self.log.append("begins")
        asyncio.get_running_loop().call_soon(self.end)
        yield
        self.log.append("ends")

    def end(self):
        """Let a long time pass, let the limits look at the clock, and end the import. The run is waiting by now."""
        self.clock.now += 10 * TIMEOUT
        for limit in self.clock.limits:
            limit._look()
        self.ended.set()


class Page(Observer):
    """An observer that is asked to tell the person about the import. It may do so or not."""

    def __init__(self, ended, *, tells):
        self.ended, self.tells, self.asked = ended, tells, 0

    def before_import(self):
        self.asked += 1
        if self.tells:
            self.ended.set()
        return self.tells


@pytest.fixture
def ended(monkeypatch):
    """LiteLLM's import, which ends when this event is set. If nobody tells the person about the wait, the event is never set."""
    client._make_ready()
    event = threading.Event()
    monkeypatch.setattr(client, "_make_ready", event.wait)
    monkeypatch.setattr(client, "is_ready", event.is_set)
    yield event
    event.set()


@pytest.fixture
def clock(monkeypatch):
    """The clock of all time limits, which moves only if the test moves it; and the limits that have begun."""
    clock = types.SimpleNamespace(now=0.0, limits=[])
    monkeypatch.setattr(runner.TimeLimit, "_now", lambda _: clock.now)
    enter = runner.TimeLimit.__enter__
    monkeypatch.setattr(
        runner.TimeLimit, "__enter__", lambda limit: (enter(limit), clock.limits.append(limit))[0]
    )
    return clock


@pytest.fixture
def other(serve, monkeypatch):
    """The name of a model that needs LiteLLM. Its server answers "Hello."."""
    monkeypatch.setenv("HOSTED_VLLM_API_BASE", serve([answer("Hello.")]).base_url)
    monkeypatch.setenv("HOSTED_VLLM_API_KEY", "key-of-the-other")
    return "hosted_vllm/m"


def make_session(way, other, host):
    """Return a session that needs LiteLLM for its model, for its fallback, or for a run in a tool."""

    async def think() -> str:
        """Ask the other model."""
        inner = aagent_session(LOOP, model=other, timeout=TIMEOUT)
        replace_config(inner, host=host)
        return (await inner.arun("Hi")).text

    options = ToolLoopOptions(fallback=[other] if way == "fallback" else [])
    ours = {
        "model": other,
        "fallback": ScriptedModel(error("out of order")),
        "tool": ScriptedModel(call("think"), lambda messages: messages[-1]["content"]),
    }
    tools = [think] if way == "tool" else []
    session = aagent_session(LOOP, model=ours[way], options=options, tools=tools, timeout=TIMEOUT)
    replace_config(session, host=host)
    return session


@pytest.mark.parametrize("way", ["model", "fallback", "tool"])
async def test_the_wait_is_told_and_does_not_count(way, ended, clock, other):
    """The host tells the person once. However long the import takes, the run has its whole `timeout` after it."""
    host = Importing(ended, clock)
    session = make_session(way, other, host)
    result = await session.arun("Hi")
    assert (result.stop_reason, result.text) == ("done", "Hello.")
    assert host.log == ["begins", "ends"]
    assert clock.now > TIMEOUT


@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize("way", ["model", "fallback"])
async def test_a_page_that_tells_it_itself(way, tells, ended, clock, other):
    """All observers are asked. If one of them tells the person, the host does not."""
    host = Importing(ended, clock)
    pages = [Page(ended, tells=tells), Page(ended, tells=False)]
    session = make_session(way, other, host)
    *_, done = [event async for event in session.astream("Hi", observers=pages)]
    assert done.result.text == "Hello."
    assert [page.asked for page in pages] == [1, 1]
    assert host.log == ([] if tells else ["begins", "ends"])


async def test_a_preview_says_so_too(ended, clock, other):
    """A preview may need LiteLLM's facts about a model, so it also tells the person about the wait."""
    host = Importing(ended, clock)
    request = await make_session("model", other, host).preview("Hi")
    assert request.model == other
    assert host.log == ["begins", "ends"]


async def test_rows_say_so_too(ended, clock, other):
    """The host of a row tells the host of all rows about the wait."""
    host = Importing(ended, clock)
    config = make_session("fallback", other, host).config
    rows = await RowsRun(config, "{{row}}", ["Hi"], RowsOptions()).collect()
    assert [row.result.text for row in rows] == ["Hello."]
    assert host.log == ["begins", "ends"]


async def test_workers_begin_after_it(ended, clock, other):
    """A worker that is forked during the import would inherit its locks. So no worker gets a row before the import has ended."""
    given = []

    class Pool(Executor):
        def submit(self, work, *arguments, **keywords):
            given.append(ended.is_set())
            raise RuntimeError("no worker here")

    host = Importing(ended, clock)
    config = make_session("model", other, host).config
    config = dataclasses.replace(config, approvals=Approvals(), limits=Limits())
    run = RowsRun(config, "{{row}}", ["a"], RowsOptions(executor=Pool()))
    await run.collect()
    assert given
    assert all(given)
    assert host.log == ["begins", "ends"]
