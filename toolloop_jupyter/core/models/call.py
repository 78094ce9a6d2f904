"""One streamed model call: the request, its retries, and out of the deltas the whole message, its usage and its cost.

A model of ours is asked straight, every other through LiteLLM; their chunks have one form.

With `num_retries` in `completion_kwargs`, a call that fails on its way is tried again here, at most so many times, when
`Retry-After` says or a little later each time: no tool has run by then, and text already shown is not shown twice.
LiteLLM (1.110) would multiply that number with the provider's client's own retries, cannot retry a stream that breaks
in the middle, and shows nobody what it waits for; so it gets none to do. Without `num_retries`, LiteLLM and the
provider's client do what they do by default: retry a refused call twice, mostly.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

from ..events import (
    Attachment,
    Emit,
    ModelCallFailed,
    Reasoning,
    Reply,
    Request,
    Retry,
    Text,
    Usage,
    make_plain,
    read_field,
)
from ..execution import RunEnded, attempt, get_message
from ..text import TooManyCalls
from . import client, providers
from .assembly import Assembly
from .capabilities import is_free, price_of
from .failures import CLEAN_END, StreamCut, explain, is_cut, is_final, refused_option, retry_after
from .options import explain_switch

OnDelta = Callable[[float, Mapping[str, Any]], None]
"""Takes each delta of the answer as plain data, with the monotonic time in seconds."""
_WITHOUT = {
    "stream_options": "the server takes no stream_options; asked again without, so that it may not tell the usage",
    "stream": "the server does not stream when there are tools; asked again for the whole answer",
}
"""What only a streaming client sends and some servers refuse, and what is said of it."""
_refused: dict[tuple[str, str], set[str]] = {}
"""What of it the server at an address has refused for a model: not sent again."""


class ModelCall:
    """One call with its retries. `assembly` holds what has arrived so far, also after a cancel or a failure."""

    def __init__(self, request: Request, emit: Emit, *, on_delta: OnDelta | None = None) -> None:
        self.request = request
        self._names = frozenset(tool["function"]["name"] for tool in request.tools)
        self.assembly = Assembly(self._names)
        self._emit = emit
        self._on_delta = on_delta
        self._before = ""
        """The text that a broken try has shown, until the next one has caught up with it."""
        self._caught = 0
        """How many characters of it the next try has repeated."""
        self._reasoning_shown = False
        self._attached: set[Attachment] = set()
        self._choice: int | None = None
        """The index of the choice that counts: the first that the stream has named."""
        self._usage: Any = None
        self._cost: float | None = None
        self._under_way: Literal["", "asking", "answering"] = ""
        """How far the request is that has been sent last; "" when its answer is here, or there will be none."""
        self._broken = 0
        """Requests whose answers broke off: what they have cost is not known."""

    @property
    def untold(self) -> int:
        """How many requests were sent and ended, or were cut, before their usage was told."""
        return self._broken + bool(self._under_way)

    @property
    def is_free(self) -> bool:
        """Whether it costs nothing, whatever comes of it: a model of ours."""
        return is_free(self.request.model)

    @property
    def shown(self) -> str:
        """The text that the reader has seen and that still holds."""
        return self._before or self.assembly.text

    async def run(self) -> Reply:
        """Make the call. Raises ModelCallFailed when it failed for good, with what to set in its text."""
        if not providers.is_ours(self.request.model):
            await client.await_litellm()
        if wrong := explain_switch():  # set since the run's options were checked
            raise ModelCallFailed(wrong)
        again = self.request.options.get("num_retries") or 0
        started, tries = time.monotonic(), 0
        while True:
            outcome = await attempt(self._once())
            error = outcome.error
            if isinstance(error, RunEnded):
                raise error
            if error is None or self._is_complete(error):
                await self._show(self.assembly.end(), "")
                await self._take_back("the second try says less")
                return self._reply(time.monotonic() - started)
            self._count_broken(error)
            await self._show(*self.assembly.cut())
            tries += 1
            if tries > again or is_final(error):
                raise ModelCallFailed(*explain(error, self.request)) from None
            await self._try_again(tries, explain(error, self.request)[0], retry_after(error))

    def _count_broken(self, error: BaseException) -> None:
        """Count a try that failed, unless it costs nothing: the server has refused the request, or has never got it."""
        if self._under_way == "answering" or is_cut(error):
            self._broken += 1
        self._under_way = ""

    def _is_complete(self, error: BaseException) -> bool:
        """Some servers send no finish_reason, which LiteLLM (1.110) takes for a cut stream, once it is all there: whole
        calls can run all the same.
        """
        return self.assembly.has_calls and not self.assembly.half_sent and CLEAN_END in get_message(error)

    async def _try_again(self, number: int, error: str, wait: float | None) -> None:
        self._before, self._caught = self.shown, 0
        self._reasoning_shown = self._reasoning_shown or self.assembly.has_reasoning
        self.assembly = Assembly(self._names)
        await self._emit(Retry(number, error))
        await asyncio.sleep(min(0.25 * 2 ** (number - 1), 4.0) if wait is None else wait)

    async def _once(self) -> None:
        """One try. Where the server refuses what only streaming needs, or cannot stream at all, it is asked again at once."""
        self._usage, self._cost, self._choice = None, None, None
        keywords = self._keywords()
        outcome = await attempt(self._ask(keywords))
        while outcome.error is not None:
            option = refused_option(outcome.error, keywords) if self._under_way == "asking" else ""
            if not option:
                raise outcome.error
            _refused.setdefault(self._server, set()).add(option)
            await self._emit(Retry(1, _WITHOUT[option]))
            keywords = self._keywords()
            outcome = await attempt(self._ask(keywords))
        if outcome.value:
            return
        self._broken += 1
        await self._emit(
            Retry(1, "the server answered with JSON and not with a stream; asked again for that")
        )
        keywords.pop("stream_options", None)
        await self._ask({**keywords, "stream": False})

    def _keywords(self) -> dict[str, Any]:
        """What is sent, without what this server has refused."""
        keywords = self.request.keywords()
        if keywords.get("num_retries") is not None:
            keywords = {"max_retries": 0, **keywords, "num_retries": 0}
        refused = _refused.get(self._server, set())
        if "stream" in refused and "tools" in keywords:
            keywords["stream"] = False
        if "stream_options" in refused or not keywords.get("stream"):
            keywords.pop("stream_options", None)
        return keywords

    @property
    def _server(self) -> tuple[str, str]:
        given = {**self.request.options, **self.request.secrets}
        return str(given.get("api_base") or given.get("base_url") or ""), self.request.model

    async def _ask(self, keywords: dict[str, Any]) -> bool:
        """Send one request and take its answer in; False where a server that cannot stream has sent it whole, unread."""
        self._under_way = "asking"
        if providers.is_ours(self.request.model):
            response: Any = await providers.ask(keywords)
        else:
            response = await client.load_litellm().acompletion(**keywords)
        if not hasattr(response, "__aiter__"):
            self._under_way = ""
            await self._take_whole(response)
            return True
        self._under_way = "answering"
        breath, stream = client.Breath(), client.LiteLLMStream(response)
        try:
            async for chunk in response:
                await self._take(chunk)
                await breath.take()
        finally:
            await stream.close()
        if stream.refusal and not self.assembly.refusal:
            self.assembly.refuse(stream.refusal)
        if stream.ended_early:
            self.assembly.finish_reason = None
            if self.assembly.half_sent:
                raise StreamCut("the stream ended in the middle of a tool call")
        self._cost = stream.cost
        return not (stream.is_json and self.assembly.is_empty)

    async def _take(self, chunk: Any) -> None:
        usage = read_field(chunk, "usage")
        if usage is not None:
            self._usage = usage
        choices = read_field(chunk, "choices")
        if not choices:  # the usage-only chunk of OpenAI's include_usage
            return
        if self._choice is None:
            self._choice = min(read_field(c, "index") or 0 for c in choices)
        choice = next((c for c in choices if (read_field(c, "index") or 0) == self._choice), None)
        if choice is None:  # several choices: the first counts
            return
        delta = read_field(choice, "delta")
        if self._on_delta is not None:
            self._on_delta(time.monotonic(), make_plain(delta) or {})
        await self._add(delta)
        if reason := read_field(choice, "finish_reason"):
            self.assembly.finish_reason = reason

    async def _take_whole(self, response: Any) -> None:
        """A response that was not streamed goes the way of one big delta."""
        self._usage = read_field(response, "usage")
        self._cost = client.cost_in_headers(getattr(response, "_hidden_params", None))
        choices = read_field(response, "choices") or ()
        if not choices:
            return
        message = read_field(choices[0], "message")
        if self._on_delta is not None:
            self._on_delta(time.monotonic(), make_plain(message) or {})
        self.assembly.finish_reason = read_field(choices[0], "finish_reason")
        await self._add(message, whole=True)

    async def _add(self, delta: Any, *, whole: bool = False) -> None:
        """Take a delta in and show what is new of it. Raises TooManyCalls, so that no more of the answer is read."""
        text, reasoning = self.assembly.add(delta)
        if whole:
            text += self.assembly.end()
            reasoning = reasoning if self.assembly.has_reasoning else ""
        await self._show(text, reasoning)
        if self.assembly.has_too_many_calls:
            raise TooManyCalls

    async def _show(self, text: str, reasoning: str) -> None:
        """Emit what is new, and each attachment once."""
        await self._show_words(text, reasoning)
        for one in self.assembly.attachments.untold():
            if one not in self._attached:
                self._attached.add(one)
                await self._emit(one)

    async def _show_words(self, text: str, reasoning: str) -> None:
        """Emit new words. After a retry the beginning that was shown already is skipped; where the second try says
        something else, the shown text is taken back.
        """
        if reasoning and not self._reasoning_shown:
            await self._emit(Reasoning(reasoning))
        if not text:
            return
        if not self._before:
            await self._emit(Text(text))
            return
        repeated = self._before[self._caught : self._caught + len(text)]
        if not text.startswith(repeated):
            await self._take_back("the second try answers differently")
            return
        self._caught += len(repeated)
        if self._caught == len(self._before):
            self._before = ""
            if len(text) > len(repeated):
                await self._emit(Text(text[len(repeated) :]))

    async def _take_back(self, why: str) -> None:
        """Take back what a broken try has shown, where this one has not repeated it, and show its own text instead."""
        gone, self._before = self._before, ""
        if not gone:
            return
        await self._emit(Retry(0, why, discard=gone))
        if text := self.assembly.text:
            await self._emit(Text(text))

    def _reply(self, seconds: float) -> Reply:
        self._under_way = ""
        cost = self._cost if self._cost is not None else price_of(self.request.model, self._usage)
        prompt_tokens = read_field(self._usage, "prompt_tokens") or 0
        completion_tokens = read_field(self._usage, "completion_tokens") or 0
        return Reply(
            message=self.assembly.message(self._ids_before()),
            finish_reason=self.assembly.finish_reason,
            usage=Usage(max(0, int(prompt_tokens)), max(0, int(completion_tokens)), 1 + self._broken),
            cost=cost if self.is_free or not self._broken else None,
            known_cost=cost or 0.0,
            refusal=self.assembly.refusal,
            attachments=self.assembly.attachments.all(),
            seconds=seconds,
        )

    def _ids_before(self) -> set[str]:
        """The call ids that the conversation has already; Anthropic refuses a second use of one."""
        if not self.assembly.has_calls:
            return set()
        return {c["id"] for m in self.request.messages if m.get("tool_calls") for c in m["tool_calls"]}
