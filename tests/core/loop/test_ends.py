"""A result says in three places how its turn ended: the answer is in `text`, the error in `error`, and each retry is an event
with a line.
"""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from toolloop_jupyter import Harness, OutputInvalid, aagent, aagent_session
from toolloop_jupyter.core.events.errors import ModelCallFailed
from toolloop_jupyter.core.events.events import Retry
from toolloop_jupyter.core.loop.config import ToolLoopOptions
from toolloop_jupyter.notebook.transcript import render
from toolloop_jupyter.teaching.scripted import ScriptedModel, call, end, error, text


class Order(BaseModel):
    copies: int


def look() -> str:
    """Look."""
    return "seen"


async def run(*turns, **keywords):
    """Return the result of a run with these turns, even if the answer does not fit `output=`."""
    try:
        return await aagent(Harness.TOOL_LOOP, "Go.", model=ScriptedModel(*turns), tools=[look], **keywords)
    except OutputInvalid as invalid:
        return invalid.result


def retries(result):
    return [event for event in result.events if isinstance(event, Retry)]


async def test_a_broken_answer_is_the_text_and_its_error_is_the_error():
    """If an answer breaks off, `text` has only its beginning, and `error` has the error. `text` has the error only if the
    model sent no text.
    """
    broken = await run([text("Half an answer"), error("overloaded", 503)])
    assert broken.text == "Half an answer"
    assert "overloaded" in broken.error
    refused = await run(error("overloaded", 503))
    assert refused.text == refused.error
    filtered = await run([text("Half."), end("content_filter")])
    assert filtered.text == "Half."
    assert "content filter" in filtered.error


@pytest.mark.parametrize(
    ("message", "shown"),
    [("model overloaded", "model overloaded. Run again."), ("No such key.", "No such key. Run again.")],
)
def test_an_error_and_its_advice_are_two_sentences(message, shown):
    """There is one full stop between what happened and what to do, whoever wrote the first sentence. An error without advice
    is not changed.
    """
    assert str(ModelCallFailed(message, "Run again.")) == shown
    assert str(ModelCallFailed(message)) == message


async def test_a_retry_says_how_long_it_waits():
    """The event has the seconds, and its line shows them. Without a wait, the line does not mention one."""
    options = ToolLoopOptions(completion_kwargs={"num_retries": 2})
    result = await run(error("busy", 503), error("busy", 503, {"retry-after": "0.7"}), "Hi", options=options)
    assert [retry.wait for retry in retries(result)] == [0.25, 0.7]
    lines = [block.text for block in render(result) if "(try" in block.text]
    assert all(line.startswith("⚠ model call failed: ") and "busy. " in line for line in lines)
    assert [line.rpartition(". The call is ")[2] for line in lines] == [
        "tried again in 0.25 s (try 2).",
        "tried again in 0.7 s (try 3).",
    ]
    assert not any(".." in line for line in lines)


async def test_each_attempt_at_the_output_is_a_text_of_its_own():
    """Answers that do not fit are separate texts. After each, a line says why the model was asked again."""
    result = await run("none", "still none", '{"copies": 2}', output=Order)
    assert result.output == Order(copies=2)
    assert [retry.of_answer for retry in retries(result)] == [True, True]
    shown = [block.text for block in render(result)[1:]]
    assert shown[0] == "none"
    assert shown[1] == "⚠ answer 1 does not fit Order: no JSON was found in the answer; asked again"
    assert shown[2] == "still none"
    assert shown[-1].startswith("done")


async def test_a_run_whose_answer_does_not_fit_is_not_done():
    """The last line says that the run has failed, although `stop_reason` is "done", as in LiteLLM."""
    result = await run("none", output=Order, options=ToolLoopOptions(output_retries=0))
    assert result.stop_reason == "done"
    assert render(result)[-1].text.startswith("failed: the answer does not fit")
    assert 'class="tlj-bad"' in render(result)[-1].html


@pytest.mark.parametrize(("said", "told"), [("", True), ("  \n", True), ("Seen.", False)])
async def test_an_empty_answer_behind_calls_is_noticed(said, told):
    """If the model sends no text after its tool calls, the run is done, and one line says that there is no text."""
    result = await run(call("look"), said)
    assert result.stop_reason == "done"
    assert ("sent no text after its tool calls" in (result.error or "")) is told
    assert any("sent no text" in block.text for block in render(result)) is told


async def test_an_empty_answer_leaves_the_conversation_valid():
    """After an empty answer, a later turn works."""
    async with aagent_session(
        Harness.TOOL_LOOP, model=ScriptedModel(call("look"), "", "Hi"), tools=[look]
    ) as session:
        await session.run("Go.")
        assert (await session.run("Again.")).text == "Hi"
