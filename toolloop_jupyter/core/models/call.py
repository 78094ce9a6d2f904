"""One streamed model call: its request, its retries, and its reply (message, usage and cost).

A model that Python code answers (see `providers`) is called directly, every other model through LiteLLM. Their chunks have the
same form.

With `num_retries` in `completion_kwargs`, a failed model call is repeated here, at most so many times. Before each try, this
module waits as long as `Retry-After` says, else a little longer each time. No tool has run by then, and text that was shown is
not shown twice. LiteLLM's own retries are turned off: LiteLLM (1.110) would multiply the number with the retries of the
provider's client, cannot retry a stream that breaks off, and tells nobody that it waits. Without `num_retries`, the defaults of
LiteLLM and of the provider's client hold: most of them retry a refused request twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterable, Callable
from operator import methodcaller
from typing import Any, Literal, TypeAlias

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
from ..text import DEEPEST, TooManyCalls, is_deeper
from . import client, providers
from .assembly import Assembly
from .capabilities import find_price, is_free, read_cached
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
"""Takes each delta of the answer as plain data, with the monotonic time in seconds."""
_WITHOUT = {
    "stream_options": "the server takes no stream_options; asked again without them, so the usage may be missing",
    "stream": "the server does not stream when there are tools; asked again for the whole answer",
    "any stream": "the server does not stream; asked again for the whole answer",
}
"""Options of streaming that some servers refuse -> the message about the request that is sent without them."""
_TOO_DEEP = f"the answer holds data nested more than {DEEPEST} levels deep, which no conversation can keep."
_refused: dict[tuple[str, str], set[str]] = {}
"""(address, model) -> the options of `_WITHOUT` that the server has refused; they are not sent again."""


class Shown:
    """What the reader has seen of a model call, over all its tries. `add` and `end` return the events that the reader gets next.

    After a retry, text that was shown already is skipped. If the next try answers differently, the shown text is taken back.
    """

    def __init__(self) -> None:
        self.before = ""
        """The text that a broken try has shown, until the next try has repeated it."""
        self._caught = 0
        """How many characters of that text the next try has repeated."""
        self._reasoning = False
        """True if a broken try has shown a thought. The thought of the next try is then not shown."""
        self._attached: set[Attachment] = set()

    def start_again(self, broken: Assembly) -> None:
        """Prepare for another try after one has failed. `broken`: the message of the failed try, as far as it came."""
        self.before, self._caught = self.before or broken.text, 0
        self._reasoning = self._reasoning or bool(broken.words.thought)

    def add(
        self, assembly: Assembly, text: str, reasoning: str
    ) -> list[Text | Reasoning | Attachment | Retry]:
        """Return the events for text and reasoning that have just come, and for attachments that are new."""
        events: list[Text | Reasoning | Attachment | Retry] = []
        if reasoning and not self._reasoning:
            events.append(Reasoning(reasoning))
        if text and self.before:
            events += self._catch_up(assembly, text)
        elif text:
            events.append(Text(text))
        if new := assembly.attachments.new:
            events += [one for one in new if one not in self._attached]
            self._attached.update(new)
            new.clear()
        return events

    def _catch_up(self, assembly: Assembly, text: str) -> list[Text | Retry]:
        repeated = self.before[self._caught : self._caught + len(text)]
        if not text.startswith(repeated):
            return self._take_back("the second try answers differently", assembly)
        self._caught += len(repeated)
        if self._caught < len(self.before):
            return []
        self.before = ""
        return [Text(text[len(repeated) :])] if len(text) > len(repeated) else []

    def end(self, assembly: Assembly) -> list[Text | Retry]:
        """End the call after a complete try. Shown text that this try has not repeated is taken back."""
        return self._take_back("the second try says less", assembly) if self.before else []

    def _take_back(self, why: str, assembly: Assembly) -> list[Text | Retry]:
        """Take back the text of a broken try that this try has not repeated, and show this try's text instead."""
        gone, self.before = self.before, ""
        return [Retry(0, why, discard=gone), *([Text(assembly.text)] if assembly.text else [])]


class ModelCall:
    """One model call with its retries. `assembly` has the message as far as it came, also after a cancel or a failure."""

    def __init__(
        self,
        request: Request,
        emit: Emit,
        *,
        on_delta: OnDelta | None = None,
        gate: Gate | None = None,
        is_last: bool = True,
    ) -> None:
        """`is_last`: True if no other model is asked when the call fails."""
        self.request, self._is_last = request, is_last
        self._gate = gate or Gate()
        self._server = request.address, request.model
        self._is_ours = providers.is_ours(request.model)
        self.assembly = self._make_assembly()
        self._emit = emit
        self._on_delta = on_delta
        self._shown = Shown()
        self._cost: float | None = None
        self._under_way: Literal["", "asking", "answering"] = ""
        """The state of the last request: not answered yet, being answered, or "" if it has ended."""
        self._broken = 0
        """Requests whose answers broke off; their cost is not known."""

    def _make_assembly(self) -> Assembly:
        return Assembly({tool["function"]["name"] for tool in self.request.tools})

    @property
    def without_usage(self) -> int:
        """How many requests were sent for which no usage came back."""
        return self._broken + bool(self._under_way)

    @property
    def is_free(self) -> bool:
        """True if the call costs nothing, even if it fails (see `capabilities.is_free`)."""
        return is_free(self.request.model)

    @property
    def shown(self) -> str:
        """The text that the reader has seen and that was not taken back."""
        return self._shown.before or self.assembly.text

    async def run(self) -> Reply:
        """Make the call. Raises ModelCallFailed if its last try fails; the error says what to set."""
        if not self._is_ours:
            await client.await_litellm()
            base, model = self._server
            if wrong := explain_switch(model, base):  # it was set after the run's options were checked
                raise ModelCallFailed(wrong)
        again = self.request.options.get("num_retries", self._gate.retries) or 0
        started, tries, keywords = time.monotonic(), 0, self._keywords()
        while True:
            error, pause = await self._send(keywords)
            if isinstance(error, RunEnded):
                raise error
            if error is None or self._is_complete(error):
                await self._show(self.assembly.end(), "")
                for event in self._shown.end(self.assembly):
                    await self._emit(event)
                reply = self._reply(time.monotonic() - started)
                if self.assembly.keeps_data and is_deeper(reply.message):
                    raise ModelCallFailed(_TOO_DEEP, "Run again.")
                return reply
            if self._under_way == "asking" and (option := find_refused_option(error, keywords)):
                # This does not count as a try: the server gets the request again at once, without the refused option.
                _refused.setdefault(self._server, set()).add(option)
                await self._emit(Retry(1, _WITHOUT[option]))
            else:
                # A request that the server has refused, or has never got, costs nothing.
                self._broken += self._under_way == "answering" or is_cut(error)
                self._under_way = ""
                await self._show(*self.assembly.cut())
                if pause is None:
                    tries += 1
                    if tries > again or is_final(error):
                        raise ModelCallFailed(*explain(error, self.request)) from None
                await self._wait(tries, error, pause)
            keywords = self._keywords()

    async def _send(self, keywords: dict[str, Any]) -> tuple[BaseException | None, float | None]:
        """Send one request when the gate lets it, and return (its error or None, the seconds of a pause or None).

        With a pause, the gate holds back all requests for these seconds. This one is then sent again, as the same try.
        """
        await self._gate.enter()
        status: int | None = None
        wait, said, error = None, "", None
        try:
            error = (await attempt(self._ask(keywords))).error
            status = 200 if error is None else read_status(error)
            if error is not None and status is not None:
                wait, said = read_retry_after(error), get_message(error)
        finally:
            pause = self._gate.leave(status, wait, said, is_last=self._is_last)
        return error, pause

    def _is_complete(self, error: BaseException) -> bool:
        """Return whether the tool calls are whole and only the finish_reason is missing. Some servers send none, and LiteLLM
        (1.110) then reports a stream that broke off.
        """
        calls = self.assembly.calls
        return bool(calls) and not calls.has_unfinished_call and CLEAN_END in get_message(error)

    async def _wait(self, number: int, error: BaseException, pause: float | None) -> None:
        """Prepare another try, emit a Retry, and wait as long as the server asks. With a `pause`, the gate waits instead."""
        self._shown.start_again(self.assembly)
        self.assembly, self._cost = self._make_assembly(), None
        if pause is not None:
            await self._emit(Retry(number, explain(error, self.request)[0], wait=pause))
            return
        asked = read_retry_after(error)
        seconds = min(0.25 * 2 ** (number - 1), 4.0) if asked is None else asked
        await self._emit(Retry(number, explain(error, self.request)[0], wait=seconds))
        await asyncio.sleep(seconds)

    def _keywords(self) -> dict[str, Any]:
        """The keywords of the request, without the options that this server has refused."""
        keywords = self.request.keywords()
        if keywords.get("num_retries", self._gate.retries) is not None:
            keywords = {"max_retries": 0, **keywords, "num_retries": 0}
        refused = _refused.get(self._server, set()) if _refused else set()
        if "any stream" in refused or ("stream" in refused and "tools" in keywords):
            keywords["stream"] = False
        if "stream_options" in refused or not keywords.get("stream"):
            keywords.pop("stream_options", None)
        return keywords

    async def _ask(self, keywords: dict[str, Any]) -> None:
        """Send one request and take in its answer. If the server sends one JSON document for a stream, ask it for no stream."""
        self._under_way = "asking"
        if self._is_ours:
            response: Any = await providers.ask(keywords)
        else:
            response = await client.load_litellm().acompletion(**keywords)
        if not issubclass(type(response), AsyncIterable):
            self._under_way = ""
            self._cost = client.cost_in_headers(getattr(response, "_hidden_params", None))
            await self._take(response, whole=True)
            return
        self._under_way = "answering"
        # A stream of ours gives the event loop a turn after each chunk.
        stream, breath = (None, None) if self._is_ours else (client.LiteLLMStream(response), client.Breath())
        try:
            async for chunk in response:
                await self._take(chunk)
                if breath is not None and breath.is_due:
                    await breath.take()
        finally:
            await client.close_stream(response)
        if stream is not None and not await self._end(stream):
            self._broken += 1
            await self._emit(
                Retry(1, "the server answered with JSON and not with a stream; asked again for that")
            )
            keywords.pop("stream_options", None)
            await self._ask({**keywords, "stream": False})

    async def _end(self, stream: client.LiteLLMStream) -> bool:
        """Take in facts that LiteLLM hides of an ended stream. False if it was a JSON document, which LiteLLM has not read."""
        assembly = self.assembly
        assembly.refuse(stream.refusal)
        if stream.ended_early:
            assembly.finish_reason = None
            if assembly.calls.has_unfinished_call:
                raise StreamCut("the stream ended in the middle of a tool call")
        self._cost = stream.cost
        return not (stream.is_json and assembly.is_empty)

    async def _take(self, chunk: object, *, whole: bool = False) -> None:
        """Take in a chunk, or a whole response as one big delta, and show its new text.

        Raises TooManyCalls if the answer has too many tool calls; the rest of the answer is then not read.
        """
        assembly = self.assembly
        delta = assembly.read_chunk(chunk)
        if delta is None:
            return
        if self._on_delta is not None:
            self._on_delta(time.monotonic(), make_plain(delta) or {})
        text, reasoning = assembly.add(delta, whole=whole)
        if whole:
            text += assembly.end()
            reasoning = reasoning if assembly.words.thought else ""
        if text or reasoning or assembly.attachments.new:
            for event in self._shown.add(assembly, text, reasoning):
                await self._emit(event)
        if assembly.calls.has_too_many:
            raise TooManyCalls

    async def _show(self, text: str, reasoning: str) -> None:
        for event in self._shown.add(self.assembly, text, reasoning):
            await self._emit(event)

    def _reply(self, seconds: float) -> Reply:
        self._under_way = ""
        assembly, usage = self.assembly, read_fields(self.assembly.usage)
        cached = read_cached(usage) if usage else (None, None)
        cost = self._cost if self._cost is not None else find_price(self.request.model, assembly.usage)
        # The ids of the conversation's tool calls so far, each of which has its tool message: Anthropic refuses an id that
        # is used twice.
        earlier = self.request.messages if assembly.calls else ()
        ids = set(map(methodcaller("get", "tool_call_id"), earlier))
        sent, received = read_count(usage.get("prompt_tokens")), read_count(usage.get("completion_tokens"))
        return Reply(
            message=assembly.message(ids),
            finish_reason=assembly.finish_reason,
            usage=Usage(sent, received, 1 + self._broken, *cached),
            cost=cost if not self._broken or self.is_free else None,
            known_cost=cost or 0.0,
            refusal=assembly.refusal,
            attachments=assembly.attachments.all(),
            seconds=seconds,
        )
