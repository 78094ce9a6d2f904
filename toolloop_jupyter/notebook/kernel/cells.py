"""A place for output, as the rest of the package knows it: display, update, clear, and the output of code."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import copy_context
from typing import Any

from .capture import (
    Bundle,
    Target,
    current_target,
    flush,
    into,
    keeping,
    let_be,
    shell,
    unwrapped,
)
from .where import _kernel


class Place:
    """A place for output: a target, or (None) the terminal.

    `can_update` says whether `update()` shows anything: not in a terminal, where `display()` prints the text/plain.
    """

    def __init__(self, target: Target | None) -> None:
        self._target = target
        self.can_update = target is not None

    def display(
        self,
        bundle: Mapping[str, Any],
        metadata: Mapping[str, Any] | None = None,
        display_id: str | None = None,
    ) -> None:
        """Show a MIME bundle (values of JSON types, or bytes for pictures) as a new output."""
        self._publish(Bundle(bundle, metadata or {}, display_id, replaces=False))

    def update(
        self, bundle: Mapping[str, Any], display_id: str, metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Replace what was shown under `display_id`. Does nothing where `can_update` is False."""
        if self.can_update:
            self._publish(Bundle(bundle, metadata or {}, display_id, replaces=True))

    def clear(self) -> None:
        """Take everything away that the place shows, as soon as the next output comes."""
        if self._target is not None:
            self._target.clear()

    def outputs(self) -> AbstractContextManager[None]:
        """Send prints and displays of the code inside, and of what it starts, to this place.

        Threads count when they run in a copy of the context. One that may outlive the run enters it itself, in the
        thread: then what it prints afterwards still goes here.
        """
        return nullcontext() if self._target is None else self._inside(self._target)

    @contextmanager
    def _inside(self, target: Target) -> Iterator[None]:
        with into(target):
            try:
                yield
            finally:  # before what the cell prints next
                flush(target)

    def let_be_here(self) -> None:
        """Let this be the place of what runs in the current context from now on."""
        let_be(self._target)

    def run(self, *, may_be_cleared: bool) -> AbstractContextManager[None]:
        """The same for a whole run: what its tools leave behind writes to this place, too.

        `may_be_cleared` says whether their `clear_output()` clears it: not where something of ours stands there.
        """
        if self._target is None:
            return nullcontext()
        self._target.may_be_cleared = may_be_cleared
        return self._whole_run(self._target)

    @contextmanager
    def _whole_run(self, target: Target) -> Iterator[None]:
        with keeping(target), self._inside(target):
            yield

    def _publish(self, bundle: Bundle) -> None:
        if self._target is not None:
            self._target.publish(bundle)
        elif shell() is not None:
            shell().display_pub.publish(data=dict(bundle), metadata=dict(bundle.metadata))
        elif "text/plain" in bundle:
            sys.stdout.write(f"{bundle['text/plain']}\n")


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


_last: list[Mapping[str, Any]] = []
"""The request of the cell that ran last, once one was seen."""
_watching: list[Callable[..., None]] = []


def watch(kernel: Any, events: Any) -> None:
    """Take note of the present cell and of each that runs from now on. Doing it again changes nothing."""
    if _watching:
        return

    def note(*_: object) -> None:
        parent = kernel.get_parent("shell")
        if _header(parent).get("msg_type") == "execute_request":
            _last[:] = [parent]

    note()
    _watching.append(note)
    events.register("pre_run_cell", note)


def unwatch(events: Any) -> None:
    """Undo `watch`."""
    if _watching:
        events.unregister("pre_run_cell", _watching.pop())
        _last.clear()


def parent_of_output(kernel: Any) -> Mapping[str, Any]:
    """The message in answer to which something is to be shown that is shown now."""
    parent: Mapping[str, Any] = kernel.get_parent("shell")
    header = _header(parent)
    if _is_of_a_widget(header) and _last and not taken_by_a_widget(str(header.get("msg_id"))):
        return _last[0]
    return parent


def in_callback(kernel: Any) -> bool:
    """Whether a widget's message is being handled."""
    return _is_of_a_widget(_header(kernel.get_parent("shell")))


def _header(message: Mapping[str, Any]) -> Mapping[str, Any]:
    return message.get("header") or {}


def _is_of_a_widget(header: Mapping[str, Any]) -> bool:
    return str(header.get("msg_type", "")).startswith("comm_")


def taken_by_a_widget(msg_id: str) -> bool:
    """Whether an Output widget takes what is shown in answer to the message of this id."""
    ipywidgets: Any = sys.modules.get("ipywidgets")  # nothing is imported: who enters a widget has it
    if ipywidgets is None:
        return False
    # private: _instances, ipywidgets 8; before, it was `Widget.widgets`, which 8 still has but warns of.
    instances = getattr(ipywidgets.widgets.widget, "_instances", None)
    if instances is None:
        instances = ipywidgets.Widget.widgets
    outputs = [widget for widget in list(instances.values()) if isinstance(widget, ipywidgets.Output)]
    return any(output.msg_id == msg_id for output in outputs)


# --- Where a traceback's lines stand, as a notebook names it: `Cell In[3], line 4`. ---------------------------

_FILE = re.compile(r'File "([^"\n]+)", line')
_IPYTHON_7 = re.compile(r"<ipython-input-(\d+)-")
"""A cell's file name in a terminal with IPython 7.34."""
_WARNING = re.compile(r"^(\S+\.py):(\d+): (?=\w*Warning\b)", re.MULTILINE)


def with_cell_names(traceback: str) -> str:
    """Replace the kernel's temporary file names of cells, which mean nothing to a person and differ at each start.

    In tracebacks, and where `warnings` names a line. Other files keep their names.
    """
    traceback = _FILE.sub(
        lambda found: f"{_cell(found[1]) or found[0].removesuffix(', line')}, line", traceback
    )
    return _WARNING.sub(
        lambda found: f"{_cell(found[1])}, line {found[2]}: " if _cell(found[1]) else found[0], traceback
    )


def _cell(filename: str) -> str:
    """`Cell In[3]` for the file name that IPython compiled that cell under, or "" for any other file."""
    compiler: Any = getattr(shell(), "compile", None)
    if hasattr(compiler, "format_code_name"):  # IPython >= 8
        return " ".join(compiler.format_code_name(filename) or ())
    if plain := _IPYTHON_7.match(filename):
        return f"Cell In[{plain[1]}]"
    # IPython 7.34 in a kernel: private, and what format_code_name reads from 8 on.
    number = getattr(compiler, "_filename_map", {}).get(filename)
    return "" if number is None else f"Cell In[{number}]"
