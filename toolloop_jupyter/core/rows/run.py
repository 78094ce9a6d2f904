"""A rows run: one session for each row. The sessions run on the event loop that awaits `collect`, or in an executor's workers."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..events import STOPPED, HarnessError, Request, check_values
from ..loop import SPENDING, Config, may_ask, wait_for_import
from ..session import AsyncSession
from .job import STOP_WAIT, AskRow, Job, RowTasks, RunState, configure_row
from .pace import Pace
from .source import RowSource
from .store import Store, decode_row, encode_row
from .table import RowPrompt, Table, list_fields
from .values import Row, Rows, RowsOptions, RowsProgress, RowsWatcher, Tally

if TYPE_CHECKING:
    from .workers import Workers


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
    ) -> None:
        """Check all arguments. No request is sent before `collect`.

        `config`: the configuration of each row, made by `build_config`. Its `timeout` and its limits are for one row.
        `ask`: the function that asks a person, in place of the host. While a row waits for the person, other rows go on.
        Raises ArgumentInvalid or ArgumentTypeInvalid if `rows` cannot be read, if a name in the prompt is neither a column
        nor one of `variables`, or if an option is invalid. Raises ValueError if a call needs an approval and nobody can be
        asked.
        """
        check_values({name: getattr(options, name) for name in ("concurrency", "max_cost", "on_error")})
        table = Table(rows, () if config.output is None else list_fields(config.output.kind))
        filled = RowPrompt(prompt, table, options.variables, config.host.name_code)
        self._options, self._watcher = options, watcher
        self._pace = Pace(options.concurrency, options.max_cost, self._wake)
        unstreamed = {"stream": False, **config.options.completion_kwargs}
        asked = dataclasses.replace(config.options, completion_kwargs=unstreamed)
        self._config = dataclasses.replace(config, options=asked, gate=self._pace)
        self._store = None if options.store is None else Store(options.store)
        self._source = RowSource(self._config, table, filled, self._store, ask)
        host = self._source.make_host(0)
        AsyncSession(dataclasses.replace(self._config, host=host), streamed=False)  # checks its arguments
        self._state = RunState()
        self._runner: RowTasks | Workers
        if options.executor is None:
            self._runner = RowTasks(self._config, options.concurrency, self._pace, self._state)
        else:
            from .workers import Workers  # imported late, since only executors need multiprocessing

            limits = [limit for limit in (options.max_cost, SPENDING.left) if limit is not None]
            # A worker does not see the cost of other runs that go on at the same time.
            most = min(limits, default=None)
            self._runner = Workers(options.executor, self._config, options.concurrency, most)
        self._tally = Tally(table)
        self._main: asyncio.Task[None] | None = None

    # --- the state of the run -----------------------------------------------------------------------------------------

    @property
    def total(self) -> int | None:
        """The number of rows; None for an iterable without a length."""
        return self._tally.table.total

    @property
    def progress(self) -> RowsProgress:
        """The progress of the run now."""
        notes = [] if self._store is None else self._store.notes
        return self._tally.report(
            running=self._runner.running,
            again=self._source.again,
            pause=self._pace.pause,
            concurrency=int(self._pace.limit),
            message="; ".join(filter(None, [*notes, self._state.message])),
        )

    @property
    def rows(self) -> Rows:
        """The rows that have ended so far. May be read at any time: before, during and after the run, and after a stop."""
        tally = self._tally
        return Rows(
            tally.list_in_order(),
            self.progress,
            tally.list_cut(),
            self._state.message,
            tally.table,
            self._config.host.presenter,
        )

    async def preview(self) -> Request | None:
        """Return the first request of the first row, exactly as it would be sent; None if there are no rows. Sends nothing."""
        if (job := self._source.make_first_job()) is None:
            return None
        config = configure_row(self._config, job, self._source.make_host(0))
        return await AsyncSession(config, streamed=False).preview(job.prompt)

    # --- the run -----------------------------------------------------------------------------------------------

    async def collect(self) -> Rows:
        """Run all rows and return them. A second call raises HarnessError.

        If `collect` is cancelled, it stops the rows under way and raises CancelledError. `.rows` then has the rows that have
        ended. Some failures end the whole run, such as a refused API key or a store that cannot be written. In this case,
        `collect` raises nothing, and `.rows.message` has the reason. Raises ArgumentInvalid if the store cannot be opened.
        """
        if self._main is not None:
            raise HarnessError("these rows have been run already: make another run of them")
        self._main = asyncio.ensure_future(self._run())
        try:
            await asyncio.wait({self._main})
        except asyncio.CancelledError as error:
            self._end(STOPPED, cut=True)
            with contextlib.suppress(asyncio.CancelledError):  # stopped a second time: do not wait any longer
                await asyncio.wait({self._main}, timeout=2 * STOP_WAIT)
            error.args = (STOPPED,)
            await self._config.host.stopped(error)
            raise
        self._main.result()
        return self.rows

    def cancel(self) -> None:
        """Stop the run. `collect` then returns the ended rows within half a second. May be called from any thread."""
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
                jobs = self._source.list_jobs(self._state, self._keep)
                if isinstance(self._runner, RowTasks):
                    await self._runner.run(jobs, self._keep, self._tell)
                elif limit := SPENDING.explain_limit():
                    self._end(limit)
                else:
                    # A worker that is forked during LiteLLM's import would inherit locks that nobody releases.
                    await wait_for_import(self._config.route.model, self._config.host, self._config.observers)
                    await self._runner.run(jobs, self._keep_line, self._state, self._tell)
            finally:
                self._tally.stop()
                if self._store is not None:
                    self._store.close()
                self._tell()

    async def _keep_line(self, line: Mapping[str, Any], job: Job) -> None:
        """Keep a row that a worker has run, and count its cost."""
        self._pace.is_final = self._pace.is_final or bool(line.get("ends_all"))
        row = decode_row(line, job.number, job.input, self._config.output, self._config.host.presenter)
        self._pace.add_cost(row.cost or 0.0)
        if row.result is not None:
            SPENDING.add_run(row.result.usage, row.cost)
        await self._keep(row)

    async def _keep(self, row: Row) -> None:
        """Write a row that has ended to the store, and count it. End the run if the row's error or a limit requires this."""
        if self._state.is_cut and row.stop_reason == "cancelled":
            self._tally.cut.append(row)
            return
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
        self._wake()

    def _end(self, message: str, *, cut: bool = False) -> None:
        """Begin no further row. `message`: the reason; only the first reason is kept. `cut`: cancel the rows under way, too."""
        self._state.end(message, cut=cut)
        self._tell()

    def _wake(self) -> None:
        """Wake the code that begins the next row, and report the progress."""
        self._state.wake()
        self._tell()

    def _tell(self) -> None:
        self._watcher.changed(self.progress)
