"""A cell has the code of a script, `asyncio.run(main())`: without `%toolloop nest` and with it, on each stack."""

from __future__ import annotations

import importlib.util

import pytest

from support.kernels import LiveKernel
from support.mcp_server import HERE
from support.optional import optional
from support.stack_cells import SET_UP, run, wait_until_begun

MAIN = "async def main(): return await aagent(Harness.TOOL_LOOP, 'Go.', **asking(model=scripted()))\n"
FORMS = {
    "run": "r = asyncio.run(main())",
    "run_until_complete": "r = asyncio.get_event_loop().run_until_complete(main())",
    "function": "def script(): return asyncio.run(main())\nr = script()",
    "within await": "async def outer(): return asyncio.run(main())\nr = await outer()",
}
NO_WARNING = "import warnings; warnings.filterwarnings('ignore', 'coroutine .* was never awaited')\n"
"""`asyncio.run` refuses a coroutine. Python warns about this coroutine later, perhaps in the cell of another test."""
HINT = "toolloop: a notebook's event loop is running already: write `await main()` instead, or run `%toolloop nest` first.\n"


@pytest.fixture(scope="module")
def nested(stack):
    """A kernel of each stack, in which `%toolloop nest` has run."""
    with LiveKernel(stack.python) as kernel:
        for cell in ("%load_ext toolloop_jupyter\n" + SET_UP, "%toolloop nest"):
            done = kernel.execute(cell, timeout=120)
            assert done.status == "ok", done.text
        assert "until the kernel ends" in done.stdout
        yield kernel


@pytest.fixture
def kernel(nested):
    assert run(nested, "runs.clear()\n" + MAIN).status == "ok"
    return nested


@pytest.mark.stacks
@pytest.mark.parametrize("form", list(FORMS))
def test_a_card_inside_asyncio_run_is_clicked(kernel, form):
    """The click arrives while the cell waits, the tool runs once, and the queued cells run once each, in order."""
    cell = kernel.submit(FORMS[form], allow_stdin=True)
    after = [kernel.submit("print(runs, r.stop_reason, r.text)"), kernel.submit("print('second')")]
    kernel.button("Approve")
    kernel.settle(0.3)
    kernel.click("Approve")
    kernel.wait(cell, *after)
    assert cell.status == "ok", cell.text
    assert [one.stdout for one in after] == ["[7] done The end.\n", "second\n"]


@pytest.mark.stacks
@pytest.mark.parametrize("waits_for", ["card", "tool"])
def test_stop_ends_it(kernel, waits_for):
    """The cell waits for a card or for a tool: ■ ends it in one line. No call runs, but the queued cells run."""
    code = {"card": "asking()", "tool": "dict(model=scripted('waits', s=60), tools=[waits])"}[waits_for]
    cell = kernel.submit(
        "seen = []\nasync def main():\n    try: seen.append(await aagent(Harness.TOOL_LOOP, 'Go.', **"
        + code
        + "))\n"
        "    finally: seen.append('cleaned up')\nasyncio.run(main())",
        allow_stdin=True,
    )
    after = kernel.submit("print(runs, seen[-1])")
    kernel.button("Approve") if waits_for == "card" else wait_until_begun(kernel, "waits")
    kernel.interrupt()
    kernel.wait(cell, after)
    assert after.stdout == "[] cleaned up\n", (cell.text, after.status)
    assert "Traceback" not in cell.text


@pytest.mark.stacks
def test_in_tools_and_callbacks(kernel):
    """`asyncio.run` works in a tool on the loop, in a tool in a thread, and, with a card, in a button's callback."""
    cell = kernel.submit(
        "from toolloop_jupyter import tool\n"
        "async def twice(x): await asyncio.sleep(0.01); return 2 * x\n"
        "@tool(thread=False)\n"
        'def on_loop(x: int) -> int:\n    "Double."\n    runs.append(asyncio.run(twice(x)))\n    return runs[-1]\n'
        'def in_thread(x: int) -> int:\n    "Double."\n    runs.append(asyncio.run(twice(x)))\n    return runs[-1]\n'
        "for one in (on_loop, in_thread):\n"
        "    print(agent(Harness.TOOL_LOOP, 'Go.', model=scripted(one.__name__), tools=[one]).tool_results[0].output)",
    )
    kernel.wait(cell)
    assert cell.stdout == "14\n14\n", cell.text
    kernel.execute(
        "runs.clear(); b = widgets.Button(description='Begin'); done = []\n"
        "b.on_click(lambda _: done.append(asyncio.run(main()).stop_reason)); display(b)",
        allow_stdin=True,
    )
    kernel.click("Begin")
    kernel.button("Approve")
    kernel.click("Approve")
    assert (
        run(kernel, "while not done: await asyncio.sleep(0.05)\nprint(runs, done)").stdout == "[7] ['done']\n"
    )


@pytest.mark.stacks
def test_our_own_ways_go_on(kernel):
    """After `%toolloop nest`, a `%%toolloop` cell, `agent()` and LiteLLM's example still work. An error is the cell's error."""
    cell = kernel.submit(
        "%%toolloop --model scripted() -t double -p ask --as r\nGo.".replace("scripted()", "m")
    )
    kernel.wait(cell)
    assert cell.status == "ok", cell.text
    done = run(
        kernel,
        "import litellm\n"
        "async def test():\n    return await litellm.acompletion('openai/stub', [{'role': 'user', 'content': 'hi'}], mock_response='Hello.')\n"
        "print(asyncio.run(test()).choices[0].message.content)\n"
        "print(agent(Harness.TOOL_LOOP, 'Go.', model=scripted(), tools=[double]).text)",
        timeout=120,
    )
    assert done.stdout == "Hello.\nThe end.\n", done.text
    failed = kernel.execute("async def fails(): raise LookupError('inside')\nasyncio.run(fails())")
    assert failed.error.startswith("LookupError"), failed.text
    again = run(
        kernel,
        "%toolloop nest\n%config ToolLoop.nest = True\nprint(asyncio.run(asyncio.sleep(0.01, 'slept')))",
    )
    assert again.stdout.endswith("slept\n")
    back = kernel.execute("%config ToolLoop.nest = False")
    assert "nest lasts until the kernel ends" in back.text


@pytest.mark.stacks
@pytest.mark.parametrize("form", ["run", "run_until_complete"])
def test_without_it_there_is_a_hint(product, form):
    """Without `%toolloop nest`, one line follows Python's error, and nothing has run. Other errors do not have this line."""
    assert run(product, NO_WARNING + MAIN).status == "ok"
    cell = product.execute(FORMS[form], allow_stdin=True)
    assert (cell.error.split(":")[0], cell.stderr.count(HINT)) == ("RuntimeError", 1), cell.text
    assert run(product, "print(runs)").stdout == "[]\n"
    other = product.execute("raise RuntimeError('the loop is running')")
    assert "toolloop" not in other.stderr


@pytest.mark.stacks
def test_a_server_beside_it(kernel):
    """A connection to a server has its own loop. So the cell can call the server's tools, inside `asyncio.run` and outside of it."""
    optional(importlib.util.find_spec("mcp"), "the package mcp")
    cell = kernel.execute(
        f"import sys; sys.path.append({str(HERE.parent)!r}); import asyncio, mcp_server\n"
        "from toolloop_jupyter.mcp import connect; from toolloop_jupyter.teaching import ScriptedModel, call\n"
        "async def ask(): return await aagent(Harness.TOOL_LOOP, 'Go.', tools=[one], model=ScriptedModel(call('add', a=1), 'Two.'))\n"
        "with connect(mcp_server.command('slim'), permissions='full') as one:\n"
        "    print([result.output for result in asyncio.run(ask()).tool_results], one.add(a=2))",
        timeout=120,
    )
    assert cell.stdout == "['2'] 3\n", cell.text


def test_set_in_a_configuration_file(start_kernel, tmp_path):
    """A profile loads the extension and sets `c.ToolLoop.nest = True`: the first cell can call `asyncio.run`."""
    folder = tmp_path / "ipython" / "profile_default"
    folder.mkdir(parents=True)
    (folder / "ipython_config.py").write_text(
        "c = get_config()\nc.InteractiveShellApp.extensions = ['toolloop_jupyter']\nc.ToolLoop.nest = True\n",
        "utf-8",
    )
    kernel = start_kernel(env={"IPYTHONDIR": str(tmp_path / "ipython")})
    first = kernel.execute("import asyncio\nprint(asyncio.run(asyncio.sleep(0.01, 'slept')))")
    assert first.stdout == "slept\n", first.text


def test_a_configuration_file_and_load_ext_in_a_cell(start_kernel):
    """A profile sets `c.ToolLoop.nest = True`, and a cell loads the extension: the rest of this cell can call `asyncio.run`."""
    kernel = start_kernel()
    kernel.execute("get_ipython().config.ToolLoop.nest = True; import asyncio")
    cell = kernel.execute("%load_ext toolloop_jupyter\nprint(asyncio.run(asyncio.sleep(0.01, 'slept')))")
    assert cell.stdout == "slept\n", cell.text
