"""Guarantee: a key is never in an output, a traceback, a repr, a recording or an export, however the run got it."""

from __future__ import annotations

import base64
import json
from types import SimpleNamespace
from urllib.parse import unquote

import pytest

from support.leaks import KEY, echoing
from support.servers import answer, calls
from toolloop_jupyter import Harness, HarnessError, ToolLoopOptions, aagent, aagent_session, agent
from toolloop_jupyter import map as map_rows
from toolloop_jupyter.core.models.failures import redact
from toolloop_jupyter.core.session.keywords import build_config
from toolloop_jupyter.core.text import keys as keys_module
from toolloop_jupyter.notebook.live.column import OutputColumn, TerminalWriter
from toolloop_jupyter.notebook.magic import sessions
from toolloop_jupyter.notebook.magic.sessions import NamedSession
from toolloop_jupyter.notebook.transcript import steps
from toolloop_jupyter.notebook.transcript.steps import Page, TextStep
from toolloop_jupyter.teaching.recording import Recorder

WAYS = {
    "api_key": lambda: {"api_key": KEY},
    "completion_kwargs": lambda: {"options": ToolLoopOptions({"api_key": KEY})},
    "headers": lambda: {
        "api_key": "another-key-1",
        "options": ToolLoopOptions({"extra_headers": {"x-secret": KEY}}),
    },
    "default headers": lambda: {
        "api_key": "another-key-1",
        "options": ToolLoopOptions({"headers": {"Authorization": f"Bearer {KEY}"}}),
    },
    "body": lambda: {
        "api_key": "another-key-1",
        "options": ToolLoopOptions({"extra_body": {"auth": {"token": KEY}}}),
    },
    "gateway": lambda: {"api_key": KEY, "model": "litellm_proxy/group"},
    "any header": lambda: {
        "api_key": "another-key-1",
        "options": ToolLoopOptions({"extra_headers": {"X-Tenant-Id": KEY}}),
    },
    "query": lambda: {"api_key": "another-key-1", "options": ToolLoopOptions({"extra_query": {"page": KEY}})},
}


@pytest.mark.parametrize("status", [400, 401, 500])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_an_error_that_echoes_the_key(way, status):
    """The result, its JSON and its transcript have the provider's error without the key."""
    with echoing(status) as server:
        keywords = {"model": "openai/stub", **way(), "api_base": server.base_url}
        result = await aagent(Harness.TOOL_LOOP, "Go.", **keywords)
        sent = str([(r.headers, r.raw, unquote(r.path)) for r in server.requests])
        assert KEY in sent, "the server has seen it"
    everything = [
        repr(result),
        result.text,
        str(result.error),
        steps.write_run_as_json(result),
        result.to_markdown(),
    ]
    everything.append(str(result._repr_mimebundle_()))
    assert [text for text in everything if KEY in text] == []
    assert "[key]" in result.text


class Raises(dict):
    """A callable object and a mapping whose own code raises errors."""

    def fail(self, *_):
        raise RuntimeError("boom")

    __getattr__ = __iter__ = keys = items = fail

    def __call__(self, x: int = 1): ...


@pytest.mark.parametrize(
    "given",
    [{"tools": [Raises()]}, {"tools": (1 / 0 for _ in "x")}, {"permissions": Raises()}],
    ids=["object", "iterable", "mapping"],
)
def test_arguments_that_raise_anything(given):
    """Such an argument is an error of one line. A traceback under `%xmode Verbose` would show the key in the frames."""
    with pytest.raises(
        HarnessError, match=r"raised (RuntimeError: boom|ZeroDivisionError: division by zero)"
    ):
        agent(Harness.TOOL_LOOP, "Go.", model="openai/stub", api_key=KEY, **given)
    with pytest.raises(HarnessError, match="variables must be a mapping"):
        map_rows("Go.", ["a"], model="openai/stub", api_key=KEY, variables=5)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_no_repr_has_it(way):
    """The `repr` of Config, Route, Request, session and options has no key. Neither has a dry run."""
    keywords = {"model": "openai/stub", **way()}
    if keywords["model"].startswith("litellm_proxy"):
        keywords["api_base"] = "http://127.0.0.1:9/v1"
    session = aagent_session(Harness.TOOL_LOOP, **keywords)
    request = await session.preview("Go.")
    shown = [
        repr(x) for x in (session, session.config, session.config.route, request, keywords.get("options"))
    ]
    shown.append(json.dumps(request.shown(), default=repr))
    assert [text for text in shown if KEY in text] == []


@pytest.mark.parametrize(
    "address",
    ["https://me:opaque+Q7x9@host/v1", "https://host/v1?api_key=opaque", "https://host/v1?x=1&sig=opaque"],
)
def test_addresses_with_a_password(address):
    """An address with a password or a key is sent, but not shown."""
    config = build_config(model="openai/stub", api_base=address, api_key="k" * 9)
    assert "opaque" not in repr(config)


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("temperature", 0.5, False),
        ("max_tokens", 5, False),
        ("aws_secret_access_key", "x", True),
        ("azure_ad_token", "x", True),
        ("vertex_credentials", "{}", True),
        ("extra_body", {"top_k": 4}, False),
        ("extra_body", {"safety": [{"api_key": "x"}]}, True),
        ("api_base", "http://localhost:4000/v1", False),
        ("base_url", "http://a:b@localhost", True),
    ],
)
def test_what_counts_as_secret(name, value, secret):
    """An option is secret by its own name, by a name inside its value, or if its value is an address with a password."""
    assert keys_module.holds_key(name, value) is secret


def test_known_keys_are_taken_out_in_every_writing(monkeypatch):
    """Keys of the environment and of litellm's module are removed, also from addresses, where they may be escaped."""
    monkeypatch.setenv("SOME_API_KEY", KEY)
    assert KEY not in redact(f"refused {KEY}")
    assert "Q7%2Fx9" not in redact("refused ?k=opaque%2BQ7%2Fx9.Zp3wVt")
    monkeypatch.delenv("SOME_API_KEY")
    from toolloop_jupyter.core.models.client import load_litellm

    monkeypatch.setattr(load_litellm(), "api_key", KEY)
    assert KEY not in redact(f"refused {KEY}")


async def test_what_tools_and_the_model_say(serve, tmp_path):
    """If an argument, a tool's result, its error and the answer have the key, the loop gets it. Nothing that is shown or
    stored has it.
    """
    got = []

    def leak(x: str) -> str:
        """Return the key."""
        got.append(x)
        return f"You said {x}"

    def fail() -> str:
        """Fail."""
        raise RuntimeError(f"no access with {KEY}")

    script = [calls(("leak", {"x": KEY}), ("fail", {})), answer(f"The key is {KEY}.")]
    server = serve(script)
    session = aagent_session(
        Harness.TOOL_LOOP,
        model="openai/stub",
        api_base=server.base_url,
        api_key=KEY,
        tools=[leak, fail],
        observer=Recorder(tmp_path / "tape.jsonl"),
    )
    result = await session.arun("Go.")
    assert got == [KEY]
    assert [KEY in str(m["content"]) for m in server.requests[1].messages[-2:]] == [True, True]
    assert KEY in str(await session.history())
    session.save(tmp_path / "session.json")
    for name in ("run.md", "run.html", "run.json"):
        steps.write(result, str(tmp_path / name))
    files = {path.name: path.read_text() for path in tmp_path.iterdir()}
    shown = {
        "repr": repr(result),
        "events": repr(result.events),
        "cell": str(result._repr_mimebundle_()),
        "kept": json.dumps(sessions.bundle_conversation("s", NamedSession(session))),
        **files,
    }
    assert [name for name, text in shown.items() if KEY in text or "[key]" not in text] == []
    assert json.loads(files["run.json"])["text"] == "The key is [key]."
    assert json.loads(files["session.json"])["messages"][-1]["content"] == "The key is [key]."


async def test_a_header_with_a_name_and_a_password(serve):
    """For a header `Basic …`, these are hidden: its value, the password in it, and the password in base64 with another name."""
    basic = base64.b64encode(f"user:{KEY}".encode()).decode()
    other = base64.b64encode(f"somebody:{KEY}".encode()).decode()
    echo = {"error": {"message": f"no: Basic {basic}, {KEY}, {other}"}}
    server = serve([{"status": 401, "body": echo}])
    options = ToolLoopOptions({"extra_headers": {"X-Proxy": f"Basic {basic}"}})
    keywords = {
        "model": "openai/stub",
        "api_base": server.base_url,
        "api_key": "another-key-1",
        "options": options,
    }
    result = await aagent(Harness.TOOL_LOOP, "Go.", **keywords)
    assert [text for text in (basic, KEY, other) if text in result.text] == []
    assert "Basic [key], [key]" in result.text


def test_text_in_a_terminal_as_it_comes(capsys, monkeypatch):
    """A terminal prints one delta after the other. No part of a key is printed, wherever the key is cut."""
    monkeypatch.setattr(keys_module, "_known", {KEY: None})
    cell = SimpleNamespace(can_update=False)
    writer, step = TerminalWriter(OutputColumn(cell), Page()), TextStep(is_thought=False)
    for start in range(0, 40, 7):
        step.pieces.append(f"It is {KEY}, I think.       "[start : start + 7])
        writer.grow(step)
    writer.end(step)
    assert capsys.readouterr().out.strip() == "It is [key], I think."
