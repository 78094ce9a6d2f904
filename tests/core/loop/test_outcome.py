"""The outcome of a tool's run: the line for the model, and the traceback for the person."""

from __future__ import annotations

import asyncio
import builtins
import gc
import json
import sqlite3
import threading
import traceback
import weakref

import pytest

from toolloop_jupyter import Harness, aagent
from toolloop_jupyter.core.execution import explain_error, runner
from toolloop_jupyter.core.results import cut_traceback
from toolloop_jupyter.core.tools.tool import tool
from toolloop_jupyter.teaching.scripted import ScriptedModel, call


async def result_of(function, **arguments):
    """Return the result of one call of the function."""
    model = ScriptedModel(call(function.__name__, **arguments), "Answer.")
    result = await aagent(Harness.TOOL_LOOP, "Go.", model=model, tools=[function])
    assert (result.stop_reason, result.text, result.error) == ("done", "Answer.", None)
    return result.tool_results[0]


def caught(function):
    try:
        function()
    except Exception as error:  # any exception of the case
        return error
    raise AssertionError("raised nothing")


def test_the_persons_own_frames_and_no_others():
    """If the person's code called a library, the traceback has no frames of the library. It never has frames of this package."""

    def mine():
        return json.loads("{")

    shown = cut_traceback(caught(mine))
    assert "in mine" in shown
    assert 'json.loads("{")' in shown
    assert "decoder.py" not in shown
    assert shown.rstrip().endswith("(char 1)")


def test_causes_and_contexts_are_cut_too():
    """In a chain of exceptions, the traceback of each is shortened. Their order is the same as in Python's traceback."""

    def mine():
        try:
            json.loads("{")
        except ValueError as error:
            raise KeyError("a") from error

    shown = cut_traceback(caught(mine))
    assert "direct cause" in shown
    assert shown.count("in mine") == 2
    assert "decoder.py" not in shown


def test_groups_are_cut_too():
    """The exceptions of a group are in the text, with shortened tracebacks."""
    group = getattr(builtins, "ExceptionGroup", None)
    if group is None:
        pytest.skip("no groups before Python 3.11")

    def mine():
        raise group("several", [caught(lambda: json.loads("{"))])

    shown = cut_traceback(caught(mine))
    assert "JSONDecodeError" in shown
    assert "decoder.py" not in shown


def test_a_librarys_function_as_a_tool_keeps_its_last_frames():
    """If no frame is in the person's code, the last frames stay, without a folder of this machine."""
    error = caught(lambda: json.loads("{"))
    error.__traceback__ = error.__traceback__.tb_next.tb_next  # the tool's thread calls json.loads directly
    shown = cut_traceback(error)
    assert 'File "json/decoder.py"' in shown
    assert traceback.extract_tb(error.__traceback__)[-1].filename not in shown


def test_long_recursion_is_short():
    """A recursion of a thousand frames is shown as Python shows it: a few frames, and how often they repeat."""

    def mine(n):
        return mine(n + 1)

    assert len(cut_traceback(caught(lambda: mine(0)))) < 3000


async def test_an_error_whose_text_raises():
    """If the text of an exception cannot be read, the text for the model still has its name."""

    class Mute(Exception):
        def __str__(self):
            raise ValueError("no words")

    def mute():
        """Raise it."""
        raise Mute

    result = await result_of(mute)
    assert result.is_error
    assert "Mute" in result.output


@pytest.mark.parametrize(
    ("error", "hinted"),
    [
        (
            sqlite3.ProgrammingError(
                "SQLite objects created in a thread can only be used in that same thread."
            ),
            True,
        ),
        (RuntimeError("There is no current event loop in thread 'toolloop-tool'."), True),
        (ValueError("signal only works in main thread of the main interpreter"), True),
        (RuntimeError("main thread is not in main loop"), True),
        (RuntimeError("can't start new thread"), False),
        (ValueError("no such thread in the forum"), False),
    ],
)
async def test_complaints_about_the_thread_name_the_setting(error, hinted):
    """Each library has its own words for "wrong thread". For a tool in a worker thread, the text for the model then names
    @tool(thread=False).
    """

    def touch():
        """Touch it."""
        raise error

    assert ("@tool(thread=False)" in (await result_of(touch)).output) == hinted
    assert "@tool(" not in (await result_of(tool(thread=False)(touch))).output

    async def touch():
        """Touch it."""
        raise error

    assert "@tool(" not in (await result_of(touch)).output


async def test_a_timeout_that_an_async_tool_ignores():
    """If a tool ignores its cancellation, the run goes on without it, and the model is told so."""

    @tool(timeout=0.1)
    async def stubborn():
        """Go on."""
        for _ in range(40):
            try:
                await asyncio.sleep(0.1)
            except asyncio.CancelledError:
                continue

    result = await result_of(stubborn)
    assert (
        result.output
        == "TimeoutError: the tool took longer than its timeout of 0.1 s and does not stop; its result is dropped"
    )


async def test_a_tools_own_timeout_error_is_not_ours():
    """If the tool itself raises a TimeoutError, this error keeps its text and its traceback."""

    @tool(timeout=5)
    def connect():
        """Connect."""
        raise TimeoutError("the host does not answer")

    result = await result_of(connect)
    assert result.output == "TimeoutError: the host does not answer"
    assert "in connect" in result.traceback


async def test_calls_one_after_the_other_share_a_thread(monkeypatch):
    """After a call, the thread waits, and takes the next call. If no call comes, the thread ends."""
    monkeypatch.setattr(runner, "IDLE", 600)

    def quick():
        """Be quick."""
        return f"{threading.current_thread().name} {threading.get_ident()}"

    model = ScriptedModel(call("quick"), call("quick"), "Answer.", call("quick"), "Answer.")
    result = await aagent(Harness.TOOL_LOOP, "Go.", model=model, tools=[quick])
    first, second = (one.output for one in result.tool_results)
    assert first == second
    assert first.startswith("toolloop-tool")
    ours = [thread for thread in threading.enumerate() if str(thread.ident) == first.split()[1]]
    assert [thread.name for thread in ours] == ["toolloop-idle"]
    monkeypatch.setattr(runner, "IDLE", 0.1)
    again = await aagent(Harness.TOOL_LOOP, "Go.", model=model, tools=[quick])
    assert [one.output for one in again.tool_results] == [first]
    ours[0].join(60)
    assert not ours[0].is_alive()


async def test_a_waiting_thread_keeps_nothing_of_a_call():
    """While a thread waits for the next call, it does not keep the last tool's value or closure in memory."""
    made = []

    def quick():
        """Be quick."""
        value = type("Value", (), {"__repr__": lambda self: "a value"})()
        made.append(weakref.ref(value))
        return value

    await result_of(quick)
    for _ in range(500):  # the thread may still be on its way to the next call
        gc.collect()
        if made[0]() is None:
            break
        await asyncio.sleep(0.01)
    assert made[0]() is None


BIG = "x y\n" * 250_000


def raise_with_notes():
    error = ValueError("short")
    error.__notes__ = [BIG] * 20
    raise error


def raise_from():
    try:
        raise ValueError(BIG)
    except ValueError as error:
        raise KeyError(BIG) from error


def raise_group():
    group = getattr(builtins, "ExceptionGroup", None)
    raise group("many", [ValueError(BIG)] * 30) if group else ValueError(BIG)


def raise_big():
    raise ValueError(BIG)


@pytest.mark.parametrize("make", [raise_big, raise_with_notes, raise_from, raise_group])
def test_of_megabytes_of_an_error_only_a_part_is_written(make):
    """The text for the model is limited: the error's text, its notes, its causes and the errors of its group. So is the
    traceback.
    """
    error = caught(make)
    assert len(explain_error(error)) < 500_000
    if make in (raise_big, raise_from):
        assert len(cut_traceback(error)) < 500_000
