"""The points of a run at which a test presses ■, and how the test gets there. For the tests of interrupts on each stack."""

from __future__ import annotations

import time

from support.servers import answer, calls
from support.stack_cells import wait_until_begun

POINTS = {
    "silent model": ([{**answer("late"), "stall": 20}], ""),
    "streaming": ([{**answer("word " * 300), "delay": 0.1}], ""),
    "async tool": ([calls(("waits", {"s": 300}))], "waits"),
    "sync tool": ([calls(("naps", {"s": 300}))], "naps"),
    "deaf tool": ([calls(("sleeps", {"s": 5}))], "sleeps"),
    "approval": ([calls(("double", {"x": 7}))], "double"),
    "twice": ([calls(("double", {"x": 7}))], "double"),
    "twice at once": ([calls(("double", {"x": 7}))], "double"),
}
ASKS = ("approval", "twice", "twice at once")
NOTES = {
    "sync tool": "the tool 'naps' was stopped",
    "deaf tool": "the tool 'sleeps' could not be stopped and runs on in the background",
}


def arrive(kernel, server, cell, point):
    """Wait until the run is at its point."""
    server.wait_for_requests(1)
    if point in ASKS:
        kernel.button("Approve")
        kernel.settle(0.2)
    elif point == "streaming":
        kernel.wait_until(lambda: "word word" in cell.html)
    elif tool := POINTS[point][1]:
        wait_until_begun(kernel, tool)
    else:
        kernel.settle(0.5)


def press(kernel, point):
    kernel.interrupt()
    if point.startswith("twice"):
        # Nothing is read between them: the two interrupts must come shortly after each other.
        time.sleep(0.1 if point == "twice" else 0.02)
        kernel.interrupt()
    return time.monotonic()
