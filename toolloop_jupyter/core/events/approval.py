"""A request to run a tool, and what was decided about it; JSON data that cannot be changed any more.

Names, fields and meanings are those of `litellm.harness` 1.110; fields after the comment "ours" are additions
with defaults, so code written for LiteLLM's events reads these, and `show()` reads LiteLLM's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn, TypeAlias, get_args

from ..execution import is_exactly, shorten_repr
from ..text import hide

DecidedBy: TypeAlias = Literal[
    "click", "code", "prompt", "policy", "callback", "stream", "unattended", "stop"
]
"""Who has decided. "code": a card's button, which was worked by code of this kernel and by no message of the front-end."""
Scope: TypeAlias = Literal["call", "run", "session"]
_LONGEST_REPR = 500
"""Characters of a reason that is no text."""


@dataclass(frozen=True)
class Decision:
    """What was decided about one call, by whom, when."""

    allowed: bool
    reason: str = ""
    arguments: Mapping[str, object] | None = None
    """The edited arguments (JSON form), or None when the call was allowed as it stood."""
    by: DecidedBy = "stream"
    scope: Scope = "call"
    """"run" or "session": the person allowed all further calls of this tool for so long."""
    at: float = field(default_factory=time.time)
    """Seconds since the epoch."""


def _accept_anything(arguments: Mapping[str, object]) -> None: ...


@dataclass(frozen=True)
class Approval:
    """A request to run a tool. The turn waits until `allow()` or `deny()` is called; the first one counts.

    `input` is a snapshot of the validated arguments in JSON form; it cannot be changed.
    """

    tool: str
    input: Mapping[str, object]
    _waiting: list[asyncio.Future[tuple[bool, str]]] = field(default_factory=list, compare=False, repr=False)
    """One for each `wait()` that goes on, on whatever loop: an Approval itself can be made without any."""
    # ours
    call_id: str = ""
    description: str = ""
    source: str = field(default="", compare=False, repr=False)
    """The function's source code, or "" where there is none."""
    schema: Mapping[str, object] = field(default_factory=dict, compare=False, repr=False)
    """The JSON schema of the arguments, for an edit form."""
    question: str = ""
    """What is asked, where it is something else than whether a tool may run: `input` is then a form to fill in and send."""
    origin: str = ""
    """Where the tool runs and what is claimed of it, where that is not this notebook."""
    why: str = ""
    """Why somebody is asked, e.g. "permissions are 'ask'"."""
    check: Callable[[Mapping[str, object]], object] = field(
        default=_accept_anything, compare=False, repr=False
    )
    """Validates edited arguments by the code that validates a call, and gives the call that will run (with its arguments
    as `.json`); raises ValueError with the model's-eye message."""
    scopes: tuple[Scope, ...] = field(default=("call", "run"), compare=False, repr=False)
    """How far it may reach: "session" where the conversation goes on, "call" alone where the function may change unseen."""
    editable: bool = field(default=True, compare=False, repr=False)
    """Whether edited arguments can reach the tool: those of another runtime's request cannot."""
    number: int = field(default=0, compare=False)
    """Which tool call of the turn this is, from 1; 0 when nobody has counted."""
    _state: dict[str, Any] = field(
        default_factory=lambda: {"lock": threading.Lock()}, compare=False, repr=False
    )

    def __post_init__(self) -> None:
        given = self.input if isinstance(self.input, dict) else dict(self.input)
        object.__setattr__(self, "input", freeze(given))

    def allow(
        self,
        arguments: Mapping[str, object] | None = None,
        *,
        by: DecidedBy = "stream",
        scope: Scope = "call",
    ) -> None:
        """Let the call run: as shown, or with edited `arguments`. A `scope` that is not among `scopes` is "call".

        Raises ValueError, and decides nothing, when these do not validate, or for another scope. From any thread.
        """
        call, edited = None, None
        _check_choice("scope", scope, get_args(Scope))
        _check_choice("by", by, get_args(DecidedBy))
        if arguments is not None and not self.editable:
            raise ValueError("this request cannot be run with other arguments; allow() or deny() it as it is")
        if arguments is not None and not is_same_json(given := thaw(dict(arguments)), self.input):
            try:
                call = self.check(given)
            except (
                ValueError
            ) as error:  # quotes what was given, for the model: here a person reads it, without keys
                raise ValueError(hide(str(error))) from None
            made = getattr(call, "json", None)
            if made is self.input:  # read as what was shown
                call = None
            else:
                edited = freeze(made if isinstance(made, dict) else given)
        self._decide(Decision(True, "", edited, by, scope if scope in self.scopes else "call"), call)

    def deny(self, reason: str = "", *, by: DecidedBy = "stream") -> None:
        """Refuse the call; `reason` reaches the model, as text whatever it is. From any thread."""
        _check_choice("by", by, get_args(DecidedBy))
        self._decide(Decision(False, _read_reason(reason), by=by))

    @property
    def answered(self) -> bool:
        return "decision" in self._state

    @property
    def decision(self) -> Decision | None:
        """The decision, or None while nobody has decided."""
        decided: Decision | None = self._state.get("decision")
        return decided

    @property
    def edited_call(self) -> object:
        """What `check` made of the edited arguments, the very values that run; None when they are as shown."""
        return self._state.get("call")

    async def wait(self) -> tuple[bool, str]:
        """(allowed, reason), once decided."""
        future: asyncio.Future[tuple[bool, str]] = asyncio.get_running_loop().create_future()
        with self._state["lock"]:
            self._waiting.append(future)
            decision = self.decision
        if decision is not None:
            return decision.allowed, decision.reason
        return await future

    def _decide(self, decision: Decision, call: object = None) -> None:
        with self._state["lock"]:
            if "decision" in self._state:
                return  # a second click, a late click, a click after Stop
            self._state.update(decision=decision, call=call)
            waiting = list(self._waiting)
        # A click may come on a kernel subshell's thread (facts: ipykernel 7), so the loop has to be woken.
        for future in waiting:
            with contextlib.suppress(RuntimeError):  # a loop that is closed: nobody waits any more
                future.get_loop().call_soon_threadsafe(_wake, future, decision)


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if not is_exactly(value, *choices):
        allowed = " or ".join(", ".join(map(repr, choices)).rsplit(", ", 1))
        raise ValueError(f"{name} must be {allowed}, got {hide(shorten_repr(value))}")


def _read_reason(reason: object) -> str:
    """A reason as an exact text: code that decides gives an error, a number or an object of its own as well."""
    if reason is None:
        return ""
    return str.__str__(reason) if isinstance(reason, str) else shorten_repr(reason, _LONGEST_REPR)


def _wake(future: asyncio.Future[tuple[bool, str]], decision: Decision) -> None:
    if not future.done():
        future.set_result((decision.allowed, decision.reason))


# --- JSON data that cannot be changed any more: what a person was shown is what runs and what stays in the record. ---
#
# Still dicts and lists for everybody who reads them (`json.dumps`, `==`, `isinstance`); a write raises and says how the
# call is run with other arguments. `copy.deepcopy`, pickle and `thaw` give plain data that can be changed.

_ADVICE = (
    "this is what was shown and what will run, so it cannot be changed; to run the call with other arguments: "
    "approval.allow({**approval.input, NAME: VALUE})"
)


def _refuse(self: object, *_: object, **__: object) -> NoReturn:
    raise TypeError(_ADVICE)


class _FixedDict(dict[str, Any]):
    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[object, ...]:
        return dict, (dict(self),)


class _FixedList(list[Any]):
    __setitem__ = __delitem__ = __iadd__ = __imul__ = append = extend = insert = _refuse
    pop = remove = clear = sort = reverse = _refuse

    def __reduce__(self) -> tuple[object, ...]:
        return list, (list(self),)


def freeze(value: Any) -> Any:
    """A copy of JSON data whose dicts and lists, at every depth, refuse to be changed; itself where it is one already."""
    if isinstance(value, (_FixedDict, _FixedList)):
        return value
    if isinstance(value, dict):
        return _FixedDict({key: freeze(item) for key, item in value.items()})
    if isinstance(value, (list, tuple)):
        return _FixedList([freeze(item) for item in value])
    return value


def thaw(value: Any) -> Any:
    """A plain copy of JSON data, frozen or not: changing it changes nothing else."""
    if isinstance(value, dict):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [thaw(item) for item in value]
    return value


def is_same_json(one: object, other: object) -> bool:
    """Whether two values are the same JSON (Python takes 1, 1.0 and true for equal)."""
    first, second = (json.dumps(value, sort_keys=True, default=repr) for value in (one, other))
    return first == second
