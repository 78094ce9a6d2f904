"""A rows run: one session for each row, on the loop of whoever awaits it, or in an executor's workers."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, get_args

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
from .workers import Receipt, Workers

STOP_WAIT = 0.4
"""Seconds that stopped rows get to end before `collect` returns."""
MOST_ASKING = 100
"""Rows that may wait for a person before no further row begins."""
BREATH = 0.01
"""Seconds of rows that need no run, after which the loop has a turn."""

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
        """Check everything; nothing goes out before `collect`.

        `config`: what each row is run with, made by `build_config` (its `timeout` and limits are for one row).
        `ask`: instead of the host's own way to ask a person. While it waits, other rows go on.
        Raises ArgumentInvalid or ArgumentTypeInvalid for rows that are none, a name in the prompt that is neither a column
        nor among `variables`, options that no run can have; ValueError where somebody has to be asked and nobody can be.
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
        self._workers = None
        if options.executor is not None:
            self._workers = Workers(options.executor, self._config, options.concurrency, options.max_cost)
        self._tally = Tally(self._table.total)
        self._allowed = Allowed()
        self._running: dict[asyncio.Task[None], AsyncEventStream] = {}
        self._there: dict[int, Job] = {}
        """The rows that are in workers."""
        self._main: asyncio.Task[None] | None = None
        self._freed = asyncio.Event()
        self._message = ""
        self._is_stopping, self._is_cut = False, False
        """Whether no further row begins; whether those under way are cut."""

    # --- what there is -----------------------------------------------------------------------------------------

    @property
    def model(self) -> str:
        """The model that the rows are asked of."""
        return self._config.route.model

    @property
    def total(self) -> int | None:
        """How many rows there are; None for an iterable that does not say."""
        return self._table.total

    @property
    def progress(self) -> RowsProgress:
        """How far it is."""
        notes = [] if self._store is None else self._store.notes
        return self._tally.report(
            running=len(self._running if self._workers is None else self._there),
            pause=self._pace.pause,
            concurrency=int(self._pace.limit),
            message="; ".join(filter(None, [*notes, self._message])),
        )

    @property
    def rows(self) -> Rows:
        """What there is, valid at any moment: also before, during and after the run, and when it was stopped."""
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
        """The first row's first request, exactly as it would be sent, without sending it; None where there is no row."""
        if self._prompt.first is None:
            return None
        job = self._make_job(0, self._prompt.first)
        session = AsyncSession(configure_row(self._config, job, self._host_of(0)), streamed=False)
        return await session.preview(job.prompt)

    # --- the run -----------------------------------------------------------------------------------------------

    async def collect(self) -> Rows:
        """Run all rows and return them. A second call is an error.

        Raises CancelledError when it is cancelled, after a moment in which the rows under way are stopped; `.rows` has what
        there is. A failure that ends the whole (a key that is refused, a store that cannot be written) raises nothing:
        `.rows.message` says it. Raises ArgumentInvalid for a store that cannot be opened.
        """
        if self._main is not None:
            raise HarnessError("these rows have been run already: make another run of them")
        self._main = asyncio.ensure_future(self._run())
        try:
            await asyncio.wait({self._main})
        except asyncio.CancelledError as error:
            self._end(STOPPED, cut=True)
            with contextlib.suppress(asyncio.CancelledError):  # stopped again: no more waiting
                await asyncio.wait({self._main}, timeout=2 * STOP_WAIT)
            error.args = (STOPPED,)
            await self._config.host.stopped(error)
            raise
        self._main.result()
        return self.rows

    def cancel(self) -> None:
        """Stop the run, from any thread: `collect` returns within half a second with what there is."""
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
        work = asyncio.ensure_future(workers.run(self._list_sent(), Receipt(self._take_in, self._fail)))
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
        """A row has come back from a worker."""
        number = line["row"]
        job, host = self._there.pop(number), self._host_of(number)
        self._pace.is_final = self._pace.is_final or bool(line.get("ends_all"))
        row = decode_row(line, number, job.input, self._config.output, host)
        self._pace.add_cost(row.cost or 0.0)
        await self._keep(row)

    def _fail(self, message: str) -> None:
        self._end(message, cut=True)

    async def _list_jobs(self) -> AsyncIterator[Job]:
        """The rows that have to be run. Those that need no run end on the way: taken from the store, or without a text."""
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
        """The job of a row that has to be run, or what came of one that need not be."""
        try:
            job = self._make_job(number, row)
        except ArgumentInvalid as error:
            return Row(number, "", row, None, str(error))
        if self._store is None:
            return job
        if (line := self._store.take(job.key)) is not None:
            host, output = self._host_of(number), self._config.output
            with contextlib.suppress(ValueError, KeyError, TypeError):  # of another release: run once more
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
        """A row has ended: keep it, and see whether the run goes on."""
        if self._store is not None and row.key and not row.from_store:
            try:
                await self._store.append(encode_row(row))
            except (OSError, ValueError) as error:  # ValueError: it is closed, after a stop
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
        """Begin no further row, and say why; `cut`: stop those under way as well."""
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
        """Something has changed: there may be room for another row."""
        self._freed.set()
        self._tell()

    def _tell(self) -> None:
        self._watcher.changed(self.progress)
