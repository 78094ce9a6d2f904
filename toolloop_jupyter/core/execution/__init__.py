"""Running code that is not ours: what it raises is returned, and a cancel can stop its thread."""

from .guard import (
    MISSING,
    Raised,
    attempt_call,
    describe_error,
    explain_error,
    get_message,
    is_exactly,
    shorten_repr,
)
from .runner import (
    FirstItems,
    Outcome,
    RunEnded,
    attempt,
    attempt_apart,
    call_function,
    keep_loop_running,
)
from .threads import IDLE_THREAD, TOOL_THREAD, in_thread

__all__ = [
    "IDLE_THREAD",
    "MISSING",
    "TOOL_THREAD",
    "FirstItems",
    "Outcome",
    "Raised",
    "RunEnded",
    "attempt",
    "attempt_apart",
    "attempt_call",
    "call_function",
    "describe_error",
    "explain_error",
    "get_message",
    "in_thread",
    "is_exactly",
    "keep_loop_running",
    "shorten_repr",
]
