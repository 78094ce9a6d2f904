"""Limits the speed and the cost of the model calls of a rows run. All rows of the run share one `Pace`.

Only one row at a time may call the same tool, unless the tool has `parallel=True`. Only one row at a time may ask the
person.

The speed is controlled as in TCP congestion control. If calls come too fast, the provider refuses a call (status 429 or
529). Then all rows pause for the time that the provider states, and the allowed number of simultaneous calls is halved. Each
answered call lets this number grow again. It grows slowly, because the provider would soon refuse calls again.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

from ..events import Gate
from ..tools import identify
from .job import RunState

TOO_FAST = frozenset({429, 529})
FINAL = frozenset({401, 402, 403, 404})
"""HTTP statuses for a wrong API key, account, permission or model name. If one row gets such a status, every row would get it."""
OUT_OF_QUOTA = ("insufficient_quota", "exceeded your current quota", "billing")
"""If the message of a 429 error contains one of these texts, a pause does not help. All texts are in lower case."""
LONGEST_PAUSE = 30.0
"""The longest pause in seconds, if the provider does not say how long to wait."""
MOST_PAUSES = 8
"""The largest number of pauses without an answered call between them. After so many pauses, the next refused call ends the
run."""
GROWTH = 0.25
"""Each answered call adds GROWTH / limit to `Pace.limit`. So if the limit is 8, eight answered calls add about GROWTH."""


class Pace(Gate):
    """The gate of a rows run. All its methods are called on one event loop."""

    retries = 2

    def __init__(self, concurrency: int, max_cost: float | None, state: RunState) -> None:
        self._concurrency, self._max_cost, self._state = concurrency, max_cost, state
        self.limit = float(concurrency)
        """The number of model calls that may be under way at the same time."""
        self.under_way = 0
        self.cost = 0.0
        """The known part of the cost so far, in US dollars."""
        self._resume_at = 0.0
        self._older = 0
        """The number of calls that were under way when the last pause began and have not ended yet."""
        self._pauses = 0
        self._entering = asyncio.Lock()
        """The first call in the queue holds this lock, and waits for `_changed`."""
        self._changed = asyncio.Event()
        self._locks: defaultdict[object, asyncio.Lock] = defaultdict(asyncio.Lock)
        """Identity of a tool's function (see `identify`) -> lock. The identity stays valid, because the run keeps all functions
        alive. The lock for questions to the person is stored under None."""

    @property
    def pause(self) -> float:
        """Seconds until model calls are sent again; 0.0 if there is no pause."""
        return max(0.0, self._resume_at - time.monotonic())

    def find_limit(self) -> str:
        if self._max_cost is None or self.cost < self._max_cost:
            return ""
        return f"stopped at ${self.cost:.4f}: max_cost is ${self._max_cost} for all rows"

    def add_cost(self, cost: float) -> None:
        self.cost += cost

    async def enter(self) -> None:
        async with self._entering:
            while self.pause or self.under_way >= int(self.limit):
                self._changed.clear()
                await self._changed.wait()
            self.under_way += 1

    def leave(
        self, status: int | None = None, wait: float | None = None, message: str = "", *, is_last: bool = True
    ) -> float | None:
        self.under_way -= 1
        is_older, self._older = self._older > 0, max(0, self._older - 1)
        pause = None
        if status == 200:
            self._pauses = 0
            self.limit = min(float(self._concurrency), self.limit + GROWTH / self.limit)
        elif status in FINAL or (status == 429 and any(text in message.lower() for text in OUT_OF_QUOTA)):
            self._state.is_final |= is_last
        elif status in TOO_FAST:
            pause = self._slow_down(wait or None, is_older=is_older, is_last=is_last)
        self._changed.set()
        return pause

    def _slow_down(self, wait: float | None, *, is_older: bool, is_last: bool) -> float | None:
        """Pause all rows, and halve the number of simultaneous calls. Return the pause in seconds; None after too many pauses.

        The number is not halved during a pause. It is not halved either if `is_older` is True: then the refused call was
        already under way when the last pause began.
        """
        if not (self.pause or is_older):
            self._older = self.under_way
            self._pauses += 1
            self.limit = max(1.0, self.limit / 2)
        if self._pauses > MOST_PAUSES:
            self._state.is_final |= is_last
            return None
        seconds = min(LONGEST_PAUSE, 0.5 * 2 ** (self._pauses - 1)) if wait is None else wait
        if (until := time.monotonic() + seconds) > self._resume_at:
            self._resume_at = until
            asyncio.get_running_loop().call_later(seconds + 0.001, self._changed.set)
        return seconds

    def use_tool(
        self, function: Callable[..., object], *, parallel: bool
    ) -> AbstractAsyncContextManager[object]:
        return nullcontext() if parallel else self._locks[identify(function)]

    @asynccontextmanager
    async def ask_person(self) -> AsyncIterator[None]:
        """Wait until this row may ask the person. Until the block ends, other rows that want to ask wait."""
        self._state.count_asking(1)
        try:
            async with self._locks[None]:
                yield
        finally:
            self._state.count_asking(-1)
