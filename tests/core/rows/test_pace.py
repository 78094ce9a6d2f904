"""How fast rows call the model, and what ends the whole run: pauses of all rows, refusals that every row would get, limits, a stop."""

from __future__ import annotations

import asyncio
import functools
import math
import threading
import time

import pytest

import toolloop_jupyter as tl
from support import pace as pace_module
from support.clock import skip_time
from support.servers import Entry, answer, calls, failure
from toolloop_jupyter import amap
from toolloop_jupyter.core.loop import SPENDING
from toolloop_jupyter.core.rows import RowsOptions, RowsRun, pace
from toolloop_jupyter.core.rows.job import RunState
from toolloop_jupyter.core.rows.pace import Pace
from toolloop_jupyter.core.session import build_config
from toolloop_jupyter.teaching import ModelOfRow, ScriptedModel, call, error


def limited(most: int):
    """A server that answers `most` requests, then refuses all for 0.2 s and says so, and then answers as many again."""
    refused, left, opens = [], most, math.inf

    def respond(received) -> Entry:
        nonlocal left, opens
        if received.at >= opens:
            left, opens = most, math.inf
        if left:
            left -= 1
            return answer("Done.")
        refused.append(received)
        opens = min(opens, received.at + 0.2)
        wait = max(0.0, opens - received.at)
        return failure(429, "slow down", headers={"retry-after-ms": str(math.ceil(wait * 1000) + 1)})

    return respond, refused


@pytest.mark.timeout(120)
async def test_a_storm_of_refusals(call):
    """If a provider takes fewer calls than 16 rows make, only a few requests more than necessary are sent, and all rows end."""
    respond, refused = limited(40)
    more, server = call(respond)
    rows = await amap("{{row}}", [str(n) for n in range(300)], concurrency=16, **more)
    assert rows.failed == []
    assert refused
    assert len(server.requests) <= 1.2 * 300


async def test_one_pause_for_all(call):
    """After one refusal with Retry-After, no row sends a request before that time; then fewer requests are sent at the same time."""
    refused: list[float] = []

    def respond(received) -> Entry:
        if len(server.requests) == 9:
            refused.append(received.at)
            return failure(429, "slow down", headers={"retry-after": "1"})
        return answer("Done.", stall=0.05)

    more, server = call(respond)
    rows = await amap("{{row}}", [str(n) for n in range(24)], concurrency=4, **more)
    assert rows.failed == []
    early = [one for one in server.requests if refused[0] < one.at < refused[0] + 1.0]
    assert len(early) <= 3  # the calls that had been sent already
    assert len(server.requests) == 25
    assert rows.progress.speed.concurrency < 4


async def test_a_gate_lets_in_as_many_as_its_limit():
    """Waiting calls are let in one by one, in order. If a call is cancelled while it waits, or just when it is let in, the
    next one comes.
    """
    gate, order = Pace(1, None, RunState()), []

    async def enter(name: str) -> None:
        await gate.enter()
        order.append(name)

    await gate.enter()
    waiting = [asyncio.ensure_future(enter(name)) for name in "abc"]
    await asyncio.sleep(0)
    waiting[0].cancel()
    gate.leave(200)
    waiting[1].cancel()  # it has been let in just now
    await asyncio.wait(waiting, timeout=1)
    assert order == ["c"]
    gate.leave(200)
    assert gate.under_way == 0


async def test_refusals_of_one_pause_halve_once():
    """Refusals of calls that were under way when the pause began do not halve again. Without Retry-After, the pauses grow."""
    gate = Pace(16, None, RunState())
    for _ in range(4):
        await gate.enter()
    assert gate.leave(429, 0.5) == 0.5
    gate.leave(429, 0.1)
    gate.leave(529, 0.2)
    assert gate.limit == 8
    await asyncio.sleep(0.51)
    gate.leave(429, 0.001)  # one of those four calls
    assert gate.limit == 8
    await asyncio.sleep(0.01)
    await gate.enter()
    assert gate.leave(429, None) == 1.0
    assert gate.limit == 4
    for _ in range(8):
        gate.under_way += 1
        gate.leave(200)
    assert 4.3 < gate.limit < 4.6


@pytest.mark.parametrize("wait", [0.0, 0.001])
async def test_a_pause_of_no_time(wait):
    """A server refuses many simultaneous calls, and asks for no pause or a very short one: this counts once, and the run goes on."""
    gate = Pace(32, None, state := RunState())
    for _ in range(32):
        await gate.enter()
    for _ in range(32):
        gate.leave(429, wait)
        await asyncio.sleep(0.002)
    assert gate.limit == 16
    assert not state.is_final
    await asyncio.wait_for(gate.enter(), 2)


async def test_only_refusals_end_the_run(monkeypatch):
    """If a provider answers only with 429, the run ends after some pauses, with one line."""
    monkeypatch.setattr(pace, "MOST_PAUSES", 2)
    model = ScriptedModel(error("slow down", 429, {"retry-after-ms": "10"}), repeat_last=True)
    rows = await amap("{{row}}", list("abcdef"), model=model, concurrency=1)
    assert len(rows) == 1
    assert "slow down" in rows.message


@pytest.mark.parametrize("status", [401, 402, 403, 404])
async def test_what_every_row_would_get_ends_the_whole(call, status):
    """If the key, the account, the permission or the name is refused, few requests are sent, and one line says why."""
    more, server = call(failure(status, "no credit left"))
    rows = await amap("{{row}}", [str(n) for n in range(50)], concurrency=2, **more)
    assert len(server.requests) <= 4
    assert "\n" not in rows.message
    assert "no credit left" in rows.message or "key" in rows.message or "no such model" in rows.message
    assert len(rows) <= 2


async def test_a_quota_that_is_used_up_is_no_pause(call):
    """OpenAI answers with 429 if a quota is used up: the run ends without a pause."""
    more, server = call(failure(429, "You exceeded your current quota (insufficient_quota)"))
    rows = await amap("{{row}}", ["a", "b", "c"], concurrency=1, **more)
    assert "insufficient_quota" in rows.message
    assert len(server.requests) <= 3


@pytest.mark.parametrize("status", [401, 404])
async def test_a_refusal_that_a_fallback_mends_ends_nothing(status):
    """The first model refuses every row, and the second answers. If a row fails for another reason, the other rows go on."""

    def answer(messages: list[dict[str, object]]) -> str:
        if messages[-1]["content"] == "b":
            raise RuntimeError("a fault of its own")
        return "Yes."

    refusing = ScriptedModel(error("no such key", status), repeat_last=True)
    options = tl.ToolLoopOptions(fallback=[ScriptedModel(answer)])
    rows = await amap("{{row}}", ["a", "b", "c"], model=refusing, options=options, concurrency=1)
    assert [row.answer for row in rows] == ["Yes.", None, "Yes."]
    assert rows.message == ""


async def test_a_refusal_by_the_last_model_ends_the_whole():
    """When the last fallback refuses the key, too, no other row begins."""
    refusing = [ScriptedModel(error("no such key", 401), repeat_last=True) for _ in range(2)]
    options = tl.ToolLoopOptions(fallback=refusing[1:])
    rows = await amap("{{row}}", ["a", "b", "c"], model=refusing[0], options=options, concurrency=1)
    assert len(rows) == 1
    assert "no such key" in rows.message


async def test_other_failures_are_tried_again(call):
    """After a failure of the server, a call is tried twice more."""
    more, server = call(failure(500), failure(500), answer("a"), answer("b"))
    rows = await amap("{{row}}", ["a", "b"], concurrency=1, **more)
    assert [row.answer for row in rows] == ["a", "b"]
    assert len(server.requests) == 4


async def test_timeout_is_for_one_row():
    """A row that takes too long fails. Each other row has its own time."""

    async def hang() -> str:
        """Let a minute pass, and never end."""
        skip_time(61)
        await asyncio.Event().wait()
        return "no"

    model = lambda row: ScriptedModel(*([call("hang")] if row["row"] == "b" else []), "x")  # noqa: E731
    rows = await amap("{{row}}", ["a", "b", "c"], model=model, tools=[hang], timeout=60, concurrency=1)
    assert [row.stop_reason for row in rows] == ["done", "timeout", "done"]
    assert rows[1].error == "it took longer than its timeout of 60 s"


async def test_max_cost_is_for_all_rows(call):
    """When all rows have cost `max_cost`, no further model call begins. The ended rows are there, and the message says why."""
    more, server = call(
        answer("x", usage={"prompt_tokens": 1000, "completion_tokens": 0, "total_tokens": 1000})
    )
    more["model"] = "openai/gpt-4o"
    price = (await amap("{{row}}", ["a"], **more)).cost
    assert price
    rows = await amap("{{row}}", [str(n) for n in range(50)], **more, max_cost=price * 3.5, concurrency=1)
    assert len(rows) == 4
    assert rows.message == f"stopped at ${4 * price:.4f}: max_cost is ${price * 3.5} for all rows"
    assert len(server.requests) == 5


async def test_max_cost_in_the_middle_of_a_row(call):
    """`max_cost` is checked before each model call, not only between rows."""
    usage = {"prompt_tokens": 1000, "completion_tokens": 0, "total_tokens": 1000}

    def look() -> str:
        """Look."""
        return "x"

    more, server = call(calls(("look", {}), usage=usage))
    more["model"] = "openai/gpt-4o"
    rows = await amap("{{row}}", ["a", "b"], **more, tools=[look], max_cost=0.000001, concurrency=1)
    assert [row.stop_reason for row in rows] == ["max_cost"]
    assert len(server.requests) == 1


async def test_the_budget_of_all_runs(monkeypatch):
    """When the budget is used up, no row calls the model, and the run ends with a line that says so."""
    monkeypatch.setattr(SPENDING, "budget", 0.01)
    monkeypatch.setattr(SPENDING, "cost", 0.02)
    rows = await amap("{{row}}", list("abcdef"), model=(model := ScriptedModel("x")), concurrency=1)
    assert model.requests == []
    assert len(rows) == 1
    assert "the budget of $0.01 for all runs is used up" in rows.message


# --- a stop -------------------------------------------------------------------------------------------------------


def waiting_run(ready: threading.Event, **more) -> RowsRun:
    """A run whose rows never end, from row 3 on. `ready` is set when two of these have begun."""

    def model(row) -> ScriptedModel:
        if row["n"] == 4:
            ready.set()
        return ScriptedModel("x", pace=60.0 if row["n"] >= 3 else 0)

    config = build_config(model=ModelOfRow(model))
    return RowsRun(config, "{{n}}", [{"n": n} for n in range(100)], RowsOptions(concurrency=2), **more)


async def test_a_cancel_from_another_thread():
    """`cancel` ends the run within half a second. The value has the ended rows, and `cut` has those that were running."""
    ready = threading.Event()
    run = waiting_run(ready)
    at: list[float] = []

    def stop() -> None:
        ready.wait(10)
        at.append(time.monotonic())
        run.cancel()

    threading.Thread(target=stop).start()
    with pace_module.Pace() as here:
        rows = await run.collect()
        took = time.monotonic() - at[0]
    assert took < 0.5 * here.slowdown
    assert [row.number for row in rows] == [0, 1, 2]
    assert [row.number for row in rows.cut] == [3, 4]
    assert rows.message == "the run was stopped"


async def test_an_interrupt_leaves_what_there_is():
    """■ raises CancelledError in the code that awaits the run, and `.rows` has the ended rows."""
    ready = threading.Event()
    run = waiting_run(ready)
    collecting = asyncio.ensure_future(run.collect())
    await asyncio.to_thread(ready.wait, 10)
    collecting.cancel()
    with pytest.raises(asyncio.CancelledError, match="the run was stopped"):
        await collecting
    assert [row.number for row in run.rows] == [0, 1, 2]
    assert run.rows.message == "the run was stopped"
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_progress_is_told():
    """The progress of a run says how many rows run and have ended; `waiting` and `left` follow from it."""
    seen = []

    def model(row: dict[str, str]) -> ScriptedModel:
        seen.append(run.progress)
        return ScriptedModel(error("bad", 400))

    config = build_config(model=ModelOfRow(model))
    run = RowsRun(config, "{{row}}", list("abcd"), RowsOptions(concurrency=1))
    assert (run.progress.waiting, run.progress.left) == (4, None)
    collecting = asyncio.ensure_future(run.collect())
    while not collecting.done():
        seen.append(run.progress)
        await asyncio.sleep(0)
    assert (seen[0].waiting, seen[0].running) == (4, 0)
    assert max(one.running for one in seen) == 1
    assert {one.failed for one in seen} >= {0, 1, 2, 3}
    last = run.progress
    assert (last.done, last.failed, last.running, last.waiting, last.left) == (0, 4, 0, 0, 0)
    assert [row.number for row in last.last] == [1, 2, 3]
    assert last.speed.rate > 0
    with pytest.raises(tl.HarnessError, match="have been run already"):
        await run.collect()


# --- tools --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("parallel", [False, True])
async def test_a_tool_runs_for_one_row_at_a_time(is_async, parallel):
    """A tool runs for one row at a time, also an async tool, unless it has `parallel=True`."""
    now, most = 0, 0
    lock = threading.Lock()

    def count(step: int) -> None:
        nonlocal now, most
        with lock:
            now += step
            most = max(most, now)

    def is_worked_off(since: float) -> bool:
        """Return True after a moment, or with `parallel` when two calls have run at the same time."""
        return most > 1 if parallel else time.monotonic() > since + 0.02

    def work() -> str:
        """Work."""
        count(1)
        since = time.monotonic()
        while not is_worked_off(since):
            time.sleep(0.005)
        count(-1)
        return "x"

    async def awork() -> str:
        """Work."""
        count(1)
        since = time.monotonic()
        while not is_worked_off(since):  # noqa: ASYNC110 - as the other one does
            await asyncio.sleep(0.005)
        count(-1)
        return "x"

    one = tl.tool(name="work", parallel=parallel)(awork if is_async else work)
    rows = await amap(
        "{{row}}", list("abcd"), model=ScriptedModel(call("work"), "x"), tools=[one], concurrency=4
    )
    assert [result.output for row in rows for result in row.result.tool_results] == ["x"] * 4
    assert (most > 1) is parallel


@pytest.mark.parametrize("is_async", [False, True])
async def test_one_function_under_two_names(is_async):
    """If two tools have the same function (in a partial, as a method), it still runs for one row at a time."""
    inside, most = 0, 0

    class Shop:
        def sell(self, what: str) -> str:
            """Sell."""
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            time.sleep(0.02)
            inside -= 1
            return what

        async def order(self, what: str) -> str:
            """Order."""
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.02)
            inside -= 1
            return what

    shop = Shop()
    function = shop.order if is_async else shop.sell
    one, other = functools.partial(function), functools.partial(function)
    tools = [tl.tool(name="one")(one), tl.tool(name="other")(other)]

    def answer(messages: list[dict[str, object]]) -> object:
        asked = messages[-1]
        return call(asked["content"], what="x") if asked["role"] == "user" else "Done."

    model = ScriptedModel(answer, repeat_last=True)
    rows = await amap("{{row}}", ["one", "other"] * 4, model=model, tools=tools, permissions="full")
    assert rows.failed == []
    assert most == 1
