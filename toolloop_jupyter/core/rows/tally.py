"""Counts the rows of a run that have ended, and lists them in the order of the table."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

from .values import Row, RowsProgress

SHOWN_LAST = 3
RATE_OF = 50
"""The rate is measured over this many of the newest rows."""


@dataclass
class Tally:
    """The rows that have ended, with their counts."""

    total: int | None = None
    began: float = field(default_factory=time.monotonic)
    ended: dict[int, Row] = field(default_factory=dict)
    """Number -> row, in the order in which the rows ended."""
    cut: list[Row] = field(default_factory=list)
    """Rows that were under way when the run was stopped, and did not end."""
    failed: int = 0
    from_store: int = 0
    again: int = 0
    tokens: int = 0
    cost: float = 0.0
    seconds: float | None = None
    """How long the run took; None before its end."""
    last: deque[Row] = field(default_factory=lambda: deque(maxlen=SHOWN_LAST))
    _ends: deque[float] = field(default_factory=lambda: deque(maxlen=RATE_OF))

    def start(self) -> None:
        """Begin to measure the time of the run."""
        self.began = time.monotonic()

    def stop(self) -> None:
        """Stop measuring the time of the run."""
        self.seconds = time.monotonic() - self.began

    def add(self, row: Row) -> None:
        """Count a row that has ended."""
        self.ended[row.number] = row
        self.failed += row.error is not None
        self.last.append(row)
        if row.from_store:
            self.from_store += 1
            return
        self.tokens += row.tokens
        self.cost += row.cost or 0.0
        self._ends.append(time.monotonic())

    def list_in_order(self) -> dict[int, Row]:
        """Number -> row, in the order of the table."""
        return dict(sorted(self.ended.items()))

    def _find_rate(self) -> float:
        """Rows per second, over the newest rows, or since the beginning as long as there are few. Rows from the store do not count."""
        since = self._ends[0] if len(self._ends) == RATE_OF else self.began
        seconds = (self._ends[-1] if self._ends else self.began) - since
        return (len(self._ends) - (len(self._ends) == RATE_OF)) / seconds if seconds > 0 else 0.0

    def report(
        self, *, running: int, pause: float = 0.0, concurrency: int = 0, message: str = ""
    ) -> RowsProgress:
        """Return the progress of the run."""
        return RowsProgress(
            total=self.total,
            done=len(self.ended) - self.failed,
            failed=self.failed,
            running=running,
            from_store=self.from_store,
            again=self.again,
            cost=self.cost,
            tokens=self.tokens,
            seconds=time.monotonic() - self.began if self.seconds is None else self.seconds,
            rate=self._find_rate(),
            last=tuple(self.last),
            pause=pause,
            concurrency=concurrency,
            message=message,
        )
