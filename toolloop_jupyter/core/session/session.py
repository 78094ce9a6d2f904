"""A session: the turns of one conversation. Each turn sends its events to a stream, and ends with a Result.

Each turn runs in its own asyncio task. So a turn can be cancelled wherever its code awaits. A turn that the session cancels ends
with a Result, too. When a stream is garbage-collected, its turn is cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from .. import conversation
from ..conversation import Prompt, read_prompt
from ..events import (
    STOPPED,
    Approval,
    CapabilityUnsupported,
    Done,
    Event,
    FileChange,
    HarnessError,
    ImageMode,
    ModelCallFailed,
    Observer,
    OutputInvalid,
    Request,
    Result,
    Retry,
    SessionClosed,
    StopReason,
    Text,
    Usage,
)
from ..execution import Outcome, RunEnded, TimeLimit, attempt, keep_loop_running
from ..loop import (
    Allowed,
    Approver,
    Config,
    Permissions,
    Turn,
    TurnCancelled,
    TurnEnd,
    find_approver,
    make_request,
    may_ask,
    read_mode,
    run_turn,
    wait_for_import,
)
from ..models import find_untaken, log_unexpected, must_load, start_loading
from .files import Watch

MOST_UNREAD = 256
"""The most unread events. When this number is reached, the turn waits until the reader has read an event."""
WIND_DOWN = 1.0
"""The most seconds that the reader of a stopped turn waits for the end of the turn."""
CLOSED = "session is closed; make a new one with agent_session(…, history=session.history())"


Given: TypeAlias = "str | Sequence[object] | Prompt"
"""A prompt from a caller: a text, a list (of texts, pictures, paths and other values) or a Prompt that `prepare` has made."""


def _explain_untaken(model: str, untaken: Sequence[str], wish: ImageMode) -> str:
    """Return the message for a prompt with content that is not sent to the model. `untaken` are the kinds of this content."""
    if wish == "never":
        return f"the prompt has {' and '.join(untaken)}, and images='never' sends none"
    return (
        f"the prompt has {' and '.join(untaken)}, but LiteLLM does not say that {model} can read this. If the model can read it "
        "(for example, a gateway's group or a model on your own server), set images='always'"
    )


class Ended(NamedTuple):
    """The end of a turn: the turn's Result, and the error that the reader gets after the Result (None without an error)."""

    result: Result
    invalid: OutputInvalid | None


class Channel:
    """Carries events from a turn to its reader, and stops the turn."""

    task: asyncio.Task[Ended]
    """The task that runs the turn."""

    def __init__(self, *, is_read: bool) -> None:
        self.is_read = is_read
        """True if somebody reads the events. If False, the events are only recorded."""
        self.events: deque[Event] = deque()
        self.recorded: list[Event] = []
        self.changed = asyncio.Event()
        self.room = asyncio.Event()
        self.room.set()
        self.reason: StopReason | None = None
        """Why the turn ends. Set once: by `stop`, or at the end of the turn."""
        self.told_to_stop = False
        """True if a stop was requested. `stop_soon` sets this at once in any thread. The turn's loop stops the turn a little later."""
        self.started = False
        """True if the task has begun to run. Before that, `stop` does not cancel the task. A task that is cancelled before it begins
        never runs, so the turn would have no Result.
        """

    def checkpoint(self) -> None:
        """Raise CancelledError if the turn has to stop. This check is needed since code in the turn (a tool, for example) may catch
        the CancelledError of the task.
        """
        if self.reason is not None:
            raise asyncio.CancelledError

    def record(self, event: Event) -> None:
        """Record an event and send it to the reader, even if the turn has to stop or has ended."""
        self.recorded.append(event)
        if self.is_read:
            self.events.append(event)
            self.changed.set()

    async def emit(self, event: Event) -> None:
        """Send an event. If there are MOST_UNREAD unread events, wait for the reader. Raises CancelledError if the turn has to stop."""
        self.checkpoint()
        self.record(event)
        if len(self.events) >= MOST_UNREAD and self.reason is None:
            self.room.clear()
            await self.room.wait()

    def take(self) -> Event:
        event = self.events.popleft()
        if len(self.events) < MOST_UNREAD:
            self.room.set()
        return event

    def stop(self, reason: StopReason) -> None:
        """Cancel the turn. If this is called twice, the first reason counts. Call this on the turn's own event loop."""
        self.room.set()
        if self.reason is None and not self.task.done():
            self.reason, self.told_to_stop = reason, True
            if self.started:
                self.task.cancel()

    def stop_soon(self, reason: StopReason) -> None:
        """Cancel the turn. Works in any thread: a click may be handled in a subshell's thread, and `__del__` may run in any thread."""
        if self.task.done():
            return
        self.told_to_stop = True
        loop = self.task.get_loop()
        try:
            here = asyncio.get_running_loop() is loop
        except RuntimeError:
            here = False
        if here:
            self.stop(reason)
            return
        with contextlib.suppress(RuntimeError):  # the loop may be closed already
            loop.call_soon_threadsafe(self.stop, reason)

    async def wait_for_end(self) -> None:
        """Wait until the turn has ended. This works on any event loop. If the turn's own loop is not running, return at once."""
        loop = self.task.get_loop()
        if loop is asyncio.get_running_loop():
            await asyncio.wait({self.task})
        elif not self.task.done() and loop.is_running():
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.wait_for_end(), loop))


def join_shown_text(events: Sequence[Event]) -> str:
    """Return the text that a turn has shown. Text that a retry has discarded is left out."""
    text = ""
    for event in events:
        if isinstance(event, Text):
            text += event.delta
        elif isinstance(event, Retry) and event.discard:
            text = text.removesuffix(event.discard)
    return text


class AsyncSession:
    """A conversation of many turns. You can open a session with `async with` or with `await`, or use it without either.

    `config` may be replaced between two turns (`dataclasses.replace`). The conversation stays the same.
    """

    def __init__(
        self,
        config: Config,
        history: Sequence[Mapping[str, object]] = (),
        *,
        streamed: bool = True,
        lasting: bool = True,
        turns: Sequence[int] = (),
        allowed: Allowed | None = None,
        family: str = "",
    ) -> None:
        """Begin a conversation, or continue the conversation in `history`.

        `streamed`: True if turns may be read as streams. Then the reader of a stream can answer Approvals.
        `lasting`: False if there will be only one turn. Then a person cannot allow tool calls for the whole session.
        `turns`: the index into `history` where each turn began, as in `starts`. `rewind` needs these indexes.
        `allowed`: the tool calls that a person has allowed so far. Pass the same object to several sessions that share these
        approvals. If `allowed` is None, the session has approvals of its own.
        `family`: the `Route.family` of the model that answered last in `history`.

        Raises ValueError if permissions are "ask" and nobody can be asked, HistoryInvalid if `history` is not valid.
        """
        if read_mode(config.permissions) == "ask" and find_approver(config, streamed=streamed) == "nobody":
            raise ValueError(
                "permissions='ask' needs on_approval=, or use stream() and answer Approval events"
            )
        if must_load(config.route.model):
            start_loading()  # in a thread, while the caller goes on
        self.config = config
        self.results: list[Result] = []
        self.session_id = uuid.uuid4().hex
        self._history = conversation.History(history, turns, family)
        self.lasting = lasting
        """True if there may be another turn."""
        self._allowed = Allowed() if allowed is None else allowed
        self._channel: Channel | None = None
        self._closed = False

    async def start(self) -> AsyncSession:
        """Return the session. LiteLLM's sessions have the same method. Raises SessionClosed if the session is closed."""
        if self._closed:
            raise SessionClosed(CLOSED)
        return self

    def __await__(self) -> Generator[object, None, AsyncSession]:
        return self.start().__await__()

    async def __aenter__(self) -> AsyncSession:
        return await self.start()

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    def astream(self, prompt: Given, *, observers: Sequence[Observer] = ()) -> AsyncEventStream:
        """Return one turn as a stream of events. `observers` are called before the observers of the session."""
        return AsyncEventStream(self, prompt, streamed=True, observers=observers)

    async def arun(self, prompt: Given) -> Result:
        """Run one turn to its end and return its Result.

        `prompt` is a text, or a list of texts, pictures, paths and other values. Raises OutputInvalid if the answer does not
        fit `output=` (the error's `result` is the Result), SessionClosed if the session is closed, HarnessError if another turn
        is running.
        """
        return await AsyncEventStream(self, prompt, streamed=False).collect()

    stream = astream
    run = arun

    async def history(self) -> list[dict[str, Any]]:
        """Return a copy of the conversation in OpenAI format. The conversation is valid at every moment, even in the middle of a
        turn.
        """
        return self._history.copy()

    def messages(self) -> list[dict[str, Any]]:
        """Return the same as `history`. This method needs no `await`."""
        return self._history.copy()

    async def prepare(self, prompt: Given, *, observers: Iterable[Observer] = ()) -> Prompt:
        """Return a prompt in the form in which it is sent: with its figures drawn as pictures and its files read.

        `observers` are those of the turn. They may tell the person that LiteLLM is being imported. Raises ArgumentInvalid if a figure cannot be drawn or a file cannot be read. Raises CapabilityUnsupported if LiteLLM does
        not say that the model can read the content.
        """
        made, wish = read_prompt(prompt, self.config.host.name_code), self.config.options.images
        needs = made.needs
        for route in (self.config.route, *self.config.fallbacks) if needs else ():
            await wait_for_import(route.model, self.config.host, observers)
            if untaken := find_untaken(route.model, needs, wish):
                raise CapabilityUnsupported(_explain_untaken(route.title, untaken, wish))
        return made

    async def preview(self, prompt: Given) -> Request:
        """Return the first request of a turn with this prompt, exactly as it would be sent. Nothing is sent."""
        turn = self._turn(await self.prepare(prompt), Channel(is_read=False), streamed=False)
        turn.history = copy.deepcopy(self._history)
        turn.history.begin_turn(self.config.instructions, self.config.route.family)
        turn.history.add_user(turn.prompt.content)
        await wait_for_import(self.config.route.model, self.config.host, ())
        return make_request(turn)

    @property
    def family(self) -> str:
        """The `Route.family` of the model that answered last; "" if the family is not known."""
        return self._history.family

    @property
    def starts(self) -> list[int]:
        """The index into `messages()` where each turn began. The turns in the given `history` are included."""
        return self._history.starts.copy()

    def rewind(self, turn: int) -> None:
        """Remove turn number `turn` (0 is the first) and all later turns from the conversation.

        Tool calls that a person allowed for the session in these turns are no longer allowed. Raises HarnessError if a turn is
        running, IndexError if there is no turn with this number.
        """
        if self.busy:
            raise HarnessError("a turn is running on this session; stop it before rewinding")
        resumed = len(self._history.starts) - len(self.results)
        self._history.rewind(turn)
        self._allowed.forget_from(turn)
        del self.results[max(0, turn - resumed) :]

    def bookmark(self) -> Callable[[], None]:
        """Return a function that restores the session's present conversation, results and approvals.

        Use this before a new turn replaces earlier turns. If the new turn gets no answer, call the function to bring the earlier
        turns back. Do not call the function during a turn.
        """
        history, results, allowed = copy.deepcopy(self._history), self.results.copy(), self._allowed.copy()

        def go_back() -> None:
            self._history, self._allowed = copy.deepcopy(history), allowed.copy()
            self.results[:] = results

        return go_back

    def save(self, path: str | Path) -> None:
        """Write the conversation to a readable JSON file. The file contains no API keys."""
        conversation.dump(self._history.copy(), path)

    @property
    def usage(self) -> Usage:
        return sum((result.usage for result in self.results), Usage())

    @property
    def cost(self) -> float | None:
        """The cost of all turns in US dollars; None if the cost of any turn is unknown."""
        costs = [result.cost for result in self.results]
        return None if None in costs else sum(cost for cost in costs if cost is not None)

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def busy(self) -> bool:
        """True while a turn is running."""
        return self._channel is not None and not self._channel.task.done()

    async def aclose(self) -> None:
        """Refuse further turns. This may be called twice."""
        self._closed = True

    close = aclose

    def _turn(
        self, prompt: Prompt, channel: Channel, *, streamed: bool, observers: Sequence[Observer] = ()
    ) -> Turn:
        return Turn(
            self.config,
            self._history,
            prompt,
            channel,
            Permissions(self._allowed, self.lasting),
            (*observers, *self.config.observers),
            find_approver(self.config, streamed=streamed),
        )

    async def wait_until_settled(self) -> None:
        """If the present turn was told to stop, wait until it has ended. Else return at once."""
        if self._channel is not None and (self._channel.told_to_stop or self._channel.reason is not None):
            await self._channel.wait_for_end()

    def begin(self, prompt: Prompt, *, streamed: bool, observers: Sequence[Observer] = ()) -> Channel:
        """Start a turn. Only AsyncEventStream calls this. Raises SessionClosed if the session is closed, HarnessError if another
        turn is running.
        """
        if self._closed:
            raise SessionClosed(CLOSED)
        if self.busy:
            raise HarnessError("a turn is already running on this session")
        channel = Channel(is_read=streamed)
        turn = self._turn(prompt, channel, streamed=streamed, observers=observers)
        channel.task = asyncio.ensure_future(self._run(turn, channel))
        channel.task.add_done_callback(lambda _: channel.changed.set())
        self._channel = channel
        return channel

    async def _run(self, turn: Turn, channel: Channel) -> Ended:
        """Run one turn. The turn has a Result even if it ends with an error."""
        channel.started = True
        asks = turn.approver != "callback" and may_ask(turn.config)
        async with turn.config.host.attend(may_ask=asks):
            watch = None if turn.config.sandbox is None else Watch(turn.config.sandbox)
            number = len(self._history.starts)
            try:
                end = await _run_to_end(turn, watch, channel)
            finally:
                if len(self._history.starts) == number:  # the turn ended before its first message
                    self._history.begin_turn(None)  # `rewind` needs a turn for each result
            channel.reason = channel.reason or end.reason  # from here on a stop comes too late
            files = [] if watch is None else await watch.changes()
            for change in files:
                channel.record(change)
            result = self._result(turn, channel, end, files)
            self.results.append(result)
            turn.config.host.finished(result)
            return Ended(result, _find_invalid_output(turn, result))

    def _result(self, turn: Turn, channel: Channel, end: TurnEnd, files: list[FileChange]) -> Result:
        text = turn.answer.text or join_shown_text(channel.recorded)
        if end.reason == "runtime_error" and not text:
            text = end.error or ""
        return Result(
            text=text,
            output=turn.answer.output,
            files=files,
            events=channel.recorded,
            usage=turn.spent.usage,
            cost=turn.spent.cost,
            stop_reason=end.reason,
            session_id=self.session_id,
            error=end.error,
            model=self.config.route.title,
            prompt=turn.prompt.text,
            spans=tuple(turn.spent.spans),
            output_attempts=turn.answer.attempts,
            presenter=turn.config.host.presenter,
        )


class AsyncEventStream:
    """Async iterator over the events of one turn. `Done` is the last event. When `Done` has been read, `.result` is set.

    If `permissions` are "ask" and there is no `on_approval`, answer each `Approval` before you read the next event. Reading the
    next event denies an Approval that has no answer. LiteLLM has the same rule.
    """

    def __init__(
        self,
        session: AsyncSession,
        prompt: Given,
        *,
        streamed: bool,
        close_session: bool = False,
        observers: Sequence[Observer] = (),
    ) -> None:
        """`streamed`: True if somebody reads the events. If there is no `on_approval`, the reader answers the Approvals. If
        `streamed` is False, call `collect`.
        """
        self._session, self._prompt, self._streamed = session, prompt, streamed
        self._close_session = close_session
        self._channel: Channel | None = None
        self._asked: Approval | None = None
        self._result: Result | None = None
        self._cancelled = False
        self._ended = False
        self._observers = tuple(observers)

    def observe(self, observer: Observer) -> bool:
        """Add an observer of this turn's steps and return True. If the turn has begun, do not add the observer and return False."""
        if self._channel is not None:
            return False
        self._observers = (observer, *self._observers)
        return True

    @property
    def model(self) -> str:
        """The model that this turn asks."""
        return self._session.config.route.model

    @property
    def approver(self) -> Approver:
        """Return who decides about this turn's tool calls: "callback", "reader", "host" or "nobody"."""
        return find_approver(self._session.config, streamed=self._streamed)

    def __aiter__(self) -> AsyncEventStream:
        return self

    async def __anext__(self) -> Event:
        if self._ended:
            raise StopAsyncIteration
        channel = self._channel or await self._begin()
        if self._asked is not None:
            if not channel.told_to_stop:  # otherwise, the stop decides about the Approval
                self._asked.deny("approval not answered", by="unattended")
            self._asked = None
        while not (channel.events or channel.task.done()):
            channel.changed.clear()
            await self._wait(channel, channel.changed.wait())
        if not channel.events:
            return await self._finish(channel)
        event = channel.take()
        if isinstance(event, Approval) and self.approver == "reader":
            self._asked = event  # for the reader of this stream to answer
        return event

    async def collect(self) -> Result:
        """Run the turn to its end and return its Result. This is for a stream whose events nobody reads. Raises OutputInvalid."""
        channel = await self._begin()
        while not channel.task.done():
            await self._wait(channel, channel.wait_for_end())
        result = (await self._finish(channel)).result
        with contextlib.suppress(StopAsyncIteration):
            await self._finish(channel)
        return result

    async def _begin(self) -> Channel:
        await self._session.wait_until_settled()
        prompt = await self._session.prepare(self._prompt, observers=self._observers)
        channel = self._session.begin(prompt, streamed=self._streamed, observers=self._observers)
        self._channel = channel
        if self._cancelled:
            channel.stop("cancelled")
        return channel

    async def _wait(self, channel: Channel, what: Awaitable[object]) -> None:
        """Await `what`. If the waiting task is cancelled, stop the turn and raise CancelledError."""
        try:
            await what
        except asyncio.CancelledError as error:
            channel.stop("cancelled")
            await self._wind_down(channel.task, error)
            raise

    async def _wind_down(self, task: asyncio.Task[Ended], error: asyncio.CancelledError) -> None:
        """Wait up to WIND_DOWN seconds for the end of a stopped turn. Then make `error` say that the run was stopped."""
        with contextlib.suppress(asyncio.CancelledError):  # cancelled again: do not wait any longer
            await asyncio.wait({task}, timeout=WIND_DOWN)
        note = None
        if task.done() and not task.cancelled() and task.exception() is None:
            note = task.result().result.error
        error.args = (f"{STOPPED}; {note}" if note else STOPPED,)
        await self._session.config.host.stopped(error)

    async def _finish(self, channel: Channel) -> Done:
        """Return the Done event on the first call. On the second call, raise OutputInvalid if the output is not valid; else raise
        StopAsyncIteration.
        """
        turn = channel.task
        if self._result is None:
            # If other code has cancelled the task, `turn.result()` raises CancelledError. The stream ends after that.
            self._ended = turn.cancelled()
            self._result = turn.result().result
            if self._close_session:
                await self._session.aclose()
            return Done(self._result)
        self._ended = True
        if (invalid := turn.result().invalid) is not None:
            raise invalid
        raise StopAsyncIteration

    @property
    def result(self) -> Result | None:
        """The Result of the turn; None before `Done` has been read or the stream has been closed."""
        return self._result

    def cancel(self) -> None:
        """Stop the turn. This works in any thread. The stream still ends with `Done(stop_reason="cancelled")`."""
        self._cancelled = True
        if self._channel is not None:
            self._channel.stop_soon("cancelled")

    async def aclose(self) -> None:
        """Stop the turn and wait until it has ended."""
        self._ended = True
        if self._channel is not None:
            self._channel.stop("cancelled")
            await self._channel.wait_for_end()
            if self._result is None and not self._channel.task.cancelled():
                self._result = self._channel.task.result().result
        if self._close_session:
            await self._session.aclose()

    close = aclose

    def __del__(self) -> None:
        channel = getattr(self, "_channel", None)
        if channel is not None:
            channel.stop_soon("cancelled")


async def _run_to_end(turn: Turn, watch: Watch | None, channel: Channel) -> TurnEnd:
    """Run the turn and return how it ended, even if the session has stopped the turn. If other code cancels the turn's task,
    raise CancelledError.
    """
    outcome, note = Outcome(TurnEnd()), ""
    try:
        channel.checkpoint()
        loading = wait_for_import(turn.config.route.model, turn.config.host, turn.observers)
        outcome = Outcome(TurnEnd(), (await attempt(loading)).error)
        if outcome.error is None:
            with TimeLimit(turn.config.timeout, lambda: channel.stop("timeout")), keep_loop_running():
                if watch is not None:
                    await watch.start()
                outcome = await attempt(run_turn(turn))
    except asyncio.CancelledError as cancelled:
        if channel.reason is None:
            raise  # other code has cancelled the task, as asyncio does when the loop shuts down
        note = str(cancelled) if isinstance(cancelled, TurnCancelled) else ""
        _take_back_cancel()
    else:
        if channel.reason is not None:
            await _let_cancel_come()
    end: TurnEnd = outcome.value if outcome.error is None else TurnEnd("runtime_error")
    if channel.reason is not None:
        return TurnEnd(channel.reason, note or (end.error if end.reason == "done" else None))
    return end if outcome.error is None else _make_end(outcome.error)


def _make_end(error: BaseException) -> TurnEnd:
    """Return the TurnEnd of a turn that raised `error`."""
    if isinstance(error, RunEnded):
        return TurnEnd("cancelled", str(error))
    known = isinstance(error, ModelCallFailed)
    return TurnEnd("runtime_error", str(error) if known else log_unexpected(error))


def _find_invalid_output(turn: Turn, result: Result) -> OutputInvalid | None:
    """If the answer does not fit `output=`, return the error to raise; else None. The reader gets the Result before the error."""
    output, problem = turn.config.output, turn.answer.problem
    if output is None or problem is None or result.stop_reason != "done":
        return None
    message = f"Final answer did not match {output.name}: {problem}"
    return OutputInvalid(message, raw=turn.answer.text, result=result)


async def _let_cancel_come() -> None:
    """Let asyncio raise the CancelledError of a stop, and catch this error. Call this after a turn that was told to stop and
    ended by itself before the error was raised.
    """
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        _take_back_cancel()


def _take_back_cancel() -> None:
    """Tell the task that its cancellation was handled. Python 3.11 and later count the cancellations of a task."""
    task = asyncio.current_task()
    if task is not None and hasattr(task, "uncancel"):
        task.uncancel()
