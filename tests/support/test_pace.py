"""The measure of how busy the machine is."""

from __future__ import annotations

import threading
import time

from support.pace import Pace


def test_work_beside_it_slows_it_down():
    """Threads that compete for the interpreter make the pace slower than it is without them."""
    alone = min(_measure() for _ in range(3))  # other programs only ever make it slower
    ended = threading.Event()
    threads = [threading.Thread(target=_work, args=[ended]) for _ in range(3)]
    for thread in threads:
        thread.start()
    beside = _measure()
    ended.set()
    for thread in threads:
        thread.join()
    assert 1.0 <= alone < beside
    assert beside > 2


def _measure():
    with Pace() as pace:
        time.sleep(0.5)
    return pace.slowdown


def _work(ended):
    while not ended.is_set():
        pass
