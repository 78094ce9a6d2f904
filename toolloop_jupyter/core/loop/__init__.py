"""The loop: a turn, a call, permissions, outcomes, structured output, and the configuration they run with."""

from .config import PROXY, Approver, Config, ToolLoopOptions, approver_of, may_ask, route
from .loop import TurnCancelled, run_turn
from .output import Output
from .permissions import (
    Allowed,
    ApprovalHandler,
    Permissions,
    asks_always,
    check_names,
    check_policy,
)
from .turn import Turn, TurnEnd, make_request

__all__ = [
    "PROXY",
    "Allowed",
    "ApprovalHandler",
    "Approver",
    "Config",
    "Output",
    "Permissions",
    "ToolLoopOptions",
    "Turn",
    "TurnCancelled",
    "TurnEnd",
    "approver_of",
    "asks_always",
    "check_names",
    "check_policy",
    "make_request",
    "may_ask",
    "route",
    "run_turn",
]
