"""The cost of streaming: our CPU time compared with LiteLLM's own, and the longest time for which the event loop was blocked.

    ./dev bench -k streaming        or: python tests/benchmarks/bench_streaming.py [chunks]

The same stream is read three times: by LiteLLM alone; by a whole turn of ours; and by ours alone, with the chunks that
LiteLLM has made. The last run gives our share without the variation of the network. The server runs in another thread, whose
time does not count. Prints ratios, and exits with 1 if a budget is exceeded.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
sys.path.insert(0, str(Path(__file__).parents[1]))

from support.servers import Entry, ScriptedServer
from toolloop_jupyter import Harness, aagent_session
from toolloop_jupyter.core.events.events import Text
from toolloop_jupyter.core.models import client

SHARE = 0.10
"""The budget for our CPU time, as a part of LiteLLM's."""
BLOCKED = 0.020
"""Seconds for which we may block the loop longer than LiteLLM does."""
WARM_UP = 200


@dataclass
class Measured:
    cpu: float
    """CPU seconds on the loop's thread."""
    blocked: float
    """The longest CPU time between two turns of a ticker. Time that other programs take does not count."""
    value: Any


async def measure(work: Callable[[Callable[[], float]], Awaitable[Any]]) -> Measured:
    """Run `work(longest)` beside a ticker. `longest()` returns the longest time for which the loop was blocked so far."""
    gc.collect()
    gc.disable()  # a full garbage collection visits all objects of LiteLLM, which takes some 300 ms at any moment
    longest, over = 0.0, False

    async def tick() -> None:
        nonlocal longest
        before = time.thread_time()
        while not over:
            await asyncio.sleep(0.001)
            now = time.thread_time()
            longest, before = max(longest, now - before), now

    ticking = asyncio.ensure_future(tick())
    await asyncio.sleep(0.01)
    longest = 0.0
    began = time.thread_time()
    value = await work(lambda: longest)
    cpu = time.thread_time() - began
    gc.enable()
    over = True
    await ticking
    return Measured(cpu, longest, value)


async def raw(server: ScriptedServer) -> list[Any]:
    """Read the stream with LiteLLM alone."""
    litellm = client.load_litellm()
    response = await litellm.acompletion(
        model="openai/stub",
        api_base=server.base_url,
        api_key="sk-none",
        messages=[{"role": "user", "content": "Go."}],
        stream=True,
        stream_options={"include_usage": True},
    )
    return [chunk async for chunk in response]


async def turn(server: ScriptedServer, longest: Callable[[], float]) -> float:
    """Run a whole turn of ours. Return how long the loop was blocked while its text arrived.

    After the last delta, LiteLLM builds the whole response again in one step. This step does not count.
    """
    session = aagent_session(
        Harness.TOOL_LOOP, model="openai/stub", api_base=server.base_url, api_key="sk-none"
    )
    seen = [longest() async for event in session.astream("Go.") if isinstance(event, Text)]
    return seen[-100] if len(seen) > 100 else 0.0


async def ours(chunks: list[Any]) -> str:
    """Run a turn of ours on chunks that are already there."""
    litellm = client.load_litellm()

    async def stream() -> Any:
        for chunk in chunks:
            yield chunk

    async def acompletion(*, messages: list[Any], **_: Any) -> Any:
        if messages[-1]["role"] == "user":
            return stream()
        return await real(model="openai/stub", messages=messages, mock_response="Done.")

    real, litellm.acompletion = litellm.acompletion, acompletion
    try:
        session = aagent_session(
            Harness.TOOL_LOOP, model="openai/stub", api_base="http://none", api_key="sk-none"
        )
        return "".join([e.delta async for e in session.astream("Go.") if isinstance(e, Text)])
    finally:
        litellm.acompletion = real


def script(count: int, kind: str) -> Entry:
    """Return a stream of `count` chunks: text, or the arguments of one call."""
    if kind == "text":
        return Entry(chunks=[{"content": f"word{n} "} for n in range(count)])
    head = {
        "index": 0,
        "id": "c1",
        "type": "function",
        "function": {"name": "write", "arguments": '{"text":"'},
    }
    middle = [{"index": 0, "function": {"arguments": f"word{n} {{"}} for n in range(count)]
    end = {"index": 0, "function": {"arguments": '"}'}}
    return Entry(chunks=[{"tool_calls": [fragment]} for fragment in (head, *middle, end)])


async def compare(count: int, kind: str) -> bool:
    """Measure one kind of stream, and print the result. Return whether the budgets hold."""
    with ScriptedServer([script(WARM_UP, kind)]) as server:
        await ours(await raw(server))
    with ScriptedServer([script(count, kind), script(count, kind), Entry(content="Done.")]) as server:
        alone = await measure(lambda _: raw(server))
        whole = await measure(lambda longest: turn(server, longest))
        our_share = await measure(lambda _: ours(alone.value))
    share = our_share.cpu / alone.cpu
    print(f"{kind}: {len(alone.value)} chunks")
    print(
        f"  LiteLLM alone     {alone.cpu:6.2f} s CPU ({alone.cpu / count * 1e6:5.0f} µs a chunk), loop blocked {alone.blocked * 1000:5.1f} ms at most"
    )
    print(
        f"  a whole turn      {whole.cpu:6.2f} s CPU ({whole.cpu / count * 1e6:5.0f} µs a chunk), loop blocked {whole.blocked * 1000:5.1f} ms at most"
    )
    print(
        f"  ours alone        {our_share.cpu:6.2f} s CPU ({our_share.cpu / count * 1e6:5.0f} µs a chunk), loop blocked {our_share.blocked * 1000:5.1f} ms at most"
    )
    if whole.value:
        print(
            f"                    … and {whole.value * 1000:.1f} ms while the text arrived; at its end LiteLLM builds the whole response again"
        )
    print(f"  our share         {share:6.1%} of LiteLLM's (budget {SHARE:.0%})")
    return share <= SHARE and max(our_share.blocked, whole.value) <= BLOCKED


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["text", "call"])
async def test_streaming(kind: str) -> None:
    """For 10,000 chunks, our share of the CPU and of the loop's time is within the budgets."""
    assert await compare(10_000, kind)


async def main(count: int) -> int:
    held = [await compare(count, kind) for kind in ("text", "call")]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)))
