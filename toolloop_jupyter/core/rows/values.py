"""The data of a rows run: what it is asked, how far it is, what it leaves.

A rows run is one tool loop for each row of a table. Rows are counted from 0, as Python does: `rows[17]` is the row that a
page calls "row 17".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..events import Result, Usage
from ..text import hide, hide_in_repr
from .table import Table

OnError = Literal["continue", "stop"]


@hide_in_repr
@dataclass(frozen=True)
class Row:
    """What came of one row."""

    number: int
    """Its place in the table, from 0."""
    key: str
    """The hash of what decides its answer: the same row of another run has the same key."""
    input: Mapping[str, Any] = field(repr=False)
    """The row as it was given, by column."""
    result: Result | None = field(repr=False)
    """The Result of its run, also of a run that failed; None where none was begun (the row has no text for the prompt)."""
    error: str | None = None
    """Why there is no answer, in one line; None for a row that is done."""
    seconds: float = 0.0
    """How long its run took."""
    from_store: bool = False
    """Whether it was taken from the store, and not run now."""

    @property
    def cost(self) -> float | None:
        """US dollars; None where nobody told the price."""
        return 0.0 if self.result is None else self.result.cost

    @property
    def tokens(self) -> int:
        """Tokens of all its model calls, sent and received."""
        return 0 if self.result is None else self.result.usage.total_tokens

    @property
    def stop_reason(self) -> str:
        """How its run ended: `Result.stop_reason`, or "runtime_error" where none was begun."""
        return "runtime_error" if self.result is None else self.result.stop_reason

    @property
    def answer(self) -> Any:
        """The validated `output=`, else the answer's text; None for a row that failed."""
        if self.result is None or self.error is not None:
            return None
        return self.result.text if self.result.output is None else self.result.output


@dataclass(frozen=True)
class RowsProgress:
    """How far a rows run is."""

    total: int | None = None
    """How many rows there are; None for an iterable that does not say."""
    done: int = 0
    """Rows with an answer, those from the store among them."""
    failed: int = 0
    running: int = 0
    """Rows under way; one that waits for a person is among them."""
    from_store: int = 0
    """Rows of `done` that were taken from the store."""
    again: int = 0
    """Rows that had failed in an earlier run, says the store, and are run again."""
    cost: float = 0.0
    """US dollars of this run, as far as they are known."""
    tokens: int = 0
    """Tokens of this run."""
    seconds: float = 0.0
    """Since the run began."""
    rate: float = 0.0
    """Rows a second that ended lately; rows from the store do not count."""
    last: tuple[Row, ...] = ()
    """The rows that ended last, at most three, the newest at the end."""
    pause: float = 0.0
    """Seconds for which no model call goes out, since the provider has asked for a pause; 0.0 when there is none."""
    concurrency: int = 0
    """How many model calls may be under way at once, now."""
    message: str = ""
    """What a person should know in one line: notes of the store, why the run ends early. "" mostly."""

    @property
    def waiting(self) -> int | None:
        """Rows that have not begun; None where nobody knows how many there are."""
        return None if self.total is None else max(0, self.total - self.done - self.failed - self.running)

    @property
    def left(self) -> float | None:
        """Seconds until the end, at the present rate; None where that cannot be told."""
        if self.total is None or not self.rate:
            return None
        return max(0, self.total - self.done - self.failed) / self.rate


class RowsWatcher:
    """Looks on at a rows run. Called on its loop, never awaited: each method must be quick. These do nothing."""

    def row_ended(self, row: Row) -> None:
        """A row has ended, in the order in which they end. `changed` comes right after it."""

    def changed(self, progress: RowsProgress) -> None:
        """Something of the progress is another: may come hundreds of times a second."""


class RowsPresenter:
    """How a `Rows` looks to people. This one is plain text; a notebook's shows the block of the run."""

    def display(self, rows: Rows) -> None:
        """Show it as the value of a cell."""
        print(repr(rows))  # noqa: T201 - what IPython would do

    def bundle(self, rows: Rows) -> Mapping[str, str]:
        """Its MIME bundle."""
        return {"text/plain": repr(rows)}


@dataclass(frozen=True)
class RowsOptions:
    """How the rows of one run are run; what one row is run with is in the `Config`, as for any run."""

    concurrency: int = 8
    """Rows at once; with an executor, in each worker."""
    store: str | Path | None = None
    """The file that keeps each finished row, and from which the next run takes it."""
    max_cost: float | None = None
    """US dollars for all rows of this run, looked at before each model call."""
    on_error: OnError = "continue"
    """"stop": after a row that failed no other begins; those under way come to their end."""
    executor: Any = None
    """A `concurrent.futures.Executor` whose workers run the rows; None: the loop of this process."""
    variables: Mapping[str, object] = field(default_factory=dict, repr=False)
    """Values of names in the prompt that are no column."""


@dataclass(frozen=True)
class Rows(Sequence[Row]):
    """The rows that have ended, in the order of the table, whatever order they ended in.

    `rows[17]` is the row with that number; IndexError where it has not ended. Iterating gives those that have.
    """

    ended: Mapping[int, Row] = field(default_factory=dict, repr=False)
    """By number, in the table's order."""
    progress: RowsProgress = RowsProgress()
    """The run as it stood when this value was made."""
    cut: tuple[Row, ...] = field(default=(), repr=False)
    """Rows that a stop cut in the middle. They are not among the others; what they cost is in `cost`."""
    message: str = ""
    """Why the run ended early, in one line; "" when it came to its end."""
    table: Table | None = field(default=None, repr=False, compare=False)
    presenter: RowsPresenter = field(default=RowsPresenter(), repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.ended)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.ended.values())

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, slice):
            return list(self)[number]
        if number < 0 and self.ended:
            number += self.progress.total or max(self.ended) + 1
        if number not in self.ended:
            raise IndexError(f"row {number} has not ended; {len(self.ended):,} rows have")
        return self.ended[number]

    @property
    def failed(self) -> list[Row]:
        """The rows without an answer."""
        return [row for row in self if row.error is not None]

    @property
    def usage(self) -> Usage:
        """Tokens and model calls of this run; rows from the store are not counted."""
        return sum((row.result.usage for row in self._run_now() if row.result is not None), Usage())

    @property
    def cost(self) -> float | None:
        """US dollars of this run; None when one row's are not known. Rows from the store are not counted."""
        costs = [row.cost for row in self._run_now()]
        return None if None in costs else sum(cost for cost in costs if cost is not None)

    def _run_now(self) -> list[Row]:
        return [row for row in (*self, *self.cut) if not row.from_store]

    @property
    def frame(self) -> Any:
        """The answers as a table: a polars DataFrame where the rows came from one, else a pandas one with the rows' index.

        Columns: the fields of `output` (else `answer`), then `stop_reason`, `error`, `cost`, `tokens`, `seconds`, each with
        "row_" in front where a field has that name. Raises ImportError where neither package can be imported.
        """
        return (self.table or Table()).frame({row.number: _list_cells(row) for row in self})

    def __repr__(self) -> str:
        total = "" if self.progress.total in (None, len(self)) else f" of {self.progress.total:,}"
        counts = {
            "failed": len(self.failed),
            "from the store": self.progress.from_store,
            "had failed before and were run again": self.progress.again,
        }
        told = "".join(f", {count:,} {what}" for what, count in counts.items() if count)
        return hide(f"<Rows: {len(self):,}{total} ended{told}{f'; {self.message}' if self.message else ''}>")

    def _ipython_display_(self) -> None:
        self.presenter.display(self)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Mapping[str, str]:
        return self.presenter.bundle(self)


def _list_cells(row: Row) -> tuple[Any, dict[str, object]]:
    """(the answer, what is beside it) of one row of the frame."""
    beside = {"stop_reason": row.stop_reason, "error": row.error, "cost": row.cost}
    return row.answer, {**beside, "tokens": row.tokens, "seconds": row.seconds}
