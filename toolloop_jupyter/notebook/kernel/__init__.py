"""The kernel: how a click reaches a cell that waits for it, how a run is stopped, and where its output goes.

Only this room knows ipykernel, the internals of asyncio and the hooks on `sys.stdout`. Each use of a private name is marked
"private:", with the versions that have it, why it is needed, and what would replace it.

How a click reaches a waiting cell
----------------------------------

A front-end sends a click as a `comm_msg` on the shell channel. It arrives behind the cell that waits for it, and a
kernel handles one shell message at a time. So three things must happen while our cell waits: the comm message overtakes
the cell, every other message keeps its place, and Stop is noticed.

*ipykernel 6.17 to 6.x.* `Kernel.schedule_dispatch` puts each shell message into `kernel.msg_queue`. One coroutine takes
them out and awaits them one by one; now it awaits our cell. `serving_clicks()` runs a second coroutine (the pump of
`comms.py`). It takes the comm messages out of that queue, leaves all others in order, and lets the kernel dispatch what
it took. Dispatching makes a message the "parent" of whatever the process prints next, and stores the SIGINT handler
in the kernel; the pump puts both back afterwards.

*ipykernel 7.0 to 7.3.* There is no such queue: the running cell holds a lock. The package's dependencies exclude these
versions. Clicks wait for the end of the cell there, unless the front-end sends them over a subshell.

*ipykernel 7.4 and later.* While a cell awaits, the kernel itself dispatches comm messages. A subshell may handle them,
another one for each widget, and then their order is lost. `CardComms` lets one shell handle all messages of a card: the shell
in which the card's run waits. On these versions, the pump only wakes the loop.

*All versions.* The handler of SIGINT adds a callback to the loop, but that does not wake the loop (tornado 6.6). Stop would be
noticed only when the loop wakes for another reason. So the pump wakes the loop five times a second. A subshell (7.x) is a
thread with its own loop: code called there reaches a future of the main loop by `call_soon_threadsafe` only.

Why sync calls need no nest_asyncio
-----------------------------------

`%%toolloop` is an awaited cell. `agent()` is not: it waits inside a loop that is already running, and the same three
things must happen there. `run_sync` (`sync.py`) runs the running loop itself during the call. A callback whose context cannot be
entered runs in a copy of that context. Afterwards nothing in asyncio is changed. nest_asyncio and its continuation nest_asyncio2
replace classes and functions of asyncio for good, and were not enough. Measured with a cell that waits for its card, a click on
the card, and two cells queued behind:

    the cell waits by                        6.17 (3.12)   6.31 (3.10)   7.4 (3.11, 3.13)
    nest_asyncio 1.6, no pump                click lost    click lost    click lost, the queued cells never run
    nest_asyncio2 1.7.4 and the pump         arrives       arrives       click lost until ■: its handle is held back
    run_sync, or asyncio.run after nest_loop arrives       arrives       arrives; the queued cells run once each

So the package itself uses neither. `%toolloop nest` (`nest_loop`) applies nest_asyncio2 for the user's own
`asyncio.run(main())`, with `run_sync` in the place of the kernel's `run_until_complete`. If other code has applied one of the two
packages, `agent()` still works.

A widget's callback is sync code, too. It may interrupt a waiting cell, and then wait for a run of its own. During that wait the
cell goes on; it may even end before the callback does. On ipykernel 6 the cell gets its parent back for the time of the wait. On
7.4 the next cell begins only when the callback is done (`while_callback_waits` in `comms.py`).

Where a run's output goes
-------------------------

A run's output goes to the cell that started the run. `Cell.here()` (`cells.py`) copies the kernel's own output objects, two
`OutStream`s and one `ZMQDisplayPublisher`, and sets the parent of the copies once. Neither a comm message nor a later
cell can redirect them. `capture.py` sends the prints and displays of tools to them. There is one exception: a message that
updates an earlier output answers the cell that runs now, since nbclient reads no other messages.
"""

from .capture import capture, redirect_output
from .cells import Cell, find_last_error, name_cells, unwatch_cells, watch_cells
from .comms import CardComms, running_in_cell, serving_clicks
from .interrupts import PATIENCE, allow_interrupts, await_with_cleanup, end_interrupted_cell
from .sync import StreamRunner, can_run_sync, find_kernel_loop, is_nested, nest_loop, run_sync
from .where import (
    delivers_clicks,
    executes_notebooks,
    get_shell,
    has_stdin,
    has_widget_frontend,
    has_widgets,
    ignores_ctrl_c,
    in_kernel,
    in_terminal,
)

__all__ = [
    "PATIENCE",
    "CardComms",
    "Cell",
    "StreamRunner",
    "allow_interrupts",
    "await_with_cleanup",
    "can_run_sync",
    "capture",
    "delivers_clicks",
    "end_interrupted_cell",
    "executes_notebooks",
    "find_kernel_loop",
    "find_last_error",
    "get_shell",
    "has_stdin",
    "has_widget_frontend",
    "has_widgets",
    "ignores_ctrl_c",
    "in_kernel",
    "in_terminal",
    "is_nested",
    "name_cells",
    "nest_loop",
    "redirect_output",
    "run_sync",
    "running_in_cell",
    "serving_clicks",
    "unwatch_cells",
    "watch_cells",
]
