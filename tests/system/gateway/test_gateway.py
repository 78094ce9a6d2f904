"""A run through a real LiteLLM proxy: what arrives there, what it costs, and how a refusal is shown."""

from __future__ import annotations

import pytest

from support.kernels import LiveKernel
from support.servers import ScriptedServer, answer, calls, failure, find_port
from system.gateway import proxy as gateway_proxy
from system.gateway.proxy import ALLOWED, MASTER, REVOKED
from toolloop_jupyter import Harness, ToolLoopOptions, aagent, aagent_session

pytestmark = [pytest.mark.gateway, pytest.mark.timeout(600)]

TWO_CALLS = [calls(("double", {"x": 4})), answer("It is 8.")]
COST = 2 * (10 * 0.001 + 5 * 0.002)
"""The cost of two model calls, each with 10 input and 5 output tokens, at the group's price."""
WAYS = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "not streamed"])


def double(x: int) -> int:
    """Double a number."""
    return 2 * x


@pytest.fixture(scope="module")
def upstream():
    """The provider behind the proxy; each test sets its script."""
    with ScriptedServer([answer("unused")]) as server:
        yield server


@pytest.fixture(scope="module")
def proxy(upstream, tmp_path_factory):
    """A proxy with its default settings."""
    with gateway_proxy.running(tmp_path_factory.mktemp("proxy"), upstream.base_url) as running:
        yield running


@pytest.fixture
def script(proxy, upstream):
    """Set the provider's answers, and empty the log."""

    def use(*entries):
        upstream.script, upstream._taken = list(entries), 0
        upstream.requests.clear()
        proxy.forget()

    use(*TWO_CALLS)
    return use


async def run(proxy, *, stream=True, model="litellm_proxy/coder", key=ALLOWED, **more):
    options = ToolLoopOptions(
        completion_kwargs={"stream": stream, "max_retries": 0, **more.pop("kwargs", {})}
    )
    more = {"tools": [double], "api_base": proxy.base_url, "api_key": key, **more}
    return await aagent(Harness.TOOL_LOOP, "Double 4.", model=model, options=options, **more)


@WAYS
async def test_tags_metadata_and_cost(proxy, script, stream):
    """The proxy logs tags and metadata of every call. The result's cost is the cost that the proxy logged."""
    result = await run(proxy, stream=stream, metadata={"team": "library", "shelf": 3})
    assert (result.stop_reason, result.text) == ("done", "It is 8.")
    logged = proxy.entries(2)
    assert len(logged) == 2
    for entry in logged:
        assert {"harness", "tool_loop"} <= set(entry["tags"])
        assert entry["metadata"] == {"team": "library", "shelf": 3}
        assert (entry["group"], entry["streamed"]) == ("coder", stream)
    assert result.cost == pytest.approx(sum(entry["cost"] for entry in logged))
    assert result.cost == pytest.approx(COST)
    assert (result.usage.input_tokens, result.usage.output_tokens, result.usage.calls) == (20, 10, 2)


async def test_a_proxy_that_puts_the_cost_into_the_stream(upstream, script, tmp_path):
    """With `include_cost_in_streaming_usage`, the cost of a streamed run is the cost that this proxy logged."""
    with gateway_proxy.running(tmp_path, upstream.base_url, include_cost_in_streaming_usage=True) as telling:
        result = await run(telling)
        assert result.cost == pytest.approx(sum(entry["cost"] for entry in telling.entries(2)))
        assert result.cost == pytest.approx(COST)


@WAYS
async def test_a_group_without_a_price(proxy, script, stream):
    """If a group has no price, the cost is None, not 0."""
    result = await run(proxy, stream=stream, model="litellm_proxy/unpriced")
    assert result.stop_reason == "done"
    assert result.cost is None


async def test_a_stream_without_usage(proxy, script):
    """If the proxy reports no cost, the result's cost is None, although the proxy logs one. This is also true for the
    session.
    """
    options = ToolLoopOptions(completion_kwargs={"stream_options": {"include_usage": False}})
    more = {"tools": [double], "api_base": proxy.base_url, "api_key": ALLOWED, "options": options}
    async with aagent_session(Harness.TOOL_LOOP, model="litellm_proxy/coder", **more) as session:
        result = await session.arun("Double 4.")
        assert (result.stop_reason, result.cost, session.cost) == ("done", None, None)
    assert sum(entry["cost"] for entry in proxy.entries(2)) == pytest.approx(COST)


@WAYS
async def test_base_and_key_from_the_environment(proxy, script, stream, monkeypatch):
    """LITELLM_PROXY_API_BASE and LITELLM_PROXY_API_KEY can replace api_base= and api_key=."""
    monkeypatch.setenv("LITELLM_PROXY_API_BASE", proxy.base_url)
    monkeypatch.setenv("LITELLM_PROXY_API_KEY", MASTER)
    result = await run(proxy, stream=stream, api_base=None, key=None)
    assert result.stop_reason == "done"


async def test_use_litellm_proxy(proxy, script, monkeypatch):
    """`litellm.use_litellm_proxy` sends a plain model name to the gateway."""
    import litellm

    monkeypatch.setattr(litellm, "use_litellm_proxy", True)
    result = await run(proxy, model="coder")
    assert (result.stop_reason, result.model) == ("done", "litellm_proxy/coder")
    assert {"harness", "tool_loop"} <= set(proxy.entries(2)[0]["tags"])


def one_clear_line(result, *words):
    assert result.stop_reason == "runtime_error"
    assert "\n" not in result.error
    assert all(word in result.error for word in words), result.error


@WAYS
@pytest.mark.parametrize("key", [REVOKED, "sk-wrong"])
async def test_a_refused_key(proxy, script, stream, key):
    """For a revoked key and for a wrong key, one line says what to set. It does not contain the key."""
    result = await run(proxy, stream=stream, key=key)
    one_clear_line(result, "The gateway refused the key", "LITELLM_PROXY_API_KEY")
    assert key not in result.error
    assert proxy.entries(0) == []


@pytest.mark.parametrize("key", [MASTER, ALLOWED])
async def test_an_unknown_group(proxy, script, key):
    """If a group does not exist, or this key may not use it, one line has its name."""
    result = await run(proxy, model="litellm_proxy/coda", key=key)
    one_clear_line(result, "coda")
    expected = "There is no such group on the gateway" if key == MASTER else "key not allowed to access model"
    assert expected in result.error


BEHIND = [
    (failure(401, "bad upstream key"), "", "refused the gateway's own key"),
    (answer("one two three four five six", drop_after=3), "", "lost its connection to the provider"),
    (answer("Hi"), "/nope", "There is no gateway at"),
]


@pytest.mark.parametrize(("entry", "path", "cause"), BEHIND, ids=["its key", "cut off", "its address"])
async def test_who_has_failed(proxy, script, entry, path, cause):
    """The messages for a failed provider behind the gateway, a wrong address, a refused key and an unknown group are
    different.
    """
    script(entry)
    result = await run(proxy, api_base=proxy.base_url + path)
    assert result.stop_reason == "runtime_error"
    assert cause in result.error


async def test_a_proxy_that_is_down(script, proxy):
    """If a gateway does not answer, one line has its address."""
    address = f"http://127.0.0.1:{find_port()}"
    result = await run(proxy, api_base=address)
    one_clear_line(result, f"Could not reach '{address}'")


@pytest.fixture(scope="module")
def kernel(proxy):
    """A live kernel whose environment names the gateway, as a hub sets it for all users."""
    environment = {"LITELLM_PROXY_API_BASE": proxy.base_url, "LITELLM_PROXY_API_KEY": ALLOWED}
    with LiveKernel(env=environment) as live:
        live.execute(
            '%load_ext toolloop_jupyter\ndef double(x: int) -> int:\n    "Double."\n    return 2 * x'
        )
        yield live


@WAYS
def test_from_a_notebook(proxy, script, kernel, stream):
    """`%%toolloop -m litellm_proxy/coder` in a live kernel: the gateway gets tags and metadata, and the last line shows the
    cost.
    """
    option = "" if stream else "--set stream=false "
    line = f"%%toolloop -m litellm_proxy/coder -t double {option}--metadata team=library --as r"
    cell = kernel.execute(f"{line}\nDouble 4.", timeout=120)
    assert (cell.status, cell.error) == ("ok", None)
    assert "It is 8." in cell.text
    logged = proxy.entries(2)
    assert all({"harness", "tool_loop"} <= set(entry["tags"]) for entry in logged)
    assert [entry["metadata"] for entry in logged] == [{"team": "library"}] * 2
    assert [entry["streamed"] for entry in logged] == [stream] * 2
    assert kernel.execute("print(r.cost)").stdout == f"{sum(entry['cost'] for entry in logged)}\n"
    assert "$0.04" in cell.text


@WAYS
def test_cost_not_reported_in_a_notebook(proxy, script, kernel, stream):
    """If the gateway reports no cost, the last line says so, and does not show $0."""
    option = "" if stream else "--set stream=false "
    cell = kernel.execute(f"%%toolloop -m litellm_proxy/unpriced -t double {option}\nDouble 4.", timeout=120)
    assert cell.status == "ok"
    assert "cost not reported" in cell.text
    assert "$0" not in cell.text


def test_a_refused_key_in_a_notebook(proxy, script, kernel):
    """With a revoked key, a cell says in one line what to set."""
    kernel.execute(f"revoked = {REVOKED!r}")
    cell = kernel.execute(
        "%%toolloop -m litellm_proxy/coder -t double --api-key revoked\nDouble 4.", timeout=120
    )
    assert "The gateway refused the key: set LITELLM_PROXY_API_KEY" in cell.text
    assert "Traceback" not in cell.text
    assert REVOKED not in cell.text
