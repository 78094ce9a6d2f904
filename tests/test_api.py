"""LiteLLM's agent API in this package: keywords, precedence, sessions, streams, errors, in scripts and while a loop is
running.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import subprocess
import sys
import textwrap

import pytest
from pydantic import BaseModel

import toolloop_jupyter as tl
from support.clock import skip_time
from support.documented import DOCUMENTED
from support.servers import answer, calls, failure
from toolloop_jupyter import Harness, ToolLoopOptions, aagent, aagent_session, agent, agent_session

KEYWORDS = [
    "sandbox",
    "model",
    "api_key",
    "api_base",
    "instructions",
    "tools",
    "skills",
    "disable_tools",
    "permissions",
    "on_approval",
    "output",
    "max_turns",
    "timeout",
    "metadata",
    "options",
    "install",
]
LOOP = Harness.TOOL_LOOP


class Review(BaseModel):
    summary: str
    score: int


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


# --- the surface --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [agent, aagent, agent_session, aagent_session])
def test_every_keyword_of_litellm_is_there(function):
    """help() and Tab show each keyword of LiteLLM's functions. `prompt` and `stream` are shown only for functions that run a
    prompt.
    """
    parameters = inspect.signature(function).parameters
    assert set(KEYWORDS) <= set(parameters)
    assert ("prompt" in parameters, "stream" in parameters) == ("session" not in function.__name__,) * 2


def test_signatures_are_litellms():
    """No keyword of LiteLLM's own functions is missing, and the defaults are the same. (Only `sandbox` may be left out here.)"""
    pytest.importorskip("litellm.harness", reason="this LiteLLM has no agent API to compare with")
    import litellm

    for name in ("agent", "aagent", "agent_session", "aagent_session"):
        theirs = inspect.signature(getattr(litellm, name)).parameters
        ours = inspect.signature(getattr(tl, name)).parameters
        assert set(theirs) <= set(ours)
        for key, parameter in theirs.items():
            if key != "sandbox":
                assert parameter.default == ours[key].default, key


def test_types_are_litellms():
    """Events, results and errors have LiteLLM's names, and at least LiteLLM's fields."""
    theirs = pytest.importorskip("litellm.harness", reason="this LiteLLM has no agent API to compare with")
    for name in (
        "Text",
        "Reasoning",
        "ToolCall",
        "ToolResult",
        "FileChange",
        "Approval",
        "Done",
        "Usage",
        "Result",
    ):
        fields = {field for field in getattr(theirs, name).__dataclass_fields__ if not field.startswith("_")}
        assert fields <= set(getattr(tl, name).__dataclass_fields__), name
    for name in (
        "CapabilityUnsupported",
        "OptionsMismatch",
        "OutputInvalid",
        "SandboxError",
        "SessionClosed",
    ):
        assert issubclass(getattr(tl, name), tl.HarnessError), name
    assert [member.name for member in tl.Harness] == [member.name for member in theirs.Harness]
    ours, their_capabilities = (
        tl.agent_capabilities(LOOP),
        theirs.agent_capabilities(theirs.Harness.TOOL_LOOP),
    )
    assert vars(ours) == vars(their_capabilities)


async def test_litellms_own_objects_are_taken(call, tmp_path):
    """LiteLLM's own Harness.TOOL_LOOP, ToolLoopOptions and sandbox are accepted in place of ours."""
    theirs = pytest.importorskip("litellm.harness", reason="this LiteLLM has no agent API")
    import litellm

    def write() -> str:
        """Write a file."""
        (tmp_path / "new.txt").write_text("hello\n")
        return "ok"

    more, server = call(calls(("write", {})), answer("Done."))
    options = theirs.ToolLoopOptions(completion_kwargs={"temperature": 0.5, "stream": False})
    result = await aagent(
        litellm.Harness.TOOL_LOOP,
        "Go",
        sandbox=litellm.sandbox.local(str(tmp_path)),
        tools=[write],
        options=options,
        **more,
    )
    assert [(change.path, change.kind) for change in result.files] == [("new.txt", "created")]
    assert server.requests[0].body["temperature"] == 0.5
    assert "stream" not in server.requests[0].body or server.requests[0].body["stream"] is False


@pytest.mark.parametrize(
    ("harness", "error", "words"),
    [
        ("tool_loop", TypeError, "Did you mean Harness.TOOL_LOOP"),
        (None, TypeError, "must be Harness.TOOL_LOOP"),
        (Harness.CODEX, tl.CapabilityUnsupported, "show(stream)"),
    ],
)
def test_other_harnesses(harness, error, words):
    """A text and another harness are refused before anything starts. The error says what to write."""
    with pytest.raises(error, match=words.replace("(", r"\(").replace(")", r"\)")):
        agent(harness, "Go", model="openai/stub")


@pytest.mark.parametrize(
    ("keywords", "error"),
    [
        ({"options": object()}, tl.OptionsMismatch),
        ({"skills": ["x"]}, tl.CapabilityUnsupported),
        ({"disable_tools": ["bash"]}, tl.CapabilityUnsupported),
        ({"install": True}, tl.CapabilityUnsupported),
        ({"permissions": "read-only"}, tl.CapabilityUnsupported),
        ({"permissions": "sometimes"}, ValueError),
        ({"permissions": "ask"}, ValueError),
        ({"max_turns": 0}, ValueError),
        ({"timeout": 0}, ValueError),
        ({"sandbox": 7}, TypeError),
        ({"tools": [lambda *parts: None]}, tl.ToolDefinitionError),
        ({"model": None}, ValueError),
    ],
)
def test_mistakes_are_raised_before_anything_starts(keywords, error):
    """A wrong keyword raises an error in the call itself, even in the async functions. No model is called."""
    with pytest.raises(error):
        aagent(LOOP, "Go", **{"model": "openai/stub", "api_base": "http://127.0.0.1:1", **keywords})


@pytest.mark.parametrize(
    ("environment", "keywords", "words"),
    [
        ({}, {}, "LITELLM_PROXY_API_BASE"),
        ({"LITELLM_PROXY_API_BASE": "http://127.0.0.1:1"}, {}, "LITELLM_PROXY_API_KEY"),
        ({"LITELLM_PROXY_API_BASE": "  "}, {"api_key": "sk-x"}, "LITELLM_PROXY_API_BASE"),
        ({"LITELLM_PROXY_API_KEY": "sk-x"}, {}, "LITELLM_PROXY_API_BASE"),
    ],
)
def test_gateway_without_address_or_key(monkeypatch, environment, keywords, words):
    """If a gateway model has no address or no key, a ValueError names the variable, before anything starts."""
    for name in ("LITELLM_PROXY_API_BASE", "LITELLM_PROXY_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=words):
        aagent(LOOP, "Go", model="litellm_proxy/coder", **keywords)


async def test_gateway_from_the_environment(call, monkeypatch):
    """Address, key, tags and metadata reach the gateway. The loop's own headers win over the user's."""
    more, server = call(answer("Hi."))
    monkeypatch.setenv("LITELLM_PROXY_API_BASE", more["api_base"] + "/")
    monkeypatch.setenv("LITELLM_PROXY_API_KEY", "sk-environment")
    options = ToolLoopOptions(completion_kwargs={"extra_headers": {"x-own": "1", "x-litellm-tags": "mine"}})
    await aagent(LOOP, "Go", model="litellm_proxy/coder", metadata={"n": 1}, options=options)
    headers = server.requests[0].headers
    assert headers["authorization"] == "Bearer sk-environment"
    assert headers["x-litellm-tags"] == "harness,tool_loop"
    assert json.loads(headers["x-litellm-spend-logs-metadata"]) == {"n": 1}
    assert headers["x-own"] == "1"
    assert server.requests[0].body["model"] == "coder"


# --- runs, streams, sessions --------------------------------------------------------------------------------------


async def test_sandbox_may_be_left_out(call, tmp_path):
    """Without a sandbox, no folder is watched. With a path or a sandbox of ours, changed files are events, and are in the
    result.
    """

    def write() -> str:
        """Write a file."""
        (tmp_path / "note.txt").write_bytes(b"two\n")
        return "ok"

    script = [calls(("write", {})), answer("Done.")]
    more, _ = call(*script)
    assert (await aagent(LOOP, "Go", tools=[write], **more)).files == []
    for sandbox in (str(tmp_path), tmp_path, tl.sandbox.local(tmp_path)):
        (tmp_path / "note.txt").write_bytes(b"one\n")
        more, _ = call(*script)
        result = await aagent(LOOP, "Go", tools=[write], sandbox=sandbox, **more)
        assert [(change.path, change.kind) for change in result.files] == [("note.txt", "modified")]
        assert "-one\n+two\n" in result.files[0].diff
        assert result.files == [event for event in result.events if isinstance(event, tl.FileChange)]


async def test_stream(call):
    """`stream=True` gives events that end with Done, and the result. Mistakes are raised before the iteration."""
    more, _ = call(calls(("add", {"a": 1, "b": 2})), answer("3"))
    stream = aagent(LOOP, "Go", stream=True, tools=[add], **more)
    assert stream.result is None
    kinds = [type(event).__name__ async for event in stream]
    assert kinds == ["ToolCall", "ToolResult", "Text", "Done"]
    assert stream.result.text == "3"
    with pytest.raises(ValueError, match="max_turns"):
        aagent(LOOP, "Go", stream=True, max_turns=0, **more)


async def test_cancel_and_close_a_stream(call):
    """cancel() ends a stream with Done(cancelled), and aclose() ends it at once. The connection to the provider is closed."""
    more, server = call(answer("a b c d e f g", hold_after=2))
    stream = aagent(LOOP, "Go", stream=True, **more)
    async for event in stream:
        if isinstance(event, tl.Text):
            stream.cancel()
    assert (stream.result.stop_reason, stream.result.text) == ("cancelled", "a ")
    more, server = call(answer("a b c d e f g", hold_after=3))
    stream = aagent(LOOP, "Go", stream=True, **more)
    await stream.__anext__()
    await stream.aclose()
    with pytest.raises(StopAsyncIteration):
        await stream.__anext__()
    for _ in range(100):
        if server.requests[0].abandoned:
            break
        await asyncio.sleep(0.02)
    assert server.requests[0].abandoned


async def test_session(call):
    """A session keeps its history over several turns, and adds up usage, costs and results. A closed session refuses turns."""
    more, server = call(answer("One."), answer("Two."))
    async with aagent_session(LOOP, instructions="Be brief.", **more) as session:
        first = await session.arun("1?")
        second = await session.arun("2?")
        assert [m["content"] for m in await session.history()] == ["Be brief.", "1?", "One.", "2?", "Two."]
        assert session.results == [first, second]
        assert session.usage == tl.Usage(20, 10, 2)
        assert first.session_id == second.session_id == session.session_id
    assert [m["role"] for m in server.requests[1].messages] == ["system", "user", "assistant", "user"]
    assert session.closed
    with pytest.raises(tl.SessionClosed):
        await session.arun("3?")
    with pytest.raises(tl.SessionClosed):
        async for _ in session.astream("3?"):
            pass


async def test_a_second_turn_at_once_is_refused(call):
    """While a turn runs, another one is refused, and the first one goes on. Then the next one may begin."""
    more, server = call(answer("a b c", hold_after=2), answer("next"))
    session = aagent_session(LOOP, **more)
    stream = session.astream("Go")
    await stream.__anext__()
    with pytest.raises(tl.HarnessError, match="already running"):
        await session.arun("Me too")
    server.release()
    assert [event async for event in stream][-1].result.text == "a b c"
    assert (await session.arun("Now")).text == "next"
    assert [m["content"] for m in await session.history()] == ["Go", "a b c", "Now", "next"]


async def test_save_and_load(call, tmp_path):
    """A saved conversation can be loaded as the history of a new session. The next request has all its messages."""
    more, _ = call(calls(("add", {"a": 1, "b": 2})), answer("3"))
    session = aagent_session(LOOP, tools=[add], **more)
    await session.arun("Add")
    session.save(tmp_path / "talk.json")
    assert "sk-test" not in (tmp_path / "talk.json").read_text("utf-8")
    more, server = call(answer("Again 3."))
    again = aagent_session(LOOP, tools=[add], history=tl.load(tmp_path / "talk.json"), **more)
    await again.arun("And again?")
    assert server.requests[0].messages[:-1] == [
        {key: value for key, value in message.items() if value is not None}
        for message in await session.history()
    ]
    with pytest.raises(tl.HistoryInvalid, match="no tool message"):
        aagent_session(LOOP, history=(await session.history())[:2], **more)


async def test_output_invalid_has_the_answer_and_the_result(call):
    """OutputInvalid is raised after Done, with the last answer as `.raw` and the Result as `.result`."""
    more, server = call(answer('{"summary": "x"}'))
    with pytest.raises(tl.OutputInvalid, match="Review") as caught:
        await aagent(LOOP, "Go", output=Review, options=ToolLoopOptions(output_retries=1), **more)
    assert caught.value.raw == '{"summary": "x"}'
    assert (caught.value.result.stop_reason, caught.value.result.output) == ("done", None)
    assert len(server.requests) == 2


async def test_stop_reasons_keep_partial_work(call):
    """max_turns, a timeout and a provider's error end the turn with a Result that has everything that was done before."""
    step = calls(("add", {"a": 1, "b": 2}), content="Let me add.")
    more, _ = call(step)
    limited = await aagent(LOOP, "Go", tools=[add], max_turns=1, **more)
    more, server = call(step, answer("late", stall=30))
    running = asyncio.ensure_future(aagent(LOOP, "Go", tools=[add], timeout=60, **more))
    await asyncio.to_thread(server.wait_for_requests, 2)
    skip_time(61)
    late = await running
    more, _ = call(step, failure(400, "no such thing"))
    failed = await aagent(LOOP, "Go", tools=[add], **more)
    for result, reason in ((limited, "max_turns"), (late, "timeout"), (failed, "runtime_error")):
        assert result.stop_reason == reason
        assert result.tool_results[0].output == "3"
        assert result.text.startswith("Let me add.")
    assert "no such thing" in failed.error


async def test_retries_are_litellms_to_make(call):
    """With `num_retries` in completion_kwargs, a failed call is tried again. Without it, and with max_retries=0, it is tried
    once.
    """
    more, server = call(failure(503), failure(503), answer("At last."))
    options = ToolLoopOptions(completion_kwargs={"num_retries": 2, "max_retries": 0})
    assert (await aagent(LOOP, "Go", options=options, **more)).text == "At last."
    assert len(server.requests) == 3
    more, server = call(failure(503), answer("Not reached."))
    options = ToolLoopOptions(completion_kwargs={"num_retries": 0, "max_retries": 0})
    assert (await aagent(LOOP, "Go", options=options, **more)).stop_reason == "runtime_error"
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("script", "keywords", "words"),
    [
        ([failure(401, "bad key")], {}, "OPENAI_API_KEY"),
        ([failure(404, "no model")], {}, "check the name 'openai/stub'"),
        ([], {"api_base": "http://127.0.0.1:9"}, "Could not reach 'http://127.0.0.1:9'"),
        ([], {"model": "no-provider-here"}, "provider/name"),
    ],
)
async def test_errors_say_what_to_set(call, script, keywords, words):
    """For a wrong key, an unknown model and a host that does not exist, one line says what to set or to check."""
    more, _ = call(*(script or [answer("unused")]))
    options = ToolLoopOptions(completion_kwargs={"num_retries": 0, "max_retries": 0})
    result = await aagent(LOOP, "Go", options=options, **{**more, **keywords})
    assert result.stop_reason == "runtime_error"
    assert words in result.error
    assert "\n" not in result.error
    assert "sk-test" not in result.error


# --- sync ---------------------------------------------------------------------------------------------------------


def test_sync_without_a_loop(call):
    """`agent`, its stream and a session work in plain sync code."""
    more, _ = call(calls(("add", {"a": 1, "b": 2})), answer("3"))
    assert agent(LOOP, "Add", tools=[add], **more).text == "3"
    more, _ = call(answer("a b"))
    stream = agent(LOOP, "Go", stream=True, **more)
    assert [event.delta for event in stream if isinstance(event, tl.Text)] == ["a ", "b"]
    assert stream.result.stop_reason == "done"
    more, _ = call(answer("One."), answer("Two."))
    with agent_session(LOOP, **more) as session:
        assert session.run("1?").text == "One."
        assert [type(event).__name__ for event in session.stream("2?")][-1] == "Done"
        assert len(session.history()) == 4
        assert session.usage.calls == 2
    with pytest.raises(tl.SessionClosed):
        session.run("3?")


def test_sync_stream_is_closed_by_its_context(call):
    """If `with agent(stream=True)` is left early, the turn is stopped."""
    more, _ = call(answer("a b c d", hold_after=3))
    with agent(LOOP, "Go", stream=True, **more) as stream:
        next(stream)
    with pytest.raises(StopIteration):
        next(stream)


async def test_sync_under_a_running_loop(call):
    """The same calls work while a loop is running, and the loop keeps running."""
    more, _ = call(calls(("add", {"a": 1, "b": 2})), answer("3"), answer("Two."))
    with agent_session(LOOP, tools=[add], **more) as session:
        assert session.run("Add").text == "3"
        assert session.run("2?").text == "Two."
    await asyncio.sleep(0)


@pytest.mark.parametrize(
    "imports",
    ["from toolloop_jupyter import agent, Harness, sandbox", "from litellm import agent, Harness, sandbox"],
    ids=["ours", "LiteLLM's"],
)
@pytest.mark.slow
def test_documentation_example_in_a_script(serve, tmp_path, imports):
    """LiteLLM's documentation example runs as a script. Only the import line is different, and the output is the same."""
    if "litellm" in imports:
        pytest.importorskip("litellm.harness", reason="this LiteLLM has no agent API")
    script = [
        calls(("search_code", {"query": "TODO"}), ("read_file", {"path": "app.py"})),
        answer('{"summary": "One bug.", "bugs": ["main does nothing"]}'),
    ]
    server = serve(script)
    code = textwrap.dedent(DOCUMENTED).format(imports=imports, base=server.base_url)
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300, cwd=tmp_path
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[-1] == "Review ['main does nothing'] done 2"
    results = [m["content"] for m in server.requests[1].messages if m["role"] == "tool"]
    assert results == ['["./app.py:3: TODO"]', "def main(): ..."]
