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
import os
import re
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from . import provider, upstream
from .assembly import Assembly
from .attachments import Attachment
from .bounds import TooManyCalls
from .completion_options import explain_switch
from .deltas import get, plain
from .errors import ModelCallFailed
from .events import Reasoning, Retry, Text, Usage
from .failures import explain
from .foreign import message_of
from .hiding import hide_in_repr
from .pricing import UNMAPPED, is_free, priced, told_in_header
from .running import RunEnded, attempt

Emit = Callable[[Text | Reasoning | Attachment | Retry], Awaitable[None]]
Tap = Callable[[float, Mapping[str, Any]], None]

FINAL = (400, 401, 403, 404, 405, 413, 422)
"""Statuses of refusals that another try would get again."""


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


def takes_response_format(model: str, tools: list[dict[str, Any]], response_format: Any) -> bool:
    """Whether the model really takes `response_format` and stays free to call the tools.

    Asked of LiteLLM's own parameter mapping (`get_optional_params`, 1.110), without a network: it raises for
    groq/llama-3.3 and cohere, and forces a hidden `json_tool_call` on older Claudes, which could call no tool any more.
    Known from the providers, not from LiteLLM: Gemini before 3 refuses JSON answers together with functions, and
    Ollama's `format` constrains the very first token, so that no tool is ever called.
    """
    if provider.is_ours(model):
        return True
    litellm = load_litellm()
    try:
        name, where, _, _ = litellm.get_llm_provider(model)
    except (litellm.BadRequestError, ValueError):
        return True  # the call itself will say what is wrong with the name
    if tools and (
        where.startswith("ollama") or ("gemini" in name and not re.search(r"gemini-(?:[3-9]|\d\d)", name))
    ):
        return False
    extra = {"tools": tools} if tools else {}
    mapped = _mapped(litellm, name, where, response_format=response_format, **extra)
    return mapped is not None and not (tools and "json_tool_call" in str(mapped.get("tool_choice")))


def takes_no_tool_choice(model: str, tools: list[dict[str, Any]]) -> bool:
    """Whether `tool_choice="none"` may be sent; LiteLLM's mapping (1.110) raises for Bedrock and some others."""
    if provider.is_ours(model):
        return True
    litellm = load_litellm()
    try:
        name, where, _, _ = litellm.get_llm_provider(model)
    except (litellm.BadRequestError, ValueError):
        return True
    return _mapped(litellm, name, where, tools=tools, tool_choice="none") is not None


def _mapped(litellm: Any, name: str, where: str, **options: Any) -> dict[str, Any] | None:
    """What LiteLLM makes of completion options for a provider; None when it refuses them."""
    try:
        mapped: dict[str, Any] = litellm.get_optional_params(model=name, custom_llm_provider=where, **options)
    except (litellm.BadRequestError, litellm.UnsupportedParamsError, *UNMAPPED):
        return None
    return mapped


@hide_in_repr
@dataclass(frozen=True)
class Request:
    """One model call, exactly as it goes to `litellm.acompletion`."""

    model: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] = field(default_factory=list)
    options: Mapping[str, Any] = field(default_factory=dict)
    """Everything else: stream, response_format, api_base, temperature, …"""
    secrets: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """api_key and headers: sent, never shown."""

    def keywords(self) -> dict[str, Any]:
        """The keyword arguments of `acompletion`. No tools, no tool options: providers refuse an empty list."""
        tools = {"tools": self.tools} if self.tools else {}
        options = self.options
        if not tools:
            options = {k: v for k, v in options.items() if k not in ("tool_choice", "parallel_tool_calls")}
        return {
            **provider.call_options(self.model),
            **options,
            **self.secrets,
            **tools,
            "model": self.model,
            "messages": self.messages,
        }

    def shown(self) -> dict[str, Any]:
        """The same without keys and headers, as plain data: for step mode, dry runs and recordings."""
        options = {key: _shown_option(value) for key, value in self.options.items()}
        return {"model": self.model, "messages": plain(self.messages), "tools": plain(self.tools), **options}


def _shown_option(value: Any) -> Any:
    """A completion option as plain data; a class (`response_format=Review`) as its JSON schema."""
    if isinstance(value, type) and hasattr(value, "model_json_schema"):
        return value.model_json_schema()
    return plain(value)


@hide_in_repr
@dataclass(frozen=True)
class Reply:
    """What a model call brought."""

    message: dict[str, Any]
    finish_reason: str | None
    usage: Usage
    cost: float | None
    """US dollars, or None when neither the provider nor LiteLLM's price list tells all of it."""
    known_cost: float = 0.0
    """What is known of it: an answer's own cost, without that of the tries before it which broke off."""
    refusal: str = ""
    attachments: tuple[Attachment, ...] = ()
    seconds: float = 0.0


class ModelCall:
    """One call with its retries. `assembly` holds what has arrived so far, also after a cancel or a failure."""

    def __init__(self, request: Request, emit: Emit, *, tap: Tap | None = None) -> None:
        self.request = request
        self._names = frozenset(tool["function"]["name"] for tool in request.tools)
        self.assembly = Assembly(self._names)
        self._emit = emit
        self._tap = tap
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
        litellm = load_litellm()
        if wrong := explain_switch():  # set since the run's options were checked
            raise ModelCallFailed(wrong)
        provider.ensure(self.request.model)
        again = self.request.options.get("num_retries") or 0
        started, tries = time.monotonic(), 0
        while True:
            outcome = await attempt(self._once(litellm))
            error = outcome.error
            if isinstance(error, RunEnded):
                raise error
            if error is None or self._is_complete(error):
                await self._show(self.assembly.end(), "")
                await self._take_back("the second try says less")
                return self._reply(litellm, time.monotonic() - started)
            self._count_broken(litellm, error)
            await self._show(*self.assembly.cut())
            tries += 1
            if tries > again or not self._may_retry(litellm, error):
                raise ModelCallFailed(*explain(error, self.request)) from None
            await self._try_again(tries, explain(error, self.request)[0], upstream.retry_after(error))

    def _count_broken(self, litellm: Any, error: BaseException) -> None:
        """Count a try that failed, unless it costs nothing: the server has refused the request, or has never got it."""
        if self._under_way == "answering" or upstream.is_cut(litellm, error):
            self._broken += 1
        self._under_way = ""

    def _is_complete(self, error: BaseException) -> bool:
        """Some servers send no finish_reason, which LiteLLM (1.110) takes for a cut stream, once it is all there: whole
        calls can run all the same.
        """
        return (
            self.assembly.has_calls
            and not self.assembly.half_sent
            and upstream.CLEAN_END in message_of(error)
        )

    def _may_retry(self, litellm: Any, error: BaseException) -> bool:
        """What another try may help: not a refusal of the request itself, also not one in the middle of the stream."""
        cause = getattr(error, "original_exception", None) or error
        status = getattr(cause, "status_code", None)
        final = (litellm.BadRequestError, litellm.AuthenticationError, litellm.NotFoundError)
        return status not in FINAL and not isinstance(cause, final)

    async def _try_again(self, number: int, error: str, wait: float | None) -> None:
        self._before, self._caught = self.shown, 0
        self._reasoning_shown = self._reasoning_shown or self.assembly.has_reasoning
        self.assembly = Assembly(self._names)
        await self._emit(Retry(number, error))
        await asyncio.sleep(min(0.25 * 2 ** (number - 1), 4.0) if wait is None else wait)

    async def _once(self, litellm: Any) -> None:
        self._usage, self._cost, self._choice = None, None, None
        keywords = self.request.keywords()
        if keywords.get("num_retries") is not None:
            keywords = {"max_retries": 0, **keywords, "num_retries": 0}
        if await self._ask(litellm, keywords):
            return
        self._broken += 1
        await self._emit(
            Retry(1, "the server answered with JSON and not with a stream; asked again for that")
        )
        keywords.pop("stream_options", None)
        await self._ask(litellm, {**keywords, "stream": False})

    async def _ask(self, litellm: Any, keywords: dict[str, Any]) -> bool:
        """Send one request and take its answer in; False where a server that cannot stream has sent it whole, unread."""
        self._under_way = "asking"
        response = await provider.acompletion(litellm, keywords)
        if not hasattr(response, "__aiter__"):
            self._under_way = ""
            await self._take_whole(response)
            return True
        self._under_way = "answering"
        breath, no_stream = upstream.Breath(), upstream.is_json(response)
        hidden = getattr(response, "_hidden_params", None)
        refusals = upstream.watch_stream(response)
        try:
            async for chunk in response:
                await self._take(chunk)
                await breath.take()
        finally:
            await upstream.close(response)
        if refusals and not self.assembly.text:
            await self._show(self.assembly.refuse("".join(refusals)), "")
        if upstream.ended_early(response):
            self.assembly.finish_reason = None
            if self.assembly.half_sent:
                raise upstream.StreamCut("the stream ended in the middle of a tool call")
        self._cost = told_in_header(hidden)
        return not (no_stream and self.assembly.is_empty)

    async def _take(self, chunk: Any) -> None:
        usage = get(chunk, "usage")
        if usage is not None:
            self._usage = usage
        choices = get(chunk, "choices")
        if not choices:  # the usage-only chunk of OpenAI's include_usage
            return
        if self._choice is None:
            self._choice = min(get(c, "index") or 0 for c in choices)
        choice = next((c for c in choices if (get(c, "index") or 0) == self._choice), None)
        if choice is None:  # several choices: the first counts
            return
        delta = get(choice, "delta")
        if self._tap is not None:
            self._tap(time.monotonic(), plain(delta) or {})
        await self._add(delta)
        if reason := get(choice, "finish_reason"):
            self.assembly.finish_reason = reason

    async def _take_whole(self, response: Any) -> None:
        """A response that was not streamed goes the way of one big delta."""
        self._usage = get(response, "usage")
        self._cost = told_in_header(getattr(response, "_hidden_params", None))
        choices = get(response, "choices") or ()
        if not choices:
            return
        message = get(choices[0], "message")
        if self._tap is not None:
            self._tap(time.monotonic(), plain(message) or {})
        self.assembly.finish_reason = get(choices[0], "finish_reason")
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

    def _reply(self, litellm: Any, seconds: float) -> Reply:
        self._under_way = ""
        cost = self._cost if self._cost is not None else priced(litellm, self.request.model, self._usage)
        prompt_tokens = get(self._usage, "prompt_tokens") or 0
        completion_tokens = get(self._usage, "completion_tokens") or 0
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
