"""The cost of a rows run compared with bare model calls: `asyncio.gather` of the same `acompletion` calls behind a semaphore.

1,000 rows make two model calls each, 32 at the same time, against a scripted server in another process. Both ways run in
turn, in one process. The CPU seconds of this process count, and of all rounds the fastest: other programs on the machine can
only add time. The real time is printed, too. While our rows run, another task on the same loop ticks: the CPU time of the
loop's thread between two ticks says how long the loop was blocked.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from benchmarks.processes import read_memory
from benchmarks.provider import MODEL, PRICE, serving

litellm = pytest.importorskip("litellm")

from toolloop_jupyter import tool  # noqa: E402
from toolloop_jupyter.core.rows import RowsOptions, RowsRun  # noqa: E402
from toolloop_jupyter.core.session import build_config  # noqa: E402
from toolloop_jupyter.core.tools import make_tools  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

ROWS, AT_ONCE, WARM_UP = 1_000, 32, 100
ROUNDS = int(os.environ.get("TOOLLOOP_ROUNDS", "3"))
MOST_RATIO, MOST_BLOCKED, MOST_MEMORY = 1.1, 0.050, 10.0
"""The budgets: the time divided by that of the bare calls; seconds for which the loop may be blocked; MB from row 200 to row 1,000."""


@tool(parallel=True)
async def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


async def watch_memory(run: RowsRun, memory: dict[int, float]) -> None:
    """Note the memory when a fifth of the rows have ended, and when all have ended."""
    for count in (ROWS // 5, ROWS):
        while run.progress.done < count:  # noqa: ASYNC110 - as a person looks
            await asyncio.sleep(0.005)
        memory[count] = read_memory(os.getpid())


async def bare(base: str, count: int = ROWS) -> None:
    """Make the same model calls without a rows run."""
    spec, places = make_tools([add])[0].spec, asyncio.Semaphore(AT_ONCE)
    place = {"model": MODEL, "api_base": base, "api_key": "sk-bench", "tools": [spec]}

    async def run(number: int) -> str:
        async with places:
            messages: list[dict[str, Any]] = [{"role": "user", "content": f"Row {number}"}]
            response = await litellm.acompletion(messages=messages, **place)
            message = response.choices[0].message
            messages += [
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [call.model_dump() for call in message.tool_calls],
                },
                {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "3"},
            ]
            response = await litellm.acompletion(messages=messages, **place)
            return response.choices[0].message.content

    assert await asyncio.gather(*map(run, range(count))) == ["Done."] * count


async def ours(base: str, count: int = ROWS, memory: dict[int, float] | None = None) -> None:
    config = build_config(model=MODEL, api_base=base, api_key="sk-bench", tools=[add])
    table = [{"n": number} for number in range(count)]
    run = RowsRun(config, "Row {{n}}", table, RowsOptions(AT_ONCE))
    watching = None if memory is None else asyncio.ensure_future(watch_memory(run, memory))
    rows = await run.collect()
    if watching is not None:
        await watching
    assert [row.answer for row in rows] == ["Done."] * count


async def measure(way: Callable[[], Awaitable[None]]) -> tuple[float, float, float]:
    """Return (CPU seconds, seconds, the longest time for which the loop was blocked, in CPU seconds)."""
    blocked = 0.0

    async def tick() -> None:
        nonlocal blocked
        while True:
            at = time.thread_time()
            await asyncio.sleep(0)
            blocked = max(blocked, time.thread_time() - at)
            await asyncio.sleep(0.002)

    gc.collect()
    ticking = asyncio.ensure_future(tick())
    cpu, wall = time.process_time(), time.monotonic()
    await way()
    cpu, wall = time.process_time() - cpu, time.monotonic() - wall
    ticking.cancel()
    return cpu, wall, blocked


async def compare(base: str) -> tuple[dict[str, list[tuple[float, float, float]]], dict[int, float]]:
    memory: dict[int, float] = {}
    await bare(base, WARM_UP)
    await ours(base, WARM_UP)
    gc.collect()
    gc.freeze()
    taken: dict[str, list[tuple[float, float, float]]] = {"bare calls": [], "rows": []}
    for number in range(ROUNDS):
        taken["bare calls"].append(await measure(lambda: bare(base)))
        taken["rows"].append(await measure(lambda: ours(base, memory=memory if number == 0 else None)))  # noqa: B023
    return taken, memory


def test_rows_beside_bare_calls():
    """Rows take at most 1.1 times as long as the bare calls, block the loop for at most 50 ms, and do not need more and more
    memory.
    """
    litellm.suppress_debug_info = True
    litellm.register_model({MODEL: PRICE})
    with serving(1) as base:
        taken, memory = asyncio.run(compare(base))
    cpu = {name: min(one[0] for one in all_) for name, all_ in taken.items()}
    wall = {name: min(one[1] for one in all_) for name, all_ in taken.items()}
    blocked = {name: min(one[2] for one in all_) for name, all_ in taken.items()}
    print(
        f"\n{ROWS:,} rows, two model calls each, {AT_ONCE} at once\n{'':12}{'CPU':>9}{'wall':>9}{'blocked':>12}"
    )
    for name in taken:
        print(f"{name:12}{cpu[name]:7.2f} s{wall[name]:7.2f} s{blocked[name] * 1000:9.1f} ms")
    grown = memory[ROWS] - memory[ROWS // 5]
    ratio = cpu["rows"] / cpu["bare calls"]
    print(
        f"ratio {ratio:.3f} (CPU), {wall['rows'] / wall['bare calls']:.3f} (wall); memory from row {ROWS // 5} on: {grown:+.1f} MB"
    )
    assert ratio <= MOST_RATIO
    assert blocked["rows"] <= MOST_BLOCKED
    assert grown <= MOST_MEMORY
