"""Models of our own: Python code of this process answers calls of the models "NAME/…".

A run of this package calls them directly (`ask`), so that a lesson needs no LiteLLM. `ensure` is for code that calls LiteLLM
itself; it registers them in `litellm.custom_provider_map`. Such a provider may stream several types of chunks; only
`ModelResponseStream` passes LiteLLM's stream wrapper unchanged. That wrapper drops a usage that comes with or after the finish
reason, and every empty chunk after it (1.110.2). So `_make_chunks()` sends the usage before the finish reason.

An error that is raised while `respond(request)` is *called* is a refused request, like the HTTP status of a real provider. An
error that is raised while the deltas are read breaks the stream off.
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
from ..text import hide_in_repr
from .client import close_stream, is_ready, litellm_loaded, load_litellm
from .options import is_kept

if TYPE_CHECKING:
    from pydantic import BaseModel

Delta: TypeAlias = dict[str, Any]
"""One OpenAI-style delta: {"content": …}, {"reasoning_content": …}, {"tool_calls": […]}, {"thinking_blocks": […]}, …
and, in any of them, "finish_reason" and "usage" ({"prompt_tokens": …, "completion_tokens": …})."""
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
    # Without these two LiteLLM logs a warning for each model that it learns.
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
"""OpenAI's finish reasons except "stop", which replaces every other name."""


@hide_in_repr
@dataclass(frozen=True)
class ProviderRequest:
    """A request to a model that is Python code of this process, e.g. the demo or a ScriptedModel."""

    model: str
    """The whole name, e.g. "toolloop/demo"."""
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    """Every other completion option that was set (`tool_choice`, `response_format`, `temperature`, …)."""
    stream: bool = True
    metadata: dict[str, Any] = field(default_factory=dict)


class Answers:
    """The object that answers for a model that is Python code. A subclass must write `respond`; all else has a default."""

    model: str = ""
    """The whole name, e.g. "toolloop/scripted-1"."""
    takes_images: bool | Literal["tool", "user"] | None = False
    """True if the model gets pictures that tools return; "tool" or "user" if it reads them only in such a message."""
    position: int | None = None
    """How many answers the model has given, if it gives them in a fixed order. Set it to continue with another answer."""
    differences: Sequence[str] = ()
    """How requests differed from the recorded ones, one text for each request."""

    def respond(self, request: ProviderRequest) -> AsyncIterator[Delta]:
        """Answer a request with deltas. Raises ProviderError to refuse the request."""
        raise NotImplementedError

    @property
    def title(self) -> str:
        """The model's name for a person: for a recording the recorded model, for a script the variable that holds it."""
        return self.model

    @property
    def next_title(self) -> str:
        """The `title` of the model that will answer the next model call."""
        return self.title

    def begin_row(self, row: Mapping[str, object]) -> Answers:
        """Return the object that answers for one row of a table. Here it is this object.

        A class with a script returns a new object, so that each row starts the script from the beginning.
        """
        return self

    def name_as(self, variable: str) -> None:
        """Remember the name of the variable that holds this model."""


Respond: TypeAlias = Callable[[ProviderRequest], AsyncIterator[Delta]]


class ProviderError(Exception):
    """A provider's refusal or failure; LiteLLM's callers get LiteLLM's exception for `status`, with this as its cause.

    Args:
        message: the text for a person.
        status: the HTTP status that it stands for; None stands for a lost connection.
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
        """The name of LiteLLM's exception for it."""
        other = "InternalServerError" if (self.status or 0) >= 500 else "BadRequestError"
        return EXCEPTIONS.get(self.status, other)

    @property
    def is_final(self) -> bool:
        """True if the request itself is refused, so that another try would fail, too."""
        refusals = "BadRequestError AuthenticationError PermissionDeniedError NotFoundError"
        return self.kind in refusals.split()


class PlainRefusal(ProviderError):
    """A message to the person from a model that is Python code, not an imitated error. All its lines are shown unchanged."""


class AnswerBroken(Exception):
    """A model that is Python code of this process failed in the middle of its answer.

    The message is written the way LiteLLM reports a broken stream.
    """

    def __init__(self, original: ProviderError) -> None:
        super().__init__(f"litellm.{original.kind}: {original}")
        self.original_exception = original


def provide(provider: str, respond: Respond) -> None:
    """Let `respond` answer the models "`provider`/…". LiteLLM learns of it with the next `ensure()`. Does not import LiteLLM.

    `respond` may be called on another thread; the iterator that it returns is read on the caller's loop. A second `provide`
    with the same name replaces `respond`.
    """
    if not provider or "/" in provider:
        raise ValueError(f"a provider's name is one word without a slash, not {provider!r}; e.g. 'toolloop'")
    _responders[provider] = respond


def find_responder(model: str) -> Respond | None:
    """The Python function that answers `model`, or None. Unpickling it in another process provides it there, too."""
    return _responders.get(model.partition("/")[0]) if "/" in model else None


def is_ours(model: str) -> bool:
    """Return whether Python code of this process answers for `model`. Does not import LiteLLM."""
    provider, slash, _ = model.partition("/")
    return bool(slash) and provider in _responders


def must_load(model: str) -> bool:
    """Return whether a call of `model` has to wait for LiteLLM's import."""
    return not is_ours(model) and not is_ready()


def was_one_asked() -> bool:
    """Return whether a model that is Python code was called in this process, directly and not through LiteLLM."""
    return bool(_asked)


async def ask(keywords: Fields) -> AsyncIterator[Chunk]:
    """Call the Python code that answers for `model`, with keywords of `acompletion`. Does not need or import LiteLLM.

    Returns the chunks, even if the keywords ask for a whole response or for no usage. Raises ProviderError for a refused
    request. Reading the chunks may raise it, too, or AnswerBroken if another try may succeed.
    """
    await asyncio.sleep(0)  # gives other tasks of the loop a turn, as in `_run_stream`
    model = keywords["model"]
    _asked.add(model)
    if litellm_loaded():
        ensure(model)  # so that code which calls LiteLLM itself finds the same models
    sent = {name: value for name, value in keywords.items() if value is not None and not is_kept(name)}
    request = _make_request(
        model, keywords["messages"], sent, keywords.get("metadata"), stream=bool(keywords.get("stream"))
    )
    return _run_stream(_responders[model.partition("/")[0]](request))


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
    """The JSON form of a `response_format` that is a class."""
    named = {"name": wanted.__name__, "schema": wanted.model_json_schema(), "strict": True}
    return {"type": "json_schema", "json_schema": named}


async def _run_stream(deltas: AsyncIterator[Delta]) -> AsyncIterator[Chunk]:
    try:
        async for chunk in _make_chunks(deltas):
            yield chunk
            await asyncio.sleep(0)  # a model that never waits leaves the loop (a Stop button) a turn
    except ProviderError as error:
        if error.is_final or error.status == 408:
            raise
        raise AnswerBroken(error) from error


async def _make_chunks(deltas: AsyncIterator[Delta]) -> AsyncIterator[Chunk]:
    """Turn deltas into chunks: usage and finish reason last, in this order, wherever they came.

    Deltas are changed as LiteLLM changes them: `reasoning` becomes `reasoning_content`, calls get a type and an index.
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
    """Register `model` in LiteLLM, with its provider and a price of 0, if `provide` has its provider. Imports LiteLLM.

    Cheap if there is nothing to do. Code that sets `litellm.custom_provider_map` for a provider of its own removes ours.
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
    """Make the object that LiteLLM calls. The class is made here because its base class needs LiteLLM."""

    class Handler(litellm.CustomLLM):  # type: ignore[name-defined,misc]  # it is loaded late, so its types are unknown
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
    """The chunks as LiteLLM's own objects."""
    types, first = litellm.types.utils, True
    try:
        async for chunk in _make_chunks(deltas):
            choice = chunk.pop("choices")[0]
            # A copy: LiteLLM writes an index and a type into the tool calls that it gets.
            delta = copy.deepcopy(choice["delta"])
            if delta and first:
                delta, first = {"role": "assistant", **delta}, False
            made = types.StreamingChoices(
                index=0, delta=types.Delta(**delta), finish_reason=choice["finish_reason"]
            )
            yield types.ModelResponseStream(choices=[made], model=model.partition("/")[2], **chunk)
    except ProviderError as error:
        raise _make_litellm_error(litellm, error, model) from error


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
