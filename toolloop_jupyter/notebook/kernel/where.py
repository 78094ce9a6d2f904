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

import signal
import sys
from importlib.util import find_spec
from typing import Any, Literal

from .capture import shell

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


def ignores_ctrl_c() -> bool:
    """Whether Ctrl-C cannot end a run: in a terminal, where the process was started to ignore SIGINT, as `nohup` or `&` in a script does."""
    return terminal() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN


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
