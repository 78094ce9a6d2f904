"""Models of our own behind LiteLLM's door: `provide()` makes `litellm.acompletion(model="NAME/…")` ask Python code.

LiteLLM keeps a list of custom providers (`litellm.custom_provider_map`). Of the chunk types that such a provider may
stream, only `ModelResponseStream` passes LiteLLM's stream wrapper as it stands; the documented generic chunk loses
reasoning, thinking blocks and every tool call but the first. Two habits of that wrapper shape `_chunks()` (seen with
1.110.2): a usage that comes with or after the finish reason is dropped, and so is every empty chunk after it.

An error raised while `respond(request)` is *called* is a refused request: `await acompletion()` itself raises, as a
real provider's HTTP status does. An error raised while the deltas are read breaks the stream in the middle.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from ..text import hide_in_repr

Delta: TypeAlias = dict[str, Any]
"""One OpenAI-style delta: {"content": …}, {"reasoning_content": …}, {"tool_calls": […]}, {"thinking_blocks": […]}, …
and, in any of them, "finish_reason" and "usage" ({"prompt_tokens": …, "completion_tokens": …})."""

_responders: dict[str, Respond] = {}
_priced: set[str] = set()

_FREE: Mapping[str, object] = {
    "mode": "chat",
    "input_cost_per_token": 0.0,
    "output_cost_per_token": 0.0,
    # Without these two LiteLLM logs a warning for each model that it learns.
    "cache_creation_input_token_cost": 0.0,
    "cache_read_input_token_cost": 0.0,
    "supports_function_calling": True,
    "supports_parallel_function_calling": True,
    "supports_response_schema": True,
    "supports_tool_choice": True,
    "supports_reasoning": True,
    "supports_vision": True,
}
_EXCEPTIONS: Mapping[int | None, str] = {
    None: "APIConnectionError",
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    408: "Timeout",
    429: "RateLimitError",
    503: "ServiceUnavailableError",
}
_TRANSPORT = (
    "api_key",
    "api_base",
    "base_url",
    "extra_headers",
    "headers",
    "num_retries",
    "max_retries",
    "timeout",
)
"""Options of `acompletion` that LiteLLM keeps to itself: no provider gets them."""
# LiteLLM 1.110 refuses these for a custom provider unless a call allows them by name.
_PASSED_PARAMETERS = ("context_management", "reasoning_effort", "thinking", "user", "verbosity")


@hide_in_repr
@dataclass(frozen=True)
class ProviderRequest:
    """What LiteLLM hands to a provider for one model call."""

    model: str
    """The whole name, e.g. "toolloop/demo"."""
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    """Every other completion option that was set (`tool_choice`, `response_format`, `temperature`, …)."""
    stream: bool = True
    metadata: dict[str, Any] = field(default_factory=dict)


class Answers:
    """What stands behind the name of a model of ours. Only `respond` has to be written; the rest says nothing by default."""

    model: str = ""
    """The whole name, e.g. "toolloop/scripted-1"."""
    takes_images: bool | Literal["tool", "user"] | None = False
    """Whether it is sent the pictures of results, or where it reads them."""
    position: int | None = None
    """How many calls were played, where they are played in order; set it to go on from another one."""
    differences: Sequence[str] = ()
    """How requests differed from those that it was made for, one text for each."""

    def respond(self, request: ProviderRequest) -> AsyncIterator[Delta]:
        """Answer a request with deltas. Raises ProviderError for one that is refused."""
        raise NotImplementedError

    @property
    def title(self) -> str:
        """The model as a person knows it: a recording's by the model that was recorded, a script by its variable."""
        return self.model

    @property
    def next_title(self) -> str:
        """The same for the call that comes next."""
        return self.title

    def name_as(self, variable: str) -> None:
        """Take note of the variable that a person calls it by."""


Respond: TypeAlias = Callable[[ProviderRequest], AsyncIterator[Delta]]


class ProviderError(Exception):
    """A provider's refusal or failure; LiteLLM's callers get LiteLLM's exception for `status`, with this as its cause.

    Args:
        message: what a person reads.
        status: the HTTP status that it stands for; None is a lost connection.
        headers: response headers, e.g. {"retry-after": "1"}.
    """

    def __init__(
        self, message: str, status: int | None = 500, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.headers = dict(headers or {})


class PlainRefusal(ProviderError):
    """What a model of ours says to the person, not an error that it plays: it is shown as it stands, lines and all."""


def provide(provider: str, respond: Respond) -> None:
    """Answer the models "`provider`/…" by `respond`, from the next `ensure()` on. Does not import LiteLLM.

    `respond` may run on another thread up to the iterator that it returns; the iterator is read on the caller's loop.
    Providing the same name again replaces the answer.
    """
    if not provider or "/" in provider:
        raise ValueError(f"a provider's name is one word without a slash, not {provider!r}; e.g. 'toolloop'")
    _responders[provider] = respond


def is_ours(model: str) -> bool:
    """Say whether `model` is answered by Python code of this process. Does not import LiteLLM."""
    return _provider_of(model) in _responders


def ensure(model: str) -> None:
    """Make LiteLLM know the provider of `model`, and that it costs nothing, if it is one of `provide()`'s.

    Cheap when there is nothing to do; call it before every model call, since code that sets
    `litellm.custom_provider_map` for a provider of its own drops ours.
    """
    if not is_ours(model):
        return
    from .client import load_litellm  # here, since model.py imports this module

    litellm = load_litellm()
    provider = _provider_of(model)
    if not any(item["provider"] == provider for item in litellm.custom_provider_map):
        litellm.custom_provider_map.append(
            {"provider": provider, "custom_handler": _make_handler(litellm, provider)}
        )
    if model not in _priced or model not in litellm.model_cost:
        litellm.register_model({model: {**_FREE, "litellm_provider": provider}})
        _priced.add(model)


def call_options(model: str) -> dict[str, Any]:
    """Return what a call of `model` must add to its options: LiteLLM refuses some of them for a custom provider."""
    return {"allowed_openai_params": list(_PASSED_PARAMETERS)} if is_ours(model) else {}


def proxy_in_use() -> bool:
    """Whether the user routes everything through the gateway, by either of LiteLLM's two switches."""
    by_variable = os.environ.get("USE_LITELLM_PROXY", "").strip().lower() == "true"
    return by_variable or bool(getattr(sys.modules.get("litellm"), "use_litellm_proxy", False))


async def acompletion(litellm: Any, keywords: Mapping[str, Any]) -> Any:
    """`litellm.acompletion(**keywords)`; a model of ours is answered here, whatever LiteLLM's switches say.

    With `litellm.use_litellm_proxy` LiteLLM (1.110) sends every model to the gateway, also a custom provider's: a prompt
    for the demo model would leave the machine.
    """
    model = keywords["model"]
    if not (is_ours(model) and proxy_in_use()):
        return await litellm.acompletion(**keywords)
    beside = {"model", "messages", "metadata", *_TRANSPORT, *call_options(model)}
    handler, stream = _make_handler(litellm, _provider_of(model)), bool(keywords.get("stream"))
    made = (handler.astreaming if stream else handler.acompletion)(
        model=model.partition("/")[2],
        messages=keywords["messages"],
        optional_params={key: value for key, value in keywords.items() if key not in beside},
        litellm_params={"metadata": keywords.get("metadata")},
    )
    return made if stream else await made


def _provider_of(model: str) -> str:
    return model.partition("/")[0] if "/" in model else ""


def _make_handler(litellm: Any, provider: str) -> Any:
    """Make the object that LiteLLM calls. The class is made here because its base class needs LiteLLM."""

    class Handler(litellm.CustomLLM):  # type: ignore[misc]  # LiteLLM is loaded lazily, so its types are unknown
        def astreaming(self, *, model: str, **given: Any) -> AsyncIterator[Any]:
            request = _request(f"{provider}/{model}", given)
            try:
                deltas = _responders[provider](request)
            except ProviderError as error:
                raise _litellm_error(litellm, error, request.model) from error
            return _chunks(litellm, request.model, deltas)

        async def acompletion(self, *, model: str, **given: Any) -> Any:
            chunks = [chunk async for chunk in self.astreaming(model=model, **given)]
            return litellm.stream_chunk_builder(chunks, messages=given["messages"])

        def completion(self, *, model: str, **_: Any) -> Any:
            name = f"{provider}/{model}"
            raise _litellm_error(
                litellm, ProviderError(f"use `await litellm.acompletion(model={name!r}, …)`", 400), name
            )

        streaming = completion

    return Handler()


def _request(model: str, given: Mapping[str, Any]) -> ProviderRequest:
    options = dict(given["optional_params"])
    options.pop("stream_options", None)
    return ProviderRequest(
        model=model,
        messages=list(given["messages"]),
        tools=list(options.pop("tools", None) or ()),
        stream=bool(options.pop("stream", False)),
        options=options,
        metadata=dict((given.get("litellm_params") or {}).get("metadata") or {}),
    )


async def _chunks(litellm: Any, model: str, deltas: AsyncIterator[Delta]) -> AsyncIterator[Any]:
    """Turn deltas into LiteLLM's chunks: usage and finish reason last, in this order, wherever they came."""
    types = litellm.types.utils
    finish, usage, first = "", None, True

    def chunk(delta: Delta, reason: str | None = None, **more: Any) -> Any:
        choice = types.StreamingChoices(index=0, delta=types.Delta(**delta), finish_reason=reason)
        return types.ModelResponseStream(choices=[choice], model=model.partition("/")[2], **more)

    try:
        async for given in deltas:
            delta = copy.deepcopy(given)  # LiteLLM writes an index and a type into the tool calls it is given
            finish = delta.pop("finish_reason", None) or finish
            usage = delta.pop("usage", None) or usage
            if delta:
                yield chunk({"role": "assistant", **delta} if first else delta)
                first = False
    except ProviderError as error:
        raise _litellm_error(litellm, error, model) from error
    if usage is not None:
        yield chunk({}, usage={"total_tokens": usage["prompt_tokens"] + usage["completion_tokens"], **usage})
    yield chunk({}, finish or "stop")


def _litellm_error(litellm: Any, error: ProviderError, model: str) -> Exception:
    import httpx  # LiteLLM's own HTTP library

    name = _EXCEPTIONS.get(
        error.status, "InternalServerError" if (error.status or 0) >= 500 else "BadRequestError"
    )
    options: dict[str, Any] = {"message": str(error), "llm_provider": _provider_of(model), "model": model}
    request = httpx.Request("POST", "http://localhost/")
    if error.status is None:
        options["request"] = request
    elif error.status == 408:
        options["headers"] = error.headers
    else:
        options["response"] = httpx.Response(error.status, headers=error.headers, request=request)
    made: Exception = getattr(litellm, name)(**options)
    return made
