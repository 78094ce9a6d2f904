"""The events of a run (text, tool calls, approvals, tool results, retries), and the request and the reply of a model call.

The names, fields and meanings of the events are those of `litellm.harness` 1.110. The fields after the comment "ours" are our
additions, and each of them has a default. So code that was written for LiteLLM's events can read our events, and our `show()`
can read LiteLLM's events.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn, TypeAlias, get_args

from ..execution import STOP_LOCK, is_exactly, shorten_repr
from ..text import hide, hide_in_repr


@hide_in_repr
@dataclass(frozen=True)
class Attachment:
    """A picture, a sound, a file or another part of the answer or the prompt, with all its data. LiteLLM has no such event."""

    kind: str
    """"picture", "audio", "source", "file", or the type that the server's answer names."""
    name: str
    """A description in one line."""
    address: str = field(default="", repr=False)
    """A data address (`data:image/png;base64,…`); "" if there is none. For a picture of the prompt, it is the address of a
    small copy."""
    is_sent: bool = False
    """True for a part of the prompt. The events for parts of the prompt come before the events for parts of the answer."""


StopReason: TypeAlias = Literal[
    "done", "max_turns", "timeout", "cancelled", "runtime_error", "max_model_calls", "max_cost"
]
ImageMode: TypeAlias = Literal["auto", "always", "never"]
FileChangeKind: TypeAlias = Literal["created", "modified", "deleted"]
ToolStatus: TypeAlias = Literal["done", "failed", "invalid", "refused", "denied", "cancelled"]
"""done: the function returned. failed: it raised an error or took too long. invalid: there is no such tool, or the arguments are
not valid. refused: the answer was cut off, a limit was reached, or the function or its arguments had changed after the check.
denied: a person or a policy denied the call, or nobody could be asked. cancelled: the turn ended before or during the call."""


@dataclass(frozen=True)
class Usage:
    """The tokens and model calls of a turn or a session. The provider has reported the numbers of tokens."""

    input_tokens: int = 0
    output_tokens: int = 0
    calls: int = 0
    """The number of model calls. Tool calls are not counted."""
    # ours
    cache_read_tokens: int | None = None
    """How many of `input_tokens` the provider read from its cache; None if the provider does not report this."""
    cache_write_tokens: int | None = None
    """How many of `input_tokens` the provider wrote to its cache; None if the provider does not report this."""

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.calls + other.calls,
            _add_known(self.cache_read_tokens, other.cache_read_tokens),
            _add_known(self.cache_write_tokens, other.cache_write_tokens),
        )


def _add_known(one: int | None, other: int | None) -> int | None:
    """Return the sum of two numbers. None is an unknown number: it counts as 0, but if both are None, return None."""
    return other if one is None else one if other is None else one + other


def add_costs(*costs: float | None) -> float | None:
    """Return the sum of costs in US dollars; None if one of them is unknown."""
    return None if None in costs else sum(filter(None, costs), 0.0)


@dataclass(frozen=True)
class Text:
    """A piece of the model's text, sent when it arrives. LiteLLM's loop sends only whole messages."""

    delta: str


@dataclass(frozen=True)
class Reasoning:
    """A piece of the model's reasoning, sent when it arrives."""

    delta: str


@dataclass(frozen=True)
class ToolCall:
    """The model calls a tool. `input` has the arguments as the model sent them; {} if the model sent no JSON object."""

    id: str
    name: str
    """The tool's name in the notebook; if there is no such tool, the name that the model wrote."""
    native_name: str
    """The tool's name for the model. If providers do not accept `name` (for example, `größe`), this is another name."""
    input: Mapping[str, object]
    builtin: bool = True
    """True if the tool is a part of another harness of LiteLLM; False for each tool of ours. LiteLLM's default is True."""


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


@dataclass(frozen=True)
class ToolResult:
    """The result of one tool call. `output` is exactly the text that the model gets."""

    id: str
    output: str
    is_error: bool = False
    # ours
    value: Any = field(default=None, compare=False, repr=False)
    """The object that the function returned, or the exception that it raised; not a copy."""
    seconds: float = field(default=0.0, compare=False)
    """How long the function ran; 0.0 if it did not run."""
    traceback: str = field(default="", compare=False, repr=False)
    """The traceback of the function's exception, without frames of this package and of libraries."""
    full_length: int = field(default=0, compare=False)
    """The length of `output` before it was shortened for the model; len(output) if it was not shortened."""
    ran: bool = field(default=False, compare=False)
    """True if the function was started."""
    pictures: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """The data addresses of the pictures that the model gets in addition to `output`."""
    decision: Decision | None = field(default=None, compare=False, repr=False)
    """The decision about the call, perhaps an earlier decision that allows all calls; None if no decision was needed."""
    status: ToolStatus = field(default="done", compare=False)
    printed: str = field(default="", compare=False, repr=False)
    """The part of `output` that the function printed."""
    returned: str | None = field(default=None, compare=False, repr=False)
    """The part of `output` that describes the returned value or the error; None if `output` has no other part."""

    def __post_init__(self) -> None:
        if self.is_error and self.status == "done":
            object.__setattr__(self, "status", "failed")

    @property
    def edited(self) -> Mapping[str, object] | None:
        """The arguments with a person's edits; None if nobody has edited them, or if the call did not run."""
        return self.decision.arguments if self.ran and self.decision is not None else None

    @property
    def cut(self) -> int:
        """About how many characters were left out of `output`."""
        return max(0, self.full_length - len(self.output))


@dataclass(frozen=True)
class FileChange:
    """A file that changed in the sandbox folder during the turn. `diff` is a unified diff; None for a binary file."""

    path: str
    kind: FileChangeKind
    diff: str | None = None


@dataclass(frozen=True)
class Compaction:
    """The conversation was shortened. Only LiteLLM's other harnesses send this event."""

    tokens_before: int | None = None
    tokens_after: int | None = None


@dataclass(frozen=True)
class Retry:
    """A model call failed and is tried again, or an answer did not fit `output=` and the model is asked for a new answer.

    LiteLLM has no such event. `discard` is text that was streamed but is not a part of the answer; "" if the new try repeats
    the streamed text and continues it.
    """

    attempt: int
    error: str
    discard: str = ""
    wait: float = 0.0
    """Seconds until the next try."""
    of_answer: bool = False
    """True if an answer came but was not accepted (see `error`). The next text begins a new answer."""
    model: str = ""
    """The `fallback` model that is asked from now on; "" if the same model is asked again."""


@dataclass(frozen=True)
class Span:
    """One model call, tool call or wait for approval. `start` and `end` are seconds since the turn began."""

    kind: Literal["model", "tool", "approval"]
    name: str
    start: float
    end: float
    usage: Usage = Usage()
    cost: float | None = None
    is_error: bool = False


# --- an approval ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Approval:
    """A request to run a tool. The turn waits until `allow()` or `deny()` is called. Only the first decision counts.

    `input` is a copy of the validated arguments as JSON data; it cannot be changed.
    """

    tool: str
    input: Mapping[str, object]
    _decided: Future[tuple[Decision, object]] = field(default_factory=Future, compare=False, repr=False)
    """The decision, and what `check` returned for edited arguments. The future can be awaited on any event loop."""
    # ours
    call_id: str = ""
    description: str = ""
    source: str = field(default="", compare=False, repr=False)
    """The function's source code; "" if the source code is not known."""
    schema: Mapping[str, object] = field(default_factory=dict, compare=False, repr=False)
    """The JSON schema of the arguments, for an edit form."""
    question: str = ""
    """The question of an MCP server; `input` is the form with the answers. "" if the request is about a tool call."""
    origin: str = ""
    """Where the tool of an MCP server runs, and what the server claims about the tool; "" for a tool of this notebook."""
    why: str = ""
    """The reason why somebody is asked, such as "permissions are 'ask'"."""
    check: Callable[[Mapping[str, object]], object] = field(
        default=lambda arguments: None, compare=False, repr=False
    )
    """Validates edited arguments. Returns the call that will run; its `.json` has them. Raises ValueError if they are invalid."""
    scopes: tuple[Scope, ...] = field(default=("call", "run"), compare=False, repr=False)
    """The scopes that a person may choose. "session" is missing if the conversation cannot be continued. Only "call" is left if a
    change of the function could not be detected."""
    editable: bool = field(default=True, compare=False, repr=False)
    """False for a request that comes from LiteLLM's own stream."""
    number: int = field(default=0, compare=False)
    """The number of the tool call in its turn, from 1; 0 if unknown. A server's question has the number of its tool call."""
    row: str = field(default="", compare=False, repr=False)
    """The row of a table whose run asks, such as "row 17 of 1,000"; "" if the run is for no row."""

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

        May be called from any thread. Raises ValueError, and decides nothing, if `arguments` do not validate or may not be
        edited, or if `scope` or `by` is not a known word.
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
                # The message was made for the model, and repeats the arguments. Here a person reads it, so API keys are hidden.
                raise ValueError(hide(str(error))) from None
            made = getattr(call, "json", None)
            if made is self.input:  # the edited arguments mean the same as the original arguments
                call = None
            else:
                edited = freeze(made if isinstance(made, dict) else given)
        self._decide(Decision(True, "", edited, by, scope if scope in self.scopes else "call"), call)

    def deny(self, reason: object = "", *, by: DecidedBy = "stream") -> None:
        """Refuse the call. The model gets `reason` as text. May be called from any thread."""
        _check_choice("by", by, get_args(DecidedBy))
        # The caller may pass an exception, a number or any other object as `reason`.
        text = str.__str__(reason) if isinstance(reason, str) else shorten_repr(reason, _LONGEST_REPR)
        self._decide(Decision(False, "" if reason is None else text, by=by))

    @property
    def answered(self) -> bool:
        return self._decided.done()

    @property
    def decision(self) -> Decision | None:
        """The decision; None if nobody has decided yet."""
        return self._decided.result()[0] if self.answered else None

    @property
    def edited_call(self) -> object:
        """What `check` returned for the edited arguments; None if nobody edited the arguments."""
        return self._decided.result()[1] if self.answered else None

    async def wait(self) -> tuple[bool, str]:
        """Wait for the decision. Returns (allowed, reason)."""
        if not self.answered:
            # A click may come on another thread (a kernel subshell of ipykernel 7). `shield`: if this wait is
            # cancelled, other waits for the same decision go on.
            await asyncio.shield(asyncio.wrap_future(self._decided))
        decision = self._decided.result()[0]
        return decision.allowed, decision.reason

    def _decide(self, decision: Decision, call: object = None) -> None:
        # Only the first decision counts; later ones do nothing. The thread of a sync `on_approval` is stopped when the turn has
        # the decision: with the lock, not before all others that wait for the decision have been woken.
        with STOP_LOCK, contextlib.suppress(InvalidStateError):
            self._decided.set_result((decision, call))


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if not is_exactly(value, *choices):
        allowed = " or ".join(", ".join(map(repr, choices)).rsplit(", ", 1))
        raise ValueError(f"{name} must be {allowed}, got {hide(shorten_repr(value))}")


# --- JSON data that nobody can change: the call runs with the arguments that the person saw, and they are recorded. ---
#
# Code that only reads can use the data like other dicts and lists (`json.dumps`, `==`, `isinstance`). An attempt to change it
# raises TypeError. `copy.deepcopy`, pickle and `thaw` return data that can be changed.


def _refuse(self: object, *_: object, **__: object) -> NoReturn:
    raise TypeError(
        "a person was shown these arguments, and the call runs with them, so they cannot be changed; to run the call with others, write "
        "approval.allow({**approval.input, NAME: VALUE})"
    )


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
    """Return a copy of JSON data. No dict and no list in the copy can be changed. If `value` is such a copy, return `value`."""
    if isinstance(value, (_FixedDict, _FixedList)):
        return value
    if isinstance(value, dict):
        return _FixedDict(zip(value, map(freeze, value.values()), strict=True))
    if isinstance(value, (list, tuple)):
        return _FixedList(map(freeze, value))
    return value


def thaw(value: Any) -> Any:
    """Return a copy of JSON data. The copy can be changed, even if `value` is frozen."""
    if type(value) is str:  # most values are texts
        return value
    if isinstance(value, dict):
        return dict(zip(value, map(thaw, value.values()), strict=True))
    if isinstance(value, (list, tuple)):
        return list(map(thaw, value))
    return value


def is_same_json(one: object, other: object) -> bool:
    """Return True if two values are the same JSON. In Python, 1, 1.0 and True are equal; as JSON, they are not."""
    return json.dumps(one, sort_keys=True, default=repr) == json.dumps(other, sort_keys=True, default=repr)


# --- the models of this package ----------------------------------------------------------------------------------

OWN_MODELS = "toolloop/"
"""The names of this package's models begin with this text. These models are Python code."""
DEMO_MODEL = f"{OWN_MODELS}demo"
"""The demonstration model."""
NO_DECISION = "the turn ended before a decision"
"""The reason of the denial if a turn ends while somebody is asked."""
NOT_ANSWERED = "approval not answered"
"""The reason of the denial if a stream's reader reads on without an answer. LiteLLM's streams give the same reason."""
REPLAYED = f"{OWN_MODELS}replay"
"""The names of models that replay a recording begin with this text. If a cost was recorded, the replayed call has this cost."""


# --- a model call: its request and its reply ---------------------------------------------------------------------

Emit = Callable[[Text | Reasoning | Attachment | Retry], Awaitable[None]]


@hide_in_repr
@dataclass(frozen=True)
class Request:
    """The arguments of one model call, exactly as `litellm.acompletion` gets them."""

    model: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] = field(default_factory=list)
    options: Mapping[str, Any] = field(default_factory=dict)
    """All other arguments that may be shown: stream, response_format, api_base, temperature, …"""
    secrets: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """API keys, headers and other arguments that are sent but never shown."""

    @property
    def address(self) -> str:
        """The address (`api_base`) to which the request is sent; "" if LiteLLM uses the provider's usual address."""
        given = {**self.secrets, **self.options}
        return str(given.get("api_base") or given.get("base_url") or "")

    def keywords(self) -> dict[str, object]:
        """Return the keyword arguments for `acompletion`. If there are no tools, all arguments about tools are left out."""
        made = {
            **self.options,
            **self.secrets,
            "tools": self.tools,
            "model": self.model,
            "messages": self.messages,
        }
        for name in () if self.tools else ("tools", "tool_choice", "parallel_tool_calls"):
            made.pop(name, None)
        return made

    def shown(self) -> dict[str, Any]:
        """Return the request as plain data without `secrets`. Step mode, dry runs and recordings show this data."""
        shown = {"model": self.model, "messages": make_plain(self.messages), "tools": make_plain(self.tools)}
        for name, value in self.options.items():
            # `response_format` may be a pydantic class.
            is_class = isinstance(value, type) and hasattr(value, "model_json_schema")
            shown[name] = value.model_json_schema() if is_class else make_plain(value)
        return shown


@hide_in_repr
@dataclass(frozen=True)
class Reply:
    """A model's reply to one request."""

    message: dict[str, Any]
    finish_reason: str | None
    usage: Usage
    cost: float | None
    """US dollars for all tries of the model call; None if the cost of one try is not known."""
    known_cost: float = 0.0
    """US dollars for this answer, without earlier tries that broke off; 0.0 if this cost is not known."""
    refusal: str = ""
    attachments: tuple[Attachment, ...] = ()
    seconds: float = 0.0

    @property
    def is_empty(self) -> bool:
        """True if the reply has neither a text nor an attachment. It may have tool calls."""
        return not ((self.message.get("content") or "").strip() or self.attachments)


# --- the fields of a delta or a message, which may be an object of LiteLLM's or a plain dict -------------------

Fields: TypeAlias = Mapping[str, Any]
"""The fields of a delta or a message: name -> value."""


def read_fields(source: object) -> Fields:
    """Return the fields of a dict, of a pydantic object of LiteLLM or of another object; {} for a value without fields.

    The dicts that store the fields of a pydantic object are read directly, because `getattr` takes about 3 µs for each
    absent field. In most deltas, most fields are absent.
    """
    if type(source) is dict:
        return source
    if source is None:
        return {}
    if hasattr(type(source), "__pydantic_fields__"):
        fields, extra = source.__dict__, source.__pydantic_extra__  # type: ignore[attr-defined]  # a model has it
        return {**extra, **fields} if extra else fields
    return source if isinstance(source, Mapping) else getattr(source, "__dict__", {})


def make_plain(value: Any) -> Any:
    """Return `value` as plain JSON data. LiteLLM's pydantic objects inside `value` become dicts."""
    if hasattr(value, "model_dump"):
        return value.model_dump(exclude_none=True)
    if isinstance(value, Mapping):
        return {key: make_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [make_plain(item) for item in value]
    return value


_NO_NUMBER = 10**300
"""Larger numbers in an answer are ignored: Python raises an error when it writes an int of more than 4,300 digits."""


def read_count(value: object) -> int:
    """Return a number of tokens that a server sent; 0 if `value` is not a number, is negative or is too large."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = float(value)
    is_number = isinstance(value, (int, float)) and 0 <= value < _NO_NUMBER
    return int(value) if is_number else 0  # type: ignore[call-overload]


def read_list(value: object) -> list[Any]:
    """Return the items of a field that should be a list; [] for data of any other type."""
    return list(value) if isinstance(value, (list, tuple)) else []


def read_content(content: object, between: str = "") -> str:
    """Return the text of a `content` field. A few providers send a list of parts, or a number. For other data, return "".

    The texts of parts are joined by `between`.
    """
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return between.join(str(read_fields(part).get("text") or "") for part in content)
    is_number = isinstance(content, (int, float)) and not isinstance(content, bool)
    return f"{content}" if is_number and abs(content) < _NO_NUMBER else ""  # type: ignore[arg-type]
