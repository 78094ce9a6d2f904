"""The limits of a turn. Each ends the turn with its own stop reason, and with a closing answer if `on_limit` asks for one."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from support.asking import replace_config
from support.clock import skip_time
from support.servers import answer, calls, failure
from toolloop_jupyter import Harness, Text, aagent_session
from toolloop_jupyter.core.conversation import history
from toolloop_jupyter.core.loop.config import Limits, ToolLoopOptions
from toolloop_jupyter.teaching.scripted import ScriptedModel, call, error, pause


def f(a: int = 0) -> str:
    """Return a."""
    return f"f({a})"


def session_with(*turns, options=None, **more):
    model = ScriptedModel(*turns, repeat_last=True)
    options = ToolLoopOptions(**(options or {}))
    return model, aagent_session(Harness.TOOL_LOOP, model=model, tools=[f], options=options, **more)


async def check_that_it_goes_on(session, model):
    """Check that the history is valid, and that a turn without the limit is answered."""
    assert history.validate(await session.history()) == []
    model.turns = (*model.turns[: len(model.requests)], *ScriptedModel("Next.").turns)
    replace_config(session, options=ToolLoopOptions(), limits=Limits())
    assert (await session.arun("And now?")).text == "Next."
    assert history.validate(await session.history()) == []


async def test_max_turns_counts_tool_calls():
    """With max_turns=2, the third call of a message is not run. The history still has a result for it."""
    model, session = session_with([call("f", a=1), call("f", a=2), call("f", a=3)], max_turns=2)
    result = await session.arun("Go.")
    assert (result.stop_reason, [r.output for r in result.tool_results]) == ("max_turns", ["f(1)", "f(2)"])
    assert "did not run" in (await session.history())[-1]["content"]
    await check_that_it_goes_on(session, model)


async def test_max_model_calls():
    """A model that calls tools for ever is stopped. The error has the number of calls."""
    model, session = session_with(call("f", a=1), options={"max_model_calls": 3})
    result = await session.arun("Go.")
    assert (result.stop_reason, result.usage.calls, len(model.requests)) == ("max_model_calls", 3, 3)
    assert result.error == "stopped after 3 model calls in one turn"
    await check_that_it_goes_on(session, model)


async def test_max_cost(serve):
    """The run ends between two model calls when the costs that the server reports reach the limit."""
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2, "cost": 0.03}
    server = serve([calls(("f", {"a": n}), usage=usage) for n in range(9)])
    session = aagent_session(
        Harness.TOOL_LOOP,
        model="openai/stub",
        api_base=server.base_url,
        api_key="sk-none",
        tools=[f],
        options=ToolLoopOptions(max_cost=0.05),
    )
    result = await session.arun("Go.")
    assert (result.stop_reason, len(server.requests)) == ("max_cost", 2)
    assert result.cost == pytest.approx(0.06)
    assert "max_cost is $0.05" in result.error
    assert history.validate(await session.history()) == []


async def test_timeout_while_the_model_is_silent():
    """`timeout=` ends a turn while the model sends nothing more. The text so far stays."""
    model, session = session_with(["I think ", pause(600)], timeout=60)
    shown = ""
    async for event in session.astream("Go."):
        shown += event.delta if isinstance(event, Text) else ""
        if shown == "I think ":
            skip_time(61)
    result = event.result
    assert (result.stop_reason, result.text) == ("timeout", "I think ")
    assert (await session.history())[-1] == {"role": "assistant", "content": "I think "}
    await check_that_it_goes_on(session, model)


@pytest.mark.parametrize(
    ("limit", "reason"),
    [({"max_turns": 1}, "max_turns"), ({"options": {"max_model_calls": 1}}, "max_model_calls")],
)
async def test_a_closing_answer(limit, reason):
    """With on_limit="answer", one last call, in which no tool may be used, gives the answer. The stop reason is still the
    limit.
    """
    options = {"on_limit": "answer", **limit.get("options", {})}
    more = {k: v for k, v in limit.items() if k != "options"}
    model, session = session_with([call("f", a=1), call("f", a=2)], "In short: 1.", options=options, **more)
    result = await session.arun("Go.")
    assert (result.stop_reason, result.text) == (reason, "In short: 1.")
    last = model.requests[-1]
    assert last.options["tool_choice"] == "none"
    assert last.messages[-1]["content"].startswith("No more tool calls")
    await check_that_it_goes_on(session, model)


async def test_a_closing_answer_that_calls_a_tool_all_the_same():
    """If the model ignores `tool_choice` and calls a tool, the tool does not run. The history has a result for the call."""
    log = []

    def note() -> str:
        """Note a run."""
        log.append(1)
        return "x"

    model = ScriptedModel(call("note"), repeat_last=True)
    options = ToolLoopOptions(on_limit="answer", max_model_calls=2)
    session = aagent_session(Harness.TOOL_LOOP, model=model, tools=[note], options=options)
    result = await session.arun("Go.")
    assert (result.stop_reason, len(log), len(model.requests)) == ("max_model_calls", 2, 3)
    await check_that_it_goes_on(session, model)


async def test_a_closing_answer_that_fails():
    """If the last call fails, the stop reason is still the limit. The error names the limit and the failure."""
    model, session = session_with(
        call("f"), error("no more", 400), options={"on_limit": "answer", "max_model_calls": 1}
    )
    result = await session.arun("Go.")
    assert result.stop_reason == "max_model_calls"
    assert "stopped after 1 model calls" in result.error
    assert "no closing answer: BadRequestError" in result.error
    await check_that_it_goes_on(session, model)


async def test_a_closing_answer_in_the_wanted_form():
    """With `output=`, the closing answer is asked for in this form, and is validated."""

    class Place(BaseModel):
        city: str

    model, session = session_with(
        call("f"), '{"city":"Oslo"}', options={"on_limit": "answer", "max_model_calls": 1}, output=Place
    )
    result = await session.arun("Go.")
    assert (result.stop_reason, result.output) == ("max_model_calls", Place(city="Oslo"))
    assert "JSON schema" in model.requests[-1].messages[-1]["content"]


async def test_no_limit_is_met_by_an_answer():
    """If the last allowed call gives an answer, the turn ends as done."""
    _, session = session_with(call("f"), "Done.", max_turns=1, options={"max_model_calls": 2})
    assert (await session.arun("Go.")).stop_reason == "done"


async def test_a_retry_is_no_model_call(serve):
    """Tries that failed count neither for max_model_calls nor for max_turns."""
    server = serve([failure(500, headers={"retry-after": "0"}), answer("Hi")], repeat_last=False)
    session = aagent_session(
        Harness.TOOL_LOOP,
        model="openai/stub",
        api_base=server.base_url,
        api_key="sk-none",
        options=ToolLoopOptions(max_model_calls=1, completion_kwargs={"num_retries": 2}),
    )
    result = await session.arun("Go.")
    assert (result.text, result.usage.calls) == ("Hi", 1)


FORCED = [
    "required",
    "any",
    {"type": "function", "function": {"name": "f"}},
]


@pytest.mark.parametrize("choice", FORCED, ids=["required", "any", "named"])
@pytest.mark.parametrize("on_limit", ["stop", "answer"])
async def test_a_forced_call_that_only_repeats_itself_ends_the_turn(choice, on_limit):
    """If a forced call has had the same result three times, the turn ends, and the error names what to set. A model that may
    also answer goes on.
    """
    options = {"completion_kwargs": {"tool_choice": choice}, "on_limit": on_limit}
    model, session = session_with(
        call("f", a=1), call("f", a=1), call("f", a=1), "In short.", options=options
    )
    result = await session.arun("Go")
    assert (result.stop_reason, len(result.calls)) == ("runtime_error", 3)
    assert "tool_choice" in result.error
    assert "completion_kwargs={'tool_choice': 'auto'}" in result.error
    assert (result.text == "In short.") is (on_limit == "answer")
    assert len(model.requests) == 3 + (on_limit == "answer")
    await check_that_it_goes_on(session, model)


@pytest.mark.parametrize(
    ("turns", "choice"),
    [
        ([call("f", a=n) for n in (1, 2, 3, 4)], "required"),
        ([[call("f", a=1)] * 4], "required"),
        ([call("f", a=1)] * 5, "auto"),
        ([call("f", a=1)] * 5, None),
    ],
    ids=["other arguments", "in one answer", "not forced", "not set"],
)
async def test_calls_that_may_still_end_go_on(turns, choice):
    """These do not end the turn: other arguments, the same call several times in one answer, and a model that may answer."""
    options = {"completion_kwargs": {"tool_choice": choice} if choice else {}}
    _, session = session_with(*turns, "Done.", options=options)
    result = await session.arun("Go")
    assert (result.stop_reason, result.text) == ("done", "Done.")


async def test_another_result_is_no_repetition():
    """A forced call whose result changes (a queue that becomes empty) goes on."""
    left = list(range(5))

    def take() -> int:
        """Take one."""
        return left.pop()

    model = ScriptedModel(*[call("take")] * 5, "Done.")
    options = ToolLoopOptions(completion_kwargs={"tool_choice": "required"})
    async with aagent_session(Harness.TOOL_LOOP, model=model, tools=[take], options=options) as session:
        assert (await session.run("Go")).text == "Done."
