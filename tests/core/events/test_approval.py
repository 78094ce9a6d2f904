"""Guarantee: each request gets one decision. Late or second decisions do nothing. The record says who decided."""

from __future__ import annotations

import asyncio
import json
import threading
import time

import pytest

from support.clock import skip_time
from toolloop_jupyter import Harness, aagent, aagent_session
from toolloop_jupyter.core.events import Approval
from toolloop_jupyter.core.events.events import ToolResult
from toolloop_jupyter.core.loop.permissions import wait_for_decision
from toolloop_jupyter.notebook.transcript import steps as steps_module
from toolloop_jupyter.teaching.scripted import ScriptedModel, call


def desk(*turns, ran=None, **options):
    """(a session with the tool `f(x)`, the list of what ran)."""
    ran = [] if ran is None else ran

    def f(x: int = 1) -> str:
        """Note it."""
        ran.append(x)
        return f"f {x}"

    keywords = {"permissions": "ask", "tools": [f], **options}
    return aagent_session(Harness.TOOL_LOOP, model=ScriptedModel(*turns, "Done."), **keywords), ran


async def read(session, decide):
    """Run a turn to its end. `decide(approval)` is called for each open request. Return the Result."""
    async for event in session.astream("Go."):
        if isinstance(event, Approval) and not event.answered:
            decide(event)
            await event.wait()
    return event.result


@pytest.mark.parametrize("first", ["allow", "deny"])
async def test_the_first_decision_counts(first):
    """A second decision changes neither the run nor the record."""
    session, ran = desk(call("f", x=1))
    second = {"allow": "deny", "deny": "allow"}[first]

    def decide(approval):
        for what in (first, second, first):
            getattr(approval, what)()

    result = await read(session, decide)
    assert ran == ([1] if first == "allow" else [])
    assert result.approvals[0].decision.allowed is (first == "allow")


async def test_a_hundred_threads_make_one_decision():
    """Clicks on many threads at the same moment make one decision, and the tool runs once."""
    session, ran = desk(call("f", x=1))

    def decide(approval):
        barrier = threading.Barrier(50)

        def click(number):
            barrier.wait(5)
            approval.allow({"x": number})

        threads = [threading.Thread(target=click, args=(number,)) for number in range(2, 52)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    result = await read(session, decide)
    assert len(ran) == 1
    assert ran == [result.approvals[0].decision.arguments["x"]]


@pytest.mark.parametrize("what", ["allow", "deny"])
async def test_from_another_thread(what):
    """`allow()` and `deny()` work from any thread, and wake the loop at once."""
    session, ran = desk(call("f", x=1))
    result = await asyncio.wait_for(
        read(session, lambda approval: threading.Timer(0.05, getattr(approval, what)).start()), 5
    )
    assert ran == ([1] if what == "allow" else [])
    assert result.stop_reason == "done"


async def test_after_the_turn_was_stopped():
    """A click after Stop decides nothing: the tool does not run, in this turn or the next."""
    session, ran = desk(call("f", x=1))
    stream, asked = session.astream("Go."), []
    async for event in stream:
        if isinstance(event, Approval):
            asked.append(event)
            asyncio.get_running_loop().call_later(0.05, stream.cancel)
            await event.wait()
    asked[0].allow(by="click")
    assert (asked[0].decision.allowed, asked[0].decision.by) == (False, "stop")
    assert ran == []
    assert "cancelled before it ran" in session.messages()[2]["content"]


async def test_a_timeout_approves_nothing():
    """If the time limit of a turn is reached while a request is open, the turn ends, and the call does not run."""
    session, ran = desk(call("f", x=1), timeout=60)
    result = await read(session, lambda approval: skip_time(61))
    assert (result.stop_reason, ran) == ("timeout", [])
    assert result.approvals[0].decision.by == "stop"


async def test_waiting_long_decides_nothing():
    """Without a time limit, a request stays open. It is neither approved nor denied by itself."""
    session, ran = desk(call("f", x=1))
    reading = asyncio.ensure_future(read(session, lambda approval: None))
    await asyncio.sleep(0.5)
    assert not reading.done()
    assert ran == []
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)


def test_a_decision_after_its_loop_is_closed():
    """A click after the end of its event loop raises no error."""
    kept = []

    async def make():
        kept.append(Approval("f", {}))

    asyncio.run(make())
    kept[0].allow()
    assert kept[0].answered


async def test_two_runs_at_once_have_their_own_requests():
    """If two turns run at the same time, a decision about one request does not decide the other one."""
    (one, ran_one), (two, ran_two) = desk(call("f", x=1)), desk(call("f", x=2))
    results = await asyncio.gather(
        read(one, lambda approval: approval.allow()), read(two, lambda approval: approval.deny("no"))
    )
    assert (ran_one, ran_two) == ([1], [])
    assert [r.approvals[0].decision.allowed for r in results] == [True, False]


# --- callbacks ------------------------------------------------------------------------------------------------


def _raises(approval):
    raise RuntimeError("broken")


async def _later(approval):
    await asyncio.sleep(0)
    return True


class _Object:
    async def __call__(self, approval):
        return True


CALLBACKS = {
    "true": (lambda a: True, True),
    "false": (lambda a: False, False),
    "none": (lambda a: None, False),
    "async": (_later, True),
    "awaitable": (lambda a: _later(a), True),
    "object": (_Object(), True),
    "raises": (_raises, False),
    "decides": (lambda a: a.allow({"x": 5}), True),
    "denies": (lambda a: a.deny("not today") or True, False),
    # values that are true in Python, but mean no
    "typed n": (lambda a: "n", False),
    "one": (lambda a: 1, False),
    "list": (lambda a: [False], False),
}


@pytest.mark.parametrize(("handler", "allowed"), CALLBACKS.values(), ids=CALLBACKS)
async def test_on_approval(handler, allowed):
    """`on_approval` allows a call only if it returns True or decides itself. An exception denies the call."""
    session, ran = desk(call("f", x=1), on_approval=handler)
    result = await session.arun("Go.")
    assert bool(ran) is allowed
    assert result.approvals[0].decision.allowed is allowed
    assert result.approvals[0].decision.by in ("callback", "stream")


async def test_a_decision_in_a_thread_wakes_all_that_wait():
    """A sync `on_approval` decides, and its thread is stopped at once. All code that waits for the decision still gets it."""
    approval, begun, go = Approval("f", {}), threading.Event(), threading.Event()

    def decide(asked):
        begun.set()
        go.wait(5)
        asked.allow()

    def dawdle(_):
        until = time.monotonic() + 0.3
        while time.monotonic() < until:
            pass

    turn = asyncio.ensure_future(wait_for_decision(approval, decide))
    while not begun.is_set():  # noqa: ASYNC110 - another thread sets it
        await asyncio.sleep(0.001)
    approval._decided.add_done_callback(dawdle)
    page = asyncio.ensure_future(approval.wait())
    await asyncio.sleep(0)
    go.set()
    assert await asyncio.wait_for(page, 5) == (True, "")
    assert (await turn).allowed


@pytest.mark.parametrize("steps", [1, 5], ids=["before it has begun", "while it runs"])
async def test_a_handler_that_is_cancelled(steps):
    """If other code cancels the task of `on_approval`, the request is denied, and the turn does not wait forever."""
    approval, before = Approval("f", {}), asyncio.all_tasks()
    waiting = asyncio.ensure_future(wait_for_decision(approval, lambda _: asyncio.sleep(60)))
    for _ in range(steps):
        await asyncio.sleep(0)
    for task in asyncio.all_tasks() - before - {waiting}:
        task.cancel()
    decision = await asyncio.wait_for(waiting, 5)
    assert (decision.allowed, decision.by) == (False, "callback")


async def test_nobody_there():
    """Without `on_approval` and without a reader, a request is denied at once, and the reason says so."""
    session, ran = desk(call("f", x=1), permissions={"*": "ask"})
    result = await session.arun("Go.")
    assert ran == []
    assert result.approvals[0].decision.by == "unattended"


async def test_ask_without_anybody_is_refused_before_the_start():
    """With `permissions="ask"`, a call that nobody can answer raises an error at once, as in LiteLLM."""
    with pytest.raises(ValueError, match="on_approval"):
        aagent(Harness.TOOL_LOOP, "Go.", model=ScriptedModel("x"), permissions="ask")


# --- the record -----------------------------------------------------------------------------------------------


async def test_decisions_are_in_events_and_export():
    """Result.events and the exported JSON say who decided, when, for how many calls and with which edits."""
    session, _ = desk([call("f", x=1), call("f", x=2), call("f", x=3)])
    ways = [
        lambda a: a.allow({"x": 7}, by="click"),
        lambda a: a.deny("wrong table", by="prompt"),
        lambda a: a.allow(by="click", scope="run"),
    ]
    result = await read(session, lambda approval: ways[approval.number - 1](approval))
    exported = json.loads(steps_module.write_run_as_json(result))["events"]
    decisions = [event["decision"] for event in exported if event["event"] == "Approval"]
    assert [(d["allowed"], d["by"], d["reason"], d["arguments"], d["scope"]) for d in decisions] == [
        (True, "click", "", {"x": 7}, "call"),
        (False, "prompt", "wrong table", None, "call"),
        (True, "click", "", None, "run"),
    ]
    assert all(d["at"] > 1_000_000_000 for d in decisions)
    results = [event for event in exported if event["event"] == "ToolResult"]
    assert [r["decision"]["by"] for r in results] == ["click", "prompt", "click"]


async def test_every_result_says_by_whose_decision_it_ran():
    """If an earlier approval or a policy allowed a call, its result has this decision."""

    def f(x: int = 1) -> str:
        """Do."""
        return f"f {x}"

    session, _ = desk(call("f", x=1), call("f", x=2), tools=[f])
    result = await read(session, lambda approval: approval.allow(by="click", scope="run"))
    first, second = result.tool_results
    assert len(result.approvals) == 1
    assert (second.decision.by, second.decision.scope, second.decision.at) == (
        "click",
        "run",
        first.decision.at,
    )
    session, _ = desk(call("f", x=1), permissions={"f": "full"})
    result = await session.arun("Go.")
    assert (result.tool_results[0].decision.by, result.tool_results[0].decision.allowed) == ("policy", True)
    session, _ = desk(call("f", x=1), permissions={"f": "deny"})
    result = await session.arun("Go.")
    assert (result.tool_results[0].decision.by, result.tool_results[0].decision.allowed) == ("policy", False)
    session, _ = desk(call("f", x=1), permissions="full")
    assert (await session.arun("Go.")).tool_results[0].decision is None


async def test_the_reason_of_a_denial_reaches_the_model():
    """The model reads the reason, and that the call was denied and did not fail."""
    session, _ = desk(call("f", x=1))
    result = await read(session, lambda approval: approval.deny("wrong table", by="click"))
    output = next(event for event in result.events if isinstance(event, ToolResult)).output
    assert "denied by the user: wrong table" in output
    assert "not a failure" in output


async def test_the_same_denied_call_is_not_asked_for_ever():
    """After three denials, the same call is refused without a question. Another call still leads to a question."""
    session, ran = desk(*[call("f", x=1)] * 5, call("f", x=2))
    asked = []

    def decide(approval):
        asked.append(approval.input["x"])
        approval.deny()

    await read(session, decide)
    assert (asked, ran) == ([1, 1, 1, 2], [])


class _Speechless:
    """A reason whose text cannot be read."""

    def __repr__(self):
        raise SystemExit("no text")

    __str__ = __repr__


class _BrokenText(str):
    __slots__ = ()

    def rstrip(self, *_):
        raise SystemExit("no end")


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (5, "5"),
        (KeyError("table"), "KeyError('table')"),
        (["no", "never"], "['no', 'never']"),
        (_Speechless(), "<_Speechless>"),
        (_BrokenText("wrong table"), "wrong table"),
        (None, ""),
    ],
)
@pytest.mark.parametrize("door", ["stream", "callback"])
async def test_a_reason_that_is_no_text_is_told_as_text(reason, told, door):
    """The reason for a denial may be any object. The model gets it as text, and the turn goes on."""
    if door == "stream":
        session, ran = desk(call("f", x=1))
        result = await read(session, lambda approval: approval.deny(reason))
    else:
        session, ran = desk(call("f", x=1), on_approval=lambda approval: approval.deny(reason))
        result = await session.arun("Go.")
    assert ran == []
    assert (result.stop_reason, result.text) == ("done", "Done.")
    (answer,) = result.tool_results
    assert type(answer.decision.reason) is str
    assert answer.decision.reason == told
    assert told in answer.output


@pytest.mark.parametrize("by", ["somebody", 5, None, ["click"], _BrokenText("click")])
def test_who_decides_is_one_of_the_known(by):
    """`by` is recorded as given, so an unknown word raises an error and decides nothing."""
    approval = Approval("f", {"x": 1})
    for decide in (approval.allow, approval.deny):
        with pytest.raises(ValueError, match="by must be 'click', 'code'"):
            decide(by=by)
    assert approval.decision is None


async def test_a_stop_by_the_reader_is_recorded_as_one():
    """If the reader of a stream stops the turn instead of answering, the record says "stop"."""
    session, ran = desk(call("f", x=1))
    stream = session.astream("Go.")
    async for event in stream:
        if isinstance(event, Approval):
            stream.cancel()
    (result,) = stream.result.tool_results
    assert ran == []
    assert (stream.result.stop_reason, result.status) == ("cancelled", "cancelled")
    assert (result.decision.by, result.decision.allowed) == ("stop", False)
