"""The only module that imports LiteLLM. It also reads facts about an answer that LiteLLM's stream wrapper hides.

The import takes seconds and 200 MB of memory. So LiteLLM is imported only when it is needed, in a thread. A model that is
Python code does not need it.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import importlib
import importlib.util
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from ..events import make_plain, read_content, read_fields, read_list
from ..execution import attempt_call, uncounted
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
"""Modules that LiteLLM (1.110.2) imports only in its first model call, on the caller's event loop.

In the same call, LiteLLM builds a large pydantic model. The imports and this model take about 1 s, most of it for a
tokenizer."""


def load_litellm() -> ModuleType:
    """Import litellm, and return the module. The first import takes seconds.

    Sets the environment variable `LITELLM_LOCAL_MODEL_COST_MAP=True` before the import, if the user has not set it. Without
    the variable, the import (1.110.2) fetches a price list from the network. If there is no network, the import waits long.
    """
    # The lock is held for seconds. So code on the event loop, which needs litellm only after its import, never takes the lock.
    if not litellm_loaded():
        with _importing, _without_collecting():
            return _import_litellm()
    return _import_litellm()


def _import_litellm() -> ModuleType:
    if not litellm_loaded():
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    _silence_litellm(litellm)
    module: ModuleType = litellm
    return module


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Stop the garbage collector during an import.

    The collector would examine the same new objects again and again, and find no garbage. This would take a third of the
    time of the import.
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
    """Keep LiteLLM's messages out of the cells, and prevent its downloads. Only the first call does this.

    It makes no difference whether this package or the user's code has imported litellm.

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


class _WithoutPriceList(logging.Filter):
    """Drops log messages about LiteLLM's price list. If the user has set the logger to INFO or DEBUG, drops nothing."""

    def filter(self, record: logging.LogRecord) -> bool:
        asked = logging.getLogger(record.name).level in (logging.DEBUG, logging.INFO)
        return asked or "model cost map" not in str(record.msg)


_WITHOUT_PRICE_LIST = _WithoutPriceList()


def leave_out_price_list() -> None:
    """Keep LiteLLM's log messages about its price list out of the cells. May be called before LiteLLM is imported.

    If the user imports LiteLLM, a thread of LiteLLM tries for ten seconds to load a newer price list. If the thread fails,
    it logs four warnings (1.110.2). The warnings appear in the cell that runs at that time. Nobody needs these warnings,
    since the price list inside LiteLLM is good enough.
    """
    logging.getLogger("LiteLLM").addFilter(_WITHOUT_PRICE_LIST)  # adding the same filter twice has no effect


def litellm_loaded() -> bool:
    """Return True if litellm has been imported to its end, by this package or by the user. Then `import litellm` never waits."""
    module = sys.modules.get("litellm", sys)
    # private: `_initializing` (Python 3.10 to 3.14) is True until the import has ended. Meanwhile `import litellm` waits in other
    # threads. `hasattr` must not be used: `__getattr__` of litellm would import more modules here.
    return "acompletion" in vars(module) and not getattr(module.__spec__, "_initializing", False)


def is_loading() -> bool:
    """Return True if a thread imports litellm, or the modules for its first model call, at this moment."""
    return _importing.locked()


def _build_parameters() -> None:
    importlib.import_module("litellm.types.router").GenericLiteLLMParams.model_rebuild()


@functools.cache
def _make_ready() -> None:
    """Import litellm, and the modules that LiteLLM would otherwise import in its first model call."""
    with _importing, _without_collecting():
        _import_litellm()
        # Another version of LiteLLM may lack these modules, or raise any error here. A model call does not need this work.
        for name in _WITH_THE_FIRST_CALL:
            attempt_call(importlib.import_module, name)
        attempt_call(_build_parameters)


def is_ready() -> bool:
    """Return True if a request can be sent at once: litellm and the modules for its first model call are imported."""
    return _make_ready.cache_info().currsize > 0


async def await_litellm() -> None:
    """Wait until LiteLLM is imported, so that a request can be sent. The wait does not count for the `timeout` of a run.

    The import runs in a thread, so the event loop can still react to a Stop button.
    """
    if is_ready():
        return
    with uncounted():
        await asyncio.shield(asyncio.to_thread(_make_ready))


def start_loading() -> None:
    """Begin LiteLLM's import in a thread, and do not wait for it. If the import fails, the run that needs it says so."""
    if not is_ready() and not is_loading():
        threading.Thread(
            target=attempt_call, args=(_make_ready,), name="toolloop-import-litellm", daemon=True
        ).start()


def explain_missing_bytecode() -> tuple[Path, str] | None:
    """Return (LiteLLM's folder, a cause) if each new process compiles LiteLLM's source files anew; else None.

    This is so if there is no bytecode beside the files, and Python cannot or must not write any. Does not import LiteLLM.
    """
    spec = importlib.util.find_spec("litellm")
    if spec is None or not spec.has_location or not str(spec.origin).endswith(".py"):
        return None
    source = Path(str(spec.origin))
    bytecode = Path(importlib.util.cache_from_source(str(source)))
    if bytecode.exists():
        return None
    if sys.dont_write_bytecode:
        return source.parent, "Python is set to write none (PYTHONDONTWRITEBYTECODE)"
    folder = next(folder for folder in bytecode.parents if folder.exists())
    return (
        None
        if os.access(folder, os.W_OK)
        else (
            source.parent,
            f"you may not write into {folder}, so its owner has to type this",
        )
    )


_BREATH = 0.004
"""The most seconds for which reading a stream keeps other tasks waiting (a Stop button, other cells)."""


class StreamFacts:
    """Facts about one streamed answer that LiteLLM's stream wrapper hides. Create this object before reading the answer.

    This object stands between the wrapper and the provider's stream. It also changes deltas that LiteLLM would drop. It uses
    undocumented attributes of `litellm.CustomStreamWrapper` (seen on 1.110.2). If these attributes are missing, the facts are
    those of an ordinary stream. Once LiteLLM's own deltas have a field `refusal`, `refusal` can be removed.
    """

    def __init__(self, response: Any) -> None:
        self._stream: Any = getattr(response, "completion_stream", None)
        self._iterator: Any = self._stream
        self._since = time.monotonic()
        self._response, self._hidden = response, getattr(response, "_hidden_params", None)
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
        told = ("received_finish_reason", "intermittent_finish_reason", "received_any_finish_reason")
        return hasattr(self._response, told[0]) and not any(
            getattr(self._response, name, None) for name in told
        )

    @property
    def cost(self) -> float | None:
        """The cost in US dollars according to the headers of the response; None if the headers have no cost."""
        return cost_in_headers(self._hidden)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> StreamFacts:
        # LiteLLM calls `__aiter__` before each chunk, and some streams need this call.
        self._iterator = self._stream.__aiter__()
        return self

    async def __anext__(self) -> object:
        # LiteLLM may read many chunks in a row, and pass on none of them.
        if time.monotonic() - self._since > _BREATH:
            await asyncio.sleep(0)
            self._since = time.monotonic()
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
    arguments that are JSON data. Attachments are added to the field `images`, since LiteLLM passes on no other field of them.
    """
    fields, extra = getattr(delta, "__dict__", {}), getattr(delta, "__pydantic_extra__", None)
    content = fields.get("content")
    parts = read_list(content)
    if extra is not None:
        attached = list(filter(is_attached, parts))
        for name in ("annotations", "files"):
            attached += read_list(extra.get(name))
        if attached:
            extra["images"] = [*(extra.get("images") or ()), *map(make_plain, attached)]
        if thinking := "".join(read_content(read_fields(part).get("thinking")) for part in parts):
            extra.setdefault("reasoning_content", thinking)
    if isinstance(content, list):
        fields["content"] = read_content(content)
    functions = [fields.get("function_call")]
    for call in read_list(fields.get("tool_calls")):
        own = getattr(call, "__dict__", {})
        functions.append(own.get("function"))
        if own.get("id") is not None:
            own["id"] = str(own["id"])
    for function in functions:
        own = getattr(function, "__dict__", {})
        arguments = own.get("arguments")
        if arguments is not None and not isinstance(arguments, str):
            own["arguments"] = json.dumps(make_plain(arguments))


def cost_in_headers(hidden: object) -> float | None:
    """Return the cost of a response in US dollars; None if it is unknown. `hidden` is the response's `_hidden_params`.

    The cost is the number in the gateway's header `x-litellm-response-cost`. Without such a number, the cost is the one that
    LiteLLM itself has calculated.
    """
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
