"""Who may let a call run: the permission policy, and what was allowed for good."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from .errors import CapabilityUnsupported
from .events import Approval, Decision
from .running import attempt, in_thread

if TYPE_CHECKING:
    from .tools import BoundCall, Tool

Mode: TypeAlias = Literal["full", "ask", "deny"]
Policy: TypeAlias = "Mode | Mapping[str, Mode] | Callable[[PolicyCall], object]"
ApprovalHandler: TypeAlias = Callable[[Approval], "bool | None | Awaitable[bool | None]"]

_STRICTNESS = {"full": 0, "ask": 1, "deny": 2}
SAME_DENIALS = 3
"""A call that was denied this often in a turn is refused without asking again."""


@dataclass(frozen=True)
class PolicyCall:
    """What a policy callable sees of a validated call."""

    name: str
    input: Mapping[str, object]


def check_policy(policy: object) -> None:
    """Raise for a `permissions=` that is none, naming what would be."""
    if isinstance(policy, str):
        if policy in ("read-only", "edit"):
            raise CapabilityUnsupported(
                f"Harness.TOOL_LOOP does not support permissions={policy!r}; supported: ['ask', 'full']"
            )
        if policy not in _STRICTNESS:
            raise ValueError(
                f"permissions must be 'full', 'ask', or a mapping of tool names to them, got {policy!r}"
            )
        return
    if isinstance(policy, Mapping):
        for name, mode in policy.items():
            if mode not in _STRICTNESS:
                raise ValueError(f"permissions[{name!r}] must be 'full', 'ask' or 'deny', got {mode!r}")
        return
    if not callable(policy):
        raise ValueError(f"permissions must be 'full', 'ask', a mapping or a callable, got {policy!r}")


def asks_sometimes(policy: object) -> bool:
    """Whether the policy itself says "ask" for everything, as LiteLLM's `permissions="ask"` does."""
    return policy == "ask"


def _policy_mode(policy: Any, call: BoundCall) -> tuple[Mode, str]:
    if isinstance(policy, Mapping):
        key = call.tool.name if call.tool.name in policy else "*"
        if key not in policy:  # a tool that a policy forgot is asked about, not let through
            return "ask", f"permissions name neither {call.tool.name!r} nor '*'"
        return _mode(policy[key]), f"permissions[{key!r}] is {policy[key]!r}"
    if isinstance(policy, str):
        return _mode(policy), f"permissions are {policy!r}"
    answer = policy(PolicyCall(call.tool.name, call.json))
    return _mode(answer), f"the permissions callable answered {answer!r}"


def _mode(answer: object) -> Mode:
    """A mode from a mode's name or a bool; anything else asks."""
    named = {True: "full", False: "deny"}.get(answer) if isinstance(answer, bool) else answer
    return named if named in ("full", "deny") else "ask"


async def decide(policy: Any, call: BoundCall) -> tuple[Mode, str]:
    """(mode, why) for a validated call: the strictest of the run's policy and the tool's own setting.

    A policy callable that raises, or answers something else than a mode or a bool, means "ask".
    """

    async def ask_policy() -> tuple[Mode, str]:
        return _policy_mode(policy, call)

    outcome = await attempt(ask_policy())
    mode: Mode = "ask"
    why = f"the permissions callable raised {outcome.error!r}"
    if outcome.error is None:
        mode, why = outcome.value
    own = call.tool.settings.permissions
    if own is not None and _STRICTNESS[own] >= _STRICTNESS[mode]:
        return own, f"the tool's own permissions are {own!r}"
    return mode, why


@dataclass
class Allowed:
    """What a person allowed for more than one call: by the tool's name *and* the very function it was."""

    functions: dict[str, Callable[..., Any]] = field(default_factory=dict)

    def remember(self, tool: Tool) -> None:
        self.functions[tool.name] = tool.function

    def covers(self, tool: Tool) -> bool:
        return tool.name in self.functions and self.functions[tool.name] == tool.function


async def ask_handler(handler: ApprovalHandler, approval: Approval) -> None:
    """Let `on_approval` decide: a sync one in a thread, an async one awaited; one that raises denies (as LiteLLM)."""
    is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)
    )  # noqa: B004 - its kind, not whether
    answer: Awaitable[Any] = handler(approval) if is_async else in_thread(lambda: handler(approval))  # type: ignore[assignment]
    outcome = await attempt(answer)
    if outcome.error is None and inspect.isawaitable(outcome.value):
        outcome = await attempt(outcome.value)
    if outcome.error is not None:
        approval.deny(f"on_approval raised: {outcome.error}", by="callback")
    elif outcome.value:
        approval.allow(by="callback")
    else:
        approval.deny("denied by on_approval", by="callback")


async def wait_for(approval: Approval, handler: ApprovalHandler | None) -> Decision:
    """The decision on `approval`: asked of the handler, or awaited from whoever reads the stream."""
    asking = asyncio.ensure_future(ask_handler(handler, approval)) if handler is not None else None
    try:
        await approval.wait()
    finally:
        if asking is not None and not asking.done():
            asking.cancel()
        approval.deny("the turn ended before a decision", by="stop")  # only counts when nobody has decided
    decision = approval.decision
    assert decision is not None  # noqa: S101 - wait() returns after the decision only
    return decision


def refusal(decision: Decision) -> str:
    """What the model is told of a denial. It says that this was a decision: models repeat what looks like a failure."""
    who = {
        "unattended": "denied",
        "policy": "denied by the notebook's permissions",
        "callback": "denied",
    }.get(decision.by, "denied by the user")
    reason = f": {decision.reason}" if decision.reason else ""
    return f"{who}{reason}. This was a decision, not a failure: do not repeat the same call."
