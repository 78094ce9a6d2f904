"""The options that the loop sets win over `completion_kwargs`. Only the user can send a prompt to a gateway."""

from __future__ import annotations

import pytest

from support.servers import answer
from toolloop_jupyter import Harness, ToolLoopOptions, aagent
from toolloop_jupyter.core.models.client import load_litellm
from toolloop_jupyter.core.session.keywords import build_config
from toolloop_jupyter.teaching.scripted import ScriptedModel

GATEWAY_KEY = "sk-gateway-0123456789"


def double(x: int) -> int:
    """Double a number."""
    return 2 * x


async def run(server, kwargs, **more):
    keywords = {
        "model": "litellm_proxy/coder",
        "api_base": server.base_url,
        "api_key": GATEWAY_KEY,
        "tools": [double],
        "options": ToolLoopOptions(completion_kwargs=kwargs),
        **more,
    }
    return await aagent(Harness.TOOL_LOOP, "Go.", **keywords)


REROUTING = {
    "base_url": lambda other: {"base_url": other},
    "api_base": lambda other: {"api_base": other},
    "api_base with a password": lambda other: {"api_base": other.replace("://", "://me:secret99@")},
    "custom_llm_provider": lambda other: {"custom_llm_provider": "openai", "base_url": other},
    "Authorization": lambda _: {"extra_headers": {"Authorization": "Bearer other", "x-own": "1"}},
    "Authorization in headers": lambda _: {"headers": {"AUTHORIZATION": "Bearer other", "x-own": "1"}},
    "another gateway key": lambda _: {"extra_headers": {"X-LiteLLM-API-Key": "other"}},
    "tags": lambda _: {"headers": {"X-LiteLLM-Tags": "other"}},
    "body": lambda other: {
        "extra_body": {"model": "other", "messages": [], "tools": [], "api_base": other, "top_k": 4}
    },
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("way", REROUTING.values(), ids=REROUTING)
async def test_a_gateway_run_stays_one(serve, way, stream):
    """The key, the prompt and the tools go to the gateway, with the gateway's name of the model and the loop's tags."""
    gateway, other = serve([answer("ok")]), serve([answer("other")])
    result = await run(gateway, {**way(other.base_url), "stream": stream})
    assert (result.text, other.requests) == ("ok", [])
    (request,) = gateway.requests
    assert (request.body["model"], request.messages[-1]["content"]) == ("coder", "Go.")
    assert [tool["function"]["name"] for tool in request.body["tools"]] == ["double"]
    assert request.headers["authorization"] == f"Bearer {GATEWAY_KEY}"
    assert request.headers["x-litellm-tags"] == "harness,tool_loop"
    assert "x-litellm-api-key" not in request.headers


async def test_everything_else_reaches_the_call(serve):
    """The user's own headers and body fields are sent together with the options of the loop."""
    server = serve([answer("ok")])
    kwargs = {"extra_headers": {"x-own": "1"}, "extra_body": {"top_k": 4, "model": "other"}, "temperature": 0}
    await run(server, kwargs)
    (request,) = server.requests
    assert (request.headers["x-own"], request.body["top_k"], request.body["temperature"]) == ("1", 4, 0)


async def test_an_address_of_completion_kwargs_counts_where_none_is_given(serve):
    """Without `api_base=`, `base_url` is the address. With `api_base=`, it is ignored. The messages are always the loop's."""
    one, other = serve([answer("one")]), serve([answer("other")])
    kwargs = {"base_url": other.base_url, "extra_body": {"messages": [], "model": "x"}}
    plain = {"model": "openai/stub"}
    assert (await run(one, kwargs, **plain, api_base=None)).text == "other"
    assert (await run(one, kwargs, **plain)).text == "one"
    assert [r.messages[-1]["content"] for r in (*one.requests, *other.requests)] == ["Go.", "Go."]
    assert (await run(one, {"custom_llm_provider": "openai"}, model="stub")).text == "one"


SWITCHES = ["attribute", "variable"]


@pytest.fixture(params=SWITCHES)
def everything_to_the_gateway(request, serve, monkeypatch):
    """A server that stands for the gateway. A setting of LiteLLM sends all calls there."""
    server = serve([answer("from the gateway")])
    monkeypatch.setenv("LITELLM_PROXY_API_BASE", server.base_url)
    monkeypatch.setenv("LITELLM_PROXY_API_KEY", GATEWAY_KEY)
    litellm = load_litellm()
    if request.param == "attribute":
        monkeypatch.setattr(litellm, "use_litellm_proxy", True)
    else:
        monkeypatch.setenv("USE_LITELLM_PROXY", "True")
    return server


@pytest.mark.parametrize("stream", [True, False])
async def test_our_own_models_do_not_leave_the_machine(everything_to_the_gateway, stream):
    """The demo model and a ScriptedModel answer here. No part of the prompt goes to the gateway."""
    options = ToolLoopOptions(completion_kwargs={"stream": stream, "temperature": 0, "num_retries": 1})
    scripted = ScriptedModel("It is 8.")
    for model in ("toolloop/demo", scripted):
        result = await aagent(Harness.TOOL_LOOP, "Double 4.", model=model, tools=[double], options=options)
        assert (result.stop_reason, result.cost) == ("done", 0.0), result.error
    assert result.text == "It is 8."
    assert result.usage.calls == 1
    assert everything_to_the_gateway.requests == []


async def test_others_go_there_with_tags_and_metadata(everything_to_the_gateway):
    """With each of the two settings, each run is a gateway run, even if LiteLLM was loaded before."""
    for _ in range(2):
        await aagent(Harness.TOOL_LOOP, "Go.", model="openai/gpt-4o", metadata={"team": "x"})
    for request in everything_to_the_gateway.requests:
        assert request.body["model"] == "openai/gpt-4o"
        assert request.headers["x-litellm-tags"] == "harness,tool_loop"
        assert request.headers["x-litellm-spend-logs-metadata"] == '{"team": "x"}'
    assert len(everything_to_the_gateway.requests) == 2


@pytest.mark.parametrize("tries", ["1", -1, 1.5])
def test_num_retries_is_a_number(tries):
    """A wrong `num_retries` is refused before anything starts, and the error shows the value."""
    with pytest.raises(ValueError, match=f"num_retries must be a whole number >= 0, got {tries!r}"):
        build_config(model="openai/x", options=ToolLoopOptions({"num_retries": tries}))
