"""Run one row: a session runs a `Job`, and the result is a `Row`. `RowTasks` runs many rows in this process."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..events import (
    Approval,
    HarnessError,
    Host,
    OutputInvalid,
    PrintKeeper,
    Result,
    Sink,
)
from ..execution import Raised, attempt_call, describe_error
from ..loop import Allowed, Config, Route
from ..session import AsyncEventStream, AsyncSession
from ..text import hide
from .pace import Pace
from .values import Row

STOP_WAIT = 0.4
"""The most seconds that a stopped run waits for its rows to end."""
MOST_ASKING = 100
"""The most rows that may wait for a person. While this number of rows wait, no further row begins."""

KeepRow: TypeAlias = Callable[[Row], Awaitable[None]]
"""A function that is called with each row that has ended. It writes the row to the store, and counts the row."""

AskRow: TypeAlias = Callable[[Approval, int, "int | None"], Awaitable[None]]
"""A function that asks a person about a tool call of a row. It takes (the approval, the row's number, the number of rows).

Only one call of the function runs at a time."""


@dataclass(frozen=True)
class Job:
    """A row that has to be run."""

    number: int
    input: Mapping[str, Any]
    prompt: str
    key: str


@dataclass(eq=False)
class RowHost(Host):
    """The `Host` of one row. It uses the host of all rows, but if `ask_row` is given, `ask_row` asks about tool calls."""

    outer: Host
    row: int
    total: int | None = None
    ask_row: AskRow | None = None

    def __post_init__(self) -> None:
        self.presenter = self.outer.presenter

    def importing(self) -> AbstractContextManager[object]:
        return self.outer.importing()

    def can_ask(self) -> bool:
        return self.ask_row is not None or self.outer.can_ask()

    async def ask(self, approval: Approval) -> None:
        await (
            self.outer.ask(approval) if self.ask_row is None else self.ask_row(approval, self.row, self.total)
        )

    def capture(self, sink: Sink, *, shown: bool) -> AbstractContextManager[object]:
        return self.outer.capture(sink, shown=shown)

    def keeper(self) -> PrintKeeper:
        return self.outer.keeper()

    def name_code(self, traceback: str) -> str:
        return self.outer.name_code(traceback)


def configure_row(config: Config, job: Job, host: Host) -> Config:
    """Return the configuration of one row's session. A scripted model begins its script again for each row."""
    route, *fallbacks = (_begin_route(one, job) for one in (config.route, *config.fallbacks))
    return dataclasses.replace(config, route=route, fallbacks=tuple(fallbacks), host=host)


def _begin_route(route: Route, job: Job) -> Route:
    if route.answers is not None and (answers := route.answers.begin_row(job.input)) is not route.answers:
        route = dataclasses.replace(route, model=answers.model, answers=answers)
    return route


def begin_row(config: Config, job: Job, host: Host, allowed: Allowed) -> AsyncEventStream | Row:
    """Return the stream of one row. The stream has not started yet.

    `model=` may be a function of the person. If this function raises, return a failed Row. If the person allows a tool "for
    the session", the tool is allowed in all rows that share `allowed`.
    """
    made = attempt_call(configure_row, config, job, host)
    if isinstance(made, Raised):
        return Row(job.number, job.key, job.input, None, " ".join(describe_error(made.error, 500).split()))
    session = AsyncSession(made, streamed=False, allowed=allowed)
    return AsyncEventStream(session, job.prompt, streamed=False)


async def finish_row(stream: AsyncEventStream | Row, job: Job, config: Config) -> Row:
    """Run a row to its end, and return its Row. If the run fails, the Row has an error.

    `stream`: the stream of the row, or a Row that has already failed. Such a Row is returned unchanged.
    """
    if isinstance(stream, Row):
        return stream
    began, result, error = time.monotonic(), None, None
    try:
        result = await stream.collect()
        error = _explain_end(result, config)
    except OutputInvalid as invalid:
        result, error = invalid.result, str(invalid)
    except (HarnessError, ValueError) as unfit:  # for example, the prompt is empty
        error = str(unfit)
    if result is not None and result.model != config.route.title:
        result = dataclasses.replace(result, model=config.route.title)
    line = None if error is None else " ".join(error.split())
    return Row(job.number, job.key, job.input, result, line, time.monotonic() - began)


def _explain_end(result: Result, config: Config) -> str | None:
    """Return why a row's run has no valid answer; None if its answer is valid.

    With `on_limit="answer"`, an answer that the model gave after reaching a limit is valid.
    """
    if result.stop_reason == "done":
        return None
    has_answer = bool(result.text) if config.output is None else result.output is not None
    at_limit = result.stop_reason in ("max_turns", "max_model_calls", "max_cost")
    if at_limit and has_answer and config.options.on_limit == "answer":
        return None
    ends = {
        "max_turns": f"stopped at its last tool call: max_turns is {config.max_turns}",
        "timeout": f"it took longer than its timeout of {config.timeout} s",
        "cancelled": "it was stopped",
    }
    return result.error or ends.get(result.stop_reason, result.stop_reason)


# --- many rows ------------------------------------------------------------------------------------------------


class RunState:
    """The state of a rows run, shared by all its parts: running, stopping (no further row begins), or cut (rows are cancelled)."""

    def __init__(self) -> None:
        self.message = ""
        """Why the run ends early, in one line; "" if it does not end early."""
        self.is_stopping = False
        """True if no further row begins."""
        self.is_cut = False
        """True if the rows under way are cancelled, too."""
        self._changed = asyncio.Event()

    def end(self, message: str, *, cut: bool) -> None:
        """Begin no further row. `message`: the reason; only the first reason is kept. `cut`: cancel the rows under way, too."""
        self.message = self.message or " ".join(hide(message).split())
        self.is_stopping = True
        self.is_cut = self.is_cut or cut
        self.wake()

    def wake(self) -> None:
        """Wake the code that waits for a change: another row may begin now, or the run ends."""
        self._changed.set()

    async def wait_for_change(self) -> None:
        """Wait until `wake` or `end` is called."""
        self._changed.clear()
        await self._changed.wait()


class RowTasks:
    """Runs rows on this event loop, each in a task of its own."""

    def __init__(self, config: Config, concurrency: int, pace: Pace, state: RunState) -> None:
        self._config, self._concurrency, self._pace, self._state = config, concurrency, pace, state
        self._allowed = Allowed()
        self._streams: dict[asyncio.Task[None], AsyncEventStream] = {}

    @property
    def running(self) -> int:
        """The number of rows under way."""
        return len(self._streams)

    async def run(
        self,
        jobs: AsyncIterator[tuple[Job, Host]],
        keep: KeepRow,
        on_change: Callable[[], object],
    ) -> None:
        """Run the rows of `jobs`. After a stop, no further row begins. `on_change` is called each time `running` changes."""

        def take_out(task: asyncio.Task[None]) -> None:
            del self._streams[task]
            self._state.wake()
            on_change()

        async for job, host in jobs:
            stream = begin_row(self._config, job, host, self._allowed)
            if isinstance(stream, Row):
                await keep(stream)
                continue
            task = asyncio.ensure_future(self._run_row(stream, job, keep))
            self._streams[task] = stream
            task.add_done_callback(take_out)
            on_change()
            while not self._state.is_stopping and self._is_full():
                await self._state.wait_for_change()
        while self._streams and not self._state.is_cut:
            await self._state.wait_for_change()
        if self._streams:
            for stream in self._streams.values():
                stream.cancel()
            await asyncio.wait(self._streams, timeout=STOP_WAIT)

    async def _run_row(self, stream: AsyncEventStream, job: Job, keep: KeepRow) -> None:
        await keep(await finish_row(stream, job, self._config))

    def _is_full(self) -> bool:
        asking = self._pace.asking
        return self.running - asking >= self._concurrency or asking >= MOST_ASKING
