"""The functions of LiteLLM's agent API for the Tool Loop. They check their arguments and start the sessions.

The names and keywords are those of LiteLLM's agent API (1.110), so existing code only has to change an import. There are
two differences from LiteLLM: the sync functions work inside a notebook cell, and `sandbox` may be left out.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, TypeVar, cast

from typing_extensions import Unpack

from .core import conversation
from .core.events import (
    ArgumentInvalid,
    ArgumentTypeInvalid,
    AskPerson,
    HarnessError,
    Host,
    OnError,
    PrintKeeper,
    Result,
    Rows,
    RunSync,
    Sink,
    check_values,
)
from .core.execution import Raised, attempt_call, describe_error
from .core.loop import Config
from .core.rows import RowsOptions, RowsRun
from .core.session import (
    DEFAULTS,
    AsyncEventStream,
    AsyncSession,
    Capabilities,
    EventStream,
    Harness,
    Keywords,
    Pending,
    PromptLike,
    Session,
    build_config,
    require_tool_loop,
)
from .notebook import kernel, live

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])


class _TableKeywords(TypedDict, total=False):
    """The keywords of `amap` and `map` that are for the whole table, not for one row: the fields of `RowsOptions`."""

    concurrency: int
    store: str | Path | None
    max_cost: float | None
    on_error: OnError
    executor: object
    variables: Mapping[str, object] | None


class RowsKeywords(_TableKeywords, Keywords, total=False):
    """The keywords of `amap` and `map`."""


def _add_keywords(function: F, kinds: type = Keywords) -> F:
    """Add the keys of the TypedDict `kinds` to the function's signature. `help` and Tab show this signature."""
    defaults = {**DEFAULTS, "concurrency": RowsOptions.concurrency, "on_error": RowsOptions.on_error}
    parameters = [p for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
    for name, kind in kinds.__annotations__.items():
        written = getattr(kind, "__forward_arg__", kind)  # the annotation as the source code has it
        given = {"default": defaults.get(name), "annotation": written}
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, **given))
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return function


_add_keywords_of_rows = partial(_add_keywords, kinds=RowsKeywords)


_AWAIT_SESSION = "write `async with aagent_session(…)`"


class _Process(Host):
    """Connects each run with this process: its event loop, its output, and the notebook that shows a Result."""

    presenter = live.NotebookPresenter()

    def run_sync(self, make: Callable[[], Coroutine[object, None, T]]) -> T:
        return kernel.run_sync(make, instead=_AWAIT_SESSION)

    def one_loop(self) -> RunSync:
        return kernel.StreamRunner(instead=_AWAIT_SESSION)

    @contextmanager
    def capture(self, sink: Sink, *, shown: bool) -> Iterator[None]:
        def also_pass_on(kind: str, payload: Any) -> None:
            sink(kind, payload)
            live.pass_on(kind, payload)

        figures = live.take_figures(sink) if shown else nullcontext()
        with kernel.capture(sink if shown else also_pass_on), figures:
            yield

    def keeper(self) -> PrintKeeper:
        return live.CallOutputs()

    def name_code(self, traceback: str) -> str:
        return kernel.name_cells(traceback)


class _Notebook(_Process):
    """Also connects each run with the cells and the user of IPython (a kernel or a terminal)."""

    def attend(self, *, may_ask: bool) -> AbstractAsyncContextManager[object]:
        live.warn_of_ignored_ctrl_c()
        # If a person may be asked, a tool's `clear_output()` must not remove the decisions from the cell.
        return kernel.running_in_cell(may_be_cleared=not may_ask)

    def importing(self) -> AbstractContextManager[object]:
        return live.say_importing()

    async def stopped(self, error: asyncio.CancelledError) -> None:
        await kernel.end_interrupted_cell(error)

    def finished(self, result: Result) -> None:
        live.keep(result)

    @property
    def ask(self) -> AskPerson | None:
        return live.ask_in_cell if kernel.is_in_kernel() or kernel.is_in_terminal() else None


PROCESS, NOTEBOOK = _Process(), _Notebook()
"""The `Host` of every run: NOTEBOOK if IPython is running, PROCESS in plain Python."""


def _make_config(harness: object, keywords: Keywords) -> Config:
    """Check the arguments, and make the Config of a run in this notebook."""
    from . import teaching  # noqa: F401 - provides the models "toolloop/…"

    require_tool_loop(harness)
    host = PROCESS if kernel.get_shell() is None else NOTEBOOK
    # Reading the person's objects may run their code, which may raise anything.
    config = attempt_call(partial(build_config, host, **keywords))
    if isinstance(config, Raised):
        error = config.error
        if isinstance(error, HarnessError):
            raise error
        # IPython writes a traceback for any other error. In `%xmode Verbose`, the traceback would show API keys.
        made = ArgumentTypeInvalid if isinstance(error, TypeError) else ArgumentInvalid
        is_clear = isinstance(error, (ValueError, TypeError))
        raise made(str(error) if is_clear else f"reading the arguments raised {describe_error(error, 500)}")
    # The frame of the public function exists until the run ends. In a traceback, `%xmode Verbose` shows the arguments of
    # this frame. They may contain API keys, so they are removed here.
    keywords.clear()  # type: ignore[attr-defined]  # each call has a dict of its own
    if host is NOTEBOOK:
        kernel.watch_cells()
    return config


def _begin_turn(
    harness: object, prompt: PromptLike, keywords: Keywords, *, streamed: bool
) -> AsyncEventStream:
    session = AsyncSession(_make_config(harness, keywords), streamed=streamed, lasting=False)
    return AsyncEventStream(session, prompt, streamed=streamed)


@_add_keywords
def aagent(
    harness: object, prompt: PromptLike, *, stream: bool = False, **keywords: Unpack[Keywords]
) -> Coroutine[object, None, Result] | AsyncEventStream:
    """Run one prompt. `await aagent(...)` returns a Result; `async for event in aagent(..., stream=True)` yields the events.

    The prompt is a text, or a list: `["What is odd here?", figure, Path("report.pdf")]`. A list may have texts, pictures, paths
    of files, OpenAI content parts, and other values. Other values become text in the same way as a tool's result.

    Before anything starts, raises ValueError, TypeError, CapabilityUnsupported, OptionsMismatch or ToolDefinitionError.
    Awaiting raises OutputInvalid (with `.raw` and `.result`) if no answer fitted `output=`.
    """
    turn = _begin_turn(harness, prompt, keywords, streamed=stream)
    return turn if stream else Pending(turn.collect(), "aagent(…)")


@_add_keywords
def agent(
    harness: object, prompt: PromptLike, *, stream: bool = False, **keywords: Unpack[Keywords]
) -> Result | EventStream:
    """Run one prompt and return its Result; with `stream=True`, return an iterator over its events. Works in a notebook cell.

    Raises the errors of `aagent`.
    """
    turn = _begin_turn(harness, prompt, keywords, streamed=stream)
    if not stream:
        return kernel.run_sync(turn.collect, instead="write `await aagent(…)`")
    runner = kernel.StreamRunner(instead="write `async for event in aagent(…, stream=True)`")
    return EventStream(turn, runner)


@_add_keywords
def aagent_session(
    harness: object, *, history: Sequence[Mapping[str, object]] = (), **keywords: Unpack[Keywords]
) -> AsyncSession:
    """Begin a conversation of many turns: `async with aagent_session(...) as s: await s.arun("…")`.

    `history` has the messages of an earlier conversation in OpenAI format. The session continues this conversation.
    LiteLLM does not have the keyword `history`. Raises HistoryInvalid if the messages are not valid; the error says why.
    """
    return AsyncSession(_make_config(harness, keywords), history)


@_add_keywords
def agent_session(
    harness: object, *, history: Sequence[Mapping[str, object]] = (), **keywords: Unpack[Keywords]
) -> Session:
    """Begin a conversation of many turns: `with agent_session(...) as s: s.run("…")`. See `aagent_session`."""
    return Session(aagent_session(harness, history=history, **keywords))


@_add_keywords_of_rows
def amap(prompt: str, rows: object, **keywords: Unpack[RowsKeywords]) -> Coroutine[object, None, Rows]:
    """Run the prompt for each row of a table: `await amap("Classify {{text}}", reviews, model=…, output=Label)`.

    Args:
        prompt: a text. `{{name}}` stands for a column. If the table has no column of this name, it stands for one of
            `variables`. If each row is a text, `{{row}}` stands for this text.
        rows: a pandas or polars DataFrame, or an iterable of dicts or texts. Each row is read when it is needed.
        concurrency: how many rows run at the same time. If `executor` is given, this is the number for each worker.
        store: a file that keeps each finished row. The next run takes finished rows from it, and runs failed ones again.
        max_cost: the most US dollars that all rows together may cost. `timeout`, `max_turns` and the limits in `options`
            are for one row.
        on_error: "stop": after a row has failed, no other row begins. "continue": the other rows run.
        executor: a `concurrent.futures.Executor` whose workers run the rows: a process pool, loky, Dask's
            `Client.get_executor()`.
        variables: name -> value. If a name in the prompt is not a column, its value is taken from here.
        model: as for `aagent`, or a function that takes the row (column -> cell) and returns a ScriptedModel.

    Returns a `Rows`. If a row fails, no error is raised; the row is in `rows.failed`. Before anything is sent, raises the
    errors of `aagent`, and ArgumentInvalid for a name in the prompt that is neither a column nor a variable.
    """
    return Pending(_make_rows_run(prompt, rows, keywords).collect(), "amap(…)")


@_add_keywords_of_rows
def map(  # noqa: A001 - it does what Python's `map` does, with a prompt
    prompt: str, rows: object, **keywords: Unpack[RowsKeywords]
) -> Rows:
    """Run the prompt for each row of a table and return the Rows. Works in a notebook cell. See `amap`."""
    return kernel.run_sync(_make_rows_run(prompt, rows, keywords).collect, instead="write `await amap(…)`")


def _make_rows_run(prompt: str, rows: object, keywords: RowsKeywords) -> RowsRun:
    """Check the arguments of `amap`, and make the run."""
    from .core.models import Answers
    from .teaching import ModelOfRow

    given = cast("dict[str, Any]", keywords)
    of_table = {name: given.pop(name) for name in _TableKeywords.__annotations__ if name in given}
    variables = check_values({"variables": of_table.pop("variables", None)})["variables"]
    options = RowsOptions(**of_table, variables=dict(variables or {}))
    if callable(model := given.get("model")) and not isinstance(model, Answers):
        given["model"] = ModelOfRow(model)
    return RowsRun(_make_config(Harness.TOOL_LOOP, keywords), prompt, rows, options)


def load(path: str | Path, *, repair: bool = False) -> list[dict[str, Any]]:
    """Read the messages that `session.save(path)` wrote. `agent_session(…, history=load(path))` continues the conversation.

    The file may also contain a bare list of OpenAI messages. If `repair` is True, an invalid conversation is made valid with
    as few changes as possible. Raises HistoryInvalid if the file contains no conversation, or if no provider would accept
    the conversation.
    """
    return conversation.load_messages(path, repaired=repair)


def agent_capabilities(harness: object) -> Capabilities:
    """Return the capabilities of the Tool Loop (permission modes, structured output, …)."""
    require_tool_loop(harness)
    return Capabilities()
