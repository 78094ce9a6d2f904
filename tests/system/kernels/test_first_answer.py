"""LiteLLM's import in a notebook: when it happens, for which models, and what a person sees meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.kernels import LiveKernel
from support.servers import ScriptedServer, answer
from support.slow_import import slow_import

pytestmark = pytest.mark.kernel

LOAD = "%load_ext toolloop_jupyter"
SCRIPTED = (
    "from toolloop_jupyter.teaching import ScriptedModel\nm = ScriptedModel('Hello.', repeat_last=True)"
)
STATE = """import gc, sys, threading
print("acompletion" in vars(sys.modules.get("litellm", sys)), gc.isenabled(),
      any(t.name == "toolloop-import-litellm" for t in threading.enumerate()))"""
KEY = 'key = "sk-test"'
SLOW_IMPORT = f"{slow_import()}{KEY}"


@pytest.fixture
def kernel():
    """A fresh kernel."""
    with LiveKernel() as live:
        yield live


def test_a_lesson_stays_small(kernel):
    """Our own models answer without LiteLLM, even if the kernel is idle before and after: the kernel takes less than 120 MB."""
    runs = kernel.run_all(LOAD)
    kernel.settle(2.5)  # meanwhile, a student reads
    assert kernel.execute(STATE).stdout == "False True False\n"
    runs += kernel.run_all(SCRIPTED, "%%toolloop -m m\nHi", "%%toolloop\nHi")
    assert [run.status for run in runs] == ["ok"] * 4
    assert "Hello." in runs[2].text
    kernel.settle(2.5)
    assert kernel.execute(STATE).stdout == "False True False\n"
    status = Path(f"/proc/{kernel.pid}/status")
    if status.exists():
        (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmRSS")]
        assert int(line.split()[1]) < 120_000


def test_a_providers_default_model_imports_it(kernel):
    """If the default model is a provider's, LiteLLM is imported before the first run. Afterwards, the garbage collector is on
    again.
    """
    kernel.execute(f"{LOAD}\n%config ToolLoop.model = 'openai/o3'")
    kernel.wait_until(lambda: kernel.execute(STATE).stdout == "True True False\n", what="litellm")


def begun(kernel) -> bool:
    """Return whether the import goes on, or is over."""
    loaded, _, goes_on = kernel.execute(STATE).stdout.split()
    return "True" in (loaded, goes_on)


@pytest.mark.parametrize(
    "cell",
    [
        "%toolloop --model openai/gpt-4o-mini",
        "%config ToolLoop.model = 'gpt-4o-mini'",
        "from toolloop_jupyter import *; s = agent_session(Harness.TOOL_LOOP, model='openai/gpt-4o-mini')",
    ],
)
def test_a_name_that_needs_it_starts_the_import(kernel, cell):
    """If a default or a session has a provider's model, the import begins at once, even after runs of our own models."""
    kernel.run_all(SLOW_IMPORT, LOAD, SCRIPTED, "%%toolloop -m m\nHi", "%toolloop --model m")
    assert not begun(kernel)
    kernel.execute(cell)
    assert begun(kernel)


def test_the_import_is_none_of_a_runs_time(kernel):
    """If a cell's model needs LiteLLM, the cell says that LiteLLM is loaded. After that, it has its whole --timeout."""
    with ScriptedServer([answer("Hello.")]) as server:
        kernel.run_all(f"{slow_import(10)}{KEY}", LOAD)
        run = kernel.submit(
            f"%%toolloop -m openai/m --api-base {server.base_url} --api-key key --timeout 9\nHi"
        )
        kernel.wait_until(lambda: "loading litellm" in run.text + run.html, what="the line")
        kernel.wait(run)
    assert "Hello." in run.text
    assert "loading litellm" not in run.text
    assert "1 model call" in run.text
    after = kernel.execute("import gc; gc.collect()")
    assert (run.status, run.stderr, after.stderr) == ("ok", "", "")


@pytest.mark.parametrize("way", ["agent", "run", "awaited"])
def test_a_call_of_the_api_says_so_too(kernel, way):
    """A call of the API shows nothing itself. While it waits for the import, a line says so, and disappears afterwards."""
    with ScriptedServer([answer("Hello.")] * 2) as server:
        kernel.run_all(SLOW_IMPORT, "import asyncio\nfrom toolloop_jupyter import *")
        model = f"Harness.TOOL_LOOP, model='openai/m', api_base={server.base_url!r}, api_key=key"
        calls = {
            "agent": f"results = [agent(prompt='Hi', harness={model})]",
            "run": f"results = [agent_session({model}).run('Hi')]",
            "awaited": f"results = await asyncio.gather(aagent(prompt='Hi', harness={model}), aagent_session({model}).arun('Hi'))",
        }
        run = kernel.submit(f"{calls[way]}\nprint(*{{result.text for result in results}})")
        kernel.wait_until(lambda: "loading litellm" in run.text, what="the line")
        assert run.text.count("loading litellm") == 1
        kernel.wait(run)
    assert "loading litellm" not in run.text
    assert (run.status, run.stdout, run.stderr) == ("ok", "Hello.\n", "")


def test_a_fallback_says_so_too(kernel):
    """A cell's model is one of ours, and its fallback needs LiteLLM: the line above the run says that it waits for the
    import, and disappears afterwards.
    """
    with ScriptedServer([answer("Hello.")]) as server:
        kernel.run_all(
            SLOW_IMPORT,
            LOAD,
            f"%env HOSTED_VLLM_API_BASE={server.base_url}\n%env HOSTED_VLLM_API_KEY=key-of-the-other",
            "from toolloop_jupyter.teaching import ScriptedModel, error\nm = ScriptedModel(error('out of order'))",
        )
        run = kernel.submit("%%toolloop -m m --fallback hosted_vllm/m\nHi")
        kernel.wait_until(lambda: "loading litellm" in run.text + run.html, what="the line")
        kernel.wait(run)
    assert "loading litellm" not in run.text
    assert "Hello." in run.text
    assert (run.status, run.stderr) == ("ok", "")


def test_stopped_while_it_waits(kernel):
    """An interrupt during the import ends the run. There is no model call, no cost, and nothing is left behind."""
    kernel.run_all(SLOW_IMPORT, LOAD)
    run = kernel.submit("%%toolloop -m openai/m --api-base http://127.0.0.1:9 --api-key key\nHi")
    kernel.wait_until(lambda: "loading litellm" in run.text + run.html, what="the line")
    kernel.interrupt()
    kernel.wait(run)
    after = kernel.execute("import gc; gc.collect()")
    assert "0 model calls" in run.text or "model call" not in run.text
    assert "not reported" not in run.text
    assert (run.stderr, after.stderr) == ("", "")


def test_the_door_stays_open(kernel):
    """After a run without LiteLLM, code that calls LiteLLM itself can still use our models."""
    door = "import litellm; from toolloop_jupyter.teaching import use_with_litellm; use_with_litellm(m.model)"
    ask = "print((await litellm.acompletion(model=m.model, messages=[{'role': 'user', 'content': 'Hi'}])).choices[0].message.content)"
    runs = kernel.run_all(
        LOAD, SCRIPTED, "%%toolloop -m m\nHi", door, ask, "%%toolloop -m m\nHi", ask, timeout=120
    )
    assert [run.status for run in runs] == ["ok"] * 7
    assert [runs[4].stdout, runs[6].stdout] == ["Hello.\n"] * 2
