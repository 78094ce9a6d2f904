"""Decides whether a tool call may run: by the mode from `permissions=`, a person's earlier decisions, or a question."""

from __future__ import annotations

import asyncio
import difflib
import inspect
import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias

from ..events import NO_DECISION, Approval, CapabilityUnsupported, Decision, Scope, ToolCall, ToolStatus
from ..execution import (
    Raised,
    RunEnded,
    attempt_apart,
    attempt_call,
    describe_error,
    get_message,
    is_exactly,
    run_in_thread,
    shorten_repr,
)
from ..text import hide_in_repr
from ..tools import BoundCall, Tool, Version, get_python_name

Mode: TypeAlias = Literal["full", "ask", "deny"]
ApprovalHandler: TypeAlias = Callable[[Approval], "bool | Awaitable[bool | None] | None"]

_STRICTNESS = {"full": 0, "ask": 1, "deny": 2}


# --- the mode of a call ---------------------------------------------------------------------------------------


@hide_in_repr
@dataclass(frozen=True)
class PolicyCall:
    """The tool call that is passed to a `permissions` callable. Its arguments are valid."""

    name: str
    input: Mapping[str, object]


def read_mode(answer: object) -> Mode | None:
    """Return the mode for `answer`, a value from the user's `permissions`; None if it is neither a mode nor a bool.

    True means "full", False means "deny". Only the exact types `str` and `bool` count: other objects, such as NumPy arrays,
    define `==` in their own way.
    """
    if type(answer) is bool:
        return "full" if answer else "deny"
    return answer if is_exactly(answer, *_STRICTNESS) else None  # type: ignore[return-value]


def check_policy(policy: object) -> None:
    """Raise ValueError or CapabilityUnsupported for a wrong value of `permissions=`. The message lists the valid values."""
    if is_exactly(policy, *_STRICTNESS):
        return
    if is_exactly(policy, "read-only", "edit"):
        raise CapabilityUnsupported(
            f"Harness.TOOL_LOOP does not support permissions={policy!r}; supported: ['ask', 'full']"
        )
    if isinstance(policy, Mapping):
        for name, mode in policy.items():
            if not is_exactly(mode, *_STRICTNESS):
                raise ValueError(f"permissions[{name!r}] must be 'full', 'ask' or 'deny', got {_show(mode)}")
    elif isinstance(policy, str) or not callable(policy):
        raise ValueError(f"permissions must be 'full', 'ask', a mapping or a callable, got {_show(policy)}")


def _show(value: object) -> str:
    """Return `value` as text for a message. If its type is not exactly `str`, the type is named, because a subclass of `str`
    may look like a text.
    """
    return shorten_repr(value, 500) + ("" if type(value) is str else f" of type {type(value).__name__}")


def check_names(policy: Mapping[object, object], tools: Sequence[Tool]) -> None:
    """Raise ValueError if a key of `policy` seems to be a misspelt tool name, and the mistake makes `policy` less strict.

    For example, with `{"delte": "ask", "*": "full"}` the tool `delete` would run without a question. A key that resembles
    no tool name is allowed, because one mapping may serve several runs.
    """
    names = {tool.name for tool in tools}
    rules: dict[object, Mode] = {key: read_mode(mode) or "ask" for key, mode in policy.items()}
    otherwise = rules.get("*", "ask")
    for key, mode in rules.items():
        if key in names or key == "*" or _STRICTNESS[mode] <= _STRICTNESS[otherwise]:
            continue
        meant = next((tool.name for tool in tools if tool.name not in rules and _may_mean(key, tool)), None)
        if meant is None:
            continue
        instead = f"{otherwise!r}, from permissions['*']" if "*" in rules else "'ask'"
        raise ValueError(
            f"permissions[{key!r}] is {mode!r}, but no tool of this run has that name: did you mean {meant!r}? The mode of "
            f"{meant!r} would now be {instead}. If you meant another tool, add a rule for {meant!r}, too."
        )


def _may_mean(key: object, tool: Tool) -> bool:
    """Return True if `key` is a name of the tool (a dotted prefix is ignored), or looks like a misspelt name of the tool."""
    names = (tool.name, tool.wire_name, get_python_name(tool.function))
    text = str(key)
    return any(text.rpartition(".")[2] == name or _is_typo(text, name) for name in names)


def _is_typo(typed: str, name: str) -> bool:
    """Return True if `typed` looks like a misspelt `name`.

    The words are compared one by one. Otherwise `read_file` would look like a misspelt `delete_file`.
    """
    one, other = (re.findall(r"[^\W_]+", text.casefold()) for text in (typed, name))
    if "".join(one) == "".join(other):
        return True
    return len(one) == len(other) and all(
        difflib.SequenceMatcher(None, *pair).ratio() >= 0.75 for pair in zip(one, other, strict=True)
    )


@hide_in_repr
@dataclass(frozen=True)
class Approvals:
    """Which tool calls need an approval, and who gives it."""

    permissions: object = "full"
    """The policy: a mode, a mapping from the names of tools to modes, or a function that returns a mode for a call."""
    on_approval: ApprovalHandler | None = None
    """The function that decides. If it is None, the reader of the stream or a person decides."""

    def may_ask(self, tools: Sequence[Tool]) -> bool:
        """Return True if a person may be asked about a call: there is no `on_approval`, and a rule may say "ask"."""
        if self.on_approval is not None:
            return False
        rules = _list_rules(self.permissions, tools)
        for tool in tools:
            if tool.settings.permissions is not None:
                rules += _list_rules(tool.settings.permissions, tools)
        return not {*map(read_mode, rules)} <= {"full", "deny"}


def _list_rules(policy: object, tools: Sequence[Tool]) -> list[object]:
    """Return the rules of `policy`. If a mapping lacks a rule for a tool, or raises when it is read, "ask" is one of them."""
    if not isinstance(policy, Mapping):
        return [policy]
    rules: dict[object, object] | Raised = attempt_call(dict, policy)
    if isinstance(rules, Raised):
        return ["ask"]
    is_complete = "*" in rules or {tool.name for tool in tools} <= {*rules}
    return [*rules.values(), "full" if is_complete else "ask"]


async def find_mode(policy: object, call: BoundCall) -> tuple[Mode, str]:
    """Return (the mode, its reason) for a call with valid arguments. Raises Refused if the mode is "deny".

    The run's policy and the tool's own setting each give a mode, and the stricter mode counts. The reason is "" if the policy
    is "full" and the tool's setting is not stricter. A policy callable gives "ask" if it raises, or if it returns neither a
    mode nor a bool. KeyboardInterrupt is not caught: it ends the run.
    """
    setting, is_open = call.tool.settings.permissions, is_exactly(policy, "full")
    if is_open and setting is None:
        return "full", ""
    mode, why = await _ask_policy(policy, call, "permissions are")
    if setting is not None:
        tool_mode, tool_why = await _ask_policy(setting, call, "the tool's own permissions are")
        if _STRICTNESS[tool_mode] >= _STRICTNESS[mode]:
            mode, why = tool_mode, tool_why
    if mode == "deny":
        raise deny(Decision(allowed=False, reason=why, by="policy"))
    return mode, "" if is_open and mode == "full" else why


async def _ask_policy(policy: Any, call: BoundCall, start: str) -> tuple[Mode, str]:
    """Return (the mode, its reason). The mode is "ask" if `policy` raises. `start`: begins the reason if `policy` is a text."""
    if isinstance(policy, str):
        return _read_answer(policy, start)
    outcome = await attempt_apart(_look_up(policy, call))
    if isinstance(outcome.error, RunEnded):
        raise outcome.error
    if outcome.error is not None:
        raised = "the permissions" if isinstance(policy, Mapping) else "the permissions callable"
        return "ask", f"{raised} raised {shorten_repr(outcome.error, 500)}"
    mode: tuple[Mode, str] = outcome.value
    return mode


async def _look_up(policy: Any, call: BoundCall) -> tuple[Mode, str]:
    name = call.tool.name
    if not isinstance(policy, Mapping):
        answer = policy(PolicyCall(name, call.json))
        if inspect.isawaitable(answer):
            answer = await answer
        return _read_answer(answer, "the permissions callable answered")
    key = name if name in policy else "*"
    if key not in policy:
        return "ask", f"permissions name neither {name!r} nor '*'"
    return _read_answer(policy[key], f"permissions[{key!r}] is")


def _read_answer(answer: object, start: str) -> tuple[Mode, str]:
    """Return (the mode, its reason) for `answer`, a value from the user's `permissions`. `start`: how the reason begins.

    The mode is "ask" if `answer` is neither a mode nor a bool.
    """
    why, mode = f"{start} {shorten_repr(answer)}", read_mode(answer)
    if mode is None:
        return "ask", f"{why} of type {type(answer).__name__}, which is neither a mode nor a bool"
    return mode, why


# --- decisions about a call -----------------------------------------------------------------------------------

SAME_DENIALS = 3
"""If the same call was denied this many times in a turn, the next call is denied without a question."""
SCOPES: tuple[Scope, ...] = ("call", "run", "session")
CHANGED = (
    "The call was not run: the function {name!r} was changed while a person was asked about it. "
    "Call the tool again; the person will then be asked about the new function."
)
MEANWHILE = (
    "The call was not run: some arguments were changed by other code after they were checked ({names}). "
    "Call the tool again; the arguments will then be checked again."
)
UNCHECKED = "The call was not run: its edited arguments were not checked."


class Refused(Exception):
    """Raised if a tool call is not run. `message`: for the model. `decision`: the decision about the call, if there was one."""

    def __init__(
        self, message: str, status: ToolStatus = "refused", decision: Decision | None = None
    ) -> None:
        super().__init__(message)
        self.message, self.status, self.decision = message, status, decision


def deny(decision: Decision) -> Refused:
    """Return the refusal of a denied call. Its text tells the model not to repeat the call. (After a failure, models often
    repeat a call.)
    """
    who = {
        "unattended": "denied",
        "policy": "denied by the notebook's permissions",
        "callback": "denied",
        "code": "denied by code in the notebook",
    }.get(decision.by, "denied by the user")
    reason = f": {decision.reason.rstrip()}" if decision.reason else ""
    stop = "" if reason.endswith((".", "!", "?")) else "."
    is_unattended = decision.by == "unattended"
    why = "Nobody could be asked about it" if is_unattended else "This was a decision, not a failure"
    return Refused(f"{who}{reason}{stop} {why}: do not repeat the same call.", "denied", decision)


class Permit(NamedTuple):
    """The permission to run one tool call. `bound` has the permitted arguments."""

    bound: BoundCall
    decision: Decision | None = None
    """None if nothing had to be decided."""
    shown: Version | None = None
    """The version that the function had when a person was asked; None if nobody was asked."""

    def check(self) -> None:
        """Raise Refused if the function or the arguments have changed since the decision."""
        if self.decision is None:
            return
        tool, names = self.bound.tool, self.bound.changed()
        why = MEANWHILE.format(names=", ".join(names)) if names else ""
        if self.shown is not None and not self.shown.is_still(Version.of(tool.function)):
            why = CHANGED.format(name=tool.name)
        if why:
            raise _overrule(self.decision, why)


def _overrule(decision: Decision, why: str) -> Refused:
    return Refused(why, "refused", replace(decision, allowed=False, reason=why, by="policy"))


@dataclass
class Allowed:
    """A person's decisions that also apply to later calls. Each is for one tool, and for one version of its function."""

    _kept: dict[str, tuple[Version, Decision, int]] = field(default_factory=dict)

    def remember(self, tool: Tool, shown: Version, decision: Decision, turn: int) -> None:
        """Apply `decision`, made in turn number `turn`, to later calls. The person saw the version `shown` of the function."""
        self._kept[tool.name] = (shown, replace(decision, arguments=None), turn)

    def decision_on(self, tool: Tool, now: Version) -> Decision | None:
        """Return the decision about calls of `tool`; None if there is none for the version `now` of its function."""
        kept = self._kept.get(tool.name)
        return kept[1] if kept is not None and kept[0].fixed and kept[0].is_still(now) else None

    def copy(self) -> Allowed:
        """Return a copy of the present decisions."""
        return Allowed(dict(self._kept))

    def forget_from(self, turn: int) -> None:
        """Forget the decisions of turn number `turn` and later turns, because the session forgets these turns."""
        self._kept = {name: kept for name, kept in self._kept.items() if kept[2] < turn}


@dataclass
class Permissions:
    """A person's decisions about the calls of a turn."""

    in_session: Allowed
    lasting: bool = True
    """True if the session may have more turns, so a person can allow calls for the whole session."""
    in_run: Allowed = field(default_factory=Allowed)
    denied: Counter[str] = field(default_factory=Counter)
    """How often each call was denied. A key is the name of the tool and the arguments, in one text."""

    def find_earlier(self, bound: BoundCall, shown: Version) -> Permit | None:
        """Return a permit if a person has allowed all calls of the tool; else None. `shown`: the function's present version."""
        earlier = self.in_session.decision_on(bound.tool, shown) or self.in_run.decision_on(bound.tool, shown)
        return None if earlier is None else Permit(bound, earlier, shown)

    def make_question(
        self, call: ToolCall, bound: BoundCall, shown: Version, why: str, number: int
    ) -> Approval:
        """Return the question about call number `number`. `why`: the reason to ask. `shown`: the function's present version.

        Raises Refused if the same call was denied too often.
        """
        if self.denied[_name_call(bound)] >= SAME_DENIALS:
            reason = f"it was denied {SAME_DENIALS} times already"
            raise deny(Decision(allowed=False, reason=reason, by="policy"))
        tool = bound.tool
        return Approval(
            tool=tool.name,
            input=bound.json,
            call_id=call.id,
            description=tool.description,
            source=tool.source,
            schema=tool.parameters,
            origin=tool.origin,
            why=why,
            check=bound.edited,
            scopes=SCOPES[: 1 if not shown.fixed else 3 if self.lasting else 2],
            number=number,
        )

    def permit(self, bound: BoundCall, approval: Approval, shown: Version, turn: int) -> Permit:
        """Return the permit after the decision about `approval` in turn number `turn`.

        Raises Refused if the call was denied, or if the function or the arguments have changed since the question.
        """
        decision = approval.decision
        assert decision is not None
        if not decision.allowed:
            self.denied[_name_call(bound)] += 1
            raise deny(decision)
        made = bound if decision.arguments is None else approval.edited_call
        if type(made) is not BoundCall:  # nobody has checked the edited arguments
            raise _overrule(decision, UNCHECKED)
        permit = Permit(made, decision, shown)
        permit.check()
        if decision.scope != "call":
            kept = self.in_session if decision.scope == "session" else self.in_run
            kept.remember(bound.tool, shown, decision, turn)
        return permit


def _name_call(bound: BoundCall) -> str:
    return f"{bound.tool.name} {json.dumps(bound.json, sort_keys=True, default=repr)}"


# --- the question to a person ---------------------------------------------------------------------------------

HANDLER_GRACE = 1.0
"""A cancelled handler has this many seconds to clean up."""


async def wait_for_decision(approval: Approval, handler: ApprovalHandler | None) -> Decision:
    """Wait for the decision about `approval`, and return it. If `handler` is None, the reader of the stream decides."""
    asking = None if handler is None else asyncio.ensure_future(_ask_handler(handler, approval))
    if asking is not None:  # the turn must get a decision, even if this task is cancelled before it begins
        asking.add_done_callback(lambda _: approval.deny("on_approval gave no answer", by="callback"))
    try:
        await approval.wait()
    finally:
        approval.deny(NO_DECISION, by="stop")  # has no effect after a decision
        if asking is not None and not asking.done():
            asking.cancel()
            # Let the handler remove its card now. After a sync run, the event loop may not run before the next cell.
            await asyncio.wait({asking}, timeout=HANDLER_GRACE)
    if asking is not None and asking.done() and not asking.cancelled():
        asking.result()  # raises RunEnded if the handler has ended the run
    decision = approval.decision
    assert decision is not None
    return decision


async def _ask_handler(handler: ApprovalHandler, approval: Approval) -> None:
    """Call `handler` (`on_approval`, or the host's `ask`), which decides about `approval`. A sync handler runs in a thread.

    The handler decides with the methods of `approval`, or returns a value. Only the value True allows the call: a text such
    as "n" (from `input()`) is true in Python, but is not an approval. If the handler raises an exception, the call is denied,
    as in LiteLLM.
    """
    call: object = getattr(type(handler), "__call__", None)  # noqa: B004 - is it async? All handlers are callable
    is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)

    async def call_handler() -> object:
        value = handler(approval) if is_async else await run_in_thread(lambda: handler(approval))
        return await value if inspect.isawaitable(value) else value

    outcome = await attempt_apart(call_handler())
    denied = "denied by on_approval"
    if outcome.error is not None:
        # As in LiteLLM, the reason is only the message of an exception.
        describe = get_message if isinstance(outcome.error, Exception) else describe_error
        denied = f"on_approval raised: {describe(outcome.error, 500)}"
    elif outcome.value is True:
        approval.allow(by="callback")
    elif outcome.value is not None and outcome.value is not False:
        given = type(outcome.value).__name__
        denied = f"on_approval gave a value of type {given}; only True allows the call"
    approval.deny(denied, by="callback")  # has no effect after a decision
    if isinstance(outcome.error, RunEnded):
        raise outcome.error
