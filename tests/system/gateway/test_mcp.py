"""The gateway's own MCP server: `connect("litellm_proxy")` with a real LiteLLM proxy, behind which is a server of ours."""

from __future__ import annotations

import importlib.util

import pytest

from support import mcp_server
from support.optional import optional
from support.servers import ScriptedServer, answer
from system.gateway import proxy as gateway_proxy
from system.gateway.proxy import ALLOWED, MASTER, REVOKED
from toolloop_jupyter import Harness, agent
from toolloop_jupyter.teaching import Recorder, Replay, ScriptedModel, call

pytestmark = [pytest.mark.gateway, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    """A proxy with one MCP server. All keys may use its tools."""
    optional(importlib.util.find_spec("mcp"), "the package mcp")
    folder = tmp_path_factory.mktemp("proxy")
    with ScriptedServer([answer("unused")]) as upstream, mcp_server.serve_http() as address:
        library = {"url": address, "transport": "http", "allow_all_keys": True}
        with gateway_proxy.running(folder, upstream.base_url, mcp_servers={"library": library}) as running:
            yield running


@pytest.fixture
def connect(proxy, monkeypatch):
    """Connect with this key. The address is written in one of the forms that people use."""
    from toolloop_jupyter.mcp import connect

    made = []

    def connecting(key, end=""):
        monkeypatch.setenv("LITELLM_PROXY_API_BASE", proxy.base_url + end)
        monkeypatch.setenv("LITELLM_PROXY_API_KEY", key)
        made.append(connect("litellm_proxy", permissions="full"))
        return made[-1]

    yield connecting
    for one in made:
        one.close()


@pytest.mark.parametrize(("key", "end"), [(MASTER, ""), (ALLOWED, "/v1/")])
def test_the_gateways_tools_are_called(connect, key, end):
    """With the master key and with a virtual key, the gateway's tools are listed and called, directly and in a run."""
    gate = connect(key, end)
    assert gate["library-add"](a=1, b=2) == {"result": 3}
    model = ScriptedModel([call("library-shout", text="hey"), call("library-fail")], "Done.")
    result = agent(Harness.TOOL_LOOP, "Go on.", model=model, tools=[gate])
    shouted, failed = result.tool_results
    assert (shouted.value, shouted.is_error) == ("HEY", False)
    assert failed.is_error
    assert "the disk is full" in failed.output


@pytest.mark.parametrize("key", [REVOKED, "sk-wrong-1234567890"])
def test_a_refused_key_is_one_line(connect, key):
    """If the gateway refuses a key, one line says which variable to check. It does not contain the key."""
    from toolloop_jupyter.mcp import ConnectionFailed

    with pytest.raises(
        ConnectionFailed, match=r"refuses the key \(HTTP 401\); look at LITELLM_PROXY_API_KEY"
    ) as failed:
        connect(key)
    assert key not in str(failed.value)
    assert "\n" not in str(failed.value)


def test_a_recording_has_neither_key_nor_address(proxy, connect, tmp_path):
    """A run with the gateway's tools is recorded without the gateway's address and key, and can be replayed without the
    gateway.
    """
    path = tmp_path / "lesson.jsonl"
    model = ScriptedModel([call("library-shout", text=f"what of {ALLOWED}")], "Done.")
    first = agent(Harness.TOOL_LOOP, "Go on.", model=model, tools=[connect(ALLOWED)], observer=Recorder(path))
    written = path.read_text("utf-8")
    assert "library-shout" in written
    assert ALLOWED not in written
    assert proxy.base_url.removeprefix("http://") not in written
    replay = Replay(path, plays_tools=True)
    again = agent(Harness.TOOL_LOOP, "Go on.", model=replay, tools=replay.tools)
    assert again.text == first.text == "Done."
