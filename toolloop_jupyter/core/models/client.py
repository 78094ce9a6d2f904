"""The connection to LiteLLM: its import, its knowledge of models (abilities, prices), and the models that are Python code.

Only this module imports LiteLLM. The import takes seconds and 200 MB of memory. So LiteLLM is imported only when it is needed,
in a thread. A model that is Python code does not need it.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import gc
import importlib
import importlib.util
import json
import logging
import math
import os
import re
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..events import REPLAYED, Fields, ImageMode, make_plain, read_content, read_fields, read_list
from ..execution import Raised, attempt_call, uncounted
from .assembly import is_attached
from .options import PROXY
from .providers import AnswerBroken, Answers, Chunk, ProviderError, answer, close_stream, is_ours

if TYPE_CHECKING:  # `results` imports pydantic, and the extension loads without pydantic
    from ..results import PicturePlace

_importing = threading.Lock()
_WITH_THE_FIRST_CALL = (
    "litellm.litellm_core_utils.default_encoding",
    "litellm.proxy.openai_files_endpoints.common_utils",
    "litellm.llms.github_copilot.authenticator",
    "litellm.proxy.spend_tracking.savings",
    "litellm._service_logger",
    "anyio._backends._asyncio",
)
"""Modules that LiteLLM (1.110.2) imports only in its first model call, on the caller's event loop. In the same call, it builds
a large pydantic model. The imports and this model take about 1 s, most of it for a tokenizer."""


def load_litellm() -> ModuleType:
    """Import litellm, and return the module. The first import takes seconds.

    Sets the environment variable `LITELLM_LOCAL_MODEL_COST_MAP=True`, if the user has not set it. Without the variable, the
    import (1.110.2) fetches a price list from the network. If there is no network, the import waits long.
    """
    # A thread holds the lock of `_make_ready` for seconds. Code on the event loop runs this only after the import.
    if not is_litellm_loaded():
        _make_ready()
    module = sys.modules["litellm"]
    _silence_litellm(module)
    return module


@contextlib.contextmanager
def _without_collecting() -> Iterator[None]:
    """Stop the garbage collector during an import: the collector takes a third of the time, and finds nothing."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@functools.cache
def _silence_litellm(litellm: Any) -> None:
    """Keep LiteLLM's messages out of the cells, and prevent its downloads. Only the first call does this.

    The reasons, seen on LiteLLM 1.110.2:

    - Without `suppress_debug_info`, LiteLLM prints "Give Feedback" and a list of providers into the cell, if an error
      occurs or a model is unknown.
    - If a stream ends without a usage, LiteLLM estimates the usage. Without `disable_hf_tokenizer_download`, LiteLLM then
      downloads a tokenizer (Llama, Cohere). The download blocks the event loop, and without a network it is retried for a
      long time. With the setting, LiteLLM uses its bundled tokenizer.
    - If the root logger shows INFO, LiteLLM logs each call twice. So LiteLLM's loggers get the level WARNING. A level that
      the user has set stays.
    """
    leave_out_price_list()
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        if logging.getLogger(name).level == logging.NOTSET:
            logging.getLogger(name).setLevel(logging.WARNING)
    litellm.suppress_debug_info = True
    if litellm.disable_hf_tokenizer_download is None:
        litellm.disable_hf_tokenizer_download = True


def leave_out_price_list() -> None:
    """Keep LiteLLM's log messages about its price list out of the cells. May be called before LiteLLM is imported.

    If the user imports LiteLLM, a thread of LiteLLM tries for ten seconds to load a newer price list. If the thread fails,
    it logs four warnings (1.110.2). The warnings would appear in the cell that runs at that time.
    """
    logging.getLogger("LiteLLM").addFilter(_is_wanted)  # adding the same filter twice has no effect


def _is_wanted(record: logging.LogRecord) -> bool:
    """Return False for a message about the price list, except if the user has set the logger to INFO or DEBUG."""
    asked = logging.getLogger(record.name).level in (logging.DEBUG, logging.INFO)
    return asked or "model cost map" not in str(record.msg)


def is_litellm_loaded() -> bool:
    """Return True if the import of litellm is complete, whoever began it. In this case, `import litellm` never waits."""
    module = sys.modules.get("litellm", sys)
    # private: `_initializing` (Python 3.10 to 3.14) is True until the import has ended. Meanwhile `import litellm` waits in other
    # threads. `hasattr` must not be used: `__getattr__` of litellm would import more modules here.
    return "acompletion" in vars(module) and not getattr(module.__spec__, "_initializing", False)


@functools.cache
def _make_ready() -> None:
    """Import litellm, and the modules that LiteLLM would otherwise import in its first model call."""
    with _importing, _without_collecting():
        if not is_litellm_loaded():
            os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        _silence_litellm(importlib.import_module("litellm"))
        # Another version of LiteLLM may lack these modules, or raise any error here. Model calls work without these imports.
        for name in _WITH_THE_FIRST_CALL:
            attempt_call(importlib.import_module, name)
        router: Any = sys.modules.get("litellm.types.router")
        attempt_call(lambda: router.GenericLiteLLMParams.model_rebuild())  # noqa: PLW0108 - reading the attribute may raise, too


def is_ready() -> bool:
    """Return True if a request can be sent at once: litellm and the modules for its first model call are imported."""
    return _make_ready.cache_info().currsize > 0


def must_load(model: str) -> bool:
    """Return True if a call of `model` has to wait for the import of LiteLLM."""
    return not is_ours(model) and not is_ready()


async def await_litellm() -> None:
    """Wait until LiteLLM is imported, so that a request can be sent. The wait does not count for the `timeout` of a run.

    The import runs in a thread, so the event loop can still react to a Stop button.
    """
    if not is_ready():
        with uncounted():
            await asyncio.shield(asyncio.to_thread(_make_ready))


def start_loading() -> None:
    """Begin LiteLLM's import in a thread, and do not wait for it. If it fails, the next run that needs LiteLLM says so."""
    if not is_ready() and not _importing.locked():
        threading.Thread(
            target=attempt_call, args=(_make_ready,), name="toolloop-import-litellm", daemon=True
        ).start()


def explain_missing_bytecode() -> tuple[Path, str] | None:
    """Return (LiteLLM's folder, the cause) if each new process compiles LiteLLM's source files anew; else None.

    This is so if there is no bytecode beside the files, and Python cannot or must not write any. Does not import LiteLLM.
    """
    spec = importlib.util.find_spec("litellm")
    if spec is None or not spec.has_location or not str(spec.origin).endswith(".py"):
        return None
    source = Path(str(spec.origin))
    bytecode = Path(importlib.util.cache_from_source(str(source)))
    folder = next(folder for folder in bytecode.parents if folder.exists())
    if bytecode.exists():
        return None
    if sys.dont_write_bytecode:
        return source.parent, "Python is set to write no bytecode (PYTHONDONTWRITEBYTECODE)"
    if os.access(folder, os.W_OK):
        return None
    return source.parent, f"you may not write into {folder}, so its owner has to type this"


# --- models that are Python code, for code that calls LiteLLM itself --------------------------------------------


_SUPPORTED = "function_calling parallel_function_calling response_schema tool_choice reasoning vision"
_FREE: Mapping[str, object] = {
    "mode": "chat",
    "input_cost_per_token": 0.0,
    "output_cost_per_token": 0.0,
    # Without the next two prices, LiteLLM logs a warning for each model that is registered.
    "cache_creation_input_token_cost": 0.0,
    "cache_read_input_token_cost": 0.0,
    **{f"supports_{ability}": True for ability in _SUPPORTED.split()},
}


def ensure(model: str) -> None:
    """Register `model` in LiteLLM with a price of 0, and register its provider. Do nothing for a model that is not Python code.

    Imports LiteLLM. Only code that calls LiteLLM itself needs this: a run of this package calls the model directly.
    """
    if not is_ours(model):
        return
    litellm, provider = load_litellm(), model.partition("/")[0]
    if not any(item["provider"] == provider for item in litellm.custom_provider_map):
        handler = _make_handler(litellm, provider)
        litellm.custom_provider_map.append({"provider": provider, "custom_handler": handler})
    if model not in litellm.model_cost:
        litellm.register_model({model: {**_FREE, "litellm_provider": provider}})


def _make_handler(litellm: ModuleType, provider: str) -> object:
    """Return the object that LiteLLM calls for the models of `provider`. Its class is made here, because it needs `litellm`."""

    class Handler(litellm.CustomLLM):  # type: ignore[name-defined,misc]  # LiteLLM is loaded late, so its types are unknown
        def astreaming(self, *, model: str, **given: Any) -> AsyncIterator[object]:
            options = dict(given["optional_params"])
            options.pop("stream_options", None)
            metadata = (given.get("litellm_params") or {}).get("metadata")
            name, stream = f"{provider}/{model}", bool(options.pop("stream", False))
            try:
                chunks = answer(name, given["messages"], options, metadata, stream=stream)
            except ProviderError as error:
                raise _make_litellm_error(litellm, error, name) from error
            return _stream_to_litellm(litellm, name, chunks)

        async def acompletion(self, *, model: str, **given: Any) -> object:
            chunks = [chunk async for chunk in self.astreaming(model=model, **given)]
            return litellm.stream_chunk_builder(chunks, messages=given["messages"])

    return Handler()


async def _stream_to_litellm(
    litellm: ModuleType, model: str, chunks: AsyncIterator[Chunk]
) -> AsyncIterator[object]:
    """Yield the chunks as objects of LiteLLM's classes.

    LiteLLM accepts several types of chunks, but its stream wrapper leaves only `ModelResponseStream` unchanged. The wrapper
    (1.110.2) drops a usage that comes with the finish reason or later, and all empty chunks after the finish reason.
    """
    types, first = litellm.types.utils, True
    try:
        async for chunk in chunks:
            choice = chunk.pop("choices")[0]
            # LiteLLM gets a copy of the delta, because LiteLLM writes an index and a type into the tool calls.
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
    finally:
        await close_stream(chunks)


def _make_litellm_error(litellm: ModuleType, error: ProviderError, model: str) -> Exception:
    import httpx  # LiteLLM's own HTTP library

    provider = model.partition("/")[0]
    options: dict[str, object] = {"message": str(error), "llm_provider": provider, "model": model}
    request = httpx.Request("POST", "http://localhost/")
    if error.status is None:
        options["request"] = request
    elif error.status == 408:
        options["headers"] = error.headers
    else:
        options["response"] = httpx.Response(error.status, headers=error.headers, request=request)
    made: Exception = getattr(litellm, error.kind)(**options)
    return made


# --- facts that LiteLLM's stream wrapper hides ------------------------------------------------------------------

_LONGEST_BLOCKING = 0.004
"""The largest number of seconds for which reading a stream keeps other tasks waiting (a Stop button, other cells)."""


class StreamFacts:
    """Facts about one streamed answer that LiteLLM's stream wrapper hides. Create this object before reading the answer.

    This object stands between the wrapper and the provider's stream. It also changes deltas that LiteLLM would drop. It uses
    undocumented attributes of `litellm.CustomStreamWrapper` (seen on 1.110.2). If these attributes are missing, the facts are
    those of an ordinary stream. When LiteLLM's own deltas have a field `refusal`, the attribute `refusal` can be removed.
    """

    def __init__(self, response: Any) -> None:
        self._response, self._since = response, time.monotonic()
        self._stream: Any = getattr(response, "completion_stream", None)
        self._iterator: Any = self._stream
        self.refusal = ""
        """The text of OpenAI's `refusal` field."""
        headers = read_fields(getattr(getattr(self._stream, "response", None), "headers", None))
        self.is_json = "application/json" in str(headers.get("content-type"))
        """True if the server has sent one JSON document in place of a stream. LiteLLM does not read this document."""
        if hasattr(self._stream, "__anext__"):
            response.completion_stream = self

    @property
    def ended_early(self) -> bool:
        """True if the stream ended without a finish reason. LiteLLM hides this: for most providers, it reports "stop"."""
        names = ("received_finish_reason", "intermittent_finish_reason", "received_any_finish_reason")
        reasons = [getattr(self._response, name, None) for name in names]
        return hasattr(self._response, names[0]) and not any(reasons)

    async def let_others_run(self) -> None:
        """Let other tasks run if they have waited for _LONGEST_BLOCKING seconds."""
        if time.monotonic() - self._since > _LONGEST_BLOCKING:
            await asyncio.sleep(0)
            self._since = time.monotonic()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> StreamFacts:
        # LiteLLM calls `__aiter__` before each chunk. Some streams need this call, so it is passed on.
        self._iterator = self._stream.__aiter__()
        return self

    async def __anext__(self) -> object:
        await self.let_others_run()  # LiteLLM may read many chunks in a row before it passes one on
        chunk = await self._iterator.__anext__()
        if choices := read_fields(chunk).get("choices"):
            delta = read_fields(choices[0]).get("delta")
            if refusal := read_fields(delta).get("refusal"):
                self.refusal += str(refusal)
            _make_readable(delta)
        return chunk


def _make_readable(delta: object) -> None:
    """Change fields of a delta into text. Otherwise LiteLLM (1.110) would drop these fields silently.

    The fields are: content that is a list of parts (Mistral's form, which can include thinking), ids that are numbers, and
    arguments that are JSON data. Attachments are added to the field `images`, because LiteLLM passes on no other field for these.
    """
    fields, extra = getattr(delta, "__dict__", {}), getattr(delta, "__pydantic_extra__", None)
    content = fields.get("content")
    parts = read_list(content)
    if extra is not None:
        attached = [one for name in ("annotations", "files") for one in read_list(extra.get(name))]
        if attached := [*filter(is_attached, parts), *attached]:
            extra["images"] = [*(extra.get("images") or ()), *map(make_plain, attached)]
        if thinking := "".join(read_content(read_fields(part).get("thinking")) for part in parts):
            extra.setdefault("reasoning_content", thinking)
    if isinstance(content, list):
        fields["content"] = read_content(content)
    functions = [fields.get("function_call")]
    for call in read_list(fields.get("tool_calls")):
        stored = getattr(call, "__dict__", {})
        functions.append(stored.get("function"))
        if stored.get("id") is not None:
            stored["id"] = str(stored["id"])
    for function in functions:
        stored = getattr(function, "__dict__", {})
        arguments = stored.get("arguments")
        if arguments is not None and not isinstance(arguments, str):
            stored["arguments"] = json.dumps(make_plain(arguments))


# --- what LiteLLM's tables say about a model, without access to the network -------------------------------------

_IN_TOOL = frozenset({"anthropic", "bedrock", "bedrock_converse", "gemini", "vertex_ai", "vertex_ai_beta"})
"""The providers that accept pictures in tool messages."""
_MARKED = frozenset({"anthropic", "azure_ai", "bedrock", "bedrock_converse", "vertex_ai"})
"""Providers that cache prompts for Claude only if the request has cache marks. OpenAI and Gemini cache without marks."""
_OWN_MARKS = ("enable_prompt_caching", "cache_control_injection_points", "cache_control")
"""Completion options with which users control the prompt cache themselves."""
_POINTS: tuple[Fields, ...] = (
    {"location": "message", "role": "system"},
    {"location": "message", "index": -1},
)
"""The messages that LiteLLM (1.110) marks if `enable_prompt_caching` is set: the system message and the last message.

The mark at the system message also covers the tools, which come before it in the request.
"""
_SUPPORTS = {
    "pictures": "supports_vision",
    "PDF files": "supports_pdf_input",
    "sound": "supports_audio_input",
}
"""For each kind of content in a prompt: the name of LiteLLM's function that says whether a model takes this content."""


def _split_model(model: str) -> tuple[str, str] | None:
    """Return (the name, the provider) that LiteLLM reads from `model`. Return None if LiteLLM finds no provider, or if the model
    is Python code.
    """
    if is_ours(model):
        return None
    split = attempt_call(load_litellm().get_llm_provider, model)
    return None if isinstance(split, Raised) else (split[0], split[1])


def _map_options(parts: tuple[str, str], **options: object) -> Fields | None:
    """Return the completion options in the provider's form, as LiteLLM converts them; None if LiteLLM refuses an option."""
    (name, provider), litellm = parts, load_litellm()
    mapped = attempt_call(
        lambda: litellm.get_optional_params(model=name, custom_llm_provider=provider, **options)
    )
    return None if isinstance(mapped, Raised) else mapped


def _supports(model: str, content: str) -> bool:
    """Return True if LiteLLM knows that the model takes `content`, a key of `_SUPPORTS`."""
    check = getattr(load_litellm(), _SUPPORTS[content])
    names = {model, model.removeprefix(PROXY)}  # a gateway's model group often has the same name as its model
    return any(attempt_call(check, name) is True for name in names)


def takes_response_format(model: str, tools: Sequence[object], response_format: object) -> bool:
    """Return True if the model really supports `response_format`, and can call the tools at the same time.

    LiteLLM's function `get_optional_params` (1.110) shows this. It raises an error for groq/llama-3.3 and cohere. For older
    Claude models, it forces a call of a hidden tool, `json_tool_call`, so these models could call no other tool. Two more
    facts are not in LiteLLM: Gemini before version 3 refuses JSON answers together with tools, and Ollama's `format` makes
    even the first token JSON, so the model never calls a tool.
    """
    parts = _split_model(model)
    if parts is None:
        return True  # if the name is wrong, the error of the model call will say so
    name, provider = parts
    if not tools:
        return _map_options(parts, response_format=response_format) is not None
    if provider.startswith("ollama") or ("gemini" in name and not re.search(r"gemini-(?:[3-9]|\d\d)", name)):
        return False
    mapped = _map_options(parts, response_format=response_format, tools=tools)
    return mapped is not None and "json_tool_call" not in str(mapped.get("tool_choice"))


def takes_tool_choice_none(model: str, tools: Sequence[object]) -> bool:
    """Return True if the model supports `tool_choice="none"`. LiteLLM (1.110) refuses it for Bedrock and others."""
    parts = _split_model(model)
    return parts is None or _map_options(parts, tools=tools, tool_choice="none") is not None


def find_cache_marks(
    model: str, given: Mapping[str, object], list_messages: Callable[[], Iterable[Fields]] = list
) -> dict[str, object]:
    """Return the completion options that let a provider cache the beginning of a request; {} if no options are needed.

    `given`: the options that the user has set. Without a gateway, the option is `enable_prompt_caching`: if it is set,
    LiteLLM (1.110) marks the messages. A gateway ignores this option in a request. So if the name of the model group contains
    "claude", or if the user has set `enable_prompt_caching`, a request to a gateway gets the marks themselves. The gateway
    passes the marks to the provider or removes the marks. If the user has set other cache options or marks, return {}.
    """
    if is_ours(model):
        return {}
    set_by_user = [name for name in _OWN_MARKS if given.get(name) is not None]
    if model.startswith(PROXY):
        asked = set_by_user == ["enable_prompt_caching"] and given["enable_prompt_caching"] is True
        if not (asked or (not set_by_user and "claude" in model.lower())) or any(
            map(_is_marked, list_messages())
        ):
            return {}
        return {"cache_control_injection_points": [dict(point) for point in _POINTS]}
    parts = None if set_by_user else _split_model(model)
    if parts is None or parts[1] not in _MARKED or "claude" not in parts[0].lower():
        return {}
    knows = attempt_call(load_litellm().utils.supports_prompt_caching, *parts)
    return {"enable_prompt_caching": True} if knows is True else {}


def _is_marked(message: Fields) -> bool:
    parts = read_list(message.get("content"))
    return any("cache_control" in read_fields(one) for one in (message, *parts))


def choose_picture_place(
    model: str, wish: ImageMode = "auto", answers: Answers | None = None
) -> PicturePlace | None:
    """Return the role of the message in which the model gets a tool's pictures: "tool" or "user"; None for no pictures.

    If `wish` is "never", the model gets no pictures. If `wish` is "auto", LiteLLM's `supports_vision` decides. If `wish` is
    "always", the model gets pictures: LiteLLM does not know the groups of a gateway and the models of private servers.
    `answers`: the object that answers if the model is Python code. Its `takes_images` decides, not LiteLLM.
    """
    if wish == "never":
        return None
    if is_ours(model):
        takes = answers.takes_images if answers is not None else False
        return takes if takes in ("tool", "user") else "tool" if takes or wish == "always" else None
    if wish == "auto" and not _supports(model, "pictures"):
        return None
    parts = _split_model(model)
    return "tool" if parts is not None and parts[1] in _IN_TOOL else "user"


def find_untaken(model: str, needs: Iterable[str], wish: ImageMode = "auto") -> list[str]:
    """Return the items of `needs` ("pictures", "PDF files", "sound") that the model is not known to take in a prompt.

    If `wish` is "always", the model takes all items. If `wish` is "never", the model takes no item. A model that is Python
    code takes all items, but reads only the text of a prompt.
    """
    if wish == "never":
        return list(needs)
    if wish == "always" or is_ours(model):
        return []
    return [need for need in needs if not _supports(model, need)]


def is_free(model: str) -> bool:
    """Return True if no call of this model costs anything, whether it succeeds or fails.

    This is true for a model that is Python code. It is false for a recording: a replayed call has the recorded cost.
    """
    return is_ours(model) and not model.startswith(REPLAYED)


def find_price(model: str, usage: object) -> float | None:
    """Return the cost in US dollars, from `usage` itself or from LiteLLM's price list. Unknown costs are None, not 0."""
    cost = read_fields(usage).get("cost")
    if isinstance(cost, int | float) and not isinstance(cost, bool) and 0 <= cost < math.inf:
        return float(cost)
    if is_ours(model):
        return None if model.startswith(REPLAYED) else 0.0
    parts = None if usage is None or model.startswith(PROXY) else _split_model(model)
    if parts is None:
        return None
    (name, provider), litellm = parts, load_litellm()
    # LiteLLM (1.110) would raise ModelNotMappedError, or return 0, for a model that is not in its price list.
    if name not in litellm.model_cost and f"{provider}/{name}" not in litellm.model_cost:
        return None
    costs = attempt_call(
        lambda: litellm.cost_per_token(model=name, custom_llm_provider=provider, usage_object=usage)
    )
    return None if isinstance(costs, Raised) else float(sum(costs))


def read_cost(hidden: object) -> float | None:
    """Return the cost of a response in US dollars; None if it is unknown. `hidden` is the response's `_hidden_params`.

    The cost is the number in the gateway's header `x-litellm-response-cost`. Without such a number, the cost is the one that
    LiteLLM itself has calculated.
    """
    fields = read_fields(hidden)
    headers = read_fields(fields.get("additional_headers"))
    for value in (headers.get("llm_provider-x-litellm-response-cost"), fields.get("response_cost")):
        with contextlib.suppress(TypeError, ValueError):
            if 0 <= (cost := float(value or "nan")) < math.inf:
                return cost
    return None
