"""Threads that a tool starts by itself, without the tool's context: whose output theirs is.

While a single tool runs, a thread that was not there before is taken for that tool's; so is one that it leaves behind.
With several tools at once nobody can tell, and what such a thread writes falls through to the cell.
"""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from ..core.workers import IDLE_THREAD, TOOL_THREAD

WAITING = "toolloop-late"
"""The name of a thread that waits for those left behind."""
_NOT_LEFT = ("asyncio_", "ThreadPoolExecutor", WAITING, "toolloop-import", "toolloop-show", IDLE_THREAD)
"""Names of threads that stay for other reasons: pools, and what is ours."""

_captures: list[Capture] = []
_owners: WeakKeyDictionary[threading.Thread, Any] = WeakKeyDictionary()


class Capture:
    """One capture on its way, and the threads that were busy before it."""

    def __init__(self, target: Any, outer: Any = None) -> None:
        """`outer` is the target around it: a run's, around that of one of its tools."""
        self.target, self.outer = target, outer
        self.known = WeakSet(thread for thread in threading.enumerate() if thread.name != IDLE_THREAD)
        _captures.append(self)

    def end(self) -> list[threading.Thread]:
        """End it; returns the threads that go on and may write to its target."""
        is_innermost = _innermost() is self
        _captures.remove(self)
        left = [thread for thread in threading.enumerate() if thread not in self.known and _may_write(thread)]
        if is_innermost:
            mine = [thread for thread in left if thread.name != TOOL_THREAD and thread not in _owners]
            _owners.update((thread, self.target) for thread in mine)
        return left


def _innermost() -> Capture | None:
    """The capture that all others are around; None where two go on side by side, or none does."""
    around = {id(capture.outer) for capture in _captures if capture.outer is not capture.target}
    innermost = [capture for capture in _captures if id(capture.target) not in around]
    return innermost[0] if len(innermost) == 1 else None


def wait_for(thread: threading.Thread) -> None:
    """Wait until a thread has ended, or a tool's thread its tool: it goes on to other work then."""
    is_tools = thread.name == TOOL_THREAD
    while thread.is_alive() and (not is_tools or thread.name == TOOL_THREAD):
        thread.join(0.2)


def _may_write(thread: threading.Thread) -> bool:
    """No subclasses: such threads are a library's own (tqdm's monitor), and stay as long as the kernel."""
    return type(thread) in (threading.Thread, threading.Timer) and not thread.name.startswith(_NOT_LEFT)


def target_of(thread: threading.Thread) -> Any:
    """The target of a thread whose context has none, or None."""
    only = _innermost()
    if only is None or thread in _owners:
        return _owners.get(thread)
    foreign = thread.name.startswith("Dummy-")  # not started by Python: the kernel's own
    return None if foreign or thread in only.known else only.target
