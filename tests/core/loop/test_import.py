"""A run that waits for LiteLLM's import: who tells the person, and that the wait is none of the run's time."""

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
    """A host that ends the import as soon as it has told the person, and keeps a log. Meanwhile its clock goes on."""

    def __init__(self, ended, clock):
        self.ended, self.clock, self.log = ended, clock, []

    @contextlib.contextmanager
    def importing(self):
        self.log.append("begins")
        asyncio.get_running_loop().call_soon(self.end)
        yield
        self.log.append("ends")

    def end(self):
        """Let a long time pass, look at the limits, and end the import. The run waits by now."""
        self.clock.now += 10 * TIMEOUT
        for limit in self.clock.limits:
            limit._look()
        self.ended.set()


class Page(Observer):
    """An observer that is asked to tell the person, and does so or not."""

    def __init__(self, ended, *, tells):
        self.ended, self.tells, self.asked = ended, tells, 0

    def before_import(self):
        self.asked += 1
        if self.tells:
            self.ended.set()
        return self.tells


@pytest.fixture
def ended(monkeypatch):
    """LiteLLM's import: it ends when this event is set. Whoever waits for it and tells nobody waits for ever."""
    client._make_ready()
    event = threading.Event()
    monkeypatch.setattr(client, "_make_ready", event.wait)
    monkeypatch.setattr(client, "is_ready", event.is_set)
    yield event
    event.set()


@pytest.fixture
def clock(monkeypatch):
    """The clock of all time limits, which goes on only if the test says so; and the limits that have begun."""
    clock = types.SimpleNamespace(now=0.0, limits=[])
    monkeypatch.setattr(runner.TimeLimit, "_now", lambda _: clock.now)
    enter = runner.TimeLimit.__enter__
    monkeypatch.setattr(
        runner.TimeLimit, "__enter__", lambda limit: (enter(limit), clock.limits.append(limit))[0]
    )
    return clock


@pytest.fixture
def other(serve, monkeypatch):
    """The name of a model that needs LiteLLM; its server says "Hello."."""
    monkeypatch.setenv("HOSTED_VLLM_API_BASE", serve([answer("Hello.")]).base_url)
    monkeypatch.setenv("HOSTED_VLLM_API_KEY", "key-of-the-other")
    return "hosted_vllm/m"


def make_session(way, other, host):
    """A session that needs LiteLLM for its model, for its fallback, or for a run in a tool."""

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
    """The host tells the person once, and the run has its whole `timeout` beside the import, however long that takes."""
    host = Importing(ended, clock)
    session = make_session(way, other, host)
    result = await session.arun("Hi")
    assert (result.stop_reason, result.text) == ("done", "Hello.")
    assert host.log == ["begins", "ends"]
    assert clock.now > TIMEOUT


@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize("way", ["model", "fallback"])
async def test_a_page_that_tells_it_itself(way, tells, ended, clock, other):
    """All observers are asked; the host says nothing if one of them tells the person."""
    host = Importing(ended, clock)
    pages = [Page(ended, tells=tells), Page(ended, tells=False)]
    session = make_session(way, other, host)
    *_, done = [event async for event in session.astream("Hi", observers=pages)]
    assert done.result.text == "Hello."
    assert [page.asked for page in pages] == [1, 1]
    assert host.log == ([] if tells else ["begins", "ends"])


async def test_a_preview_says_so_too(ended, clock, other):
    """A preview, which may need LiteLLM's facts about a model, tells the person about the wait."""
    host = Importing(ended, clock)
    request = await make_session("model", other, host).preview("Hi")
    assert request.model == other
    assert host.log == ["begins", "ends"]


async def test_rows_say_so_too(ended, clock, other):
    """The host of a row passes the wait on to the host of all rows."""
    host = Importing(ended, clock)
    config = make_session("fallback", other, host).config
    rows = await RowsRun(config, "{{row}}", ["Hi"], RowsOptions()).collect()
    assert [row.result.text for row in rows] == ["Hello."]
    assert host.log == ["begins", "ends"]


async def test_workers_begin_after_it(ended, clock, other):
    """A worker that is forked during the import would inherit its locks: no row is given to a worker before its end."""
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
