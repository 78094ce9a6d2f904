"""What runs have cost: one turn, and all turns of this process, with the budget that they share."""

from __future__ import annotations

import threading
import time
import weakref
from dataclasses import dataclass, field

from ..events import Reply, Span, Usage
from ..models import ModelCall


class Spending:
    """What all runs of this process have cost, whoever started them, and what they may cost together."""

    def __init__(self) -> None:
        self.budget: float | None = None
        """US dollars for all of them; None is no limit."""
        self.cost = 0.0
        """US dollars, as far as they are told."""
        self.usage = Usage()
        self.runs = 0
        """Runs that have called a model."""
        self.untold = 0
        """Those of them whose cost nobody has told, or not all of it."""
        self._lock = threading.Lock()
        self._seen: weakref.WeakKeyDictionary[Spent, bool] = weakref.WeakKeyDictionary()
        """The runs that were counted, and whether as untold."""

    def add(self, run: Spent, usage: Usage, cost: float) -> None:
        """Count a model call of a run. From any thread."""
        if not usage.calls:
            return
        with self._lock:
            self.cost += cost
            self.usage += usage
            self.runs += run not in self._seen
            is_untold = run.cost is None
            self.untold += is_untold and not self._seen.get(run, False)
            self._seen[run] = is_untold

    @property
    def left(self) -> float | None:
        """US dollars that are left of the budget; None without one."""
        return None if self.budget is None else max(0.0, self.budget - self.cost)

    def explain_limit(self) -> str:
        """Why no further model call may be made, or "" where one may."""
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
"""That of this process: a kernel has one budget."""


@dataclass(eq=False)
class Spent:
    """What a turn has cost so far: time, tokens, dollars."""

    started: float = field(default_factory=time.monotonic)
    usage: Usage = Usage()
    cost: float | None = 0.0
    """US dollars; None as soon as one request's are not known."""
    known_cost: float = 0.0
    """What is known of it, for `max_cost`."""
    spans: list[Span] = field(default_factory=list)

    spending: Spending = field(default_factory=lambda: SPENDING)
    """What it is a part of: that of all runs."""

    def now(self) -> float:
        """Seconds since the turn began."""
        return time.monotonic() - self.started

    def add(self, reply: Reply) -> None:
        """Count a model call that came back whole."""
        self.usage += reply.usage
        self.cost = None if self.cost is None or reply.cost is None else self.cost + reply.cost
        self.known_cost += reply.known_cost
        self.spending.add(self, reply.usage, reply.known_cost)

    def add_untold(self, call: ModelCall) -> None:
        """Count a call that was cut: it has been made, and is paid for, though nobody tells how much it was."""
        self.usage += Usage(calls=call.untold)
        if call.untold and not call.is_free:
            self.cost = None
        self.spending.add(self, Usage(calls=call.untold), 0.0)
