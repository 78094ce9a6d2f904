"""Find the mode that `permissions=` gives a tool call, and remember a person's decisions for later calls."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..events import Approval, CapabilityUnsupported, Decision
from ..execution import RunEnded, attempt_apart, is_exactly, shorten_repr
from ..text import hide_in_repr
from ..tools import Version, get_python_name

if TYPE_CHECKING:
    from ..tools import BoundCall, Tool


Mode: TypeAlias = Literal["full", "ask", "deny"]
ApprovalHandler: TypeAlias = Callable[[Approval], "bool | Awaitable[bool | None] | None"]

_STRICTNESS = {"full": 0, "ask": 1, "deny": 2}


@hide_in_repr
@dataclass(frozen=True)
class PolicyCall:
    """The tool call that is passed to a `permissions` callable. Its arguments are valid."""

    name: str
    input: Mapping[str, object]


def read_mode(answer: object) -> Mode | None:
    """Return the mode for `answer`, a value from the user's `permissions`; None if `answer` is neither a mode nor a bool.

    True means "full", and False means "deny". Only objects of the exact types `str` and `bool` count. Other objects, such
    as NumPy arrays, can define `==` in their own way, so this function does not compare them.
    """
    if type(answer) is bool:
        return "full" if answer else "deny"
    return answer if is_exactly(answer, *_STRICTNESS) else None  # type: ignore[return-value]


def check_policy(policy: object) -> None:
    """Raise ValueError or CapabilityUnsupported if the value of `permissions=` is invalid. The message lists the valid values."""
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
                f"permissions must be 'full', 'ask', a mapping or a callable, got {shorten_repr(policy, 500)}"
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
        raise ValueError(
            f"permissions must be 'full', 'ask', a mapping or a callable, got {shorten_repr(policy, 500)}"
        )


def check_names(policy: object, tools: Sequence[Tool]) -> None:
    """Raise ValueError if a key of `policy` seems to be a misspelt tool name, and the mistake makes `policy` less strict.

    For example, with `{"delte": "ask", "*": "full"}` the tool `delete` would run without a question. A key that resembles
    no tool name is allowed, since one mapping may serve several runs. A tool whose exact name is a key is not compared
    with the other keys.
    """
    if not isinstance(policy, Mapping):
        return
    known = {tool.name for tool in tools}
    rules: dict[object, Mode] = {key: read_mode(mode) or "ask" for key, mode in policy.items()}
    otherwise = rules.get("*", "ask")
    for key, mode in rules.items():
        if key in known or key == "*" or _STRICTNESS[mode] <= _STRICTNESS[otherwise]:
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
    """Return True if `key` is a name of the tool (a dotted prefix is ignored), or looks like a misspelling of such a name."""
    names = (tool.name, tool.wire_name, get_python_name(tool.function))
    text = str(key)
    return any(text.rpartition(".")[2] == name or _is_typo(text, name) for name in names)


def _is_typo(typed: str, name: str) -> bool:
    """Return True if `typed` looks like a misspelling of `name`.

    The names are compared word by word. Otherwise `read_file` would look like a misspelling of `delete_file`.
    """
    one, other = (re.findall(r"[^\W_]+", text.casefold()) for text in (typed, name))
    if "".join(one) == "".join(other):
        return True
    return len(one) == len(other) and all(
        difflib.SequenceMatcher(None, *pair).ratio() >= 0.75 for pair in zip(one, other, strict=True)
    )


async def _ask_policy(policy: Any, call: BoundCall) -> tuple[Mode, str]:
    """Return (the mode, the reason for the mode) from a mapping or a callable. If `policy` raises, the mode is "ask"."""
    outcome = await attempt_apart(
        _look_up(policy, call) if isinstance(policy, Mapping) else _call(policy, call)
    )
    if isinstance(outcome.error, RunEnded):
        raise outcome.error
    if outcome.error is not None:
        raised = "the permissions" if isinstance(policy, Mapping) else "the permissions callable"
        return "ask", f"{raised} raised {shorten_repr(outcome.error, 500)}"
    mode: tuple[Mode, str] = outcome.value
    return mode


async def _look_up(policy: Mapping[str, object], call: BoundCall) -> tuple[Mode, str]:
    key = call.tool.name if call.tool.name in policy else "*"
    if key not in policy:  # the policy does not name this tool
        return "ask", f"permissions name neither {call.tool.name!r} nor '*'"
    return _read_answer(policy[key], f"permissions[{key!r}] is")


async def _call(policy: Callable[[PolicyCall], object], call: BoundCall) -> tuple[Mode, str]:
    answer = policy(PolicyCall(call.tool.name, call.json))
    if inspect.isawaitable(answer):
        answer = await answer
    return _read_answer(answer, "the permissions callable answered")


def _read_answer(answer: object, said: str) -> tuple[Mode, str]:
    """Return (the mode, the reason for the mode) for `answer`, a value from the user's `permissions`.

    If `answer` is neither a mode nor a bool, the mode is "ask". `said`: the beginning of the reason.
    """
    why = f"{said} {shorten_repr(answer)}"
    mode = read_mode(answer)
    if mode is None:
        return "ask", f"{why} of type {type(answer).__name__}, which is neither a mode nor a bool"
    return mode, why


async def find_mode(policy: object, call: BoundCall) -> tuple[Mode, str]:
    """Return (the mode, the reason for the mode) for a call with valid arguments.

    The run's policy and the tool's own setting each give a mode, and the stricter mode counts. A policy callable gives
    "ask" if it raises, or if it returns neither a mode nor a bool. KeyboardInterrupt is not caught: it ends the run.
    """
    if isinstance(policy, str):
        mode, why = _read_answer(policy, "permissions are")
    else:
        mode, why = await _ask_policy(policy, call)
    setting = call.tool.settings.permissions
    if setting is None:
        return mode, why
    if isinstance(setting, str):
        own: Mode = read_mode(setting) or "ask"
        own_why = f"the tool's own permissions are {own!r}"
    else:
        own, own_why = await _ask_policy(setting, call)
    return (own, own_why) if _STRICTNESS[own] >= _STRICTNESS[mode] else (mode, why)


@dataclass
class Allowed:
    """The decisions of a person that also apply to later calls. Each decision is for one version of one tool's function."""

    _kept: dict[str, tuple[Version, Decision, int]] = field(default_factory=dict)

    def remember(self, tool: Tool, shown: Version, decision: Decision, turn: int) -> None:
        """Apply `decision` to later calls of `tool`.

        `shown`: the version of the tool's function that the person saw. `turn`: the number of the turn of the decision.
        """
        self._kept[tool.name] = (shown, dataclasses.replace(decision, arguments=None), turn)

    def decision_on(self, tool: Tool, now: Version) -> Decision | None:
        """Return the decision for calls of `tool`; None if a person has to be asked.

        `now`: the present version of the tool's function. A decision for another version does not count.
        """
        kept = self._kept.get(tool.name)
        return kept[1] if kept is not None and kept[0].fixed and kept[0].is_still(now) else None

    def copy(self) -> Allowed:
        """Return a copy of the present decisions."""
        return Allowed(dict(self._kept))

    def forget_from(self, turn: int) -> None:
        """Forget the decisions of turn number `turn` and later turns, since the session forgets these turns."""
        self._kept = {name: kept for name, kept in self._kept.items() if kept[2] < turn}


@dataclass
class Permissions:
    """A person's decisions that apply to more than one call of a turn."""

    in_session: Allowed
    lasting: bool = True
    """True if the session may have more turns. A person can then allow calls for the whole session."""
    in_run: Allowed = field(default_factory=Allowed)
    denied: Counter[str] = field(default_factory=Counter)
    """How often each call was denied. A key is the name of the tool and the arguments, in one text."""

    def decision_on(self, tool: Tool, now: Version) -> Decision | None:
        """Return an earlier decision for calls of `tool`; None if there is none. `now`: the present version of its function."""
        return self.in_session.decision_on(tool, now) or self.in_run.decision_on(tool, now)

    def remember(self, tool: Tool, shown: Version, decision: Decision, turn: int) -> None:
        """Keep a decision whose scope is the run or the session. A decision for one call is not kept."""
        if decision.scope != "call":
            kept = self.in_session if decision.scope == "session" else self.in_run
            kept.remember(tool, shown, decision, turn)
