"""Who may let a call run: the permission policy, and what was allowed for good."""

from __future__ import annotations

import asyncio
import dataclasses
import difflib
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from .errors import CapabilityUnsupported
from .events import Approval, Decision
from .hiding import hide_in_repr
from .running import attempt, attempt_apart
from .signatures import python_name
from .versions import Version
from .workers import in_thread

if TYPE_CHECKING:
    from .tools import BoundCall, Tool

Mode: TypeAlias = Literal["full", "ask", "deny"]
Policy: TypeAlias = "Mode | Mapping[str, Mode] | Callable[[PolicyCall], object]"
ApprovalHandler: TypeAlias = Callable[[Approval], "bool | Awaitable[bool | None] | None"]

_STRICTNESS = {"full": 0, "ask": 1, "deny": 2}
SAME_DENIALS = 3
"""A call that was denied this often in a turn is refused without asking again."""


@hide_in_repr
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


def check_names(policy: object, tools: Sequence[Tool]) -> None:
    """Raise ValueError for a rule with the name of a tool of this run misspelt, where the tool would be freer than it says.

    A mapping may serve many runs, so a rule for a tool that this run does not have is none of its business. But with
    `{"delte": "ask", "*": "full"}` a run with `delete` would run it unasked. A tool with a rule of its own is not meant.
    """
    if not isinstance(policy, Mapping):
        return
    known = {tool.name for tool in tools}
    otherwise = policy.get("*", "ask")
    for key, mode in policy.items():
        if key in known or key == "*" or _STRICTNESS[mode] <= _STRICTNESS[otherwise]:
            continue
        meant = next((tool.name for tool in tools if tool.name not in policy and _may_mean(key, tool)), None)
        if meant is None:
            continue
        instead = f"permissions['*'], which is {otherwise!r}," if "*" in policy else "'ask'"
        raise ValueError(
            f"permissions[{key!r}] is {mode!r}, but no tool of this run has that name: did you mean {meant!r}? (as it "
            f"stands, {instead} would hold for {meant!r}; if another tool is meant, write a rule for {meant!r}, too)"
        )


def _may_mean(key: object, tool: Tool) -> bool:
    """Whether a rule's key is a slip for this tool: its Python name, a dotted name of it, or a typo."""
    names = (tool.name, tool.wire_name, python_name(tool.function))
    text = str(key)
    return any(text.rpartition(".")[2] == name or _is_typo(text, name) for name in names)


def _is_typo(typed: str, name: str) -> bool:
    """Compare word by word: of `read_file` and `delete_file` half the letters are the same, and one is not meant by the other."""
    one, other = (re.findall(r"[^\W_]+", text.casefold()) for text in (typed, name))
    if "".join(one) == "".join(other):
        return True
    return len(one) == len(other) and all(
        difflib.SequenceMatcher(None, *pair).ratio() >= 0.75 for pair in zip(one, other, strict=True)
    )


def asks_sometimes(policy: object) -> bool:
    """Whether the policy itself says "ask" for everything, as LiteLLM's `permissions="ask"` does."""
    return policy == "ask"


async def _policy_mode(policy: Any, call: BoundCall) -> tuple[Mode, str]:
    if isinstance(policy, Mapping):
        key = call.tool.name if call.tool.name in policy else "*"
        if key not in policy:  # a tool that a policy forgot is asked about, not let through
            return "ask", f"permissions name neither {call.tool.name!r} nor '*'"
        return _mode(policy[key]), f"permissions[{key!r}] is {policy[key]!r}"
    if isinstance(policy, str):
        return _mode(policy), f"permissions are {policy!r}"
    answer = policy(PolicyCall(call.tool.name, call.json))
    if inspect.isawaitable(answer):
        answer = await answer
    return _mode(answer), f"the permissions callable answered {answer!r}"


def _mode(answer: object) -> Mode:
    """A mode from a mode's name or a bool; anything else asks."""
    named = {True: "full", False: "deny"}.get(answer) if isinstance(answer, bool) else answer
    return named if named in ("full", "deny") else "ask"


async def decide(policy: Any, call: BoundCall) -> tuple[Mode, str]:
    """(mode, why) for a validated call: the strictest of the run's policy and the tool's own setting.

    A policy callable that raises, or answers something else than a mode or a bool, means "ask".
    """
    outcome = await attempt(_policy_mode(policy, call))
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

    _kept: dict[str, tuple[Version, Decision, int]] = field(default_factory=dict)

    def remember(self, tool: Tool, decision: Decision, turn: int) -> None:
        """Let later calls of `tool` run by this decision, which was made in turn number `turn` of the session."""
        self._kept[tool.name] = (
            Version.of(tool.function),
            dataclasses.replace(decision, arguments=None),
            turn,
        )

    def decision_on(self, tool: Tool) -> Decision | None:
        """The decision that covers a call of `tool`; None when a person has to be asked."""
        kept = self._kept.get(tool.name)
        return kept[1] if kept is not None and kept[0].is_still(Version.of(tool.function)) else None

    def copy(self) -> Allowed:
        """What is allowed now, for later."""
        return Allowed(dict(self._kept))

    def forget_from(self, turn: int) -> None:
        """Take back what was allowed in this turn and later ones: they are taken back themselves."""
        self._kept = {name: kept for name, kept in self._kept.items() if kept[2] < turn}


async def ask_handler(handler: ApprovalHandler, approval: Approval) -> None:
    """Let `on_approval` decide: a sync one in a thread, an async one awaited; one that raises denies (as LiteLLM).

    Only True allows: a text such as "n" (of an `input()`) is true for Python, and no approval.
    """
    call: Any = getattr(type(handler), "__call__", None)  # noqa: B004 - its kind is asked, not whether it is there
    is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)
    answer: Awaitable[Any] = handler(approval) if is_async else in_thread(lambda: handler(approval))  # type: ignore[assignment]
    outcome = await attempt_apart(answer)
    if outcome.error is None and inspect.isawaitable(outcome.value):
        outcome = await attempt_apart(outcome.value)
    if outcome.error is not None:
        approval.deny(f"on_approval raised: {outcome.error}", by="callback")
    elif outcome.value is True:
        approval.allow(by="callback")
    elif outcome.value is None or outcome.value is False:
        approval.deny("denied by on_approval", by="callback")
    else:
        given = type(outcome.value).__name__
        approval.deny(f"on_approval gave a value of type {given}; only True allows", by="callback")


HANDLER_GRACE = 1.0
"""Seconds that a handler which is no longer asked gets to clean up."""


async def wait_for(approval: Approval, handler: ApprovalHandler | None) -> Decision:
    """The decision on `approval`: asked of the handler, or awaited from whoever reads the stream."""
    asking = asyncio.ensure_future(ask_handler(handler, approval)) if handler is not None else None
    try:
        await approval.wait()
    finally:
        approval.deny("the turn ended before a decision", by="stop")  # only counts when nobody has decided
        if asking is not None and not asking.done():
            asking.cancel()
            # A card is taken down now: after a sync run nobody may turn the loop again before the next cell.
            await asyncio.wait({asking}, timeout=HANDLER_GRACE)
    decision = approval.decision
    assert decision is not None
    return decision


def refusal(decision: Decision) -> str:
    """What the model is told of a denial: that somebody decided it, or that nobody could. Models repeat what looks like a failure."""
    who = {
        "unattended": "denied",
        "policy": "denied by the notebook's permissions",
        "callback": "denied",
    }.get(decision.by, "denied by the user")
    reason = f": {decision.reason}" if decision.reason else ""
    why = (
        "Nobody could be asked about it"
        if decision.by == "unattended"
        else "This was a decision, not a failure"
    )
    return f"{who}{reason}. {why}: do not repeat the same call."
