"""A turn can be stopped at any moment, in every way. The history stays valid, results stay, and the next turn answers.

`stop_everywhere` finds the await points of a turn by itself. It stops a turn at its first suspension; then, in a new session, at
the second one; and so on, until a turn ends before the stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import time
from dataclasses import replace

import pytest

from support.clock import skip_time
from support.servers import Entry, ScriptedServer, answer, calls
from support.stopping import Counted, StopAt, awaited
from toolloop_jupyter import Done, Harness, HarnessError, Text, aagent_session, tool
from toolloop_jupyter.core.conversation import history
from toolloop_jupyter.core.events import Approval
from toolloop_jupyter.core.events.events import ToolCall, ToolResult
from toolloop_jupyter.core.events.observer import Host, Observer
from toolloop_jupyter.core.execution import runner
from toolloop_jupyter.core.loop.config import Limits, ToolLoopOptions
from toolloop_jupyter.core.models import load_litellm
from toolloop_jupyter.teaching.scripted import ScriptedModel, call, pause, reasoning


class Tools:
    """One tool of each kind. `finished` lists the calls that came to their end."""

    def __init__(self):
        self.finished = []

    def list(self):
        async def slow(x: int) -> str:
            """Wait a little, twice."""
            await asyncio.sleep(0)
            await asyncio.sleep(0.001)
            self.finished.append(f"slow {x}")
            return f"slow {x}"

        def quick(x: int) -> str:
            """Answer at once, in a thread."""
            self.finished.append(f"quick {x}")
            return f"quick {x}"

        async def stream(x: int):
            """Yield twice."""
            yield x
            await asyncio.sleep(0)
            yield x + 1
            self.finished.append(f"stream {x}")

        return [slow, quick, stream]


SCRIPT = (
    [reasoning("Hm."), "I look. ", call("slow", x=1), call("quick", x=2), call("stream", x=3)],
    ["More. ", call("slow", x=4), call("nobody")],
    ["Done."],
)


def check(messages, result, finished):
    """Check what must be true after every stop."""
    assert history.validate(messages) == []
    answers = {m["tool_call_id"]: m["content"] for m in messages if m["role"] == "tool"}
    outputs = {event.id: event.output for event in result.events if isinstance(event, ToolResult)}
    made = [event for event in result.events if isinstance(event, ToolCall)]
    assert [event.id for event in made] == list(outputs), "each call has one result, in order"
    for call_id, output in outputs.items():
        assert answers[call_id] == output, "the model's answer is the one that was shown"
    for name in finished:
        kept = any(
            text == name or (name.startswith("stream") and text.startswith("[")) for text in answers.values()
        )
        if not kept:  # the turn ended just when the stop came
            assert any("cancelled while it ran" in text for text in answers.values())
    if result.stop_reason in ("cancelled", "timeout"):
        for event in made:
            assert outputs[event.id], "no empty answer"
        unrun = [text for call_id, text in answers.items() if call_id not in outputs]
        assert all("did not run" in text for text in unrun)


async def stop_one_turn(number, how, model):
    """Run a turn, and call `how(stream)` at suspension number `number`. Return (whether the turn came to this suspension, the
    turn's stop reason).
    """
    tools = Tools()
    session = aagent_session(
        Harness.TOOL_LOOP,
        tools=tools.list(),
        permissions={"stream": "ask"},
        on_approval=lambda a: True,
        **model,
    )
    stream = session.astream("Go.")
    reached = []
    original = session._run

    def stop():
        reached.append(number)
        how(stream)

    stop_at, attempt = StopAt(number, stop), runner.attempt
    session._run = lambda turn, channel: awaited(Counted(original(turn, channel), stop_at))
    with pytest.MonkeyPatch.context() as patched:  # a model call and a tool run in separate tasks
        patched.setattr(runner, "attempt", lambda work: attempt(Counted(work, stop_at)))
        events = [event async for event in stream]
    session._run = original
    result = events[-1].result
    check(await session.history(), result, tools.finished)
    assert (
        result.stop_reason in ("cancelled", "timeout", "done") if reached else result.stop_reason == "done"
    ), result
    following = await session.arun("And now?")
    assert (following.stop_reason, following.text) == ("done", "Next.")
    assert history.validate(await session.history()) == []
    return bool(reached), result.stop_reason


async def stop_everywhere(how, model):
    """Stop a turn at each of its await points. Return the stop reason for each."""
    reasons = []
    while True:
        reached, reason = await stop_one_turn(len(reasons) + 1, how, model)
        if not reached:
            return reasons
        reasons.append(reason)


def find_next_answer(messages):
    """Return the model's next answer. It depends only on the conversation, so every session begins with the first answer."""
    if messages[-1]["content"].endswith("And now?"):
        return "Next."
    return list(SCRIPT[sum(1 for m in messages if m["role"] == "assistant")])


@pytest.mark.parametrize("reason", ["cancelled", "timeout"])
async def test_every_await_point(reason):
    """A turn is stopped at each of its await points: its history is valid, and the next turn answers."""
    model = ScriptedModel(find_next_answer, repeat_last=True)
    how = {
        "cancelled": lambda stream: stream.cancel(),
        "timeout": lambda stream: stream._channel.stop("timeout"),
    }
    reasons = await stop_everywhere(how[reason], {"model": model})
    print(f"{len(reasons)} await points")
    assert len(reasons) > 20
    assert set(reasons[:-4]) == {reason}, "only a stop after the answer comes too late"


@pytest.mark.slow
async def test_every_await_point_over_http():
    """The same is true for a provider behind a socket, where the turn waits for every piece."""

    def next_entry(request):
        if request.messages[-1]["content"].endswith("And now?"):
            return answer("Next.")
        answers = sum(1 for m in request.messages if m["role"] == "assistant")
        entries = [
            calls(
                ("slow", {"x": 1}),
                ("quick", {"x": 2}),
                ("stream", {"x": 3}),
                content="I look. ",
                reasoning="Hm.",
            ),
            Entry(
                content="More. ",
                tool_calls=[
                    {"id": "d1", "name": "slow", "arguments": '{"x": 4}'},
                    {"id": "d2", "name": "nobody", "arguments": "{}"},
                ],
            ),
            answer("Done."),
        ]
        return Entry(**entries[answers], delay=0.001)

    with ScriptedServer(next_entry) as server:
        model = {"model": "openai/stub", "api_base": server.base_url, "api_key": "sk-none"}
        reasons = await stop_everywhere(lambda stream: stream.cancel(), model)
        print(f"{len(reasons)} await points")
        assert len(reasons) > 40
        assert set(reasons[:-6]) == {"cancelled"}


@pytest.fixture
def stuck():
    """A session with one tool that never ends, and an event that is set when the tool runs."""
    running = asyncio.Event()

    async def hang() -> str:
        """Never end."""
        running.set()
        await asyncio.Event().wait()
        return "no"

    session = aagent_session(
        Harness.TOOL_LOOP,
        model=ScriptedModel(["Let me. ", call("hang"), call("hang")], "Next."),
        tools=[hang],
    )
    return session, running


async def check_that_it_goes_on(session, says="cancelled while it ran"):
    """Check that the history is valid, that the open call says what happened to it, and that the next turn answers."""
    messages = await session.history()
    assert history.validate(messages) == []
    answers = [m["content"] for m in messages if m["role"] == "tool"]
    assert says in answers[0]
    assert "did not run" in answers[1]
    assert (await session.arun("And now?")).text == "Next."
    assert history.validate(await session.history()) == []


async def test_stream_cancel(stuck):
    """`stream.cancel()` ends the stream with Done and the stop reason "cancelled"."""
    session, running = stuck
    stream = session.astream("Go.")
    reading = asyncio.ensure_future(collected(stream))
    await running.wait()
    stream.cancel()
    events = await reading
    assert isinstance(events[-1], Done)
    assert events[-1].stop_reason == "cancelled"
    assert [type(e) for e in events[-3:-1]] == [ToolCall, ToolResult]
    await check_that_it_goes_on(session)


async def collected(stream):
    return [event async for event in stream]


async def stop_once(begun, session, within=5):
    """Stop a turn as soon as its tool has begun, and return the turn's events. The turn must end within this number of
    seconds.
    """
    stream = session.astream("Go.")
    reading = asyncio.ensure_future(collected(stream))
    await begun.wait()
    stream.cancel()
    return await asyncio.wait_for(reading, within)


async def test_stream_cancel_from_another_thread(stuck):
    """If Stop comes on another thread (a subshell of the kernel), the turn ends at once."""
    session, running = stuck
    stream = session.astream("Go.")
    reading = asyncio.ensure_future(collected(stream))
    await running.wait()
    threading.Thread(target=stream.cancel).start()
    assert (await asyncio.wait_for(reading, 5))[-1].stop_reason == "cancelled"
    await check_that_it_goes_on(session)


async def test_cancel_before_the_first_event():
    """If a stream is cancelled before it is read, it makes no request and ends with Done."""
    model = ScriptedModel("Next.")
    session = aagent_session(Harness.TOOL_LOOP, model=model)
    stream = session.astream("Go.")
    stream.cancel()
    events = await collected(stream)
    assert [e.stop_reason for e in events] == ["cancelled"]
    assert model.requests == []
    assert (await session.arun("And now?")).text == "Next."


@pytest.mark.parametrize("how", ["cancel", "aclose", "reader"])
async def test_stop_while_the_host_gets_ready(how):
    """If a turn is stopped while it enters the host's `attend`, it has a Result, leaves `attend` again, and asks no model."""
    entered, left = asyncio.Event(), asyncio.Event()

    class Slow(Host):
        @contextlib.asynccontextmanager
        async def attend(self, *, may_ask):
            entered.set()
            for _ in range(3):
                await asyncio.sleep(0)
            try:
                yield
            finally:
                left.set()

    model = ScriptedModel("Next.")
    session = aagent_session(Harness.TOOL_LOOP, model=model)
    session.configure(replace(session.config, host=Slow()))
    stream = session.astream("Go.")
    reading = asyncio.ensure_future(collected(stream))
    await entered.wait()
    if how == "reader":
        reading.cancel()
        with pytest.raises(asyncio.CancelledError, match="the run was stopped"):
            await reading
    else:
        stream.cancel() if how == "cancel" else await stream.aclose()
        await reading
        assert stream.result is session.results[0]
    assert left.is_set()
    assert model.requests == []
    assert [one.stop_reason for one in session.results] == ["cancelled"]
    assert (await session.arun("And now?")).text == "Next."
    session.rewind(0)
    assert (session.messages(), session.results) == ([], [])


async def test_a_stream_that_never_waits_can_be_stopped(monkeypatch):
    """A model's stream that never waits can be stopped. (Other libraries replace `litellm.acompletion` by such a generator.)"""
    most, sent, begun = 20_000, [], asyncio.Event()

    async def chunks():
        for number in range(most):
            begun.set()
            sent.append(number)
            yield {"choices": [{"index": 0, "delta": {"content": "x"}}]}

    async def acompletion(**_):
        return chunks()

    monkeypatch.setattr(load_litellm(), "acompletion", acompletion)
    session = aagent_session(Harness.TOOL_LOOP, model="openai/x", api_key="EMPTY")
    running = asyncio.ensure_future(session.arun("Go."))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError, match="the run was stopped"):
        await running
    assert len(sent) < most
    assert session.results[0].text == "x" * len(sent)


@pytest.mark.parametrize(
    ("turn", "permissions", "kinds"),
    [
        (call("hang"), "full", ["model", "tool"]),
        (call("hang"), "ask", ["model", "approval", "tool"]),
        (["Let me ", pause(600)], "full", ["model"]),
    ],
)
async def test_what_was_cut_has_taken_its_time(turn, permissions, kinds):
    """If the end of a turn cuts off a model call, an approval or a tool, the timeline still shows it, until this end."""

    async def let_the_time_pass() -> None:
        await asyncio.sleep(0.3)
        skip_time(61)

    async def hang() -> str:
        """Never end."""
        await let_the_time_pass()
        await asyncio.Event().wait()
        return "no"

    session = aagent_session(
        Harness.TOOL_LOOP, model=ScriptedModel(turn), tools=[hang], permissions=permissions, timeout=60
    )
    async for event in session.astream("Go."):
        last = event
        if isinstance(event, Approval) or (isinstance(event, Text) and event.delta == "me "):
            await let_the_time_pass()
        if isinstance(event, Approval):
            await event.wait()  # until the end of the turn decides it
    assert [(span.kind, span.is_error) for span in last.result.spans] == [
        (kind, kind != "model" or len(kinds) == 1) for kind in kinds
    ]
    assert max(span.end for span in last.result.spans) > 0.25


async def test_timeout(stuck):
    """`timeout=` ends the turn with the stop reason "timeout"."""
    session, _ = stuck
    from support.asking import replace_config

    replace_config(session, limits=Limits(timeout=0.2))
    result = await session.arun("Go.")
    assert result.stop_reason == "timeout"
    replace_config(session, limits=Limits())
    await check_that_it_goes_on(session)


async def test_the_consumers_own_cancellation(stuck):
    """The task that reads the stream is cancelled: the next turn may start at once."""
    session, running = stuck
    reading = asyncio.ensure_future(session.arun("Go."))
    await running.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert (await session.arun("And now?")).text == "Next."
    assert history.validate(await session.history()) == []
    assert session.results[0].stop_reason == "cancelled"


async def test_wait_for_around_a_turn(stuck):
    """If `asyncio.wait_for(session.arun(...))` times out, the session can go on at once."""
    session, _ = stuck
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(session.arun("Go."), 0.2)
    assert (await session.arun("And now?")).text == "Next."


async def test_aclose(stuck):
    """`aclose()` waits for the end of the turn, and keeps the result."""
    session, running = stuck
    stream = session.astream("Go.")
    async for event in stream:
        if isinstance(event, ToolCall):
            break
    await running.wait()
    await stream.aclose()
    assert stream.result.stop_reason == "cancelled"
    await check_that_it_goes_on(session)


async def test_a_dropped_stream(stuck):
    """If no variable refers to a stream any more, its turn is stopped. The next turn waits for this."""
    session, running = stuck
    stream = session.astream("Go.")
    async for event in stream:
        if isinstance(event, ToolCall):
            break
    await running.wait()
    del stream, event
    gc.collect()
    await asyncio.sleep(0)
    assert (await session.arun("And now?")).text == "Next."
    assert history.validate(await session.history()) == []


async def test_a_second_turn_while_one_runs(stuck):
    """A second turn at the same time is refused with a clear error. The first turn is not disturbed."""
    session, running = stuck
    stream = session.astream("Go.")
    reading = asyncio.ensure_future(collected(stream))
    await running.wait()
    with pytest.raises(HarnessError, match="already running"):
        await session.arun("me too")
    stream.cancel()
    await reading
    await check_that_it_goes_on(session)


async def test_the_loop_shutting_down():
    """If other code cancels a turn, the history is valid, and the session is not busy."""
    running = asyncio.Event()

    async def hang() -> str:
        """Never end."""
        running.set()
        await asyncio.Event().wait()
        return "no"

    session = aagent_session(Harness.TOOL_LOOP, model=ScriptedModel(call("hang"), "Next."), tools=[hang])
    stream = session.astream("Go.")
    reading = asyncio.ensure_future(collected(stream))
    await running.wait()
    for task in asyncio.all_tasks():
        if task is not asyncio.current_task():
            task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await reading
    assert history.validate(await session.history()) == []
    assert (await session.arun("And now?")).text == "Next."


async def test_a_tool_that_swallows_the_stop():
    """If a tool ignores its cancellation and returns, its result is kept. The turn still ends there."""
    running = asyncio.Event()

    async def stubborn() -> str:
        """Return as usual, even if asked to stop."""
        running.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "finished anyway"
        return "no"

    model = ScriptedModel([call("stubborn"), call("stubborn")], "Next.")
    session = aagent_session(Harness.TOOL_LOOP, model=model, tools=[stubborn])
    events = await stop_once(running, session)
    assert events[-1].stop_reason == "cancelled"
    assert [e.output for e in events if isinstance(e, ToolResult)] == ["finished anyway"]
    await check_that_it_goes_on(session, "finished anyway")


async def test_on_a_busy_machine_a_thread_is_not_waited_for_longer(monkeypatch):
    """A busy machine makes each turn of the loop slow: still, the wait for a stopped thread takes only the given real time."""
    let_go, sleep, sleeps = threading.Event(), asyncio.sleep, []
    monkeypatch.setattr(runner, "STOP_GRACE", 0.1)

    async def sleep_longer(seconds: float) -> None:
        sleeps.append(seconds)
        await sleep(0.06)

    work = asyncio.ensure_future(runner.attempt_in_thread(let_go.wait))
    await sleep(0.05)
    monkeypatch.setattr(asyncio, "sleep", sleep_longer)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    let_go.set()
    assert len(sleeps) <= 2


@pytest.mark.parametrize("kind", ["async", "generator", "awaited"])
async def test_an_async_tool_that_never_heeds_the_stop_is_left_behind(kind, monkeypatch):
    """An async tool that catches each cancellation does not hold the turn. The turn ends soon, and says that the tool still
    runs.
    """
    monkeypatch.setattr(runner, "STOP_WAIT", 0.2)
    begun, let_go, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def wait() -> str:
        """Wait, whatever happens."""
        begun.set()
        while not let_go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await let_go.wait()
        ended.set()
        return "late"

    async def generate():
        """Wait, whatever happens."""
        yield await wait()

    def start() -> object:
        """Wait, whatever happens."""
        return wait()

    stubborn = tool(name="stubborn")({"async": wait, "generator": generate, "awaited": start}[kind])
    model = ScriptedModel([call("stubborn"), call("stubborn")], "Next.")
    session = aagent_session(Harness.TOOL_LOOP, model=model, tools=[stubborn])
    events = await stop_once(begun, session, within=60)
    assert not ended.is_set()
    assert events[-1].stop_reason == "cancelled"
    assert "'stubborn' could not be stopped and runs on in the background" in events[-1].result.error
    await check_that_it_goes_on(session)
    let_go.set()
    await asyncio.wait_for(ended.wait(), 60)


async def test_a_tool_whose_own_task_was_cancelled():
    """If a tool itself raises CancelledError, this is the tool's error. It does not end the turn."""

    async def clumsy() -> str:
        """Await a task that was cancelled."""
        task = asyncio.ensure_future(asyncio.sleep(1))
        task.cancel()
        return await task

    def clumsy_too() -> str:
        """Raise CancelledError in a thread."""
        raise asyncio.CancelledError

    session = aagent_session(
        Harness.TOOL_LOOP,
        model=ScriptedModel([call("clumsy"), call("clumsy_too")], "Next."),
        tools=[clumsy, clumsy_too],
    )
    result = await session.arun("Go.")
    assert result.stop_reason == "done"
    assert [r.is_error for r in result.tool_results] == [True, True]
    assert all("ancelled" in r.output for r in result.tool_results)


async def test_a_python_loop_in_a_thread_is_stopped(monkeypatch):
    """Stop ends a sync tool that runs Python code in its thread. The person is told."""
    monkeypatch.setattr(runner, "STOP_GRACE", 60)  # a busy machine may need longer than usual
    begun, ended = threading.Event(), threading.Event()

    def busy() -> str:
        """Count for ever."""
        begun.set()
        try:
            while True:
                time.sleep(0.001)
        finally:
            ended.set()

    session = aagent_session(
        Harness.TOOL_LOOP, model=ScriptedModel([call("busy"), call("busy")], "Next."), tools=[busy]
    )
    stream = session.astream("Go.")
    reading = asyncio.ensure_future(collected(stream))
    await asyncio.to_thread(begun.wait, 60)
    stream.cancel()
    events = await asyncio.wait_for(reading, 60)
    assert events[-1].result.error == "the tool 'busy' was stopped"
    assert ended.wait(60)
    await check_that_it_goes_on(session)


async def test_a_sleeping_thread_is_left_behind():
    """A sync tool that waits in C code cannot be stopped. The turn ends soon, and says that the tool still runs."""
    running, ended = threading.Event(), threading.Event()

    def asleep() -> str:
        """Sleep in one long call."""
        running.set()
        ended.wait(60)
        return "late"

    session = aagent_session(
        Harness.TOOL_LOOP, model=ScriptedModel([call("asleep"), call("asleep")], "Next."), tools=[asleep]
    )
    stream = session.astream("Go.")
    reading = asyncio.ensure_future(collected(stream))
    await asyncio.to_thread(running.wait, 5)
    stream.cancel()
    events = await asyncio.wait_for(reading, 60)  # the function still waits
    ended.set()
    assert "runs on in the background" in events[-1].result.error
    await check_that_it_goes_on(session)


async def test_stopping_threads_at_random_moments_is_quiet(monkeypatch):
    """A stop may come just when a sync tool ends: no thread ends with a traceback."""
    deaths = []
    monkeypatch.setattr(threading, "excepthook", deaths.append)
    from toolloop_jupyter.core.execution.runner import run_in_thread

    def work():
        return sum(range(2000))

    for n in range(150):
        task = asyncio.ensure_future(run_in_thread(work))
        await asyncio.sleep(n * 0.00001)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    for _ in range(100):
        if "toolloop-tool" not in [thread.name for thread in threading.enumerate()]:
            break
        await asyncio.sleep(0.02)
    assert deaths == []


async def test_stop_while_an_approval_waits():
    """If the turn is stopped while a call waits for a decision, the call's result says that it was cancelled. A late click
    does nothing.
    """
    asked = []
    session = aagent_session(
        Harness.TOOL_LOOP,
        model=ScriptedModel([call("f"), call("f")], "Next."),
        tools=[f_of([])],
        permissions="ask",
    )
    stream = session.astream("Go.")

    async def read():
        events = []
        async for event in stream:
            events.append(event)
            if type(event).__name__ == "Approval":
                asked.append(event)
                asyncio.get_running_loop().call_later(0.05, stream.cancel)
                await asyncio.sleep(0.2)
        return events

    events = await read()
    assert events[-1].stop_reason == "cancelled"
    cut = events[-1].result.tool_results[0]
    assert (cut.status, cut.decision.by, cut.decision.allowed) == ("cancelled", "stop", False)
    asked[0].allow()
    messages = await session.history()
    assert "cancelled before it ran" in messages[2]["content"]
    assert history.validate(messages) == []


def f_of(log):
    def f() -> str:
        """Note a run."""
        log.append("f")
        return "f"

    return f


async def test_an_approval_handler_that_is_cancelled_denies():
    """If `on_approval` itself raises CancelledError, the call is denied. Nothing waits for ever."""

    async def handler(approval):
        raise asyncio.CancelledError

    log = []
    session = aagent_session(
        Harness.TOOL_LOOP,
        model=ScriptedModel(call("f"), "Next."),
        tools=[f_of(log)],
        permissions="ask",
        on_approval=handler,
    )
    result = await asyncio.wait_for(session.arun("Go."), 5)
    assert result.text == "Next."
    assert log == []


async def test_an_observer_that_ends_the_run():
    """An observer may end the run by CancelledError in any of its async methods. The history stays valid."""

    class Ends(Observer):
        def __init__(self, where):
            self.where = where

        async def stop(self):
            stream.cancel()
            await asyncio.sleep(0)

        async def before_model(self, request):
            if self.where == "before_model":
                await self.stop()

        async def after_model(self, reply):
            if self.where == "after_model":
                await self.stop()

        async def before_tool(self, call, arguments):
            if self.where == "before_tool":
                await self.stop()

    for where in ("before_model", "after_model", "before_tool"):
        log = []
        session = aagent_session(
            Harness.TOOL_LOOP,
            model=ScriptedModel(call("f"), "Next.", repeat_last=True),
            tools=[f_of(log)],
            observer=Ends(where),
        )
        stream = session.astream("Go.")
        events = await collected(stream)
        assert events[-1].stop_reason == "cancelled", where
        assert log == []
        assert history.validate(await session.history()) == []


async def test_keyboard_interrupt_in_a_tool_ends_the_turn_not_the_kernel():
    """If a tool raises KeyboardInterrupt, the turn ends as cancelled, and the call's result says so."""

    def leave() -> str:
        """Leave."""
        raise KeyboardInterrupt

    session = aagent_session(
        Harness.TOOL_LOOP, model=ScriptedModel([call("leave"), call("leave")], "Next."), tools=[leave]
    )
    result = await session.arun("Go.")
    assert result.stop_reason == "cancelled"
    await check_that_it_goes_on(session, "ended the run")


async def test_a_tools_own_timeout_goes_on():
    """If a tool's `timeout` is over, this is an error of the call. A TimeoutError of the tool itself keeps its text. In both
    cases the turn goes on.
    """
    from toolloop_jupyter import tool

    @tool(timeout=0.05)
    async def slow() -> str:
        """Take long."""
        await asyncio.sleep(5)
        return "no"

    @tool(timeout=5)
    async def own() -> str:
        """Raise a TimeoutError."""
        raise TimeoutError("the database did not answer")

    session = aagent_session(
        Harness.TOOL_LOOP,
        model=ScriptedModel([call("slow"), call("own")], "Next."),
        tools=[slow, own],
        options=ToolLoopOptions(),
    )
    result = await session.arun("Go.")
    assert [r.output for r in result.tool_results] == [
        "TimeoutError: the tool took longer than its timeout of 0.05 s",
        "TimeoutError: the database did not answer",
    ]
    assert result.text == "Next."
