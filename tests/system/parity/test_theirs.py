"""LiteLLM's side of the differences that have tests of their own: LiteLLM still does what the row says.

The scenarios run both sides. The tests that other rows name mostly check our side. So without this file, no test would show
that LiteLLM's loop has changed.
"""

from __future__ import annotations

import asyncio
import inspect
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("litellm.harness", reason="this LiteLLM has no agent API to compare with")

import litellm
from litellm import harness as theirs

from support.servers import answer, calls, failure
from system.parity.differences import DIFFERENCES
from system.parity.functions import ONE, REVIEW, Review, add, raw_call
from system.parity.sides import MODEL, set_prices

LOOP = theirs.Harness.TOOL_LOOP
SPENT = 0 if version("litellm").startswith("1.110.0") else 2
"""How often a refused request is repeated with num_retries=2. The oldest allowed LiteLLM does not repeat it."""
PARTS = [{"type": "text", "text": "What?"}]
CHECKS = {}
"""Name of a row -> (the function that examines LiteLLM's side, the value that it returns as long as the row is true)."""


def row(name, seen):
    """Add the check of a row: an async function that takes `here` (see the fixture), and returns what it has seen."""

    def add_check(check):
        CHECKS[name] = (check, seen)
        return check

    return add_check


@pytest.fixture
def here(call, serve, tmp_path, monkeypatch):
    """`run(script, prompt, **keywords)` runs LiteLLM's loop on a scripted server. It returns LiteLLM's result, and the
    server's requests.
    """

    async def run(*script, prompt="Go", completion_kwargs=None, **keywords):
        more, server = call(*script)
        options = theirs.ToolLoopOptions(completion_kwargs=completion_kwargs or {})
        keywords = {**more, "sandbox": sandbox, "options": options, **keywords}
        return await theirs.aagent(LOOP, prompt, **keywords), server.requests

    set_prices()
    sandbox = litellm.sandbox.local(tmp_path)
    return SimpleNamespace(run=run, call=call, serve=serve, sandbox=sandbox, patch=monkeypatch)


async def raised(awaitable):
    """Return the name of the error with which an awaitable ends."""
    try:
        await awaitable
    except Exception as error:
        return type(error).__name__
    return "nothing"


@row("token deltas", ["One two three."])
async def whole_text(here):
    result, _ = await here.run(answer("One two three."))
    return [event.delta for event in result.events if isinstance(event, theirs.Text)]


@row("sync calls in a notebook", "RuntimeError")
async def sync_call(here):
    more, _ = here.call(answer("Hi."))

    async def ask():
        return theirs.agent(LOOP, "Go", sandbox=here.sandbox, **more)

    return await raised(ask())


@row("sandbox", ["TypeError", str(Path.cwd())])
async def without_sandbox(here):
    more, _ = here.call(answer("Hi."))

    async def ask():
        return await theirs.aagent(LOOP, "Go", **more)

    def where() -> str:
        """Return the working folder."""
        return str(Path.cwd())

    result, _ = await here.run(calls(("where", {})), answer("There."), tools=[where])
    return [await raised(ask()), *outputs(result)]


def outputs(result):
    return [event.output for event in result.events if isinstance(event, theirs.ToolResult)]


@row("edited arguments", ["self"])
async def allow_takes_nothing(here):
    return list(inspect.signature(theirs.Approval.allow).parameters)


@row("per-tool permissions", ["TypeError", "ValueError"])
async def one_mode(here):
    policies = ({"add": "deny"}, lambda call: True)
    return [await raised(here.run(ONE, answer("ok"), tools=[add], permissions=one)) for one in policies]


@row("history that comes back", [False, False, "StateIncompatible"])
async def no_history(here):
    more, _ = here.call(answer("Hi."))
    async with theirs.aagent_session(LOOP, sandbox=here.sandbox, **more) as session:
        await session.arun("Go")

    async def resume():
        return await theirs.aagent_resume(session.state(), sandbox=here.sandbox)

    keywords = inspect.signature(theirs.aagent_session).parameters
    return ["history" in keywords, hasattr(session, "save"), await raised(resume())]


CLAUDE_SAYS = {
    "body": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": [{"type": "text", "text": "Done."}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }
}


@row("prompt caching", [0, 2])
async def marked_where_asked(here):
    found = []
    for asked in ({}, {"enable_prompt_caching": True}):
        server = here.serve([CLAUDE_SAYS])
        more = {"model": "anthropic/claude-sonnet-4-6", "api_base": server.base_url.removesuffix("/v1")}
        await here.run(answer(""), tools=[add], instructions="Be brief.", completion_kwargs=asked, **more)
        found.append(server.requests[0].raw.count(b'"cache_control"'))
    return found


@row("fallback models", [["stub", "other"], 1, ["Text"]])
async def silent_fallback(here):
    script = [failure(500), answer("Hi.")]
    result, requests = await here.run(
        *script, completion_kwargs={"fallbacks": ["openai/other"], "max_retries": 0}
    )
    keys = {request.headers["authorization"] for request in requests}
    kinds = [type(event).__name__ for event in result.events]
    return [[request.body["model"] for request in requests], len(keys), kinds]


@row("a budget for all runs", ("done", 2, True))
async def budget_that_counts_nothing(here):
    here.patch.setattr(litellm, "max_budget", 1e-9)
    result, requests = await here.run(ONE, answer("3"), tools=[add], model=MODEL)
    return result.stop_reason, len(requests), result.cost > litellm.max_budget


@row("retries that cannot help", [1 + SPENT] * 2)
async def refused_again(here):
    found = []
    for status in (400, 401):
        retries = {"num_retries": 2, "max_retries": 0}
        _, requests = await here.run(failure(status, "no"), completion_kwargs=retries)
        found.append(len(requests))
    return found


@row("neighbouring questions", ["user", "user"])
async def two_questions(here):
    more, server = here.call(answer("late", stall=300), answer("Hi."))

    async def read(stream):
        async for _ in stream:
            pass

    async with theirs.aagent_session(LOOP, sandbox=here.sandbox, **more) as session:
        stream = session.astream("One")
        reading = asyncio.create_task(read(stream))
        await asyncio.to_thread(server.wait_for_requests, 1)
        stream.cancel()
        await reading
        await session.arun("Two")
    return [message["role"] for message in server.requests[1].messages]


@row("prompts that are lists", [PARTS, ("runtime_error", 0)])
async def parts_as_they_are(here):
    _, requests = await here.run(answer("Hi."), prompt=PARTS)
    result, none = await here.run(answer("Hi."), prompt=["What?", 3])
    return [requests[0].messages[0]["content"], (result.stop_reason, len(none))]


@row("calls sent twice", ["3", "3"])
async def runs_twice(here):
    call = raw_call('{"a": 1, "b": 2}')["tool_calls"][0]
    result, _ = await here.run({"tool_calls": [call, call]}, answer("ok"), tools=[add])
    return outputs(result)


@row("several calls in one", ["JSONDecodeError: Extra data after tool arguments"])
async def extra_data(here):
    script = [raw_call('{"a": 1, "b": 2}{"a": 3, "b": 4}'), answer("ok")]
    result, _ = await here.run(*script, tools=[add])
    return outputs(result)


@row("blank text beside calls", " \n")
async def blank_goes_back(here):
    _, requests = await here.run({**ONE, "content": " \n"}, answer("ok"), tools=[add])
    return requests[1].messages[1]["content"]


@row("output asked for in words", [("done", True, True), ("runtime_error",)])
async def format_beside_tools(here):
    found = []
    for model in ("openai/stub", "groq/gemma2-9b-it"):
        result, requests = await here.run(REVIEW, output=Review, tools=[add], model=model)
        sent = [name in request.body for request in requests for name in ("response_format", "tools")]
        found.append((result.stop_reason, *sent))
    return found


@row("closed sessions", "SessionClosed")
async def no_history_after_the_end(here):
    more, _ = here.call(answer("Hi."))
    async with theirs.aagent_session(LOOP, sandbox=here.sandbox, **more) as session:
        await session.arun("Go")
    return await raised(session.history())


@row("sandbox objects", [True, True, True])
async def sandboxes_that_work(here):
    return [hasattr(litellm.sandbox, "docker"), hasattr(here.sandbox, "run"), hasattr(here.sandbox, "write")]


@pytest.mark.parametrize("name", CHECKS)
async def test_a_row_still_says_what_litellm_does(here, name):
    """LiteLLM's loop does what the row says."""
    check, seen = CHECKS[name]
    theirs_says = next(difference.theirs for difference in DIFFERENCES if difference.name == name)
    found = await check(here)
    assert found == seen, (
        f'with LiteLLM {version("litellm")} this row of docs/differences.md holds no more: "{name}" ({theirs_says})'
    )


def test_each_row_with_a_test_of_its_own_is_checked():
    """Every row is checked: either a scenario shows LiteLLM's side, or a check in this file."""
    assert CHECKS.keys() == {difference.name for difference in DIFFERENCES if difference.test}
