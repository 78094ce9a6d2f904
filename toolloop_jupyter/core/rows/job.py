"""One row: its key, the session that runs it, and the `Row` that this gives."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping
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
    make_plain,
)
from ..execution import Raised, attempt_call, describe_error
from ..loop import Allowed, Config, Route
from ..session import AsyncEventStream, AsyncSession
from .values import Row

AskRow: TypeAlias = Callable[[Approval, int, "int | None"], Awaitable[None]]
"""Asks a person about a tool call of a row. Takes (approval, the row's number, the number of rows). Called for one at a time."""

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
"""Options of a model call that do not change its question: they say how and where the call is made."""


@dataclass(frozen=True)
class Job:
    """A row that has to be run."""

    number: int
    input: Mapping[str, Any]
    prompt: str
    key: str


class KeyMaker:
    """Makes the keys of a run's rows. Rows with the same key have the same answer.

    A key is a hash of the model, the instructions, the tools' names and schemas, the schema of `output`, the completion options
    and the filled prompt. It leaves limits out, since a finished row has met none.
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


@dataclass(eq=False)
class RowHost(Host):
    """The `Host` of one row. It passes everything on to the host of all rows, but asks about tool calls by `ask_row` if given."""

    outer: Host
    row: int
    total: int | None = None
    ask_row: AskRow | None = None

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

    def display(self, result: Result) -> None:
        self.outer.display(result)

    def bundle(self, result: Result) -> Mapping[str, str]:
        return self.outer.bundle(result)

    def markdown(self, result: Result) -> str:
        return self.outer.markdown(result)

    def diagram(self, result: Result) -> object:
        return self.outer.diagram(result)


def configure_row(config: Config, job: Job, host: Host) -> Config:
    """Make the configuration of one row's session. A model with a script begins it anew for each row."""
    route, *fallbacks = (_begin_route(one, job) for one in (config.route, *config.fallbacks))
    return dataclasses.replace(config, route=route, fallbacks=tuple(fallbacks), host=host)


def _begin_route(route: Route, job: Job) -> Route:
    if route.answers is not None and (answers := route.answers.begin_row(job.input)) is not route.answers:
        route = dataclasses.replace(route, model=answers.model, answers=answers)
    return route


def begin_row(config: Config, job: Job, host: Host, allowed: Allowed) -> AsyncEventStream | Row:
    """Return the stream of one row, which has not started yet.

    If the person's function for `model=` fails, return the row as a failed one. A tool that a person allows "for the session"
    is allowed in all rows that share `allowed`.
    """
    made = attempt_call(configure_row, config, job, host)
    if isinstance(made, Raised):
        return Row(job.number, job.key, job.input, None, " ".join(describe_error(made.error, 500).split()))
    session = AsyncSession(made, streamed=False, allowed=allowed)
    return AsyncEventStream(session, job.prompt, streamed=False, close_session=True)


async def finish_row(stream: AsyncEventStream | Row, job: Job, config: Config) -> Row:
    """Run a row to its end. If it fails, the returned Row has an error. A row that has failed already is returned."""
    if isinstance(stream, Row):
        return stream
    began, result, error = time.monotonic(), None, None
    try:
        result = await stream.collect()
        error = _explain_end(result, config)
    except OutputInvalid as invalid:
        result, error = invalid.result, str(invalid)
    except (HarnessError, ValueError) as unfit:  # an empty prompt
        error = str(unfit)
    if result is not None and result.model != config.route.title:
        result = dataclasses.replace(result, model=config.route.title)
    line = None if error is None else " ".join(error.split())
    return Row(job.number, job.key, job.input, result, line, time.monotonic() - began)


def _explain_end(result: Result, config: Config) -> str | None:
    """Say why a row's run has no valid answer; None if it has a valid one.

    With `on_limit="answer"`, an answer that was given at a limit is valid.
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
