"""LiteLLM's import, and what it must not do to a run, a script or a cell. Servers that refuse what only streaming needs."""

from __future__ import annotations

import asyncio
import gc
import importlib.machinery
import io
import logging
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import Any

import pytest

from support.servers import ScriptedServer, answer, calls, failure
from support.slow_import import slow_import
from toolloop_jupyter import Harness, aagent
from toolloop_jupyter.core.events.events import Retry
from toolloop_jupyter.core.loop.config import ToolLoopOptions
from toolloop_jupyter.core.models import call, client
from toolloop_jupyter.teaching import ScriptedModel

TESTS = Path(__file__).parents[2]
SLOW_IMPORT = f"""{slow_import()}
import asyncio
from support.clock import skip_time
from support.servers import ScriptedServer, answer
from toolloop_jupyter import Harness, aagent, agent
"""


def run_script(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a new interpreter that can import the tests' support."""
    code = f"import sys; sys.path.insert(0, {str(TESTS)!r})\n{code}"
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=180, check=False
    )


def test_the_first_run_of_a_script():
    """A script's first run has its whole `timeout` after LiteLLM's import. The event loop is not blocked during the import."""
    ran = run_script(
        SLOW_IMPORT
        + """
turns = 0
async def tick():
    global turns
    while "acompletion" not in vars(sys.modules.get("litellm", sys)):
        await asyncio.sleep(0.01)
        turns += 1
        if turns == 50:  # in the midst of the import
            skip_time(61)

async def main(url):
    task = asyncio.create_task(tick())
    result = await aagent(Harness.TOOL_LOOP, "Hi", model="openai/m", api_base=url, api_key="k", timeout=60)
    await task
    print(result.stop_reason, result.text, result.usage.calls, turns > 50)

with ScriptedServer([answer("Hello.")]) as server:
    asyncio.run(main(server.base_url))
"""
    )
    assert ran.stdout == "done Hello. 1 True\n", ran.stderr
    assert "never awaited" not in ran.stderr


def test_an_import_for_a_fallback():
    """If a run needs LiteLLM only for its fallback, the import does not count for its `timeout` either."""
    ran = run_script(
        SLOW_IMPORT
        + """
import os
from toolloop_jupyter import ToolLoopOptions
from toolloop_jupyter.teaching import ScriptedModel, error

async def main():
    options = ToolLoopOptions(fallback=["hosted_vllm/m"])
    ours = ScriptedModel(error("out of order"))
    result = await aagent(Harness.TOOL_LOOP, "Hi", model=ours, options=options, timeout=2.5)
    print(result.stop_reason, result.text)

with ScriptedServer([answer("Hello.")]) as server:
    os.environ |= dict(HOSTED_VLLM_API_BASE=server.base_url, HOSTED_VLLM_API_KEY="key-of-the-other")
    asyncio.run(main())
"""
    )
    assert ran.stdout == "done Hello.\n", ran.stderr


def test_cancelled_before_anything_was_sent():
    """If a run is cancelled during the import, it has made no model call, costs nothing, and its server got no request."""
    ran = run_script(
        SLOW_IMPORT
        + """
async def main(server):
    stream = aagent(Harness.TOOL_LOOP, "Hi", model="openai/m", api_base=server.base_url, api_key="k", stream=True)
    asyncio.get_running_loop().call_later(0.5, stream.cancel)
    *_, done = [event async for event in stream]
    print(done.stop_reason, done.result.usage.calls, done.result.cost, len(server.requests))

with ScriptedServer([answer("Hello.")]) as server:
    asyncio.run(main(server))
"""
    )
    assert ran.stdout == "cancelled 0 0.0 0\n", ran.stderr
    assert "never awaited" not in ran.stderr


def finish(work: Any) -> Any:
    """Call `work` in a thread, because it may wait for ever. Return its value."""
    values: list[Any] = []
    thread = threading.Thread(target=lambda: values.append(work()), daemon=True)
    thread.start()
    thread.join(60)
    assert values, "it waits"
    return values[0]


def test_nothing_on_the_loop_waits_for_the_import():
    """While a thread imports the modules for LiteLLM's first call, our own models answer, and LiteLLM's module can be read."""
    litellm, scripted = client.load_litellm(), ScriptedModel("Hello.", name="during-import")

    def ask() -> str:
        return asyncio.run(aagent(Harness.TOOL_LOOP, "Hi", model=scripted)).text  # type: ignore[arg-type]

    with client._importing:
        assert finish(client.load_litellm) is litellm
        assert finish(ask) == "Hello."


def test_a_module_whose_import_goes_on_is_not_loaded(monkeypatch):
    """While another thread runs the code of LiteLLM's modules, LiteLLM does not count as loaded, even if some of its names
    exist already.
    """
    module = types.ModuleType("litellm")
    vars(module)["acompletion"] = None
    module.__spec__ = spec = importlib.machinery.ModuleSpec("litellm", None)
    monkeypatch.setitem(sys.modules, "litellm", module)
    assert client.is_litellm_loaded()
    vars(spec)["_initializing"] = True  # as `import` sets it
    assert not client.is_litellm_loaded()


@pytest.mark.parametrize("collects", [True, False])
def test_the_collector_is_put_back_as_it_was(collects):
    """The garbage collector is stopped during an import. Afterwards it is as it was before, even after an error."""
    before = gc.isenabled()
    try:
        (gc.enable if collects else gc.disable)()
        with client._without_collecting():
            assert not gc.isenabled()
        assert gc.isenabled() is collects
        with pytest.raises(ImportError), client._without_collecting():
            raise ImportError
        assert gc.isenabled() is collects
    finally:
        (gc.enable if before else gc.disable)()


LOGGED = """
import logging, sys
{first}
from support.servers import ScriptedServer, answer
from toolloop_jupyter import Harness, agent
with ScriptedServer([answer("Hello.")]) as server:
    for name in ("together_ai/m", "openai/m", "m"):
        result = agent(Harness.TOOL_LOOP, "Hi", model=name, api_base=server.base_url, api_key="k")
"""


@pytest.mark.parametrize(
    "first",
    ["logging.basicConfig(level=logging.INFO)", "import litellm; logging.basicConfig(level=logging.INFO)"],
)
def test_no_lines_of_a_library_in_a_cell(first):
    """If the root logger shows INFO, LiteLLM's messages about calls, prices and advice are still not shown, whoever imported
    LiteLLM.
    """
    ran = run_script(LOGGED.format(first=first))
    assert ran.returncode == 0
    assert "LiteLLM" not in ran.stdout + ran.stderr
    assert "Give Feedback" not in ran.stdout + ran.stderr


def test_somebodys_own_level_stays():
    """If the user has set the level of LiteLLM's logger, its messages are shown."""
    ran = run_script(
        LOGGED.format(first="logging.basicConfig(); logging.getLogger('LiteLLM').setLevel(logging.DEBUG)")
    )
    assert "LiteLLM completion()" in ran.stderr


def f(a: int) -> int:
    """Return a."""
    return a


async def run(server: ScriptedServer, **keywords: Any) -> Any:
    return await aagent(
        Harness.TOOL_LOOP, "Go.", model="openai/m", api_base=server.base_url, api_key="k", **keywords
    )


def refusing(word: str, status: int, text: str) -> Any:
    """Return a server that refuses requests that contain this word."""

    def step(received: Any) -> Any:
        if received.body.get(word):
            return failure(status, text)
        done = any(message["role"] == "tool" for message in received.messages)
        return answer("Done.") if done or not received.tools else calls(("f", {"a": 1}))

    return step


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (400, "Unrecognized request argument supplied: stream_options"),
        (422, "Unrecognized request argument supplied: stream_options"),
        (400, "Stream options are not supported"),
        (400, 'json: unknown field "streamOptions"'),
    ],
)
async def test_a_server_without_stream_options(serve, status, text):
    """If a server refuses `stream_options`, the request is sent again without them. Later requests to this server have none."""
    server = serve(refusing("stream_options", status, text))
    result = await run(server, tools=[f])
    assert (result.stop_reason, result.text) == ("done", "Done.")
    assert [bool(received.body.get("stream_options")) for received in server.requests] == [True, False, False]
    assert all(received.body["stream"] for received in server.requests)
    (retry,) = [event for event in result.events if isinstance(event, Retry)]
    assert "takes no stream_options" in retry.error
    assert (await run(server)).text == "Done."
    assert len(server.requests) == 4


async def test_a_server_that_streams_no_tools(serve):
    """If a server cannot stream when there are tools, it is asked for whole answers. Without tools it still streams."""
    server = serve(refusing("tools", 500, "Cannot use tools with stream"))
    real = server.script

    def step(received: Any) -> Any:
        return real(received) if received.body.get("stream") else refusing("none", 0, "")(received)

    server.script = step
    # The provider's client asks again after a 500.
    once = ToolLoopOptions(completion_kwargs={"max_retries": 0})
    result = await run(server, tools=[f], options=once)
    assert (result.stop_reason, result.text) == ("done", "Done.")
    assert [bool(received.body.get("stream")) for received in server.requests] == [True, False, False]
    assert (await run(server)).text == "Done."
    assert server.requests[-1].body["stream"]


@pytest.mark.parametrize("tools", [[f], []], ids=["tools", "no tools"])
@pytest.mark.parametrize(
    ("status", "text"),
    [
        (400, "Streaming is not supported by this model"),
        (422, "This model does not support streaming"),
        (501, "stream: not implemented"),
        (400, "Your organization must be verified to stream this model. Please go to Verify Organization."),
    ],
)
async def test_a_server_that_never_streams(serve, status, text, tools):
    """A server that cannot stream is asked for whole answers, even without tools. The reader is told, and later requests do the same."""
    server = serve([failure(status, text), answer("One."), answer("Two.")])
    once = ToolLoopOptions(completion_kwargs={"max_retries": 0})
    result = await run(server, tools=tools, options=once)
    assert (result.stop_reason, result.text) == ("done", "One.")
    (retry,) = [event for event in result.events if isinstance(event, Retry)]
    assert "the server does not stream;" in retry.error
    assert (await run(server, tools=tools, options=once)).text == "Two."
    assert [bool(received.body.get("stream")) for received in server.requests] == [True, False, False]


async def test_a_stream_that_is_not_there_now_is_no_refusal(serve):
    """The error of a busy server does not show what the server can do: later requests still ask for a stream."""
    server = serve([failure(503, "the stream is not available")])
    result = await run(server, options=ToolLoopOptions(completion_kwargs={"max_retries": 0}))
    assert result.stop_reason == "runtime_error"
    assert len(server.requests) == 1


async def test_another_refusal_is_no_reason_to_ask_again(serve):
    """A refusal that names no streaming option ends the run after one request."""
    server = serve([failure(400, "the model is not there")])
    result = await run(server, tools=[f])
    assert result.stop_reason == "runtime_error"
    assert len(server.requests) == 1
    assert (server.base_url, "openai/m") not in call._refused


@pytest.mark.parametrize(("level", "passes"), [(logging.WARNING, False), (logging.DEBUG, True)])
def test_lines_on_the_price_list_stay_out(
    monkeypatch: pytest.MonkeyPatch, level: int, *, passes: bool
) -> None:
    """No cell shows LiteLLM's messages about its price list, whoever imported it. Other warnings are shown, and all messages that the user asked for."""
    client.leave_out_price_list()
    client.leave_out_price_list()
    logger, logged = logging.getLogger("LiteLLM"), io.StringIO()
    handler = logging.StreamHandler(logged)
    monkeypatch.setattr(logger, "level", level)
    logger.addHandler(handler)
    logger._cache.clear()  # type: ignore[attr-defined]
    try:
        logger.warning("LiteLLM: model cost map fetch attempt %s/3 failed", 2)
        logger.warning("LiteLLM: Failed to fetch remote model cost map from %s", "an address")
        logger.warning("something else")
    finally:
        logger.removeHandler(handler)
    assert logged.getvalue().count("cost map") == (2 if passes else 0)
    assert "something else" in logged.getvalue()
