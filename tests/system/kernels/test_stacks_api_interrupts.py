"""On each stack, ■ ends a run of the Python API, sync or awaited, at each of its stages."""

from __future__ import annotations

import time

import pytest

from support.interrupting import ASKS, NOTES, POINTS, arrive, press
from support.pace import Pace
from support.servers import answer
from support.stack_cells import foot, printed, run, wait_until_begun

WAYS = {
    "sync": ("agent_session", "s.run({!r})", "KeyboardInterrupt", "s.history()"),
    "awaited": ("aagent_session", "await s.arun({!r})", "CancelledError", "await s.history()"),
}


@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("point", list(POINTS))
def test_interrupt_of_the_api(product, serve, point, way):
    """■ ends a cell with `session.run()` or `await session.arun()` in one line. The queued cell and the session continue."""
    make, ask, raised, history = WAYS[way]
    server = serve([POINTS[point][0][0], answer("It goes on.")])
    run(
        product,
        f"s = {make}(Harness.TOOL_LOOP, model='openai/stub', api_base={server.base_url!r}, api_key=KEY,"
        f" tools=[double, naps, sleeps, waits], permissions={'ask' if point in ASKS else 'full'!r})",
    )
    cell = product.submit(f"{ask.format('Go.')}\nprint('not reached')", allow_stdin=True)
    after = product.submit("print('AFTER', len(runs))")
    if point == "streaming":
        server.wait_for_requests(1)
        product.settle(0.5)
    else:
        arrive(product, server, cell, point)
    with Pace() as pace:
        pressed = press(product, point)
        product.wait(cell, after)
        took = time.monotonic() - pressed
    assert took < 2 * pace.slowdown
    note = f"; {NOTES[point]}" if point in NOTES else ""
    assert cell.outputs[-1].text.startswith(f"{raised}: the run was stopped{note}"), cell.text
    assert "\n" not in cell.outputs[-1].text.strip()
    assert "not reached" not in cell.text
    assert (cell.status, after.stdout) == ("ok", "AFTER 0\n"), after.text
    assert printed(product, f"history.validate({history}), len(runs)") == "[] 0"
    assert foot(run(product, "%toolloop show")).startswith("stopped · ")
    assert printed(product, f"({ask.format('Go on.')}).text") == "It goes on."


def test_an_interrupt_in_a_function(product):
    """■ while a function waits in `agent()`: the rest of the function does not run, but the next cell does."""
    run(product, "def ask_it():\n    agent(Harness.TOOL_LOOP, 'Go.', **asking())\n    print('not reached')")
    cell, after = product.submit("ask_it()", allow_stdin=True), product.submit("print('AFTER', len(runs))")
    product.button("Approve")
    product.settle(0.3)
    product.interrupt()
    product.wait(cell, after)
    assert cell.outputs[-1].text.strip() == "KeyboardInterrupt: the run was stopped"
    assert (cell.status, after.stdout) == ("ok", "AFTER 0\n"), cell.text
    assert "not reached" not in cell.text


def test_an_interrupt_in_a_callback(product):
    """■ while a button's callback waits in `agent()` and no cell runs: the run ends, its card disappears, and later cells run."""
    run(
        product,
        "ended = []\ndef begin(_):\n    try: agent(Harness.TOOL_LOOP, 'Go.', **asking())\n"
        "    except KeyboardInterrupt as error: ended.append(str(error))\n"
        "b = widgets.Button(description='Begin'); b.on_click(begin); display(b)",
        allow_stdin=True,
    )
    product.click("Begin")
    product.button("Approve")
    product.settle(0.3)
    product.interrupt()
    after = product.submit("print('AFTER', ended, len(runs))")
    product.wait(after)
    assert after.stdout == "AFTER ['the run was stopped'] 0\n"
    assert foot(run(product, "%toolloop show")).startswith("stopped · ")
    run(product, "[part.close() for part in (b.layout, b.style, b)]")


def test_an_interrupt_ends_a_loop_of_runs(product, tmp_path):
    """■ during `for …: agent(…)` ends the whole `for` loop. An error of the person's code still drops the queued cells."""
    cell = product.submit(
        "for n in range(3):\n    print(n)\n"
        "    agent(Harness.TOOL_LOOP, 'Go.', model=scripted('waits', s=90), tools=[waits])"
    )
    product.wait_until(lambda: "0" in cell.stdout)
    wait_until_begun(product, "waits")
    product.interrupt()
    product.wait(cell)
    assert cell.stdout == "0\n"
    queued = tmp_path / "queued"
    failed = product.submit(
        f"import pathlib, time\nwhile not pathlib.Path({str(queued)!r}).exists(): time.sleep(0.1)\n1 / 0"
    )
    after = product.submit("print('AFTER')")
    queued.touch()  # a kernel drops only what has come before the error
    product.wait(failed, after)
    assert (failed.status, after.status) == ("error", "aborted")


NESTED = """
async def outer(x: int) -> str:
    "Ask another model, on the loop."
    return agent(Harness.TOOL_LOOP, 'In.', model=scripted('naps', s=90), tools=[naps]).text

def threaded(x: int) -> str:
    "Ask another model, in a thread, and a person."
    return agent(Harness.TOOL_LOOP, 'In.', **asking()).text
"""


@pytest.mark.parametrize("tool", ["outer", "threaded"])
@pytest.mark.parametrize("form", ["agent", "magic"])
def test_an_interrupt_ends_nested_runs(product, tool, form):
    """■ while a tool waits in its own `agent()` ends both runs and the `for` loop around them. No card stays."""
    run(product, NESTED + f"\nm = scripted({tool!r}, x=1)")
    code = f"%%toolloop --model m -p full -t {tool} --as r\nGo."
    if form == "agent":
        code = (
            f"for n in range(3):\n    print(n)\n"
            f"    agent(Harness.TOOL_LOOP, 'Go.', model=scripted({tool!r}, x=1), tools=[{tool}])"
        )
    cell, after = product.submit(code, allow_stdin=True), product.submit("print('AFTER', runs)")
    if tool == "threaded":
        product.button("Approve")
    else:
        wait_until_begun(product, "naps")
    product.interrupt()
    product.wait(cell, after)
    assert (cell.status, after.stdout) == ("ok", "AFTER []\n"), cell.text
    assert cell.stdout == ("0\n" if form == "agent" else "")
    product.wait_until(lambda: not product.open_widgets("ButtonModel"))
