"""On each stack, the output of a run of the Python API goes to the cell that started the run."""

from __future__ import annotations

import pytest

from support.stack_cells import printed, run

WAYS = {
    "sync": "agent(Harness.TOOL_LOOP, 'Go.', model={model}, tools=[{tool}], permissions={mode!r}).text",
    "awaited": "(await aagent(Harness.TOOL_LOOP, 'Go.', model={model}, tools=[{tool}], permissions={mode!r})).text",
}
way = pytest.mark.parametrize("way", list(WAYS))


def cell_of(way, tool, arguments="x=7", mode="full"):
    return WAYS[way].format(model=f"scripted({tool!r}, {arguments})", tool=tool, mode=mode)


@way
def test_a_callback_meanwhile(product, way):
    """Another widget's slow callback runs meanwhile: the run's cell gets the tool's prints, and not the callback's."""
    run(
        product,
        "slider = widgets.IntSlider()\n"
        "def slow(_):\n    print('CALLBACK'); time.sleep(0.4)\n"
        "slider.observe(slow, 'value'); display(slider)",
    )
    slider = next(w for w in reversed(product.open_widgets()) if w.model == "IntSliderModel")
    cell = product.submit(cell_of(way, "noisy"))
    product.wait_until(lambda: "printed 0" in cell.stdout)
    product.set_state(slider, value=5)
    product.wait(cell)
    assert [line for line in cell.stdout.splitlines() if line] == [f"printed {n}" for n in range(5)]
    assert "displayed 7" in cell.html
    run(product, "[part.close() for part in (slider.layout, slider.style, slider)]")


@way
def test_what_a_stopped_tool_leaves_behind(product, way):
    """A tool's thread prints after ■: the print goes to the run's cell, and to no later one."""
    run(
        product,
        "def deaf(x: int) -> int:\n    '''Cannot be stopped.'''\n"
        "    print('begins')\n    try: time.sleep(1)\n    finally: print('LATE')\n    return x",
    )
    cell = product.submit(cell_of(way, "deaf"))
    product.wait_until(lambda: "begins" in cell.stdout)
    product.interrupt()
    product.wait(cell)
    after = run(product, "print('AFTER'); time.sleep(1.5); print('END')")
    assert after.stdout == "AFTER\nEND\n"
    product.wait_until(lambda: "LATE" in cell.stdout)


@pytest.mark.parametrize("way", ["a sync callback", "a task of a callback"])
def test_a_run_in_a_callback(product, way):
    """A widget's callback starts a run: its card and its output are in the cell that ran last, where a person sees them."""
    started = cell_of("sync", "noisy", mode="ask")
    if way == "a task of a callback":
        started = (
            f"asyncio.ensure_future(begin())\nasync def begin(): {cell_of('awaited', 'noisy', mode='ask')}"
        )
        defined, started = started.split("\n")[1], started.split("\n")[0]
    else:
        defined = ""
    run(
        product,
        f"{defined}\nstart = widgets.Button(description='Start')\nstart.on_click(lambda _: {started})\ndisplay(start)",
    )
    last = run(product, "print('the last cell')", allow_stdin=True)
    product.click("Start")
    product.click("Approve")
    product.wait_until(lambda: "displayed 7" in last.html)
    assert "approved by click" in last.text
    assert "printed 4" in last.stdout
    product.wait_until(lambda: printed(product, "len(asyncio.all_tasks()) < 99") == "True")
    run(product, "[part.close() for part in (start.layout, start.style, start)]")


@way
def test_a_tool_clears_what_it_printed(product, way):
    """A tool calls `clear_output(wait=True)`, as live plots do: only the last step stays. If the run may ask, nothing is cleared."""
    run(
        product,
        "from IPython.display import clear_output\n"
        "def steps(x: int) -> int:\n    'Steps.'\n"
        "    for n in range(x): clear_output(wait=True); print('step', n)\n    return x",
    )
    assert run(product, cell_of(way, "steps", "x=3")).stdout == "step 2\n"
    asked = product.submit(cell_of(way, "steps", "x=3", "ask"), allow_stdin=True)
    product.click("Approve")
    product.wait(asked)
    assert "approved by click" in asked.text
