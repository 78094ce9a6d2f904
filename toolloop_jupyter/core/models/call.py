"""One model call: its request, its retries, and its reply (message, usage and cost).

If a model is Python code (see `providers`), this module calls the code directly. Every other model is called through
LiteLLM. The chunks have the same form in both cases.

If `completion_kwargs` has `num_retries`, this module itself repeats a failed model call, up to that number of times. Before
each retry, it waits for the time in the provider's `Retry-After` header. If there is no such header, each wait is longer
than the one before. A retry is safe, because no tool call of the failed answer has run.

With `num_retries`, LiteLLM's own retries are turned off. LiteLLM (1.110) would multiply the number by the retries of the
provider's client. It cannot retry a stream that breaks off, and it does not report that it waits. Without `num_retries`,
the defaults of LiteLLM and of the provider's client apply: most clients retry a refused request twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterable, Callable, Collection, Iterable
from operator import methodcaller
from typing import Any, TypeAlias

from ..events import (
    Attachment,
    Emit,
    Fields,
    Gate,
    ModelCallFailed,
    Reasoning,
    Reply,
    Request,
    Retry,
    Text,
    Usage,
    make_plain,
    read_count,
    read_fields,
)
from ..execution import RunEnded, attempt, get_message
from ..text import DEEPEST, MOST_CALLS, is_deeper
from . import client, providers
from .assembly import Assembly
from .client import StreamFacts, find_price, is_free, read_cost
from .failures import (
    CLEAN_END,
    StreamCut,
    explain,
    find_refused_option,
    is_cut,
    is_final,
    read_retry_after,
    read_status,
)
from .options import explain_switch

OnDelta: TypeAlias = Callable[[float, Fields], None]
"""A function that is called with each delta of the answer: (the monotonic time in seconds, the delta as plain data)."""
_WITHOUT = {
    "stream_options": "the server takes no stream_options; asked again without them, so the usage may be missing",
    "stream": "the server does not stream when there are tools; asked again for the whole answer",
    "any stream": "the server does not stream; asked again for the whole answer",
}
"""What a server may refuse (see `find_refused_option`) -> the message about it."""
_TOO_DEEP = (
    f"the answer has data nested more than {DEEPEST} levels deep; a conversation cannot keep data that deep."
)
_TOO_MANY = f"the answer asks for more than {MOST_CALLS:,} tool calls; none of them was run."
_refused: dict[tuple[str, str], set[str]] = {}
"""For each (address, model): the keys of `_WITHOUT` that the server has refused. Later requests do without these."""


class _Shown:
    """Sends the reader the answer of a model call, and remembers what the reader has seen in all tries of the call.

    After a retry, text that the reader has already seen is skipped. If the new answer differs, a Retry event takes back the
    earlier text.
    """

    def __init__(self, emit: Emit) -> None:
        self.emit = emit
        self.before = ""
        """The text that a failed try has shown; "" if no try has failed, or if a later try has repeated the whole text."""
        self._repeated = 0
        """The number of characters of `before` that the present try has repeated."""
        self._has_thought = False
        """True if a failed try has shown a thought. The thoughts of later tries are then not shown."""
        self._attached: set[Attachment] = set()

    def start_again(self, broken: Assembly) -> None:
        """Prepare for another try. `broken`: the incomplete message of the try that has failed."""
        self.before, self._repeated = self.before or broken.text, 0
        self._has_thought = self._has_thought or bool(broken.words.thought)

    async def add(self, assembly: Assembly, text: str, thought: str, *, is_end: bool = False) -> None:
        """Send the new `text` and `thought`, and the attachments that the reader has not seen."""
        events: list[Text | Reasoning | Attachment | Retry] = []
        if thought and not self._has_thought:
            events.append(Reasoning(thought))
        if self.before and (text or is_end):
            repeated = self.before[self._repeated : self._repeated + len(text)]
            self._repeated += len(repeated)
            if not text.startswith(repeated) or (is_end and self._repeated < len(self.before)):
                differs = "says less" if text.startswith(repeated) else "answers differently"
                events.append(Retry(0, f"the new try {differs}", discard=self.before))
                text, self.before = assembly.text, ""
            elif self._repeated < len(self.before):
                text = ""
            else:
                text, self.before = text[len(repeated) :], ""
        if text:
            events.append(Text(text))
        if assembly.attachments:
            events += (new := [one for one in assembly.attachments.all() if one not in self._attached])
            self._attached.update(new)
        for event in events:
            await self.emit(event)


class ModelCall:
    """One model call with its retries. After a cancel or a failure, `assembly` has the part of the message that has arrived."""

    def __init__(
        self,
        request: Request,
        emit: Emit,
        *,
        on_delta: OnDelta | None = None,
        gate: Gate | None = None,
        is_last: bool = True,
    ) -> None:
        """`is_last`: True if no fallback model is called when this call fails."""
        self.request, self._is_last = request, is_last
        self.billable = 0
        """The number of requests that the provider may bill. A request that it refused, or never received, costs nothing."""
        self._gate, self._on_delta, self._shown = gate or Gate(), on_delta, _Shown(emit)
        self._is_ours = providers.is_ours(request.model)
        self.is_free = is_free(request.model)
        self._start()

    def _start(self) -> None:
        """Reset the state before a try."""
        self.assembly = Assembly({tool["function"]["name"] for tool in self.request.tools})
        self._cost: float | None = None
        self._has_begun = False
        """True if the server has begun to answer the last request."""

    @property
    def shown(self) -> str:
        """The text that the reader now sees, without text that was taken back."""
        return self._shown.before or self.assembly.text

    async def run(self) -> Reply:
        """Make the call, and return the reply. Raises ModelCallFailed if the last try fails; the message says what to change."""
        server = self.request.address, self.request.model
        # The user may have changed LiteLLM's settings after the run's options were checked.
        if not self._is_ours and (wrong := explain_switch(self.request.model, self.request.address)):
            raise ModelCallFailed(wrong)
        again = self.request.options.get("num_retries", self._gate.retries) or 0
        started, tries = time.monotonic(), 0
        while True:
            keywords = self._keywords(_refused.get(server, ()))
            error, pause = await self._send(keywords)
            if isinstance(error, RunEnded):
                raise error
            if error is None or self._is_complete(error):
                text, thought = self.assembly.end()
                await self._shown.add(self.assembly, text, thought, is_end=True)
                return self._reply(time.monotonic() - started)
            if not self._has_begun and (option := find_refused_option(error, keywords)):
                # The request is sent again at once, without the refused option. This does not count as a retry.
                self.billable -= 1
                _refused.setdefault(server, set()).add(option)
                await self._shown.emit(Retry(1, _WITHOUT[option]))
                continue
            self.billable -= not (self._has_begun or is_cut(error))
            await self._shown.add(self.assembly, *self.assembly.end(is_cut=True))
            tries += pause is None
            if pause is None and (tries > again or is_final(error)):
                raise ModelCallFailed(*explain(error, self.request)) from None
            self._shown.start_again(self.assembly)
            self._start()
            await self._wait(tries, error, pause)

    async def _send(self, keywords: dict[str, Any]) -> tuple[BaseException | None, float | None]:
        """Send one request as soon as the gate allows it. Return (the error or None, the seconds of a pause or None).

        During a pause, the gate holds back all requests. After the pause, the failed request is sent again, and this is not
        counted as a retry.
        """
        await self._gate.enter()
        status: int | None = None
        wait, message, error = None, "", None
        try:
            error = (await attempt(self._ask(keywords))).error
            status = 200 if error is None else read_status(error)
            if error is not None and status is not None:
                wait, message = read_retry_after(error), get_message(error)
        finally:
            pause = self._gate.leave(status, wait, message, is_last=self._is_last)
        return error, pause

    def _is_complete(self, error: BaseException) -> bool:
        """Return True if the tool calls are complete and only the finish_reason is missing.

        Some servers send no finish_reason. LiteLLM (1.110) then raises the error of a stream that broke off.
        """
        calls = self.assembly.calls
        return bool(calls) and not calls.has_unfinished_call and CLEAN_END in get_message(error)

    async def _wait(self, number: int, error: BaseException, pause: float | None) -> None:
        """Emit a Retry event, and wait as long as the server asks.

        If the server names no time, each wait is longer than the one before. `number`: the number of the retry. If `pause` is
        not None, do not wait here: the gate holds back the next request.
        """
        seconds = read_retry_after(error) if pause is None else pause
        if seconds is None:
            seconds = min(0.25 * 2 ** (number - 1), 4.0)
        await self._shown.emit(Retry(number, explain(error, self.request)[0], wait=seconds))
        if pause is None:
            await asyncio.sleep(seconds)

    def _keywords(self, refused: Collection[str]) -> dict[str, Any]:
        """Return the keywords of the request, without the options that this server has refused."""
        keywords = self.request.keywords()
        if keywords.get("num_retries", self._gate.retries) is not None:
            keywords = {"max_retries": 0, **keywords, "num_retries": 0}
        if "any stream" in refused or ("stream" in refused and "tools" in keywords):
            keywords["stream"] = False
        if "stream_options" in refused or not keywords.get("stream"):
            keywords.pop("stream_options", None)
        return keywords

    async def _ask(self, keywords: dict[str, Any]) -> None:
        """Send one request, and read the answer.

        If the server sends one JSON document in place of a stream, send the request again, without streaming.
        """
        self.billable += 1
        self._has_begun = False
        if self._is_ours:
            response: Any = await providers.ask(keywords)
        else:
            response = await client.load_litellm().acompletion(**keywords)
        self._has_begun = True
        hidden = getattr(response, "_hidden_params", None)
        if not issubclass(type(response), AsyncIterable):
            self._cost = read_cost(hidden)
            await self._take(response, whole=True)
            return
        stream = None if self._is_ours else StreamFacts(response)
        try:
            async for chunk in response:
                await self._take(chunk)
                if self.assembly.calls.has_too_many:
                    return  # `_reply` refuses this answer
                if stream is not None:
                    await stream.let_others_run()
        finally:
            await providers.close_stream(response)
        if stream is None:
            return
        self._cost = read_cost(hidden)
        if not self._end(stream):
            message = "the server answered with JSON and not with a stream; asked again without a stream"
            await self._shown.emit(Retry(1, message))
            keywords.pop("stream_options", None)
            await self._ask({**keywords, "stream": False})

    def _end(self, stream: StreamFacts) -> bool:
        """Read what LiteLLM hides about an ended stream: the refusal, and an early end.

        Raises StreamCut if the stream ended in the middle of a tool call. Returns False if the server sent one JSON document,
        and LiteLLM has read nothing from it; else True.
        """
        assembly = self.assembly
        assembly.refusal = assembly.refusal or stream.refusal
        if stream.ended_early:
            assembly.finish_reason = None
            if assembly.calls.has_unfinished_call:
                raise StreamCut("the stream ended in the middle of a tool call")
        return not (stream.is_json and assembly.is_empty)

    async def _take(self, chunk: object, *, whole: bool = False) -> None:
        """Add a chunk (`whole`: a complete response, as one big delta), and show its new text."""
        assembly = self.assembly
        delta = assembly.read_chunk(chunk)
        if delta is None:
            return
        if self._on_delta is not None:
            self._on_delta(time.monotonic(), make_plain(delta) or {})
        text, thought = assembly.add(delta, whole=whole)
        if whole:
            text += assembly.end()[0]
            thought = thought if assembly.words.thought else ""
        if text or thought or assembly.attachments:
            await self._shown.add(assembly, text, thought)

    def _reply(self, seconds: float) -> Reply:
        """Return the reply. Raises ModelCallFailed if the conversation cannot keep the message."""
        assembly, usage = self.assembly, read_fields(self.assembly.usage)
        if assembly.calls.has_too_many:
            raise ModelCallFailed(_TOO_MANY, "Run again, or ask for less in one prompt.")
        cost = self._cost if self._cost is not None else find_price(self.request.model, assembly.usage)
        # Anthropic refuses a conversation if two tool calls have the same id. The tool messages have the ids of all earlier calls.
        earlier = self.request.messages if assembly.calls else ()
        message = assembly.message(set(map(methodcaller("get", "tool_call_id"), earlier)))
        # Only fields that go back to the provider can be nested deeply.
        if assembly.returns_fields and is_deeper(message):
            raise ModelCallFailed(_TOO_DEEP, "Run again.")
        sent, received = read_count(usage.get("prompt_tokens")), read_count(usage.get("completion_tokens"))
        cached = read_cached(usage) if usage else (None, None)
        return Reply(
            message=message,
            finish_reason=assembly.finish_reason,
            usage=Usage(sent, received, self.billable, *cached),
            cost=cost if self.billable == 1 or self.is_free else None,
            known_cost=cost or 0.0,
            refusal=assembly.refusal,
            attachments=assembly.attachments.all(),
            seconds=seconds,
        )


_READ = ("cache_read_input_tokens", "cached_tokens", "prompt_cache_hit_tokens")
_WRITTEN = ("cache_creation_input_tokens", "cache_creation_tokens", "cache_write_tokens")
"""Fields of a usage: the tokens read from the cache, and those written to it. The first field with a number counts."""


def read_cached(usage: Fields) -> tuple[int | None, int | None]:
    """Return (the input tokens read from the provider's cache, the input tokens written to it). None means unknown.

    `usage` has the fields of Anthropic, OpenAI, DeepSeek, or Gemini (in LiteLLM 1.110's form).
    """
    fields = {**usage, **read_fields(usage.get("prompt_tokens_details"))}
    return _find_count(fields, _READ), _find_count(fields, _WRITTEN)


def _find_count(fields: Fields, names: Iterable[str]) -> int | None:
    for name in names:
        if type(count := fields.get(name)) is int:
            return max(0, count)
    return None
