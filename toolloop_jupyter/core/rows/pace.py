"""What the rows of a run share: how fast they ask the provider, what they may cost, whose turn it is with a tool and a person.

Congestion is met as TCP meets it: a refusal for being too fast (429, 529) pauses all rows as long as the provider asks and
halves the number of calls under way; each call that is answered lets it grow again, slowly at first: what a provider has
refused a moment ago it would refuse again.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

from ..events import Gate

TOO_FAST = frozenset({429, 529})
FINAL = frozenset({401, 402, 403, 404})
"""Statuses that every row would get: a key, a bill, a right, a name."""
OUT_OF_QUOTA = ("insufficient_quota", "exceeded your current quota", "billing")
"""What is in the text of a 429 that no pause mends, in lower case."""
LONGEST_PAUSE = 30.0
"""Seconds, where the provider does not say for how long."""
MOST_PAUSES = 8
"""Pauses in a row without an answer between them, after which the run ends."""


GROWTH = 0.25
"""Calls by which the concurrency grows while as many are answered as may be under way; by one after `CALM`."""
CALM = 60.0
"""Seconds without a refusal."""


class Pace(Gate):
    """The gate of a rows run. On one loop."""

    retries = 2

    def __init__(
        self, concurrency: int, max_cost: float | None, on_change: Callable[[], object] = lambda: None
    ) -> None:
        """`on_change` is called when the pause, the concurrency or the number of rows that wait for a person is another."""
        self.most, self._max_cost, self._on_change = concurrency, max_cost, on_change
        self.limit = float(concurrency)
        """Model calls that may be under way at once."""
        self.under_way = 0
        self.cost = 0.0
        """US dollars so far, as far as they are known."""
        self.asking = 0
        """Rows that wait for a person, or for their turn to ask."""
        self.is_final = False
        """Whether a call was refused in a way that every other would be, too."""
        self._resume_at = 0.0
        self._older = 0
        """Calls that were under way when the last pause began."""
        self._pauses = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._tools: dict[object, asyncio.Lock] = {}
        """By what tells a tool's function; the run has the functions."""
        self._person = asyncio.Lock()

    @property
    def pause(self) -> float:
        """Seconds until model calls go out again; 0.0 when they do."""
        return max(0.0, self._resume_at - time.monotonic())

    def find_limit(self) -> str:
        if self._max_cost is None or self.cost < self._max_cost:
            return ""
        return f"stopped at ${self.cost:.4f}: max_cost is ${self._max_cost} for all rows"

    def add_cost(self, cost: float) -> None:
        self.cost += cost

    def ends_all(self) -> bool:
        """Whether no other call would be answered, either."""
        return self.is_final

    async def enter(self) -> None:
        if not self._waiting and self.under_way < int(self.limit) and not self.pause:
            self.under_way += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it was let in and cut at the same moment
                self.under_way -= 1
                self._let_in()
            raise

    def _let_in(self) -> None:
        while self._waiting and self.under_way < int(self.limit) and not self.pause:
            turn = self._waiting.popleft()
            if not turn.done():
                self.under_way += 1
                turn.set_result(None)

    def leave(
        self, status: int | None = None, wait: float | None = None, said: str = "", *, is_last: bool = True
    ) -> float | None:
        self.under_way -= 1
        is_older, self._older = self._older > 0, max(0, self._older - 1)
        pause = None
        if status == 200:
            self._pauses = 0
            growth = 1.0 if time.monotonic() - self._resume_at > CALM else GROWTH
            self.limit = min(float(self.most), self.limit + growth / self.limit)
        elif status in FINAL or (status == 429 and any(text in said.lower() for text in OUT_OF_QUOTA)):
            self.is_final = self.is_final or is_last
        elif status in TOO_FAST:
            pause = self._slow_down(wait or None, is_older=is_older, is_last=is_last)
        self._let_in()
        return pause

    def _slow_down(self, wait: float | None, *, is_older: bool, is_last: bool) -> float | None:
        """Pause all; calls that were under way when a pause began, however short, do not halve the concurrency again."""
        if not (self.pause or is_older):
            self._older = self.under_way
            self._pauses += 1
            self.limit = max(1.0, self.limit / 2)
        if self._pauses > MOST_PAUSES:
            self.is_final = self.is_final or is_last
            return None
        seconds = min(LONGEST_PAUSE, 0.5 * 2 ** (self._pauses - 1)) if wait is None else wait
        if (until := time.monotonic() + seconds) > self._resume_at:
            self._resume_at = until
            asyncio.get_running_loop().call_later(seconds + 0.001, self._resume)
        self._on_change()
        return seconds

    def _resume(self) -> None:
        if not self.pause:
            self._let_in()
            self._on_change()

    def use_tool(self, function: object, *, parallel: bool) -> AbstractAsyncContextManager[object]:
        return nullcontext() if parallel else self._tools.setdefault(function, asyncio.Lock())

    @asynccontextmanager
    async def ask_person(self) -> AsyncIterator[None]:
        self.asking += 1
        try:
            if self._person.locked():
                self._on_change()
            async with self._person:
                yield
        finally:
            self.asking -= 1
            self._on_change()
