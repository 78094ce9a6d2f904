"""What all runs of a process have cost, and the budget that they share."""

from __future__ import annotations

import pytest

from support.servers import answer, calls
from toolloop_jupyter import Harness, ToolLoopOptions, aagent, aagent_session
from toolloop_jupyter.core.loop import turn
from toolloop_jupyter.core.models import load_litellm
from toolloop_jupyter.teaching import ScriptedModel

LOOP = Harness.TOOL_LOOP


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.fixture
def all_runs(monkeypatch):
    """The spending of all runs, which is zero at the beginning."""
    fresh = turn.Spending()
    monkeypatch.setattr(turn, "SPENDING", fresh)
    return fresh


@pytest.fixture
def priced(serve, monkeypatch):
    """The keywords that send a run to a scripted server whose model costs 0.015 a call.

    No other test may use the name of this model, since LiteLLM caches the prices of a name for the whole process.
    """
    price = {"input_cost_per_token": 1e-3, "output_cost_per_token": 1e-3, "litellm_provider": "openai"}
    monkeypatch.setitem(load_litellm().model_cost, "openai/costs-15-mills", {**price, "mode": "chat"})

    def make(*script, model="openai/costs-15-mills"):
        server = serve(list(script))
        return {"model": model, "api_base": server.base_url, "api_key": "k"}, server

    return make


async def test_all_runs_add_up(all_runs, priced):
    """Calls of all runs, sessions and models count. A run with a call of unknown cost is counted once as such."""
    more, _ = priced(calls(("add", {"a": 1, "b": 2})), answer("3."))
    unknown, _ = priced(calls(("add", {"a": 1, "b": 2})), answer("3."), model="openai/no-price")
    await aagent(LOOP, "Go.", tools=[add], **more)
    await aagent(LOOP, "Go.", tools=[add], **unknown)
    await aagent_session(LOOP, model=ScriptedModel("Hi.")).arun("Go.")
    assert all_runs.cost == pytest.approx(2 * 15e-3)
    assert (all_runs.runs, all_runs.unknown, all_runs.usage.calls) == (3, 1, 5)


async def test_a_budget_ends_a_run_before_the_next_call(all_runs, priced):
    """The budget is checked before each model call. A run ends after the call that has used the budget up, even if a closing
    answer is wanted.
    """
    more, server = priced(calls(("add", {"a": 1, "b": 2})), answer("3."))
    all_runs.budget = 0.012
    result = await aagent(LOOP, "Go.", tools=[add], options=ToolLoopOptions(on_limit="answer"), **more)
    assert (result.stop_reason, len(server.requests)) == ("max_cost", 1)
    assert result.error == (
        "the budget of $0.012 for all runs is used up: $0.0150 in 1 run. Raise it to go on: %toolloop --budget USD"
    )
    assert all_runs.left == 0


async def test_a_budget_that_is_used_up(all_runs, priced):
    """A later run asks no model, and its question does not stay in the session. With a higher budget, the session goes on."""
    more, server = priced(answer("Hi."))
    session = aagent_session(LOOP, **more)
    all_runs.budget = 0.01
    results = [await session.arun("Go.") for _ in range(3)]
    assert [r.stop_reason for r in results] == ["done", "max_cost", "max_cost"]
    assert [m["content"] for m in await session.history()] == ["Go.", "Hi."]
    all_runs.budget = 1
    assert (await session.arun("Now?")).stop_reason == "done"
    assert [m["content"] for m in server.requests[-1].messages] == ["Go.", "Hi.", "Now?"]
    assert all_runs.left == pytest.approx(1 - 2 * 15e-3)


async def test_what_is_not_known_is_said(all_runs, priced):
    """The message says that runs without a known cost are not counted."""
    unknown, _ = priced(answer("Hi."), model="openai/no-price")
    more, _ = priced(answer("Hi."))
    all_runs.budget = 0.01
    results = [await aagent(LOOP, "Go.", **each) for each in (unknown, more, more)]
    assert (
        "$0.0150 in 2 runs; for 1 of these runs, a part of the cost is unknown and is not counted"
        in results[-1].error
    )
