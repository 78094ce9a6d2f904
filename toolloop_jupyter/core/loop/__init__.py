"""The loop: turns, tool calls, permissions, outcomes of calls, structured output, and the configuration of a run."""

from .config import (
    Approver,
    Config,
    Route,
    ToolLoopOptions,
    asks_nobody,
    find_approver,
    find_fallbacks,
    find_route,
    may_ask,
    read_gateway,
)
from .loop import TurnCancelled, run_turn
from .output import Output
from .permissions import (
    Allowed,
    ApprovalHandler,
    Permissions,
    check_names,
    check_policy,
    read_mode,
)
from .spending import SPENDING
from .turn import Turn, TurnEnd, make_request, wait_for_import
