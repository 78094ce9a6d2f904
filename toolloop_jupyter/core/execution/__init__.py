"""Running code that is not ours: what it raises is returned, and a cancel can stop its thread."""

from .guard import MISSING, Raised, attempt_call, explain_error, is_exactly, message_of, told, words_of
from .runner import (
    Outcome,
    RunEnded,
    attempt,
    attempt_apart,
    call_function,
    keeping_the_loop,
)
from .threads import IDLE_THREAD, TOOL_THREAD, in_thread

__all__ = [
    "IDLE_THREAD",
    "MISSING",
    "TOOL_THREAD",
    "Outcome",
    "Raised",
    "RunEnded",
    "attempt",
    "attempt_apart",
    "attempt_call",
    "call_function",
    "explain_error",
    "in_thread",
    "is_exactly",
    "keeping_the_loop",
    "message_of",
    "told",
    "words_of",
]
