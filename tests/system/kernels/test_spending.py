"""A notebook's budget and its fallback models, in a real kernel with two servers."""

from __future__ import annotations

import pytest

from support.servers import answer, calls, failure

PRICES = """
import os, litellm
for name, where, price in (("openai/first", "openai", 1e-3), ("hosted_vllm/second", "hosted_vllm", 1e-4)):
    litellm.model_cost[name] = dict(input_cost_per_token=price, output_cost_per_token=price, litellm_provider=where, mode="chat")
os.environ.update(OPENAI_API_KEY="key-1", HOSTED_VLLM_API_KEY="key-2", HOSTED_VLLM_API_BASE=%r)
def add(a: int, b: int) -> int:
    "Add."
    return a + b
"""


@pytest.fixture(scope="module")
def shared():
    from support.kernels import LiveKernel

    with LiveKernel() as kernel:
        kernel.execute("%load_ext toolloop_jupyter")
        yield kernel


def test_budget_and_fallback(shared, serve, tmp_path):
    """The cell, the spans and the cost show a fallback, and it can be replayed. Cells and the API count for the budget, and
    it ends both.
    """
    kernel = shared
    first = serve([calls(("add", {"a": 1, "b": 2})), *[failure(400, "out of order")] * 9])
    second = serve([answer("Three.")])
    assert kernel.execute(PRICES % second.base_url, timeout=120).status == "ok"
    line = f"--model openai/first --api-base {first.base_url} --fallback hosted_vllm/second -t add"
    cell = kernel.execute(
        f"%%toolloop {line} --record {tmp_path.as_posix()}/tape.jsonl --as r\nAdd.", timeout=120
    )
    assert cell.status == "ok", cell.text
    assert "openai/first failed: " in cell.text
    assert "hosted_vllm/second is asked instead." in cell.text
    assert "answered by hosted_vllm/second" in cell.text.splitlines()[-1]
    spans = "[(s.name, s.is_error, s.cost and round(s.cost, 5)) for s in r.spans if s.kind == 'model']"
    printed = kernel.execute(f"print({spans}, round(r.cost, 5), r.text)").stdout
    assert printed == (
        "[('openai/first', False, 0.015), ('openai/first', True, None), ('hosted_vllm/second', False, 0.0015)] 0.0165 Three.\n"
    )
    again = kernel.execute(f"%%toolloop {line} --replay {tmp_path.as_posix()}/tape.jsonl --as again\nAdd.")
    assert "Three." in again.text, again.text
    assert "hosted_vllm/second is asked instead." in again.text
    assert kernel.execute("print(again.text, again.stop_reason)").stdout == "Three. done\n"

    status = kernel.execute("%toolloop --budget 0.04").stdout
    assert "budget       $0.04, $0.0" in status
    assert "spent        $0.0" in status
    kernel.execute(
        "from toolloop_jupyter import Harness, agent\n"
        "one = agent(Harness.TOOL_LOOP, 'Hi', model='hosted_vllm/second')\n"
    )
    for _ in range(20):
        kernel.execute("one = agent(Harness.TOOL_LOOP, 'Hi', model='hosted_vllm/second')")
    asked = len(second.requests)
    ended = kernel.execute("%%toolloop --model hosted_vllm/second --as two\nHi.")
    assert "the budget of $0.04 for all runs is used up" in ended.text, ended.text
    assert kernel.execute("print(one.stop_reason, two.stop_reason)").stdout == "max_cost max_cost\n"
    assert len(second.requests) == asked
    assert "$0.0000 left" in kernel.execute("%toolloop").stdout
    printed = kernel.execute("%%toolloop --budget 5\nHi.").text
    assert "--budget is for all runs of the notebook together; write %toolloop --budget 5" in printed
    kernel.execute("%toolloop --budget 5")
    assert kernel.execute("%%toolloop --model hosted_vllm/second\nHi.").status == "ok"
    kernel.execute("%toolloop reset")
    assert "budget" not in kernel.execute("%toolloop").stdout
