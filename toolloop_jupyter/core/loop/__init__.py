"""The loop: turns, tool calls, permissions, outcomes of calls, structured output, and the configuration of a run."""

from .config import (
    Approver,
    Config,
    Route,
    ToolLoopOptions,
    find_approver,
    find_routes,
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
from .turn import SPENDING, Turn, TurnEnd, make_request, wait_for_import
