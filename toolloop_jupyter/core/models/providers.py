"""Models that are Python code: a function in this process answers all calls of the models "PROVIDER/…".

A run of this package calls the function directly, with `ask`, so that a lesson does not need LiteLLM. If other code calls
LiteLLM itself, `ensure` registers the model in `litellm.custom_provider_map`. LiteLLM accepts several types of chunks from
a registered model, but LiteLLM's stream wrapper leaves only `ModelResponseStream` unchanged. The wrapper (1.110.2) drops a
usage that comes with the finish reason or later. The wrapper also drops all empty chunks after the finish reason. So
`_read_answer` sends the usage before the finish reason.

If the call `respond(request)` raises an error, the request is refused, as with an HTTP error of a real provider. If an
error is raised while the deltas are read, the stream breaks off.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..events import Fields, read_count, read_fields, read_list
from ..execution import attempt
from ..text import hide_in_repr
from .client import is_loading, is_ready, litellm_loaded, load_litellm
from .options import is_kept

if TYPE_CHECKING:
    from pydantic import BaseModel

Delta: TypeAlias = dict[str, Any]
"""One delta in OpenAI's form: {"content": …}, {"reasoning_content": …}, {"tool_calls": […]}, {"thinking_blocks": […]}, …

Any delta may also have "finish_reason" and "usage" ({"prompt_tokens": …, "completion_tokens": …})."""
Chunk: TypeAlias = dict[str, Any]
"""One chunk of a stream, or a whole response, in OpenAI's form."""

_responders: dict[str, Respond] = {}
_priced: set[str] = set()
_asked: set[str] = set()

_SUPPORTED = """supports_function_calling supports_parallel_function_calling supports_response_schema
    supports_tool_choice supports_reasoning supports_vision"""
_FREE: Mapping[str, object] = {
    "mode": "chat",
    "input_cost_per_token": 0.0,
    "output_cost_per_token": 0.0,
    # Without the next two prices, LiteLLM logs a warning for each model that is registered.
    "cache_creation_input_token_cost": 0.0,
    "cache_read_input_token_cost": 0.0,
    **dict.fromkeys(_SUPPORTED.split(), True),
}
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
    """True if the model gets pictures from tools; "tool" or "user" if the pictures may only be in messages of this role."""
    position: int | None = None
    """The number of answers given so far, if their order is fixed; else None. Set `position` to continue at another answer."""
    differences: Sequence[str] = ()
    """How requests differed from the recorded requests: one text for each request that differed."""

    def respond(self, request: ProviderRequest) -> AsyncIterator[Delta]:
        """Answer a request with deltas. Raises ProviderError to refuse the request."""
        raise NotImplementedError

    @property
    def title(self) -> str:
        """The name that a person sees: the recorded model's name for a recording, the variable's name for a script."""
        return self.model

    @property
    def next_title(self) -> str:
        """The `title` of the model that will answer the next model call."""
        return self.title

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
        self.status = status
        self.headers = dict(headers or {})

    @property
    def kind(self) -> str:
        """The class name of LiteLLM's exception for this error."""
        other = "InternalServerError" if (self.status or 0) >= 500 else "BadRequestError"
        return EXCEPTIONS.get(self.status, other)

    @property
    def is_final(self) -> bool:
        """True if the request itself is refused. A retry would then fail, too."""
        refusals = "BadRequestError AuthenticationError PermissionDeniedError NotFoundError"
        return self.kind in refusals.split()


class PlainRefusal(ProviderError):
    """A message to the person from a model that is Python code. It imitates no provider's error, and is shown unchanged."""


class AnswerBroken(Exception):
    """Raised if a model that is Python code fails in the middle of its answer.

    The message has the same form as LiteLLM's message for a broken stream.
    """

    def __init__(self, original: ProviderError) -> None:
        super().__init__(f"litellm.{original.kind}: {original}")
        self.original_exception = original


def provide(provider: str, respond: Respond) -> None:
    """Let `respond` answer all calls of the models "`provider`/…".

    Does not import LiteLLM; the next `ensure()` registers `provider` in LiteLLM. `respond` may be called on another thread,
    but the iterator that it returns is read on the event loop of the caller. A second call of `provide` for the same provider
    replaces the first `respond`.
    """
    if not provider or "/" in provider:
        raise ValueError(f"a provider's name is one word without a slash, not {provider!r}; e.g. 'toolloop'")
    _responders[provider] = respond


def find_responder(model: str) -> Respond | None:
    """Return the Python function that answers `model`; None if there is none.

    To unpickle the function, another process imports the function's module, which calls `provide`.
    """
    return _responders.get(model.partition("/")[0]) if "/" in model else None


def is_ours(model: str) -> bool:
    """Return True if `model` is Python code in this process. Does not import LiteLLM."""
    provider, slash, _ = model.partition("/")
    return bool(slash) and provider in _responders


def must_load(model: str) -> bool:
    """Return True if a call of `model` has to wait for the import of LiteLLM."""
    return not is_ours(model) and not is_ready()


def was_one_asked() -> bool:
    """Return True if a model that is Python code was called directly (not through LiteLLM) in this process."""
    return bool(_asked)


async def ask(keywords: Fields) -> AsyncIterator[Chunk]:
    """Call the Python code that answers for a model, and return the chunks of its answer. Does not import LiteLLM.

    `keywords`: the keywords of `acompletion`. The answer is always a stream with its usage, even if the keywords ask for
    one complete response, or for no usage. Raises ProviderError if the request is refused. While the chunks are read, the
    stream may raise ProviderError or, if a retry may succeed, AnswerBroken.
    """
    await asyncio.sleep(0)  # lets other tasks of the event loop run, as in `_read_answer`
    model = keywords["model"]
    _asked.add(model)
    # Code which calls LiteLLM itself must find the same models. While a thread imports LiteLLM's modules, this is left to a later
    # call: the event loop would have to wait for the thread.
    if litellm_loaded() and not is_loading():
        ensure(model)
    sent = {name: value for name, value in keywords.items() if value is not None and not is_kept(name)}
    request = _make_request(
        model, keywords["messages"], sent, keywords.get("metadata"), stream=bool(keywords.get("stream"))
    )
    return _read_answer(_responders[model.partition("/")[0]](request))


def _make_request(
    model: str, messages: Iterable[dict[str, Any]], options: Fields, metadata: Fields | None, *, stream: bool
) -> ProviderRequest:
    given = dict(options)
    if isinstance(wanted := given.get("response_format"), type):
        given["response_format"] = _describe_format(wanted)
    return ProviderRequest(
        model=model,
        messages=list(messages),
        tools=list(given.pop("tools", None) or ()),
        options=given,
        stream=stream,
        metadata=dict(metadata or {}),
    )


def _describe_format(wanted: type[BaseModel]) -> dict[str, object]:
    """Return the JSON form of a `response_format` that is a pydantic class."""
    named = {"name": wanted.__name__, "schema": wanted.model_json_schema(), "strict": True}
    return {"type": "json_schema", "json_schema": named}


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
        if error.is_final or error.status == 408:
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


# --- our models in LiteLLM --------------------------------------------------------------------------------------


def ensure(model: str) -> None:
    """Register `model` in LiteLLM with a price of 0, and register its provider. Do nothing for a model that is not Python code.

    Imports LiteLLM. A call is fast if both are registered already. The call has to be repeated before each use, since other
    code may replace `litellm.custom_provider_map`, and so remove the provider.
    """
    if not is_ours(model):
        return
    litellm = load_litellm()
    provider = model.partition("/")[0]
    if not any(item["provider"] == provider for item in litellm.custom_provider_map):
        litellm.custom_provider_map.append(
            {"provider": provider, "custom_handler": _make_handler(litellm, provider)}
        )
    if model not in _priced or model not in litellm.model_cost:
        litellm.register_model({model: {**_FREE, "litellm_provider": provider}})
        _priced.add(model)


def _make_handler(litellm: ModuleType, provider: str) -> object:
    """Return the object that LiteLLM calls. Its class is defined in this function, since the base class is in LiteLLM."""

    class Handler(litellm.CustomLLM):  # type: ignore[name-defined,misc]  # LiteLLM is loaded late, so its types are unknown
        def astreaming(self, *, model: str, **given: Any) -> AsyncIterator[object]:
            options = dict(given["optional_params"])
            options.pop("stream_options", None)
            metadata = (given.get("litellm_params") or {}).get("metadata")
            request = _make_request(
                f"{provider}/{model}",
                given["messages"],
                options,
                metadata,
                stream=bool(options.pop("stream", False)),
            )
            try:
                deltas = _responders[provider](request)
            except ProviderError as error:
                raise _make_litellm_error(litellm, error, request.model) from error
            return _stream_to_litellm(litellm, request.model, deltas)

        async def acompletion(self, *, model: str, **given: Any) -> object:
            chunks = [chunk async for chunk in self.astreaming(model=model, **given)]
            return litellm.stream_chunk_builder(chunks, messages=given["messages"])

    return Handler()


async def _stream_to_litellm(
    litellm: ModuleType, model: str, deltas: AsyncIterator[Delta]
) -> AsyncIterator[object]:
    """Yield the chunks as objects of LiteLLM's classes."""
    types, first = litellm.types.utils, True
    try:
        async for chunk in _read_answer(deltas):
            choice = chunk.pop("choices")[0]
            # LiteLLM gets a copy of the delta, since it writes an index and a type into the tool calls.
            delta = copy.deepcopy(choice["delta"])
            if delta and first:
                delta, first = {"role": "assistant", **delta}, False
            made = types.StreamingChoices(
                index=0, delta=types.Delta(**delta), finish_reason=choice["finish_reason"]
            )
            yield types.ModelResponseStream(choices=[made], model=model.partition("/")[2], **chunk)
    except ProviderError as error:
        raise _make_litellm_error(litellm, error, model) from error
    except AnswerBroken as error:
        raise _make_litellm_error(litellm, error.original_exception, model) from error.original_exception


def _make_litellm_error(litellm: ModuleType, error: ProviderError, model: str) -> Exception:
    import httpx  # LiteLLM's own HTTP library

    options: dict[str, object] = {
        "message": str(error),
        "llm_provider": model.partition("/")[0],
        "model": model,
    }
    request = httpx.Request("POST", "http://localhost/")
    if error.status is None:
        options["request"] = request
    elif error.status == 408:
        options["headers"] = error.headers
    else:
        options["response"] = httpx.Response(error.status, headers=error.headers, request=request)
    made: Exception = getattr(litellm, error.kind)(**options)
    return made
