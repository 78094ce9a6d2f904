"""Kernel ready -> the first answer is on the page, cells queued at once: beside an empty kernel and a bare `import litellm`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support.kernels import LiveKernel
from support.servers import ScriptedServer, answer
from toolloop_jupyter.teaching import Recorder

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROUNDS = 5
LOAD = "%load_ext toolloop_jupyter"
MODELS = "from toolloop_jupyter.teaching import ScriptedModel, Replay"


def ways(recording: Path, address: str) -> dict[str, tuple[list[str], str]]:
    """The cells of each way, and the text that is waited for."""
    return {
        "an empty kernel's print": (["print('Hello.')"], "Hello."),
        "import litellm": (["import litellm\nprint('Hello.')"], "Hello."),
        "scripted": ([LOAD, f"{MODELS}\nm = ScriptedModel('Hello.')", "%%toolloop -m m\nHi"], "Hello."),
        "demo": ([LOAD, "%%toolloop\nHi"], "demonstration"),
        "replay": ([LOAD, f"{MODELS}\nm = Replay({str(recording)!r})", "%%toolloop -m m\nHi"], "Hello."),
        "HTTP, a local server": (
            [LOAD, "key = 'sk-0'", f"%%toolloop -m openai/m --api-base {address} --api-key key\nHi"],
            "Hello.",
        ),
    }


def measure(cells: list[str], text: str) -> tuple[float, float]:
    """(seconds from a kernel that is ready to the text, MB of its memory then)."""
    with LiveKernel(sys.executable) as kernel:
        began = time.monotonic()
        for cell in cells:
            kernel.submit(cell)
        kernel.wait_for_text(text, timeout=120)
        return time.monotonic() - began, memory(kernel.pid)


def memory(pid: int) -> float:
    """MB that are in use (0 where there is no /proc)."""
    status = Path(f"/proc/{pid}/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) / 1000 for line in lines if line.startswith("VmRSS")), 0.0)


def test_first_answer(tmp_path):
    """A model of ours answers at most 0.8 s after an empty kernel's first print, in less than 120 MB (best of several rounds)."""
    Recorder(tmp_path / "lesson.jsonl").record(
        {"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
        [(0.0, {"content": "Hello."})],
        {"finish_reason": "stop", "usage": {"prompt_tokens": 1, "completion_tokens": 1}},
    )
    with ScriptedServer([answer("Hello.")]) as server:
        measured = run_all(lambda: ways(tmp_path / "lesson.jsonl", server.base_url))
    empty = measured["an empty kernel's print"][0]
    print(f"\nseconds from a ready kernel to the first answer, best of {ROUNDS}, and MB ({compiled()})")
    for name, (seconds, megabytes) in measured.items():
        print(f"{name:28}{seconds:7.2f}   + {seconds - empty:5.2f}   {megabytes:6.0f} MB")
    for name in ("scripted", "demo", "replay"):
        assert measured[name][0] - empty <= 0.8
        assert measured[name][1] < 120


def run_all(make: Callable[[], dict[str, tuple[list[str], str]]]) -> dict[str, tuple[float, float]]:
    """The best of all rounds of each way; the ways take turns, so that what else the machine does meets all of them."""
    found: dict[str, list[tuple[float, float]]] = {}
    for _ in range(ROUNDS):
        for name, (cells, text) in make().items():
            found.setdefault(name, []).append(measure(cells, text))
    return {
        name: (min(seconds for seconds, _ in several), max(megabytes for _, megabytes in several))
        for name, several in found.items()
    }


def compiled() -> str:
    return "nothing is compiled" if os.environ.get("PYTHONDONTWRITEBYTECODE") else "with bytecode"
