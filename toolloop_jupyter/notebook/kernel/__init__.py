"""Connect a run with the kernel: clicks reach a waiting cell, a run can be stopped, and output goes to the right cell.

Only this package uses ipykernel, internals of asyncio and hooks on `sys.stdout`. A comment that begins with "private:" names a
private part of another library, and the versions that have it.

How a click reaches a waiting cell
----------------------------------

A front-end sends a click as a `comm_msg` on the shell channel. The kernel handles one shell message after the other. So it would
handle the click only after the cell has ended, but the cell waits for the click. Three things must happen while the cell waits:
the comm message is handled, all other messages keep their order, and an interrupt by the Stop button (■) is noticed.

*ipykernel 6.17 to 6.x.* `Kernel.schedule_dispatch` puts each shell message into `kernel.msg_queue`. A coroutine of the kernel
takes the messages out and awaits one after the other; now it awaits the waiting cell. `serving_clicks()` runs a second coroutine
(the pump in `comms.py`), which takes only the comm messages out of this queue, and lets the kernel dispatch them. A hook on the
queue tells the pump that a message has arrived. A dispatch has two side effects: the message becomes the "parent" of all later
output, and the kernel replaces its stored SIGINT handler. The pump restores the parent and the handler afterwards.

*ipykernel 7.0 to 7.3.* These versions have no such queue: the running cell holds a lock. So clicks wait for the end of the cell,
unless the front-end sends the clicks over a subshell (a thread with a separate loop). The package's dependencies exclude
these versions.

*ipykernel 7.4 and later.* While a cell awaits, the kernel itself dispatches comm messages. Different subshells may handle the
messages of different widgets, in any order. With `CardComms`, one shell handles all messages of a card: the shell in which the
card's run waits. The pump only wakes the loop.

*All versions.* The SIGINT handler adds a callback to the loop, but this does not wake the loop (tornado 6.6). So the pump wakes
the loop ten times a second. If code in a subshell (ipykernel 7.x) sets a future of the main loop, this code must use
`call_soon_threadsafe`.

Why sync calls need no nest_asyncio
-----------------------------------

The kernel awaits a `%%toolloop` cell, but a call of `agent()` blocks inside a loop that is already running. `run_sync` (`sync.py`)
continues the running loop during the call; afterwards, nothing in asyncio has changed. The packages nest_asyncio and nest_asyncio2
(its successor) replace classes and functions of asyncio permanently, and do not solve the problem. We measured a cell that waits
for a click on its card, with two more cells in the queue. The first column says how the cell waits; the others are versions of
ipykernel (and of Python):

    the cell waits in                        6.17 (3.12)   6.31 (3.10)   7.4 (3.11, 3.13)
    nest_asyncio 1.6, no pump                click lost    click lost    click lost, the queued cells never run
    nest_asyncio2 1.7.4 and the pump         arrives       arrives       click arrives only after ■ (asyncio's handle waits)
    run_sync, or asyncio.run after nest_loop arrives       arrives       arrives; the queued cells run once each

`%toolloop nest` (`nest_loop`) applies nest_asyncio2, so that a person's code can call `asyncio.run(main())`. Then `run_sync`
replaces the kernel's `run_until_complete`. If other code has applied one of the two packages, `agent()` still works.

A widget's callback is sync code, too. It may interrupt a waiting cell, start a run, and wait for this run. Meanwhile, the cell may
continue and end. See `while_callback_waits` in `comms.py`.

Where a run's output goes
-------------------------

A run's output goes to the cell that started the run. `Cell.here()` (`output.py`) copies the kernel's output objects: two
`OutStream`s and one `ZMQDisplayPublisher`. The parent of the copies is set once, so neither a comm message nor a later cell can
redirect them. `capture` sends the prints and displays of tools to the copies. There is one exception: the parent of a message
that updates an earlier output is the cell that runs now, because nbclient reads only messages of the running cell.
"""

from .comms import CardComms, running_in_cell, serving_clicks
from .interrupts import PATIENCE, allow_interrupts, await_with_cleanup, end_interrupted_cell
from .output import Cell, capture, redirect_output
from .sync import StreamRunner, can_run_sync, is_nested, nest_loop, run_sync
from .where import (
    delivers_clicks,
    executes_notebooks,
    find_kernel_loop,
    find_widgets,
    get_shell,
    has_stdin,
    has_widgets,
    ignores_ctrl_c,
    is_in_kernel,
    is_in_terminal,
    name_cells,
    unwatch_cells,
    watch_cells,
)
