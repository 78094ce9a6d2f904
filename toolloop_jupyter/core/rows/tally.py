"""What has come of the rows so far: counted, and in the table's order."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

from .values import Row, RowsProgress

SHOWN_LAST = 3
RATE_OF = 50
"""Rows that ended last, of which the rate is told."""


@dataclass
class Tally:
    """The rows that have ended, and how many are what."""

    total: int | None = None
    began: float = field(default_factory=time.monotonic)
    ended: dict[int, Row] = field(default_factory=dict)
    """By number, in the order in which they ended."""
    cut: list[Row] = field(default_factory=list)
    """Rows that a stop cut in the middle."""
    failed: int = 0
    from_store: int = 0
    again: int = 0
    tokens: int = 0
    cost: float = 0.0
    seconds: float | None = None
    """How long it took; None while it goes on."""
    last: deque[Row] = field(default_factory=lambda: deque(maxlen=SHOWN_LAST))
    _ends: deque[float] = field(default_factory=lambda: deque(maxlen=RATE_OF))

    def start(self) -> None:
        """The run begins now."""
        self.began = time.monotonic()

    def stop(self) -> None:
        """It has ended."""
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
        """The rows in the table's order."""
        return dict(sorted(self.ended.items()))

    def _find_rate(self) -> float:
        """Rows a second: of those that ended last, or since the beginning while there are few."""
        since = self._ends[0] if len(self._ends) == RATE_OF else self.began
        seconds = (self._ends[-1] if self._ends else self.began) - since
        return (len(self._ends) - (len(self._ends) == RATE_OF)) / seconds if seconds > 0 else 0.0

    def report(
        self, *, running: int, pause: float = 0.0, concurrency: int = 0, message: str = ""
    ) -> RowsProgress:
        """How far it is."""
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
