"""Sync streams if no event loop runs: any thread can read them, while the turn goes on in the background."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import toolloop_jupyter as tl
from support.pace import Pace
from support.servers import answer, calls
from support.signals import interrupt_this_process, wait_until_main_waits
from toolloop_jupyter import Harness, agent, agent_session
from toolloop_jupyter.notebook import kernel
from toolloop_jupyter.notebook.kernel import sync
from toolloop_jupyter.notebook.magic import extension
from toolloop_jupyter.teaching import ScriptedModel

LOOP = Harness.TOOL_LOOP
TOOL_TURN = [calls(("double", {"x": 4})), answer("It is 8.")]
EVENTS = ["ToolCall", "ToolResult", "Text", "Text", "Text", "Done"]


def double(x: int) -> int:
    """Double a number."""
    return 2 * x


@pytest.fixture
def call(serve):
    """The keywords that send a run to a scripted server."""

    def make(*script):
        base = serve(list(script)).base_url
        return {"model": "openai/stub", "api_base": base, "api_key": "sk-test"}

    return make


def in_a_thread(function):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result(30)


def names(events):
    return [type(event).__name__ for event in events]


def test_in_one_thread(call):
    """A stream can be made and read in a thread, also a stream of a session."""

    def in_session():
        with agent_session(LOOP, tools=[double], **call(*TOOL_TURN)) as session:
            return names(session.stream("Go")), [m["role"] for m in session.history()]

    more = call(*TOOL_TURN)
    assert in_a_thread(lambda: names(agent(LOOP, "Go", stream=True, tools=[double], **more))) == EVENTS
    assert in_a_thread(in_session) == (EVENTS, ["user", "assistant", "tool", "assistant"])


@pytest.mark.parametrize("begun_here", [True, False])
def test_each_step_in_another_thread(call, begun_here):
    """Each event may be read by another thread, as in the thread pool of a web server, even if this thread has read the first
    one.
    """
    stream = agent(LOOP, "Go", stream=True, tools=[double], **call(*TOOL_TURN))
    events = [next(stream)] if begun_here else []
    while event := in_a_thread(lambda: next(stream, None)):
        events.append(event)
    assert names(events) == EVENTS
    assert stream.result.text == "It is 8."


async def test_begun_on_a_running_loop(call):
    """If a stream began where a loop runs (a notebook's cell), it stays on that loop, even if another thread reads further
    events.
    """
    stream = agent(LOOP, "Go", stream=True, tools=[double], **call(*TOOL_TURN))
    found = [next(stream), *await asyncio.to_thread(list, stream)]
    assert names(found) == EVENTS


def test_begun_in_a_thread_read_on_a_running_loop(call):
    """If a stream began in the background, sync code on a running loop can read it further. Meanwhile this loop is not
    blocked.
    """
    stream = agent(LOOP, "Go", stream=True, tools=[double], **call(*TOOL_TURN))
    first = next(stream)

    async def rest():
        ticks = []
        asyncio.get_running_loop().call_soon(ticks.append, 1)
        return names(stream), ticks

    assert asyncio.run(rest()) == (EVENTS[1:], [1])
    assert type(first).__name__ == EVENTS[0]


def test_a_loop_that_has_ended(call):
    """If the loop of a stream has ended, the next step raises an error of one line. It does not wait for ever."""

    async def first():
        stream = agent(LOOP, "Go", stream=True, tools=[double], **call(*TOOL_TURN))
        return stream, next(stream)

    stream, _ = asyncio.run(first())
    with pytest.raises(RuntimeError, match="make a new stream"):
        next(stream)


@pytest.mark.parametrize("streamed", [True, False])
def test_a_tool_that_runs_an_agent(call, streamed):
    """A sync tool may run another agent and read its stream."""
    inner = call(answer("inner answer"))

    def ask(question: str) -> str:
        """Ask a helper."""
        if not streamed:
            return agent(LOOP, question, **inner).text
        return "".join(e.delta for e in agent(LOOP, question, stream=True, **inner) if isinstance(e, tl.Text))

    result = agent(LOOP, "Go", tools=[ask], **call(calls(("ask", {"question": "x"})), answer("ok")))
    assert [r.output for r in result.tool_results] == ["inner answer"]


def test_the_turn_goes_on_while_the_reader_works(call):
    """While the reader works on an earlier event, a tool runs."""
    ended = threading.Event()

    async def slow() -> str:
        """Take a moment."""
        await asyncio.sleep(0.05)
        ended.set()
        return "ok"

    stream = agent(LOOP, "Go", stream=True, tools=[slow], **call(calls(("slow", {})), answer("ok")))
    assert isinstance(next(stream), tl.ToolCall)
    assert ended.wait(5)
    assert names(stream)[-1] == "Done"


def test_approvals(call):
    """A reader answers an Approval in its own thread. An Approval without an answer is denied at the next step."""
    for answers, ran in ((True, ["8"]), (False, [])):
        stream = agent(LOOP, "Go", stream=True, tools=[double], permissions="ask", **call(*TOOL_TURN))
        for event in stream:
            if isinstance(event, tl.Approval) and answers:
                event.allow()
        assert [r.output for r in stream.result.tool_results if not r.is_error] == ran


def test_two_turns_of_a_session(call):
    """Turns of one session, streamed or not, follow each other, even if the first one was told to stop. The history is
    complete.
    """
    more = call(*TOOL_TURN, answer("a b c", hold_after=2), answer("plain"))
    with agent_session(LOOP, tools=[double], **more) as session:
        assert names(session.stream("1")) == EVENTS
        stream = session.stream("2")
        assert isinstance(next(stream), tl.Text)
        assert session.history()[-1] == {"role": "user", "content": "2"}
        stream.cancel()
        assert session.run("3").text == "plain"
    assert [r.stop_reason for r in session.results] == ["done", "cancelled", "done"]


def test_an_interrupt(call):
    """Ctrl-C while the main thread waits for an event cancels the turn. Its tool can clean up, and the history stays valid."""
    log, old_handler = [], signal.signal(signal.SIGINT, signal.default_int_handler)
    begun, is_read, pressed = threading.Event(), threading.Event(), []

    async def slow() -> str:
        """Take long."""
        begun.set()
        try:
            await asyncio.sleep(200)
        finally:
            log.append("cleaned up")
        return "ok"

    with agent_session(LOOP, tools=[slow], **call(calls(("slow", {})), answer("again"))) as session:
        stream = session.stream("Go")
        next(stream)

        def press():
            begun.wait()
            is_read.wait()
            wait_until_main_waits()
            pressed.append(time.monotonic())
            interrupt_this_process()

        threading.Thread(target=press, daemon=True).start()
        with Pace() as pace:
            is_read.set()
            with pytest.raises(KeyboardInterrupt, match="the run was stopped"):
                next(stream)
            took = time.monotonic() - pressed[0]
        signal.signal(signal.SIGINT, old_handler)
        assert took < 3 * pace.slowdown
        assert log == ["cleaned up"]
        assert [m["role"] for m in session.history()] == ["user", "assistant", "tool"]
        assert session.run("Go on").text == "again"


def test_what_breaks_into_the_wait_stops_the_step():
    """If an exception stops the waiting thread (the thread of a tool whose run is cancelled), the step is cancelled, too."""
    log, begun = [], threading.Event()

    class Stop(BaseException):
        pass

    async def step():
        begun.set()
        try:
            await asyncio.sleep(20)
        finally:
            log.append("cleaned up")

    def read():
        try:
            kernel.StreamRunner()(step)
        except Stop:
            log.append("stopped")

    import ctypes

    thread = threading.Thread(target=read)
    thread.start()
    assert begun.wait(5)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Stop))
    thread.join(5)
    for _ in range(100):
        if len(log) == 2:
            break
        time.sleep(0.01)
    assert sorted(log) == ["cleaned up", "stopped"]


FORKS = """
import os, sys
from toolloop_jupyter import Harness, agent
from toolloop_jupyter.teaching.scripted import ScriptedModel

def ask(): return agent(Harness.TOOL_LOOP, "Go.", model=ScriptedModel("Answer.")).text

assert ask() == "Answer."
child = os.fork()
if child == 0:
    os._exit(0 if ask() == "Answer." else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_has_a_loop_of_its_own():
    """`agent()` works in a process that was forked from a process which had called it, as multiprocessing does on Linux."""
    ran = subprocess.run(
        [sys.executable, "-c", FORKS], timeout=60, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


SYNC_CALLS = {
    "agent": (lambda: agent(LOOP, "Go", model=ScriptedModel("x")), "await aagent("),
    "stream": (lambda: next(agent(LOOP, "Go", model=ScriptedModel("x"), stream=True)), "async for event in"),
    "session": (lambda: agent_session(LOOP, model=ScriptedModel("x")).start(), "async with aagent_session("),
    "show": (lambda: tl.show(agent(LOOP, "Go", model=ScriptedModel("x"), stream=True)), "await show(aagent("),
    "cell magic": (lambda: extension._run_cell_magic("", "Go"), "a separate cell"),
}


@pytest.mark.parametrize("name", SYNC_CALLS)
async def test_each_sync_call_gives_its_own_advice(name, monkeypatch):
    """Inside a loop that is not asyncio's own (uvloop), each sync call says in one line what to write instead."""
    make, advice = SYNC_CALLS[name]
    monkeypatch.setattr(sync, "can_run_sync", lambda: False)
    with pytest.raises(tl.HarnessError) as raised:
        make()
    assert advice in str(raised.value)
