"""■ ends the wait at once, and the run can clean up. Afterwards, the next cell works."""

from __future__ import annotations

import time

import pytest

from support.pace import Pace

RUN = '''
log, noticed = [], 0.0
async def run(cleanup=0.0, result=None):
    """Wait. If cancelled, clean up, and return `result`; without `result`, raise the CancelledError."""
    print("waiting", flush=True)
    try:
        await asyncio.get_running_loop().create_future()
    except asyncio.CancelledError:
        global noticed
        noticed = time.time()
        await asyncio.sleep(cleanup)
        log.append("cleaned up")
        if result is None:
            raise
    return result
'''


def stop(live, cell, *pauses):
    """Press ■ while the cell waits, and again after each pause. Return how many seconds a quiet machine needs to cancel the run."""
    live.wait_until(lambda: "waiting" in cell.stdout)
    live.settle(0.3)
    with Pace() as pace:
        pressed = time.time()
        live.interrupt()
        for pause in pauses:
            live.settle(pause)
            live.interrupt()
        live.wait(cell)
    return (float(printed(live, "noticed")) - pressed) / pace.slowdown


def printed(live, expression):
    """Return what a cell prints. The kernel may abort the cell, because an earlier cell has failed; then send it again."""
    for _ in range(20):
        done = live.execute(f"print({expression})")
        if done.status != "aborted":
            break
    return done.stdout.strip()


def still_works(live, expected):
    assert printed(live, "log") == str(expected)
    cell = live.submit("print(await attended(ask))")
    live.click("Approve")
    live.wait(cell)
    assert cell.stdout.strip() == "Approve", cell.text


def test_a_quiet_wait_ends_at_once(live, way):
    """■ during a wait cancels the run within half a second and ends the cell. Queued cells run (or are aborted) in order."""
    live.execute(RUN)
    cell = live.submit(way("run"))
    after = live.submit("log.append('next')", stop_on_error=False)
    assert stop(live, cell) < 0.5
    assert cell.error.split(":")[0] in ("CancelledError", "Interrupted")
    live.wait(after)
    # In sync code, the end of the run is the end of the cell. The cell has not failed, so the queued cells run.
    assert (after.status, cell.status) in (("ok", "ok"), ("ok", "error"), ("aborted", "error"))
    assert after.status == "ok" or cell.error.startswith("CancelledError")
    still_works(live, ["cleaned up", "next"] if after.status == "ok" else ["cleaned up"])


def test_what_a_cancelled_run_returns_is_delivered(live, way):
    """If the cancelled run returns a value, the cell gets this value, and continues without an error."""
    live.execute(RUN)
    cell = live.submit(f"print({way('lambda: kernel.await_with_cleanup(run(result=42))')})")
    assert stop(live, cell) < 0.5
    assert (cell.status, cell.stdout) == ("ok", "waiting\n42\n"), cell.text
    still_works(live, ["cleaned up"])


def test_a_second_interrupt_is_harmless(live, way):
    """While the run cleans up, ■ does nothing."""
    live.execute(RUN)
    cell = live.submit(f"print({way('lambda: kernel.await_with_cleanup(run(0.8, 7))')})")
    assert stop(live, cell, 0.1, 0.2) < 0.5
    assert (cell.status, cell.stdout) == ("ok", "waiting\n7\n"), cell.text
    still_works(live, ["cleaned up"])


def test_blocking_code_on_the_loop(live, way):
    """In `allow_interrupts()`, ■ stops a sync call on the loop's thread. The run sees a CancelledError."""
    live.execute(
        RUN + "\nasync def blocks():\n    print('waiting', flush=True)\n"
        "    try:\n        with kernel.allow_interrupts(): time.sleep(300)\n"
        "    except asyncio.CancelledError:\n"
        "        global noticed\n        noticed = time.time(); log.append('cancelled')\n        raise"
    )
    cell = live.submit(way("blocks"))
    assert stop(live, cell) < 0.5
    assert cell.error.split(":")[0] in ("CancelledError", "Interrupted")
    still_works(live, ["cancelled"])


def test_blocked_loop_gives_way_to_the_second_interrupt(live):
    """A callback blocks the loop while `run_sync` waits: the second ■ stops the callback, and the run cleans up."""
    live.execute(RUN + "\ndef block():\n    print('blocked', flush=True); time.sleep(300)")
    cell = live.submit(
        "async def late():\n    asyncio.get_running_loop().call_later(0.1, block)\n    return await run(result=1)\n"
        "print(kernel.run_sync(late))"
    )
    assert stop(live, cell, 0.5) < 2
    assert (cell.status, cell.stdout) == ("ok", "waiting\nblocked\n1\n"), cell.text
    still_works(live, ["cleaned up"])


def test_the_handler_is_put_back(live, way):
    """After a click and an interrupt in a cell, SIGINT has the same handler in later cells as in a new kernel."""
    live.execute(RUN)
    idle = "h = get_ipython().kernel.saved_sigint_handler; print(h)"
    before = live.execute(idle).stdout
    cell = live.submit(way("ask"))
    live.click("Approve")
    live.wait(cell)
    stop(live, live.submit(way("run")))
    assert live.execute(idle).stdout == before
    cell = live.submit("print('waiting', flush=True)\ntime.sleep(300)")
    stop(live, cell)
    assert cell.error.startswith("KeyboardInterrupt")


def test_stop_in_a_widget_callback(live):
    """■ also cancels a sync run in a callback while no cell runs."""
    live.execute(
        RUN + "\nouter = widgets.Button(description='Outer')\n"
        "outer.on_click(lambda _: log.append(kernel.run_sync(lambda: run(result='stopped')))); display(outer)"
    )
    before = len(live.messages)
    live.click("Outer")
    live.wait_until(
        lambda: any(m["content"].get("text") == "waiting\n" for m in live.messages[before:]), what="the run"
    )
    live.interrupt()
    live.execute("[part.close() for part in (outer.layout, outer.style, outer)]")
    still_works(live, ["cleaned up", "stopped"])


def test_stop_after_a_cell_ended_inside_a_callback(live):
    """A cell begins while a callback waits for its run, and still waits when that run ends: ■ stops the cell."""
    live.execute(
        RUN + "\nouter = widgets.Button(description='Outer')\n"
        "outer.on_click(lambda _: kernel.run_sync(lambda: ask('Inner'))); display(outer)"
    )
    first = live.submit("print(await attended(ask))")
    live.button("Approve")
    live.click("Outer")
    live.button("Inner")
    live.click("Approve")
    live.wait(first)
    second = live.submit("print(await attended(run))")
    # ipykernel 6 begins the cell now, while the callback waits; ipykernel 7.4 begins it after the callback has ended.
    live.settle(0.3)
    inner = live.click("Inner")
    live.wait_until(lambda: not inner.open)
    assert stop(live, second) < 0.5
    assert second.error.startswith("CancelledError")
    live.execute("[part.close() for part in (outer.layout, outer.style, outer)]")
    still_works(live, ["cleaned up"])


@pytest.mark.parametrize("form", ["kernel.run_sync(run)", "await attended(run)"])
def test_other_tasks_survive(live, form):
    """An interrupt cancels only the run. Another task of the notebook continues."""
    live.execute(RUN + "\nother = asyncio.ensure_future(asyncio.sleep(1.2, 'done'))")
    stop(live, live.submit(form))
    assert live.execute("print(await other)").stdout.strip() == "done"


def test_a_tools_task_that_exits(live, way):
    """A task that a tool has started raises SystemExit: the task has failed, but neither the kernel nor the run ends."""
    live.execute(
        "async def run():\n    async def exits(): raise SystemExit(3)\n"
        "    with kernel.capture(lambda kind, payload: None): task = asyncio.ensure_future(exits())\n"
        "    try: await task\n    except RuntimeError as error: return str(error)\n"
        "factory = asyncio.get_running_loop().get_task_factory()"
    )
    assert live.execute(way("run")).value == "'SystemExit: 3'"
    after = "await asyncio.sleep(0); print(asyncio.get_running_loop().get_task_factory() is factory)"
    assert live.execute(after).stdout == "True\n"
