"""Show in a notebook what the Python API makes: streams and Results, ours and those of LiteLLM's own harnesses.

Our classes have the names and the fields of those in `litellm.harness.types` (1.110), which are not imported here.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import sys
import time
import uuid
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, TypeAlias, TypeVar

from ...core.events import (
    NO_DECISION,
    Approval,
    Compaction,
    Decision,
    Done,
    Event,
    FileChange,
    Mistake,
    Presenter,
    Reasoning,
    Result,
    Rows,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)
from ...core.session import AsyncEventStream, Pending
from .. import kernel
from ..html import counted, first_line
from ..transcript import (
    Notice,
    draw_finished_rows,
    head,
    make_bundle,
    notice,
    render,
    timeline,
    to_markdown,
)
from .outputs import LOADING
from .view import CellRun, ViewOptions

_importing: set[str] = set()
"""The execution ids of the cells that show a line about LiteLLM's import now. Many runs of a cell may wait at once."""


@contextlib.contextmanager
def say_importing() -> Iterator[None]:
    """Return a context manager, in which a run waits for LiteLLM's import. Meanwhile, a line in the run's cell says so."""
    cell, identity = kernel.Cell.here(), f"toolloop-loading-{uuid.uuid4().hex}"
    if cell.execution in _importing:
        yield
        return
    _importing.add(cell.execution)
    cell.display(make_bundle(notice(LOADING)), display_id=identity)
    try:
        yield
    finally:
        _importing.discard(cell.execution)
        cell.update({"text/plain": "", "text/html": ""}, identity)


_was_told: ContextVar[bool] = ContextVar("toolloop_was_told", default=False)


def warn_of_ignored_ctrl_c() -> None:
    """If Ctrl-C cannot end the run that begins, show a line that says so. A run within a tool of this run does not repeat it."""
    if kernel.ignores_ctrl_c() and not _was_told.get():
        _was_told.set(True)
        kernel.Cell.here().display(
            make_bundle(notice("this process ignores Ctrl-C: %toolloop doctor says what to do"))
        )


def show(stream: Any, name: str | None = None) -> Any:
    """Show a run in the cell while it runs: its events and its approval cards. Returns the run's Result.

    Write `await show(aagent(…, stream=True))` for an async stream, `show(agent(…, stream=True))` for a sync stream. `name` is
    the notebook's variable that gets the Result.

    `stream` may also be a stream of LiteLLM's own harnesses (`litellm.aagent(…, stream=True)`). Then LiteLLM's Result is
    returned. If `stream` was read to its end before, only its Result is shown. If `stream` is a Result, this Result is shown,
    and None is returned. Raises Mistake for any other value.
    """
    if isinstance(stream, Result) or _is_theirs(stream, Result):
        kernel.Cell.here().display(make_bundle(render(_convert_result(stream))))
        return None  # a Result would be the cell's value, and be shown a second time
    if not hasattr(stream, "cancel") or not (hasattr(stream, "__anext__") or hasattr(stream, "__next__")):
        what = f"a value of type {type(stream).__name__}"
        if isinstance(stream, Coroutine):
            stream.close()
            what = "a run without stream=True"
        way = "show(agent(…, stream=True)), or await show(aagent(…, stream=True))"
        raise Mistake(f"show() takes a stream, not {what}: {way}")
    if hasattr(stream, "__anext__"):
        return Pending(_show(stream, name), "show(…)")
    return kernel.run_sync(lambda: _show(stream, name), instead="write `await show(aagent(…, stream=True))`")


async def _show(stream: Any, name: str | None) -> Any:
    ours = getattr(stream, "aio", stream)  # a sync stream of ours has an async stream as `aio`
    if getattr(stream, "result", None) is not None:
        kernel.Cell.here().display(make_bundle(render(_convert_result(stream.result))))
        result = stream.result
    elif not isinstance(ours, AsyncEventStream):
        theirs = LiteLLMStream(stream)
        run = CellRun(kernel.Cell.here(), _HEAD, ViewOptions(name, hint=None, unattended="leave"))
        run.do_without_hooks()
        # `%toolloop show` needs this Result. For runs of our own, `api.py` calls `keep`.
        keep(await _follow(theirs, run))
        return theirs.result
    else:
        options = ViewOptions(name, ours.model, asks=ours.approver == "reader")
        run = CellRun(kernel.Cell.here(), _HEAD, options)
        if not ours.observe(run.hooks):
            run.do_without_hooks()
        result = await _follow(ours, run)
    if isinstance(result, Result):
        mark_shown(result)
    return result


_HEAD = head("", (), None, None)


async def _follow(stream: Any, run: CellRun) -> Result:
    async with kernel.serving_clicks():
        return await kernel.await_with_cleanup(run.follow(stream, stream.cancel))


# --- a Result as a cell's value -------------------------------------------------------------------------------

_last: list[Result] = []
"""[the Result of the last run of a `%%toolloop` cell or of the Python API]; [] before the first run and outside IPython."""
_just_shown: list[tuple[weakref.ref[Any], str]] = []
"""[(value, execution)]: the Result or Rows whose run was shown last, and the execution id of the cell. If this Result or Rows
is also the cell's value, it is not shown again."""


def keep(result: Result) -> None:
    """Keep `result` as the Result of the last run. `%toolloop show` and `%toolloop export` use it."""
    _last[:] = [result]


def last() -> Result | None:
    """Return the Result of the last run, also of a failed or cancelled run. None before the first run."""
    return _last[0] if _last else None


def mark_shown(result: Result | Rows) -> None:
    """Remember that this cell has shown the run of `result` while it ran."""
    _just_shown[:] = [(weakref.ref(result), kernel.Cell.here().execution)]


def _was_shown(result: object) -> bool:
    """Return whether this cell has just shown the run of `result`. This deletes the information: a second call returns False."""
    here = kernel.Cell.here()
    shown = any(one() is result and where == here.execution for one, where in _just_shown)
    _just_shown.clear()
    return shown


class Diagram:
    """A diagram that a notebook shows as an image, and a terminal as text."""

    def __init__(self, bundle: Mapping[str, str]) -> None:
        self._bundle = bundle

    def _repr_mimebundle_(self, **_: object) -> Mapping[str, str]:
        return self._bundle

    def __repr__(self) -> str:
        return self._bundle["text/plain"]


class NotebookPresenter(Presenter):
    """Shows the transcripts of Results and of Rows in the cells of a notebook."""

    def display(self, value: Any) -> None:
        """Show the transcript of `value` in the current cell, unless this cell has just shown the run."""
        if not _was_shown(value):
            kernel.Cell.here().display(self.bundle(value))
        elif not kernel.in_kernel():  # after "Out[n]:"
            short = (
                isinstance(value, Result)
                and f"<Result: {value.stop_reason}, {counted(len(value.calls), 'tool call')}>"
            )
            print(short or repr(value))  # noqa: T201

    def bundle(self, value: Any) -> Mapping[str, str]:
        return make_bundle(render(value) if isinstance(value, Result) else draw_finished_rows(value))

    def markdown(self, result: Result) -> str:
        return to_markdown(result)

    def diagram(self, result: Result) -> Diagram:
        """Return the diagram of a run. It shows when each model call, approval and tool call began and ended."""
        return Diagram(make_bundle(timeline(result)))


# --- LiteLLM's own streams and Results ------------------------------------------------------------------------

Shown: TypeAlias = Event | Compaction | Notice
Theirs: TypeAlias = Any
"""An object of one of LiteLLM's classes, which are not imported here."""
Made = TypeVar("Made")

LOOK = 0.15
"""Seconds between two checks whether LiteLLM's `on_approval` has decided a request. No card is shown before the first check."""
UNANSWERED = "approval not answered"
"""The reason with which LiteLLM denies a request that the reader of its stream has not answered."""


def _is_theirs(value: object, kind: type) -> bool:
    """Return whether `value` is an object of LiteLLM's class that has the same name as our class `kind`."""
    types = sys.modules.get("litellm.harness.types")
    return types is not None and isinstance(value, getattr(types, kind.__name__))


def _convert_result(result: Theirs) -> Result:
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
        """Stop the turn, and deny its requests, also those that are still to come."""
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
            if _is_theirs(event, Done):
                self.result = event.result  # type: ignore[attr-defined]
            elif isinstance(asked := self._ready[-1], Approval):
                await self._conversion.requests[asked.call_id].begin()
                if self._cancelled:
                    asked.deny(NO_DECISION, by="stop")
        return self._ready.popleft()


class _Request:
    """LiteLLM's request for approval, and our request for the same call. One decision decides both."""

    def __init__(self, theirs: Theirs, ours: Approval) -> None:
        self.theirs, self.ours = theirs, ours
        self._watching: asyncio.Future[None] | None = None

    async def begin(self) -> None:
        """Give LiteLLM's `on_approval` a moment to decide. Then check again and again, while our card may be shown."""
        await asyncio.sleep(LOOK)
        self.answer_ours()
        self._watching = asyncio.ensure_future(self._watch())

    async def _watch(self) -> None:
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
            self.theirs.wait().send(None)  # the future is done, so this ends at once, also on another loop
        except StopIteration as ended:
            allowed, reason = ended.value
            followed = Decision(allowed, reason, by="unattended" if reason == UNANSWERED else "callback")
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
        self.requests: dict[str, _Request] = {}
        """The id of a call -> the request for it."""
        self._text = ""

    def take(self, event: Theirs) -> list[Shown]:
        """Convert one of LiteLLM's events, and return our events for it."""
        if _is_theirs(event, Done):
            known = len(self._events)
            result = self.end(event.result)
            return [*self._events[known:], Done(result)]
        made = self._request(event) if _is_theirs(event, Approval) else self._convert(event)
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
        """Copy an event that is no request. An event of a class that we do not know (of a later LiteLLM) becomes a Notice."""
        if _is_theirs(event, ToolResult):
            return self._end_call(_copy(ToolResult, event))
        if _is_theirs(event, ToolCall):
            call = _copy(ToolCall, event)
            self._open[call.id] = call, time.monotonic()
            return call
        if _is_theirs(event, Text):
            self._text += event.delta
        kinds: tuple[Callable[..., Shown], ...] = Text, Reasoning, FileChange, Compaction
        for kind in kinds:
            if _is_theirs(event, kind):  # type: ignore[arg-type]
                return _copy(kind, event)
        return Notice(f"{type(event).__name__}: {first_line(repr(event), 200)}")

    def _request(self, theirs: Theirs) -> Approval:
        """Make our request from LiteLLM's. LiteLLM's names no call, so we choose an open call of the same tool, if any."""
        calls = [call for call, _ in self._open.values() if call.id not in self.requests]
        calls = [call for call in calls if theirs.tool in (call.name, call.native_name)]
        calls.sort(key=lambda call: call.input != theirs.input)
        ours = Approval(
            tool=theirs.tool,
            input=theirs.input,
            call_id=calls[0].id if calls else f"asked-{len(self.requests)}",
            why="the agent asks",
            scopes=("call",),  # LiteLLM's request can only be allowed or denied unchanged, for one call
            editable=False,
        )
        self.requests[ours.call_id] = _Request(theirs, ours)
        self.requests[ours.call_id].answer_ours()
        return ours

    def _end_call(self, result: ToolResult) -> Shown:
        """Add the decision and the seconds of the call to `result`. These seconds include the wait for the decision."""
        if result.id not in self._open:
            return Notice(f"a result came without its tool call: {first_line(result.output, 200)}")
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
