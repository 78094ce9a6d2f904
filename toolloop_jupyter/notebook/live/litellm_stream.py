"""A stream of LiteLLM's own harnesses as one of ours: the one place where its events are turned into those that are shown.

The classes of `litellm.harness.types` (1.110) have our events' names and fewer fields. They are told apart by name, so
that nothing here imports LiteLLM; one that a later release adds is shown as a line of text.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from ...core.events import (
    Approval,
    Compaction,
    Decision,
    Done,
    Event,
    FileChange,
    Reasoning,
    Result,
    Span,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)
from ..html import first_line
from ..transcript import Notice

Shown: TypeAlias = Event | Compaction | Notice

LOOK = 0.1
"""Seconds between two looks at whether their request was answered by somebody else (an `on_approval`); the first
comes before anybody is asked, so that a callback which answers at once raises no card."""
ENDED = "the turn ended before a decision"
UNANSWERED = "approval not answered"
"""LiteLLM's own reason for the denial of a request that the reader of its stream left unanswered."""
_END = object()


def is_litellm_result(value: object) -> bool:
    """Whether `value` is a Result of LiteLLM's."""
    fields = ("events", "stop_reason", "usage")
    return type(value).__name__ == "Result" and all(hasattr(value, name) for name in fields)


def convert_result(result: Any) -> Result:
    """A Result, ours or LiteLLM's, as ours."""
    if isinstance(result, Result):
        return result
    converted = _Conversion(live=False)
    for event in result.events:
        converted.take(event)
    converted.take(Done(result))
    return converted.result(result)


class LiteLLMStream:
    """A stream of LiteLLM's, sync or async, as an async stream of our events; `result` is its own Result.

    Reading goes on when the reader is cancelled in between: a cancel inside LiteLLM's generator would end it without
    its Done event.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._read: Callable[[], Awaitable[Any]] = (
            stream.__anext__
            if hasattr(stream, "__anext__")
            else functools.partial(asyncio.to_thread, next, stream, _END)
        )
        self._reading: asyncio.Future[Any] | None = None
        self._converted = _Conversion(live=True)
        self._ready: deque[Shown] = deque()
        self._asked: tuple[Any, Approval] | None = None
        self._watching: asyncio.Future[None] | None = None
        self._cancelled = False
        self.result: Any = None
        """LiteLLM's Result, once its Done event has come."""

    def cancel(self) -> None:
        """Stop the turn, and answer what it has asked."""
        self._cancelled = True
        self._stream.cancel()
        if self._asked is not None:
            self._asked[1].deny(ENDED, by="stop")

    def __aiter__(self) -> LiteLLMStream:
        return self

    async def __anext__(self) -> Shown:
        if not self._ready:
            self._hand_back()
        while not self._ready:
            event = await self._next()
            if event is _END:
                raise StopAsyncIteration
            self._ready.extend(self._converted.take(event))
            if isinstance(self._ready[-1], Done):
                self.result = event.result
            elif isinstance(self._ready[-1], Approval):
                await self._watch(event, self._ready[-1])
        return self._ready.popleft()

    async def _next(self) -> Any:
        self._reading = self._reading or asyncio.ensure_future(self._read())
        try:
            return await asyncio.shield(self._reading)
        finally:
            if self._reading.done():
                self._reading = None

    async def _watch(self, theirs: Any, ours: Approval) -> None:
        """Take over what an `on_approval` decides, from now until the next event is read; give it the time of one look."""
        self._asked = (theirs, ours)
        if self._cancelled:
            ours.deny(ENDED, by="stop")

        async def look() -> None:
            while not ours.answered:
                await asyncio.sleep(LOOK)
                _take_over(theirs, ours)

        self._watching = asyncio.ensure_future(look())
        await asyncio.wait({self._watching}, timeout=LOOK * 1.5)

    def _hand_back(self) -> None:
        """Answer their request with the decision on ours. Without one, LiteLLM's own rule holds: it is denied."""
        if self._asked is None:
            return
        (theirs, ours), self._asked = self._asked, None
        self._converted.answered(ours)
        if self._watching is not None:
            self._watching.cancel()
        if ours.decision is not None and not theirs.answered:
            theirs.allow() if ours.decision.allowed else theirs.deny(ours.decision.reason)


def _answer_of(theirs: Any) -> Decision | None:
    """The decision on LiteLLM's request, whoever made it; None while there is none."""
    if not theirs.answered:
        return None
    waiting = theirs.wait()
    try:
        waiting.send(None)  # its future is done, so this ends at once, on whatever loop the future is
    except StopIteration as ended:
        allowed, reason = ended.value
        return Decision(allowed, reason, by="unattended" if reason == UNANSWERED else "callback")
    except asyncio.CancelledError:
        return Decision(False, ENDED, by="stop")
    waiting.close()
    return None


def _take_over(theirs: Any, ours: Approval) -> Decision | None:
    """Decide our request as theirs was, if neither a person nor anybody else has; returns the decision that counts."""
    answer = _answer_of(theirs)
    if answer is not None and not ours.answered:
        ours.allow(by=answer.by) if answer.allowed else ours.deny(answer.reason, by=answer.by)
    same = answer is not None and ours.decision is not None and ours.decision.allowed == answer.allowed
    return ours.decision if same else answer


class _Conversion:
    """Turns their events into ours, one after the other, and keeps what a Result needs."""

    def __init__(self, *, live: bool) -> None:
        """`live`: the turn goes on, so the time that a call takes can be seen."""
        self._live, self._began = live, time.monotonic()
        self._events: list[Any] = []
        """What a Result of ours has, and between it the notices."""
        self._spans: list[Span] = []
        self._open: dict[str, tuple[ToolCall, float]] = {}
        """The calls without a result, and when they began."""
        self._asked: dict[str, tuple[Any, Approval]] = {}
        """(theirs, ours) of each call that was asked about."""
        self._text = ""

    def take(self, event: Any) -> list[Shown]:
        """Ours for one of theirs."""
        made = self._made_of(event, type(event).__name__)
        self._events += [one for one in made if not isinstance(one, Done)]
        return made

    def result(self, theirs: Any) -> Result:
        """Their Result with our fields."""
        failed = theirs.stop_reason == "runtime_error"
        # LiteLLM puts the error behind the partial text, and has no field for it.
        error = theirs.text.removeprefix(self._text).strip() or "the run failed, and gave no reason"
        return Result(
            text=self._text if failed else theirs.text,
            output=theirs.output,
            files=[FileChange(change.path, change.kind, change.diff) for change in theirs.files],
            events=self._events,
            usage=Usage(theirs.usage.input_tokens, theirs.usage.output_tokens, theirs.usage.calls),
            cost=theirs.cost or None,  # 0.0 is LiteLLM's word for a price that nobody told, too
            stop_reason=theirs.stop_reason,
            session_id=theirs.session_id,
            error=error if failed else None,
            spans=tuple(self._spans),
        )

    def answered(self, ours: Approval) -> None:
        """The request is answered: from now on its call runs."""
        self._open[ours.call_id] = (self._open[ours.call_id][0], time.monotonic())

    def _made_of(self, event: Any, kind: str) -> list[Shown]:
        if kind == "Text":
            self._text += event.delta
            return [Text(event.delta)]
        if kind == "Reasoning":
            return [Reasoning(event.delta)]
        if kind == "ToolCall":
            call = ToolCall(event.id, event.name, event.native_name, dict(event.input), event.builtin)
            return [self._begin(call)]
        if kind == "Approval":
            return self._request(event)
        if kind == "ToolResult":
            return [self._call_result(event)]
        if kind == "FileChange":
            return [FileChange(event.path, event.kind, event.diff)]
        if kind == "Done":
            return [*self._unsaid(event.result), Done(self.result(event.result))]
        if kind == "Compaction" and event.tokens_before and event.tokens_after:
            return [Compaction(event.tokens_before, event.tokens_after)]
        return [Notice(f"{kind}: {first_line(repr(event), 200)}")]

    def _begin(self, call: ToolCall) -> ToolCall:
        self._open[call.id] = (call, time.monotonic())
        return call

    def _request(self, theirs: Any) -> list[Shown]:
        """Ours for a request of theirs, behind the call that it is about: an open one of this tool, else one made for it."""
        calls = [call for call, _ in self._open.values() if call.id not in self._asked]
        calls = [call for call in calls if theirs.tool in (call.name, call.native_name)]
        fitting = [call for call in calls if call.input == theirs.input] or calls
        made_up = ToolCall(f"asked-{len(self._asked)}", theirs.tool, theirs.tool, dict(theirs.input))
        call = fitting[0] if fitting else self._begin(made_up)
        ours = Approval(
            tool=theirs.tool,
            input=theirs.input,
            call_id=call.id,
            why="the agent asks",
            scopes=("call",),  # LiteLLM's request is allowed or denied as it stands, and once
            editable=False,
        )
        self._asked[call.id] = (theirs, ours)
        _take_over(theirs, ours)
        return [ours] if fitting else [call, ours]

    def _call_result(self, event: Any) -> Shown:
        output = str(event.output)
        if event.id not in self._open:
            return Notice(f"a result of a call that was not announced: {first_line(output, 200)}")
        (call, began), now = self._open.pop(event.id), time.monotonic()
        if self._live:
            times = (began - self._began, now - self._began)
            self._spans.append(Span("tool", call.name, *times, is_error=event.is_error))
        decision = _take_over(*self._asked[event.id]) if event.id in self._asked else None
        return ToolResult(
            event.id,
            output,
            event.is_error,
            value=output,
            seconds=now - began if self._live else 0.0,
            full_length=len(output),
            ran=self._live and (decision is None or decision.allowed),
            decision=decision,
        )

    def _unsaid(self, result: Any) -> list[Text]:
        """The answer, where it is only in the Result."""
        if result.stop_reason == "runtime_error" or result.output is not None:
            return []
        if result.text.strip() in self._text:
            return []
        return [Text(("\n\n" if self._text else "") + result.text)]
