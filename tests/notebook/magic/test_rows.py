"""Many rows in a cell: how often the cell is drawn, what stays in it, and what is printed if there is no notebook."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time

import pytest

from support.hostile import Reader
from support.payloads import PAYLOADS
from toolloop_jupyter import amap
from toolloop_jupyter.core.events import Approval, ArgumentInvalid, Request, RowsProgress
from toolloop_jupyter.core.rows import RowsOptions, RowsRun
from toolloop_jupyter.core.session import build_config
from toolloop_jupyter.notebook.live import LOADING
from toolloop_jupyter.notebook.magic import rows as rows_module
from toolloop_jupyter.notebook.magic.rows import (
    TICK,
    LinesNowAndThen,
    RenewedLine,
    RowsPage,
    tell_size_of_rows,
)
from toolloop_jupyter.notebook.transcript import draw_head
from toolloop_jupyter.teaching import ScriptedModel, call


class Cell:
    """The part of a notebook cell that a page needs. `outputs` has what a front-end would save."""

    can_update = True

    def __init__(self):
        self.outputs, self.sent = {}, []

    def display(self, bundle, display_id):
        self.sent.append(bundle)
        self.outputs[display_id] = bundle

    update = display

    def saved(self, kind="text/plain"):
        return "\n".join(bundle[kind] for bundle in self.outputs.values() if bundle[kind])


def say_again(messages):
    return messages[-1]["content"]


async def run_in(cell, rows, model, prompt="{{text}}", rows_options=None, tools=(), **options):
    """Run rows in this cell, as `%%toolloop --each` does. Return the run."""
    page = RowsPage(cell, [draw_head("m", [])], **options)
    permissions = "ask" if tools else "full"
    config = build_config(model=model, tools=tools, permissions=permissions)
    run = RowsRun(config, prompt, rows, rows_options or RowsOptions(concurrency=32), ask=page.ask)
    await page.follow(run)
    return run


async def test_many_rows_are_few_messages():
    """A thousand rows leave one output, which was drawn at most ten times per second."""
    cell, began = Cell(), time.monotonic()
    run = await run_in(cell, [{"text": str(n)} for n in range(1000)], ScriptedModel(say_again))
    assert len(run.rows) == 1000
    assert len(cell.outputs) == 1
    assert len(cell.sent) <= 3 + 10 * (time.monotonic() - began)
    assert "… 990 more rows" in cell.saved()
    assert "of 1,000 rows" in cell.sent[0]["text/plain"]
    assert sum(map(len, cell.sent[-1].values())) < 20_000


async def test_what_goes_on_is_shown_at_once():
    """The cell shows the number of rows before the first row has ended. While rows run, it shows the rows that ended last."""
    cell = Cell()
    model = ScriptedModel(say_again, pace=3 * TICK)
    await run_in(cell, [{"text": "a"}, {"text": "b"}], model, rows_options=RowsOptions(concurrency=1))
    texts = [bundle["text/plain"].split("\n", 1)[1] for bundle in cell.sent]
    assert texts[0].startswith("0 of 2 rows")
    assert any(text.startswith("1 of 2 rows") and '✓ 0  text="a"' in text for text in texts)
    assert texts[-1].splitlines()[-1].startswith("done · 2 of 2 rows")


async def test_a_store_that_cannot_be_opened_leaves_nothing(tmp_path):
    """If the store cannot be opened, the cell shows the error and no block."""
    cell = Cell()
    (tmp_path / "folder").mkdir()
    options = RowsOptions(store=tmp_path / "folder")
    with pytest.raises(ArgumentInvalid):
        await run_in(cell, [{"text": "a"}], ScriptedModel(say_again), rows_options=options)
    assert cell.saved() == ""


async def test_nobody_there_denies():
    """If nobody can be asked, each row's call is denied with this reason, and the row goes on."""
    ran = []

    def double(x: int) -> int:
        """Double."""
        ran.append(x)
        return 2 * x

    cell = Cell()
    model = ScriptedModel(call("double", x=1), say_again)
    run = await run_in(cell, [{"text": "a"}, {"text": "b"}], model, tools=[double])
    assert ran == []
    assert all(row.result.tool_results[0].decision.by == "unattended" for row in run.rows)
    assert "nobody is there" in cell.saved()
    run = await run_in(Cell(), [{"text": "a"}], model, tools=[double], unattended="allow")
    assert ran == [1]


async def test_a_terminal_asks_below_the_line(capsys, monkeypatch):
    """In a terminal, a question begins a new line, and the progress is shown again below it."""
    line = RenewedLine()
    line.show(RowsProgress(10, 1, running=2), "")
    line.leave()
    line.show(RowsProgress(10, 2, running=2), "")
    line.show(RowsProgress(10, 2, running=2), "")
    line.end()
    first, second = "1 of 10 rows · 2 running · 7 waiting · 0 s", "2 of 10 rows · 2 running · 6 waiting · 0 s"
    assert capsys.readouterr().out == f"\r{first}\n\r{second}\n"


def test_a_shorter_line_covers_a_longer_one(capsys):
    """A shorter line overwrites the longer line before it completely."""
    line = RenewedLine()
    line.show(RowsProgress(1000, 1, running=2), "")
    line.show(RowsProgress(2, 2), "")
    first, second = capsys.readouterr().out.split("\r")[1:]
    assert second.rstrip() == "2 of 2 rows · 0 s"
    assert len(second) == len(first)


def test_lines_come_ever_more_seldom(capsys):
    """If nobody watches, the first line is printed after ten seconds. Each wait is twice as long as the one before, up to
    five minutes.
    """
    now = 0.0
    lines = LinesNowAndThen(clock=lambda: now)
    at = []
    while now < 3600:
        lines.show(RowsProgress(10, 1), "")
        if capsys.readouterr().out:
            at.append(now)
        now += 1
    assert at[:5] == [10, 30, 70, 150, 310]
    assert {later - earlier for earlier, later in itertools.pairwise(at[5:])} == {300}


@pytest.mark.parametrize("name", [name for name in PAYLOADS if name.endswith("-0")])
async def test_hostile_rows_are_inert_while_they_run(name):
    """A payload as cell text, column name and answer is inert in each message that is sent."""
    cell, payload = Cell(), PAYLOADS[name]
    rows = [{"text": payload, payload: payload} for _ in range(8)]
    await run_in(cell, rows, ScriptedModel(say_again, pace=TICK / 4), rows_options=RowsOptions(concurrency=2))
    assert len(cell.sent) > 1
    for bundle in cell.sent:
        assert not Reader(bundle["text/html"]).problems


async def test_a_value_shows_itself():
    """Outside of a notebook, a Rows is shown in one line. Its bundle is the record of the run."""
    rows = await amap("{{text}}", [{"text": "a"}], model=ScriptedModel(say_again))
    assert repr(rows) == "<Rows: 1 ended>"
    bundle = rows._repr_mimebundle_()
    assert bundle["text/plain"].startswith('✓ 0  text="a"  → a')
    assert not Reader(bundle["text/html"]).problems


def test_the_size_of_a_run():
    """The sentence has the number of rows, if it is known, and estimates the tokens by the characters of the first request."""
    request = Request("m", [{"role": "user", "content": "x" * 4000}])
    assert tell_size_of_rows(request, 1000).startswith(
        "1,000 rows; the first request has about 1,011 tokens, the first requests of all rows together about 1,011,000 ("
    )
    assert tell_size_of_rows(request, 1).startswith("1 row; the first request has about 1,011 tokens (")
    assert tell_size_of_rows(request, None).startswith(
        "how many rows there are is not known; the first request"
    )


async def test_a_question_names_its_row():
    """While a person is asked, the block names the row. A decision by code ends the question."""
    cell = Cell()
    page = RowsPage(cell, [draw_head("m", [])])
    approval = Approval("double", {"x": 1}, row="row 17 of 1,000")
    approval.allow(by="code")
    await page.ask(approval)
    assert cell.saved().splitlines()[1].startswith("waiting for you: row 17 of 1,000 · ")


async def test_rows_that_wait_for_the_import(monkeypatch):
    """While rows wait for LiteLLM's import, the block says so."""
    ready, cell = threading.Event(), Cell()
    monkeypatch.setattr(rows_module, "is_ready", ready.is_set)
    page = RowsPage(cell, [draw_head("m", [])])
    assert page.before_import()
    ticker = asyncio.ensure_future(page._tick())
    try:
        await asyncio.wait_for(until(lambda: LOADING in cell.saved()), 60)
        ready.set()
        await asyncio.wait_for(until(lambda: LOADING not in cell.saved()), 60)
    finally:
        ticker.cancel()


async def until(condition):
    """Wait until the page shows this text."""
    while not condition():  # noqa: ASYNC110 - the page is drawn by a timer
        await asyncio.sleep(TICK / 10)
