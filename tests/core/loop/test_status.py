"""A tool result has as data what its text says in English: how the call ended, who decided, what was edited, printed or left
out.
"""

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
    """The status tells a failure, a refusal, a denial and invalid arguments apart, without the text."""
    result = await aagent(
        Harness.TOOL_LOOP,
        "Go.",
        model=ScriptedModel(turn, "Done."),
        tools=[double, fail, slow],
        permissions=permissions,
        on_approval=lambda _: False,
    )
    (tool_result,) = result.tool_results
    assert (tool_result.status, tool_result.is_error) == (status, status != "done")
    assert tool_result.ran == (status in ("done", "failed"))
    assert (tool_result.decision is not None) == (status == "denied")


def test_a_result_made_by_hand_has_a_status():
    """A ToolResult with only LiteLLM's three fields has a status: "failed" for an error, else "done"."""
    assert (ToolResult("1", "x").status, ToolResult("1", "x", is_error=True).status) == ("done", "failed")


async def test_edits_and_cuts_are_data():
    """Beside the text, a result has the edited arguments, the number of characters that were left out, and the text of the
    value alone.
    """

    @tool(max_result=1_000)
    def repeat(times: int) -> str:
        """Return a long text."""
        return "x" * times

    model = ScriptedModel(call("repeat", times=1), "Done.")
    session = aagent_session(Harness.TOOL_LOOP, model=model, tools=[repeat], permissions="ask")
    async for event in session.astream("Go."):
        if isinstance(event, Approval):
            event.allow({"times": 5_000})
    (tool_result,) = session.results[0].tool_results
    assert (tool_result.edited, tool_result.status) == ({"times": 5_000}, "done")
    assert tool_result.cut == 5_000 - len(tool_result.returned) > 3_000
    assert (
        tool_result.output == f'The person edited the arguments to {{"times": 5000}}.\n{tool_result.returned}'
    )


SHARED: list[int] = []
Shared = Annotated[list[int], AfterValidator(lambda _: SHARED)]
"""A validator that returns a list which other code can change, too."""


class Meddles(Observer):
    """Calls `meddle` in the last method of an observer that is called before the tool runs."""

    def __init__(self, meddle):
        self.meddle = meddle

    async def before_tool(self, call, arguments):
        self.meddle()
        await asyncio.sleep(0)


async def test_values_that_change_at_the_last_moment_do_not_run():
    """Nothing is awaited between the last check and the call. So if a value changes before the check, the call is refused."""
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
    (tool_result,) = (await session.arun("Go.")).tool_results
    assert (ran, tool_result.status, tool_result.ran) == ([], "refused", False)
    assert "some arguments were changed by other code after they were checked (items)" in tool_result.output
    assert tool_result.decision.by == "policy"


async def test_a_function_that_changes_at_the_last_moment_does_not_run():
    """An approval is for the function that was shown. If it is changed after the decision, it does not run."""
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
    (tool_result,) = (await session.arun("Go.")).tool_results
    assert (ran, tool_result.status, tool_result.ran) == ([], "refused", False)
    assert "the function 'send' was changed" in tool_result.output


@pytest.mark.parametrize("when", ["before it runs", "while it runs"])
async def test_an_approved_call_that_is_cut_keeps_its_decision(when):
    """If an approved call is cancelled, its result still says who approved it. The result says that it was cancelled, and the
    history is valid.
    """
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
    (tool_result,) = stream.result.tool_results
    assert (tool_result.status, tool_result.ran) == ("cancelled", when == "while it runs")
    assert (tool_result.decision.allowed, tool_result.decision.by) == (True, "callback")
    assert when[:6] in tool_result.output
    assert validate(await session.history()) == []
