"""The list of differences is complete and true. This file also has the tests of those differences that no scenario can show."""

from __future__ import annotations

import ast
import asyncio
from pathlib import Path

import pytest

from support.servers import answer, calls, failure
from system.parity.differences import DIFFERENCES, SUITE
from toolloop_jupyter import (
    Harness,
    Text,
    ToolCall,
    ToolLoopOptions,
    ToolResult,
    aagent,
    aagent_session,
    agent,
    tool,
)

try:
    from litellm import harness
except ImportError:  # an older LiteLLM has no agent API to compare with
    harness = None

ROOT = Path(__file__).parents[3]
RUN = []


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    RUN.append((a, b))
    return a + b


@tool(permissions="ask")
def delete(name: str) -> str:
    """Delete something."""
    RUN.append(name)
    return "gone"


@pytest.fixture(autouse=True)
def nothing_has_run():
    """No call of an earlier test is in RUN."""
    RUN.clear()


def named_by_scenarios():
    pytest.importorskip("litellm.harness", reason="this LiteLLM has no agent API to compare with")
    from system.parity.scenarios import SCENARIOS

    return {expected.difference for scenario in SCENARIOS for expected in scenario.expected}


def test_scenarios_name_differences_of_the_list():
    """The list has every difference that a scenario expects. If a difference in the list has no test of its own, a scenario
    names it.
    """
    named = named_by_scenarios()
    assert named <= {difference.name for difference in DIFFERENCES}
    assert {difference.name for difference in DIFFERENCES if not difference.test} <= named


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda difference: difference.name)
def test_each_difference_has_a_test(difference):
    """The test that a difference names exists."""
    path, _, name = (difference.test or SUITE).partition("::")
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    functions = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert name in functions


def test_nothing_is_worse():
    """Each row says what both do and why ours is better, and no two rows are the same."""
    assert len({difference.name for difference in DIFFERENCES}) == len(DIFFERENCES)
    for difference in DIFFERENCES:
        assert difference.theirs
        assert difference.ours
        assert difference.why


async def test_token_deltas(call):
    """Text comes in the pieces that the provider sends. Without streaming, it comes as a whole."""
    for stream, expected in ((True, ["One ", "two ", "three."]), (False, ["One two three."])):
        more, _ = call(answer("One two three."))
        options = ToolLoopOptions(completion_kwargs={"stream": stream})
        events = aagent(Harness.TOOL_LOOP, "Count", stream=True, options=options, **more)
        assert [event.delta async for event in events if isinstance(event, Text)] == expected


async def test_sync_calls_under_a_running_loop(call):
    """`agent` works while a loop is running: called directly, as a stream, and in a thread."""
    more, _ = call(calls(("add", {"a": 1, "b": 2})), answer("3"))
    assert agent(Harness.TOOL_LOOP, "Add", tools=[add], **more).text == "3"
    more, _ = call(calls(("add", {"a": 1, "b": 2})), answer("3"))
    kinds = [type(event) for event in agent(Harness.TOOL_LOOP, "Add", tools=[add], stream=True, **more)]
    assert kinds[:3] == [ToolCall, ToolResult, Text]
    more, _ = call(answer("from a thread"))
    result = await asyncio.to_thread(agent, Harness.TOOL_LOOP, "Go", **more)
    assert result.text == "from a thread"


async def test_the_history_of_a_closed_session(call):
    """A closed session refuses turns, but still returns its history. LiteLLM's does not."""
    sides = [(aagent_session, Harness, {})]
    if harness is not None:
        sides.append((harness.aagent_session, harness.Harness, {"sandbox": harness.sandbox.local(".")}))
    histories = []
    for session_of, kind, sandbox in sides:
        more, _ = call(answer("Hi."))
        async with session_of(kind.TOOL_LOOP, **sandbox, **more) as session:
            await session.arun("Go")
        try:
            histories.append(len(await session.history()))
        except Exception as error:
            histories.append(type(error).__name__)
    assert histories == [2, "SessionClosed"][: len(sides)]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
async def test_a_refusal_is_not_tried_again(call, status):
    """With `num_retries`, a request is not repeated if it would be refused again."""
    more, server = call(failure(status, "no"), answer("not reached"))
    options = ToolLoopOptions(completion_kwargs={"num_retries": 2, "max_retries": 0})
    result = await aagent(Harness.TOOL_LOOP, "Go", options=options, **more)
    assert (result.stop_reason, len(server.requests)) == ("runtime_error", 1)


async def test_edited_arguments(call):
    """Edited arguments run, and the model is told. Edited arguments that do not validate decide nothing."""

    def edit(approval):
        with pytest.raises(ValueError, match="a"):
            approval.allow({"a": "one", "b": 2})
        approval.allow({"a": 5, "b": 2})
        return True

    more, server = call(calls(("add", {"a": 1, "b": 2})), answer("7"))
    await aagent(Harness.TOOL_LOOP, "Add", tools=[add], permissions="ask", on_approval=edit, **more)
    assert RUN == [(5, 2)]
    message = server.requests[1].messages[-1]["content"]
    assert '"a": 5' in message
    assert message.endswith("7")


@pytest.mark.parametrize(
    ("permissions", "ran"),
    [
        ("full", [(1, 2)]),
        ({"add": "deny"}, []),
        ({"*": "deny", "delete": "full"}, []),
        (lambda call: call.name == "add", [(1, 2)]),
    ],
)
async def test_permissions_by_tool(call, permissions, ran):
    """A policy decides for each tool whether it runs. A tool's own "ask" applies whatever the policy says."""
    more, _ = call(calls(("add", {"a": 1, "b": 2}), ("delete", {"name": "x"})), answer("ok"))
    asked = []

    def refuse(approval):
        asked.append(approval.tool)
        return False

    tools = [add, delete]
    await aagent(Harness.TOOL_LOOP, "Go", tools=tools, permissions=permissions, on_approval=refuse, **more)
    assert ran == RUN
    assert asked == (
        ["delete"]
        if permissions == "full" or (isinstance(permissions, dict) and "*" in permissions)
        else asked
    )
    assert set(asked) <= {"delete"}
