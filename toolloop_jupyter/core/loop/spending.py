"""The cost of one turn, and the cost of all runs. The runs of this process and of its worker processes share one budget."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from ..events import Reply, Span, Usage
from ..models import ModelCall


class Spending:
    """The cost and the budget of all runs: those in this process, and those in its worker processes."""

    def __init__(self) -> None:
        self.budget: float | None = None
        """US dollars for all runs; None means no limit."""
        self.cost = 0.0
        """The known part of the cost, in US dollars."""
        self.usage = Usage()
        self.runs = 0
        """The number of runs that have called a model."""
        self.untold = 0
        """The number of runs whose cost is unknown, or only partly known."""
        self._lock = threading.Lock()

    def add(self, run: Spent, usage: Usage, cost: float) -> None:
        """Add a model call of `run` to the totals. May be called from any thread."""
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
        """Add a whole run of another process to the totals. May be called from any thread."""
        if usage.calls:
            with self._lock:
                self.cost += cost or 0.0
                self.usage += usage
                self.runs += 1
                self.untold += cost is None

    @property
    def left(self) -> float | None:
        """The part of the budget that is left, in US dollars; None if there is no budget."""
        return None if self.budget is None else max(0.0, self.budget - self.cost)

    def explain_limit(self) -> str:
        """Return why the budget allows no further model call; "" if a further model call is allowed."""
        if self.budget is None or self.cost < self.budget:
            return ""
        unknown = (
            f"; for {self.untold} of these runs, a part of the cost is unknown and is not counted"
            if self.untold
            else ""
        )
        return (
            f"the budget of ${self.budget:g} for all runs is used up: ${self.cost:.4f} in {self.runs} run{'s' * (self.runs != 1)}{unknown}. "
            "Raise it to go on: %toolloop --budget USD"
        )


SPENDING = Spending()
"""The cost and the budget of all runs of this process. A kernel has only one budget."""


@dataclass(eq=False)
class Spent:
    """The cost of a turn so far: time, tokens, dollars."""

    started: float = field(default_factory=time.monotonic)
    usage: Usage = Usage()
    cost: float | None = 0.0
    """The cost in US dollars; None if the cost of any request is unknown."""
    known_cost: float = 0.0
    """The known part of the cost, for `max_cost`."""
    spans: list[Span] = field(default_factory=list)

    is_counted: bool = False
    """True if `spending` counts this turn among its runs."""
    is_untold: bool = False
    """True if `spending` counts this turn among the runs whose cost is unknown, or partly unknown."""
    spending: Spending = field(default_factory=lambda: SPENDING)
    """The total of all runs. The model calls of this turn are added to the total, too."""

    def now(self) -> float:
        """Return the seconds since the turn began."""
        return time.monotonic() - self.started

    def add(self, reply: Reply) -> None:
        """Add the usage and the cost of a model call with a complete answer."""
        self.usage += reply.usage
        self.cost = None if self.cost is None or reply.cost is None else self.cost + reply.cost
        self.known_cost += reply.known_cost
        self.spending.add(self, reply.usage, reply.known_cost)

    def add_failed(self, call: ModelCall) -> None:
        """After a failed or cancelled model call, add those of its requests that brought no usage.

        The provider may bill these requests, but their cost is unknown.
        """
        self.usage += Usage(calls=call.without_usage)
        if call.without_usage and not call.is_free:
            self.cost = None
        self.spending.add(self, Usage(calls=call.without_usage), 0.0)
