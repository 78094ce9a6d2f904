"""On each stack: all ways to start a run, clicks, Run All, other messages, and what a run leaves behind."""

from __future__ import annotations

import pytest

from support.kernels import LiveKernel
from support.stack_cells import SET_UP, foot, printed, run

FORMS = {
    "awaited": "%%toolloop --model m -t double -p ask --as r\nGo.",
    "magic": "r = get_ipython().run_cell_magic('toolloop', '--model m -t double -p ask', 'Go.')",
    "time": "%%time\n%%toolloop --model m -t double -p ask --as r\nGo.",
    "aagent": "r = await aagent(Harness.TOOL_LOOP, 'Go.', **asking(model=m))",
    "agent": "r = agent(Harness.TOOL_LOOP, 'Go.', **asking(model=m))",
    "session": "with agent_session(Harness.TOOL_LOOP, **asking(model=m)) as s: r = s.run('Go.')",
    "function": "def ask_it(): return agent(Harness.TOOL_LOOP, 'Go.', **asking(model=m))\nr = ask_it()",
    "stream": "from toolloop_jupyter import show\nr = show(agent(Harness.TOOL_LOOP, 'Go.', stream=True, **asking(model=m)))",
}


def test_demo_run(product):
    """A cell without a model uses the demonstration model, and shows a call, its result, an answer and a last line."""
    cell = run(product, "%%toolloop -t double --as r\nPlease double 21", allow_stdin=True)
    assert cell.status == "ok", cell.text
    assert "double(x=21)" in cell.text
    assert "`double` says: `42`" in cell.text
    assert foot(cell).startswith("done · 2 model calls · 1 tool call"), cell.text


@pytest.mark.parametrize(
    ("click", "said"), [("Approve", "[7] done"), ("Deny", "[] done"), ("Stop", "[] cancelled")]
)
def test_a_click_in_an_awaited_cell(product, click, said):
    """A click on Approve, Deny or Stop reaches the waiting cell. The queued cell runs once, after it."""
    cell = product.submit(FORMS["awaited"], allow_stdin=True)
    after = product.submit("print(runs, r.stop_reason)")
    product.button("Approve")
    product.click(click)
    product.wait(cell, after)
    assert (cell.status, after.stdout.strip()) == ("ok", said), cell.text


@pytest.mark.parametrize("form", list(FORMS))
def test_every_way_to_call_it(product, form):
    """In each way, the click arrives, other tasks continue while the cell waits, and the queued cells run in order."""
    product.execute(
        "ended = threading.Event(); threading.Thread(target=beat, args=[ended]).start()\n"
        "ticker = asyncio.ensure_future(tick()); await asyncio.sleep(0.1)"
    )
    cell = product.submit(
        "since = time.time()\n" + FORMS[form] if "%%" not in FORMS[form] else FORMS[form], allow_stdin=True
    )
    after = [product.submit("print(runs, r.stop_reason, r.text)"), product.submit("print('second')")]
    product.button("Approve")
    product.settle(0.5)
    product.click("Approve")
    product.wait(cell, *after)
    assert cell.status == "ok", cell.text
    assert [a.stdout for a in after] == ["[7] done The end.\n", "second\n"]
    assert ("Wall time" in cell.text) == (form == "time")
    ticked = run(
        product,
        "ticker.cancel(); ended.set(); print(len(ticks), len(beats), gap(ticks, ticks[0]), gap(beats, ticks[0]))\n"
        "ticks.clear(); beats.clear()",
    )
    count, of_thread, longest, late_thread = map(float, ticked.stdout.split())
    # A ticking thread measures how busy the machine is.
    assert count >= min(8, 0.7 * of_thread), "the ticker ticked while the cell waited"
    assert longest < 0.5 + late_thread


def test_in_a_widget_callback(product):
    """A button's callback calls `agent()`: its card takes the click. Cells that were sent meanwhile run afterwards."""
    product.execute(
        "b = widgets.Button(description='Begin'); done = []\n"
        "def begin(_): done.append(agent(Harness.TOOL_LOOP, 'Go.', **asking(model=m)).stop_reason)\n"
        "b.on_click(begin); display(b)",
        allow_stdin=True,
    )
    product.click("Begin")
    product.button("Approve")
    later = product.submit("print(runs, done)")
    product.click("Approve")
    product.wait(later)
    product.wait_until(lambda: printed(product, "runs, done") == "[7] ['done']")
    assert run(product, "b.close(); b.layout.close(); b.style.close()").status == "ok"


@pytest.mark.parametrize("form", ["awaited", "agent"])
def test_other_messages_are_neither_lost_nor_reordered(product, form):
    """While a cell asks, a slider is moved, completions and inspections are requested, and two cells are queued: all work."""
    product.execute(
        "slider = widgets.IntSlider(); moved = []\n"
        "slider.observe(lambda change: moved.append((change['new'], len(runs))), 'value'); display(slider)"
    )
    slider = product.open_widgets("IntSliderModel")[-1]
    cell = product.submit(FORMS[form], allow_stdin=True)
    product.button("Approve")
    asked = product.send("complete_request", {"code": "asynci", "cursor_pos": 6})
    info = product.send("kernel_info_request", {})
    for value in (1, 2, 3):
        product.set_state(slider, value=value)
    after = [product.submit("order = [slider.value, *moved]"), product.submit("print(order, moved, runs)")]
    product.settle(0.3)
    product.click("Approve")
    product.wait(cell, *after)
    assert after[1].stdout == "[3, (1, 0), (2, 0), (3, 0)] [(1, 0), (2, 0), (3, 0)] [7]\n"
    assert "asyncio" in product.wait_for_reply(asked)["matches"]
    assert product.wait_for_reply(info)["status"] == "ok"
    run(product, "[part.close() for part in (slider.layout, slider.style, slider)]")


@pytest.mark.parametrize("form", ["awaited", "agent"])
def test_output_stays_in_its_cell(product, form):
    """A tool's prints and displays stand below its call, even while a button of another cell prints. A later cell has none."""
    foreign = product.execute(
        "f = widgets.Button(description='Foreign'); f.on_click(lambda _: print('foreign')); display(f)"
    )
    code = {
        "awaited": "%%toolloop --model m -t noisy\nGo.",
        "agent": "r = agent(Harness.TOOL_LOOP, 'Go.', model=m, tools=[noisy])",
    }[form]
    product.execute("m = scripted('noisy')")
    cell, after = product.submit(code, allow_stdin=True), product.submit("print('after')")
    for _ in range(3):
        product.settle(0.25)
        product.click("Foreign")
    product.wait(cell, after)
    assert after.text == "after\n"
    assert "foreign" not in cell.text
    assert [
        line for line in ("printed 0", "printed 4", "displayed 7") if line not in cell.text + cell.html
    ] == []
    if form == "awaited":
        (block,) = [o for o in cell.outputs if "noisy(" in o.text]
        assert "printed 0" in block.text
        assert "displayed 7" in block.data["text/html"]
    assert "printed" not in foreign.text
    run(product, "[part.close() for part in (f.layout, f.style, f)]")


def test_thirty_runs_leave_nothing(product):
    """After 30 runs in both ways, nothing has changed: comms, tasks, threads, asyncio, streams, the kernel."""
    many = (
        "for n in range({n}):\n"
        "    runs.clear(); m.reset()\n"
        "    await aagent(Harness.TOOL_LOOP, 'Go.', model=m, tools=[double])\n"
        "    m.reset(); agent(Harness.TOOL_LOOP, 'Go.', model=m, tools=[double])\n"
    )
    magic = "%%toolloop --model m -t double\nGo."
    run(product, "import ast\n" + many.format(n=2), allow_stdin=True)
    for _ in range(2):
        run(product, "m.reset()")
        run(product, magic, allow_stdin=True)
    settled = "await asyncio.sleep(0.6); {name} = as_found()"
    run(product, settled.format(name="before"))
    cells = [product.submit(many.format(n=10), allow_stdin=True)]
    for _ in range(10):
        cells += [product.submit("m.reset()"), product.submit(magic, allow_stdin=True)]
    product.wait(*cells)
    assert [cell.error for cell in cells if cell.error] == []
    run(product, settled.format(name="later"))
    assert printed(product, "[(k, before[k], later[k]) for k in before if before[k] != later[k]]") == "[]"


def test_doctor(product):
    """`%toolloop doctor` gets the click on its button, and finds nothing missing."""
    cell, after = (
        product.submit("%toolloop doctor --wait 20", allow_stdin=True),
        product.submit("print('after')"),
    )
    product.click("Click me")
    product.wait(cell, after)
    assert "your click reached the kernel" in cell.text
    assert "tried: your click came" in cell.text
    assert "✗" not in cell.text
    assert after.stdout == "after\n"
    assert "nobody clicked within 0.5 s" in run(product, "%toolloop doctor --wait 0.5").text


@pytest.fixture(scope="module")
def spare(stack):
    """A second kernel of each stack. Its tests would change the shared kernel."""
    with LiveKernel(stack.python) as live:
        assert live.execute("%load_ext toolloop_jupyter\n" + SET_UP).status == "ok"
        yield live


def test_with_somebody_elses_nest_asyncio(spare):
    """If nest_asyncio (Colab has it) or nest_asyncio2 was applied before, clicks arrive, and the next cell runs.

    After `%toolloop nest`, the same is true in `asyncio.run`.
    """
    applied = spare.execute(
        "try: import nest_asyncio as nest\nexcept ImportError: import nest_asyncio2 as nest\nnest.apply()\nprint(nest.__name__)"
    )
    assert applied.stdout.startswith("nest_asyncio"), "ipykernel brings one of the two"
    script = f"async def main(): return {FORMS['aagent'].removeprefix('r = ')}\nr = asyncio.run(main())"
    for code in (FORMS["awaited"], FORMS["agent"], script):
        spare.execute("m = scripted(); runs.clear()")
        if code is script:
            assert spare.execute("%toolloop nest").stderr == ""
        cell, after = spare.submit(code, allow_stdin=True), spare.submit("print(runs, r.stop_reason)")
        spare.click("Approve")
        spare.wait(cell, after)
        assert after.stdout == "[7] done\n", cell.text


def test_the_kernel_dies_in_mid_run(spare):
    """The kernel is killed during a run: the front-end has every block that was finished."""
    spare.execute(
        "m = ScriptedModel([text('First thoughts.'), call('double', x=21)], [text('Second thoughts.'), call('sleeps', s=60)])"
    )
    cell = spare.submit("%%toolloop --model m -t double sleeps\nGo.", allow_stdin=True)
    spare.wait_until(lambda: "sleeps(s=60" in cell.text, timeout=90)
    spare.settle(0.3)
    spare.manager.provisioner.process.kill()
    with pytest.raises(AssertionError):
        spare.wait(cell)
    shown = [
        text for text in ("First thoughts.", "double(x=21)", "42", "Second thoughts.") if text in cell.text
    ]
    assert len(shown) == 4, cell.text
