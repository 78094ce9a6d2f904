"""A turn that nobody reads comes to its end by itself. If a turn cannot begin, its session does not change."""

from __future__ import annotations

import asyncio

import pytest

from toolloop_jupyter import Harness, ToolLoopOptions, aagent_session
from toolloop_jupyter.core.conversation.history import validate
from toolloop_jupyter.core.session.stream import MOST_UNREAD
from toolloop_jupyter.teaching import ScriptedModel, call


def step(number: int) -> int:
    """One step."""
    return number


async def test_a_turn_that_nobody_reads_does_not_wait_for_a_reader():
    """A turn may send more events than a reader may leave unread. If nobody reads them, the result still has them all."""
    calls = [call("step", number=number) for number in range(MOST_UNREAD)]
    session = aagent_session(Harness.TOOL_LOOP, model=ScriptedModel(calls, "Done."), tools=[step])
    result = await asyncio.wait_for(session.arun("Go."), 60)
    assert (result.stop_reason, result.text, len(result.calls)) == ("done", "Done.", MOST_UNREAD)
    assert len(result.events) >= 2 * MOST_UNREAD


async def test_a_turn_that_nobody_reads_is_stopped_with_who_awaits_it():
    """If the task that awaits a turn is cancelled, the turn and its tool are cancelled. The history says so, and the next
    turn works.
    """
    began, ended = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        """Wait."""
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    session = aagent_session(Harness.TOOL_LOOP, model=ScriptedModel(call("wait"), "Next."), tools=[wait])
    running = asyncio.ensure_future(session.arun("Go."))
    await began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError, match="the run was stopped"):
        await running
    assert ended.is_set()
    assert validate(await session.history()) == []
    assert [result.stop_reason for result in session.results] == ["cancelled"]
    assert (await session.arun("And now?")).text == "Next."


async def test_a_turn_that_cannot_begin_leaves_the_session_free():
    """An empty prompt is refused. Afterwards, the session is not busy, and runs the next prompt."""
    session = aagent_session(Harness.TOOL_LOOP, model=ScriptedModel("Yes."))
    with pytest.raises(ValueError, match="the prompt is empty"):
        await session.arun(" ")
    assert not session.busy
    assert (await session.arun("Here?")).text == "Yes."


async def test_an_option_that_cannot_be_read_leaves_the_session_free():
    """If the code of an option raises when a turn is made, each try raises the same error, and no turn is running."""

    class Vault:
        def get_secret_value(self):
            raise RuntimeError("locked")

    options = ToolLoopOptions(completion_kwargs={"user": Vault()})
    session = aagent_session(Harness.TOOL_LOOP, model=ScriptedModel("Yes."), options=options)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="locked"):
            await session.arun("Here?")
        assert not session.busy
