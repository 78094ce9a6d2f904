"""The table of scenarios that both implementations run."""

from __future__ import annotations

from parity.scenarios_edges import EDGES
from parity.scenarios_requests import REQUESTS
from parity.scenarios_tools import APPROVALS, TOOL_CALLS
from parity.scenarios_turns import ENDS, OUTPUTS, REFUSED
from parity.sides import Scenario

SCENARIOS: list[Scenario] = [*TOOL_CALLS, *APPROVALS, *OUTPUTS, *ENDS, *REQUESTS, *REFUSED, *EDGES]
