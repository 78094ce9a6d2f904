"""Prompt caches: which messages are marked for them, what providers report about them, and the cost."""

from __future__ import annotations

import json

import pytest

from support.protocols import anthropic, gemini, use, words
from support.servers import answer, calls
from toolloop_jupyter import Harness, Result, ToolLoopOptions, Usage, aagent, aagent_session
from toolloop_jupyter.core.models import find_cache_marks, load_litellm
from toolloop_jupyter.core.models.call import read_cached
from toolloop_jupyter.teaching import Recorder, Replay, ScriptedModel, end, text

LOOP = Harness.TOOL_LOOP
CLAUDE = "anthropic/claude-sonnet-4-6"
MARK = {"type": "ephemeral"}


def f(a: int = 0) -> str:
    """Return a."""
    return f"f({a})"


def marks(part, path=()):
    """Return the paths of the marks in a request's JSON data."""
    if isinstance(part, dict):
        found = [(*path, "!")] if "cache_control" in part else []
        return found + [one for key, item in part.items() for one in marks(item, (*path, key))]
    if isinstance(part, list):
        return [one for number, item in enumerate(part) for one in marks(item, (*path, number))]
    return []


def claude(serve, *script, **more):
    server = serve(list(script))
    base = server.base_url.removesuffix("/v1")
    return server, {
        "model": CLAUDE,
        "api_base": base,
        "api_key": "sk-ant-none",
        "instructions": "Be brief.",
        **more,
    }


TWO_STEPS = (anthropic(use("tu1", "f", '{"a": 1}'), stop="tool_use"), anthropic(words("Done.")))


async def test_a_loop_on_claude_is_marked(serve):
    """With tools, each request has a mark on the system message and on its last message. No other option is sent."""
    server, more = claude(serve, *TWO_STEPS)
    assert (await aagent(LOOP, "Go.", tools=[f], **more)).text == "Done."
    assert [marks(r.body) for r in server.requests] == [
        [("messages", 0, "content", 0, "!"), ("system", 0, "!")],
        [("messages", 2, "content", 0, "!"), ("system", 0, "!")],
    ]
    assert all(
        "caching" not in json.dumps(r.body) and "injection" not in json.dumps(r.body) for r in server.requests
    )


async def test_without_the_marks_the_requests_begin_the_same(serve):
    """Apart from the marks, Anthropic's second request begins with the same bytes as the first one."""
    server, more = claude(serve, *TWO_STEPS)
    await aagent(LOOP, "Go.", tools=[f], **more)
    first, second = (
        json.loads(json.dumps(r.body).replace(', "cache_control": {"type": "ephemeral"}', ""))
        for r in server.requests
    )
    assert marks(first) == marks(second) == []
    assert json.dumps(second.pop("messages")).startswith(json.dumps(first.pop("messages"))[:-1] + ", ")
    assert json.dumps(first) == json.dumps(second)


async def test_a_single_question_is_not_marked(serve):
    """Without tools, no request reads the cache after a session's first turn, so there is no mark. From the second turn on,
    there is one.
    """
    server, more = claude(serve, anthropic(words("Hi.")))
    session = aagent_session(LOOP, **more)
    for _ in range(3):
        await session.arun("Hello.")
    assert [len(marks(r.body)) for r in server.requests] == [0, 2, 2]


@pytest.mark.parametrize(
    "own",
    [
        {"enable_prompt_caching": False},
        {"cache_control_injection_points": [{"location": "message", "role": "system"}]},
    ],
    ids=["off", "points"],
)
async def test_the_users_own_marks_win(serve, own):
    """`enable_prompt_caching=false` turns the marks off. If the user sets other points for marks, only these are used."""
    server, more = claude(serve, *TWO_STEPS, options=ToolLoopOptions(completion_kwargs=own))
    await aagent(LOOP, "Go.", tools=[f], **more)
    assert [marks(r.body) for r in server.requests] == [
        [("system", 0, "!")] if len(own.popitem()[0]) > 25 else []
    ] * 2


async def test_marks_in_a_conversation_win(serve):
    """If a conversation already has marks, no marks are added."""
    server, more = claude(serve, *TWO_STEPS)
    marked = [{"type": "text", "text": "Long text.", "cache_control": MARK}]
    history = [{"role": "user", "content": marked}, {"role": "assistant", "content": "Yes."}]
    del more["instructions"]
    await aagent_session(LOOP, tools=[f], history=history, **more).arun("Go.")
    assert [marks(r.body) for r in server.requests] == [[("messages", 0, "content", 0, "!")]] * 2


@pytest.mark.parametrize(
    ("group", "given", "count"),
    [
        ("claude-sonnet", {}, 2),
        ("coder", {}, 0),
        ("coder", {"enable_prompt_caching": True}, 2),
        ("claude", {"enable_prompt_caching": False}, 0),
    ],
)
async def test_a_gateway_gets_marks(serve, group, given, count):
    """A gateway's group gets the marks themselves if its name contains "claude", or if the user asks for them."""
    server = serve([calls(("f", {"a": 1})), answer("Done.")])
    options = ToolLoopOptions(completion_kwargs=given)
    more = {
        "model": f"litellm_proxy/{group}",
        "api_base": server.base_url,
        "api_key": "sk-none",
        "instructions": "Be brief.",
    }
    assert (await aagent(LOOP, "Go.", tools=[f], options=options, **more)).text == "Done."
    assert [len(marks(r.body)) for r in server.requests] == [count, count]
    assert all("injection" not in json.dumps(r.body) for r in server.requests)


@pytest.mark.parametrize(
    "model",
    [
        "openai/gpt-5.4-mini",
        "gemini/gemini-3-pro-preview",
        "ollama_chat/llama3",
        "toolloop/demo",
        "nobody/knows",
        "vertex_ai/gemini-2.5-pro",
    ],
)
def test_others_get_no_marks(model):
    """OpenAI's and Gemini's caches need no marks, and other providers do not know them. Their requests do not change."""
    assert find_cache_marks(model, {}) == {}


@pytest.mark.parametrize(
    "model", [CLAUDE, "bedrock/anthropic.claude-sonnet-4-6", "vertex_ai/claude-sonnet-4-6"]
)
def test_claude_elsewhere_is_marked(model):
    """Requests to Claude are marked at each provider for which LiteLLM can do so."""
    assert find_cache_marks(model, {}) == {"enable_prompt_caching": True}


TOLD = {
    "anthropic": (
        lambda serve: claude(
            serve,
            anthropic(
                words("Hi."), usage={"cache_read_input_tokens": 12304, "cache_creation_input_tokens": 2706}
            ),
        )[1],
        Usage(15020, 9, 1, 12304, 2706),
    ),
    "openai": (
        lambda serve: {
            "model": "openai/gpt-5.4-mini",
            "api_key": "k",
            "api_base": serve(
                [
                    answer(
                        "Hi.",
                        usage={
                            "prompt_tokens": 15020,
                            "completion_tokens": 9,
                            "total_tokens": 15029,
                            "prompt_tokens_details": {"cached_tokens": 12304},
                        },
                    )
                ]
            ).base_url,
        },
        Usage(15020, 9, 1, 12304, None),
    ),
    "gemini": (
        lambda serve: {
            "model": "gemini/gemini-2.5-pro",
            "api_key": "k",
            "api_base": serve(
                [
                    gemini(
                        {"text": "Hi."},
                        usage={
                            "promptTokenCount": 15020,
                            "candidatesTokenCount": 9,
                            "totalTokenCount": 15029,
                            "cachedContentTokenCount": 12304,
                        },
                    )
                ]
            ).base_url,
        },
        Usage(15020, 9, 1, 12304, None),
    ),
    "nobody tells": (
        lambda serve: {
            "model": "openai/gpt-5.4-mini",
            "api_key": "k",
            "api_base": serve([answer("Hi.")]).base_url,
        },
        Usage(11, 7, 1, None, None),
    ),
}


@pytest.mark.parametrize("name", list(TOLD))
async def test_what_providers_tell(serve, name):
    """Each provider has its own fields for tokens read from the cache and written to it. If it reports none, the number is
    None.
    """
    make, usage = TOLD[name]
    result = await aagent(LOOP, "Go.", **make(serve))
    counted = result.usage
    if name == "nobody tells":
        assert (counted.cache_read_tokens, counted.cache_write_tokens) == (None, None)
    else:
        assert (counted, counted.cache_write_tokens or None) == (usage, usage.cache_write_tokens), (
            result.error
        )


@pytest.mark.parametrize("name", ["anthropic", "openai", "gemini"])
async def test_the_cost_is_litellms(serve, name):
    """The cost is the one that LiteLLM calculates from the same usage. Cached tokens have their own price, so the cost is
    lower.
    """
    make, usage = TOLD[name]
    more = make(serve)
    result = await aagent(LOOP, "Go.", **more)
    facts = load_litellm().get_model_info(more["model"])
    written = usage.cache_write_tokens or 0
    plain = usage.input_tokens - usage.cache_read_tokens - written
    cost = (
        plain * facts["input_cost_per_token"]
        + usage.cache_read_tokens * facts["cache_read_input_token_cost"]
        + written * (facts.get("cache_creation_input_token_cost") or 0)
        + usage.output_tokens * facts["output_cost_per_token"]
    )
    assert result.cost == pytest.approx(cost)


@pytest.mark.parametrize("nonsense", [None, True, "many", float("inf"), float("nan"), [], {}, -1])
def test_nonsense_is_no_count(nonsense):
    """If a server sends something else than a whole number of tokens, the number is unknown. No number is below 0."""
    told = {"prompt_tokens_details": {"cached_tokens": nonsense}, "cache_creation_input_tokens": nonsense}
    count = 0 if nonsense == -1 else None
    assert read_cached(told) == (count, count)
    assert read_cached({"prompt_tokens_details": nonsense}) == (None, None)


def test_sums_are_of_what_is_told():
    """A sum adds the known numbers. It is None only if no number is known."""
    assert Usage(1, 1, 1, 5) + Usage(1, 1, 1) == Usage(2, 2, 2, 5, None)
    assert Usage(1, 1, 1, 5, 0) + Usage(1, 1, 1, 7, 2) == Usage(2, 2, 2, 12, 2)
    assert Usage() + Usage() == Usage()


async def test_a_recording_keeps_what_was_told(serve, tmp_path):
    """A replayed run reports the cached tokens of the recorded run."""
    make, usage = TOLD["anthropic"]
    recorder = Recorder(tmp_path / "tape.jsonl")
    await aagent(LOOP, "Go.", observer=recorder, **make(serve))
    result = await aagent(LOOP, "Go.", model=Replay(tmp_path / "tape.jsonl"), instructions="Be brief.")
    assert result.usage == usage


async def test_models_of_ours_may_tell():
    """The usage of a script counts like a provider's usage."""
    told = {"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 80}}
    result = await aagent(LOOP, "Go.", model=ScriptedModel([text("Hi."), end(usage=told)]))
    assert isinstance(result, Result)
    assert result.usage == Usage(100, 5, 1, 80)
