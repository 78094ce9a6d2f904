"""A rows run: one session for each row, on the event loop that awaits `collect`, or in an executor's workers."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, get_args

from ..events import STOPPED, ArgumentInvalid, Check, HarnessError, Request
from ..execution import MISSING, Raised, attempt_call, describe_error
from ..loop import SPENDING, Allowed, Config, may_ask
from ..session import AsyncEventStream, AsyncSession
from ..text import hide
from .job import AskRow, Job, KeyMaker, RowHost, begin_row, configure_row, finish_row
from .pace import Pace
from .store import Store, decode_row, encode_row
from .table import RowPrompt, Table, list_fields
from .tally import Tally
from .values import OnError, Row, Rows, RowsOptions, RowsPresenter, RowsProgress, RowsWatcher

if TYPE_CHECKING:
    from .workers import Workers

STOP_WAIT = 0.4
"""Seconds that `collect` waits for stopped rows to end."""
MOST_ASKING = 100
"""If so many rows wait for a person, no further row begins."""
BREATH = 0.01
"""After so many seconds of rows that need no run, other tasks of the loop get a turn."""

_CHECKS = {
    "concurrency": Check(int, "a whole number", least=1, or_none=False),
    "max_cost": Check((int, float), "an amount of US dollars", above=0, unit=" US dollars"),
    "on_error": Check(choices=get_args(OnError)),
}


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
        options: RowsOptions = RowsOptions(),  # noqa: B008 - it is frozen
        *,
        watcher: RowsWatcher = RowsWatcher(),  # noqa: B008
        ask: AskRow | None = None,
        presenter: RowsPresenter = RowsPresenter(),  # noqa: B008
    ) -> None:
        """Check everything. Nothing is sent before `collect`.

        `config`: the configuration of each row, made by `build_config`. Its `timeout` and its limits are for one row.
        `ask`: asks a person, in place of the host. While a row waits for the person, other rows go on.
        Raises ArgumentInvalid or ArgumentTypeInvalid for `rows` that cannot be read, for a name in the prompt that is neither
        a column nor one of `variables`, and for invalid options. Raises ValueError if a call needs an approval and nobody can
        be asked.
        """
        for name, check in _CHECKS.items():
            if fault := check.find_fault(name, getattr(options, name)):
                raise fault
        self._table = Table(rows, () if config.output is None else list_fields(config.output.kind))
        self._prompt = RowPrompt(prompt, self._table, options.variables, config.host.name_code)
        self._options, self._watcher, self._ask, self._presenter = options, watcher, ask, presenter
        self._pace = Pace(options.concurrency, options.max_cost, self._free)
        unstreamed = {"stream": False, **config.options.completion_kwargs}
        asked = dataclasses.replace(config.options, completion_kwargs=unstreamed)
        self._config = dataclasses.replace(config, options=asked, gate=self._pace)
        AsyncSession(dataclasses.replace(self._config, host=self._host_of(0)), streamed=False)  # its checks
        self._keys = KeyMaker(self._config)
        self._store = None if options.store is None else Store(options.store)
        self._workers: Workers | None = None
        if options.executor is not None:
            from .workers import Workers  # late: multiprocessing is for executors alone

            limits = [limit for limit in (options.max_cost, SPENDING.left) if limit is not None]
            most = min(limits, default=None)  # a worker does not see what other runs cost meanwhile
            self._workers = Workers(options.executor, self._config, options.concurrency, most)
        self._tally = Tally(self._table.total)
        self._allowed = Allowed()
        self._running: dict[asyncio.Task[None], AsyncEventStream] = {}
        self._there: dict[int, Job] = {}
        """Number -> job, for the rows that workers have."""
        self._main: asyncio.Task[None] | None = None
        self._freed = asyncio.Event()
        self._message = ""
        self._is_stopping, self._is_cut = False, False
        """True if no further row begins; True if the rows under way are cancelled, too."""

    # --- the state of the run -----------------------------------------------------------------------------------------

    @property
    def model(self) -> str:
        """The model that answers the rows."""
        return self._config.route.model

    @property
    def total(self) -> int | None:
        """The number of rows; None for an iterable without a length."""
        return self._table.total

    @property
    def progress(self) -> RowsProgress:
        """The progress of the run now."""
        notes = [] if self._store is None else self._store.notes
        return self._tally.report(
            running=len(self._running if self._workers is None else self._there),
            pause=self._pace.pause,
            concurrency=int(self._pace.limit),
            message="; ".join(filter(None, [*notes, self._message])),
        )

    @property
    def rows(self) -> Rows:
        """The rows that have ended so far. May be read at any time: before, during and after the run, and after a stop."""
        tally = self._tally
        return Rows(
            tally.list_in_order(),
            self.progress,
            tuple(tally.cut),
            self._message,
            self._table,
            self._presenter,
        )

    async def preview(self) -> Request | None:
        """Return the first request of the first row, exactly as it would be sent; None if there are no rows. Sends nothing."""
        if self._prompt.first is None:
            return None
        job = self._make_job(0, self._prompt.first)
        session = AsyncSession(configure_row(self._config, job, self._host_of(0)), streamed=False)
        return await session.preview(job.prompt)

    # --- the run -----------------------------------------------------------------------------------------------

    async def collect(self) -> Rows:
        """Run all rows and return them. A second call raises HarnessError.

        If the call is cancelled, it stops the rows under way and then raises CancelledError; `.rows` has the rows that have
        ended. A failure that ends the whole run (a refused key, a store that cannot be written) raises nothing;
        `.rows.message` tells it. Raises ArgumentInvalid for a store that cannot be opened.
        """
        if self._main is not None:
            raise HarnessError("these rows have been run already: make another run of them")
        self._main = asyncio.ensure_future(self._run())
        try:
            await asyncio.wait({self._main})
        except asyncio.CancelledError as error:
            self._end(STOPPED, cut=True)
            with contextlib.suppress(asyncio.CancelledError):  # stopped again: do not wait any longer
                await asyncio.wait({self._main}, timeout=2 * STOP_WAIT)
            error.args = (STOPPED,)
            await self._config.host.stopped(error)
            raise
        self._main.result()
        return self.rows

    def cancel(self) -> None:
        """Stop the run, from any thread. `collect` returns within half a second with the rows that have ended."""
        if self._main is None:
            self._end(STOPPED, cut=True)
            return
        with contextlib.suppress(RuntimeError):  # the loop may be closed already
            self._main.get_loop().call_soon_threadsafe(lambda: self._end(STOPPED, cut=True))

    async def _run(self) -> None:
        asks = may_ask(self._config) and self._config.on_approval is None
        async with self._config.host.attend(may_ask=asks):
            if self._store is not None:
                await asyncio.to_thread(self._store.open)
            self._tally.start()
            self._tell()
            try:
                await (self._run_here() if self._workers is None else self._run_there(self._workers))
            finally:
                self._tally.stop()
                if self._store is not None:
                    self._store.close()
                self._tell()

    async def _run_here(self) -> None:
        """Run the rows on this loop, each in a task of its own."""
        async for job in self._list_jobs():
            stream = begin_row(self._config, job, self._host_of(job.number), self._allowed)
            if isinstance(stream, Row):
                await self._keep(stream)
                continue
            task = asyncio.ensure_future(self._run_row(stream, job))
            self._running[task] = stream
            task.add_done_callback(self._take_out)
            self._tell()
            while not self._is_stopping and self._is_full():
                await self._wait_for_change()
        while self._running and not self._is_cut:
            await self._wait_for_change()
        if self._running:
            await asyncio.wait(self._running, timeout=STOP_WAIT)

    async def _run_there(self, workers: Workers) -> None:
        """Run the rows in an executor's workers."""
        if limit := SPENDING.explain_limit():
            self._end(limit)
            return
        work = asyncio.ensure_future(workers.run(self._list_sent(), self._take_in, self._fail))
        work.add_done_callback(lambda _: self._free())
        while not work.done() and not self._is_cut:
            await self._wait_for_change()
            if self._is_stopping:
                workers.take_back()
        if not work.done():
            workers.leave()
            await asyncio.wait({work}, timeout=STOP_WAIT)
        if work.done() and not work.cancelled():
            work.result()

    async def _list_sent(self) -> AsyncIterator[Job]:
        async for job in self._list_jobs():
            self._there[job.number] = job
            self._tell()
            yield job

    async def _take_in(self, line: Mapping[str, Any]) -> None:
        """Take in a row that a worker has run."""
        number = line["row"]
        job, host = self._there.pop(number), self._host_of(number)
        self._pace.is_final = self._pace.is_final or bool(line.get("ends_all"))
        row = decode_row(line, number, job.input, self._config.output, host)
        self._pace.add_cost(row.cost or 0.0)
        if row.result is not None:
            SPENDING.add_run(row.result.usage, row.cost)
        await self._keep(row)

    def _fail(self, message: str) -> None:
        self._end(message, cut=True)

    async def _list_jobs(self) -> AsyncIterator[Job]:
        """Yield the rows that have to be run.

        The other rows are kept here at once: a row that the store has, and a row whose prompt cannot be filled in.
        """
        rows, number, since = iter(self._table), 0, time.monotonic()
        while not self._is_stopping:
            row = attempt_call(next, rows, MISSING)
            if isinstance(row, Raised):
                self._end(f"row {number} could not be read: {describe_error(row.error, 500)}")
            if isinstance(row, Raised) or row is MISSING:
                return
            found = self._prepare(number, row)
            if isinstance(found, Job):
                yield found
                since = time.monotonic()
            else:
                await self._keep(found)
            if time.monotonic() - since > BREATH:
                await asyncio.sleep(0)
                since = time.monotonic()
            number += 1

    def _make_job(self, number: int, row: Mapping[str, Any]) -> Job:
        prompt = self._prompt.fill(row)
        return Job(number, row, prompt, self._keys.make(prompt))

    def _prepare(self, number: int, row: Mapping[str, Any]) -> Job | Row:
        """Return the job of a row that has to be run, or the Row if it is in the store or its prompt cannot be filled in."""
        try:
            job = self._make_job(number, row)
        except ArgumentInvalid as error:
            return Row(number, "", row, None, str(error))
        if self._store is None:
            return job
        if (line := self._store.take(job.key)) is not None:
            host, output = self._host_of(number), self._config.output
            with contextlib.suppress(
                ValueError, KeyError, TypeError
            ):  # written by another release: run the row again
                return dataclasses.replace(decode_row(line, number, row, output, host), from_store=True)
        self._tally.again += self._store.has_failed(job.key)
        return job

    async def _run_row(self, stream: AsyncEventStream, job: Job) -> None:
        row = await finish_row(stream, job, self._config)
        if self._is_cut and row.stop_reason == "cancelled":
            self._tally.cut.append(row)
        else:
            await self._keep(row)

    async def _keep(self, row: Row) -> None:
        """Keep a row that has ended: write it to the store and count it. End the run if the row or a limit says so."""
        if self._store is not None and row.key and not row.from_store:
            try:
                await self._store.append(encode_row(row))
            except (OSError, ValueError) as error:  # ValueError: a stop has closed the file
                why = getattr(error, "strerror", None) or error
                self._end(f"{self._store.path.name} cannot be written: {why}", cut=True)
        self._tally.add(row)
        self._watcher.row_ended(row)
        if row.error is not None and self._pace.is_final:
            self._end(row.error, cut=True)
        elif row.error is not None and self._options.on_error == "stop":
            self._end(f"stopped, since row {row.number} failed: {row.error}")
        if limit := self._pace.find_limit() or SPENDING.explain_limit():
            self._end(limit)
        self._free()

    def _end(self, message: str, *, cut: bool = False) -> None:
        """Begin no further row. `message` says why; only the first message is kept. `cut`: cancel the rows under way, too."""
        self._message = self._message or " ".join(hide(message).split())
        self._is_stopping = True
        if cut and not self._is_cut:
            self._is_cut = True
            for stream in self._running.values():
                stream.cancel()
        self._free()

    def _host_of(self, number: int) -> RowHost:
        return RowHost(self._config.host, number, self._table.total, self._ask)

    def _is_full(self) -> bool:
        asking = self._pace.asking
        return len(self._running) - asking >= self._options.concurrency or asking >= MOST_ASKING

    async def _wait_for_change(self) -> None:
        self._freed.clear()
        await self._freed.wait()

    def _take_out(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        self._free()

    def _free(self) -> None:
        """Wake those who wait for a change, since another row may begin now. Report the progress."""
        self._freed.set()
        self._tell()

    def _tell(self) -> None:
        self._watcher.changed(self.progress)
