"""Durations and times of day are in the record, or left out of it: then the same run leaves the same bytes."""

from __future__ import annotations

import dataclasses
import re

import pytest

from toolloop_jupyter.core.events import Approval, Decision
from toolloop_jupyter.core.events.events import Span, Text, ToolCall, ToolResult, Usage
from toolloop_jupyter.core.events.result import Result
from toolloop_jupyter.core.text.plain import are_times_kept, keep_times
from toolloop_jupyter.notebook.transcript import (
    make_bundle,
    render,
    timeline,
    to_markdown,
)

A_TIME = re.compile(r"\d\.\d\d s|\d:\d\d")


def run(seed: float) -> Result:
    """The same run, at another pace and another time of day."""
    asked = Approval("look", {"x": 1}, call_id="c1")
    decision = Decision(True, by="click", at=1e9 + seed)
    asked._decide(decision)
    events = [
        Text("I look."),
        ToolCall("c1", "look", "look", {"x": 1}, builtin=False),
        asked,
        ToolResult("c1", "seen", value="seen", seconds=seed, ran=True, decision=decision),
        Text("Done."),
    ]
    spans = (
        Span("model", "m", 0.0, seed),
        Span("approval", "look", seed, 3 * seed),
        Span("tool", "look", 3 * seed, 3.5 * seed),
        Span("model", "m", 3.5 * seed, 9 * seed),
    )
    return Result(
        "Done.", None, [], events, Usage(5, 5, 2), 0.0, "done", "s", model="m", prompt="Go", spans=spans
    )


def written(result: Result) -> list[object]:
    """All that is saved of a run, in each form."""
    return [make_bundle(render(result, "r")), make_bundle(timeline(result)), to_markdown(result)]


@pytest.fixture
def without_times():
    keep_times(keep=False)
    yield
    keep_times(keep=True)


def test_the_same_run_leaves_the_same_bytes(without_times):
    """HTML, text, Markdown and the picture of two runs that took different times are equal, and have no time in them."""
    first, second = written(run(0.31)), written(run(2.5))
    assert first == second
    assert not A_TIME.search(
        str(
            [
                {**one, "text/html": re.sub('style="[^"]*"', "", one["text/html"])}
                if isinstance(one, dict)
                else one
                for one in first
            ]
        )
    )
    assert "approved by click" in first[0]["text/html"]
    assert "›" in first[1]["text/plain"]


def test_times_are_there_unless_they_are_left_out():
    """By default each form says how long things took and when somebody decided."""
    assert are_times_kept()
    for one in written(run(0.31)):
        assert A_TIME.search(one if isinstance(one, str) else one["text/plain"])
    assert written(run(0.31)) != written(run(2.5))


@pytest.mark.parametrize(
    ("value", "kept"), [("0", False), ("false", False), ("No", False), ("1", True), ("", True)]
)
def test_the_environment_says_it_too(monkeypatch, value, kept):
    """TOOLLOOP_TIMES=0 leaves times out."""
    monkeypatch.setenv("TOOLLOOP_TIMES", value)
    assert are_times_kept() is kept
    assert bool(A_TIME.search(to_markdown(run(0.31)))) is kept


def test_a_run_that_took_longer_is_in_the_same_order(without_times):
    """The picture still tells who spoke after whom."""
    result = run(1.0)
    lines = make_bundle(timeline(result))["text/plain"].splitlines()
    assert [line.split()[0] for line in lines] == ["?", "◆", "?", "›", "◆"]
    assert make_bundle(timeline(dataclasses.replace(result, spans=result.spans[:2]))) != make_bundle(
        timeline(result)
    )
