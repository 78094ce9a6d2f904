"""The events of a run (text, calls and their results, retries), and a model call's request and reply: plain data."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from ..text import hide_in_repr
from .approval import Decision


@dataclass(frozen=True)
class Attachment:
    """Ours: a part of the answer, or of the prompt, that is no text, thought or call. Data only: nothing is fetched to show it."""

    kind: str
    """"picture", "audio", "source", "file", or the type that the server gave it."""
    name: str
    """A description in one line."""
    address: str = field(default="", repr=False)
    """Its data address (`data:image/png;base64,…`), or "". A picture of the prompt has the address of a small copy, for people."""
    is_sent: bool = False
    """Whether it is a part of the prompt. Those come before the parts of the answer."""


StopReason: TypeAlias = Literal[
    "done", "max_turns", "timeout", "cancelled", "runtime_error", "max_model_calls", "max_cost"
]
ImageMode: TypeAlias = Literal["auto", "always", "never"]
FileChangeKind: TypeAlias = Literal["created", "modified", "deleted"]
ToolStatus: TypeAlias = Literal["done", "failed", "invalid", "refused", "denied", "cancelled"]
"""done: the function returned. failed: it raised, or took too long. invalid: there is no such tool, or the arguments do not
fit. refused: the loop did not run it (the answer was cut off, a limit was reached, or something changed after the check).
denied: a person or a policy denied it, or nobody could be asked. cancelled: the turn ended before it ran, or while it ran."""


@dataclass(frozen=True)
class Usage:
    """Tokens and model calls of a turn or a session, as the provider reported them."""

    input_tokens: int = 0
    output_tokens: int = 0
    calls: int = 0
    """Model calls, not tool calls."""
    # ours
    cache_read_tokens: int | None = None
    """How many of `input_tokens` the provider has read from its cache; None if nobody tells."""
    cache_write_tokens: int | None = None
    """How many of `input_tokens` the provider has put into its cache; None if nobody tells."""

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.calls + other.calls,
            _add_told(self.cache_read_tokens, other.cache_read_tokens),
            _add_told(self.cache_write_tokens, other.cache_write_tokens),
        )


def _add_told(one: int | None, other: int | None) -> int | None:
    """The sum of two numbers of which each may be unknown; None if both are."""
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
    """The model asks for a tool. Comes before validation: `input` has the arguments as sent, {} if they were no JSON object."""

    id: str
    name: str
    """The name in the notebook; for a made-up tool, what the model wrote."""
    native_name: str
    """The name that the model uses; another one than `name` if providers do not take that."""
    input: Mapping[str, object]
    builtin: bool = True
    """Whether the harness brings this tool itself. Always False in the Tool Loop; True is LiteLLM's default."""


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
    """How long the function ran; 0.0 when it did not."""
    traceback: str = field(default="", compare=False, repr=False)
    """For a person: the traceback of the function's own exception, cut to the person's code."""
    full_length: int = field(default=0, compare=False)
    """Characters of the whole text before it was cut for the model; equal to len(output) when it was not."""
    ran: bool = field(default=False, compare=False)
    """Whether the function was started."""
    pictures: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """Data addresses of the pictures that the model gets beside `output`; empty when it takes none."""
    decision: Decision | None = field(default=None, compare=False, repr=False)
    """The decision to run it or not, perhaps an earlier approval of all calls; None if nothing had to be decided."""
    status: ToolStatus = field(default="done", compare=False)
    printed: str = field(default="", compare=False, repr=False)
    """The function's prints that are part of `output`."""
    returned: str | None = field(default=None, compare=False, repr=False)
    """The part of `output` with the value or the error; None if `output` has nothing else."""

    def __post_init__(self) -> None:
        if self.is_error and self.status == "done":
            object.__setattr__(self, "status", "failed")

    @property
    def edited(self) -> Mapping[str, object] | None:
        """The arguments that a person edited (`output` tells the model so); None if nobody edited them, or it did not run."""
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
    """Another harness of LiteLLM has shortened its conversation. The Tool Loop never sends this event."""

    tokens_before: int | None = None
    tokens_after: int | None = None


@dataclass(frozen=True)
class Retry:
    """Ours: a model call failed and is tried again, or its answer did not fit `output=` and is asked for again.

    `discard` is streamed text that is no longer valid. It is mostly "", since a new try that repeats the shown text continues it.
    """

    attempt: int
    error: str
    discard: str = ""
    wait: float = 0.0
    """Seconds until the next try."""
    of_answer: bool = False
    """Whether the call came back whole, but its answer was not accepted: `error` says why. The next answer is a new text."""
    model: str = ""
    """The model that is asked from now on (a `fallback`); "" if the same model is asked again."""


@dataclass(frozen=True)
class Span:
    """Ours: one model call or tool call on the run's time line. Times in seconds since the turn began."""

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
    """api_key and headers: sent, never shown."""

    @property
    def address(self) -> str:
        """The address of the API that gets the request; "" for the provider's own."""
        given = {**self.secrets, **self.options}
        return str(given.get("api_base") or given.get("base_url") or "")

    def keywords(self) -> dict[str, object]:
        """The keyword arguments of `acompletion`. No tools, no tool options: providers refuse an empty list."""
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
        """The request without keys and headers, as plain data: for step mode, dry runs and recordings."""
        options = {key: _shown_option(value) for key, value in self.options.items()}
        return {
            "model": self.model,
            "messages": make_plain(self.messages),
            "tools": make_plain(self.tools),
            **options,
        }


def _shown_option(value: object) -> object:
    """A completion option as plain data; a class (`response_format=Review`) as its JSON schema."""
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
    """The part of the cost that is known: that of the answer itself, without earlier tries that broke off."""
    refusal: str = ""
    attachments: tuple[Attachment, ...] = ()
    seconds: float = 0.0


# --- the fields of a delta or a message, which may be an object of LiteLLM's or a plain dict -------------------

Fields: TypeAlias = Mapping[str, Any]
"""The fields of a delta or a message, by their names."""


def read_fields(source: object) -> Fields:
    """The fields of an object of LiteLLM's, of a plain dict or of any other object; {} for a value that has none.

    A pydantic object's own dicts are read: its `__getattr__` takes some 3 µs for an absent field, and most fields are
    absent in most deltas.
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
    """A number of tokens, as a server tells it; 0 for what is no such number."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = float(value)
    is_number = isinstance(value, int | float) and 0 <= value < _NO_NUMBER
    return int(value) if is_number else 0  # type: ignore[call-overload]


def read_list(value: object) -> list[Any]:
    """The items of a field that should be a list; [] for data of any other type."""
    return list(value) if isinstance(value, list | tuple) else []


def read_content(content: object) -> str:
    """The text of a field that should be a text, which a few providers send as a list of parts, or as a number.

    "" for data of any other type.
    """
    if isinstance(content, str):
        return content
    if isinstance(content, int | float) and not isinstance(content, bool):
        return f"{content}" if abs(content) < _NO_NUMBER else ""
    if isinstance(content, list):
        return "".join(str(read_fields(part).get("text") or "") for part in content)
    return ""
