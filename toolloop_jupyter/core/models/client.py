"""The only module that imports LiteLLM: the import itself, one streamed request, and facts that its stream wrapper hides.

The import takes seconds and 200 MB. So it comes late, in a thread, and not at all for models of our own.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import importlib
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any

from ..events import make_plain, read_content, read_fields
from ..execution import attempt
from .parts import is_attached

_importing = threading.Lock()
_WITH_THE_FIRST_CALL = (
    "litellm.litellm_core_utils.default_encoding",
    "litellm.proxy.openai_files_endpoints.common_utils",
    "litellm.llms.github_copilot.authenticator",
    "litellm.proxy.spend_tracking.savings",
    "litellm._service_logger",
    "anyio._backends._asyncio",
)
"""Modules that LiteLLM (1.110.2) imports in its first model call, on the caller's event loop. There it also builds a large
pydantic model. Both take another second, most of it for a tokenizer."""


def load_litellm() -> ModuleType:
    """Import litellm, which takes seconds the first time, and return the module.

    Sets `LITELLM_LOCAL_MODEL_COST_MAP=True` before the import, if the user has not set it. Without it, the import fetches a
    price list from the network, and offline waits for it (seen on 1.110.2).
    """
    with _importing:
        if not litellm_loaded():
            os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
            with _without_collecting():
                import litellm
    import litellm

    _silence_litellm(litellm)
    module: ModuleType = litellm
    return module


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Stop the garbage collector during an import. It would search the same new objects again and again, find nothing, and
    take a third of the import's time.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@functools.cache
def _silence_litellm(litellm: Any) -> None:
    """Keep LiteLLM's own messages and downloads out of the cells. Done once, also if the user has imported litellm first.

    All seen on 1.110.2. Without `suppress_debug_info`, an error or an unknown model prints "Give Feedback" and a list of
    providers into the cell. Without `disable_hf_tokenizer_download`, the end of a stream without a usage downloads a
    tokenizer (Llama, Cohere) to estimate the usage: on the event loop, and offline with long retries. With it, the bundled
    tokenizer serves. If the root logger shows INFO, LiteLLM logs each call twice, so its loggers get the level WARNING, unless
    somebody has set their level.
    """
    leave_out_price_list()
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        if logging.getLogger(name).level == logging.NOTSET:
            logging.getLogger(name).setLevel(logging.WARNING)
    litellm.suppress_debug_info = True
    if litellm.disable_hf_tokenizer_download is None:
        litellm.disable_hf_tokenizer_download = True


class _WithoutPriceList(logging.Filter):
    """Drops log lines about LiteLLM's price list, unless somebody has set the logger to INFO or DEBUG."""

    def filter(self, record: logging.LogRecord) -> bool:
        asked = logging.getLogger(record.name).level in (logging.DEBUG, logging.INFO)
        return asked or "model cost map" not in str(record.msg)


_WITHOUT_PRICE_LIST = _WithoutPriceList()


def leave_out_price_list() -> None:
    """Keep LiteLLM's log lines about its price list out of the cells. May be called before anybody imports LiteLLM.

    If the user imports LiteLLM, a thread tries for ten seconds to load a newer list. If it cannot, it warns four times
    (1.110.2), in whichever cell runs then. The local list serves as well.
    """
    logging.getLogger("LiteLLM").addFilter(_WITHOUT_PRICE_LIST)  # to add the same filter again does nothing


def litellm_loaded() -> bool:
    """Return whether anybody has imported litellm already."""
    # Not by `hasattr`: during the import, the module's `__getattr__` would start imports in this thread, too.
    return "acompletion" in vars(sys.modules.get("litellm", sys))


@functools.cache
def _make_ready() -> None:
    """Import litellm, and the modules that its first call would import."""
    load_litellm()
    with _importing, _without_collecting():
        for name in _WITH_THE_FIRST_CALL:
            with suppress(ImportError):  # another version of LiteLLM lacks this module
                importlib.import_module(name)
        with suppress(ImportError, AttributeError):
            importlib.import_module("litellm.types.router").GenericLiteLLMParams.model_rebuild()


def is_ready() -> bool:
    """Return whether a request can go out at once: litellm is imported, with the modules that its first call needs."""
    return _make_ready.cache_info().currsize > 0


async def await_litellm() -> None:
    """Wait until a request can go out. The import runs in a thread, so that the loop (a Stop button) stays alive."""
    if not is_ready():
        await asyncio.shield(asyncio.to_thread(_make_ready))


def start_loading() -> None:
    """Begin LiteLLM's import in a thread, and do not wait for it."""
    if not is_ready() and not _importing.locked():
        threading.Thread(target=_make_ready, name="toolloop-import-litellm", daemon=True).start()


class LiteLLMStream:
    """Facts about one streamed answer that LiteLLM's stream wrapper hides. Make it before the answer is read.

    Reads attributes of `litellm.CustomStreamWrapper` that are not documented (seen on 1.110.2). Does nothing if they are
    absent.
    """

    def __init__(self, response: Any) -> None:
        self._response = response
        self._hidden = getattr(response, "_hidden_params", None)
        self._refusals: list[str] = []
        stream = getattr(response, "completion_stream", None)
        self._is_json = "application/json" in str(
            read_fields(getattr(getattr(stream, "response", None), "headers", None)).get("content-type")
        )
        if hasattr(stream, "__anext__"):
            response.completion_stream = _WatchedStream(stream, self._refusals)

    @property
    def is_json(self) -> bool:
        """True if the server has sent one JSON document instead of a stream; LiteLLM reads nothing of it."""
        return self._is_json

    @property
    def refusal(self) -> str:
        """The text of OpenAI's `refusal` field, which LiteLLM's chunks lose."""
        return "".join(self._refusals)

    @property
    def ended_early(self) -> bool:
        """True if the stream ended without a finish reason; LiteLLM makes up "stop" for most providers."""
        told = ("received_finish_reason", "intermittent_finish_reason", "received_any_finish_reason")
        return hasattr(self._response, told[0]) and not any(
            getattr(self._response, name, None) for name in told
        )

    @property
    def cost(self) -> float | None:
        """The cost by the provider's headers; None if they do not tell it."""
        return cost_in_headers(self._hidden)


async def close_stream(response: object) -> None:
    """Close the connection behind a stream, so that the provider does not go on with a cancelled request."""
    for stream in (response, getattr(response, "completion_stream", None)):
        closer = getattr(stream, "aclose", None)
        if closer is not None:
            await attempt(closer())
            return


class Breath:
    """Gives the event loop (a Stop button, tasks of other cells) a turn after each `SECONDS` of work."""

    SECONDS = 0.004

    def __init__(self) -> None:
        self._since = time.monotonic()

    @property
    def is_due(self) -> bool:
        return time.monotonic() - self._since > self.SECONDS

    async def take(self) -> None:
        await asyncio.sleep(0)
        self._since = time.monotonic()


class _WatchedStream:
    """Stands between a provider's own stream and LiteLLM. It changes deltas that LiteLLM would drop, and collects the texts of
    OpenAI's `refusal` field.

    The collecting can go when LiteLLM's own deltas have a `refusal`.
    """

    def __init__(self, stream: Any, refusals: list[str]) -> None:
        self._stream, self._iterator, self._refusals = stream, stream, refusals
        self._breath = Breath()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> _WatchedStream:
        # LiteLLM asks for the iterator before each chunk; some streams need that.
        self._iterator = self._stream.__aiter__()
        return self

    async def __anext__(self) -> object:
        # Needed here, too: LiteLLM keeps empty chunks to itself, and may read many of them in a row.
        if self._breath.is_due:
            await self._breath.take()
        chunk = await self._iterator.__anext__()
        choices = read_fields(chunk).get("choices")
        if choices:
            delta = read_fields(choices[0]).get("delta")
            if refusal := read_fields(delta).get("refusal"):
                self._refusals.append(str(refusal))
            _make_readable(delta)
        return chunk


def _make_readable(delta: object) -> None:
    """Turn fields of a delta into text that LiteLLM (1.110) would silently drop otherwise: content in parts (Mistral's form,
    with thinking among them), ids that are numbers, arguments that are JSON data.
    """
    fields = getattr(delta, "__dict__", None)
    if fields is None:
        return
    content = fields.get("content")
    _carry_attachments(delta)
    if isinstance(content, list):
        fields["content"] = read_content(content)
        thinking = "".join(read_content(read_fields(part).get("thinking")) for part in content)
        extra = getattr(delta, "__pydantic_extra__", None)
        if thinking and extra is not None:
            extra.setdefault("reasoning_content", thinking)
    calls = fields.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        own = getattr(call, "__dict__", {})
        if own.get("id") is not None and not isinstance(own["id"], str):
            own["id"] = str(own["id"])
        _make_arguments_text(own.get("function"))
    _make_arguments_text(fields.get("function_call"))


def _make_arguments_text(function: Any) -> None:
    fields = getattr(function, "__dict__", {})
    arguments = fields.get("arguments")
    if arguments is not None and not isinstance(arguments, str):
        fields["arguments"] = json.dumps(make_plain(arguments))


def _carry_attachments(delta: object) -> None:
    """Move a delta's attachments into its field `images`, the only such field that LiteLLM (1.110) passes on."""
    extra = getattr(delta, "__pydantic_extra__", None)
    if extra is None:
        return
    content = read_fields(delta).get("content")
    others = [part for part in content if is_attached(part)] if isinstance(content, list) else []
    for name in ("annotations", "files"):
        parts = extra.get(name)
        others += parts if isinstance(parts, list) else []
    if others:
        extra["images"] = [*(extra.get("images") or ()), *map(make_plain, others)]


def cost_in_headers(hidden: object) -> float | None:
    """The cost in a response's `_hidden_params`: from a gateway's `x-litellm-response-cost`, or by LiteLLM; or None."""
    if not hidden:
        return None
    fields = read_fields(hidden)
    headers = read_fields(fields.get("additional_headers"))
    for value in (headers.get("llm_provider-x-litellm-response-cost"), fields.get("response_cost")):
        if not value:
            continue
        try:
            cost = float(value)
        except (TypeError, ValueError):
            continue
        if cost >= 0 and cost != float("inf"):
            return cost
    return None
