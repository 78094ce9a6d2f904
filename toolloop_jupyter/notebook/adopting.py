"""LiteLLM's own streams and Results as ours: the one place where its events are turned into those that are shown.

The classes of `litellm.harness.types` (1.110) have our events' names and fewer fields; a later release may add some.
They are told apart by name, so that nothing here imports LiteLLM.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..core.events import (
    Approval,
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
from .inert import first_line

LOOK = 0.1
"""Seconds between two looks at whether their request was answered by somebody else (an `on_approval`); the first
comes before anybody is asked, so that a callback which answers at once raises no card."""
ENDED = "the turn ended before a decision"
UNANSWERED = "approval not answered"
"""LiteLLM's own reason for the denial of a request that the reader of its stream left unanswered."""


@dataclass(frozen=True)
class Notice:
    """An event that ours have no place for, in words."""

    text: str


def is_result(value: object) -> bool:
    """Whether `value` is a Result of LiteLLM's."""
    told = ("events", "stop_reason", "usage")
    return type(value).__name__ == "Result" and all(hasattr(value, name) for name in told)


def adopt(result: Any) -> Result:
    """A Result, ours or LiteLLM's, as ours."""
    if isinstance(result, Result):
        return result
    events = _Events()
    for event in result.events:
        events.take(event)
    events.take(Done(result))
    return events.result(result)


class Adopted:
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
        self._events = _Events(time.monotonic())
        self._ready: deque[Event | Notice] = deque()
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

    def __aiter__(self) -> Adopted:
        return self

    async def __anext__(self) -> Event | Notice:
        if not self._ready:
            self._hand_back()
        while not self._ready:
            event = await self._next()
            if event is _END:
                raise StopAsyncIteration
            self._ready.extend(self._events.take(event))
            if _kind(event) == "done":
                self.result = event.result
            elif _kind(event) == "approval":
                self._ready.append(await self._ask(event))
        return self._ready.popleft()

    async def _next(self) -> Any:
        self._reading = self._reading or asyncio.ensure_future(self._read())
        try:
            return await asyncio.shield(self._reading)
        finally:
            if self._reading.done():
                self._reading = None

    async def _ask(self, theirs: Any) -> Approval:
        """Our request for one of theirs, decided already where that is."""
        ours = Approval(
            tool=str(theirs.tool),
            input=_named(theirs.input),
            call_id=self._events.call_asked_by(theirs),
            why="the agent asks",
            scopes=("call",),  # LiteLLM's request is allowed or denied as it stands, and once
            editable=False,
        )
        self._asked = (theirs, ours)
        self._events.asks(theirs, ours)
        self._watching = asyncio.ensure_future(self._watch(theirs, ours))
        if not self._cancelled:
            await asyncio.wait({self._watching}, timeout=LOOK * 1.5)
        else:
            ours.deny(ENDED, by="stop")
        return ours

    async def _watch(self, theirs: Any, ours: Approval) -> None:
        """Decide our request when theirs was decided by somebody else: by `on_approval`, or as the turn has ended."""
        while not ours.answered:
            if (answer := answer_of(theirs)) is not None:
                _decide(ours, answer)
            else:
                await asyncio.sleep(LOOK)

    def _hand_back(self) -> None:
        """Answer their request with the decision on ours. Without one, LiteLLM's own rule holds."""
        if self._asked is None:
            return
        (theirs, ours), self._asked = self._asked, None
        self._events.goes_on(ours)
        if self._watching is not None:
            self._watching.cancel()
        if ours.decision is not None and not theirs.answered:
            theirs.allow() if ours.decision.allowed else theirs.deny(ours.decision.reason)


_END = object()


def _kind(event: object) -> str:
    return type(event).__name__.lower()


def answer_of(theirs: Any) -> Decision | None:
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


def _decide(ours: Approval, decision: Decision) -> None:
    if decision.allowed:
        ours.allow(by=decision.by)
    else:
        ours.deny(decision.reason, by=decision.by)


def _named(arguments: object) -> dict[str, Any]:
    return dict(arguments) if isinstance(arguments, Mapping) else {"input": arguments}


class _Events:
    """Turns their events into ours, one after the other, and remembers what a Result needs."""

    def __init__(self, began: float | None = None) -> None:
        """`began` is the monotonic time at which the turn began; None for one that is over."""
        self._began = began
        self.events: list[Event] = []
        self.asked: dict[str, tuple[Any, Approval | None]] = {}
        """(theirs, ours) of each call that was asked about, by the call's id."""
        self._open: dict[str, tuple[ToolCall, float]] = {}
        """The calls without a result, and when they came."""
        self._spans: list[Span] = []
        self._text = ""

    def take(self, event: Any) -> list[Event | Notice]:
        """Ours for one of theirs."""
        make = getattr(self, f"_on_{_kind(event)}", self._on_other)
        made: list[Event | Notice] = make(event)
        self.events += [one for one in made if not isinstance(one, (Notice, Done))]
        return made

    def result(self, theirs: Any) -> Result:
        """Their Result with our fields."""
        failed = theirs.stop_reason == "runtime_error"
        # LiteLLM puts the error behind the partial text, and has no field for it.
        error = theirs.text.removeprefix(self._text).strip() or "the run failed, and gave no reason"
        whole = Span("model", "agent", 0.0, self._now(), _usage(theirs.usage))
        return Result(
            text=self._text if failed else theirs.text,
            output=theirs.output,
            files=[_file(change) for change in theirs.files],
            events=self.events,
            usage=_usage(theirs.usage),
            cost=theirs.cost or None,  # 0.0 is LiteLLM's word for a price that nobody told, too
            stop_reason=theirs.stop_reason,
            session_id=theirs.session_id,
            error=error if failed else None,
            spans=() if self._began is None else (whole, *self._spans),
        )

    def call_asked_by(self, approval: Any) -> str:
        """The id of the call that a request was about."""
        return next(call_id for call_id, (theirs, _) in self.asked.items() if theirs is approval)

    def asks(self, theirs: Any, ours: Approval) -> None:
        """Note our request for theirs."""
        self.asked[ours.call_id] = (theirs, ours)
        self.events.append(ours)

    def goes_on(self, ours: Approval) -> None:
        """The request is answered: from now on its call runs."""
        self._open[ours.call_id] = (self._open[ours.call_id][0], self._now())

    def _now(self) -> float:
        return 0.0 if self._began is None else time.monotonic() - self._began

    # --- one method for each of their classes, by its name ------------------------------------------------------

    def _on_text(self, event: Any) -> list[Event | Notice]:
        self._text += event.delta
        return [Text(event.delta)]

    def _on_reasoning(self, event: Any) -> list[Event | Notice]:
        return [Reasoning(event.delta)]

    def _on_toolcall(self, event: Any) -> list[Event | Notice]:
        call = ToolCall(event.id, event.name, event.native_name, _named(event.input), event.builtin)
        self._open[call.id] = (call, self._now())
        return [call]

    def _on_approval(self, event: Any) -> list[Event | Notice]:
        """Find the call that is asked about: an open one of this tool, with these arguments if there are several.

        The request itself is the stream's to make; in a Result that is over, the call's result tells the decision.
        """
        name, arguments = str(event.tool), _named(event.input)
        calls = [call for call, _ in self._open.values() if call.id not in self.asked]
        calls = [call for call in calls if name in (call.name, call.native_name)]
        calls = [call for call in calls if call.input == arguments] or calls
        call = calls[0] if calls else ToolCall(f"asked-{len(self.asked) + 1}", name, name, arguments)
        self.asked[call.id] = (event, None)
        return [] if calls else self._on_toolcall(call)

    def _on_toolresult(self, event: Any) -> list[Event | Notice]:
        # A request that no call had announced has its own id, and the result another one.
        unannounced = (call_id for call_id in self._open if call_id.startswith("asked-"))
        call_id = event.id if event.id in self._open else next(unannounced, None)
        output = str(event.output)
        if call_id is None:
            return [Notice(f"a result of a call that was not announced: {first_line(output, 200)}")]
        call, began = self._open.pop(call_id)
        span, decision = (
            Span("tool", call.name, began, self._now(), is_error=event.is_error),
            self._decision(call_id),
        )
        self._spans.append(span)
        ran = self._began is not None and (decision is None or decision.allowed)  # else nobody knows how long
        made = ToolResult(
            call_id,
            output,
            event.is_error,
            value=output,
            seconds=span.end - span.start,
            full_length=len(output),
            ran=ran,
            decision=decision,
        )
        return [made]

    def _decision(self, call_id: str) -> Decision | None:
        """What was decided about a call: LiteLLM's answer, which counts, and ours where it says the same and by whom."""
        theirs, ours = self.asked.get(call_id, (None, None))
        answer = None if theirs is None else answer_of(theirs)
        made = None if ours is None else ours.decision
        return made if made and answer and made.allowed == answer.allowed else answer

    def _on_filechange(self, event: Any) -> list[Event | Notice]:
        return [_file(event)]

    def _on_compaction(self, event: Any) -> list[Event | Notice]:
        told = (event.tokens_before, event.tokens_after)
        counts = "" if None in told else f": {told[0]:,} tokens before, {told[1]:,} after"
        return [Notice(f"the agent has shortened its conversation{counts}")]

    def _on_done(self, event: Any) -> list[Event | Notice]:
        theirs = event.result
        failed = theirs.stop_reason == "runtime_error"
        unsaid = (
            "" if failed or theirs.output is not None or theirs.text.strip() in self._text else theirs.text
        )
        apart = "\n\n" if self._text else ""
        return [*([Text(apart + unsaid)] if unsaid else []), Done(self.result(theirs))]

    def _on_other(self, event: Any) -> list[Event | Notice]:
        return [Notice(f"{type(event).__name__}: {first_line(repr(event), 200)}")]


def _file(change: Any) -> FileChange:
    return FileChange(change.path, change.kind, change.diff)


def _usage(usage: Any) -> Usage:
    return Usage(usage.input_tokens, usage.output_tokens, usage.calls)
