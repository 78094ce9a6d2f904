"""The kernel: the only file that imports ipykernel, with its two helpers `kernel_pump.py` and `kernel_loop.py`.

A cell that waits for a click, version by version
-------------------------------------------------

A front-end sends a click as a `comm_msg` on the shell channel, behind the cell that waits for it, and a kernel
handles one shell message at a time. Three things have to happen while our cell waits: the comm message overtakes it,
everything else keeps its place, and Stop is noticed.

*ipykernel 6.17 to 6.x.* `Kernel.schedule_dispatch` puts each shell message into `kernel.msg_queue`, and one
coroutine takes them out and awaits them one by one; ours is the one being awaited. `attending()` runs a background
coroutine (`Pump`, in `kernel_pump.py`) that takes the comm messages out of that queue, puts all else back in order,
and lets the kernel dispatch them. Dispatching a message makes it the "parent" of whatever is printed next, for the
whole process, and remembers the SIGINT handler in one attribute of the kernel; both are put back when it is done.

*ipykernel 7.0 to 7.3.* No such queue: an asyncio lock held by the running cell. Not supported (excluded by the
dependency): clicks wait for the cell unless the front-end sends them over a subshell.

*ipykernel 7.4 and later.* The kernel itself dispatches comm messages concurrently while a cell awaits, in the main
thread, also when the front-end uses subshells. Nothing to do.

*All of them.* A SIGINT during a quiet await is noticed when the loop wakes for another reason, because the handler's
`add_callback` does not wake it (tornado 6.6): so something of ours wakes it five times a second. A subshell (7.x) is
a thread with its own loop: code called there must use `call_soon_threadsafe` to reach a future of the main one.

Called from sync code (`run_sync`), the same has to hold inside a loop that is already running: `kernel_loop.py` says
how. `%%toolloop` itself is an awaited cell and does not need that. When the sync code is a widget callback that came
amid a waiting cell, that cell goes on, and may end, before the callback does: on ipykernel 6 it gets its parent back
for so long, and on 7.4 the next cell begins when the callback is done (`aside`, in `kernel_pump.py`).

Output goes to the cell that started the run: `Cell.here()` copies the kernel's own output objects (two `OutStream`s,
one `ZMQDisplayPublisher`) and sets their parent once and for all, so neither a comm message nor a later cell can
redirect them; `kernel_output.py` brings prints and displays there.

Private names are marked "private:", here and in the helpers, with the versions that have them and what would replace
them.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import copy_context
from importlib.util import find_spec
from typing import Any, Literal, TypeVar

from . import kernel_terminal
from .kernel_background import OneLoop
from .kernel_cells import (
    ends_its_cell,
    in_callback,
    parent_of_output,
    stopped,
    taken_by_a_widget,
    unwatch,
    watch,
)
from .kernel_loop import (
    PATIENCE,
    Interrupted,
    drive,
    interruptible,
    uninterrupted,
)
from .kernel_output import (
    Bundle,
    Sink,
    capture,
    current_target,
    flush,
    into,
    shell,
    unwrapped,
)
from .kernel_place import Place
from .kernel_pump import Pump, aside

__all__ = [
    "PATIENCE",
    "Bundle",
    "Cell",
    "Sink",
    "attending",
    "attending_to_cell",
    "capture",
    "executes_notebooks",
    "has_stdin",
    "has_widget_frontend",
    "has_widgets",
    "in_kernel",
    "interruptible",
    "one_loop",
    "overtaking",
    "run_sync",
    "shell",
    "stopped",
    "terminal",
    "uninterrupted",
    "unwatch_cells",
    "watch_cells",
]

T = TypeVar("T")

# --- where are we ---------------------------------------------------------------------------------------------


def _kernel() -> Any:
    """The ipykernel, or None. Another kernel (xeus-python, JupyterLite) has none of what is touched here."""
    kernelbase, kernel = sys.modules.get("ipykernel.kernelbase"), getattr(shell(), "kernel", None)
    return kernel if kernelbase is not None and isinstance(kernel, kernelbase.Kernel) else None


def in_kernel() -> bool:
    """Whether this is a Jupyter kernel (not a terminal, not plain Python)."""
    return _kernel() is not None


def terminal() -> bool:
    """Whether a person sits at a terminal: no kernel, and stdin is one."""
    return not in_kernel() and sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()


def has_stdin() -> bool:
    """Whether somebody can be asked by `input()`.

    In a kernel, what the execute request said: nbconvert, nbclient and papermill say no.
    """
    kernel = _kernel()
    if kernel is None:
        return terminal()
    # private: _allow_stdin, ipykernel 6 and 7. It is content["allow_stdin"] of the last execute request, and stays
    # readable in a widget callback, whose own message does not have it; `get_parent()` would do for cells alone.
    return bool(getattr(kernel, "_allow_stdin", False))


def has_widgets() -> bool:
    """Whether the kernel has ipywidgets: a small environment may not. Nothing is imported."""
    return find_spec("ipywidgets") is not None


def has_widget_frontend() -> bool:
    """Whether somebody may be there to click a widget: a kernel with widgets, whose client also answers `input()`.

    No message says "I show widgets". JupyterLab, Notebook, VS Code and Colab allow stdin; those who run a notebook
    with nobody there do not. `%toolloop doctor` finds out for certain, by a click.
    """
    return in_kernel() and has_stdin() and has_widgets()


def executes_notebooks() -> bool:
    """Whether the kernel was started by nbclient, for nbconvert, papermill and their like: nobody can click there.

    nbclient keeps the history of its kernels in memory (`ipython_hist_file`, 0.5 to 0.11), which nobody else does.
    """
    history = getattr(shell(), "history_manager", None)
    return in_kernel() and str(getattr(history, "hist_file", "")) == ":memory:"


def overtaking() -> Literal["kernel", "queue", "subshells only", "no kernel"]:
    """How a click overtakes the running cell: by the kernel itself, by `attending()`, hardly, or not at all."""
    kernel = _kernel()
    if kernel is None:
        return "no kernel"
    if hasattr(kernel, "msg_queue"):
        return "queue"
    from ipykernel._version import version_info

    return "kernel" if version_info[:2] >= (7, 4) else "subshells only"


# --- sync over async ------------------------------------------------------------------------------------------


def run_sync(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run `make()` to its end from sync code and return what it returns. The only bridge from sync to async.

    Works in a cell, in a function or a widget callback (the kernel's loop is running there: it is turned from
    inside, so clicks and other tasks go on), in a thread, in a terminal and in plain Python.

    An interrupt cancels the coroutine, which runs to its end; what it returns then is returned. Raises
    KeyboardInterrupt only when it lets the cancel pass.
    """
    try:
        outer = asyncio.current_task()
    except RuntimeError:  # no loop is running here
        outer = None

    said: list[str] = []
    kernel = _kernel()
    # Of a widget's callback, now: while it waits, the cell that it came amid is the parent again.
    cell = Cell.here() if kernel is not None and in_callback(kernel) else None

    async def attended() -> T:
        async with _attending(outer):
            try:
                return await make()
            except asyncio.CancelledError as error:
                said.append(str(error))
                raise

    context = copy_context()
    if cell is not None:
        context.run(cell.let_be_here)
    # ipykernel 7 runs all messages in the context of the cell that is now waiting here: none of them may inherit
    # the target of our output from it.
    try:
        with into(None), aside(kernel, outer):
            return drive(attended, context, _idle_loop())
    except Interrupted as error:
        error.args = tuple(text for text in said if text) or error.args
        if cell is not None:  # no cell shows the callback's error
            cell.display({"text/plain": f"KeyboardInterrupt: {error}"})
        ends_its_cell(error)
        raise


def one_loop() -> OneLoop:
    """As `run_sync`, for the steps of one stream: all on one loop, where none is running here on one in the background."""
    return OneLoop(run_sync)


def _idle_loop() -> asyncio.AbstractEventLoop | None:
    """The loop on which a terminal IPython runs awaited cells, so that both ways use one loop."""
    return None if shell() is None or in_kernel() else kernel_terminal.idle_loop()


# --- the cell waits, clicks arrive ----------------------------------------------------------------------------


@asynccontextmanager
async def attending() -> AsyncIterator[None]:
    """While entered, clicks arrive although the cell waits, and Stop is noticed at once.

    Re-entrant and counted. In an awaited cell of a terminal IPython, Ctrl-C cancels the run instead of leaving its
    task half-done on IPython's loop. Elsewhere outside a kernel it does nothing.
    """
    with _quiet_late_clicks():
        async with _attending(None):
            yield


@asynccontextmanager
async def attending_to_cell(*, may_be_cleared: bool = True) -> AsyncIterator[None]:
    """The same for a run of the API, whose tools' output goes to the cell that started it, whatever runs meanwhile."""
    async with attending():
        with Cell.here().run(may_be_cleared=may_be_cleared):
            yield


@contextmanager
def _quiet_late_clicks() -> Iterator[None]:
    """While entered, a click on a card that is gone does not print "No such comm" (package comm 0.2, logger "Comm")."""

    def passes(record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith("No such comm:")

    logger = logging.getLogger("Comm")
    logger.addFilter(passes)
    try:
        yield
    finally:
        logger.removeFilter(passes)


@asynccontextmanager
async def _attending(outer: asyncio.Task[Any] | None) -> AsyncIterator[None]:
    """`outer` is the task in whose midst a nested run waits."""
    kernel = _kernel()
    kernel_loop = getattr(getattr(kernel, "io_loop", None), "asyncio_loop", None)
    if kernel_loop is None:
        with kernel_terminal.ctrl_c():
            yield
    elif kernel_loop is asyncio.get_running_loop():
        pump = Pump.join(kernel, outer)
        try:
            yield
        finally:
            await pump.leave()
    else:  # a run in another thread or in a subshell: it is the kernel's loop that has to let clicks pass
        joined: list[Pump] = []
        kernel_loop.call_soon_threadsafe(lambda: joined.append(Pump.join(kernel, None)))
        try:
            yield
        finally:
            if not kernel_loop.is_closed():
                kernel_loop.call_soon_threadsafe(lambda: joined.pop().leave_soon())


# --- the cell as a place for output ---------------------------------------------------------------------------


def watch_cells() -> None:
    """Take note of each cell that runs from now on: in the callback of a widget, the last one gets the output."""
    if (kernel := _kernel()) is not None:
        watch(kernel, shell().events)


def unwatch_cells() -> None:
    """Undo `watch_cells`."""
    unwatch(shell().events)


class Cell(Place):
    """The cell that a run writes into: the one that was current when `here()` was called, from any thread.

    `cell_id` is the front-end's id of the cell (JupyterLab, Notebook 7 and VS Code send one), or None.
    """

    cell_id: str | None = None
    execution: str = ""
    """The id of the request that runs the cell, another one each time; "" outside a kernel."""

    @classmethod
    def here(cls) -> Cell:
        """The place where output of the calling code goes; inside another run or a `capture`, that one."""
        target = current_target()
        kernel = _kernel()
        if target is None and kernel is not None:
            target = _KernelTarget(kernel, parent_of_output(kernel))
        cell = cls(target)
        cell.cell_id = getattr(target, "cell_id", None)
        cell.execution = getattr(target, "execution", "")
        if isinstance(target, _KernelTarget) and taken_by_a_widget(target.execution):
            # JupyterLab's Output widget (jupyterlab_widgets 3) drops update_display_data.
            cell.can_update = False
        return cell


class _KernelTarget:
    """Copies of the kernel's output objects with a fixed parent: whatever comes next, they write into that cell.

    What is not ipykernel's own (`%%capture` stands there, or a test) is used as it is found.
    """

    def __init__(self, kernel: Any, parent: Mapping[str, Any]) -> None:
        self.cell_id: str | None = (parent.get("metadata") or {}).get("cellId")
        self.execution = str((parent.get("header") or {}).get("msg_id") or "")
        # ipykernel >= 6.23 keeps parents in a contextvar for each object; set in a context that nobody keeps, it
        # leaves the object's own default, which holds in all threads and tasks.
        copy_context().run(self._copy, kernel, parent)
        flush(None)  # what the cell printed before the run comes before

    def _copy(self, kernel: Any, parent: Mapping[str, Any]) -> None:
        from ipykernel import iostream, zmqshell

        stream_class: Any = iostream.OutStream
        publisher_class: Any = zmqshell.ZMQDisplayPublisher

        self._streams: dict[str, Any] = {}
        for name in ("stdout", "stderr"):
            stream = unwrapped(getattr(sys, name))
            if isinstance(stream, stream_class):
                # watchfd=False: the copy does not take over the process's file descriptors.
                copied = stream_class(
                    stream.session, stream.pub_thread, name, echo=stream.echo, watchfd=False
                )
                copied.set_parent(parent)
                stream = copied
            self._streams[name] = stream
        self._publisher: Any = shell().display_pub
        self._copied = isinstance(self._publisher, publisher_class)
        if self._copied:
            found, self._publisher = self._publisher, publisher_class(shell=shell())
            for name in ("session", "pub_socket", "topic"):
                setattr(self._publisher, name, getattr(found, name))
            self._publisher.set_parent(parent)

    def write(self, name: str, text: str) -> None:
        self._streams[name].write(text)

    def flush(self, name: str) -> None:
        self._streams[name].flush()

    def publish(self, bundle: Bundle) -> None:
        flush(self)  # what was printed before comes before
        transient = {} if bundle.display_id is None else {"display_id": bundle.display_id}
        # The copy flushes sys.stdout and sys.stderr: better ours again than those of the running cell. What is found
        # as it is has our hook on it, which must fall through.
        with into(self if self._copied else None):
            self._publisher.publish(
                data=dict(bundle), metadata=dict(bundle.metadata), transient=transient, update=bundle.replaces
            )

    may_be_cleared = False

    def clear(self, wait: bool = True) -> None:  # noqa: FBT001, FBT002 - IPython's own signature
        flush(self)
        with into(self if self._copied else None):
            self._publisher.clear_output(wait=wait)
