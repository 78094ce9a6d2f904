"""The cost of runs: of one turn, and of all turns of this process and its workers, which share a budget."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from ..events import Reply, Span, Usage
from ..models import ModelCall


class Spending:
    """The cost of all runs of this process and its workers, and the budget that they share."""

    def __init__(self) -> None:
        self.budget: float | None = None
        """US dollars for all runs; None means no limit."""
        self.cost = 0.0
        """US dollars, as far as the cost is known."""
        self.usage = Usage()
        self.runs = 0
        """Runs that have called a model."""
        self.untold = 0
        """Runs whose cost is not known, or not completely."""
        self._lock = threading.Lock()

    def add(self, run: Spent, usage: Usage, cost: float) -> None:
        """Count a model call of a run. May be called from any thread."""
        if not usage.calls:
            return
        with self._lock:
            self.cost += cost
            self.usage += usage
            self.runs += not run.is_counted
            is_untold = run.cost is None
            self.untold += is_untold and not run.is_untold
            run.is_counted, run.is_untold = True, is_untold

    def add_run(self, usage: Usage, cost: float | None) -> None:
        """Count a whole run that another process has made. May be called from any thread."""
        if usage.calls:
            with self._lock:
                self.cost += cost or 0.0
                self.usage += usage
                self.runs += 1
                self.untold += cost is None

    @property
    def left(self) -> float | None:
        """US dollars that are left of the budget; None without a budget."""
        return None if self.budget is None else max(0.0, self.budget - self.cost)

    def explain_limit(self) -> str:
        """Say why no further model call is allowed; "" if another one is allowed."""
        if self.budget is None or self.cost < self.budget:
            return ""
        unknown = (
            f"; the cost of {self.untold} of them is not known in full, and not counted"
            if self.untold
            else ""
        )
        return (
            f"the budget of ${self.budget:g} for all runs is used up: ${self.cost:.4f} in {self.runs} run{'s' * (self.runs != 1)}{unknown}. "
            "Raise it to go on: %toolloop --budget USD"
        )


SPENDING = Spending()
"""The spending of this process: a kernel has one budget."""


@dataclass(eq=False)
class Spent:
    """The cost of a turn so far: time, tokens, dollars."""

    started: float = field(default_factory=time.monotonic)
    usage: Usage = Usage()
    cost: float | None = 0.0
    """US dollars; None as soon as the cost of one request is not known."""
    known_cost: float = 0.0
    """The known part of the cost, for `max_cost`."""
    spans: list[Span] = field(default_factory=list)

    is_counted: bool = False
    """True if `spending` counts this turn among its runs."""
    is_untold: bool = False
    """True if `spending` counts this turn among the runs whose cost is unknown, or partly unknown."""
    spending: Spending = field(default_factory=lambda: SPENDING)
    """The spending of all runs, to which this turn is added."""

    def now(self) -> float:
        """Return the seconds since the turn began."""
        return time.monotonic() - self.started

    def add(self, reply: Reply) -> None:
        """Count a model call whose answer came whole."""
        self.usage += reply.usage
        self.cost = None if self.cost is None or reply.cost is None else self.cost + reply.cost
        self.known_cost += reply.known_cost
        self.spending.add(self, reply.usage, reply.known_cost)

    def add_failed(self, call: ModelCall) -> None:
        """Count the requests of a failed or cancelled model call for which no usage came back.

        The provider may bill them, but their cost is not known.
        """
        self.usage += Usage(calls=call.without_usage)
        if call.without_usage and not call.is_free:
            self.cost = None
        self.spending.add(self, Usage(calls=call.without_usage), 0.0)
