"""Durations and times of day are in the record, or can be left out. Without them, the same run leaves the same bytes."""

from __future__ import annotations

import dataclasses
import re

import pytest

from toolloop_jupyter.core.events import Approval, Decision
from toolloop_jupyter.core.events.events import Span, Text, ToolCall, ToolResult, Usage
from toolloop_jupyter.core.events.result import Result
from toolloop_jupyter.core.text.plain import are_times_kept, keep_times
from toolloop_jupyter.notebook.transcript import (
    draw_timeline,
    make_bundle,
    render,
    write_markdown,
)

A_TIME = re.compile(r"\d\.\d\d s|\d:\d\d")


def run(seed: float) -> Result:
    """Return the same run, at another pace and another time of day."""
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
    """Return everything that is saved of a run, in each form."""
    return [make_bundle(render(result, "r")), make_bundle(draw_timeline(result)), write_markdown(result)]


@pytest.fixture
def without_times():
    keep_times(keep=False)
    yield
    keep_times(keep=True)


def test_the_same_run_leaves_the_same_bytes(without_times):
    """Two runs that took different times give the same HTML, text, Markdown and picture, without any time."""
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
    """By default, each form says how long each step took, and when somebody decided."""
    assert are_times_kept()
    for one in written(run(0.31)):
        assert A_TIME.search(one if isinstance(one, str) else one["text/plain"])
    assert written(run(0.31)) != written(run(2.5))


@pytest.mark.parametrize(
    ("value", "kept"), [("0", False), ("false", False), ("No", False), ("1", True), ("", True)]
)
def test_the_environment_says_it_too(monkeypatch, value, kept):
    """TOOLLOOP_TIMES=0 leaves the times out."""
    monkeypatch.setenv("TOOLLOOP_TIMES", value)
    assert are_times_kept() is kept
    assert bool(A_TIME.search(write_markdown(run(0.31)))) is kept


def test_a_run_that_took_longer_is_in_the_same_order(without_times):
    """The picture still shows the order of the steps."""
    result = run(1.0)
    lines = make_bundle(draw_timeline(result))["text/plain"].splitlines()
    assert [line.split()[0] for line in lines] == ["?", "◆", "?", "›", "◆"]
    assert make_bundle(draw_timeline(dataclasses.replace(result, spans=result.spans[:2]))) != make_bundle(
        draw_timeline(result)
    )
