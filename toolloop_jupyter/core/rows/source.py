"""Reads the rows of a table, and makes a job for each row that has to be run.

A job has the row's filled-in prompt and the row's key. The store finds a row by its key. A row with an answer in the store is
not run again.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import json
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from ..events import ArgumentInvalid, make_plain
from ..execution import MISSING, Raised, attempt_call, describe_error
from ..loop import Config
from .job import AskRow, Job, KeepRow, RowHost, RunState
from .store import Store, decode_row
from .table import RowPrompt, Table
from .values import Row

BREATH = 0.01
"""Seconds. If rows that need no run take longer than this, other tasks of the event loop get a turn."""
_NOT_OF_THE_ANSWER = frozenset(
    [
        "stream",
        "stream_options",
        "num_retries",
        "max_retries",
        "timeout",
        "request_timeout",
        "stream_timeout",
        "metadata",
        "api_base",
        "base_url",
    ]
)
"""Options of a model call that a row's key leaves out. They say how and where the call is made, not what the model is asked."""


class KeyMaker:
    """Makes the key of each row of a run. Two rows with the same key ask the same question.

    A key is a hash of the model, the fallbacks, the instructions, the tools' names and schemas, the schema of `output`, the
    completion options and the filled-in prompt. Limits such as `max_turns` are not part of the key. If a limit ends a row
    without an answer, the row has failed, and the next run of the table runs it again.
    """

    def __init__(self, config: Config) -> None:
        shown, _ = config.completion_options()
        decides = {
            "model": config.route.title,
            "instructions": config.instructions,
            "tools": [tool.spec["function"] for tool in config.tools],
            "output": None if config.output is None else config.output.schema,
            "fallback": [route.title for route in config.fallbacks],
            "options": {k: make_plain(v) for k, v in shown.items() if k not in _NOT_OF_THE_ANSWER},
        }
        self._begun = hashlib.sha256(json.dumps(decides, sort_keys=True, default=repr).encode())

    def make(self, prompt: str) -> str:
        digest = self._begun.copy()
        digest.update(prompt.encode("utf-8", "backslashreplace"))
        return digest.hexdigest()[:32]


class RowSource:
    """Reads the rows of a table and makes their jobs. Each row is read only when it is needed."""

    def __init__(
        self, config: Config, table: Table, prompt: RowPrompt, store: Store | None, ask: AskRow | None
    ) -> None:
        """`ask`: the function that asks a person about a row's tool calls. If `ask` is None, `config.host` asks."""
        self._config, self._table, self._prompt, self._store, self._ask = config, table, prompt, store, ask
        self._keys = KeyMaker(config)
        self.again = 0
        """The number of rows that failed in an earlier run with this store, and are run again now."""

    def make_host(self, number: int) -> RowHost:
        """Make the `Host` of one row's session."""
        return RowHost(self._config.host, number, self._table.total, self._ask)

    def make_first_job(self) -> Job | None:
        """Return the job of the first row, or None if there are no rows. Read no other row."""
        return None if self._prompt.first is None else self._make_job(0, self._prompt.first)

    async def list_jobs(self, state: RunState, keep: KeepRow) -> AsyncIterator[tuple[Job, RowHost]]:
        """Yield (job, host) for each row that has to be run, until the run stops.

        Two kinds of rows are not run: a row with an answer in the store, and a row whose prompt cannot be filled in. These rows
        are passed to `keep` at once. If a row cannot be read, the run ends.
        """
        rows, number, since = iter(self._table), 0, time.monotonic()
        while not state.is_stopping:
            row = attempt_call(next, rows, MISSING)
            if isinstance(row, Raised):
                state.end(f"row {number} could not be read: {describe_error(row.error, 500)}", cut=False)
            if isinstance(row, Raised) or row is MISSING:
                return
            host = self.make_host(number)
            found = self._prepare(number, row)
            if isinstance(found, Job):
                yield found, host
                since = time.monotonic()
            else:
                await keep(found)
            if time.monotonic() - since > BREATH:
                await asyncio.sleep(0)
                since = time.monotonic()
            number += 1

    def _make_job(self, number: int, row: Mapping[str, Any]) -> Job:
        prompt = self._prompt.fill(row)
        return Job(number, row, prompt, self._keys.make(prompt))

    def _prepare(self, number: int, row: Mapping[str, Any]) -> Job | Row:
        """Return the Job of a row that has to be run.

        Return a finished Row if the store has an answer for the row, or a failed Row if the row's prompt cannot be filled in.
        """
        try:
            job = self._make_job(number, row)
        except ArgumentInvalid as error:
            return Row(number, "", row, None, str(error))
        if self._store is None:
            return job
        if (line := self._store.take(job.key)) is not None:
            with contextlib.suppress(
                ValueError, KeyError, TypeError
            ):  # another release has written the line: run the row again
                config = self._config
                stored = decode_row(line, number, row, config.output, config.host.presenter)
                return dataclasses.replace(stored, from_store=True)
        self.again += self._store.has_failed(job.key)
        return job
