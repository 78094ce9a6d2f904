"""Show in a notebook what the Python API makes: our own streams and Results, and the streams and Results of LiteLLM's harnesses."""

from __future__ import annotations

import contextlib
import uuid
import weakref
from collections.abc import Coroutine, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from ...core.events import Mistake, Presenter, Result, Rows
from ...core.session import AsyncEventStream, Pending
from .. import kernel
from ..html import tell_count
from ..transcript import (
    draw_finished_rows,
    draw_head,
    draw_notice,
    draw_timeline,
    make_bundle,
    render,
    write_markdown,
)
from .column import EMPTY
from .litellm_stream import LiteLLMStream, convert_result, is_theirs
from .outputs import LOADING
from .view import CellRun, ViewOptions

_importing: set[str] = set()
"""The execution ids of the cells that show a line about LiteLLM's import now. Many runs of a cell may wait at the same time."""


@contextlib.contextmanager
def say_importing() -> Iterator[None]:
    """Return a context manager, in which a run waits for LiteLLM's import. Meanwhile, a line in the run's cell says so."""
    cell, identity = kernel.Cell.here(), f"toolloop-loading-{uuid.uuid4().hex}"
    if cell.execution in _importing:
        yield
        return
    _importing.add(cell.execution)
    cell.display(make_bundle(draw_notice(LOADING)), display_id=identity)
    try:
        yield
    finally:
        _importing.discard(cell.execution)
        cell.update(EMPTY, identity)


_was_told: ContextVar[bool] = ContextVar("toolloop_was_told", default=False)


def warn_of_ignored_ctrl_c() -> None:
    """If Ctrl-C cannot end the run that begins, show a line that says so. A run within a tool of this run does not repeat it."""
    if kernel.ignores_ctrl_c() and not _was_told.get():
        _was_told.set(True)
        kernel.Cell.here().display(
            make_bundle(draw_notice("this process ignores Ctrl-C: %toolloop doctor says what to do"))
        )


def show(stream: Any, name: str | None = None) -> Any:
    """Show a run in the cell while it runs: its events and its approval cards. Returns the run's Result.

    Write `await show(aagent(…, stream=True))` for an async stream, `show(agent(…, stream=True))` for a sync stream. `name` is
    the notebook's variable that gets the Result.

    `stream` may also be a stream of LiteLLM's own harnesses (`litellm.aagent(…, stream=True)`). Then LiteLLM's Result is
    returned. If `stream` was read to its end before, only its Result is shown. If `stream` is a Result, this Result is shown,
    and None is returned. Raises Mistake for any other value.
    """
    if isinstance(stream, Result) or is_theirs(stream, Result):
        kernel.Cell.here().display(make_bundle(render(convert_result(stream))))
        return None  # a Result would be the cell's value, and be shown a second time
    if not hasattr(stream, "cancel") or not (hasattr(stream, "__anext__") or hasattr(stream, "__next__")):
        what = f"a value of type {type(stream).__name__}"
        if isinstance(stream, Coroutine):
            stream.close()
            what = "a run without stream=True"
        way = "show(agent(…, stream=True)), or await show(aagent(…, stream=True))"
        raise Mistake(f"show() takes a stream, not {what}: {way}")
    if hasattr(stream, "__anext__"):
        return Pending(_show(stream, name), "show(…)")
    return kernel.run_sync(lambda: _show(stream, name), instead="write `await show(aagent(…, stream=True))`")


async def _show(stream: Any, name: str | None) -> Any:
    ours = getattr(stream, "aio", stream)  # a sync stream of ours has an async stream as `aio`
    if getattr(stream, "result", None) is not None:
        kernel.Cell.here().display(make_bundle(render(convert_result(stream.result))))
        result = stream.result
    elif not isinstance(ours, AsyncEventStream):
        theirs = LiteLLMStream(stream)
        run = CellRun(kernel.Cell.here(), _HEAD, ViewOptions(name, hint=None, unattended="leave"))
        run.do_without_hooks()
        # `%toolloop show` needs this Result. For runs of our own, `api.py` calls `keep`.
        keep(await _follow(theirs, run))
        return theirs.result
    else:
        options = ViewOptions(name, ours.model, asks=ours.approver == "reader")
        run = CellRun(kernel.Cell.here(), _HEAD, options)
        if not ours.observe(run.hooks):
            run.do_without_hooks()
        result = await _follow(ours, run)
    if isinstance(result, Result):
        mark_shown(result)
    return result


_HEAD = draw_head("", (), None, None)


async def _follow(stream: Any, run: CellRun) -> Result:
    async with kernel.serving_clicks():
        return await kernel.await_with_cleanup(run.follow(stream, stream.cancel))


# --- a Result as a cell's value -------------------------------------------------------------------------------

_last: list[Result] = []
"""[the Result of the last run of a `%%toolloop` cell or of the Python API]; [] before the first run and outside IPython."""
_just_shown: list[tuple[weakref.ref[Any], str]] = []
"""[(value, execution)]: the Result or Rows whose run was shown last, and the execution id of the cell. If this Result or Rows
is also the cell's value, it is not shown again."""


def keep(result: Result) -> None:
    """Keep `result` as the Result of the last run. `%toolloop show` and `%toolloop export` use it."""
    _last[:] = [result]


def get_last() -> Result | None:
    """Return the Result of the last run, even if this run has failed or was cancelled. None before the first run."""
    return _last[0] if _last else None


def mark_shown(result: Result | Rows) -> None:
    """Remember that this cell has shown the run of `result` while it ran."""
    _just_shown[:] = [(weakref.ref(result), kernel.Cell.here().execution)]


def _was_shown(result: object) -> bool:
    """Return whether this cell has just shown the run of `result`. This deletes the information: a second call returns False."""
    here = kernel.Cell.here()
    shown = any(one() is result and where == here.execution for one, where in _just_shown)
    _just_shown.clear()
    return shown


class Diagram:
    """A diagram that a notebook shows as an image, and a terminal as text."""

    def __init__(self, bundle: Mapping[str, str]) -> None:
        self._bundle = bundle

    def _repr_mimebundle_(self, **_: object) -> Mapping[str, str]:
        return self._bundle

    def __repr__(self) -> str:
        return self._bundle["text/plain"]


class NotebookPresenter(Presenter):
    """Shows the transcripts of Results and of Rows in the cells of a notebook."""

    def display(self, value: Any) -> None:
        """Show the transcript of `value` in the current cell, unless this cell has just shown the run."""
        if not _was_shown(value):
            kernel.Cell.here().display(self.bundle(value))
        elif not kernel.is_in_kernel():  # after "Out[n]:"
            short = (
                isinstance(value, Result)
                and f"<Result: {value.stop_reason}, {tell_count(len(value.calls), 'tool call')}>"
            )
            print(short or repr(value))  # noqa: T201

    def bundle(self, value: Any) -> Mapping[str, str]:
        return make_bundle(render(value) if isinstance(value, Result) else draw_finished_rows(value))

    def markdown(self, result: Result) -> str:
        return write_markdown(result)

    def diagram(self, result: Result) -> Diagram:
        """Return the diagram of a run. It shows when each model call, approval and tool call began and ended."""
        return Diagram(make_bundle(draw_timeline(result)))
