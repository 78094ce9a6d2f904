"""Convert a stream of LiteLLM's own harnesses (`litellm.harness`) into a stream of our events, which `show()` can show.

Our event classes have the names of the classes in `litellm.harness.types` (1.110), and all their fields. This module does not
import LiteLLM, since the code that made LiteLLM's events has imported it. If a later release of LiteLLM adds an event class,
each event of that class is shown as one line.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from ...core.events import (
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
from ..html import first_line
from ..transcript import Notice

Shown: TypeAlias = Event | Compaction | Notice
Theirs: TypeAlias = Any
"""An object of one of LiteLLM's classes, which are not imported here."""
Made = TypeVar("Made")
_KINDS = (Text, Reasoning, ToolCall, ToolResult, FileChange, Compaction)
"""Our event classes whose objects can be made from the fields of LiteLLM's objects."""

LOOK = 0.15
"""Seconds that we wait for the answer of LiteLLM's `on_approval` before we show a card. While the card is shown, we look for
the answer again at this interval."""
ENDED = "the turn ended before a decision"
UNANSWERED = "approval not answered"
"""The reason with which LiteLLM denies a request that the reader of its stream has not answered."""


def _is_theirs(value: object, kind: type) -> bool:
    """Return whether `value` is an object of LiteLLM's class that has the same name as our class `kind`."""
    types = sys.modules.get("litellm.harness.types")
    return types is not None and isinstance(value, getattr(types, kind.__name__))


def is_litellm_result(value: object) -> bool:
    """Return whether `value` is LiteLLM's Result, not ours."""
    return _is_theirs(value, Result)


def convert_result(result: Theirs) -> Result:
    """Convert LiteLLM's Result into a Result of this package. Return a Result of this package unchanged."""
    if isinstance(result, Result):
        return result
    converted = _Conversion(live=False)
    for event in result.events:
        converted.take(event)
    converted.end(result)
    return converted.result(result)


class LiteLLMStream:
    """Reads LiteLLM's stream (sync or async), and yields our events asynchronously. `result` is LiteLLM's own Result.

    A cancelled reader does not cancel the read from LiteLLM's stream. If LiteLLM's generator were cancelled, its stream would
    end without a Done event.
    """

    def __init__(self, stream: Theirs) -> None:
        self._stream = stream
        self._read: Callable[[], Awaitable[object]] = getattr(
            stream, "__anext__", functools.partial(asyncio.to_thread, next, stream, None)
        )
        self._reading: asyncio.Future[object] | None = None
        self._converted = _Conversion(live=True)
        self._ready: deque[Shown] = deque()
        self._deciding: asyncio.Future[None] | None = None
        """The task that waits for LiteLLM's own decision about the last request."""
        self._cancelled = False
        self.result: Theirs = None
        """LiteLLM's Result; None before LiteLLM's Done event."""

    def cancel(self) -> None:
        """Stop the turn, and deny its open requests."""
        self._cancelled = True
        self._stream.cancel()
        self._converted.deny_open()

    def __aiter__(self) -> LiteLLMStream:
        return self

    async def __anext__(self) -> Shown:
        if self._deciding is not None:
            self._deciding.cancel()
            self._deciding = None
        if not self._ready:
            self._converted.hand_back()
        while not self._ready:
            self._reading = self._reading or asyncio.ensure_future(self._read())
            event = await asyncio.shield(self._reading)
            self._reading = None
            if event is None:
                raise StopAsyncIteration
            self._ready.extend(self._converted.take(event))
            if _is_theirs(event, Done):
                self.result = event.result  # type: ignore[attr-defined]
            if isinstance(self._ready[-1], Approval):
                await asyncio.sleep(LOOK)
                self._converted.take_over(self._ready[-1].call_id)
                if self._cancelled:
                    self._converted.deny_open()
        event = self._ready.popleft()
        if isinstance(event, Approval) and not event.answered:
            self._deciding = asyncio.ensure_future(self._take_over_later(event))
        return event

    async def _take_over_later(self, ours: Approval) -> None:
        """Wait until LiteLLM's request is decided. Then give `ours`, our request, the same decision. The card then stops waiting.

        The decision may come from a late answer of LiteLLM's `on_approval`, or from code that cancels LiteLLM's stream.
        """
        while not ours.answered:
            await asyncio.sleep(LOOK)
            self._converted.take_over(ours.call_id)


def _find_answer(theirs: Theirs) -> Decision | None:
    """Return the decision about LiteLLM's request `theirs`; None if the request is not decided yet."""
    if not theirs.answered:
        return None
    try:
        theirs.wait().send(None)  # the future is done, so this ends at once, also on another loop
    except StopIteration as ended:
        allowed, reason = ended.value
        return Decision(allowed, reason, by="unattended" if reason == UNANSWERED else "callback")
    except asyncio.CancelledError:
        pass
    return Decision(False, ENDED, by="stop")


def _copy(kind: Callable[..., Made], theirs: Theirs) -> Made:
    """Make an object with the fields of `theirs`, an object of LiteLLM. `kind` is our class for it."""
    names: Mapping[str, object] = getattr(kind, "__dataclass_fields__", {})
    return kind(**{name: getattr(theirs, name) for name in names if hasattr(theirs, name)})


class _Conversion:
    """Converts LiteLLM's events into ours, one after the other, and collects the data for a Result."""

    def __init__(self, *, live: bool) -> None:
        """`live`: True if the turn is still running. Only then we can measure the seconds of its calls."""
        self._live = live
        self._events: list[Theirs] = []
        """The converted events. They include notices for events that have no class of ours."""
        self._open: dict[str, tuple[ToolCall, float]] = {}
        """The id of each call without a result -> (the call, the time at which it began)."""
        self._asked: dict[str, tuple[Theirs, Approval]] = {}
        """The id of a call -> (LiteLLM's request, our request)."""
        self._text = ""

    def take(self, event: Theirs) -> list[Shown]:
        """Convert one of LiteLLM's events, and return our events for it."""
        if _is_theirs(event, Done):
            return [*self.end(event.result), Done(self.result(event.result))]
        made = self._request(event) if _is_theirs(event, Approval) else [self._make(event)]
        self._events += made
        return made

    def end(self, result: Theirs) -> list[Shown]:
        """Return [a Text event with the answer of LiteLLM's Result] if no earlier event had this answer; else []."""
        is_answer = result.stop_reason != "runtime_error" and result.output is None
        if not is_answer or result.text.strip() in self._text:
            return []
        unsaid = Text(("\n\n" if self._text else "") + result.text)
        self._events.append(unsaid)
        return [unsaid]

    def result(self, theirs: Theirs) -> Result:
        """Convert LiteLLM's Result into ours."""
        failed = theirs.stop_reason == "runtime_error"
        # LiteLLM's Result has no field for an error. The message of the error is at the end of `text`.
        error = theirs.text.removeprefix(self._text).strip() or "the run failed, and gave no reason"
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

    def hand_back(self) -> None:
        """Answer each open request of LiteLLM's with the decision about our request for the same call.

        If our request has no decision, do nothing. LiteLLM then denies its own request.
        """
        for theirs, ours in self._asked.values():
            if ours.decision is not None and not theirs.answered:
                theirs.allow() if ours.decision.allowed else theirs.deny(ours.decision.reason)

    def deny_open(self) -> None:
        """Deny all our requests that are not decided. Called when the turn is cancelled."""
        for _, ours in self._asked.values():
            ours.deny(ENDED, by="stop")

    def take_over(self, call_id: str) -> Decision | None:
        """LiteLLM and we have each asked about this call. If LiteLLM's question is decided, decide ours in the same way.

        Return the decision that LiteLLM has followed; None if there is none yet.
        """
        theirs, ours = self._asked[call_id]
        answer = _find_answer(theirs)
        if answer is not None and not ours.answered:
            ours.allow(by=answer.by) if answer.allowed else ours.deny(answer.reason, by=answer.by)
        same = answer is not None and ours.decision is not None and ours.decision.allowed == answer.allowed
        return ours.decision if same else answer

    def _make(self, event: Theirs) -> Shown:
        kind: Any = next((kind for kind in _KINDS if _is_theirs(event, kind)), None)
        if kind is None:
            return Notice(f"{type(event).__name__}: {first_line(repr(event), 200)}")
        made: Shown = _copy(kind, event)
        if isinstance(made, Text):
            self._text += made.delta
        elif isinstance(made, ToolCall):
            self._open[made.id] = (made, time.monotonic())
        return self._end_call(made) if isinstance(made, ToolResult) else made

    def _request(self, theirs: Theirs) -> list[Shown]:
        """Make our approval request from LiteLLM's. LiteLLM's request names no call, so we choose an open call of the same tool.

        If no call of the tool is open, we make a call. Returns [our request], or [the new call, our request].
        """
        calls = [call for call, _ in self._open.values() if call.id not in self._asked]
        calls = [call for call in calls if theirs.tool in (call.name, call.native_name)]
        fitting = [call for call in calls if call.input == theirs.input] or calls
        call = (
            fitting or [ToolCall(f"asked-{len(self._asked)}", theirs.tool, theirs.tool, dict(theirs.input))]
        )[0]
        self._open.setdefault(call.id, (call, time.monotonic()))
        ours = Approval(
            tool=theirs.tool,
            input=theirs.input,
            call_id=call.id,
            why="the agent asks",
            scopes=("call",),  # LiteLLM's request can only be allowed or denied unchanged, for one call
            editable=False,
        )
        self._asked[call.id] = (theirs, ours)
        self.take_over(call.id)
        return [ours] if fitting else [call, ours]

    def _end_call(self, result: ToolResult) -> Shown:
        """Add the decision and the seconds of the call to `result`. These seconds include the wait for the decision."""
        if result.id not in self._open:
            return Notice(f"a result came without its tool call: {first_line(result.output, 200)}")
        _, began = self._open.pop(result.id)
        decision = self.take_over(result.id) if result.id in self._asked else None
        return dataclasses.replace(
            result,
            value=result.output,
            seconds=time.monotonic() - began if self._live else 0.0,
            full_length=len(result.output),
            ran=self._live and (decision is None or decision.allowed),
            decision=decision,
        )
