"""What a front-end gets from a run in a live kernel: messages, bytes and the saved notebook. Also measures how long the loop was busy.

    ./dev bench -k transcript       or: python -m pytest -s tests/benchmarks/bench_transcript.py

5,000 streamed tokens at full speed, and a run of 1,000 tool steps whose notebook is then opened in JupyterLab.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import nbformat
import pytest

from support.browsing import Desk, SharedPage, browser_context
from support.jupyter import JupyterServer
from support.kernels import LiveKernel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

TOKENS, STEPS = 5_000, 1_000
A_SECOND = 20
"""The largest number of display messages a second."""
TIMES_THE_TEXT = 6
"""The bytes that may be sent for a streamed text, divided by the bytes of the text."""

SET_UP = f'''%load_ext toolloop_jupyter
import asyncio, contextlib, time
from toolloop_jupyter.teaching.scripted import ScriptedModel
from toolloop_jupyter.teaching.scripted import call
tokens = ScriptedModel((" ".join(["token"] * 20) + ".\\n\\n") * ({TOKENS} // 20))
steps = ScriptedModel(*[call("add", a=n, b=2) for n in range({STEPS})], "All are added.")

def add(a: int, b: int) -> int:
    """Add."""
    return a + b

longest = 0.0

async def tick():
    """Note the most CPU time of this thread between two turns of the loop: what a busy machine takes away does not count."""
    global longest
    before = time.thread_time()
    while True:
        await asyncio.sleep(0.001)
        now = time.thread_time()
        longest, before = max(longest, now - before), now
'''
WARM_UP = "%%toolloop -m warm\nHello"


def measured(live: LiveKernel, cell: str) -> tuple[object, list[dict], float]:
    """Run a cell beside the ticker. Return the execution, its display messages, and the longest time for which the loop was
    busy.
    """
    live.execute(
        "longest = 0.0\nimport gc; gc.collect(); gc.disable()\nticker = asyncio.ensure_future(tick())"
    )
    seen = len(live.messages)
    done = live.execute(cell, timeout=900)
    assert done.status == "ok", done.text[-2000:]
    kinds = ("display_data", "update_display_data", "clear_output", "stream")
    sent = [m for m in live.messages[seen:] if m["msg_type"] in kinds]
    busy = float(live.execute("ticker.cancel(); gc.enable()\nprint(longest)").stdout)
    return done, sent, busy


def size(messages: list[dict]) -> int:
    return sum(len(json.dumps(message["content"]).encode()) for message in messages)


def saved(name: str, code: str, done, folder: Path) -> Path:
    """Return the notebook as a front-end would save it."""
    outputs = [
        nbformat.v4.new_output(output.kind, data=output.data, metadata=output.metadata)
        for output in done.outputs
        if output.kind == "display_data"
    ]
    cell = nbformat.v4.new_code_cell(code, outputs=outputs)
    end = nbformat.v4.new_code_cell("'END'", outputs=[nbformat.v4.new_output("stream", text="END OF ALL")])
    notebook = nbformat.v4.new_notebook(cells=[cell, end])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(notebook, folder / name)
    return folder / name


@pytest.fixture(scope="module")
def live():
    with LiveKernel() as kernel:
        assert kernel.execute(SET_UP, timeout=60).status == "ok"
        kernel.execute("warm = ScriptedModel('Hello')")
        assert kernel.execute(WARM_UP, timeout=120).status == "ok"
        yield kernel


def test_streamed_tokens(live, tmp_path):
    """5,000 tokens arrive as fast as possible."""
    code = "%%toolloop -m tokens --as r\nTalk."
    done, sent, busy = measured(live, code)
    text = int(live.execute("print(len(r.text.encode()))").stdout)
    seconds, sent_bytes = done.seconds, size(sent)
    file = saved("tokens.ipynb", code, done, tmp_path)
    a_second, times = len(sent) / seconds, sent_bytes / text
    print(
        f"\n{TOKENS:,} tokens ({text:,} bytes) in {seconds:.2f} s: {len(sent)} display messages, {a_second:.1f} a second; "
        f"{sent_bytes:,} bytes sent, {times:.1f} x the text; saved notebook {file.stat().st_size:,} bytes; "
        f"loop busy at most {busy * 1000:.0f} ms in one piece"
    )
    assert a_second <= A_SECOND
    assert times <= TIMES_THE_TEXT


def test_thousand_steps(live, chromium):
    """A run of 1,000 tool steps is saved, and opened in JupyterLab with its default settings."""
    code = "%%toolloop -m steps -t add --max-turns 2000 --max-model-calls 2000 --as r\nAdd."
    done, sent, busy = measured(live, code)
    assert live.execute("print(len(r.tool_results))").stdout.strip() == str(STEPS)
    with JupyterServer() as server, browser_context(chromium) as context:
        server.settings("@jupyterlab/notebook-extension:tracker", {"windowingMode": "contentVisibility"})
        on_disk = saved("steps.ipynb", code, done, server.root).stat().st_size
        server.notebook("empty.ipynb", ["1"])
        opened = {}
        for name in ("empty.ipynb", "empty.ipynb", "steps.ipynb"):  # the first page fills the browser's cache
            with SharedPage(context) as shared, Desk(server, shared.page) as desk:
                began = time.monotonic()
                desk.open(name, kernel=False)
                if name == "steps.ipynb":
                    desk.until("() => document.body.textContent.includes('END OF ALL')", "the end")
                    elements = desk.page.evaluate(
                        "() => document.querySelectorAll('.jp-OutputArea *').length"
                    )
                opened[name] = time.monotonic() - began
    print(
        f"\n{STEPS:,} steps in {done.seconds:.1f} s: {len(sent):,} display messages, {size(sent):,} bytes, "
        f"{len(done.outputs)} outputs; saved notebook {on_disk:,} bytes; "
        f"loop busy at most {busy * 1000:.0f} ms in one piece; opened in {opened['steps.ipynb']:.1f} s "
        f"(an empty notebook: {opened['empty.ipynb']:.1f} s), {elements:,} elements"
    )
    assert len(done.outputs) <= 50
