"""A rows run: one session for each row. The sessions run on the event loop that awaits `collect`, or in an executor's workers."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..events import (
    STOPPED,
    AskPerson,
    HarnessError,
    OnError,
    Request,
    Row,
    Rows,
    RowsProgress,
    RowsSpeed,
    check_values,
)
from ..loop import SPENDING, Allowed, Config, wait_for_import
from ..session import AsyncEventStream, AsyncSession
from .job import STOP_WAIT, Job, JobSource, KeepRow, RowHost, RunState, begin_row, configure_row, finish_row
from .pace import Pace
from .store import Store, decode_row, encode_row
from .table import RowPrompt, Table, list_fields

if TYPE_CHECKING:
    from .workers import Workers

MOST_ASKING = 100
"""The largest number of rows that may wait for a person. While this number of rows wait, no further row begins."""
SHOWN_LAST = 3
"""`RowsProgress.last` has this many rows."""
RATE_OF = 50
"""The rate is measured over this many rows: the rows that ended last."""


@dataclass(frozen=True)
class RowsOptions:
    """The options of a whole rows run. The options of the single rows are in the run's `Config`."""

    concurrency: int = 8
    """The largest number of rows that run at the same time. With an executor, this is the limit for each worker."""
    store: str | Path | None = None
    """The file that keeps each finished row. The next run takes finished rows from this file. None: no file."""
    max_cost: float | None = None
    """The largest number of US dollars for all rows of this run. This limit is checked before each model call. None: no limit."""
    on_error: OnError = "continue"
    """After a row has failed: "continue" runs all other rows; "stop" begins no further row, and lets running rows end."""
    executor: Any = None
    """A `concurrent.futures.Executor` whose workers run the rows. If None, the rows run on the event loop of this process."""
    variables: Mapping[str, object] = field(default_factory=dict, repr=False)
    """Name -> value, for the names in the prompt that are not columns."""


class RowTasks:
    """Runs rows on this event loop, each in a task of its own."""

    def __init__(self, config: Config, concurrency: int, state: RunState) -> None:
        self._config, self._concurrency, self._state = config, concurrency, state
        self._allowed = Allowed()
        self._streams: dict[asyncio.Task[None], AsyncEventStream] = {}

    @property
    def running(self) -> int:
        """The number of rows under way."""
        return len(self._streams)

    async def run(self, jobs: AsyncIterator[Job], keep: KeepRow) -> None:
        """Run the rows of `jobs`. After a stop, no further row begins."""

        async def run_row(stream: AsyncEventStream, job: Job) -> None:
            await keep(await finish_row(stream, job, self._config))

        def take_out(task: asyncio.Task[None]) -> None:
            del self._streams[task]
            self._state.wake()

        async for job in jobs:
            stream = begin_row(self._config, job, self._allowed)
            if isinstance(stream, Row):
                await keep(stream)
                continue
            task = asyncio.ensure_future(run_row(stream, job))
            self._streams[task] = stream
            task.add_done_callback(take_out)
            while not self._state.is_stopping and (
                self.running - self._state.asking >= self._concurrency or self._state.asking >= MOST_ASKING
            ):
                await self._state.wait_for_change()
        while self._streams and not self._state.is_cut:
            await self._state.wait_for_change()
        if self._streams:
            for stream in self._streams.values():
                stream.cancel()
            await asyncio.wait(self._streams, timeout=STOP_WAIT)


@dataclass
class Tally:
    """Collects the rows that have ended, and counts them."""

    began: float = field(default_factory=time.monotonic)
    ended: dict[int, Row] = field(default_factory=dict)
    """Number -> row, in the order in which the rows ended."""
    cut: list[Row] = field(default_factory=list)
    """Rows that were running when the run was stopped, and did not end."""
    failed: int = 0
    from_store: int = 0
    seconds: float | None = None
    """How many seconds the run took; None before the end of the run."""
    _ends: deque[float] = field(default_factory=lambda: deque(maxlen=RATE_OF))

    def add(self, row: Row) -> None:
        """Count a row that has ended."""
        self.ended[row.number] = row
        self.failed += row.error is not None
        self.from_store += row.from_store
        if not row.from_store:
            self._ends.append(time.monotonic())

    @property
    def rate(self) -> float:
        """How many rows end per second. If fewer than RATE_OF rows have ended, the rate is measured over all of them."""
        ends, is_full = self._ends, len(self._ends) == RATE_OF
        seconds = ends[-1] - (ends[0] if is_full else self.began) if ends else 0.0
        return (len(ends) - is_full) / seconds if seconds > 0 else 0.0


class RowsRun:
    """One tool loop for each row of a table.

    run = RowsRun(config, "Classify {{text}}", reviews, RowsOptions(store="labels.jsonl"))
    rows = await run.collect()
    """

    def __init__(
        self,
        config: Config,
        prompt: str,
        rows: object,
        options: RowsOptions = RowsOptions(),
        *,
        ask: AskPerson | None = None,
    ) -> None:
        """Check all arguments. No request is sent before `collect`.

        `config`: the configuration of each row, made by `build_config`. Its `timeout` and its limits are for one row.
        `ask`: the function that asks a person, in place of the host. While a row waits for the person, other rows go on.
        Raises ArgumentInvalid or ArgumentTypeInvalid if `rows`, an option or a name in the prompt is invalid, and ValueError
        if a call needs an approval and nobody can be asked.
        """
        check_values({name: getattr(options, name) for name in ("concurrency", "max_cost", "on_error")})
        self._options, self._state, self._tally = options, RunState(), Tally()
        self._table = Table(rows, () if config.output is None else list_fields(config.output.kind))
        filled = RowPrompt(prompt, self._table, options.variables, config.host.name_code)
        self._pace = Pace(options.concurrency, options.max_cost, self._state)
        unstreamed = {"stream": False, **config.options.completion_kwargs}
        asked = dataclasses.replace(config.options, completion_kwargs=unstreamed)
        self._host = config.host
        self._config = dataclasses.replace(
            config, options=asked, host=RowHost(config.host, ask), gate=self._pace
        )
        self._store = None if options.store is None else Store(options.store)
        self._source = JobSource(self._config, self._table, filled, self._store)
        AsyncSession(self._config, streamed=False)  # checks its arguments
        self._runner: RowTasks | Workers
        if options.executor is None:
            self._runner = RowTasks(self._config, options.concurrency, self._state)
        else:
            from .workers import Workers  # imported late, because only executors need multiprocessing

            # A worker does not see the cost of other runs. So its limit is at most what is left of the budget now.
            limits = [limit for limit in (options.max_cost, SPENDING.left) if limit is not None]
            max_cost = min(limits, default=None)
            self._runner = Workers(options.executor, self._config, options.concurrency, max_cost, self._state)
        self._main: asyncio.Task[None] | None = None

    # --- the state of the run -----------------------------------------------------------------------------------------

    @property
    def total(self) -> int | None:
        """The number of rows; None for an iterable without a length."""
        return self._table.total

    @property
    def progress(self) -> RowsProgress:
        """The progress of the run now."""
        tally, note = self._tally, "" if self._store is None else self._store.note
        return RowsProgress(
            total=self.total,
            done=len(tally.ended) - tally.failed,
            failed=tally.failed,
            running=self._runner.running,
            from_store=tally.from_store,
            again=self._source.again,
            cost=self._pace.cost,
            seconds=time.monotonic() - tally.began if tally.seconds is None else tally.seconds,
            speed=RowsSpeed(tally.rate, self._pace.pause, int(self._pace.limit)),
            last=tuple(islice(reversed(tally.ended.values()), SHOWN_LAST))[::-1],
            message="; ".join(filter(None, (note, self._state.message))),
        )

    @property
    def rows(self) -> Rows:
        """The rows that have ended so far. May be read at any time: before, during and after the run, and after a stop."""
        return Rows(
            dict(sorted(self._tally.ended.items())),
            self.progress,
            tuple(sorted(self._tally.cut, key=lambda row: row.number)),
            self._state.message,
            self._table.make_frame,
            self._config.host.presenter,
        )

    async def preview(self) -> Request | None:
        """Return the first request of the first row, exactly as it would be sent; None if there are no rows. Sends nothing."""
        if (job := self._source.make_first_job()) is None:
            return None
        return await AsyncSession(configure_row(self._config, job), streamed=False).preview(job.prompt)

    # --- the run -----------------------------------------------------------------------------------------------

    async def collect(self) -> Rows:
        """Run all rows and return them. A second call raises HarnessError.

        If `collect` is cancelled, it stops the rows under way and raises CancelledError: `.rows` has the rows that have ended.
        If a failure ends the whole run, such as a refused API key, nothing is raised: `.rows.message` has the reason. Raises
        ArgumentInvalid if the store cannot be opened.
        """
        if self._main is not None:
            raise HarnessError("these rows have been run already: make another run of them")
        self._main = asyncio.ensure_future(self._run())
        try:
            await asyncio.wait({self._main})
        except asyncio.CancelledError as error:
            self._state.end(STOPPED, cut=True)
            with contextlib.suppress(asyncio.CancelledError):  # stopped a second time: do not wait any longer
                await asyncio.wait({self._main}, timeout=2 * STOP_WAIT)
            error.args = (STOPPED,)
            await self._host.stopped(error)
            raise
        self._main.result()
        return self.rows

    def cancel(self) -> None:
        """Stop the run. `collect` then returns the ended rows within half a second. May be called from any thread."""
        if self._main is None:
            self._state.end(STOPPED, cut=True)
            return
        with contextlib.suppress(RuntimeError):  # the loop may be closed already
            self._main.get_loop().call_soon_threadsafe(lambda: self._state.end(STOPPED, cut=True))

    async def _run(self) -> None:
        async with self._host.attend(may_ask=self._config.approvals.may_ask(self._config.tools)):
            if self._store is not None:
                await asyncio.to_thread(self._store.open)
            self._tally.began = time.monotonic()
            try:
                jobs = self._source.list_jobs(self._state, self._keep)
                if isinstance(self._runner, RowTasks):
                    await self._runner.run(jobs, self._keep)
                elif limit := SPENDING.explain_limit():
                    self._state.end(limit)
                else:
                    # A worker that is forked during LiteLLM's import would inherit locks that nobody releases.
                    await wait_for_import(self._config.route.model, self._config.host, self._config.observers)
                    await self._runner.run(jobs, self._keep_line)
            finally:
                self._tally.seconds = time.monotonic() - self._tally.began
                if self._store is not None:
                    self._store.close()

    async def _keep_line(self, line: Mapping[str, Any], job: Job) -> None:
        """Keep the row in `line`, which a worker has run for `job`, and count the row's cost."""
        row = decode_row(line, job.number, job.input, self._config.output, self._config.host.presenter)
        self._pace.add_cost(row.cost or 0.0)
        if row.result is not None:
            SPENDING.add(row.result.usage, row.cost or 0.0, unknown=row.cost is None)
        self._state.is_final |= line.get("ends_all", False)
        await self._keep(row)

    async def _keep(self, row: Row) -> None:
        """Write a finished row to the store, and count it. End the run if the row's error or a limit requires this."""
        if self._state.is_cut and row.stop_reason == "cancelled":
            self._tally.cut.append(row)
            return
        if self._store is not None and row.key and not row.from_store:
            try:
                await self._store.append(encode_row(row))
            except (OSError, ValueError) as error:  # ValueError: a stop has closed the file
                why = getattr(error, "strerror", None) or error
                self._state.end(f"{self._store.path.name} cannot be written: {why}", cut=True)
        self._tally.add(row)
        if row.error is not None and self._state.is_final:
            self._state.end(row.error, cut=True)
        elif row.error is not None and self._options.on_error == "stop":
            self._state.end(f"stopped, because row {row.number} failed: {row.error}")
        if limit := self._pace.find_limit() or SPENDING.explain_limit():
            self._state.end(limit)
        self._state.wake()
