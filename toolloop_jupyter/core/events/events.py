"""The events of a run (text, tool calls, tool results, retries), and the request and the reply of a model call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from ..text import hide_in_repr
from .approval import Decision


@hide_in_repr
@dataclass(frozen=True)
class Attachment:
    """A picture, a sound, a file or another part of the answer or the prompt. LiteLLM has no such event.

    The event contains all its data: to show a part, nothing is fetched from the web.
    """

    kind: str
    """"picture", "audio", "source", "file", or the type that the server gave it."""
    name: str
    """A description in one line."""
    address: str = field(default="", repr=False)
    """A data address (`data:image/png;base64,…`), or "". For a picture of the prompt, this is a small copy of the picture."""
    is_sent: bool = False
    """True for a part of the prompt. The events for parts of the prompt come before the events for parts of the answer."""


StopReason: TypeAlias = Literal[
    "done", "max_turns", "timeout", "cancelled", "runtime_error", "max_model_calls", "max_cost"
]
ImageMode: TypeAlias = Literal["auto", "always", "never"]
FileChangeKind: TypeAlias = Literal["created", "modified", "deleted"]
ToolStatus: TypeAlias = Literal["done", "failed", "invalid", "refused", "denied", "cancelled"]
"""done: the function returned. failed: the function raised an error or took too long. invalid: there is no such tool, or the
arguments are not valid. refused: the loop did not run the call, because the answer was cut off, a limit was reached, or the
function or its arguments had changed after the check. denied: a person or a policy denied the call, or nobody could be
asked. cancelled: the turn ended before the call, or during the call."""


@dataclass(frozen=True)
class Usage:
    """The tokens and model calls of a turn or a session. The provider has reported the numbers of tokens."""

    input_tokens: int = 0
    output_tokens: int = 0
    calls: int = 0
    """The number of model calls. Tool calls are not counted."""
    # ours
    cache_read_tokens: int | None = None
    """How many of `input_tokens` the provider read from its cache; None if the provider does not report this number."""
    cache_write_tokens: int | None = None
    """How many of `input_tokens` the provider wrote to its cache; None if the provider does not report this number."""

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
    """Return the sum of two numbers. None counts as 0, but the sum of None and None is None."""
    return other if one is None else one if other is None else one + other


@dataclass(frozen=True)
class Text:
    """A piece of the model's text. Each piece is sent when it arrives; LiteLLM's loop sends only whole messages."""

    delta: str


@dataclass(frozen=True)
class Reasoning:
    """A piece of the model's reasoning. Each piece is sent when it arrives."""

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
    """True if the tool is a part of another harness of LiteLLM. Always False in the Tool Loop. LiteLLM's default is True."""


@dataclass(frozen=True)
class ToolResult:
    """The result of one tool call. `output` is exactly the text that the model gets."""

    id: str
    output: str
    is_error: bool = False
    # ours
    value: Any = field(default=None, compare=False, repr=False)
    """The object that the function returned, or the exception that it raised. This is the object itself, not a copy."""
    seconds: float = field(default=0.0, compare=False)
    """How long the function ran; 0.0 if it did not run."""
    traceback: str = field(default="", compare=False, repr=False)
    """The traceback of the function's exception, for a person. Frames of this package and of libraries are left out."""
    full_length: int = field(default=0, compare=False)
    """The length of `output` before it was shortened for the model; len(output) if it was not shortened."""
    ran: bool = field(default=False, compare=False)
    """True if the function was started."""
    pictures: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """The data addresses of the pictures that the model gets in addition to `output`. Empty if the model takes no pictures."""
    decision: Decision | None = field(default=None, compare=False, repr=False)
    """The decision about the call. This may be an earlier decision that allows all calls. None if no decision was needed."""
    status: ToolStatus = field(default="done", compare=False)
    printed: str = field(default="", compare=False, repr=False)
    """The part of `output` that the function printed."""
    returned: str | None = field(default=None, compare=False, repr=False)
    """The part of `output` that describes the returned value or the error. None if this part is the whole `output`."""

    def __post_init__(self) -> None:
        if self.is_error and self.status == "done":
            object.__setattr__(self, "status", "failed")

    @property
    def edited(self) -> Mapping[str, object] | None:
        """The arguments after a person has edited them. None if nobody has edited the arguments, or if the call did not run."""
        return self.decision.arguments if self.ran and self.decision is not None else None

    @property
    def cut(self) -> int:
        """About how many characters were left out of `output`."""
        return max(0, self.full_length - len(self.output))


@dataclass(frozen=True)
class FileChange:
    """A file of the sandbox folder that changed during the turn. `diff` is a unified diff; None for a binary file."""

    path: str
    kind: FileChangeKind
    diff: str | None = None


@dataclass(frozen=True)
class Compaction:
    """The conversation was shortened. Only LiteLLM's other harnesses send this event; the Tool Loop never sends it."""

    tokens_before: int | None = None
    tokens_after: int | None = None


@dataclass(frozen=True)
class Retry:
    """A model call failed and is tried again, or an answer did not fit `output=` and the model is asked for a new answer.

    LiteLLM has no such event. `discard` is text that was streamed but is not a part of the answer. Usually, the new try
    repeats the text that was streamed before, and continues this text. Then `discard` is "".
    """

    attempt: int
    error: str
    discard: str = ""
    wait: float = 0.0
    """Seconds until the next try."""
    of_answer: bool = False
    """True if the model call succeeded, but its answer was not accepted (see `error`). The next text begins a new answer."""
    model: str = ""
    """The `fallback` model that is asked from now on; "" if the same model is asked again."""


@dataclass(frozen=True)
class Span:
    """One model call, tool call or wait for approval. `start` and `end` are seconds since the turn began.

    LiteLLM has no such class.
    """

    kind: Literal["model", "tool", "approval"]
    name: str
    start: float
    end: float
    usage: Usage = Usage()
    cost: float | None = None
    is_error: bool = False


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
        tools = {"tools": self.tools} if self.tools else {}
        options = self.options
        if not tools:
            options = {k: v for k, v in options.items() if k not in ("tool_choice", "parallel_tool_calls")}
        return {
            **options,
            **self.secrets,
            **tools,
            "model": self.model,
            "messages": self.messages,
        }

    def shown(self) -> dict[str, Any]:
        """Return the request as plain data without `secrets`. Step mode, dry runs and recordings show this data."""
        options = {key: _shown_option(value) for key, value in self.options.items()}
        return {
            "model": self.model,
            "messages": make_plain(self.messages),
            "tools": make_plain(self.tools),
            **options,
        }


def _shown_option(value: object) -> object:
    """Return a completion option as plain data. A class (`response_format=Review`) becomes its JSON schema."""
    if isinstance(value, type) and hasattr(value, "model_json_schema"):
        return value.model_json_schema()
    return make_plain(value)


@hide_in_repr
@dataclass(frozen=True)
class Reply:
    """A model's reply to one request."""

    message: dict[str, Any]
    finish_reason: str | None
    usage: Usage
    cost: float | None
    """The cost of all tries of the model call, in US dollars; None if the cost of one try is not known."""
    known_cost: float = 0.0
    """The cost of this answer in US dollars, without earlier tries that broke off; 0.0 if this cost is not known."""
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
    """Return a number of tokens that a server sent. Return 0 if `value` is not a number, is negative or is too large."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = float(value)
    is_number = isinstance(value, (int, float)) and 0 <= value < _NO_NUMBER
    return int(value) if is_number else 0  # type: ignore[call-overload]


def read_list(value: object) -> list[Any]:
    """Return the items of a field that should be a list; [] for data of any other type."""
    return list(value) if isinstance(value, (list, tuple)) else []


def read_content(content: object) -> str:
    """Return the text of a `content` field. A few providers send the text as a list of parts, or as a number.

    Returns "" for data of any other type.
    """
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    if isinstance(content, (int, float)) and not isinstance(content, bool):
        return f"{content}" if abs(content) < _NO_NUMBER else ""
    if isinstance(content, list):
        return "".join(str(read_fields(part).get("text") or "") for part in content)
    return ""
