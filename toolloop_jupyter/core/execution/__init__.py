"""Run foreign code (code outside of this package), return its exceptions, and stop its threads after a cancel."""

from .guard import (
    MISSING,
    Raised,
    attempt_call,
    describe_error,
    explain_error,
    get_message,
    is_exactly,
    list_inner,
    shorten_repr,
)
from .runner import (
    IDLE_THREAD,
    STOP_LOCK,
    TOOL_THREAD,
    FirstItems,
    Outcome,
    RunEnded,
    TimeLimit,
    ToolTimeout,
    attempt,
    attempt_apart,
    keep_loop_running,
    run_function,
    run_in_thread,
    uncounted,
)
