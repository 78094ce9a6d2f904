"""Remember which cell ran last, send a run's output to its cell, and write readable names of cells into tracebacks."""

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
    """Remembers the cell that began last."""

    def __init__(self) -> None:
        self.request: Message = {}
        """The `execute_request` message of the cell that began last. {} if no cell has begun yet."""
        self._watching = False

    def watch(self) -> None:
        """Remember the present cell, and from now on each cell that begins. Outside a kernel, do nothing."""
        if not self._watching and get_kernel() is not None:
            self._watching = True
            self._note()
            get_shell().events.register("pre_run_cell", self._note)

    def unwatch(self) -> None:
        """Stop what `watch` has begun, and forget the last cell."""
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
    """Return True if the kernel is handling a widget's message now."""
    return _is_of_a_widget(kernel.get_parent("shell"))


def _find_request_to_answer(kernel: Kernel) -> Message:
    """Return the message to which new output belongs. Jupyter calls this message the parent of the output.

    In a widget's callback, return the request of the cell that began last, so that the output appears in this cell. But if an
    Output widget shows the output of the callback, return the widget's message.
    """
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
    """Return True if an Output widget shows the output whose parent is this message."""
    ipywidgets: Any = sys.modules.get("ipywidgets")  # if it is not imported yet, there is no Output widget
    if ipywidgets is None:
        return False
    # private: ipywidgets 8 has `_instances`. ipywidgets 7 has the public `Widget.widgets`, but version 8 warns about its use.
    instances = getattr(ipywidgets.widgets.widget, "_instances", None)
    if instances is None:
        instances = ipywidgets.Widget.widgets
    outputs = [widget for widget in list(instances.values()) if isinstance(widget, ipywidgets.Output)]
    return any(output.msg_id == _id(message) for output in outputs)


# --- A cell as the place of a run's output.


class Cell:
    """The place to which a run's output goes: a cell, a `capture` block that contains the run, or a terminal."""

    cell_id: str | None
    """The id that the front-end has given the cell. JupyterLab, Notebook 7 and VS Code send an id; otherwise this is None."""
    execution: str
    """The id of the message that started this execution of the cell. Each execution has a different id. "" outside a kernel."""
    can_update: bool
    """True if `update()` can replace an output. False in a terminal: there, `display()` prints the text/plain of the bundle."""

    def __init__(self, target: Target | None) -> None:
        """Make the place for the output that goes to `target`. None means the terminal."""
        self._target = target
        request = target.request if isinstance(target, _CellTarget) else {}
        self.cell_id = (request.get("metadata") or {}).get("cellId")
        self.execution = _id(request)
        # JupyterLab's Output widget (jupyterlab_widgets 3) ignores `update_display_data` messages.
        self.can_update = target is not None and not (request and _is_shown_by_widget(request))

    @classmethod
    def here(cls) -> Cell:
        """Return the place to which the calling code's output goes now.

        The returned object keeps this place: it sends output there from all threads, even while another cell runs.
        """
        return cls._of(get_target())

    @classmethod
    def outside_tools(cls) -> Cell:
        """Return the same as `here`, but for code in a tool, return the place of the run that has called the tool.

        The output of the tool itself may go to another place, since the run may capture it.
        """
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
        """Show a MIME bundle as a new output. The values in `bundle` have JSON types; pictures may be bytes."""
        if self._target is not None:
            self._target.publish(Bundle(bundle, metadata or {}, display_id, replaces=False))
        elif get_shell() is not None:
            get_shell().display_pub.publish(data=dict(bundle), metadata=dict(metadata or {}))
        elif "text/plain" in bundle:
            sys.stdout.write(f"{bundle['text/plain']}\n")

    def update(
        self, bundle: Mapping[str, object], display_id: str, metadata: Mapping[str, object] | None = None
    ) -> None:
        """Replace the output that has this `display_id`. If `can_update` is False, do nothing."""
        if self._target is not None and self.can_update:
            self._target.publish(Bundle(bundle, metadata or {}, display_id, replaces=True))

    def clear(self) -> None:
        """Remove all outputs at this place. They disappear when the next output arrives, so that the page does not flicker."""
        if self._target is not None:
            self._target.clear()

    @contextmanager
    def outputs(self) -> Iterator[None]:
        """Send prints and displays of the `with` block, and of the tasks that it starts, to this place.

        The output of a thread is sent here if the thread runs in a copy of the context. If a thread may still run after the end
        of the run, the code in the thread must use this context manager, too.
        """
        if self._target is None:
            yield
            return
        with redirect_output(self._target):
            try:
                yield
            finally:  # so that these prints appear before later prints of the cell
                flush(self._target)

    @contextmanager
    def outputs_of_run(self, *, may_be_cleared: bool) -> Iterator[None]:
        """Do the same as `outputs` for a whole run, and include threads that still run after their tool has ended.

        If `may_be_cleared` is True, `clear_output()` in a tool clears this place. If not, `clear_output()` does nothing.
        """
        if self._target is None:
            yield
            return
        self._target.may_be_cleared = may_be_cleared
        with redirect_tool(self._target), self.outputs():
            yield


class _CellTarget(Target):
    """Sends output to one cell, even if another cell is running.

    A _CellTarget has copies of the kernel's output objects. The parent of these copies is the request of the cell. If `%%capture`
    or a test has replaced one of ipykernel's output objects, the replacement itself is used, not a copy of it.
    """

    def __init__(self, request: Message) -> None:
        self.request = request
        # In ipykernel >= 6.23, each output object has two places for its parent: a context variable, and a default for all other
        # contexts. The copies are made in a temporary context. So the variable has no value later, and the default applies in
        # all threads and tasks.
        self._streams = {n: copy_context().run(_copy_stream, n, request) for n in ("stdout", "stderr")}
        self._publisher, self._is_copied = copy_context().run(_copy_publisher, request)
        self._updates = _id(request), self._publisher
        """(the id of a request, a publisher whose messages have this request as parent). When a later cell has begun,
        `_find_publisher_of_updates` replaces both."""
        flush(None)  # so that earlier prints of the cell appear first

    def write(self, name: str, text: str) -> None:
        self._streams[name].write(text)

    def flush(self, name: str) -> None:
        self._streams[name].flush()

    def publish(self, bundle: Bundle) -> None:
        flush(self)  # so that earlier prints appear first
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
        """Return the redirection that must be active while the publisher sends a message.

        A copied publisher flushes `sys.stdout` and `sys.stderr`. With a redirection to this target, the flush reaches the streams
        of this target, and not the streams of the running cell. If the publisher is not a copy, it has the hook of `capture.py`.
        Then output must not be redirected, or the hook would send the message back to this target.
        """
        return redirect_output(self if self._is_copied else None)

    def _find_publisher_of_updates(self) -> Any:
        """Return a publisher for updates. The parent of its messages is the request of the cell that began last.

        This may be a later cell than the cell of this target. A front-end finds the output to update by its display id, so the
        parent has no effect there. nbclient (0.5 to 0.11) also uses the display id. But it reads only messages whose parent is
        the cell that it is running, so an update with an earlier cell as parent would be lost.
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
    # With watchfd=False, the copy does not redirect the file descriptors of the process.
    copied = stream_class(stream.session, stream.pub_thread, name, echo=stream.echo, watchfd=False)
    copied.set_parent(request)
    return copied


def _copy_publisher(request: Message) -> tuple[Any, bool]:
    """Return (a publisher, True if the publisher is a copy). The parent of a copy's messages is `request`."""
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
"""Matches the file name of a cell in a terminal with IPython 7.34."""
_WARNING = re.compile(r"^(\S+\.py):(\d+): (?=\w*Warning\b)", re.MULTILINE)


def name_cells(traceback: str) -> str:
    """Return the traceback with readable names such as `Cell In[3]` in the place of the temporary file names of cells.

    Lines of `warnings` are changed in the same way. The kernel chooses the temporary names: they say nothing to a person, and are
    different at each start of the kernel. The names of other files are not changed.
    """

    def in_traceback(match: re.Match[str]) -> str:
        cell = _name_cell(match[1])
        return f"{cell}, line" if cell else match[0]

    def in_warning(match: re.Match[str]) -> str:
        cell = _name_cell(match[1])
        return f"{cell}, line {match[2]}: " if cell else match[0]

    return _WARNING.sub(in_warning, _FILE.sub(in_traceback, traceback))


def find_last_error() -> BaseException | None:
    """Return the error that the shell has shown last, or None. IPython stores the error in `sys.last_value`, as Python does."""
    error = getattr(sys, "last_value", None)
    return error if isinstance(error, BaseException) else None


def _name_cell(filename: str) -> str:
    """Return a name such as `Cell In[3]` if `filename` is the temporary file name of a cell. Return "" for other files."""
    compiler: Any = getattr(get_shell(), "compile", None)
    if hasattr(compiler, "format_code_name"):  # IPython >= 8
        return " ".join(compiler.format_code_name(filename) or ())
    if plain := _IPYTHON_7.match(filename):
        return f"Cell In[{plain[1]}]"
    # private: in a kernel, IPython 7.34 has `_filename_map`. IPython >= 8 has the public `format_code_name` instead.
    number = getattr(compiler, "_filename_map", {}).get(filename)
    return "" if number is None else f"Cell In[{number}]"
