"""Cells: which cell ran last, a cell as the place of a run's output, and a cell's name in a traceback."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import copy_context
from typing import Any, cast

from .capture import (
    Bundle,
    Target,
    find_stream,
    flush,
    get_target,
    get_target_outside_tools,
    redirect_output,
    redirect_tool,
)
from .where import Kernel, Message, get_kernel, get_shell

# --- The cell that ran last.


class _Watcher:
    """Remembers which cell began last."""

    def __init__(self) -> None:
        self.request: Message = {}
        """The request of the cell that began last; {} before the first cell."""
        self._watching = False

    def watch(self) -> None:
        """Begin to watch; the cell that runs now counts. Does nothing outside a kernel, or if it is already watching."""
        if not self._watching and get_kernel() is not None:
            self._watching = True
            self._note()
            get_shell().events.register("pre_run_cell", self._note)

    def unwatch(self) -> None:
        """Undo `watch`."""
        if self._watching:
            self._watching, self.request = False, {}
            get_shell().events.unregister("pre_run_cell", self._note)

    def _note(self, *_: object) -> None:
        kernel = get_kernel()
        request: Message = {} if kernel is None else kernel.get_parent("shell")
        if _header(request).get("msg_type") == "execute_request":
            self.request = request


_watcher = _Watcher()
watch_cells, unwatch_cells = _watcher.watch, _watcher.unwatch


def in_callback(kernel: Kernel) -> bool:
    """Return whether the kernel handles a widget's message now."""
    return _is_of_a_widget(kernel.get_parent("shell"))


def _find_request_to_answer(kernel: Kernel) -> Message:
    """Return the message that output answers now. In a widget's callback, it is the request of the cell that began last."""
    parent: Message = kernel.get_parent("shell")
    if _is_of_a_widget(parent) and _watcher.request and not _is_shown_by_widget(parent):
        return _watcher.request
    return parent


def _header(message: Message) -> Message:
    return message.get("header") or {}


def _id(message: Message) -> str:
    return str(_header(message).get("msg_id") or "")


def _is_of_a_widget(message: Message) -> bool:
    return str(_header(message).get("msg_type", "")).startswith("comm_")


def _is_shown_by_widget(message: Message) -> bool:
    """Return whether an Output widget takes the output that answers this message."""
    ipywidgets: Any = sys.modules.get("ipywidgets")  # not imported here: without it there is no Output widget
    if ipywidgets is None:
        return False
    # private: _instances, ipywidgets 8; `Widget.widgets` of 7 would replace it, but 8 warns of its use.
    instances = getattr(ipywidgets.widgets.widget, "_instances", None)
    if instances is None:
        instances = ipywidgets.Widget.widgets
    outputs = [widget for widget in list(instances.values()) if isinstance(widget, ipywidgets.Output)]
    return any(output.msg_id == _id(message) for output in outputs)


# --- A cell as the place of a run's output.


class Cell:
    """The place of a run's output: a cell, a `capture` around the run, or a terminal."""

    cell_id: str | None
    """The front-end's id of the cell (JupyterLab, Notebook 7 and VS Code send one)."""
    execution: str
    """The id of the request that runs the cell; each run of the cell has another one. "" outside a kernel."""
    can_update: bool
    """True if `update()` shows anything. It does not in a terminal, where `display()` prints the text/plain."""

    def __init__(self, target: Target | None) -> None:
        """`target` takes the output; None stands for the terminal."""
        self._target = target
        request = target.request if isinstance(target, _CellTarget) else {}
        self.cell_id = (request.get("metadata") or {}).get("cellId")
        self.execution = _id(request)
        # JupyterLab's Output widget (jupyterlab_widgets 3) drops update_display_data.
        self.can_update = target is not None and not (request and _is_shown_by_widget(request))

    @classmethod
    def here(cls) -> Cell:
        """Return the place where the calling code's output goes now. The object stays at this place, in all threads."""
        return cls._of(get_target())

    @classmethod
    def outside_tools(cls) -> Cell:
        """Like `here`; but code inside a tool gets the place of the run that called the tool, not that of the tool's output."""
        return cls._of(get_target_outside_tools())

    @classmethod
    def _of(cls, target: Target | None) -> Cell:
        kernel = get_kernel()
        if target is None and kernel is not None:
            target = _CellTarget(_find_request_to_answer(kernel))
        return cls(target)

    def display(
        self,
        bundle: Mapping[str, object],
        metadata: Mapping[str, object] | None = None,
        display_id: str | None = None,
    ) -> None:
        """Show a MIME bundle as a new output. Its values have JSON types, or are bytes for pictures."""
        if self._target is not None:
            self._target.publish(Bundle(bundle, metadata or {}, display_id, replaces=False))
        elif get_shell() is not None:
            get_shell().display_pub.publish(data=dict(bundle), metadata=dict(metadata or {}))
        elif "text/plain" in bundle:
            sys.stdout.write(f"{bundle['text/plain']}\n")

    def update(
        self, bundle: Mapping[str, object], display_id: str, metadata: Mapping[str, object] | None = None
    ) -> None:
        """Replace the output with this `display_id`. Does nothing if `can_update` is False."""
        if self._target is not None and self.can_update:
            self._target.publish(Bundle(bundle, metadata or {}, display_id, replaces=True))

    def clear(self) -> None:
        """Remove all outputs of the place when the next output comes."""
        if self._target is not None:
            self._target.clear()

    @contextmanager
    def outputs(self) -> Iterator[None]:
        """Send prints and displays of the code inside, and of tasks and threads that it starts, to this place.

        A thread's output comes here if it runs in a copy of the context. A thread that may outlive the run must enter this, too.
        """
        if self._target is None:
            yield
            return
        with redirect_output(self._target):
            try:
                yield
            finally:  # so that these prints come before what the cell prints next
                flush(self._target)

    @contextmanager
    def outputs_of_run(self, *, may_be_cleared: bool) -> Iterator[None]:
        """Like `outputs`, for a whole run. Threads that its tools leave behind write to this place, too.

        With `may_be_cleared`, a tool's `clear_output()` clears this place; without, it does nothing.
        """
        if self._target is None:
            yield
            return
        self._target.may_be_cleared = may_be_cleared
        with redirect_tool(self._target), self.outputs():
            yield


class _CellTarget(Target):
    """Copies of the kernel's output objects, whose parent is one cell's request. They write into that cell, whatever runs later.

    An output object that is not ipykernel's own (`%%capture` or a test has put it there) is used without a copy.
    """

    def __init__(self, request: Message) -> None:
        self.request = request
        # ipykernel >= 6.23 keeps the parent in a context variable and a default of each object. The copy is made in a context
        # that nobody keeps, so only the default remains, which holds in all threads and tasks.
        self._streams = {n: copy_context().run(_copy_stream, n, request) for n in ("stdout", "stderr")}
        self._publisher, self._is_copied = copy_context().run(_copy_publisher, request)
        self._updates = _id(request), self._publisher
        """(the request's id, a publisher whose messages answer it), for the cell that began last."""
        flush(None)  # the cell's earlier prints come first

    def write(self, name: str, text: str) -> None:
        self._streams[name].write(text)

    def flush(self, name: str) -> None:
        self._streams[name].flush()

    def publish(self, bundle: Bundle) -> None:
        flush(self)  # earlier prints come first
        transient = {} if bundle.display_id is None else {"display_id": bundle.display_id}
        publisher = self._find_publisher_of_updates() if bundle.replaces else self._publisher
        with self._pass_hooks():
            publisher.publish(
                data=dict(bundle), metadata=dict(bundle.metadata), transient=transient, update=bundle.replaces
            )

    def clear(self, wait: bool = True) -> None:  # noqa: FBT001, FBT002
        flush(self)
        with self._pass_hooks():
            self._publisher.clear_output(wait=wait)

    def _pass_hooks(self) -> AbstractContextManager[None]:
        """Return the redirection to enter while the publisher sends. A copied publisher flushes sys.stdout and sys.stderr: this
        must reach our streams, not the running cell's. A publisher that is no copy has our hook, which must let the message pass.
        """
        return redirect_output(self if self._is_copied else None)

    def _find_publisher_of_updates(self) -> Any:
        """Return a publisher whose messages answer the cell that began last, which may be a later cell than this.

        Front-ends find the output to update by its display id. nbclient (0.5 to 0.11) does so, too, but reads only messages
        that answer the cell that it runs. Other messages are lost there when their cell has ended.
        """
        request = _watcher.request
        if request and self._is_copied and _id(request) != self._updates[0]:
            self._updates = _id(request), copy_context().run(_copy_publisher, request)[0]
        return self._updates[1]


def _copy_stream(name: str, request: Message) -> Any:
    from ipykernel import iostream

    stream, stream_class = find_stream(name), cast("Any", iostream.OutStream)
    if not isinstance(stream, stream_class):
        return stream
    # watchfd=False: the copy does not take over the process's file descriptors.
    copied = stream_class(stream.session, stream.pub_thread, name, echo=stream.echo, watchfd=False)
    copied.set_parent(request)
    return copied


def _copy_publisher(request: Message) -> tuple[Any, bool]:
    """Return (a publisher whose messages answer this request, True if it is a copy)."""
    from ipykernel import zmqshell

    publisher, publisher_class = get_shell().display_pub, cast("Any", zmqshell.ZMQDisplayPublisher)
    if not isinstance(publisher, publisher_class):
        return publisher, False
    copied = publisher_class(shell=get_shell())
    for name in ("session", "pub_socket", "topic"):
        setattr(copied, name, getattr(publisher, name))
    copied.set_parent(request)
    return copied, True


# --- The name of a cell in a traceback: `Cell In[3], line 4`.

_FILE = re.compile(r'File "([^"\n]+)", line')
_IPYTHON_7 = re.compile(r"<ipython-input-(\d+)-")
"""A cell's file name in a terminal with IPython 7.34."""
_WARNING = re.compile(r"^(\S+\.py):(\d+): (?=\w*Warning\b)", re.MULTILINE)


def name_cells(traceback: str) -> str:
    """Replace the temporary file names of cells by `Cell In[3]`, in tracebacks and in lines of `warnings`.

    The kernel makes these names. They mean nothing to a person, and differ at each start. Other files keep their names.
    """

    def in_traceback(match: re.Match[str]) -> str:
        cell = _name_cell(match[1])
        return f"{cell}, line" if cell else match[0]

    def in_warning(match: re.Match[str]) -> str:
        cell = _name_cell(match[1])
        return f"{cell}, line {match[2]}: " if cell else match[0]

    return _WARNING.sub(in_warning, _FILE.sub(in_traceback, traceback))


def find_last_error() -> BaseException | None:
    """Return the error that the shell has shown last, or None. IPython keeps it in `sys.last_value`, as Python's prompt does."""
    error = getattr(sys, "last_value", None)
    return error if isinstance(error, BaseException) else None


def _name_cell(filename: str) -> str:
    """Return `Cell In[3]` for the file name under which IPython has compiled that cell; "" for any other file."""
    compiler: Any = getattr(get_shell(), "compile", None)
    if hasattr(compiler, "format_code_name"):  # IPython >= 8
        return " ".join(compiler.format_code_name(filename) or ())
    if plain := _IPYTHON_7.match(filename):
        return f"Cell In[{plain[1]}]"
    # private: _filename_map, IPython 7.34 in a kernel; format_code_name reads it from 8 on.
    number = getattr(compiler, "_filename_map", {}).get(filename)
    return "" if number is None else f"Cell In[{number}]"
