"""Who may let a call run: the permission policy, and what was allowed for good."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import difflib
import inspect
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..events import Approval, CapabilityUnsupported, Decision
from ..execution import (
    RunEnded,
    attempt,
    attempt_apart,
    describe_error,
    get_message,
    in_thread,
    is_exactly,
    shorten_repr,
)
from ..text import hide_in_repr
from ..tools import Version, get_python_name

if TYPE_CHECKING:
    from ..tools import BoundCall, Tool


Mode: TypeAlias = Literal["full", "ask", "deny"]
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


def mode_of(answer: object) -> Mode | None:
    """The mode that user code's answer means; None for one that means none.

    Only an exact text or bool counts. Any other object says itself what it is equal to and whether it is true (a NumPy
    array of one text, a subclass of `str`), so it is never compared.
    """
    if type(answer) is bool:
        return "full" if answer else "deny"
    return answer if is_exactly(answer, *_STRICTNESS) else None  # type: ignore[return-value]


def check_policy(policy: object) -> None:
    """Raise for a `permissions=` that is none, naming what would be."""
    if isinstance(policy, str) and type(policy) is not str:
        raise ValueError(
            f"permissions must be plain text, got {shorten_repr(policy)} of type {type(policy).__name__}; write 'full' or 'ask'"
        )
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
            if not is_exactly(mode, *_STRICTNESS):
                given = (
                    shorten_repr(mode)
                    if type(mode) is str
                    else f"{shorten_repr(mode)} of type {type(mode).__name__}"
                )
                raise ValueError(f"permissions[{name!r}] must be 'full', 'ask' or 'deny', got {given}")
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
    rules: dict[Any, Mode] = {key: mode_of(mode) or "ask" for key, mode in policy.items()}
    otherwise = rules.get("*", "ask")
    for key, mode in rules.items():
        if key in known or key == "*" or _STRICTNESS[mode] <= _STRICTNESS[otherwise]:
            continue
        meant = next((tool.name for tool in tools if tool.name not in rules and _may_mean(key, tool)), None)
        if meant is None:
            continue
        instead = f"permissions['*'], which is {otherwise!r}," if "*" in rules else "'ask'"
        raise ValueError(
            f"permissions[{key!r}] is {mode!r}, but no tool of this run has that name: did you mean {meant!r}? (as it "
            f"stands, {instead} would hold for {meant!r}; if another tool is meant, write a rule for {meant!r}, too)"
        )


def _may_mean(key: object, tool: Tool) -> bool:
    """Whether a rule's key is a slip for this tool: its Python name, a dotted name of it, or a typo."""
    names = (tool.name, tool.wire_name, get_python_name(tool.function))
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


def asks_always(policy: object) -> bool:
    """Whether the policy itself says "ask" for everything, as LiteLLM's `permissions="ask"` does."""
    return mode_of(policy) == "ask"


async def _policy_mode(policy: Any, call: BoundCall) -> tuple[Mode, str]:
    if isinstance(policy, Mapping):
        key = call.tool.name if call.tool.name in policy else "*"
        if key not in policy:  # a tool that a policy forgot is asked about, not let through
            return "ask", f"permissions name neither {call.tool.name!r} nor '*'"
        return _mode(policy[key], f"permissions[{key!r}] is")
    if isinstance(policy, str):
        return _mode(policy, "permissions are")
    answer = policy(PolicyCall(call.tool.name, call.json))
    if inspect.isawaitable(answer):
        answer = await answer
    return _mode(answer, "the permissions callable answered")


def _mode(answer: object, said: str) -> tuple[Mode, str]:
    """(mode, why) for an answer; one that means no mode asks, and `why` says so."""
    why = f"{said} {shorten_repr(answer)}"
    mode = mode_of(answer)
    if mode is None:
        return "ask", f"{why} of type {type(answer).__name__}, which is neither a mode nor a bool"
    return mode, why


async def decide(policy: Any, call: BoundCall) -> tuple[Mode, str]:
    """(mode, why) for a validated call: the strictest of the run's policy and the tool's own setting.

    A policy callable that raises (KeyboardInterrupt ends the run), or answers something else than a mode or a bool, means "ask".
    """
    work = _policy_mode(policy, call)
    outcome = await (
        attempt(work) if type(policy) is str else attempt_apart(work)
    )  # a text is no code of theirs
    mode: Mode = "ask"
    if outcome.error is None:
        mode, why = outcome.value
    elif isinstance(outcome.error, RunEnded):
        raise outcome.error
    else:
        raised = "the permissions" if isinstance(policy, Mapping) else "the permissions callable"
        why = f"{raised} raised {shorten_repr(outcome.error, 500)}"
    setting = call.tool.settings.permissions
    own = None if setting is None else mode_of(setting) or "ask"
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
        return kept[1] if kept is not None and kept[0].covers(Version.of(tool.function)) else None

    @contextlib.contextmanager
    def follow(self, tool: Tool) -> Iterator[None]:
        """Take what the closures of `tool` hold after a call that was allowed here: it counts and logs there itself."""
        is_allowed = self.decision_on(tool) is not None
        yield
        if is_allowed and (kept := self._kept[tool.name])[0].is_still(now := Version.of(tool.function)):
            self._kept[tool.name] = (now, *kept[1:])

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
        said = (
            get_message if isinstance(outcome.error, Exception) else describe_error
        )  # LiteLLM gives the message alone
        approval.deny(f"on_approval raised: {said(outcome.error, 500)}", by="callback")
        if isinstance(outcome.error, RunEnded):
            raise outcome.error
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
    if asking is not None:
        asking.add_done_callback(lambda ended: _deny_unanswered(approval, ended))
    try:
        await approval.wait()
    finally:
        approval.deny("the turn ended before a decision", by="stop")  # only counts when nobody has decided
        if asking is not None and not asking.done():
            asking.cancel()
            # A card is taken down now: after a sync run nobody may turn the loop again before the next cell.
            await asyncio.wait({asking}, timeout=HANDLER_GRACE)
    if asking is not None and asking.done() and not asking.cancelled():
        error = asking.exception()
        if isinstance(error, RunEnded):
            raise error
    decision = approval.decision
    assert decision is not None
    return decision


def _deny_unanswered(approval: Approval, ended: asyncio.Future[None]) -> None:
    """A handler that came to an end, however it did, has decided: nobody waits for it any more."""
    error = None if ended.cancelled() else ended.exception()
    why = "" if error is None else f": {get_message(error, 500)}"
    approval.deny(f"on_approval gave no answer{why}", by="callback")  # only counts when nobody has decided


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
