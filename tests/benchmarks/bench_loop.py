"""The cost of our loop in addition to the model calls, beside LiteLLM's own loop, in one run.

A tool step is one model call that asks for a tool, and the call of this tool. Each loop runs twice:

- against a scripted server in another process: raw `litellm.acompletion` calls with the same messages and tools, LiteLLM's Tool
  Loop, and ours. This gives the ratios. (LiteLLM's client takes some 5 ms a call, and varies by more than the cost of a loop.)
- with `litellm.acompletion` replaced by a function that has its answers ready. What is left is the loop's own work. Its
  milliseconds for each step must stay within the budget.

The rounds alternate. The CPU seconds of this process (all its threads) count, and of all rounds the fastest: other programs
on the machine can only add time.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from benchmarks.provider import MODEL, PRICE, STEPS, serving

litellm = pytest.importorskip("litellm")
harness = pytest.importorskip("litellm.harness", reason="this LiteLLM has no loop to compare with")

import toolloop_jupyter as ours  # noqa: E402
from toolloop_jupyter.core.tools.tool import make_tools  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROUNDS, READY_ROUNDS, WARM_UP = 9, 30, 2


def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


async def aadd(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


async def raw(base: str, spec: dict[str, Any], *, stream: bool) -> None:
    """Make the same model calls without any loop."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Go"}]
    options: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    for number in range(STEPS + 1):
        response = await litellm.acompletion(
            model=MODEL, api_base=base, api_key="sk-bench", messages=list(messages), tools=[spec], **options
        )
        if stream:
            async for _ in response:
                pass
        called = {"name": spec["function"]["name"], "arguments": '{"a": 1}'}
        call = {"id": f"c{number}", "type": "function", "function": called}
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": "3"},
        ]


async def looped(api: Any, base: str, function: Callable[..., Any], **more: Any) -> None:
    """Run one turn of a loop."""
    place = {"model": MODEL, "api_base": base, "api_key": "sk-bench"}
    result = await api.aagent(api.Harness.TOOL_LOOP, "Go", tools=[function], **place, **more)
    assert result.text == "Done.", result.text
    assert sum(type(e).__name__ == "ToolResult" and not e.is_error for e in result.events) == STEPS


def ways(base: str, function: Callable[..., Any], folder: str) -> dict[str, Callable[[], Awaitable[None]]]:
    whole = ours.ToolLoopOptions(completion_kwargs={"stream": False})
    spec = make_tools([function])[0].spec  # done once: describing a function is not a part of the calls
    return {
        "raw calls": lambda: raw(base, spec, stream=False),
        "LiteLLM's loop": lambda: looped(harness, base, function, sandbox=litellm.sandbox.local(folder)),
        "ours": lambda: looped(ours, base, function, options=whole),
        "raw calls, streamed": lambda: raw(base, spec, stream=True),
        "ours, streamed": lambda: looped(ours, base, function),
    }


class Ready:
    """Replaces `acompletion`. Its answers are ready: STEPS calls of the tool, then a text; streamed if the call asks for it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}

    async def __call__(self, *, messages: list[Any], stream: bool = False, **_: Any) -> Any:
        done = sum(message["role"] == "tool" for message in messages)
        text = "Done." if done >= STEPS else None
        function = {"name": self.name, "arguments": '{"a": 1}'}
        call = {"index": 0, "id": f"c{done}", "type": "function", "function": function}
        message = {"role": "assistant", "content": text, "tool_calls": None if text else [call]}
        finish = "stop" if text else "tool_calls"
        if stream:
            return self._chunks(message, finish)
        choice = {"index": 0, "message": message, "finish_reason": finish}
        response = litellm.ModelResponse(choices=[choice], usage=self.usage, model="bench")
        response._hidden_params["response_cost"] = 0.00002
        return response

    async def _chunks(self, delta: dict[str, Any], finish: str) -> Any:
        stream_type = {"stream": True, "model": "bench"}
        yield litellm.ModelResponse(choices=[{"index": 0, "delta": delta}], **stream_type)
        yield litellm.ModelResponse(
            choices=[{"index": 0, "delta": {}, "finish_reason": finish}], **stream_type
        )
        yield litellm.ModelResponse(choices=[], usage=self.usage, **stream_type)


async def measure(named: dict[str, Callable[[], Awaitable[None]]], rounds: int) -> dict[str, float]:
    """Return the least CPU seconds of each way."""
    seconds: dict[str, list[float]] = {name: [] for name in named}
    gc.collect()
    gc.freeze()  # so that a garbage collection between the rounds does not visit all objects of LiteLLM
    for number in range(WARM_UP + rounds):
        for name, way in named.items():
            gc.collect()
            began = time.process_time()
            await way()
            await asyncio.sleep(0.01)  # LiteLLM's logging in the background belongs to its calls
            if number >= WARM_UP:
                seconds[name].append(time.process_time() - began)
    return {name: min(taken) for name, taken in seconds.items()}


def table(title: str, seconds: dict[str, float]) -> dict[str, float]:
    """Print a table. Return the milliseconds of a step in addition to the raw calls."""
    print(f"\n{title}\n{'':20}{'whole':>11}{'to raw':>9}{'beyond raw':>20}")
    beyond = {}
    for name, whole in seconds.items():
        base = seconds["raw calls, streamed" if name.endswith("streamed") else "raw calls"]
        beyond[name] = (whole - base) * 1000 / STEPS
        print(f"{name:20}{whole * 1000:8.1f} ms{whole / base:9.3f}{beyond[name]:+11.3f} ms a step")
    return beyond


@pytest.mark.parametrize("function", [add, aadd], ids=["sync tool", "async tool"])
def test_loop_overhead(function, tmp_path, monkeypatch):
    """A tool step of ours costs at most 1 ms more than the raw calls, and less than LiteLLM's."""
    litellm.suppress_debug_info = True
    litellm.register_model({MODEL: PRICE})
    tools = f"{STEPS} tool steps ({function.__name__})"
    with serving() as base:
        seconds = asyncio.run(measure(ways(base, function, str(tmp_path)), ROUNDS))
    table(f"{tools}, through LiteLLM's client, CPU", seconds)
    monkeypatch.setattr(litellm, "acompletion", Ready(function.__name__))
    seconds = asyncio.run(measure(ways("http://unused", function, str(tmp_path)), READY_ROUNDS))
    beyond = table(f"{tools}, model calls ready at once, CPU", seconds)
    assert beyond["ours"] <= 1
    assert beyond["ours, streamed"] <= 1
    assert beyond["ours"] < beyond["LiteLLM's loop"]
