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

from .capture import capture, into, shell
from .cells import Cell, unwatch_cells, watch_cells, with_cell_names
from .comms import attending, attending_to_cell
from .interrupts import PATIENCE, interruptible, stopped, uninterrupted
from .sync import one_loop, run_sync
from .where import (
    executes_notebooks,
    has_stdin,
    has_widget_frontend,
    has_widgets,
    ignores_ctrl_c,
    in_kernel,
    overtaking,
    terminal,
)

__all__ = [
    "PATIENCE",
    "Cell",
    "attending",
    "attending_to_cell",
    "capture",
    "executes_notebooks",
    "has_stdin",
    "has_widget_frontend",
    "has_widgets",
    "ignores_ctrl_c",
    "in_kernel",
    "interruptible",
    "into",
    "one_loop",
    "overtaking",
    "run_sync",
    "shell",
    "stopped",
    "terminal",
    "uninterrupted",
    "unwatch_cells",
    "watch_cells",
    "with_cell_names",
]
