"""The events of a run (text, tool calls, their results, retries), and a model call's request and reply. All are plain data."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from ..text import hide_in_repr
from .approval import Decision


@dataclass(frozen=True)
class Attachment:
    """A part of the answer or the prompt that is no text, reasoning or tool call (LiteLLM has no such event).

    It is data only: nothing is fetched to show it.
    """

    kind: str
    """"picture", "audio", "source", "file", or the type that the server gave it."""
    name: str
    """A description in one line."""
    address: str = field(default="", repr=False)
    """Its data address (`data:image/png;base64,…`), or "". For a picture of the prompt, that of a small copy, for people."""
    is_sent: bool = False
    """True for a part of the prompt. These events come before those for parts of the answer."""


StopReason: TypeAlias = Literal[
    "done", "max_turns", "timeout", "cancelled", "runtime_error", "max_model_calls", "max_cost"
]
ImageMode: TypeAlias = Literal["auto", "always", "never"]
FileChangeKind: TypeAlias = Literal["created", "modified", "deleted"]
ToolStatus: TypeAlias = Literal["done", "failed", "invalid", "refused", "denied", "cancelled"]
"""done: the function returned. failed: it raised, or took too long. invalid: there is no such tool, or the arguments do not
fit. refused: the loop did not run the call (the answer was cut off, a limit was reached, or something changed after the
check). denied: a person or a policy denied the call, or nobody could be asked. cancelled: the turn ended before the call
ran, or while it ran."""


@dataclass(frozen=True)
class Usage:
    """Tokens and model calls of a turn or a session, as the provider reported them."""

    input_tokens: int = 0
    output_tokens: int = 0
    calls: int = 0
    """Model calls, not tool calls."""
    # ours
    cache_read_tokens: int | None = None
    """How many of `input_tokens` the provider has read from its cache; None if it does not say."""
    cache_write_tokens: int | None = None
    """How many of `input_tokens` the provider has put into its cache; None if it does not say."""

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
    """Return the sum of two numbers. An unknown one (None) counts as 0; the sum is None if both are unknown."""
    return other if one is None else one if other is None else one + other


@dataclass(frozen=True)
class Text:
    """A piece of the model's text, as it arrives (LiteLLM's loop sends whole messages instead)."""

    delta: str


@dataclass(frozen=True)
class Reasoning:
    """A piece of the model's reasoning, as it arrives."""

    delta: str


@dataclass(frozen=True)
class ToolCall:
    """The model calls a tool. `input` has the arguments before validation, as sent; {} if they were no JSON object."""

    id: str
    name: str
    """The tool's name in the notebook; if there is no such tool, the name that the model wrote."""
    native_name: str
    """The tool's name for the model. It differs from `name` if providers do not take `name`."""
    input: Mapping[str, object]
    builtin: bool = True
    """True if one of LiteLLM's other harnesses brings the tool (LiteLLM's default). Always False in the Tool Loop."""


@dataclass(frozen=True)
class ToolResult:
    """The result of one tool call. `output` is exactly the text that the model gets."""

    id: str
    output: str
    is_error: bool = False
    # ours
    value: Any = field(default=None, compare=False, repr=False)
    """The live object that the function returned."""
    seconds: float = field(default=0.0, compare=False)
    """How long the function ran; 0.0 if it did not run."""
    traceback: str = field(default="", compare=False, repr=False)
    """For a person: the traceback of the function's exception, shortened to the person's own code."""
    full_length: int = field(default=0, compare=False)
    """The length of the whole text before it was shortened for the model; len(output) if it was not shortened."""
    ran: bool = field(default=False, compare=False)
    """True if the function was started."""
    pictures: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """Data addresses of the pictures that the model gets beside `output`. Empty if the model takes no pictures."""
    decision: Decision | None = field(default=None, compare=False, repr=False)
    """The decision about the call. It may be an earlier approval of all calls. None if nothing had to be decided."""
    status: ToolStatus = field(default="done", compare=False)
    printed: str = field(default="", compare=False, repr=False)
    """The part of `output` that the function printed."""
    returned: str | None = field(default=None, compare=False, repr=False)
    """The part of `output` that tells the value or the error; None if that is all of `output`."""

    def __post_init__(self) -> None:
        if self.is_error and self.status == "done":
            object.__setattr__(self, "status", "failed")

    @property
    def edited(self) -> Mapping[str, object] | None:
        """The arguments as a person edited them (`output` says so); None if nobody did, or if the call did not run."""
        return self.decision.arguments if self.ran and self.decision is not None else None

    @property
    def cut(self) -> int:
        """About how many characters were left out of `output`."""
        return max(0, self.full_length - len(self.output))


@dataclass(frozen=True)
class FileChange:
    """A file of the sandbox folder that changed during the turn. `diff` is a unified diff, None for binary files."""

    path: str
    kind: FileChangeKind
    diff: str | None = None


@dataclass(frozen=True)
class Compaction:
    """The conversation was shortened. Only LiteLLM's other harnesses send this event, never its Tool Loop or this package."""

    tokens_before: int | None = None
    tokens_after: int | None = None


@dataclass(frozen=True)
class Retry:
    """A model call failed and is tried again, or its answer did not fit `output=` and the model is asked for another one.

    LiteLLM has no such event. `discard` is streamed text that no longer counts. It is mostly "": a new try that repeats the
    text already shown continues that text.
    """

    attempt: int
    error: str
    discard: str = ""
    wait: float = 0.0
    """Seconds until the next try."""
    of_answer: bool = False
    """True if the call itself succeeded, but its answer was not accepted (see `error`). The next answer is a new text."""
    model: str = ""
    """The model that is asked from now on (a `fallback`); "" if the same model is asked again."""


@dataclass(frozen=True)
class Span:
    """One model call, tool call or wait for approval, in seconds since the turn began. LiteLLM has no such class."""

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
    """One model call, exactly as it goes to `litellm.acompletion`."""

    model: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] = field(default_factory=list)
    options: Mapping[str, Any] = field(default_factory=dict)
    """Everything else: stream, response_format, api_base, temperature, …"""
    secrets: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """api_key and headers. They are sent, but never shown."""

    @property
    def address(self) -> str:
        """The address of the API that gets the request; "" for the provider's own."""
        given = {**self.secrets, **self.options}
        return str(given.get("api_base") or given.get("base_url") or "")

    def keywords(self) -> dict[str, object]:
        """Return the keyword arguments for `acompletion`. Without tools, `tools` and its options are left out."""
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
        """Return the request as plain data, without API keys and headers: for step mode, dry runs and recordings."""
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
    """US dollars; None if neither the provider nor LiteLLM's price list tells the whole cost."""
    known_cost: float = 0.0
    """The known cost of the answer itself, without earlier tries that broke off; 0.0 if it is not known."""
    refusal: str = ""
    attachments: tuple[Attachment, ...] = ()
    seconds: float = 0.0


# --- the fields of a delta or a message, which may be an object of LiteLLM's or a plain dict -------------------

Fields: TypeAlias = Mapping[str, Any]
"""The fields of a delta or a message, by their names."""


def read_fields(source: object) -> Fields:
    """Return the fields of an object of LiteLLM's, of a plain dict or of any other object; {} for a value without fields.

    For a pydantic object, its inner dicts are read. Its `__getattr__` takes about 3 µs for an absent field, and in most
    deltas most fields are absent.
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
    """Turn LiteLLM's pydantic objects inside `value` into plain JSON data."""
    if hasattr(value, "model_dump"):
        return value.model_dump(exclude_none=True)
    if isinstance(value, Mapping):
        return {key: make_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [make_plain(item) for item in value]
    return value


_NO_NUMBER = 10**300
"""Python writes no integer of more than 4,300 digits, and no number of an answer is as large as this."""


def read_count(value: object) -> int:
    """Return the number of tokens that a server sent; 0 if `value` is no such number."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = float(value)
    is_number = isinstance(value, (int, float)) and 0 <= value < _NO_NUMBER
    return int(value) if is_number else 0  # type: ignore[call-overload]


def read_list(value: object) -> list[Any]:
    """Return the items of a field that should be a list; [] for data of any other type."""
    return list(value) if isinstance(value, (list, tuple)) else []


def read_content(content: object) -> str:
    """Return the text of a field. A few providers send it as a list of parts, or as a number.

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
