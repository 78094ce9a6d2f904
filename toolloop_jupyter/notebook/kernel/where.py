"""Where this code runs (a kernel, a terminal IPython, plain Python), and whether a person can answer there."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any, Protocol, TypeAlias

Message: TypeAlias = Mapping[str, Any]
"""A message of Jupyter's protocol."""


class Kernel(Protocol):
    """The attributes of ipykernel's Kernel (6.17 to 7.4) that this room uses. Not all of these versions have all attributes:
    see the comment where an attribute is used.
    """

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


def in_kernel() -> bool:
    """Return whether this is a Jupyter kernel (not a terminal, not plain Python)."""
    return get_kernel() is not None


def in_terminal() -> bool:
    """Return whether a person sits at a terminal: there is no kernel, and stdin is a terminal."""
    return not in_kernel() and sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()


def ignores_ctrl_c() -> bool:
    """Return True if Ctrl-C cannot end an awaited run: the process runs in a terminal and ignores SIGINT. A process that was
    started with `nohup` or `&` ignores SIGINT. Ctrl-C still ends a sync call, which has a handler of its own (`Interrupts`).
    """
    return in_terminal() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def has_stdin() -> bool:
    """Return whether a person can answer `input()`. In a kernel, this is `allow_stdin` of the execute request. nbconvert and
    papermill send False.
    """
    kernel = get_kernel()
    if kernel is None:
        return in_terminal()
    # private: _allow_stdin, ipykernel 6 and 7: content["allow_stdin"] of the last execute request. In a cell, the public
    # `get_parent()` is enough. In a widget's callback, it returns the widget's message, which has no allow_stdin.
    return bool(getattr(kernel, "_allow_stdin", False))


def has_widgets() -> bool:
    """Return whether ipywidgets is installed. This does not import ipywidgets."""
    return find_spec("ipywidgets") is not None


def has_widget_frontend() -> bool:
    """Return whether a person can probably click a widget: this is a kernel with widgets, and its client answers `input()`.

    The kernel is never told whether its front-end shows widgets. JupyterLab, Notebook, VS Code and Colab allow stdin; programs
    that run a notebook do not. `%toolloop doctor` is certain, since it shows a button and waits for a click.
    """
    return in_kernel() and has_stdin() and has_widgets()


def executes_notebooks() -> bool:
    """Return whether nbclient started the kernel (nbconvert and papermill use nbclient). Then nobody can click.

    nbclient (0.5 to 0.11) starts a kernel whose history is in memory (`hist_file` is ":memory:"). No other program does this.
    """
    history = getattr(get_shell(), "history_manager", None)
    return in_kernel() and str(getattr(history, "hist_file", "")) == ":memory:"


def delivers_clicks() -> bool:
    """Return whether a click is handled while a cell runs: by ipykernel itself (>= 7.4), or by `comms.py` (ipykernel 6)."""
    kernel = get_kernel()
    if kernel is None or hasattr(kernel, "msg_queue"):
        return kernel is not None
    from ipykernel._version import version_info

    return version_info[:2] >= (7, 4)
