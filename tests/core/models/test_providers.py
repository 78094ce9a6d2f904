"""Our own models, called through LiteLLM's real `acompletion()`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.asking import PASSED
from toolloop_jupyter.core.models import providers
from toolloop_jupyter.core.models.client import ensure, load_litellm
from toolloop_jupyter.core.models.providers import Delta, ProviderError, ProviderRequest

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
USAGE = {"prompt_tokens": 7, "completion_tokens": 3}


def answering(*deltas: Delta, seen: list[ProviderRequest] | None = None) -> providers.Respond:
    async def respond(request: ProviderRequest) -> AsyncIterator[Delta]:
        if seen is not None:
            seen.append(request)
        for delta in deltas:
            if "raise" in delta:
                raise delta["raise"]
            yield delta

    return respond


async def chunks(model: str, **options: Any) -> list[Any]:
    litellm = load_litellm()
    ensure(model)
    options = {"stream_options": {"include_usage": True}, **PASSED, **options}
    stream = await litellm.acompletion(
        model=model, messages=[{"role": "user", "content": "Hi"}], stream=True, **options
    )
    return [chunk async for chunk in stream]


def merged(got: list[Any], name: str) -> list[Any]:
    return [
        value for chunk in got for choice in chunk.choices if (value := getattr(choice.delta, name, None))
    ]


async def test_every_field_of_a_delta_reaches_the_caller() -> None:
    """Text, reasoning, thinking blocks, parallel calls and provider fields come out of LiteLLM unchanged."""
    providers.provide(
        "probe",
        answering(
            {"content": "Hel"},
            {"content": "lo"},
            {"reasoning_content": "hmm", "thinking_blocks": [{"type": "thinking", "thinking": "hmm"}]},
            {"thinking_blocks": [{"type": "thinking", "thinking": "", "signature": "SIG"}]},
            {
                "tool_calls": [
                    {
                        "index": 0,
                        "id": "a",
                        "type": "function",
                        "function": {"name": "f", "arguments": "{"},
                        "provider_specific_fields": {"thought_signature": "TS"},
                    }
                ]
            },
            {"tool_calls": [{"index": 1, "id": "b", "function": {"name": "g", "arguments": "{}"}}]},
            {"tool_calls": [{"index": 0, "function": {"arguments": "}"}}]},
            {"provider_specific_fields": {"citations": ["here"]}},
            {"finish_reason": "tool_calls", "usage": USAGE},
        ),
    )
    got = await chunks("probe/x", tools=[TOOL])
    assert merged(got, "content") == ["Hel", "lo"]
    assert merged(got, "reasoning_content") == ["hmm"]
    assert [b[0].get("signature") for b in merged(got, "thinking_blocks")] == [None, "SIG"]
    calls = [call for group in merged(got, "tool_calls") for call in group]
    assert [(c.index, c.id, c.function.name, c.function.arguments) for c in calls] == [
        (0, "a", "f", "{"),
        (1, "b", "g", "{}"),
        (0, None, None, "}"),
    ]
    assert calls[0].provider_specific_fields == {"thought_signature": "TS"}
    assert merged(got, "provider_specific_fields") == [{"citations": ["here"]}]
    assert [c.choices[0].finish_reason for c in got if c.choices and c.choices[0].finish_reason] == [
        "tool_calls"
    ]
    assert (got[-1].usage.prompt_tokens, got[-1].usage.completion_tokens) == (7, 3)


async def test_usage_survives_wherever_it_comes() -> None:
    """A usage is reported whether it comes before, with or after the finish reason. (LiteLLM drops it in the last two cases.)"""
    orders: list[list[Delta]] = [
        [{"content": "x", "usage": USAGE}, {"finish_reason": "length"}],
        [{"content": "x"}, {"finish_reason": "length"}, {"usage": USAGE}],
    ]
    for order in orders:
        providers.provide("probe", answering(*order))
        got = await chunks("probe/x")
        assert got[-1].usage.total_tokens == 10
        assert "length" in [c.choices[0].finish_reason for c in got if c.choices]


async def test_options_reach_the_provider() -> None:
    """Tools, formats and sampling options reach the model, even those that LiteLLM refuses for unknown providers."""
    seen: list[ProviderRequest] = []
    providers.provide("probe", answering({"content": "x"}, seen=seen))
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
    await chunks(
        "probe/x",
        tools=[TOOL],
        tool_choice="auto",
        response_format=form,
        temperature=0.25,
        reasoning_effort="low",
        user="me",
        unheard_of=1,
        metadata={"run": "7"},
        api_key="secret-key",
    )
    (request,) = seen
    assert request.model == "probe/x"
    assert request.messages == [{"role": "user", "content": "Hi"}]
    assert request.tools == [TOOL]
    assert request.options["response_format"] == form
    wanted = {
        "tool_choice": "auto",
        "temperature": 0.25,
        "reasoning_effort": "low",
        "user": "me",
        "unheard_of": 1,
    }
    assert wanted.items() <= request.options.items()
    assert request.metadata["run"] == "7"
    assert request.stream
    assert "secret-key" not in repr(request)


async def test_without_streaming_the_whole_message_comes() -> None:
    """`acompletion()` without stream=True returns one message with text, calls, reasoning and usage."""
    providers.provide(
        "probe",
        answering(
            {"content": "Hi "},
            {"content": "you"},
            {"reasoning_content": "hm"},
            {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}]},
            {"tool_calls": [{"index": 1, "id": "b", "function": {"name": "g", "arguments": "{}"}}]},
            {"finish_reason": "tool_calls", "usage": USAGE},
        ),
    )
    ensure("probe/x")
    response = await load_litellm().acompletion(model="probe/x", messages=[{"role": "user", "content": "Hi"}])
    message = response.choices[0].message
    assert (message.content, message.reasoning_content) == ("Hi you", "hm")
    assert [(c.id, c.function.name) for c in message.tool_calls] == [("a", "f"), ("b", "g")]
    assert response.choices[0].finish_reason == "tool_calls"
    assert response.usage.total_tokens == 10


@pytest.mark.parametrize(
    ("status", "name"),
    [
        (400, "BadRequestError"),
        (401, "AuthenticationError"),
        (403, "PermissionDeniedError"),
        (404, "NotFoundError"),
        (408, "Timeout"),
        (418, "BadRequestError"),
        (429, "RateLimitError"),
        (500, "InternalServerError"),
        (503, "ServiceUnavailableError"),
        (529, "InternalServerError"),
        (None, "APIConnectionError"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_refused_request_raises_from_acompletion(
    status: int | None, name: str, *, stream: bool
) -> None:
    """An error at the call is raised as LiteLLM's exception for its status, before any stream. The exception has the error as
    its cause.
    """

    def respond(request: ProviderRequest) -> AsyncIterator[Delta]:
        raise ProviderError("not today", status, {"retry-after": "3"})

    providers.provide("probe", respond)
    ensure("probe/x")
    litellm = load_litellm()
    with pytest.raises(getattr(litellm, name), match="not today") as caught:
        await litellm.acompletion(
            model="probe/x", messages=[{"role": "user", "content": "Hi"}], stream=stream, num_retries=0
        )
    assert isinstance(caught.value.__cause__, ProviderError)
    if status == 429:
        assert caught.value.response.headers["retry-after"] == "3"


async def test_an_error_in_the_middle_breaks_the_stream() -> None:
    """The text so far arrives. Then LiteLLM's error for a broken stream is raised, which contains the error for the status."""
    providers.provide("probe", answering({"content": "par"}, {"raise": ProviderError("gone", 503)}))
    ensure("probe/x")
    litellm = load_litellm()
    stream = await litellm.acompletion(
        model="probe/x", messages=[{"role": "user", "content": "Hi"}], stream=True
    )
    got = []
    with pytest.raises(litellm.exceptions.MidStreamFallbackError) as caught:
        async for chunk in stream:
            got.append(chunk.choices[0].delta.content)  # noqa: PERF401  # the loop raises
    assert got == ["par"]
    assert isinstance(caught.value.original_exception, litellm.ServiceUnavailableError)
    assert isinstance(caught.value.original_exception.__cause__, ProviderError)


async def test_its_models_cost_nothing_rather_than_something_unknown() -> None:
    """In LiteLLM's own price list, the models cost 0.0, and take tools and schemas."""
    providers.provide("probe", answering({"content": "x"}))
    ensure("probe/x")
    litellm = load_litellm()
    assert litellm.completion_cost(model="probe/x", prompt="a", completion="b") == 0.0
    assert litellm.supports_function_calling("probe/x")
    assert litellm.supports_response_schema("probe/x")


async def test_registering_again_changes_nothing_and_survives_a_reset_of_the_map() -> None:
    """`ensure()` adds one entry, however often it is called. If other code has replaced the list, it adds the entry again."""
    litellm = load_litellm()
    providers.provide("probe", answering({"content": "x"}))
    for _ in range(3):
        ensure("probe/x")
    assert [item["provider"] for item in litellm.custom_provider_map].count("probe") == 1
    litellm.custom_provider_map = [
        item for item in litellm.custom_provider_map if item["provider"] != "probe"
    ]
    assert merged(await chunks("probe/x"), "content") == ["x"]


async def test_deltas_given_to_it_are_not_changed() -> None:
    """LiteLLM adds an index and a type to a call. The provider's own objects do not change."""
    fragment: Delta = {"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]}
    providers.provide("probe", answering(fragment))
    await chunks("probe/x", tools=[TOOL])
    assert fragment == {"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]}


def test_other_models_are_not_ours() -> None:
    """Models of real providers are not changed. A name without a slash is not one of our models."""
    assert not providers.is_ours("openai/gpt-4o")
    assert not providers.is_ours("toolloop")


def test_providing_does_not_import_litellm() -> None:
    """Importing the teaching package and providing a model do not import LiteLLM."""
    code = (
        "import sys, toolloop_jupyter.teaching as t; from toolloop_jupyter.core.models import providers as provider; "
        "m = t.ScriptedModel('x'); assert provider.is_ours(m.model); assert 'litellm' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
