"""The measure of how busy the machine is."""

from __future__ import annotations

import threading
import time

from support.pace import Pace


def test_work_beside_it_slows_it_down():
    """Threads that compete for the interpreter make the pace slower than it is without them."""
    with Pace() as alone:
        time.sleep(0.5)
    ended = threading.Event()
    threads = [threading.Thread(target=_work, args=[ended]) for _ in range(3)]
    for thread in threads:
        thread.start()
    with Pace() as beside:
        time.sleep(0.5)
    ended.set()
    for thread in threads:
        thread.join()
    assert 1.0 <= alone.slowdown < beside.slowdown
    assert beside.slowdown > 2


def _work(ended):
    while not ended.is_set():
        pass
