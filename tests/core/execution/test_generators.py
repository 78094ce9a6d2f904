"""A generator as a tool: the list of its items is the result. The list is limited, and a generator that never ends is ended."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from toolloop_jupyter import Harness, aagent, aagent_session
from toolloop_jupyter.core.events.events import ToolCall
from toolloop_jupyter.core.execution import runner
from toolloop_jupyter.core.tools.tool import tool
from toolloop_jupyter.teaching.scripted import ScriptedModel, call

closed = []


def count_up(most: int = 0, size: int = 1):
    """Count up to a number. With 0, count for ever."""
    try:
        yield from ("x" * size for _ in (range(most) if most else itertools.count()))
    finally:
        closed.append("sync")


async def acount_up(most: int = 0, size: int = 1):
    """Count up to a number, without ever waiting. With 0, count for ever."""
    try:
        for _ in range(most) if most else itertools.count():
            yield "x" * size
    finally:
        closed.append("async")


@tool(thread=False)
def count_here(most: int = 0, size: int = 1):
    """Do the same as `count_up`, but on the loop's own thread."""
    return count_up(most, size)


KINDS = pytest.mark.parametrize(
    "function", [count_up, count_here, acount_up], ids=["thread", "here", "async"]
)


async def call_of(function, **arguments):
    name = function.__name__
    result = await aagent(
        Harness.TOOL_LOOP, "Go.", model=ScriptedModel(call(name, **arguments), "Done."), tools=[function]
    )
    return result.tool_results[0]


@KINDS
async def test_one_that_never_ends_is_ended(function, monkeypatch):
    """At the limit, the generator is closed. The model is told so in one line, and the run goes on."""
    monkeypatch.setattr(runner, "MOST_ITEMS", 30_000)
    closed.clear()
    told = await call_of(function)
    assert told.output == (
        "TooManyItems: the generator gave more than 30,000 items and was ended; none of them is kept"
    )
    assert (told.status, len(closed)) == ("failed", 1)


@KINDS
async def test_no_more_is_kept_than_can_be_told(function):
    """Of 25,000 items, the first 20,000 are the value. The text says how many items there were."""
    result = await call_of(function, most=25_000)
    assert len(result.value) == 20_000
    assert result.output.endswith("\n… the generator gave 25,000 items; the first 20,000 are kept")
    assert "a list of 25,000 items" in result.output
    assert len(result.output) <= 20_000
    whole = await call_of(function, most=20_000)
    assert type(whole.value) is list
    assert "kept" not in whole.output


async def test_large_items_are_kept_by_their_size(monkeypatch):
    """As many items are kept as fit into the limit of bytes. The first item is always kept."""
    monkeypatch.setattr(runner, "KEPT_BYTES", 1_000_000)
    assert len((await call_of(count_up, most=50, size=100_000)).value) == 10
    assert (await call_of(count_up, most=1, size=5_000_000)).value == ["x" * 5_000_000]


class _Box:
    def __init__(self, held):
        self.held = held


WRAPPINGS = {
    "list": lambda text: [text],
    "dict": lambda text: {"a": {"b": (text,)}},
    "object": _Box,
    "object of a list": lambda text: _Box([{text}]),
}


@pytest.mark.parametrize("wrap", WRAPPINGS.values(), ids=WRAPPINGS)
async def test_what_items_hold_counts_for_their_size(wrap, monkeypatch):
    """A list with one large text counts as many bytes as the text, so it cannot get below the limit as a small object."""
    monkeypatch.setattr(runner, "KEPT_BYTES", 1_000_000)

    def generate():
        """Give large texts."""
        for number in range(50):
            yield wrap("x" * 100_000 + str(number))

    assert len((await call_of(generate)).value) == 10


@pytest.mark.parametrize("function", [count_up, acount_up], ids=["thread", "async"])
async def test_stop_ends_it(function, monkeypatch):
    """■ (a cancel) ends a generator while it runs, long before its limit. So does the time limit of the run."""
    monkeypatch.setattr(runner, "MOST_ITEMS", 10**12)  # otherwise a fast machine reaches this limit first
    name, seen = function.__name__, []
    for limit in (0.3, None):
        session = aagent_session(
            Harness.TOOL_LOOP, model=ScriptedModel(call(name), "Done."), tools=[function], timeout=limit
        )
        stream = session.stream("Go.")
        async for event in stream:
            if isinstance(event, ToolCall) and limit is None:
                asyncio.get_running_loop().call_later(0.3, stream.cancel)
        seen.append(stream.result.stop_reason)
        assert stream.result.tool_results[0].status == "cancelled"
    assert seen == ["timeout", "cancelled"]
