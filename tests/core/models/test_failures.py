"""Errors of model calls: one line says what to set, and contains no key."""

from __future__ import annotations

import pytest

from support.servers import answer, failure
from toolloop_jupyter import Harness, aagent
from toolloop_jupyter.core.events.errors import (
    HistoryInvalid,
    Mistake,
    ModelCallFailed,
    OutputInvalid,
    RunFailed,
    ToolDefinitionError,
)
from toolloop_jupyter.core.events.events import Request
from toolloop_jupyter.core.loop.config import ToolLoopOptions
from toolloop_jupyter.core.models import failures
from toolloop_jupyter.core.models.client import load_litellm
from toolloop_jupyter.core.models.failures import (
    clean,
    explain,
    explain_first_mistake,
    log_unexpected,
    name_key_variable,
    redact,
)
from toolloop_jupyter.core.models.providers import PlainRefusal, ProviderError
from toolloop_jupyter.notebook.magic import commands
from toolloop_jupyter.teaching.scripted import ScriptedModel, error

KEY = "sk-live-0123456789abcdef"


@pytest.mark.parametrize(
    "text",
    [
        "Incorrect API key provided: sk-proj-abcDEF_123-456.",
        "key AIzaSyA-1234567890abcdefg is not valid",
        "Authorization: Bearer abcdefgh12345678",
        "https://host/v1?key=abcdef123456",
        "gsk_abcdefghijkl",
        "AKIAABCDEFGHIJKLMNOP",
        "cannot reach https://user:secret99@host/v1",
    ],
)
def test_what_looks_like_a_key_is_not_shown(text):
    """C128: providers repeat keys in their errors, in whole or in part. The keys are not shown."""
    shown = redact(text)
    assert shown != text
    for part in (
        "abcDEF",
        "SyA-1234",
        "abcdefgh12345678",
        "abcdef123456",
        "abcdefghijkl",
        "ABCDEFGHIJKLMNOP",
        "secret99",
    ):
        assert part not in shown


def test_given_keys_are_not_shown_whatever_they_look_like(monkeypatch):
    """Keys from the environment and all secrets of the request are replaced. Short values do not count as keys."""
    monkeypatch.setenv("MY_API_KEY", "plain-words-1")
    secrets = {
        "api_key": "hunter2hunter2",
        "aws_secret_access_key": "awsawsaws1",
        "extra_headers": {"X-Auth": "headersecret1", "x-litellm-tags": "harness,tool_loop"},
        "vertex_credentials": {"private_key": "pempempem1"},
    }
    request = Request("openai/x", [], secrets=secrets)
    text = "hunter2hunter2 awsawsaws1 headersecret1 pempempem1 plain-words-1 harness,tool_loop"
    assert clean(text, request) == "[key] [key] [key] [key] [key] harness,tool_loop"
    assert "hunter2" not in repr(request)


ADVICE = [
    ("AuthenticationError", "openai/gpt-4o", "OPENAI_API_KEY"),
    ("AuthenticationError", "anthropic/claude", "ANTHROPIC_API_KEY"),
    ("AuthenticationError", "litellm_proxy/coder", "LITELLM_PROXY_API_KEY"),
    ("PermissionDeniedError", "openai/gpt-4o", "may not use 'openai/gpt-4o'"),
    ("NotFoundError", "openai/gpt-9", "check the name 'openai/gpt-9'"),
    ("NotFoundError", "litellm_proxy/coder", "group on the gateway"),
    ("RateLimitError", "openai/gpt-4o", "num_retries"),
    ("Timeout", "openai/gpt-4o", "{'timeout': SECONDS}"),
    ("ContextWindowExceededError", "openai/gpt-4o", "new session"),
    ("ContentPolicyViolationError", "openai/gpt-4o", "rephrase"),
    ("InternalServerError", "openai/gpt-4o", "num_retries"),
    ("ServiceUnavailableError", "openai/gpt-4o", "num_retries"),
    ("APIConnectionError", "openai/gpt-4o", "Could not reach"),
    ("BadRequestError", "gpt-4o", "openai/gpt-4o"),
]


@pytest.mark.parametrize(("kind", "model", "advice"), ADVICE)
def test_each_error_says_what_to_set(kind, model, advice):
    """Each of LiteLLM's errors has its own advice. The error and the advice are one line each."""
    litellm = load_litellm()
    import httpx

    request = httpx.Request("POST", "http://host/")
    options = {"message": f"{kind} of the\nprovider {KEY}", "llm_provider": "openai", "model": model}
    if kind == "APIConnectionError":
        options["request"] = request
    elif kind != "Timeout":
        options["response"] = httpx.Response(500, request=request)
    happened, what_to_do = explain(getattr(litellm, kind)(**options), Request(model, []))
    assert advice in (happened if kind == "APIConnectionError" else what_to_do)
    assert happened.startswith("Could not reach" if kind == "APIConnectionError" else kind)
    assert kind in happened
    assert "\n" not in happened + what_to_do
    assert KEY not in happened


HOSTILE = "\x1b]0;title\x07\x1b[31mred\x1b[0m\u202eback\x9b31m\u200b\x08 end"


def test_errors_carry_no_control_sequence():
    """No error has a control sequence, whether the text comes from a provider, a model or a person."""
    happened, _ = explain(ValueError(f"bad: {HOSTILE}"), Request("openai/x", []))
    refusal, _ = explain(PlainRefusal(f"one\ntwo {HOSTILE}", 400), Request("toolloop/x", []))
    errors = [
        RunFailed(HOSTILE),
        OutputInvalid(f"{HOSTILE}: Extra inputs are not permitted", raw=HOSTILE),
        Mistake(f"there is no session {HOSTILE}"),
        HistoryInvalid([HOSTILE]),
        ToolDefinitionError([HOSTILE, HOSTILE]),
    ]
    shown = [happened, refusal, *(f"{e}{e!r}{e._render_traceback_()}" for e in errors)]
    assert [text for text in shown if any(c in text for c in HOSTILE if not c.isprintable())] == []
    assert "\\x1b" not in str(shown)
    assert happened == "ValueError: bad: redback end"
    assert refusal == "one\ntwo redback end", "its lines stay"


def test_answers_of_the_line_magic_carry_none(capsys):
    """`%toolloop` prints names and files only as plain text."""
    commands._say(f"wrote {HOSTILE}.md")
    assert capsys.readouterr().out == "wrote redback end.md\n"


CAUSES = [
    (
        "AuthenticationError",
        "Error code: 401 - OpenAIException - bad key LiteLLM: model group 'coder' failed",
        "gateway's own key",
    ),
    (
        "NotFoundError",
        "Error code: 404 - OpenAIException - The model `x` does not exist",
        "the model behind this group",
    ),
    (
        "APIConnectionError",
        "Error code: 500 - OpenAIException - Response payload is not completed",
        "lost its connection to the provider",
    ),
    (
        "InternalServerError",
        "Error code: 500 - AnthropicException - Connection error. model group 'coder'",
        "lost its connection to the provider",
    ),
    (
        "AuthenticationError",
        "Litellm_proxyException - Authentication Error, Invalid proxy server token",
        "LITELLM_PROXY_API_KEY",
    ),
    ("NotFoundError", "Litellm_proxyException - Error code: 404", "no gateway at 'http://gateway/nope'"),
    ("NotFoundError", "Litellm_proxyException - model coder not found", "no such group"),
    (
        "APIConnectionError",
        "Litellm_proxyException - Connection error.",
        "Could not reach 'http://gateway/nope'",
    ),
]


@pytest.mark.parametrize(("kind", "text", "cause"), CAUSES)
def test_who_has_failed_at_a_gateway(kind, text, cause):
    """The gateway, its key, its address and the provider behind it may fail: each has its own advice."""
    error = type(kind, (Exception,), {})(f"litellm.{kind}: {kind}: {text}")
    request = Request("litellm_proxy/coder", [], options={"api_base": "http://gateway/nope"})
    assert cause in " ".join(explain(error, request))


def test_a_begun_name_is_completed():
    """If LiteLLM knows a model whose name begins like the typed name, the advice has its full name and provider. Otherwise it
    says how names are written.
    """
    text = "LLM Provider NOT provided"
    load_litellm()
    assert explain_first_mistake("claude-sonnet", text)[1].startswith(
        "Did you mean 'anthropic/claude-sonnet-"
    )
    assert explain_first_mistake("lesson", text)[1].startswith("Write provider/name")


def test_what_happened_and_what_to_do_are_two_sentences():
    """There is one full stop between what happened and what to do, however the provider's text ends."""
    assert str(ModelCallFailed("it broke", "Run again.")) == "it broke. Run again."
    assert str(ModelCallFailed("Is it there?", "Run again.")) == "Is it there? Run again."
    assert str(ModelCallFailed("it broke.", "Run again.")) == "it broke. Run again."
    assert str(ModelCallFailed("one\ntwo")) == "one\ntwo"


@pytest.mark.parametrize(
    ("base", "key", "cause"),
    [
        (
            "127.0.0.1:9/v1",
            "sk-0123456789",
            "set api_base to 'http://127.0.0.1:9/v1' or 'https://127.0.0.1:9/v1'",
        ),
        ("", "sk-0123\n456789", "a line break or another character"),
        ("", "sk-é-0123456789", "a line break or another character"),
    ],
)
async def test_what_cannot_be_sent(serve, base, key, cause):
    """The error names an address without a scheme, and a key that a header cannot contain."""
    base = base or serve([answer("Hi")]).base_url
    result = await aagent(Harness.TOOL_LOOP, "Go.", model="openai/stub", api_base=base, api_key=key)
    assert cause in result.error
    assert key not in result.error


async def test_blanks_around_a_key_are_none_of_it(serve):
    """If a key was read from a file with its line break, it is sent without the line break."""
    server = serve([answer("Hi")])
    keywords = {"model": "openai/stub", "api_base": server.base_url, "api_key": f" {KEY}\n"}
    assert (await aagent(Harness.TOOL_LOOP, "Go.", **keywords)).text == "Hi"
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


def test_a_wrong_keyword_or_key():
    """The error uses the words of the API, and is raised before anything starts."""
    with pytest.raises(TypeError, match=r"^unexpected keyword argument 'tool'; did you mean tools=\?$"):
        aagent(Harness.TOOL_LOOP, "Go.", model="openai/stub", tool=[])
    with pytest.raises(
        TypeError,
        match=r"^api_key must be text, got a value of type int; write api_key=os\.environ\['NAME'\]$",
    ):
        aagent(Harness.TOOL_LOOP, "Go.", model="openai/stub", api_key=123456789)


def test_a_long_error_is_cut():
    """Only the beginning of a provider's long error is shown, without LiteLLM's traceback."""
    happened, _ = explain(
        ValueError("x" * 5000 + "Traceback (most recent call last)\n secret"), Request("openai/x", [])
    )
    assert len(happened) < 700
    assert "Traceback" not in happened


@pytest.mark.parametrize("text", ["x" * 3_000_000, "sk-" * 1_000_000, "x\n" * 1_000_000])
def test_of_megabytes_of_an_error_only_a_part_is_read(text, monkeypatch):
    """A server may answer with anything, so patterns are tried only on the beginning of its answer."""
    read = []
    monkeypatch.setattr(failures, "make_text_plain", lambda text: read.append(len(text)) or text)
    monkeypatch.setattr(failures, "hide_suspected", lambda text: read.append(len(text)) or text)
    happened, _ = explain(ProviderError(f"{text}, Not Found", 500), Request("openai/m", []))
    assert len(happened) < 1_000
    assert max(read) <= failures.MOST_READ + 10


def test_key_names():
    """The variable for a key is named after the provider."""
    assert name_key_variable("groq/llama") == "GROQ_API_KEY"
    assert name_key_variable("gpt-4o") == "OPENAI_API_KEY"


@pytest.mark.parametrize(
    ("retries", "requests"), [(None, 3), (0, 1), (1, 2), (2, 3)], ids=["default", "none", "one", "two"]
)
async def test_how_often_a_429_is_tried(serve, retries, requests):
    """`num_retries` is the exact number of tries after the first one. If it is not set, the provider's client tries twice
    more.
    """
    server = serve([failure(429, "slow down", headers={"retry-after": "0"})])
    options = {} if retries is None else {"num_retries": retries}
    result = await run(server, options)
    assert result.stop_reason == "runtime_error"
    assert len(server.requests) == requests


async def test_retry_after_is_waited_for(serve):
    """If a 429 says how long to wait, the next try comes then, not earlier."""
    server = serve([failure(429, "slow down", headers={"retry-after": "1"}), answer("Hi")])
    result = await run(server, {"num_retries": 1})
    assert result.text == "Hi"
    assert server.requests[1].at - server.requests[0].at >= 0.9


async def test_retries_of_other_providers_and_our_own():
    """For every kind of provider, `num_retries` gives the same number of tries."""
    model = ScriptedModel(error("busy", 503), error("slow down", 429, {"retry-after": "0"}), "Hi")
    options = ToolLoopOptions(completion_kwargs={"num_retries": 2})
    result = await aagent(Harness.TOOL_LOOP, "Go.", model=model, options=options)
    assert (result.text, len(model.requests)) == ("Hi", 3)


@pytest.mark.parametrize(
    "model", ["anthropic/claude-sonnet-4-5", "gemini/gemini-2.5-pro", "groq/gemma2-9b-it"]
)
async def test_num_retries_of_other_clients(serve, model):
    """This is also true for providers that LiteLLM calls with its own client."""
    server = serve([failure(429, "slow down", headers={"retry-after": "0"})])
    result = await run(server, {"num_retries": 1}, model)
    assert result.stop_reason == "runtime_error"
    assert "RateLimitError" in result.error
    assert len(server.requests) == 2


async def run(server, options, model="openai/stub"):
    return await aagent(
        Harness.TOOL_LOOP,
        "Go.",
        model=model,
        api_base=server.base_url,
        api_key=KEY,
        options=ToolLoopOptions(completion_kwargs=options),
    )


class Ended:
    """A stream in the form of LiteLLM's wrapper. The provider sent no finish reason, so the wrapper has made up "stop"."""

    received_finish_reason = None

    def __init__(self, deltas):
        self.deltas = list(deltas)

    def __aiter__(self):
        return self

    async def __anext__(self):
        if not self.deltas:
            raise StopAsyncIteration
        delta = self.deltas.pop(0)
        return {"choices": [{"index": 0, "delta": delta, "finish_reason": None if self.deltas else "stop"}]}


@pytest.mark.parametrize("arguments", ["", '{"path"'])
async def test_a_made_up_finish_reason_runs_no_half_call(monkeypatch, arguments):
    """If a stream ends in the middle of a call, LiteLLM may report no error. The incomplete call still does not run."""
    fragment = {"index": 0, "id": "c1", "function": {"name": "wipe", "arguments": arguments}}

    async def acompletion(**_):
        return Ended([{"content": "I will "}, {"tool_calls": [fragment]}, {}])

    monkeypatch.setattr(load_litellm(), "acompletion", acompletion)
    ran = []

    def wipe(path: str = "/") -> None:
        """Wipe."""
        ran.append(path)

    result = await aagent(Harness.TOOL_LOOP, "Go.", model="openai/x", api_key=KEY, tools=[wipe])
    assert (result.stop_reason, ran) == ("runtime_error", [])
    assert "the stream ended in the middle of a tool call" in result.error
    assert result.text.startswith("I will ")


class _Speechless(Exception):
    """An error whose own code raises whenever anything is read from it."""

    def __str__(self) -> str:
        raise SystemExit("no text")

    __repr__ = __str__

    @property
    def __notes__(self) -> list[str]:
        raise GeneratorExit


def test_an_unexpected_error_is_logged_whatever_its_own_code_does(caplog: pytest.LogCaptureFixture) -> None:
    """A traceback reads the error's text and notes. If this raises an error, only the name of the error is logged."""
    told = log_unexpected(_Speechless())
    assert told == "_Speechless: <without a text: SystemExit>"
    assert told in caplog.text


def test_a_gateway_that_breaks_off_names_the_provider_behind_it():
    """If a gateway loses its provider, the advice is the same, whether the gateway reports this or its own answer breaks off."""
    lost = type("APIConnectionError", (Exception,), {})("OpenAIException - Response payload is not completed")
    broken = type("MidStreamFallbackError", (Exception,), {"original_exception": lost})(str(lost))
    for model, advice in (
        ("litellm_proxy/g", "lost its connection to the provider"),
        ("openai/m", "The provider failed"),
    ):
        assert advice in explain(broken, Request(model, []))[1]
