"""The time limit of a run. Some waits do not count, such as the wait for an import that happens once in a process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, Token

_limits: ContextVar[tuple[TimeLimit, ...]] = ContextVar("toolloop_time_limits", default=())
"""The limits of the runs that contain the present code. A tool of a run may begin another run, which has a limit, too."""
_AGAIN = 0.01
"""The least seconds until a limit looks at the time again."""


class TimeLimit:
    """Calls `reached` on the event loop when the `with` block has lasted for `seconds`, without the time in `uncounted()`."""

    def __init__(self, seconds: float | None, reached: Callable[[], None]) -> None:
        """If `seconds` is None, there is no limit. The time is that of the running event loop."""
        self._seconds, self._reached = seconds, reached
        self._lock = threading.Lock()  # a tool's thread may wait, too
        self._waits = 0
        """How many waits that do not count go on now."""
        self._left, self._since = 0.0, 0.0
        """The seconds that were left at the time `_since`: when the time was stopped or began to run on."""
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._token: Token[tuple[TimeLimit, ...]] | None = None

    def __enter__(self) -> None:
        if self._seconds is not None:
            self._left, self._since = self._seconds, self._now()
            self._timer = self._loop.call_later(self._seconds, self._look)
            self._token = _limits.set((*_limits.get(), self))

    def __exit__(self, *_: object) -> None:
        if self._timer is not None and self._token is not None:
            self._timer.cancel()
            self._reached = (
                _do_nothing  # a task that the block leaves behind keeps this object, and nothing of the run
            )
            with suppress(ValueError):  # the collector may close a coroutine in another context
                _limits.reset(self._token)

    def count_wait(self, change: int) -> None:
        """Stop the time at the first wait (`change` is 1), and let it run on after the last (`change` is -1)."""
        with self._lock:
            if not self._waits:
                self._left -= self._now() - self._since
            self._waits += change
            self._since = self._now()

    def _now(self) -> float:
        return self._loop.time()

    def _look(self) -> None:
        with self._lock:
            left = self._left - (0.0 if self._waits else self._now() - self._since)
            is_over = left <= 0 and not self._waits
        if is_over:
            self._reached()
        else:
            self._timer = self._loop.call_later(max(left, _AGAIN), self._look)


def _do_nothing() -> None:
    pass


@contextmanager
def uncounted() -> Iterator[None]:
    """Return a context. The time inside it does not count for any `TimeLimit` around it."""
    limits = _limits.get()
    for limit in limits:
        limit.count_wait(1)
    try:
        yield
    finally:
        for limit in limits:
            limit.count_wait(-1)
