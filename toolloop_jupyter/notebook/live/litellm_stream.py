"""Convert the streams and Results of LiteLLM's own harnesses, so that a page can show them like our own.

Our classes have the names and the fields of the classes in `litellm.harness.types` (1.110), which are not imported here.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

from ...core.events import (
    NO_DECISION,
    NOT_ANSWERED,
    Approval,
    Compaction,
    Decision,
    Done,
    Event,
    FileChange,
    Reasoning,
    Result,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)
from ..html import take_first_line
from ..transcript import Notice

Shown: TypeAlias = Event | Compaction | Notice
Theirs: TypeAlias = Any
"""An object of one of LiteLLM's classes, which are not imported here."""
Made = TypeVar("Made")

LOOK = 0.15
"""Seconds between two checks whether LiteLLM's `on_approval` has decided a request. No card is shown before the first check."""


def is_theirs(value: object, kind: type) -> bool:
    """Return whether `value` is an object of LiteLLM's class that has the same name as our class `kind`."""
    types = sys.modules.get("litellm.harness.types")
    return types is not None and isinstance(value, getattr(types, kind.__name__))


def convert_result(result: Theirs) -> Result:
    """Convert LiteLLM's Result into our class. Return a Result of our class unchanged."""
    if isinstance(result, Result):
        return result
    conversion = _Conversion(live=False)
    for event in result.events:
        conversion.take(event)
    return conversion.end(result)


class LiteLLMStream:
    """Reads LiteLLM's stream (sync or async), and yields our events asynchronously. `result` is LiteLLM's own Result.

    If our reader is cancelled, a read that has begun goes on. If it were cancelled, LiteLLM's generator would end without Done.
    """

    def __init__(self, stream: Theirs) -> None:
        self._stream = stream
        self._read: Callable[[], Awaitable[object]] = getattr(
            stream, "__anext__", functools.partial(asyncio.to_thread, next, stream, None)
        )
        self._reading: asyncio.Future[object] | None = None
        self._conversion = _Conversion(live=True)
        self._ready: deque[Shown] = deque()
        self._cancelled = False
        self.result: Theirs = None
        """LiteLLM's Result; None before LiteLLM's Done event."""

    def cancel(self) -> None:
        """Stop the turn, and deny its requests, including later ones."""
        self._cancelled = True
        self._stream.cancel()
        for request in self._conversion.requests.values():
            request.ours.deny(NO_DECISION, by="stop")

    def __aiter__(self) -> LiteLLMStream:
        return self

    async def __anext__(self) -> Shown:
        if not self._ready:
            for request in self._conversion.requests.values():
                request.answer_theirs()
        while not self._ready:
            self._reading = self._reading or asyncio.ensure_future(self._read())
            event = await asyncio.shield(self._reading)
            self._reading = None
            if event is None:
                raise StopAsyncIteration
            self._ready += self._conversion.take(event)
            if is_theirs(event, Done):
                self.result = event.result  # type: ignore[attr-defined]
            elif isinstance(asked := self._ready[-1], Approval):
                request = self._conversion.requests[asked.call_id]
                # LiteLLM's `on_approval` gets a moment to decide, before a card is shown.
                request.watching = asyncio.ensure_future(request.watch())
                await asyncio.wait({request.watching}, timeout=1.1 * LOOK)
                if self._cancelled:
                    asked.deny(NO_DECISION, by="stop")
        return self._ready.popleft()


class _Request:
    """LiteLLM's request for approval, and our request for the same call. One decision decides both."""

    def __init__(self, theirs: Theirs, ours: Approval) -> None:
        self.theirs, self.ours = theirs, ours
        self.watching: asyncio.Future[None] | None = None

    async def watch(self) -> None:
        """Check again and again whether LiteLLM's `on_approval` has decided, until our request is decided."""
        while not self.ours.answered:
            await asyncio.sleep(LOOK)
            self.answer_ours()

    def answer_theirs(self) -> None:
        """Give our decision to LiteLLM. If we have none, LiteLLM denies its request, or waits for its `on_approval`."""
        if self.ours.decision is not None and not self.theirs.answered:
            self.theirs.allow() if self.ours.decision.allowed else self.theirs.deny(self.ours.decision.reason)

    def answer_ours(self) -> Decision | None:
        """If LiteLLM's request is decided, decide ours in the same way. Return the decision that LiteLLM has followed."""
        if not self.theirs.answered:
            return None
        try:
            self.theirs.wait().send(None)  # the future is done, so this ends at once, even on another loop
        except StopIteration as ended:
            allowed, reason = ended.value
            followed = Decision(allowed, reason, by="unattended" if reason == NOT_ANSWERED else "callback")
        except asyncio.CancelledError:
            followed = Decision(False, NO_DECISION, by="stop")
        decide = self.ours.allow if followed.allowed else functools.partial(self.ours.deny, followed.reason)
        decide(by=followed.by)
        ours = self.ours.decision
        return ours if ours is not None and ours.allowed == followed.allowed else followed


def _copy(kind: Callable[..., Made], theirs: Theirs) -> Made:
    """Make an object of our class `kind` with the fields of `theirs`, an object of LiteLLM."""
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    return kind(**{each.name: getattr(theirs, each.name) for each in fields if hasattr(theirs, each.name)})


class _Conversion:
    """Converts LiteLLM's events into ours, one after the other, and collects the data for a Result."""

    def __init__(self, *, live: bool) -> None:
        """`live`: True if the turn is still running. Only then we can measure the seconds of its calls."""
        self._live = live
        self._events: list[Theirs] = []
        """The converted events. An event for which we have no class is a Notice."""
        self._open: dict[str, tuple[ToolCall, float]] = {}
        """The id of each call without a result -> (the call, the time at which it began)."""
        self._numbers: dict[str, int] = {}
        """The id of a call -> its number, from 1."""
        self.requests: dict[str, _Request] = {}
        """The id of a call -> the request for it."""
        self._text = ""

    def take(self, event: Theirs) -> list[Shown]:
        """Convert one of LiteLLM's events, and return our events for it."""
        if is_theirs(event, Done):
            count = len(self._events)
            result = self.end(event.result)
            return [*self._events[count:], Done(result)]
        made = self._request(event) if is_theirs(event, Approval) else self._convert(event)
        self._events.append(made)
        return [made]

    def end(self, theirs: Theirs) -> Result:
        """Convert LiteLLM's Result into ours. If no event had the answer, add a Text event with the answer."""
        failed = theirs.stop_reason == "runtime_error"
        # LiteLLM's Result has no field for an error. The message of the error is at the end of `text`.
        error = theirs.text.removeprefix(self._text).strip() or "the run failed, and gave no reason"
        if not failed and theirs.output is None and theirs.text.strip() not in self._text:
            self._events.append(Text(("\n\n" if self._text else "") + theirs.text))
        return Result(
            text=self._text if failed else theirs.text,
            output=theirs.output,
            files=[_copy(FileChange, change) for change in theirs.files],
            events=self._events,
            usage=_copy(Usage, theirs.usage),
            cost=theirs.cost or None,  # LiteLLM gives 0.0 for an unknown price, too
            stop_reason=theirs.stop_reason,
            session_id=theirs.session_id,
            error=error if failed else None,
        )

    def _convert(self, event: Theirs) -> Shown:
        """Copy an event that is not a request. An event of a class that we do not know (of a later LiteLLM) becomes a Notice."""
        if is_theirs(event, ToolResult):
            return self._end_call(_copy(ToolResult, event))
        if is_theirs(event, ToolCall):
            call = _copy(ToolCall, event)
            self._open[call.id] = call, time.monotonic()
            self._numbers.setdefault(call.id, len(self._numbers) + 1)
            return call
        if is_theirs(event, Text):
            self._text += event.delta
        kinds: tuple[Callable[..., Shown], ...] = Text, Reasoning, FileChange, Compaction
        for kind in kinds:
            if is_theirs(event, kind):  # type: ignore[arg-type]
                return _copy(kind, event)
        return Notice(f"{type(event).__name__}: {take_first_line(repr(event), 200)}")

    def _request(self, theirs: Theirs) -> Approval:
        """Make our request from LiteLLM's request, which names no call. So we choose an open call of the same tool, if any."""
        calls = [call for call, _ in self._open.values() if call.id not in self.requests]
        calls = [call for call in calls if theirs.tool in (call.name, call.native_name)]
        calls.sort(key=lambda call: call.input != theirs.input)
        call_id = calls[0].id if calls else f"asked-{len(self.requests)}"
        ours = Approval(
            tool=theirs.tool,
            input=theirs.input,
            call_id=call_id,
            why="the agent asks",
            scopes=("call",),  # LiteLLM's request can only be allowed or denied unchanged, for one call
            editable=False,
            number=self._numbers.setdefault(call_id, len(self._numbers) + 1),
        )
        self.requests[ours.call_id] = _Request(theirs, ours)
        self.requests[ours.call_id].answer_ours()
        return ours

    def _end_call(self, result: ToolResult) -> Shown:
        """Add the decision and the seconds of the call to `result`. These seconds include the wait for the decision."""
        if result.id not in self._open:
            return Notice(f"a result came without its tool call: {take_first_line(result.output, 200)}")
        _, began = self._open.pop(result.id)
        request = self.requests.get(result.id)
        decision = request.answer_ours() if request is not None else None
        return dataclasses.replace(
            result,
            value=result.output,
            seconds=time.monotonic() - began if self._live else 0.0,
            full_length=len(result.output),
            ran=self._live and (decision is None or decision.allowed),
            decision=decision,
        )
