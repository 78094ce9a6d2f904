"""The data of a rows run: a `Row` that has ended, the `RowsProgress` of the run, and the `Rows` at its end.

A rows run is one tool loop for each row of a table. Rows are counted from 0, as in Python: the notebook shows `rows[17]` as
"row 17".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..text import hide, hide_in_repr
from .events import Usage, add_costs
from .result import Presenter, Result


@hide_in_repr
@dataclass(frozen=True)
class Row:
    """A row that has ended, with its answer or its error."""

    number: int
    """The row's position in the table, counted from 0."""
    key: str
    """A hash of everything that decides the answer, such as the model and the prompt. The store finds the row by this key."""
    input: Mapping[str, Any] = field(repr=False)
    """The given row: column -> cell."""
    result: Result | None = field(repr=False)
    """The Result of the row's run, even if the run failed. None if there was no run, for example if a cell has no text form."""
    error: str | None = None
    """Why there is no answer, in one line; None for a row with an answer."""
    seconds: float = 0.0
    """How many seconds the row's run took."""
    from_store: bool = False
    """True if the row was taken from the store and was not run in this run."""

    @property
    def cost(self) -> float | None:
        """The cost of the row in US dollars; None if the price is not known."""
        return 0.0 if self.result is None else self.result.cost

    @property
    def tokens(self) -> int:
        """Tokens of all model calls of the row, sent and received."""
        return 0 if self.result is None else self.result.usage.total_tokens

    @property
    def stop_reason(self) -> str:
        """How the row's run ended: `Result.stop_reason`, or "runtime_error" if there was no run."""
        return "runtime_error" if self.result is None else self.result.stop_reason

    @property
    def answer(self) -> Any:
        """The validated value of type `output=`, or the answer's text if the run has no `output=`. None if the row failed."""
        if self.result is None or self.error is not None:
            return None
        return self.result.text if self.result.output is None else self.result.output


@dataclass(frozen=True)
class RowsSpeed:
    """The present speed of a rows run."""

    rate: float = 0.0
    """The number of rows that end per second, measured over the newest rows. Rows from the store do not count."""
    pause: float = 0.0
    """Seconds until the present pause ends; 0.0 without a pause. A pause begins if the provider refuses too many requests."""
    concurrency: int = 0
    """The largest number of model calls that may run at the same time."""


@dataclass(frozen=True)
class RowsProgress:
    """The progress of a rows run."""

    total: int | None = None
    """The number of rows; None for an iterable without a length."""
    done: int = 0
    """Rows with an answer, including rows from the store."""
    failed: int = 0
    running: int = 0
    """Rows that are running now, including rows that wait for a person."""
    from_store: int = 0
    """Rows of `done` that were taken from the store."""
    again: int = 0
    """Rows that failed in an earlier run with this store, and are run again in this run."""
    cost: float = 0.0
    """US dollars that the model calls of this run have cost so far, including calls of rows that are still running. A call whose
    cost is not known counts as 0.
    """
    seconds: float = 0.0
    """Seconds since the run began."""
    speed: RowsSpeed = RowsSpeed()
    last: tuple[Row, ...] = ()
    """The rows that ended last, at most three. The newest row comes last."""
    message: str = ""
    """One line with messages about the store and the reason why the run ends early; "" if there is neither."""

    @property
    def waiting(self) -> int | None:
        """Rows that have not begun; None if `total` is not known."""
        return None if self.total is None else max(0, self.total - self.done - self.failed - self.running)

    @property
    def left(self) -> float | None:
        """Seconds until the run ends if the rate stays the same; None if `total` or the rate is not known."""
        if self.total is None or not self.speed.rate:
            return None
        return max(0, self.total - self.done - self.failed) / self.speed.rate


@dataclass(frozen=True)
class Rows(Sequence[Row]):
    """The rows that have ended, in the order of the table.

    `rows[17]` is the row with the number 17; it raises IndexError if that row has not ended.
    """

    ended: Mapping[int, Row] = field(default_factory=dict, repr=False)
    """Number -> row, in the order of the table."""
    progress: RowsProgress = RowsProgress()
    """The progress of the run at the moment when this object was made."""
    cut: tuple[Row, ...] = field(default=(), repr=False)
    """Rows that were running when the run was stopped, in the order of the table. `ended` lacks them; `cost` includes them."""
    message: str = ""
    """Why the run ended early, in one line; "" if the run did not end early."""
    make_frame: Callable[[Sequence[Row]], Any] = field(default=list, repr=False, compare=False)
    """Makes the DataFrame that `frame` returns."""
    presenter: Presenter = field(default=Presenter(), repr=False, compare=False)

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
            raise IndexError(f"row {number} has not ended; {len(self.ended):,} rows have ended")
        return self.ended[number]

    @property
    def failed(self) -> list[Row]:
        """The rows without an answer."""
        return [row for row in self if row.error is not None]

    @property
    def usage(self) -> Usage:
        """Tokens and model calls of this run. Rows from the store do not count."""
        return sum((row.result.usage for row in self._run_now() if row.result is not None), Usage())

    @property
    def cost(self) -> float | None:
        """The cost of this run in US dollars; None if the cost of a row is not known. Rows from the store do not count."""
        return add_costs(*(row.cost for row in self._run_now()))

    def _run_now(self) -> list[Row]:
        return [row for row in (*self, *self.cut) if not row.from_store]

    @property
    def frame(self) -> Any:
        """The answers as a DataFrame of pandas or polars.

        Rows from a pandas or a polars DataFrame give a DataFrame of the same package. Other rows give a polars DataFrame if
        polars is imported and pandas is not; else they give a pandas one. Rows from a pandas DataFrame keep their index.

        The first columns are the fields of `output`, or the column `answer` if `output` has no fields. The other columns are
        `stop_reason`, `error`, `cost`, `tokens` and `seconds`. If a field of `output` has one of these five names, the
        column that does not come from `output` is renamed, for example to `row_error`. Raises ImportError if pandas is needed
        and is not installed.
        """
        return self.make_frame(list(self))

    def __repr__(self) -> str:
        total = "" if self.progress.total in (None, len(self)) else f" of {self.progress.total:,}"
        counts = {
            "failed": len(self.failed),
            "from the store": self.progress.from_store,
            "had failed before and were run again": self.progress.again,
        }
        counted = "".join(f", {count:,} {what}" for what, count in counts.items() if count)
        return hide(
            f"<Rows: {len(self):,}{total} ended{counted}{f'; {self.message}' if self.message else ''}>"
        )

    def _ipython_display_(self) -> None:
        self.presenter.display(self)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Mapping[str, str]:
        return self.presenter.bundle(self)
