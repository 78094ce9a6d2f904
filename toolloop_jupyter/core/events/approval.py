"""Define `Approval` (a request to run a tool), `Decision` (the answer), and `freeze` (it protects data from changes).

The names, fields and meanings are those of `litellm.harness` 1.110. The fields after the comment "ours" are our additions,
and each of them has a default. So code that was written for LiteLLM's events can read our events, and our `show()` can
read LiteLLM's events.
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
"""Who decided. "code": the button of a card was pressed by code in this kernel, not by a person in the browser."""
Scope: TypeAlias = Literal["call", "run", "session"]
_LONGEST_REPR = 500
"""If a reason is not a text, at most this many characters of its `repr` are kept."""


@dataclass(frozen=True)
class Decision:
    """A decision about one tool call. It says what was decided, who decided, and when."""

    allowed: bool
    reason: str = ""
    arguments: Mapping[str, object] | None = None
    """The edited arguments as JSON data; None if nobody edited them."""
    by: DecidedBy = "stream"
    scope: Scope = "call"
    """"run" or "session" means that all calls of this tool are allowed until the run or the session ends."""
    at: float = field(default_factory=time.time)
    """Seconds since the epoch."""


def _accept_anything(arguments: Mapping[str, object]) -> None: ...


@dataclass(frozen=True)
class Approval:
    """A request to run a tool. The turn waits until `allow()` or `deny()` is called. Only the first decision counts.

    `input` is a copy of the validated arguments as JSON data; it cannot be changed.
    """

    tool: str
    input: Mapping[str, object]
    _waiting: list[asyncio.Future[tuple[bool, str]]] = field(default_factory=list, compare=False, repr=False)
    """One future for each `wait()`. The future belongs to the event loop on which `wait()` runs. An Approval itself needs no
    event loop."""
    # ours
    call_id: str = ""
    description: str = ""
    source: str = field(default="", compare=False, repr=False)
    """The function's source code; "" if the source code is not known."""
    schema: Mapping[str, object] = field(default_factory=dict, compare=False, repr=False)
    """The JSON schema of the arguments, for an edit form."""
    question: str = ""
    """The question of an MCP server. A person answers with the form in `input`. "" if the request is about a tool call."""
    origin: str = ""
    """Where the tool of an MCP server runs, and what the server claims about the tool; "" for a tool of this notebook."""
    why: str = ""
    """The reason why somebody is asked, such as "permissions are 'ask'"."""
    check: Callable[[Mapping[str, object]], object] = field(
        default=_accept_anything, compare=False, repr=False
    )
    """Validates edited arguments in the same way as a model's arguments. Returns the call that will run; its `.json` has
    the arguments. Raises ValueError with the message that a model would get."""
    scopes: tuple[Scope, ...] = field(default=("call", "run"), compare=False, repr=False)
    """The scopes that a person may choose. "session" is offered only if the conversation can be continued. If a change of the
    function cannot be detected, only "call" is offered."""
    editable: bool = field(default=True, compare=False, repr=False)
    """True if a person may edit the arguments. False for a request that comes from LiteLLM's own stream."""
    number: int = field(default=0, compare=False)
    """The number of the tool call in its turn; the first call is 1. 0 if the number is not known. A question of a server has the
    number of the call in which the server asks."""
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
        """Let the call run as shown, or with edited `arguments`. A scope that is not in `scopes` counts as "call".

        Raises ValueError if `arguments` do not validate or may not be edited, or if `scope` or `by` is not a known word. In
        this case, nothing is decided. May be called from any thread.
        """
        call, edited = None, None
        _check_choice("scope", scope, get_args(Scope))
        _check_choice("by", by, get_args(DecidedBy))
        if arguments is not None and not self.editable:
            raise ValueError("this request cannot be run with other arguments; allow() or deny() it as it is")
        if arguments is not None and not is_same_json(given := thaw(dict(arguments)), self.input):
            try:
                call = self.check(given)
            except ValueError as error:
                # The message was made for the model and repeats the arguments. Here a person reads the message: hide API keys.
                raise ValueError(hide(str(error))) from None
            made = getattr(call, "json", None)
            if made is self.input:  # the edited arguments mean the same as the original arguments
                call = None
            else:
                edited = freeze(made if isinstance(made, dict) else given)
        self._decide(Decision(True, "", edited, by, scope if scope in self.scopes else "call"), call)

    def deny(self, reason: str = "", *, by: DecidedBy = "stream") -> None:
        """Refuse the call. The model gets `reason` as text. May be called from any thread."""
        _check_choice("by", by, get_args(DecidedBy))
        self._decide(Decision(False, _read_reason(reason), by=by))

    @property
    def answered(self) -> bool:
        return "decision" in self._state

    @property
    def decision(self) -> Decision | None:
        """The decision; None if nobody has decided yet."""
        decided: Decision | None = self._state.get("decision")
        return decided

    @property
    def edited_call(self) -> object:
        """What `check` returned for the edited arguments: the call that will run. None if nobody edited the arguments."""
        return self._state.get("call")

    async def wait(self) -> tuple[bool, str]:
        """Wait for the decision. Returns (allowed, reason)."""
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
                return  # only the first decision counts; later clicks have no effect
            self._state.update(decision=decision, call=call)
            waiting = list(self._waiting)
        # A click may come on another thread (a kernel subshell of ipykernel 7), so each waiting loop must be woken.
        for future in waiting:
            with contextlib.suppress(RuntimeError):  # the loop is closed, so nobody waits any more
                future.get_loop().call_soon_threadsafe(_wake, future, decision)


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if not is_exactly(value, *choices):
        allowed = " or ".join(", ".join(map(repr, choices)).rsplit(", ", 1))
        raise ValueError(f"{name} must be {allowed}, got {hide(shorten_repr(value))}")


def _read_reason(reason: object) -> str:
    """Return the reason as a `str`. The caller of `deny()` may pass an exception, a number or any other object."""
    if reason is None:
        return ""
    return str.__str__(reason) if isinstance(reason, str) else shorten_repr(reason, _LONGEST_REPR)


def _wake(future: asyncio.Future[tuple[bool, str]], decision: Decision) -> None:
    if not future.done():
        future.set_result((decision.allowed, decision.reason))


# --- JSON data that nobody can change: the call runs with the arguments that the person saw, and they are recorded. ---
#
# Code that only reads can use the data like other dicts and lists (`json.dumps`, `==`, `isinstance`). An attempt to change the
# data raises TypeError. The error's message says how to run the call with other arguments. `copy.deepcopy`, pickle and `thaw`
# return data that can be changed.

_ADVICE = (
    "a person was shown these arguments and the call runs with them, so they cannot be changed; to run it with others, write "
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
    """Return a copy of JSON data in which no dict and no list can be changed, at any depth.

    If `value` is already such a copy, `value` itself is returned.
    """
    if isinstance(value, (_FixedDict, _FixedList)):
        return value
    if isinstance(value, dict):
        return _FixedDict({key: freeze(item) for key, item in value.items()})
    if isinstance(value, (list, tuple)):
        return _FixedList([freeze(item) for item in value])
    return value


def thaw(value: Any) -> Any:
    """Return a copy of JSON data. The copy can be changed, even if `value` is frozen."""
    if isinstance(value, dict):
        return {key: thaw(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [thaw(item) for item in value]
    return value


def is_same_json(one: object, other: object) -> bool:
    """Return True if two values are the same JSON. Python's `==` is not used, because 1, 1.0 and True are equal in Python."""
    first, second = (json.dumps(value, sort_keys=True, default=repr) for value in (one, other))
    return first == second
