"""The only importer of litellm: one streamed model call -> deltas, and then the whole message, its usage and its cost.

With `num_retries` in `completion_kwargs`, a call that fails on its way is tried again here, at most so many times, when
`Retry-After` says or a little later each time: no tool has run by then, and text already shown is not shown twice.
LiteLLM (1.110) would multiply that number with the provider's client's own retries, cannot retry a stream that breaks
in the middle, and shows nobody what it waits for; so it gets none to do. Without `num_retries`, LiteLLM and the
provider's client do what they do by default: retry a refused call twice, mostly.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import sys
import time
from typing import Any

from ..events import content_text, plain_data, read_field
from ..execution import attempt
from .parts import is_attached


def load_litellm() -> Any:
    """Import litellm (seconds, the first time) and return the module.

    Set before the import, and only where the user has not: `LITELLM_LOCAL_MODEL_COST_MAP=True`, without which the
    import fetches a price list from the network and waits for it offline (seen on 1.110.2).
    """
    first = "litellm" not in sys.modules
    if first:
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm  # also waits for an import that goes on in another thread

    _quieten(litellm)
    return litellm


@functools.cache
def _quieten(litellm: Any) -> None:
    """Set, once and also where the user has imported litellm first, what a cell must not meet (seen on 1.110.2).

    Without `suppress_debug_info`, an error or an unknown model prints "Give Feedback" and a provider list into the
    cell. Without `disable_hf_tokenizer_download`, the end of a stream that tells no usage downloads a tokenizer to
    estimate it (Llama, Cohere), on the event loop, with long retries offline; so it is estimated with the bundled one.
    """
    litellm.suppress_debug_info = True
    if litellm.disable_hf_tokenizer_download is None:
        litellm.disable_hf_tokenizer_download = True


async def loaded() -> Any:
    """The litellm module; its first import goes on in a thread, so that the loop (a Stop button) stays alive."""
    if not litellm_loaded():
        await asyncio.shield(asyncio.to_thread(load_litellm))
    return load_litellm()


def litellm_loaded() -> bool:
    """Whether litellm is imported, whole, already."""
    return hasattr(sys.modules.get("litellm"), "acompletion")


# --- What LiteLLM's stream wrapper hides or drops: how a stream ended, a refusal in the middle of it, deltas of odd types. ---
#
# Everything here reads attributes of `litellm.CustomStreamWrapper` that are not documented (seen on 1.110.2), and does
# nothing where they are absent.

CLEAN_END = "Stream ended before a finish_reason was received"
"""How LiteLLM words the end of a stream that sent no finish_reason."""

MOST_WAIT = 60.0
"""Seconds; a provider that wants more is asked again all the same."""


BREATH = 0.004
"""Seconds of work on deltas that arrive without a pause, after which the event loop gets a turn."""


NEVER_SENT = frozenset(
    {
        "ConnectError",
        "ConnectTimeout",
        "PoolTimeout",
        "UnsupportedProtocol",
        "ClientConnectorError",
        "ConnectionRefusedError",
        "gaierror",
    }
)
"""Errors of HTTP clients before a request has gone out."""
WENT_OUT = frozenset(
    {
        "ReadError",
        "ReadTimeout",
        "RemoteProtocolError",
        "WriteError",
        "ServerDisconnectedError",
        "ClientOSError",
        "ClientPayloadError",
    }
)
"""Errors of HTTP clients after it has."""


class StreamCut(Exception):
    """A stream that ended, without an error, in the middle of a tool call."""


def retry_after(error: BaseException) -> float | None:
    """Seconds that the provider asks to wait (`Retry-After`, also in ms as OpenAI sends it), at most `MOST_WAIT`."""
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    headers = getattr(error, "litellm_response_headers", None) or headers
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name) or "nan") * unit
        except (TypeError, ValueError):  # a date: nobody sends one
            continue
        if seconds >= 0:
            return min(seconds, MOST_WAIT)
    return None


def is_cut(litellm: Any, error: BaseException) -> bool:
    """Whether a request that brought no answer may have been worked on all the same: no answer in time, or the connection
    broke. Not one that was refused, and not one for which there was no connection at all.

    LiteLLM (1.110) gives both kinds of failed connections one class; what they come of is httpx's, requests' or aiohttp's.
    """
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in causes:
        causes.append(cause)
        cause = getattr(cause, "original_exception", None) or cause.__cause__ or cause.__context__
    names = {kind.__name__ for each in causes for kind in type(each).__mro__}
    return bool(names & WENT_OUT or isinstance(error, litellm.Timeout)) and not names & NEVER_SENT


def ended_early(response: Any) -> bool:
    """Whether a provider's stream ended without a finish reason: LiteLLM (1.110) makes up "stop" for most of them."""
    told = ("received_finish_reason", "intermittent_finish_reason", "received_any_finish_reason")
    return hasattr(response, told[0]) and not any(getattr(response, name, None) for name in told)


class Breath:
    """Gives the event loop (a Stop button, other cells' tasks) a turn when `BREATH` has gone by since the last one."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    async def take(self) -> None:
        if time.monotonic() - self._since > BREATH:
            await asyncio.sleep(0)
            self._since = time.monotonic()


class _Watched:
    """A provider's stream that is read as before, but for deltas of types that LiteLLM would drop; what it says in
    OpenAI's `refusal` field is collected on the side.
    """

    def __init__(self, stream: Any, refusals: list[str]) -> None:
        self._stream, self._iterator, self._refusals = stream, stream, refusals
        self._breath = Breath()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> _Watched:
        self._iterator = (
            self._stream.__aiter__()
        )  # LiteLLM asks for it before each chunk; some streams need that
        return self

    async def __anext__(self) -> Any:
        await (
            self._breath.take()
        )  # here too: LiteLLM asks for the next chunk by itself after one that says nothing
        chunk = await self._iterator.__anext__()
        choices = read_field(chunk, "choices")
        if choices:
            delta = read_field(choices[0], "delta")
            if refusal := read_field(delta, "refusal"):
                self._refusals.append(str(refusal))
            _mend(delta)
        return chunk


def _mend(delta: Any) -> None:
    """Make text of what LiteLLM (1.110) drops without a word when it is none: content in parts (Mistral's form, with
    its thinking beside it), ids that are numbers, arguments that are JSON data.
    """
    fields = getattr(delta, "__dict__", None)
    if fields is None:
        return
    content = fields.get("content")
    _carry_attachments(delta)
    if isinstance(content, list):
        fields["content"] = content_text(content)
        thinking = "".join(
            content_text(read_field(part, "thinking")) for part in content if read_field(part, "thinking")
        )
        extra = getattr(delta, "__pydantic_extra__", None)
        if thinking and extra is not None:
            extra.setdefault("reasoning_content", thinking)
    calls = fields.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        own = getattr(call, "__dict__", {})
        if own.get("id") is not None and not isinstance(own["id"], str):
            own["id"] = str(own["id"])
        function = getattr(own.get("function"), "__dict__", {})
        arguments = function.get("arguments")
        if arguments is not None and not isinstance(arguments, str):
            function["arguments"] = json.dumps(plain_data(arguments))


def _carry_attachments(delta: Any) -> None:
    """Put what a delta has beside words and calls into `images`, the one of these fields that LiteLLM (1.110) passes on
    in a delta of its own.
    """
    extra = getattr(delta, "__pydantic_extra__", None)
    if extra is None:
        return
    others = [part for part in read_field(delta, "content") or () if is_attached(part)]
    for name in ("annotations", "files"):
        parts = extra.get(name)
        others += parts if isinstance(parts, list) else []
    if others:
        extra["images"] = [*(extra.get("images") or ()), *map(plain_data, others)]


def watch_stream(response: Any) -> list[str]:
    """A list that fills with the refusal while `response` is read.

    `CustomStreamWrapper.completion_stream` is private to LiteLLM (1.110), whose chunks lose the refusal of a stream;
    where there is none, nothing is watched. A `refusal` in LiteLLM's own deltas would replace this.
    """
    refusals: list[str] = []
    stream = getattr(response, "completion_stream", None)
    if hasattr(stream, "__anext__"):
        response.completion_stream = _Watched(stream, refusals)
    return refusals


def is_json(response: Any) -> bool:
    """Whether a server that was asked for a stream has sent one JSON document instead, of which nothing is read."""
    headers = getattr(
        getattr(getattr(response, "completion_stream", None), "response", None), "headers", None
    )
    return "application/json" in str(read_field(headers, "content-type") or "")


async def close(response: Any) -> None:
    """Close the provider's connection behind a stream, so that a cancelled call does not go on in the background."""
    closer = getattr(response, "aclose", None) or getattr(
        read_field(response, "completion_stream"), "aclose", None
    )
    if closer is not None:
        await attempt(closer())
