"""While a cell waits, clicks reach it, and all other messages keep their order."""

from __future__ import annotations

import time

from support.pace import Pace
from support.stack_cells import run

COUNT = 50


def test_every_click_arrives(live, way):
    """All of 50 clicks reach the waiting cell."""
    cell = live.submit(f"for n in range({COUNT}): print({way('lambda: ask(str(n))')})")
    for n in range(COUNT):
        button = live.click(str(n))
        live.wait_until(lambda button=button: not button.open)
    live.wait(cell)
    assert cell.stdout.split() == [str(n) for n in range(COUNT)], cell.text


def test_click_arrives_within_50_ms(live, way):
    """Of 20 changes of a field, half reach the waiting cell within 50 ms. (`bench_click.py` measures the 95th percentile.)"""
    cell = live.submit(
        "took = []\n"
        "async def timed():\n"
        "    clicked = asyncio.get_running_loop().create_future()\n"
        "    slider = widgets.FloatText(description='now')\n"
        "    slider.observe(lambda change: clicked.set_result(time.time() - change.new), 'value')\n"
        "    with kernel.Cell.here().outputs(): display(slider)\n"
        "    try: took.append(await asyncio.wait_for(clicked, 300))\n"
        "    finally: [part.close() for part in (slider.layout, slider.style, slider)]\n"
        f"for _ in range(20): {way('timed')}\n"
        "print(sorted(took)[10])"
    )
    with Pace() as pace:
        for _ in range(20):
            text = live.wait_until(lambda: live.open_widgets("FloatTextModel"))[-1]
            live.settle(0.02)
            live.set_state(text, value=time.time())
            live.wait_until(lambda text=text: not text.open)
    live.wait(cell)
    assert cell.status == "ok", cell.text
    assert float(cell.stdout) < 0.05 * pace.slowdown


def test_queued_cells_run_once_in_order(live, way):
    """Queued cells run after the waiting cell: once each, in order, with the next execution counts."""
    first = live.submit(f"ran = [{way('ask')}]")
    rest = [live.submit(f"ran.append({n})") for n in range(5)]
    last = live.submit("print(ran)")
    live.settle(0.3)
    assert not rest[0].done
    live.click("Approve")
    live.wait(first, *rest, last)
    assert last.stdout.strip() == "['Approve', 0, 1, 2, 3, 4]"
    counts = [execution.reply["execution_count"] for execution in (first, *rest, last)]
    assert counts == list(range(counts[0], counts[0] + 7))


def test_queued_cells_after_an_error(live, way):
    """A run raises an error: the queued cell runs once, or is aborted once if the front-end stops on errors."""
    cells = ["async def fails():\n    await ask()\n    raise ValueError('tool')\nseen = []", way("fails")]
    for stop, status in ((False, "ok"), (True, "aborted")):
        executions = [live.submit(cell, stop_on_error=stop) for cell in (*cells, "seen.append(1)")]
        live.click("Approve")
        live.wait(*executions)
        assert executions[1].error == "ValueError: tool"
        assert executions[2].status == status
        assert run(live, "print(len(seen))").stdout.strip() == ("1" if status == "ok" else "0")


def test_other_messages_keep_their_place(live, way):
    """Changes of a slider, completions, inspections, `kernel_info` and cells: none is lost, doubled or out of order."""
    live.execute(
        "moves = []; slider = widgets.IntSlider(max=1000)\n"
        "slider.observe(lambda change: moves.append(change.new), 'value'); display(slider)"
    )
    slider = live.open_widgets("IntSliderModel")[-1]
    before = len(live.answered)
    first = live.submit(f"{way('ask')}; at_the_end = list(moves)")
    sent = [first.msg_id]
    live.button("Approve")
    for n in range(1, 41):
        live.set_state(slider, value=n)
        if n % 10 == 0:
            sent.append(live.send("complete_request", {"code": "slid", "cursor_pos": 4}))
            sent.append(live.send("inspect_request", {"code": "ask", "cursor_pos": 3, "detail_level": 0}))
            sent.append(live.send("kernel_info_request", {}))
            sent.append(live.submit(f"moves.append('cell {n}')").msg_id)
    live.settle(0.3)
    live.click("Approve")
    last = live.submit("print(at_the_end == list(range(1, 41)), moves[40:])")
    sent.append(last.msg_id)
    live.wait(last)
    live.execute("[part.close() for part in (slider.layout, slider.style, slider)]")
    assert [msg_id for msg_id in live.answered[before:] if msg_id in sent] == sent
    assert last.stdout.strip() == "True ['cell 10', 'cell 20', 'cell 30', 'cell 40']"


def test_other_tasks_go_on(live, way):
    """While a cell waits, another task of the notebook continues."""
    begun = live.execute(
        "ticks, begun = 0, False\nasync def tick():\n    global ticks\n    while True:\n"
        "        ticks += 1; await asyncio.sleep(0.02)\n        if begun and ticks == 25: print('still ticking')\n"
        "ticker = asyncio.ensure_future(tick())"
    )
    cell = live.submit(f"ticks, begun = 0, True; {way('ask')}; print(ticks)")
    live.wait_until(lambda: "still ticking" in begun.stdout + cell.stdout)
    live.click("Approve")
    live.wait(cell)
    live.execute("ticker.cancel()")
    assert int(cell.stdout.split()[-1]) >= 25


def test_two_runs_at_once(live):
    """Two runs wait in one cell, both awaited or one of them sync: each gets its click, in either order."""
    gathered = "print(await asyncio.gather(attended(lambda: ask('A')), attended(lambda: ask('B'))))"
    beside = (
        "task = asyncio.ensure_future(attended(lambda: ask('A')))\nawait asyncio.sleep(0.1)\n"
        "b = kernel.run_sync(lambda: ask('B'))\nprint([await task, b])"
    )
    for code in (gathered, beside):
        for order in ("AB", "BA"):
            cell = live.submit(code)
            for label in order:
                live.click(label)
                live.settle(0.1)
            live.wait(cell)
            assert cell.stdout.strip() == "['A', 'B']", cell.text


def test_in_a_thread(live):
    """A run in a worker thread, with a loop of its own, gets its click."""
    cell = live.submit("print(await asyncio.get_running_loop().run_in_executor(None, kernel.run_sync, ask))")
    live.click("Approve")
    live.wait(cell)
    assert cell.stdout.strip() == "Approve", cell.text


def test_in_a_widget_callback(live):
    """A sync run in a widget's callback gets its click: if no cell runs, and while a cell waits."""
    live.execute(
        "answers = []\nouter = widgets.Button(description='Outer')\n"
        "outer.on_click(lambda _: answers.append(kernel.run_sync(lambda: ask('Inner')))); display(outer)"
    )
    live.click("Outer")
    live.click("Inner")
    assert live.execute("print(answers)").stdout.strip() == "['Inner']"
    for code in ("print(await attended(ask))", "print(kernel.run_sync(ask))"):
        cell = live.submit(code)
        live.button("Approve")
        live.click("Outer")
        live.click("Inner")
        live.settle(0.1)
        live.click("Approve")
        live.wait(cell)
        assert cell.stdout.strip() == "Approve", cell.text
    done = live.execute("print(answers); [part.close() for part in (outer.layout, outer.style, outer)]")
    assert done.stdout.strip() == "['Inner', 'Inner', 'Inner']"


def test_nested_in_the_callback_the_outer_run_gets_its_click_first(live):
    """While a callback waits for its run, the click of the waiting cell arrives first: both runs end."""
    live.execute(
        "outer = widgets.Button(description='Outer'); inner = []\n"
        "outer.on_click(lambda _: inner.append(kernel.run_sync(lambda: ask('Inner')))); display(outer)"
    )
    cell = live.submit("print(await attended(ask))")
    live.button("Approve")
    live.click("Outer")
    live.button("Inner")
    live.click("Approve")
    live.settle(0.2)
    inner = live.click("Inner")
    live.wait(cell)
    live.wait_until(lambda: not inner.open)
    live.settle(0.1)
    done = live.execute("print(inner); [part.close() for part in (outer.layout, outer.style, outer)]")
    assert (cell.stdout.strip(), done.stdout.strip()) == ("Approve", "['Inner']")


def test_sync_magic_and_time(live):
    """A sync cell magic that runs a coroutine works alone, by `run_cell_magic`, and with `%%time`."""
    live.execute(
        "get_ipython().register_magic_function(lambda line, cell: kernel.run_sync(ask), 'cell', 'askme')"
    )
    for code in (
        "%%askme\nbody",
        "print(get_ipython().run_cell_magic('askme', '', 'body'))",
        "%%time\nprint(get_ipython().run_cell_magic('askme', '', 'body'))",
        "%%time\nprint(kernel.run_sync(ask))",
    ):
        cell = live.submit(code)
        live.click("Approve")
        live.wait(cell)
        assert cell.status == "ok", cell.text
        assert "Approve" in cell.text.replace("Button(description='Approve'", "")


def test_clicks_over_a_subshell(live, way):
    """Clicks also arrive if the front-end sends them to a subshell (JupyterLab 4.4 and later)."""
    if not live.has_subshells:
        return  # ipykernel 6 has no subshells, and the front-end knows this
    subshell = live.create_subshell()
    cell = live.submit(f"for n in range(10): print({way('ask')})")
    for _ in range(10):
        button = live.click("Approve", subshell=subshell)
        live.wait_until(lambda button=button: not button.open)
    live.wait(cell)
    live.delete_subshell(subshell)
    assert cell.stdout.split() == ["Approve"] * 10, cell.text


def test_somebody_else_patched_asyncio(python, start_kernel):
    """If nest_asyncio or nest_asyncio2 was applied before, both ways still work, and the next cell runs."""
    from .conftest import LAB, WAYS

    live = start_kernel(python)
    live.execute(LAB)
    applied = live.execute(
        "try: import nest_asyncio as nest\nexcept ImportError: import nest_asyncio2 as nest\nnest.apply()"
    )
    if applied.error and "ModuleNotFoundError" in applied.error:
        return  # neither package is installed, so no code can have applied it
    for form in WAYS.values():
        cells = [live.submit(f"print({form.format('ask')})"), live.submit("print('next')")]
        live.click("Approve")
        live.wait(*cells)
        assert [cell.stdout.strip() for cell in cells] == ["Approve", "next"], cells[0].text
