"""1,000 tool steps in one session: what the last hundred cost against the first hundred, and memory.

LiteLLM's own work grows with the history (it walks through and copies all messages on every call), and the history is
sent again each time. So our part is measured with model calls that are ready at once, and LiteLLM's apart from it, on
the same messages.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
import tracemalloc
from typing import Any

import pytest

from benchmarks.bench_loop import Ready, add
from benchmarks.provider import MODEL, PRICE, serving

litellm = pytest.importorskip("litellm")

import toolloop_jupyter as ours  # noqa: E402 - litellm may be missing

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TURNS, STEPS = 50, 20
HUNDRED = 5
"""Turns of 20 steps."""


class Numbered(Ready):
    """Ready answers for turn after turn of one session: 20 calls, then a text, by what stands behind the last question."""

    async def __call__(self, *, messages: list[Any], **more: Any) -> Any:
        last = next(
            number for number in range(len(messages) - 1, -1, -1) if messages[number]["role"] == "user"
        )
        response = await super().__call__(messages=messages[last:], **more)
        for call in response.choices[0].message.tool_calls or ():
            call.id = f"c{len(messages)}"
        return response


async def session_times(**place: Any) -> tuple[list[float], Any]:
    """CPU seconds of each turn of one session."""
    options = ours.ToolLoopOptions(completion_kwargs={"stream": False})
    seconds = []
    async with ours.aagent_session(ours.Harness.TOOL_LOOP, tools=[add], options=options, **place) as session:
        for number in range(TURNS):
            began = time.process_time()
            result = await session.arun(f"Question {number}")
            seconds.append(time.process_time() - began)
            assert len(result.tool_results) == STEPS, result.error
        assert len(await session.history()) == TURNS * (2 * STEPS + 2)
    return seconds, session


def growth(seconds: list[float]) -> float:
    """The last hundred steps against the first (the least of each five turns, so that a busy machine counts less)."""
    return min(seconds[-HUNDRED:]) / min(seconds[:HUNDRED])


def test_a_thousand_steps(monkeypatch):
    """Apart from LiteLLM's own growing work, the last hundred of 1,000 tool steps cost at most 1.2 times the first."""
    litellm.suppress_debug_info = True
    litellm.register_model({MODEL: PRICE})
    with serving() as base:
        through, _ = asyncio.run(session_times(model=MODEL, api_base=base, api_key="sk-bench"))
    monkeypatch.setattr(litellm, "acompletion", Numbered("add"))
    alone, _ = asyncio.run(session_times(model=MODEL, api_base="http://unused", api_key="sk-bench"))
    tracemalloc.start()
    _, session = asyncio.run(session_times(model=MODEL, api_base="http://unused", api_key="sk-bench"))
    kept, peak = (size / 2**20 for size in tracemalloc.get_traced_memory())
    tracemalloc.stop()
    unit = 2**20 if sys.platform == "darwin" else 2**10
    print(f"\n{TURNS * STEPS:,} tool steps in one session, CPU")
    for name, seconds in (("ours with LiteLLM's client", through), ("ours alone", alone)):
        first, last = (min(part) * 1000 / STEPS for part in (seconds[:HUNDRED], seconds[-HUNDRED:]))
        print(
            f"{name:28} first 100: {first:6.3f} ms a step   last 100: {last:6.3f} ms   ratio {growth(seconds):.2f}"
        )
    print(f"memory for the session: {kept:.1f} MB kept, {peak:.1f} MB at the peak")
    print(
        f"the whole process at its peak: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit:.0f} MB"
    )
    assert len(session.results) == TURNS
    # A step with LiteLLM's client at the beginning, and what our own part adds to it at the end.
    ratio = 1 + (min(alone[-HUNDRED:]) - min(alone[:HUNDRED])) / min(through[:HUNDRED])
    print(f"a step at the end, apart from LiteLLM's own growth: {ratio:.2f} of one at the beginning")
    assert ratio <= 1.2
