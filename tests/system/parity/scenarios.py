"""The table of scenarios that both implementations run."""

from __future__ import annotations

from system.parity.scenarios_edges import EDGES
from system.parity.scenarios_requests import REQUESTS
from system.parity.scenarios_tools import APPROVALS, TOOL_CALLS
from system.parity.scenarios_turns import ENDS, OUTPUTS, REFUSED
from system.parity.sides import Scenario

SCENARIOS: list[Scenario] = [*TOOL_CALLS, *APPROVALS, *OUTPUTS, *ENDS, *REQUESTS, *REFUSED, *EDGES]
