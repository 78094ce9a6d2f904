"""Where this code runs (a kernel, a terminal IPython, plain Python), which cell runs, and whether a person can answer."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any, Protocol, TypeAlias

Message: TypeAlias = Mapping[str, Any]
"""A message of Jupyter's protocol."""


class Kernel(Protocol):
    """The attributes of ipykernel's Kernel (6.17 to 7.4) that this room uses. Some versions lack some of the attributes."""

    session: Any
    log: logging.Logger
    should_handle: Callable[[object, Message, object], object]

    dispatch_shell: Callable[..., Any]
    _publish_status: Callable[..., None]
    set_parent: Callable[..., None]
    saved_sigint_handler: object
    _parent_ident: Mapping[str, object]

    def get_parent(self, channel: str) -> Message: ...


def get_shell() -> Any:
    """Return the running IPython shell, or None. This never imports IPython: a shell runs only if IPython is imported already."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None


def get_kernel() -> Kernel | None:
    """Return the running ipykernel, or None. Other kernels (xeus-python, JupyterLite) lack the parts that this room uses."""
    kernelbase, kernel = sys.modules.get("ipykernel.kernelbase"), getattr(get_shell(), "kernel", None)
    return kernel if kernelbase is not None and isinstance(kernel, kernelbase.Kernel) else None


def is_in_kernel() -> bool:
    """Return whether this is a Jupyter kernel (not a terminal, not plain Python)."""
    return get_kernel() is not None


def is_in_terminal() -> bool:
    """Return whether a person sits at a terminal: there is no kernel, and stdin is a terminal."""
    return not is_in_kernel() and sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()


def ignores_ctrl_c() -> bool:
    """Return True if this process is in a terminal and ignores SIGINT (as after `nohup` or `&`): Ctrl-C ends no awaited run.

    Ctrl-C still ends a sync call, which has a handler of its own (`Interrupts`).
    """
    return is_in_terminal() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def has_stdin() -> bool:
    """Return whether a person can answer `input()`: `allow_stdin` of the execute request. nbconvert and papermill send False."""
    kernel = get_kernel()
    if kernel is None:
        return is_in_terminal()
    # private: ipykernel 6 and 7 have `_allow_stdin`: the content["allow_stdin"] of the last execute request. In a cell, the
    # public `get_parent()` returns this request. In a widget's callback, it returns the widget's message, without allow_stdin.
    return bool(getattr(kernel, "_allow_stdin", False))


def has_widgets() -> bool:
    """Return whether this is a kernel, and ipywidgets is installed. This does not import ipywidgets."""
    return is_in_kernel() and find_spec("ipywidgets") is not None


def find_widgets() -> Mapping[str, Any]:
    """Return all open widgets of this kernel: model id -> widget. {} if ipywidgets is not imported yet."""
    module: Any = sys.modules.get("ipywidgets.widgets.widget")
    if module is None:
        return {}
    # private: ipywidgets 8 has `_instances`. ipywidgets 7 has the public `Widget.widgets`, but version 8 warns about its use.
    widgets: Mapping[str, Any] | None = getattr(module, "_instances", None)
    return module.Widget.widgets if widgets is None else widgets


def executes_notebooks() -> bool:
    """Return whether nbclient started the kernel (nbconvert and papermill use nbclient). Then nobody can click.

    nbclient (0.5 to 0.11) starts a kernel whose history is in memory (`hist_file` is ":memory:"). No other program does this.
    """
    history = getattr(get_shell(), "history_manager", None)
    return is_in_kernel() and str(getattr(history, "hist_file", "")) == ":memory:"


def delivers_clicks() -> bool:
    """Return whether a click is handled while a cell runs: by ipykernel itself (>= 7.4), or by `comms.py` (ipykernel 6)."""
    kernel = get_kernel()
    if kernel is None or hasattr(kernel, "msg_queue"):
        return kernel is not None
    from ipykernel._version import version_info

    return version_info[:2] >= (7, 4)


def find_kernel_loop() -> asyncio.AbstractEventLoop | None:
    """Return the loop that runs the kernel's cells; None if there is no kernel, or no loop yet."""
    # In ipykernel 6 and 7, `io_loop` is tornado's loop. Its public attribute `asyncio_loop` is the loop of asyncio.
    return getattr(getattr(get_kernel(), "io_loop", None), "asyncio_loop", None)


# --- The message that the kernel handles now, and the cell that ran last.


def get_id(message: Message) -> str:
    """Return the id of a message; "" for {}."""
    return str((message.get("header") or {}).get("msg_id") or "")


def get_kind(message: Message) -> str:
    """Return the type of a message, for example "execute_request"; "" for {}."""
    return str((message.get("header") or {}).get("msg_type") or "")


class LastCell:
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
        """Stop watching, and forget the last cell."""
        if self._watching:
            self._watching, self.request = False, {}
            get_shell().events.unregister("pre_run_cell", self._note)

    def _note(self, *_: object) -> None:
        kernel = get_kernel()
        request: Message = {} if kernel is None else kernel.get_parent("shell")
        if get_kind(request) == "execute_request":
            self.request = request


last_cell = LastCell()
watch_cells, unwatch_cells = last_cell.watch, last_cell.unwatch


def is_in_callback(kernel: Kernel) -> bool:
    """Return True if the kernel is handling a widget's message now."""
    return get_kind(kernel.get_parent("shell")).startswith("comm_")


# --- The name of a cell in a traceback: `Cell In[3], line 4`.

_FILE = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<end>)')
_WARNING = re.compile(r"^(?P<file>\S+\.py):(?P<end>\d+: )(?=\w*Warning\b)", re.MULTILINE)


def name_cells(traceback: str) -> str:
    """Return `traceback` with `Cell In[3]` in place of a cell's temporary file name, which differs in each kernel.

    Lines of Python's `warnings` are changed in the same way. The names of other files are not changed.
    """

    def name(match: re.Match[str]) -> str:
        cell = _name_cell(match["file"])
        return f"{cell}, line {match['end']}" if cell else match[0]

    return _WARNING.sub(name, _FILE.sub(name, traceback))


def _name_cell(filename: str) -> str:
    """Return a name such as `Cell In[3]` if `filename` is the temporary file name of a cell. Return "" for other files."""
    compiler: Any = getattr(get_shell(), "compile", None)
    if hasattr(compiler, "format_code_name"):  # IPython >= 8
        return " ".join(compiler.format_code_name(filename) or ())
    # private: in a kernel, IPython 7.34 has `_filename_map`. IPython >= 8 has the public `format_code_name` instead.
    number = getattr(compiler, "_filename_map", {}).get(filename)
    return "" if number is None else f"Cell In[{number}]"
