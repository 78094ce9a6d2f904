"""The outputs of a run while it runs."""

from __future__ import annotations

import contextvars
import time

import pytest

from toolloop_jupyter.core.events.events import FileChange, ToolCall, ToolResult
from toolloop_jupyter.notebook import kernel
from toolloop_jupyter.notebook.live import outputs, presenter
from toolloop_jupyter.notebook.live.column import EMPTY, OutputColumn
from toolloop_jupyter.notebook.live.outputs import LOADING, CallOutputs
from toolloop_jupyter.notebook.live.view import CellRun, ViewOptions
from toolloop_jupyter.notebook.transcript.blocks import draw_head
from toolloop_jupyter.notebook.transcript.steps import OF_RUN

PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(2_000_000)


class Cell:
    """The parts of a notebook cell that a view needs. `outputs` is what a front-end would save."""

    can_update = True

    def __init__(self):
        self.outputs = {}
        self.sent = 0

    def display(self, bundle, display_id):
        self.sent += len(str(bundle))
        self.outputs[display_id] = bundle

    update = display

    def clear(self):
        self.outputs.clear()

    def saved(self, kind="text/html"):
        return "\n".join(bundle[kind] for bundle in self.outputs.values())


class Figure:
    def _repr_png_(self):
        return PICTURE


@pytest.fixture
def cell():
    return Cell()


async def steps(run, count, value):
    for number in range(count):
        call = ToolCall(str(number), "draw", "draw", {"n": number})
        await run.take(call)
        await run.take(ToolResult(str(number), "x", value=value, ran=True, seconds=0.25))


@pytest.mark.asyncio
async def test_a_run_of_large_calls_and_many_files_stays_bounded(cell):
    """Thirty pictures of two megabytes, and a thousand changed files: 20 MB are kept, and lines name the rest."""
    run = CellRun(cell, draw_head("m", []), ViewOptions(name="r", owns_cell=True))
    await steps(run, 30, Figure())
    for number in range(1_000):
        await run.take(FileChange(f"f{number}", "created", "+x"))
    assert len(cell.saved()) < OF_RUN + 500_000
    assert "too large to keep in the output of the run: r.tool_results[29].value" in cell.saved()
    assert cell.saved("text/plain").count("created") == 200


@pytest.mark.asyncio
async def test_merging_loses_nothing(cell):
    """A run has 300 calls: the saved cell has each call's line once, in order, with the time of the call."""
    run = CellRun(cell, draw_head("m", []), ViewOptions(name="r", owns_cell=True))
    await steps(run, 300, "ok")
    lines = [line for line in cell.saved("text/plain").split("\n") if "draw(n=" in line]
    assert [line.split("n=")[1].split(")")[0] for line in lines] == [str(n) for n in range(300)]
    assert all("0.25 s" in line for line in lines)
    assert len(cell.outputs) <= 40


def test_an_empty_output_at_the_end_leaves_no_gap(cell):
    """The next block stands in the place of a finished card or of a call's progress."""
    column = OutputColumn(cell)
    column.output().put({"text/html": "<p>one</p>", "text/plain": "one"})
    card = column.output()
    card.put({"text/html": "<p>card</p>", "text/plain": "card"})
    card.put(EMPTY)
    column.output().put({"text/html": "<p>two</p>", "text/plain": "two"})
    assert len(cell.outputs) == 2
    assert cell.saved("text/plain").split() == ["one", "two"]
    card.put({"text/html": "<p>late</p>", "text/plain": "late"})
    assert cell.saved("text/plain").split() == ["one", "two", "late"]


def test_an_empty_output_that_was_merged_away_can_be_used_again(cell):
    """An output was empty when outputs were joined. If it gets a bundle later, the bundle is shown below the others."""
    column = OutputColumn(cell, owns=True)
    output = column.output()
    output.put({"text/html": "<p>gone</p>", "text/plain": "gone"})
    column.output().put({"text/html": "<p>0</p>", "text/plain": "0"})
    output.put(EMPTY)
    for number in range(1, 100):
        column.output().put({"text/html": f"<p>{number}</p>", "text/plain": str(number)})
    assert not output.is_there
    output.put({"text/html": "<p>back</p>", "text/plain": "back"})
    assert cell.saved("text/plain").split() == [*map(str, range(100)), "back"]


@pytest.mark.asyncio
async def test_an_import_in_the_middle_of_a_run(cell):
    """While a run waits for LiteLLM's import, its head says so, even in the middle of the run. Afterwards, the words are gone."""
    run = CellRun(cell, draw_head("m", []))
    run.head.begin(run.stop)
    run.head.update()
    assert LOADING not in cell.saved()
    assert run.hooks.before_import()
    run.head.update()
    assert LOADING in cell.saved()
    run.hooks.say("the model answers")
    run.head.update()
    assert LOADING not in cell.saved()


@pytest.mark.asyncio
async def test_a_terminal_has_no_head_that_changes(cell):
    """A page that cannot replace its head does not announce the import. The host does it."""
    cell.can_update = False
    run = CellRun(cell, draw_head("m", []))
    run.head.begin(run.stop)
    assert not run.hooks.before_import()


def test_many_runs_of_a_cell_wait_in_one_line(cell, monkeypatch):
    """Two runs of a cell wait for the import: the cell shows one line, which disappears after the import."""
    monkeypatch.setattr(kernel.Cell, "here", classmethod(lambda cls: cell))
    cell.execution = "one"
    with presenter.say_importing(), presenter.say_importing():
        assert cell.saved("text/plain").count(LOADING) == 1
    assert LOADING not in cell.saved("text/plain")
    with presenter.say_importing():
        assert LOADING in cell.saved("text/plain")


def test_ignored_ctrl_c_is_told_once_a_run(cell, monkeypatch):
    """A run says that Ctrl-C does not reach it; a run within one of its tools does not say it again."""
    monkeypatch.setattr(kernel.Cell, "here", classmethod(lambda cls: cell))
    monkeypatch.setattr(kernel, "ignores_ctrl_c", lambda: True)
    warnings = []
    monkeypatch.setattr(cell, "display", lambda bundle: warnings.append(bundle["text/plain"]), raising=False)

    def run():
        presenter.warn_of_ignored_ctrl_c()
        contextvars.copy_context().run(presenter.warn_of_ignored_ctrl_c)

    for _ in range(2):
        contextvars.copy_context().run(run)
    assert len(warnings) == 2
    assert "this process ignores Ctrl-C: %toolloop doctor" in warnings[0]


def test_what_a_thread_prints_while_its_late_output_is_drawn_is_shown_too(monkeypatch):
    """A thread prints after its call has ended, and again while the page draws the first print: both are shown."""
    monkeypatch.setattr(outputs, "LATE", 0.01)
    call, drawn = CallOutputs(), []

    def draw():
        drawn.append(str(call))
        if len(drawn) == 1:
            call.take("stdout", "two\n")

    call.end(draw)
    call.take("stdout", "one\n")
    until = time.monotonic() + 5
    while len(drawn) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    assert drawn == ["one\n", "one\ntwo\n"]
