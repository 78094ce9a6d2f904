"""A result says as data what its text says in English: how it ended, by whose decision, what was edited, printed, cut."""

from __future__ import annotations

import asyncio
from typing import Annotated

import pytest
from pydantic import AfterValidator

from toolloop_jupyter import Approval, Harness, ToolResult, aagent, aagent_session, tool
from toolloop_jupyter.core.conversation.history import validate
from toolloop_jupyter.core.events import Observer
from toolloop_jupyter.teaching import ScriptedModel, call, end


def double(x: int) -> int:
    """Twice x."""
    return 2 * x


def fail(x: int) -> int:
    """Fail."""
    raise KeyError(x)


@tool(timeout=0.05)
async def slow(x: int) -> int:
    """Take too long."""
    await asyncio.sleep(5)
    return x


STATUSES = {
    "returned": ([call("double", x=1)], "full", "done"),
    "raised": ([call("fail", x=1)], "full", "failed"),
    "timeout": ([call("slow", x=1)], "full", "failed"),
    "unknown": ([call("no_such_tool")], "full", "invalid"),
    "arguments": ([call("double", x="one")], "full", "invalid"),
    "cut off": ([call("double", x=1), end("length")], "full", "refused"),
    "policy": ([call("double", x=1)], {"*": "deny"}, "denied"),
    "person": ([call("double", x=1)], "ask", "denied"),
}


@pytest.mark.parametrize(("turn", "permissions", "status"), STATUSES.values(), ids=STATUSES)
async def test_each_way_to_end_has_its_status(turn, permissions, status):
    """Without reading the text one can tell a failure from a refusal, a denial and arguments that do not fit."""
    result = await aagent(
        Harness.TOOL_LOOP,
        "Go.",
        model=ScriptedModel(turn, "Done."),
        tools=[double, fail, slow],
        permissions=permissions,
        on_approval=lambda _: False,
    )
    (found,) = result.tool_results
    assert (found.status, found.is_error) == (status, status != "done")
    assert found.ran == (status in ("done", "failed"))
    assert (found.decision is not None) == (status == "denied")


def test_a_result_made_by_hand_has_a_status():
    """LiteLLM's three fields are enough: an error has failed, anything else is done."""
    assert (ToolResult("1", "x").status, ToolResult("1", "x", is_error=True).status) == ("done", "failed")


async def test_edits_and_cuts_are_data():
    """The edited arguments and the characters left out stand beside the text; the value's own text does, too."""

    @tool(max_result=1_000)
    def repeat(times: int) -> str:
        """Many letters."""
        return "x" * times

    model = ScriptedModel(call("repeat", times=1), "Done.")
    session = aagent_session(Harness.TOOL_LOOP, model=model, tools=[repeat], permissions="ask")
    async for event in session.astream("Go."):
        if isinstance(event, Approval):
            event.allow({"times": 5_000})
    (found,) = session.results[0].tool_results
    assert (found.edited, found.status) == ({"times": 5_000}, "done")
    assert found.cut == 5_000 - len(found.returned) > 3_000
    assert found.output == f'The person edited the arguments to {{"times": 5000}}.\n{found.returned}'


SHARED: list[int] = []
Shared = Annotated[list[int], AfterValidator(lambda _: SHARED)]
"""A validator that gives a list which others can change, too."""


class Meddles(Observer):
    """Does something at the last moment that anybody is told of."""

    def __init__(self, meddle):
        self.meddle = meddle

    async def before_tool(self, call, arguments):
        self.meddle()
        await asyncio.sleep(0)


async def test_values_that_change_at_the_last_moment_do_not_run():
    """Nothing is awaited between the last check and the call: what changes a value before that refuses it."""
    ran = []
    SHARED[:] = [1]

    def send(items: Shared) -> str:
        """Send."""
        ran.append(list(items))
        return "sent"

    session = aagent_session(
        Harness.TOOL_LOOP,
        model=ScriptedModel(call("send", items=[1]), "Done."),
        tools=[send],
        permissions={"send": "full"},
        observer=Meddles(lambda: SHARED.append(2)),
    )
    (found,) = (await session.arun("Go.")).tool_results
    assert (ran, found.status, found.ran) == ([], "refused", False)
    assert "some arguments were changed by other code after they were checked (items)" in found.output
    assert found.decision.by == "policy"


async def test_a_function_that_changes_at_the_last_moment_does_not_run():
    """An approval is for the function that was shown, also when it is changed after the decision."""
    ran = []

    def send(count: int = 1) -> str:
        """Send."""
        ran.append(count)
        return "sent"

    def change():
        send.__defaults__ = (99,)

    session = aagent_session(
        Harness.TOOL_LOOP,
        model=ScriptedModel(call("send"), "Done."),
        tools=[send],
        permissions="ask",
        on_approval=lambda _: True,
        observer=Meddles(change),
    )
    (found,) = (await session.arun("Go.")).tool_results
    assert (ran, found.status, found.ran) == ([], "refused", False)
    assert "the function 'send' was changed" in found.output


@pytest.mark.parametrize("when", ["before it runs", "while it runs"])
async def test_an_approved_call_that_is_cut_keeps_its_decision(when):
    """Who has approved it stays known; the result says that it was cancelled, and the history is valid."""
    reached = asyncio.Event()

    async def wait(x: int) -> int:
        """Wait."""
        reached.set()
        await asyncio.sleep(30)
        return x

    class Holds(Observer):
        async def before_tool(self, call, arguments):
            if when == "before it runs":
                reached.set()
                await asyncio.sleep(30)

    session = aagent_session(
        Harness.TOOL_LOOP,
        model=ScriptedModel(call("wait", x=1), "Done."),
        tools=[wait],
        permissions="ask",
        on_approval=lambda _: True,
        observer=Holds(),
    )
    stream = session.astream("Go.")

    async def stop():
        await reached.wait()
        stream.cancel()

    stopping = asyncio.ensure_future(stop())
    _ = [event async for event in stream]
    await stopping
    (found,) = stream.result.tool_results
    assert (found.status, found.ran) == ("cancelled", when == "while it runs")
    assert (found.decision.allowed, found.decision.by) == (True, "callback")
    assert when[:6] in found.output
    assert validate(await session.history()) == []
