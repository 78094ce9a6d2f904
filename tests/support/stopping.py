"""Stops a turn at one of its suspensions."""

from __future__ import annotations


class StopAt:
    """Counts the suspensions of coroutines. At a chosen one of them, calls `stop` before the coroutine goes on."""

    def __init__(self, number, stop):
        self._number, self._stop = number, stop
        self._count = 0

    def suspended(self):
        self._count += 1
        if self._count == self._number:
            self._stop()


class Counted:
    """Runs a coroutine. `stop_at` counts its suspensions."""

    def __init__(self, work, stop_at):
        self._work, self._stop_at = work, stop_at

    def __await__(self):
        inner = self._work.__await__()
        value, raised = None, None
        while True:
            try:
                future = inner.throw(raised) if raised is not None else inner.send(value)
            except StopIteration as end:
                return end.value
            self._stop_at.suspended()
            try:
                value, raised = (yield future), None
            except BaseException as error:
                value, raised = None, error


async def awaited(awaitable):
    return await awaitable
