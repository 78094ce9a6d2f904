"""Make and run a job for each table row that has to be run. A session runs the `Job`, and the result is a `Row`.

A job has the row's prompt, with all names replaced, and the row's key: a hash of the prompt and of the options that decide the
answer. The store finds a row by this key. If the store has an answer for a row, the row is not run again.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..events import (
    ArgumentInvalid,
    AskPerson,
    HarnessError,
    Host,
    OutputInvalid,
    PrintKeeper,
    Result,
    Row,
    Sink,
    make_plain,
)
from ..execution import MISSING, Raised, attempt_call, describe_error
from ..loop import Allowed, Config, Route
from ..session import AsyncEventStream, AsyncSession
from ..text import hide
from .store import Store, decode_row
from .table import RowPrompt, Table

STOP_WAIT = 0.4
"""The largest number of seconds that a stopped run waits for its rows to end."""
LONGEST_BLOCK = 0.01
"""Rows that need no run may block the event loop for this many seconds. After that, other tasks can run."""
_NOT_IN_KEY = frozenset(
    ["stream", "stream_options", "num_retries", "max_retries", "timeout", "request_timeout", "stream_timeout"]
) | {"metadata", "api_base", "base_url"}
"""Options of a model call that are not in a row's key. They say how and where the call is made, not what the model is asked."""

KeepRow: TypeAlias = Callable[[Row], Awaitable[None]]
"""A function that is called with each row that has ended. It writes the row to the store, and counts the row."""


class RunState:
    """The state of a rows run, shared by its parts: running, stopping (no further row begins), or cut (rows are cancelled)."""

    def __init__(self) -> None:
        self.message = ""
        """Why the run ends early, in one line; "" if it does not end early."""
        self.is_stopping = False
        """True if no further row begins."""
        self.is_cut = False
        """True if the rows under way are cancelled, too."""
        self.is_final = False
        """True if the provider has refused a call for a reason that all other calls would meet, such as a wrong API key."""
        self.asking = 0
        """The number of rows that ask a person, or wait until they may ask."""
        self._changed = asyncio.Event()

    def count_asking(self, change: int) -> None:
        """Count a row that begins (1) or ends (-1) to ask a person. While it asks, another row may begin."""
        self.asking += change
        self.wake()

    def end(self, message: str, *, cut: bool = False) -> None:
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


class RowHost(Host):
    """The `Host` of the single rows. Most calls go on to `outer`, the host of the whole run.

    `outer` is not told when the turn of a row begins or ends: for `outer`, the whole run is one turn.
    """

    def __init__(self, outer: Host, ask: AskPerson | None) -> None:
        """`ask`: asks a person in place of `outer`; None: `outer` asks."""
        self.presenter, self._outer, self._ask = outer.presenter, outer, ask

    @property
    def ask(self) -> AskPerson | None:
        return self._ask or self._outer.ask

    def importing(self) -> AbstractContextManager[object]:
        return self._outer.importing()

    def capture(self, sink: Sink, *, shown: bool) -> AbstractContextManager[object]:
        return self._outer.capture(sink, shown=shown)

    def keeper(self) -> PrintKeeper:
        return self._outer.keeper()

    def name_code(self, traceback: str) -> str:
        return self._outer.name_code(traceback)


@dataclass(frozen=True)
class Job:
    """A row that has to be run."""

    number: int
    name: str
    """The row's name for a person, such as "row 17 of 1,000"."""
    input: Mapping[str, Any]
    prompt: str
    key: str

    def make_row(self, result: Result | None, error: str | None, seconds: float = 0.0) -> Row:
        """Return the Row of this job after its run. `error` is put into one line; None if the row has not failed."""
        line = None if error is None else " ".join(error.split())
        return Row(self.number, self.key, self.input, result, line, seconds)


class JobSource:
    """Reads the rows of a table and makes their jobs. Each row is read only when it is needed."""

    def __init__(self, config: Config, table: Table, prompt: RowPrompt, store: Store | None) -> None:
        self._config, self._table, self._prompt, self._store = config, table, prompt, store
        shown, _ = config.completion_options()
        same_for_all = {
            "model": config.route.title,
            "instructions": config.instructions,
            "tools": [tool.spec["function"] for tool in config.tools],
            "output": None if config.output is None else config.output.schema,
            "fallback": [route.title for route in config.fallbacks],
            "options": {k: make_plain(v) for k, v in shown.items() if k not in _NOT_IN_KEY},
        }
        self._hash = hashlib.sha256(json.dumps(same_for_all, sort_keys=True, default=repr).encode())
        """The hash of `same_for_all`. A row's key is the hash of this and of the row's prompt. Limits such as `max_turns` are not
        part of a key: if a limit ends a row without an answer, the next run runs the row again.
        """
        self.again = 0
        """The number of rows that failed in an earlier run with this store, and are run again now."""

    def make_first_job(self) -> Job | None:
        """Return the job of the first row, or None if there are no rows. Read no other row."""
        return None if self._prompt.first is None else self._make_job(0, self._prompt.first)

    async def list_jobs(self, state: RunState, keep: KeepRow) -> AsyncIterator[Job]:
        """Yield the job of each row that has to be run, until the run stops. If a row cannot be read, the run ends.

        A row with an answer in the store, and a row whose prompt cannot be filled in, are passed to `keep` at once.
        """
        rows, number, blocked_since = iter(self._table), 0, time.monotonic()
        while not state.is_stopping:
            row = attempt_call(next, rows, MISSING)
            if isinstance(row, Raised):
                state.end(f"row {number} could not be read: {describe_error(row.error, 500)}")
            if isinstance(row, Raised) or row is MISSING:
                return
            prepared = self._prepare(number, row)
            if isinstance(prepared, Job):
                yield prepared
                blocked_since = time.monotonic()
            else:
                await keep(prepared)
            if time.monotonic() - blocked_since > LONGEST_BLOCK:
                await asyncio.sleep(0)
                blocked_since = time.monotonic()
            number += 1

    def _make_job(self, number: int, row: Mapping[str, Any]) -> Job:
        prompt, digest = self._prompt.fill(row), self._hash.copy()
        digest.update(prompt.encode("utf-8", "backslashreplace"))
        name = f"row {number:,}" + ("" if self._table.total is None else f" of {self._table.total:,}")
        return Job(number, name, row, prompt, digest.hexdigest()[:32])

    def _prepare(self, number: int, row: Mapping[str, Any]) -> Job | Row:
        """Return the Job of a row that has to be run. Return a Row if the store has the answer, or if the prompt cannot be made."""
        try:
            job = self._make_job(number, row)
        except ArgumentInvalid as error:
            return Row(number, "", row, None, str(error))
        if self._store is None:
            return job
        if (line := self._store.take(job.key)) is not None:
            # Another release of this package may have written the line in another form. Then the row is run again.
            with contextlib.suppress(ValueError, KeyError, TypeError):
                config = self._config
                stored = decode_row(line, number, row, config.output, config.host.presenter)
                return dataclasses.replace(stored, from_store=True)
        self.again += self._store.has_failed(job.key)
        return job


# --- one row --------------------------------------------------------------------------------------------------


def configure_row(config: Config, job: Job) -> Config:
    """Return the configuration of one row's session. A scripted model begins its script again for each row."""

    def begin(route: Route) -> Route:
        if route.answers is None or (answers := route.answers.begin_row(job.input)) is route.answers:
            return route
        return dataclasses.replace(route, model=answers.model, answers=answers)

    return dataclasses.replace(config, routes=tuple(map(begin, config.routes)), row=job.name)


def begin_row(config: Config, job: Job, allowed: Allowed) -> AsyncEventStream | Row:
    """Return a stream that will run the row of `job`. If a function in `model=` raises an error, return a failed Row.

    `allowed`: the tools that a person has allowed "for the session". All rows share this object, so these tools are
    allowed in all rows.
    """
    made = attempt_call(configure_row, config, job)
    if isinstance(made, Raised):
        return job.make_row(None, describe_error(made.error, 500))
    session = AsyncSession(made, streamed=False, allowed=allowed)
    return AsyncEventStream(session, job.prompt, streamed=False)


async def finish_row(stream: AsyncEventStream | Row, job: Job, config: Config) -> Row:
    """Run the stream of a row to its end, and return the Row. If `stream` is a failed Row of `begin_row`, return it."""
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
    return job.make_row(result, error, time.monotonic() - began)


def _explain_end(result: Result, config: Config) -> str | None:
    """Return why a row's run has no valid answer; None if it has one. With `on_limit="answer"`, an answer at a limit is valid."""
    if result.stop_reason == "done":
        return None
    has_answer = bool(result.text) if config.output is None else result.output is not None
    at_limit = result.stop_reason in ("max_turns", "max_model_calls", "max_cost")
    if at_limit and has_answer and config.options.on_limit == "answer":
        return None
    ends = {
        "max_turns": f"stopped at its last tool call: max_turns is {config.limits.max_turns}",
        "timeout": f"it took longer than its timeout of {config.limits.timeout} s",
        "cancelled": "it was stopped",
    }
    return result.error or ends.get(result.stop_reason, result.stop_reason)
