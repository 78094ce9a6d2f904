"""`fallback`: if a model fails, the next one is asked. Two servers and scripts show which model gets which key."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.pictures import Picture
from support.servers import answer, calls, failure
from toolloop_jupyter import (
    CapabilityUnsupported,
    Harness,
    Retry,
    Text,
    ToolLoopOptions,
    aagent,
    aagent_session,
)
from toolloop_jupyter.core.events import Observer
from toolloop_jupyter.core.loop import turn
from toolloop_jupyter.core.loop.config import Route, find_routes
from toolloop_jupyter.core.models import load_litellm
from toolloop_jupyter.teaching import ScriptedModel, call, deltas, error, text

LOOP = Harness.TOOL_LOOP


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def models(result):
    return [(span.name, span.is_error, span.cost) for span in result.spans if span.kind == "model"]


@pytest.fixture
def two(serve, monkeypatch):
    """Start two servers of two providers, with prices. Returns their models, the keywords of a run, and the servers."""
    prices = {"openai/first": 1e-3, "hosted_vllm/second": 1e-5}
    for name, price in prices.items():
        facts = {"input_cost_per_token": price, "output_cost_per_token": price, "mode": "chat"}
        facts["litellm_provider"] = name.partition("/")[0]
        monkeypatch.setitem(load_litellm().model_cost, name, facts)

    def make(first, second, **kwargs):
        one, other = serve(first), serve(second)
        monkeypatch.setenv("HOSTED_VLLM_API_BASE", other.base_url)
        monkeypatch.setenv("HOSTED_VLLM_API_KEY", "key-of-the-second")
        options = ToolLoopOptions(
            fallback=["hosted_vllm/second"], completion_kwargs={"max_retries": 0, **kwargs}
        )
        more = {
            "model": "openai/first",
            "api_base": one.base_url,
            "api_key": "key-of-the-first",
            "options": options,
        }
        return more, one, other

    return make


async def test_two_servers(two):
    """The first server fails in the second step. The other server gets the conversation and its own key, and continues to the
    end.
    """
    more, one, other = two(
        [calls(("add", {"a": 1, "b": 2})), failure(500, "out of order")],
        [calls(("add", {"a": 3, "b": 4})), answer("7.")],
    )
    result = await aagent(LOOP, "Go.", tools=[add], **more)
    assert (result.text, result.stop_reason) == ("7.", "done")
    assert [r.output for r in result.tool_results] == ["3", "7"]
    (retry,) = [event for event in result.events if isinstance(event, Retry)]
    assert retry.model == "hosted_vllm/second"
    assert retry.error.startswith("openai/first failed: ")
    assert "out of order" in retry.error
    assert [(name, failed) for name, failed, _ in models(result)] == [
        ("openai/first", False),
        ("openai/first", True),
        ("hosted_vllm/second", False),
        ("hosted_vllm/second", False),
    ]
    costs = [cost for _, failed, cost in models(result) if not failed]
    assert costs[0] == pytest.approx(15e-3)
    assert costs[1:] == [pytest.approx(15e-5)] * 2
    assert result.cost == pytest.approx(sum(costs))
    assert result.usage.calls == 3
    assert {r.headers["authorization"] for r in one.requests} == {"Bearer key-of-the-first"}
    assert {r.headers["authorization"] for r in other.requests} == {"Bearer key-of-the-second"}
    assert [m["role"] for m in other.requests[0].messages] == ["user", "assistant", "tool"]
    assert other.requests[0].body["model"] == "second"


async def test_an_unknown_price_is_no_price(two):
    """If a model without a known price ends a run, the run's cost is not known."""
    more, *_ = two([failure(500)], [answer("Hi.")])
    options = ToolLoopOptions(fallback=["hosted_vllm/no-price"], completion_kwargs={"max_retries": 0})
    result = await aagent(LOOP, "Go.", **{**more, "options": options})
    assert (result.text, result.cost) == ("Hi.", None)


async def test_nothing_of_the_first_route_goes_along(two):
    """Headers, a body and an account for the first provider are not sent to another provider. The temperature is sent."""
    more, one, other = two(
        [failure(500)],
        [answer("Hi.")],
        temperature=0.5,
        extra_headers={"x-own": "mine"},
        extra_body={"own": 1},
        organization="org-1",
    )
    await aagent(LOOP, "Go.", **more)
    assert one.requests[0].headers["x-own"] == "mine"
    assert "x-own" not in other.requests[0].headers
    assert not [name for name in other.requests[0].headers if "organization" in name]
    assert ("own" in other.requests[0].body, other.requests[0].body["temperature"]) == (False, 0.5)


@pytest.mark.parametrize(
    ("first", "fallback", "shares"),
    [
        ("openai/a", "openai/b", True),
        ("openai/a", "groq/b", False),
        ("litellm_proxy/a", "litellm_proxy/b", True),
        ("gpt-5.4", "claude-sonnet-4-6", False),
        ("gpt-5.4", "gpt-5.4-mini", False),
        ("toolloop/demo", "openai/b", False),
    ],
)
def test_who_gets_the_key(first, fallback, shares):
    """The run's address and key are used for a fallback only if both model names state the same provider."""
    _, route = find_routes([first, fallback], "the-key", "http://here", {})
    assert route.secrets.get("api_key") == ("the-key" if shares else None)
    assert route.options.get("api_base") == ("http://here" if shares else None)


async def test_the_turn_stays_and_the_next_one_begins_anew():
    """The model that answers is used until the end of the turn. The next turn asks the first model again."""
    first = ScriptedModel(error("busy", 503), "From the first.")
    second = ScriptedModel(call("add", a=1, b=2), "From the second.")
    session = aagent_session(LOOP, model=first, tools=[add], options=ToolLoopOptions(fallback=[second]))
    results = [await session.arun("Go."), await session.arun("And now?")]
    assert [r.text for r in results] == ["From the second.", "From the first."]
    assert [len(r.events) for r in results] != [0, 0]
    assert [m["role"] for m in await session.history()] == [
        *("user", "assistant", "tool", "assistant"),
        *("user", "assistant"),
    ]


async def test_text_that_was_shown_is_taken_back():
    """If an answer breaks off, its shown text is taken back, and is not in the history. The question stays in the history."""
    first = ScriptedModel([text("Half an ans"), error("broken")])
    second = ScriptedModel("Whole.")
    stream = aagent(LOOP, "Go.", model=first, options=ToolLoopOptions(fallback=[second]), stream=True)
    events = [event async for event in stream]
    shown = [event.delta for event in events if isinstance(event, Text)]
    (retry,) = [event for event in events if isinstance(event, Retry)]
    assert ("".join(shown), retry.discard, stream.result.text) == (
        "Half an ansWhole.",
        "Half an ans",
        "Whole.",
    )
    assert [m["content"] for m in second.requests[0].messages] == ["Go."]


async def test_each_has_to_take_what_the_prompt_holds():
    """If a fallback may not accept a picture of the prompt, the run raises an error before any model is asked."""
    first = ScriptedModel("Seen.", takes_images=True)
    options = ToolLoopOptions(fallback=["hosted_vllm/no-eyes"])
    with pytest.raises(
        CapabilityUnsupported, match="but LiteLLM does not say that hosted_vllm/no-eyes can read this"
    ):
        await aagent(LOOP, ["Look.", Picture()], model=first, options=options)
    assert first.requests == []


async def test_all_fail():
    """Each model is asked once, in order. The run has the error of the last model."""
    three = [ScriptedModel(error(f"no {n}", 400)) for n in range(3)]
    result = await aagent(LOOP, "Go.", model=three[0], options=ToolLoopOptions(fallback=three[1:]))
    assert result.stop_reason == "runtime_error"
    assert "no 2" in result.error
    assert [len(one.requests) for one in three] == [1, 1, 1]
    assert sum(isinstance(event, Retry) for event in result.events) == 2


async def test_retries_come_first():
    """With `num_retries`, the same model is tried again before the next one is asked."""
    first, second = ScriptedModel(error("busy", 503), error("busy", 503), "Late."), ScriptedModel("Second.")
    options = ToolLoopOptions(fallback=[second], completion_kwargs={"num_retries": 1})
    result = await aagent(LOOP, "Go.", model=first, options=options)
    assert (result.text, len(first.requests)) == ("Second.", 2)
    assert [event.model != "" for event in result.events if isinstance(event, Retry)] == [False, True]


THOUGHT = [
    deltas([{"thinking_blocks": [{"type": "thinking", "thinking": "Hm.", "signature": "S"}]}]),
    deltas([{"provider_specific_fields": {"own": 1}, "reasoning_items": [{"id": "rs_1"}]}]),
]
OF_CLAUDE = {"thinking_blocks", "provider_specific_fields", "reasoning_items"}


def fields_of(requests):
    """Return the fields that only Claude can read, in the answers of each request."""
    return [[OF_CLAUDE & m.keys() for m in r.messages if m["role"] == "assistant"] for r in requests]


async def test_fields_of_one_provider_do_not_go_to_another(two):
    """Other providers refuse a provider's thoughts and signatures. So these are removed before another provider is asked, and
    stay removed later.
    """
    more, _, other = two([], [calls(("add", {"a": 3, "b": 4})), answer("7.")])
    first = ScriptedModel([*THOUGHT, call("add", a=1, b=2)], error("busy", 503), "Back.")
    session = aagent_session(LOOP, model=first, tools=[add], options=more["options"])
    go_back = session.bookmark()
    assert (await session.arun("Go.")).text == "7."
    fields_sent = [[sorted(m) for m in r.messages if m["role"] == "assistant"] for r in other.requests]
    assert fields_sent == [[["role", "tool_calls"]], [["role", "tool_calls"]] * 2]
    calls_sent = other.requests[0].messages[1]["tool_calls"]
    assert all(one.keys() == {"id", "type", "function"} for one in calls_sent)
    assert fields_of(first.requests[1:]) == [[OF_CLAUDE]]  # Claude's own fields, before it failed
    await session.arun("And now?")
    assert fields_of(first.requests[2:]) == [[set()] * 3]
    go_back()
    assert await session.history() == []


async def test_a_session_that_changes_its_model():
    """If a session's next turn asks another provider, these fields are not sent either, and a preview shows this. Claude's
    fields go to Claude at any provider.
    """
    session = aagent_session(LOOP, model=ScriptedModel([*THOUGHT, text("Hi.")]))
    await session.arun("Go.")
    for model, kept in (("toolloop/demo", OF_CLAUDE), ("openai/b", set())):
        session.config = replace(session.config, routes=(Route(model),))
        request = await session.preview("And now?")
        assert fields_of([request]) == [[kept]]
    families = [
        Route(name).family for name in ("anthropic/claude-a", "bedrock/us.Claude-b", "litellm_proxy/claude")
    ]
    assert families == ["claude"] * 3
    assert Route("litellm_proxy/coder").family != Route("openai/coder").family


async def test_a_fallback_of_the_same_provider_gets_its_fields(serve):
    """Another model of the same provider can read these fields, and gets them."""
    message = {"reasoning_content": "Hm.", "provider_specific_fields": {"own": 1}}
    one = serve([answer("Hi."), failure(400, "no"), answer("Whole.")])
    history = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", **message}]
    options = ToolLoopOptions(fallback=["openai/b"], completion_kwargs={"max_retries": 0})
    more = {"model": "openai/a", "api_base": one.base_url, "api_key": "k", "history": history}
    session = aagent_session(LOOP, options=options, **more)
    await session.arun("Go.")
    assert (await session.arun("Go on.")).text == "Whole."
    assert message.items() <= (await session.history())[1].items()


@pytest.mark.parametrize("limit", ["max_model_calls", "budget"])
async def test_limits_hold_for_a_fallback(limit, monkeypatch):
    """A call of a fallback is a model call. It is not made if no further call is allowed, or if the budget of all runs is
    used up.
    """
    monkeypatch.setattr(turn, "SPENDING", all_runs := turn.Spending())
    first, second = ScriptedModel([text("Half"), error("broken")]), ScriptedModel("Second.")
    options = {"fallback": [second], "on_limit": "answer"}
    if limit == "budget":
        all_runs.budget = 1

        class Others(Observer):
            async def before_model(self, request):
                all_runs.cost = 2  # the cost of another run
    else:
        Others, options["max_model_calls"] = Observer, 1
    result = await aagent(LOOP, "Go.", model=first, options=ToolLoopOptions(**options), observer=Others())
    assert (result.stop_reason, second.requests) == ("runtime_error", [])
    reason = "the budget of $1 for all runs is used up" if limit == "budget" else "stopped after 1 model call"
    assert f"No fallback was asked: {reason}" in result.error


async def test_a_closing_answer_has_fallbacks_too():
    """A fallback may also give the closing answer after a limit. This is still only one more call."""
    first = ScriptedModel(call("add", a=1, b=2), [text("Half"), error("broken")])
    second = ScriptedModel("Second.")
    options = ToolLoopOptions(fallback=[second], on_limit="answer", max_model_calls=1)
    result = await aagent(LOOP, "Go.", model=first, tools=[add], options=options)
    assert (result.text, result.stop_reason) == ("Second.", "max_model_calls")


async def test_a_cancel_is_no_failure():
    """If a person stops a run, no fallback is asked."""
    second = ScriptedModel("Second.")
    first = ScriptedModel([text("a"), *[text("b")] * 5])
    stream = aagent(LOOP, "Go.", model=first, options=ToolLoopOptions(fallback=[second]), stream=True)
    async for event in stream:
        if isinstance(event, Text):
            stream.cancel()
    assert (stream.result.stop_reason, second.requests) == ("cancelled", [])


@pytest.mark.parametrize("wrong", ["openai/b", [5], ["litellm_proxy/"], None])
def test_wrong_values(wrong):
    """A value of `fallback` that is not a list of models is refused before the run."""
    with pytest.raises((ValueError, TypeError)):
        aagent_session(LOOP, model="openai/a", options=ToolLoopOptions(fallback=wrong))


@pytest.mark.parametrize("name", ["fallbacks", "context_window_fallback_dict", "model_list"])
def test_litellms_own_are_refused_and_name_ours(name):
    """LiteLLM's own options for other models are refused. The error names `fallback`."""
    with pytest.raises(ValueError, match=r"is refused: .*--fallback MODEL .*ToolLoopOptions\(fallback="):
        aagent_session(LOOP, model="openai/a", options=ToolLoopOptions(completion_kwargs={name: ["x"]}))
