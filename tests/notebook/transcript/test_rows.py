"""Many rows as one block, while they run and at their end."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from support.hostile import Reader, run
from toolloop_jupyter.core.events import Result, Row, Rows, RowsProgress, RowsSpeed, Usage
from toolloop_jupyter.notebook.transcript import draw_finished_rows, draw_running_rows, tell_running_rows


@dataclass
class Label:
    label: str
    sure: bool


def make_row(number, text="fine", error=None, output=None):
    """A row of a table with one column."""
    result = Result(
        text, output, [], [], Usage(1, 10, 2), 0.001, "done" if error is None else "runtime_error", "s"
    )
    return Row(number, f"key{number}", {"text": f"review {number}"}, result, error, 0.5)


def make_rows(count, failed=(), **more):
    """Return `count` rows. The rows in `failed` have no answer."""
    ended = {n: make_row(n, error=f"why {n}" if n in failed else None) for n in range(count)}
    progress = RowsProgress(count, count - len(failed), len(failed), cost=0.001 * count, seconds=4.0)
    return Rows(ended, progress, **more)


@pytest.fixture(autouse=True)
def no_times(monkeypatch):
    monkeypatch.setenv("TOOLLOOP_TIMES", "0")


def test_how_far_the_rows_are():
    """The block and the line have the counts of done, failed, running and waiting rows, the speed, the cost and the time left."""
    last = tuple(make_row(number) for number in (7, 3, 8))
    progress = RowsProgress(1000, 320, 2, 32, 12, 0, 0.25, 80.0, RowsSpeed(4.0), last)
    facts = "322 of 1,000 rows · 2 failed · 32 running · 646 waiting · 12 from the store · 4 rows/s · $0.25 · 1:20 · 2:49 left"
    block = draw_running_rows(progress)
    assert block.text.splitlines() == [
        facts,
        *(f'✓ {n}  text="review {n}"  → fine' for n in (7, 3, 8)),
    ]
    assert tell_running_rows(progress) == facts
    assert tell_running_rows(progress, 30) == facts[:29] + "…"
    assert "width:32%" in block.html
    assert "width:0.2%" in block.html


def test_a_pause_and_an_unknown_number_of_rows():
    """A pause is shown with its reason. If the number of rows is not known, there is no bar and no time left."""
    progress = RowsProgress(
        None, 3, 0, 2, seconds=1.0, speed=RowsSpeed(3.0, pause=4.0), message="the provider asks to wait"
    )
    block = draw_running_rows(progress, "stopping")
    assert (
        block.text
        == "stopping · 3 rows · 2 running · 3 rows/s · 1 s\npaused for 4 s: the provider asks to wait"
    )
    assert "aria-label" not in block.html


def test_the_record_has_both_ends_and_the_failures():
    """Of many rows the first and last five are shown, and at most twenty of those between that failed."""
    lines = draw_finished_rows(make_rows(1000, failed={2, *range(100, 150)}), "labelled").text.splitlines()
    assert [line.split()[1] for line in lines[:5]] == ["0", "1", "2", "3", "4"]
    assert lines[2] == '✗ 2  text="review 2"  → why 2'
    assert lines[5] == "… 990 more rows: labelled.frame"
    assert [line.split()[1] for line in lines[6:11]] == ["995", "996", "997", "998", "999"]
    assert lines[11] == "50 of those between failed:"
    assert [line.split()[1] for line in lines[12:32]] == [str(n) for n in range(100, 120)]
    assert lines[32] == "… 30 more failed rows: labelled.failed"
    assert lines[33] == "done · 1,000 of 1,000 rows · 51 failed · $1.00 · labelled.frame"
    assert len(lines) == 34


@pytest.mark.parametrize("count", [0, 1, 5, 6, 10, 11])
def test_a_few_rows_are_shown_once_each(count):
    """Up to ten rows are all shown, in order. Of eleven rows, one is left out."""
    lines = draw_finished_rows(make_rows(count)).text.splitlines()
    numbers = [int(line.split()[1]) for line in lines if line.startswith("✓")]
    assert numbers == [n for n in range(count) if count <= 10 or n != 5]
    assert ("… 1 more row" in lines) == (count == 11)


def test_the_end_says_why_it_came_early():
    """The last line names a stop or a limit before the counts."""
    block = draw_finished_rows(make_rows(3, message="stopped: max_cost is $2"))
    assert block.text.splitlines()[-1].startswith("stopped: max_cost is $2 · 3 of 3 rows")
    assert 'class="tlj-ask"' in block.html


def test_an_answer_is_told_by_its_fields():
    """A row with an output shows its fields. A text is shown as one line, whatever it contains."""
    rows = Rows({0: make_row(0, output=Label("good", sure=True)), 1: make_row(1, text="a\n\n  b " * 200)})
    first, second, _ = draw_finished_rows(rows).text.splitlines()
    assert first.endswith('→ label="good", sure=true')
    assert len(second.partition("→ ")[2]) == 160
    assert second.endswith("a b…")


def test_a_cell_that_cannot_be_told():
    """A column may contain any object, even one that raises an error when it is read."""

    class Mute:
        def __repr__(self):
            raise ValueError("no")

        __str__ = __repr__

    row = Row(0, "k", {"x": Mute(), "y": float("nan")}, run("fine"), None)
    assert draw_finished_rows(Rows({0: row})).text.startswith("✓ 0  ")


def test_a_record_stays_small():
    """A thousand rows with long cells and long answers take only a few kilobytes in the saved notebook."""
    ended = {n: make_row(n, text="answer " * 5_000) for n in range(1000)}
    block = draw_finished_rows(Rows(ended, RowsProgress(1000, 1000)))
    assert len(block.html) < 30_000
    assert not Reader(block.html).problems
