"""The loop: a turn, a call, permissions, outcomes, structured output, and the configuration they run with."""

from .config import PROXY, Approver, Config, ToolLoopOptions, approver_of, may_ask, route
from .loop import output_in_words, run_turn
from .output import Output
from .permissions import (
    Allowed,
    ApprovalHandler,
    asks_always,
    check_names,
    check_policy,
)
from .turn import Turn, TurnEnded, make_request

__all__ = [
    "PROXY",
    "Allowed",
    "ApprovalHandler",
    "Approver",
    "Config",
    "Output",
    "ToolLoopOptions",
    "Turn",
    "TurnEnded",
    "approver_of",
    "asks_always",
    "check_names",
    "check_policy",
    "make_request",
    "may_ask",
    "output_in_words",
    "route",
    "run_turn",
]
