"""1,000 tool steps in one session: the cost of the last hundred steps compared with the first hundred, and the memory.

LiteLLM's own work grows with the history: it copies all messages for every call, and they are sent again each time. So our
part is measured with model calls that return at once, and LiteLLM's part is measured alone, on the same messages.
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
    """Answers without any wait, for the turns of one session: 20 calls, then a text. The messages after the last question
    decide which answer comes.
    """

    async def __call__(self, *, messages: list[Any], **more: Any) -> Any:
        last = next(
            number for number in range(len(messages) - 1, -1, -1) if messages[number]["role"] == "user"
        )
        response = await super().__call__(messages=messages[last:], **more)
        for call in response.choices[0].message.tool_calls or ():
            call.id = f"c{len(messages)}"
        return response


async def session_times(**place: Any) -> tuple[list[float], Any]:
    """Return the CPU seconds of each turn of one session."""
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
    """Return the time of the last hundred steps divided by that of the first hundred. Of every five turns, the fastest
    counts, because other programs slow some turns down.
    """
    return min(seconds[-HUNDRED:]) / min(seconds[:HUNDRED])


def test_a_thousand_steps(monkeypatch):
    """Without LiteLLM's own work, the last hundred of 1,000 tool steps cost at most 1.2 times as much as the first hundred."""
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
    # Prints the time of a step with LiteLLM's client at the beginning, and the time that our own part adds to it at the end.
    ratio = 1 + (min(alone[-HUNDRED:]) - min(alone[:HUNDRED])) / min(through[:HUNDRED])
    print(f"a step at the end, apart from LiteLLM's own growth: {ratio:.2f} of one at the beginning")
    assert ratio <= 1.2
