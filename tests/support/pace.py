"""Measures how busy the machine is, for tests that say how soon something happens."""

from __future__ import annotations

import threading
import time


class Pace:
    """Inside this context, measures how much longer a piece of work takes than on a quiet machine: its time divided by its CPU time.

    `assert seconds < 2 * pace.slowdown` means "two seconds on a quiet machine", however busy this machine is.
    """

    BURST, PAUSE = 0.02, 0.1

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._measure, name="pace", daemon=True)
        self._clock = self._processor = 0.0

    def __enter__(self) -> Pace:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def slowdown(self) -> float:
        """How many times longer the work took than on a quiet machine; at least 1."""
        return max(1.0, self._clock / self._processor) if self._processor else 1.0

    def _measure(self) -> None:
        while True:
            began, worked = time.perf_counter(), time.thread_time()
            while time.thread_time() - worked < self.BURST:
                pass
            self._clock += time.perf_counter() - began
            self._processor += time.thread_time() - worked
            if self._ended.wait(self.PAUSE):
                return
