"""Models that are Python code: a function in this process answers all calls of the models "PROVIDER/…".

A run of this package calls the function directly, with `ask`, so that a lesson does not need LiteLLM. For other code that
calls LiteLLM itself, `client.ensure` registers the model in LiteLLM.

If the call `respond(request)` raises an error, the request is refused, as with an HTTP error of a real provider. If an
error is raised while the deltas are read, the stream breaks off.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from ..events import Fields, read_count, read_fields, read_list
from ..execution import attempt
from ..text import hide_in_repr
from .options import find_rule

Delta: TypeAlias = dict[str, Any]
"""One delta in OpenAI's form: {"content": …}, {"reasoning_content": …}, {"tool_calls": […]}, {"thinking_blocks": […]}, …

Any delta may also have "finish_reason" and "usage" ({"prompt_tokens": …, "completion_tokens": …})."""
Chunk: TypeAlias = dict[str, Any]
"""One chunk of a stream, or a whole response, in OpenAI's form."""

_responders: dict[str, Respond] = {}

EXCEPTIONS: Mapping[int | None, str] = {
    None: "APIConnectionError",
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    408: "Timeout",
    429: "RateLimitError",
    503: "ServiceUnavailableError",
}
_FINAL = frozenset(
    {"BadRequestError", "AuthenticationError", "PermissionDeniedError", "NotFoundError", "Timeout"}
)
"""Errors that are raised unchanged, even in the middle of a stream. There, any other ProviderError becomes an AnswerBroken."""
_FINISH_REASONS = frozenset({"length", "tool_calls", "function_call", "content_filter"})
"""OpenAI's finish reasons, without "stop". Any finish reason that is not listed here becomes "stop"."""


@hide_in_repr
@dataclass(frozen=True)
class ProviderRequest:
    """A request to a model that is Python code of this process, e.g. the demo or a ScriptedModel."""

    model: str
    """The full name, e.g. "toolloop/demo"."""
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    """All other completion options that were set (`tool_choice`, `response_format`, `temperature`, …)."""
    stream: bool = True
    metadata: dict[str, Any] = field(default_factory=dict)


class Answers:
    """The object that answers for a model that is Python code. A subclass must define `respond`. Other members have defaults."""

    model: str = ""
    """The full name, e.g. "toolloop/scripted-1"."""
    takes_images: bool | Literal["tool", "user"] | None = False
    """The role of the messages in which the model gets pictures from tools: "tool" (also if True) or "user". If False or None,
    the model gets pictures only with `images="always"`, in tool messages."""
    position: int | None = None
    """The number of answers given so far, if their order is fixed; else None."""
    differences: Sequence[str] = ()
    """How requests differed from the recorded requests: one text for each request that differed."""

    def respond(self, request: ProviderRequest) -> AsyncIterator[Delta]:
        """Answer a request with deltas. Raises ProviderError to refuse the request."""
        raise NotImplementedError

    @property
    def title(self) -> str:
        """The name that a person sees. A recording shows the name of the recorded model, a script the name of its variable."""
        return self.model

    @property
    def next_title(self) -> str:
        """The `title` of the model that will answer the next model call."""
        return self.title

    def continue_at(self, position: int) -> None:
        """Give the same answers again that came after the first `position` answers."""
        self.position = position

    def begin_row(self, row: Mapping[str, object]) -> Answers:
        """Return the object that answers for one row of a table. The default is this object itself.

        A scripted model returns a new object, so that each row begins with the first answer of the script.
        """
        return self

    def name_as(self, variable: str) -> None:
        """Remember the name of the variable that holds this model."""


Respond: TypeAlias = Callable[[ProviderRequest], AsyncIterator[Delta]]


class ProviderError(Exception):
    """Raised if a provider refuses a request or fails.

    Code that calls LiteLLM gets LiteLLM's exception for `status`. The cause of that exception is the ProviderError.

    Args:
        message: the text for a person.
        status: the HTTP status of the error; None means a lost connection.
        headers: response headers, e.g. {"retry-after": "1"}.
    """

    def __init__(
        self, message: str, status: int | None = 500, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        # LiteLLM's errors have the attributes `status_code` and `litellm_response_headers`.
        self.status = self.status_code = status
        self.headers = self.litellm_response_headers = dict(headers or {})

    @property
    def kind(self) -> str:
        """The class name of LiteLLM's exception for this error."""
        other = "InternalServerError" if (self.status or 0) >= 500 else "BadRequestError"
        return EXCEPTIONS.get(self.status, other)


class PlainRefusal(ProviderError):
    """Raised by a model that is Python code. The person sees its message unchanged, not as a provider's error."""


class AnswerBroken(Exception):
    """Raised if a model that is Python code fails in the middle of its answer.

    The message has the same form as LiteLLM's message for a broken stream.
    """

    def __init__(self, original: ProviderError) -> None:
        super().__init__(f"litellm.{original.kind}: {original}")
        self.original_exception = original


def provide(provider: str, respond: Respond) -> None:
    """Let `respond` answer all calls of the models "`provider`/…".

    `respond` may be called on another thread, but the iterator that it returns is read on the event loop of the run. A
    second call of `provide` for the same provider replaces the first `respond`.
    """
    _responders[provider] = respond


def find_responder(model: str) -> Respond | None:
    """Return the Python function that answers `model`; None if there is none.

    Another process can unpickle the function: it imports the function's module, and the module calls `provide`.
    """
    return _responders.get(model.partition("/")[0]) if "/" in model else None


def is_ours(model: str) -> bool:
    """Return True if `model` is Python code in this process. Does not import LiteLLM."""
    return find_responder(model) is not None


async def ask(keywords: Fields) -> AsyncIterator[Chunk]:
    """Call the Python code that answers for a model, and return the chunks of its answer. Does not import LiteLLM.

    `keywords`: the keywords of `acompletion`. The answer is always a stream with its usage, even if the keywords ask for
    one complete response, or for no usage. Raises ProviderError if the request is refused. While the chunks are read, the
    stream may raise ProviderError or, if a retry may succeed, AnswerBroken.
    """
    await asyncio.sleep(0)  # lets other tasks of the event loop run, as in `_read_answer`
    sent = {
        name: value for name, value in keywords.items() if value is not None and not find_rule(name).is_kept
    }
    metadata, stream = keywords.get("metadata"), bool(keywords.get("stream"))
    return answer(keywords["model"], keywords["messages"], sent, metadata, stream=stream)


def answer(
    model: str, messages: Iterable[dict[str, Any]], options: Fields, metadata: Fields | None, *, stream: bool
) -> AsyncIterator[Chunk]:
    """Make the request, and return the chunks of its answer. Raises ProviderError if the request is refused."""
    given = dict(options)
    wanted: Any = given.get("response_format")
    if hasattr(wanted, "model_json_schema"):  # a pydantic class
        form = {"name": wanted.__name__, "schema": wanted.model_json_schema(), "strict": True}
        given["response_format"] = {"type": "json_schema", "json_schema": form}
    request = ProviderRequest(
        model=model,
        messages=list(messages),
        tools=list(given.pop("tools", None) or ()),
        options=given,
        stream=stream,
        metadata=dict(metadata or {}),
    )
    return _read_answer(_responders[model.partition("/")[0]](request))


async def close_stream(response: object) -> None:
    """Close the connection of a stream, so that the provider stops working on a cancelled request."""
    for stream in (response, getattr(response, "completion_stream", None)):
        closer = getattr(stream, "aclose", None)
        if closer is not None:
            await attempt(closer())
            return


async def _read_answer(deltas: AsyncIterator[Delta]) -> AsyncIterator[Chunk]:
    """Convert deltas to chunks. The usage and the finish reason are the last two chunks, even if an early delta has them.

    Deltas are changed in the same way as in LiteLLM: `reasoning` becomes `reasoning_content`, and tool calls get a type and
    an index.
    """
    finish, usage, has_calls = "", None, False
    try:
        async for given in deltas:
            delta, numbers = dict(given), itertools.count()
            finish = delta.pop("finish_reason", None) or finish
            usage = read_fields(delta.pop("usage", None)) or usage
            if "reasoning" in delta and delta.get("reasoning_content") is None:
                delta["reasoning_content"] = delta.pop("reasoning")
            if fragments := delta.get("tool_calls"):
                has_calls, delta["tool_calls"] = True, []
                for one in map(read_fields, read_list(fragments)):
                    index = next(numbers) if one.get("index") is None else one["index"]
                    delta["tool_calls"].append({"type": "function", **one, "index": index})
            if delta:
                yield _make_chunk(delta)
                await asyncio.sleep(0)  # lets other tasks (a Stop button) run, even if the model never waits
    except ProviderError as error:
        if error.kind in _FINAL:
            raise
        raise AnswerBroken(error) from error
    finally:
        await close_stream(deltas)
    if usage is not None:
        total = read_count(usage.get("prompt_tokens")) + read_count(usage.get("completion_tokens"))
        yield {**_make_chunk({}), "usage": {"total_tokens": total, **usage}}
    reason = finish if finish in _FINISH_REASONS else "stop"
    yield _make_chunk({}, "tool_calls" if has_calls and reason == "stop" else reason)


def _make_chunk(delta: Delta, finish_reason: str | None = None) -> Chunk:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}
