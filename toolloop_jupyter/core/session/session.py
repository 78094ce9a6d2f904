"""Many turns of one conversation: what a session keeps, and how a turn comes to its Result, whatever happens."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .. import conversation
from ..events import (
    Event,
    HarnessError,
    ModelCallFailed,
    Observer,
    Observers,
    OutputInvalid,
    Request,
    Result,
    SessionClosed,
    StopReason,
    ToolCall,
    ToolResult,
    Usage,
)
from ..execution import Outcome, RunEnded, attempt, keep_loop_running
from ..loop import (
    Allowed,
    Config,
    Turn,
    TurnEnded,
    approver_of,
    asks_always,
    make_request,
    may_ask,
    output_in_words,
    run_turn,
)
from ..models import load, log_unexpected, must_load, start_loading
from ..text import join_surrogates
from .files import Watch
from .stream import AsyncEventStream, Channel, collect, shown_text

CLOSED = "session is closed; make a new one with agent_session(…, history=session.history())"


class AsyncSession:
    """A conversation of many turns. `async with` it, or `await` it, or just use it.

    `config` may be replaced between turns (`dataclasses.replace`): the conversation stays.
    """

    def __init__(
        self,
        config: Config,
        history: Sequence[Mapping[str, Any]] = (),
        *,
        streamed: bool = True,
        lasting: bool = True,
        turns: Sequence[int] = (),
    ) -> None:
        """Take over a conversation, or begin one.

        `streamed`: its turns' streams may be read, by somebody who answers. `lasting=False`: there will be one turn, so nothing can be allowed for the whole session. `turns`: where the turns
        of `history` began (`starts`), to rewind to. Raises ValueError when somebody has to be asked and nobody can be;
        HistoryInvalid for a bad `history`.
        """
        if asks_always(config.permissions) and approver_of(config, streamed=streamed) == "nobody":
            raise ValueError(
                "permissions='ask' needs on_approval=, or use stream() and answer Approval events"
            )
        if must_load(config.route.model):
            start_loading()  # while the caller goes on
        self.config = config
        self.results: list[Result] = []
        self.session_id = uuid.uuid4().hex
        self._history = conversation.History(history, turns)
        self.lasting = lasting
        """Whether there may be another turn."""
        self._allowed = Allowed()
        self._channel: Channel | None = None
        self._closed = False

    async def start(self) -> AsyncSession:
        """Nothing to start; there for the common API."""
        if self._closed:
            raise SessionClosed(CLOSED)
        return self

    def __await__(self) -> Generator[Any, None, AsyncSession]:
        return self.start().__await__()

    async def __aenter__(self) -> AsyncSession:
        return await self.start()

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    def astream(self, prompt: str, *, observers: Sequence[Observer] = ()) -> AsyncEventStream:
        """Run one turn as a stream of events; `observers` are called before those of the session."""
        return AsyncEventStream(self, prompt, streamed=True, observers=observers)

    async def arun(self, prompt: str) -> Result:
        """Run one turn to its end. Raises OutputInvalid (with `.result`), SessionClosed, HarnessError when busy."""
        return await collect(AsyncEventStream(self, prompt, streamed=False))

    stream = astream
    run = arun

    async def history(self) -> list[dict[str, Any]]:
        """The conversation in OpenAI format, a copy; valid at every moment, also in the middle of a turn."""
        return self._history.copy()

    def messages(self) -> list[dict[str, Any]]:
        """The same without awaiting."""
        return self._history.copy()

    async def preview(self, prompt: str) -> Request:
        """The first request of a turn with this prompt, exactly as it would be sent, without sending it."""
        turn = self._turn(prompt, _nowhere, streamed=False)
        turn.history = conversation.History(self._history.copy())
        turn.history.begin_turn(self.config.instructions)
        turn.history.add_user(turn.prompt)
        if must_load(self.config.route.model):
            await load()
        return make_request(turn, in_words=output_in_words(turn))

    @property
    def starts(self) -> list[int]:
        """Where each turn began, as indexes into `messages()`: those of this session, and those it was resumed with."""
        return self._history.starts

    def rewind(self, turn: int) -> None:
        """Forget turn number `turn` (0 is the first) and all after it, with what was allowed for the session in them.

        Raises HarnessError while a turn runs, IndexError for a turn that there is not.
        """
        if self.busy:
            raise HarnessError("a turn is running on this session; stop it before rewinding")
        resumed = self._history.turns - len(self.results)
        self._history.rewind(turn)
        self._allowed.forget_from(turn)
        del self.results[max(0, turn - resumed) :]

    def bookmark(self) -> Callable[[], None]:
        """What takes the session back to how it is now: the conversation, its results, and what was allowed in it.

        For a turn that replaces others: when it comes to nothing, they are there again. Not to be called in a turn.
        """
        put_back, results, allowed = self._history.bookmark(), list(self.results), self._allowed.copy()

        def go_back() -> None:
            put_back()
            self.results[:], self._allowed = results, allowed

        return go_back

    def save(self, path: str | Path) -> None:
        """Write the conversation to a readable JSON file (no keys are in it)."""
        conversation.dump(self._history.copy(), path)

    @property
    def usage(self) -> Usage:
        return sum((result.usage for result in self.results), Usage())

    @property
    def cost(self) -> float | None:
        """US dollars of all turns; None when one of them is not known."""
        costs = [result.cost for result in self.results]
        return None if None in costs else sum(cost for cost in costs if cost is not None)

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def busy(self) -> bool:
        """Whether a turn is running."""
        return self._channel is not None and self._channel.running

    async def aclose(self) -> None:
        """Refuse further turns. Safe to call twice."""
        self._closed = True

    close = aclose

    def _turn(
        self,
        prompt: str,
        emit: Callable[[Event], Coroutine[Any, Any, None]],
        *,
        streamed: bool,
        observers: Sequence[Observer] = (),
    ) -> Turn:
        return Turn(
            self.config,
            self._history,
            join_surrogates(prompt),
            emit,
            self._allowed,
            observers=Observers((*observers, *self.config.observers)),
            approver=approver_of(self.config, streamed=streamed),
            lasting=self.lasting,
        )

    async def settled(self) -> None:
        """Wait for a turn that was told to stop and is still at it. Comes back at once while one goes on."""
        if self._channel is not None and (self._channel.told_to_stop or self._channel.reason is not None):
            await self._channel.ended()

    def begin(self, prompt: str, *, streamed: bool, observers: Sequence[Observer] = ()) -> Channel:
        """Start a turn; for AsyncEventStream. Raises SessionClosed, HarnessError when busy, ValueError."""
        if self._closed:
            raise SessionClosed(CLOSED)
        if self.busy:
            raise HarnessError("a turn is already running on this session")
        given: object = prompt
        if not isinstance(given, str) or not given.strip():
            raise ValueError("the prompt is empty: say what the model should do")
        channel = self._channel = Channel()
        turn = self._turn(prompt, channel.emit, streamed=streamed, observers=observers)
        turn.checkpoint = channel.checkpoint
        channel.begin(self._run(turn, channel))
        return channel

    async def _run(self, turn: Turn, channel: Channel) -> Result:
        channel.started = True
        asks = turn.approver != "callback" and may_ask(turn.config)
        async with turn.config.host.attend(may_ask=asks):
            return await self._to_its_end(turn, channel)

    async def _to_its_end(self, turn: Turn, channel: Channel) -> Result:
        """One turn, to a Result, whatever happens."""
        watch, number = Watch(self.config.sandbox), self._history.turns
        try:
            reason, error = await self._outcome(turn, watch, channel)
        finally:
            self._history.mark_turn(number)  # each result has a turn to go back to
        channel.reason = channel.reason or reason  # from here on a stop comes too late
        for result in _missing_results(turn, channel.recorded):
            await channel.post(result)
        files = await watch.changes()
        for change in files:
            await channel.post(change)
        made = self._result(turn, channel, reason, error, files)
        self.results.append(made)
        turn.config.host.finished(made)
        return made

    @contextmanager
    def _time_limit(self, channel: Channel) -> Iterator[None]:
        limit = self.config.timeout
        if limit is None:
            yield
            return
        timer = asyncio.get_running_loop().call_later(limit, channel.stop, "timeout")
        try:
            yield
        finally:
            timer.cancel()

    async def _outcome(self, turn: Turn, watch: Watch, channel: Channel) -> tuple[StopReason, str | None]:
        outcome = Outcome()
        try:
            channel.checkpoint()
            if must_load(self.config.route.model):
                outcome = await attempt(load())  # seconds, once in a process: none of the run's time
            if outcome.error is None:
                with self._time_limit(channel), keep_loop_running():
                    await watch.start()
                    outcome = await attempt(run_turn(turn))
        except asyncio.CancelledError:
            if channel.reason is None:
                raise  # not ours: the loop is shutting down
            _take_back_cancel()
        else:
            if channel.reason is not None:
                await _let_cancel_come()
        if channel.reason is not None:
            return channel.reason, turn.note
        if outcome.error is None:
            return "done", turn.note
        if isinstance(outcome.error, TurnEnded):
            return outcome.error.reason, outcome.error.error
        if isinstance(outcome.error, (ModelCallFailed, RunEnded)):
            interrupted = isinstance(outcome.error, RunEnded)
            return "cancelled" if interrupted else "runtime_error", str(outcome.error)
        return "runtime_error", log_unexpected(outcome.error)

    def _result(
        self, turn: Turn, channel: Channel, reason: StopReason, error: str | None, files: list[Any]
    ) -> Result:
        text = turn.final_text or shown_text(channel.recorded)
        if reason == "runtime_error" and error:
            text = f"{text}\n\n{error}" if text else error
        if reason == "done" and turn.output_problem is not None:
            channel.problem = (turn.output_problem, turn.final_text)
        return Result(
            text=text,
            output=turn.output,
            files=files,
            events=channel.recorded,
            usage=turn.usage,
            cost=turn.cost,
            stop_reason=reason,
            session_id=self.session_id,
            error=error,
            model=self.config.route.title,
            prompt=turn.prompt,
            spans=tuple(turn.spans),
            output_attempts=turn.output_attempts,
            presenter=turn.config.host,
        )

    def raise_output_invalid(self, problem: tuple[str, str] | None, result: Result) -> None:
        """Raise OutputInvalid when the answer did not fit; for AsyncEventStream."""
        if problem is not None and self.config.output is not None:
            message = f"Final answer did not match {self.config.output.name}: {problem[0]}"
            raise OutputInvalid(message, raw=problem[1], result=result)


def _missing_results(turn: Turn, recorded: Sequence[Event]) -> list[ToolResult]:
    """The results of calls that were open when the turn ended, as the history has them: each call gets one."""
    answered = {event.id for event in recorded if isinstance(event, ToolResult)}
    open_calls = [event.id for event in recorded if isinstance(event, ToolCall) and event.id not in answered]
    missing = []
    for call_id in open_calls:
        kept = turn.unsent if turn.unsent is not None and turn.unsent.id == call_id else None
        missing.append(kept or _cut_off(turn, call_id, turn.history.answer_of(call_id)))
    return missing


def _cut_off(turn: Turn, call_id: str, text: str) -> ToolResult:
    """The result of a call that was not seen to its end; whether its function had been started, and for how long."""
    ran = turn.at_work is not None and turn.at_work[0] == call_id
    seconds = time.monotonic() - turn.at_work[1] if turn.at_work is not None and ran else 0.0
    return ToolResult(
        call_id, text, is_error=True, full_length=len(text), ran=ran, seconds=seconds, status="cancelled"
    )


async def _let_cancel_come() -> None:
    """Take a cancel that is still on its way: the turn ended by itself while it was told to stop."""
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        _take_back_cancel()


def _take_back_cancel() -> None:
    """Tell the task that its cancellation has been dealt with (Python 3.11 counts them)."""
    task = asyncio.current_task()
    if task is not None and hasattr(task, "uncancel"):
        task.uncancel()


async def _nowhere(event: Event) -> None:
    return None
