"""The cost of calls that were cut off or refused: an unknown cost is not zero, and a request that the provider never worked
on costs nothing.
"""

from __future__ import annotations

import asyncio

import pytest

import toolloop_jupyter as tl
from support.clock import skip_time
from support.servers import answer, calls, failure, find_port
from toolloop_jupyter import Harness, ToolLoopOptions, aagent, aagent_session
from toolloop_jupyter.core.models.client import load_litellm
from toolloop_jupyter.teaching.scripted import ScriptedModel

LOOP = Harness.TOOL_LOOP
CUT = answer("a b c d e f", drop_after=4)
HELD = answer("a b c d e f", hold_after=3)


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.fixture
def call(serve, monkeypatch):
    """The keywords that send a run to a scripted server, whose model costs 0.02 a call."""
    price = {"input_cost_per_token": 1e-3, "output_cost_per_token": 2e-3, "litellm_provider": "openai"}
    monkeypatch.setitem(load_litellm().model_cost, "openai/stub", {**price, "mode": "chat"})

    def make(*script, base="", **completion_kwargs):
        options = ToolLoopOptions(completion_kwargs={"max_retries": 0, **completion_kwargs}, max_cost=0.015)
        if not base:
            make.server = serve(list(script))
            base = make.server.base_url
        return {"model": "openai/stub", "api_base": base, "api_key": "sk-test", "options": options}

    return make


async def cancelled(more):
    stream = aagent(LOOP, "Go", stream=True, **more)
    async for event in stream:
        if isinstance(event, tl.Text):
            stream.cancel()
    return stream.result


@pytest.mark.parametrize(
    ("script", "timeout", "reason"),
    [
        ([HELD], None, "cancelled"),
        ([HELD], 60, "timeout"),
        ([answer("late", stall=30)], 60, "timeout"),
        ([CUT], None, "runtime_error"),
    ],
    ids=["cancelled", "timeout", "timeout before the answer", "broken off"],
)
async def test_a_call_that_was_cut(call, script, timeout, reason):
    """A call that is cut off counts as a model call with an unknown cost. So the cost of the session is unknown, too."""
    more = call(*script)
    if reason == "cancelled":
        result = await cancelled(more)
    else:
        async with aagent_session(LOOP, **more, timeout=timeout) as session:
            stream = session.astream("Go")
            reading = asyncio.ensure_future(read(stream, is_begun := asyncio.Event()))
            if script == [HELD]:
                await is_begun.wait()
            await asyncio.to_thread(call.server.wait_for_requests, 1)
            if timeout:
                skip_time(timeout + 1)
            await reading
            result = stream.result
            assert (session.cost, session.usage.calls) == (None, 1)
    assert (result.stop_reason, result.cost, result.usage) == (reason, None, tl.Usage(calls=1))


async def read(stream, is_begun):
    """Read a run to its end. `is_begun` is set when the first words of the answer come."""
    async for event in stream:
        if isinstance(event, tl.Text):
            is_begun.set()


async def test_no_answer_in_time(call):
    """If LiteLLM stops waiting for an answer, the model call still counts as sent."""
    running = asyncio.ensure_future(aagent(LOOP, "Go", **call(answer("late", stall=30), timeout=60)))
    await asyncio.to_thread(call.server.wait_for_requests, 1)
    while not running.done():
        skip_time(61)
        await asyncio.sleep(0.05)
    result = running.result()
    assert (result.stop_reason, result.cost, result.usage.calls) == ("runtime_error", None, 1)


async def test_a_broken_try_before_the_answer(call):
    """A try that broke off may have cost something, even if the next try succeeds."""
    result = await aagent(LOOP, "Go", **call(CUT, answer("a b c d e f"), num_retries=1))
    assert (result.text, result.cost, result.usage) == ("a b c d e f", None, tl.Usage(10, 5, 2))


@pytest.mark.parametrize("status", [400, 401, 404, 503, None])
async def test_what_was_refused_costs_nothing(call, status):
    """A request that the server refused, or never got, does not count as a model call."""
    more = call(failure(status, "no")) if status else call(base=f"http://127.0.0.1:{find_port()}")
    result = await aagent(LOOP, "Go", **more)
    assert (result.stop_reason, result.cost, result.usage) == ("runtime_error", 0.0, tl.Usage())


async def test_a_refused_try_before_the_answer(call):
    """If a request was refused before the answer, the cost of the answer is still known."""
    result = await aagent(LOOP, "Go", **call(failure(503, "busy"), answer("ok"), num_retries=1))
    assert (result.cost, result.usage.calls) == (pytest.approx(0.02), 1)


async def test_max_cost_counts_what_is_known(call):
    """An unknown part of the cost does not count for max_cost. The known part does."""
    script = [CUT, calls(("add", {"a": 1, "b": 2})), answer("never asked for")]
    result = await aagent(LOOP, "Go", tools=[add], **call(*script, num_retries=1))
    assert (result.stop_reason, result.cost) == ("max_cost", None)
    assert result.error == "stopped at $0.0200: max_cost is $0.015"


async def test_a_scripted_model_is_free():
    """Our own models cost nothing, even if a call is cut off."""
    result = await cancelled({"model": ScriptedModel(["a b c d e f"])})
    assert (result.stop_reason, result.cost) == ("cancelled", 0.0)
