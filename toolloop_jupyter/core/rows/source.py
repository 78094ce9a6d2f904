"""Reads the rows of a table, fills in their prompts, makes their keys, and leaves out the rows that the store has."""

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
"""After so many seconds of rows that need no run, other tasks of the loop get a turn."""
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
"""Options of a model call that are no part of the question: they say how and where the call is made."""


class KeyMaker:
    """Makes the keys of a run's rows. Rows with the same key have the same answer.

    A key is a hash of the model, the instructions, the tools' names and schemas, the schema of `output`, the completion options
    and the filled prompt. It leaves limits out, since a finished row has reached none.
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
    """Reads the rows of a table, each when it is needed, and makes their jobs."""

    def __init__(
        self, config: Config, table: Table, prompt: RowPrompt, store: Store | None, ask: AskRow | None
    ) -> None:
        """`ask`: asks a person, in place of the host of `config`."""
        self._config, self._table, self._prompt, self._store, self._ask = config, table, prompt, store, ask
        self._keys = KeyMaker(config)
        self.again = 0
        """The number of rows that have failed in an earlier run, as the store says, and are run again."""

    def make_host(self, number: int) -> RowHost:
        """Make the host of a row's session."""
        return RowHost(self._config.host, number, self._table.total, self._ask)

    def make_first_job(self) -> Job | None:
        """Make the job of the first row; None if there are no rows. Reads no further row."""
        return None if self._prompt.first is None else self._make_job(0, self._prompt.first)

    async def list_jobs(self, state: RunState, keep: KeepRow) -> AsyncIterator[tuple[Job, RowHost]]:
        """Yield the rows that have to be run, and their hosts, until the run stops.

        The other rows are kept at once: a row that the store has, and a row whose prompt cannot be filled in. If a row cannot be
        read, the run ends.
        """
        rows, number, since = iter(self._table), 0, time.monotonic()
        while not state.is_stopping:
            row = attempt_call(next, rows, MISSING)
            if isinstance(row, Raised):
                state.end(f"row {number} could not be read: {describe_error(row.error, 500)}", cut=False)
            if isinstance(row, Raised) or row is MISSING:
                return
            host = self.make_host(number)
            found = self._prepare(number, row, host)
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

    def _prepare(self, number: int, row: Mapping[str, Any], host: RowHost) -> Job | Row:
        """Return the job of a row that has to be run, or the Row if it is in the store or its prompt cannot be filled in."""
        try:
            job = self._make_job(number, row)
        except ArgumentInvalid as error:
            return Row(number, "", row, None, str(error))
        if self._store is None:
            return job
        if (line := self._store.take(job.key)) is not None:
            with contextlib.suppress(
                ValueError, KeyError, TypeError
            ):  # written by another release: run the row again
                stored = decode_row(line, number, row, self._config.output, host)
                return dataclasses.replace(stored, from_store=True)
        self.again += self._store.has_failed(job.key)
        return job
