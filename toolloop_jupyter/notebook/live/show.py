"""What the API shows in a notebook: `show(stream)`, and the approval card of `agent()` and its sessions."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from ...core.events import (
    Approval,
    Decision,
    Done,
    Event,
    FileChange,
    Mistake,
    Reasoning,
    Result,
    Span,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)
from ...core.session import AsyncEventStream, Pending
from .. import kernel
from ..html import first_line
from ..transcript import approval_record, head, mimebundle
from . import results as presenting
from .asking import ask
from .outputs import put_card
from .places import Column
from .view import Notice, View, follow


def can_ask_in_cell() -> bool:
    """Whether somebody can be asked in the cell that runs: by a card, or at a terminal's prompt."""
    return kernel.in_kernel() or kernel.in_terminal()


async def ask_in_cell(approval: Approval) -> None:
    """Ask in the cell that runs, and leave the record there."""
    place = Column(kernel.Cell.here()).place()

    async def card(asked: Approval) -> None:
        await put_card(place, asked, mimebundle([approval_record(asked, None)]), f"call {asked.number}")

    try:
        await ask(approval, card)
    except asyncio.CancelledError:  # by Ctrl-C at the prompt: the run itself is told right after
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(approval.wait(), kernel.PATIENCE)
        raise
    finally:
        place.put(mimebundle([approval_record(approval, approval.decision)]))


def show(stream: Any, name: str | None = None) -> Any:
    """Render a stream of events in the cell as it comes, with its approval cards; gives back its Result.

    `await show(aagent(…, stream=True))` for an async stream, `show(agent(…, stream=True))` for a sync one. Streams of
    LiteLLM's own harnesses (`litellm.aagent(…, stream=True)`) are rendered, too, and give back LiteLLM's Result. A stream
    that has been read to its end has its Result shown once more. A Result is shown as it is, and None comes back.
    Raises Mistake for anything else.
    """
    if isinstance(stream, Result) or is_result(stream):
        kernel.Cell.here().display(presenting.bundle(adopt(stream)))
        return None  # as the cell's value it would be shown a second time
    if not hasattr(stream, "cancel") or not (hasattr(stream, "__anext__") or hasattr(stream, "__next__")):
        raise Mistake(_no_stream(stream))
    if hasattr(stream, "__anext__"):
        return Pending(_show(stream, name), "show(…)")
    return kernel.run_sync(lambda: _show(stream, name), instead="write `await show(aagent(…, stream=True))`")


def _no_stream(given: object) -> str:
    what = f"a value of type {type(given).__name__}"
    if isinstance(given, Coroutine):
        given.close()
        what = "a run that was not asked to stream"
    return f"show() takes a stream, not {what}: show(agent(…, stream=True)), or await show(aagent(…, stream=True))"


async def _show(stream: Any, name: str | None) -> Any:
    ours = getattr(stream, "aio", stream)  # the async stream behind a sync one of ours
    if getattr(stream, "result", None) is not None:
        kernel.Cell.here().display(presenting.bundle(adopt(stream.result)))
        result = stream.result
    elif not isinstance(ours, AsyncEventStream):
        adopted = Adopted(stream)
        view = View(
            kernel.Cell.here(), _HEAD, name=name, stop=adopted.cancel, unattended="leave", foreign=True
        )
        view.hint = None
        presenting.keep(await _follow(adopted, view))  # for %toolloop show; ours are kept as they end
        return adopted.result
    else:
        view = View(kernel.Cell.here(), _HEAD, name=name, stop=ours.cancel, model=ours.model)
        view.foreign, view.asks = not ours.observe(view), ours.approver == "reader"
        result = await _follow(ours, view)
    if isinstance(result, Result):
        presenting.mark_shown(result)
    return result


_HEAD = head("", (), None, None)


async def _follow(stream: Any, view: View) -> Result:
    async with kernel.serving_clicks():
        return await kernel.await_with_cleanup(follow(stream, view, stream.cancel))


LOOK = 0.1
"""Seconds between two looks at whether their request was answered by somebody else (an `on_approval`); the first
comes before anybody is asked, so that a callback which answers at once raises no card."""
ENDED = "the turn ended before a decision"
UNANSWERED = "approval not answered"
"""LiteLLM's own reason for the denial of a request that the reader of its stream left unanswered."""
_END = object()


def is_result(value: object) -> bool:
    """Whether `value` is a Result of LiteLLM's."""
    told = ("events", "stop_reason", "usage")
    return type(value).__name__ == "Result" and all(hasattr(value, name) for name in told)


def adopt(result: Any) -> Result:
    """A Result, ours or LiteLLM's, as ours."""
    if isinstance(result, Result):
        return result
    events = _Events(live=False)
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
        self._events = _Events(live=True)
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
        self._events.answered(ours)
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


class _Events:
    """Turns their events into ours, one after the other, and keeps what a Result needs."""

    def __init__(self, *, live: bool) -> None:
        """`live`: the turn goes on, so the time that a call takes can be seen."""
        self._live, self._began = live, time.monotonic()
        self._events: list[Event] = []
        self._spans: list[Span] = []
        self._open: dict[str, tuple[ToolCall, float]] = {}
        """The calls without a result, and when they began."""
        self._asked: dict[str, tuple[Any, Approval]] = {}
        """(theirs, ours) of each call that was asked about."""
        self._text = ""

    def take(self, event: Any) -> list[Event | Notice]:
        """Ours for one of theirs."""
        made = self._made_of(event, type(event).__name__)
        self._events += [one for one in made if not isinstance(one, (Notice, Done))]
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

    def _made_of(self, event: Any, kind: str) -> list[Event | Notice]:
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
            counts = f"{event.tokens_before:,} tokens before, {event.tokens_after:,} after"
            return [Notice(f"the agent has shortened its conversation: {counts}")]
        return [Notice(f"{kind}: {first_line(repr(event), 200)}")]

    def _begin(self, call: ToolCall) -> ToolCall:
        self._open[call.id] = (call, time.monotonic())
        return call

    def _request(self, theirs: Any) -> list[Event | Notice]:
        """Ours for a request of theirs, behind the call that it is about: an open one of this tool, else one made for it."""
        calls = [call for call, _ in self._open.values() if call.id not in self._asked]
        calls = [call for call in calls if theirs.tool in (call.name, call.native_name)]
        known = [call for call in calls if call.input == theirs.input] or calls
        made_up = ToolCall(f"asked-{len(self._asked)}", theirs.tool, theirs.tool, dict(theirs.input))
        call = known[0] if known else self._begin(made_up)
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
        return [ours] if known else [call, ours]

    def _call_result(self, event: Any) -> Event | Notice:
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
