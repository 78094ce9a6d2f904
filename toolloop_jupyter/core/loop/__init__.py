"""The loop: turns, tool calls, permissions, outcomes of calls, structured output, and the configuration of a run."""

from .config import (
    Approver,
    Config,
    Limits,
    Route,
    ToolLoopOptions,
    find_approver,
    find_routes,
    read_gateway,
)
from .loop import TurnCancelled, run_turn
from .output import Output
from .permissions import (
    Allowed,
    ApprovalHandler,
    Approvals,
    Permissions,
    check_names,
    check_policy,
    read_mode,
)
from .turn import SPENDING, Turn, TurnEnd, make_request, wait_for_import
