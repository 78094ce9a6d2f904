"""A run's output goes to the cell that started the run, and to no other cell."""

from __future__ import annotations

TOOLS = '''
async def everywhere(seconds=0.0):
    """Print and display from a task, a child task, a thread with the context, and the cell itself."""
    with kernel.Cell.here().outputs():
        async def child():
            await asyncio.sleep(seconds)
            print("child"); display("shown by child")
        def thread():
            time.sleep(seconds + 0.01)
            print("thread"); print("on stderr", file=sys.stderr); display("shown by thread")
        print("task")
        await asyncio.gather(child(), asyncio.to_thread(thread))
'''
WANTED = {"task", "child", "'shown by child'", "thread", "on stderr", "'shown by thread'"}


def lines(execution):
    return {line for output in execution.outputs for line in output.text.splitlines() if line}


def test_all_kinds_land_in_the_cell(live, way):
    """Prints and displays of a run's tasks and threads go to the run's cell."""
    live.execute(TOOLS)
    assert lines(live.execute(way("everywhere"))) == WANTED


def test_while_a_foreign_callback_prints(live, way):
    """Meanwhile, a callback of another cell prints and displays: each cell gets only its own output."""
    live.execute(
        TOOLS + "\nslider = widgets.IntSlider(max=1000)\n"
        "slider.observe(lambda change: (print('foreign', change.new), display('foreign')), 'value'); display(slider)"
    )
    slider = live.open_widgets("IntSliderModel")[-1]
    seen = len(live.messages)
    cell = live.submit(
        "async def long():\n    for _ in range(10): await everywhere(0.03)\n"
        f"print('mine')\n{way('long')}\nprint('mine too'); display('mine')"
    )
    moves = []
    while not cell.done:
        moves.append(
            live.send_comm(
                slider, {"method": "update", "state": {"value": len(moves) + 1}, "buffer_paths": []}
            )
        )
        live.settle(0.01)

    def foreign(kind):
        found = [message for message in live.messages[seen:] if message["msg_type"] == kind]
        return [message for message in found if "foreign" in str(message["content"])]

    def count(kind):
        return sum(str(message["content"]).count("foreign") for message in foreign(kind))

    live.wait_until(lambda: count("stream") == count("display_data") == len(moves))
    live.settle(0.1)
    assert lines(cell) == {*WANTED, "mine", "mine too", "'mine'"}
    assert cell.text.count("shown by child") == 10
    for kind in ("stream", "display_data"):
        assert count(kind) == len(moves)
        assert {message["parent_header"]["msg_id"] for message in foreign(kind)} <= set(moves)
    live.execute("[part.close() for part in (slider.layout, slider.style, slider)]")


def test_a_run_started_inside_outputs(live, way):
    """The cell enters `outputs()` before its run begins: the print of another widget's callback does not go to the cell."""
    live.execute(
        "button = widgets.Button(description='Foreign'); display(button)\nbutton.on_click(lambda _: print('foreign'))"
    )
    cell = live.submit(f"with kernel.Cell.here().outputs(): print({way('ask')})")
    live.button("Approve")
    live.click("Foreign")
    live.settle(0.1)
    live.click("Approve")
    live.wait(cell)
    assert cell.stdout.strip() == "Approve"
    live.execute("[part.close() for part in (button.layout, button.style, button)]")


def test_what_the_cell_itself_prints(live, way):
    """A cell without `outputs()` prints while other widgets' messages arrive: it gets all its prints, and no other ones."""
    live.execute(
        "slider = widgets.IntSlider(max=1000); display(slider)\n"
        "slider.observe(lambda change: print('foreign'), 'value')"
    )
    slider = live.open_widgets("IntSliderModel")[-1]
    cell = live.submit(
        "async def own():\n    for n in range(60):\n        print('mine', n); await asyncio.sleep(0.01)\n"
        "        while slider.value < n // 4: await asyncio.sleep(0.01)  # so many foreign messages have come amid them\n"
        f"{way('own')}\nprint('end')"
    )
    moves = 0
    while not cell.done:
        moves += 1
        live.set_state(slider, value=moves)
        live.settle(0.01)
    live.wait(cell)
    assert cell.stdout.splitlines() == [*(f"mine {n}" for n in range(60)), "end"]
    assert moves > 10
    live.execute("[part.close() for part in (slider.layout, slider.style, slider)]")


def test_nothing_goes_into_a_later_cell(live, way):
    """A thread and a task outlive their run: their prints still go to the run's cell."""
    live.execute(
        "async def leaves():\n"
        "    cell = kernel.Cell.here()\n"
        "    def thread():\n"
        "        with cell.outputs():\n"
        "            time.sleep(0.4); print('late from thread'); display('late display')\n"
        "    async def later():\n"
        "        with cell.outputs():\n"
        "            await asyncio.sleep(0.3); print('late from task')\n"
        "    keep.append(asyncio.ensure_future(later()))\n"
        "    keep.append(asyncio.get_running_loop().run_in_executor(None, thread))\n"
        "keep = []"
    )
    first = live.submit(way("leaves"))
    second = live.submit("print('second'); await asyncio.sleep(1); print('end')")
    live.wait(first, second)
    live.wait_until(lambda: len(lines(first)) == 3)
    assert lines(second) == {"second", "end"}
    assert lines(first) == {"late from thread", "late from task", "'late display'"}


def test_two_cells_of_one_loop(live):
    """A run in a background task writes to its own cell while later cells run and print."""
    live.execute(TOOLS)
    first = live.submit(
        "task = asyncio.ensure_future(attended(lambda: everywhere(0.3)))\nawait asyncio.sleep(0)"
    )
    second = live.submit("print('second'); await task; print('end'); display('second')")
    live.wait(first, second)
    live.wait_until(lambda: lines(first) >= WANTED, what="all output of the run")
    live.settle(0.1)
    assert lines(second) == {"second", "end", "'second'"}
    assert lines(first) == WANTED


def test_display_and_update(live, way):
    """`display` and `update` work in the run, in a thread and in a later cell."""
    live.execute(
        "async def shows():\n    global cell\n    cell = kernel.Cell.here()\n"
        "    cell.display({'text/plain': 'one', 'text/html': '<b>one</b>'}, 'block')\n"
        "    await asyncio.to_thread(cell.update, {'text/plain': 'two'}, 'block')\n"
    )
    first = live.execute(way("shows"))
    (block,) = first.outputs
    assert (block.data, block.display_id, block.updates) == ({"text/plain": "two"}, "block", 1)
    second = live.execute(
        "cell.display({'text/plain': 'three'}); cell.update({'text/plain': 'four'}, 'block')"
    )
    live.settle(0.1)
    assert second.outputs == []
    assert [output.text for output in first.outputs] == ["four", "three"]


def test_an_update_answers_the_cell_that_runs(live, way):
    """After the end of its cell, the parent of an update is the cell that runs now: nbclient reads no other messages."""
    live.execute(
        "kernel.watch_cells()\nasync def shows():\n    global cell\n    cell = kernel.Cell.here()\n"
        "    cell.display({'text/plain': 'one'}, display_id='block'); cell.update({'text/plain': 'two'}, 'block')"
    )
    first = live.execute(way("shows"))
    second = live.execute(
        "cell.update({'text/plain': 'three'}, 'block'); cell.display({'text/plain': 'new'})"
    )
    live.settle(0.1)
    kinds = ("display_data", "update_display_data")
    sent = [
        (message["content"]["data"]["text/plain"], message["parent_header"]["msg_id"])
        for message in live.messages
        if message["msg_type"] in kinds
        and message["parent_header"]["msg_id"] in (first.msg_id, second.msg_id)
    ]
    assert sent == [
        ("one", first.msg_id),
        ("two", first.msg_id),
        ("three", second.msg_id),
        ("new", first.msg_id),
    ]
    assert [output.text for output in first.outputs] == ["three", "new"]
    live.execute("kernel.unwatch_cells()")


def test_capture(live, way):
    """Two captures at the same time, in threads: each gets its own output in order, and the cell gets the rest."""
    live.execute(
        "def kept(into): return lambda kind, payload: into.append((kind, payload))\n"
        "def tool(name):\n"
        "    for n in range(3):\n"
        "        print(name, n); display(name); sys.stderr.write(name); time.sleep(0.02)\n"
        "async def captured(name, into):\n"
        "    with kernel.capture(kept(into)): await asyncio.to_thread(tool, name)\n"
        "async def both():\n"
        "    global a, b; a, b = [], []\n"
        "    with kernel.Cell.here().outputs():\n"
        "        print('before')\n"
        "        await asyncio.gather(captured('A', a), captured('B', b))\n"
        "        print('after')\n"
    )
    cell = live.execute(
        f"found = sys.stdout, sys.stderr\n{way('both')}\nassert found == (sys.stdout, sys.stderr)"
    )
    assert (cell.status, lines(cell)) == ("ok", {"before", "after"}), cell.text
    for name, letter in (("a", "A"), ("b", "B")):
        done = live.execute(
            f"text = ''.join(p for k, p in {name} if k == 'stdout'); print(repr(text))\n"
            f"print([k for k, p in {name} if k != 'stdout'])\nprint([p for k, p in {name} if k == 'display'][0])"
        )
        text, kinds, bundle = done.stdout.splitlines()
        assert text == repr("".join(f"{letter} {n}\n" for n in range(3)))
        assert kinds == str(["display", "stderr"] * 3)
        assert f"'{letter}'" in bundle


def test_inside_other_peoples_captures(live, way):
    """`capture_output()` around a run gets its output. In a run, `redirect_stdout` works."""
    live.execute(
        TOOLS + "\nfrom IPython.utils.capture import capture_output\n"
        "async def redirects():\n    with kernel.Cell.here().outputs():\n"
        "        with contextlib.redirect_stdout(io.StringIO()) as text: print('redirected')\n"
        "        print(text.getvalue().upper())"
    )
    cell = live.execute(
        f"with capture_output() as got:\n    {way('everywhere')}\n    kernel.Cell.here().display({{'text/plain': 'block'}})\n"
        "print(sorted(got.stdout.split()), got.stderr, [o.data['text/plain'] for o in got.outputs])"
    )
    assert cell.status == "ok", cell.text
    assert "['child', 'task', 'thread'] on stderr" in cell.stdout
    assert "'block']" in cell.stdout
    assert lines(live.execute(way("redirects"))) == {"REDIRECTED"}


def test_a_tools_clear_output_does_not_clear_the_run(live, way):
    """`clear_output()` in a run does not clear the cell. Outside of a run, it does."""
    live.execute(
        "from IPython.display import clear_output\nasync def clears():\n"
        "    with kernel.Cell.here().outputs(): print('kept'); clear_output()"
    )
    assert lines(live.execute(way("clears"))) == {"kept"}
    assert lines(live.execute("print('gone'); clear_output(); print('left')")) == {"left"}


def test_cell_id_and_stdin(live):
    """The cell's id, and whether a person can answer `input()`, are those of the running request."""
    code = "print(kernel.Cell.here().cell_id, kernel.has_stdin(), kernel.is_in_kernel(), kernel.is_in_terminal())"
    assert live.execute(code, allow_stdin=True).stdout.strip() == "None True True False"
    assert live.execute(code, allow_stdin=False).stdout.strip() == "None False True False"
    message = live.client.session.msg("execute_request", dict(CONTENT, code=code))
    message["metadata"] = {"cellId": "abc"}
    live.client.shell_channel.send(message)
    live.wait_for_reply(message["header"]["msg_id"])

    def printed():
        return "".join(
            m["content"]["text"]
            for m in live.messages
            if m["msg_type"] == "stream" and m["parent_header"]["msg_id"] == message["header"]["msg_id"]
        )

    live.wait_until(lambda: printed().endswith("\n"), what="what the cell prints")
    assert printed().startswith("abc ")


CONTENT = {"silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}


def test_200_runs_leave_nothing(live):
    """After 200 runs in both ways, nothing has changed: comms, tasks, threads, asyncio, streams, the kernel."""
    code = """
async def one(n):
    with kernel.Cell.here().outputs():
        with kernel.capture(lambda kind, payload: None):
            print("captured")
        print(n)
        await asyncio.sleep(0)
def same():
    return {key: value for key, value in as_found().items() if key != "tasks"}, as_found()["tasks"]
for n in range(2): await attended(lambda: one(n)); kernel.run_sync(lambda: one(n))
await asyncio.sleep(0.05)
before = same()
"""
    assert live.execute(code).status == "ok"
    cells = [
        live.submit("for n in range(50): await attended(lambda: one(n))"),
        live.submit("for n in range(50): kernel.run_sync(lambda: one(n))"),
        *(
            live.submit(f"{form}\nprint('.')")
            for form in ("await attended(lambda: one(0))", "kernel.run_sync(lambda: one(0))") * 5
        ),
        live.submit("for n in range(45): await attended(lambda: one(n)); kernel.run_sync(lambda: one(n))"),
        live.submit(
            "await asyncio.sleep(0.05); after = same()\nfor key in before[0]:\n    assert before[0][key] == after[0][key], (key, before[0][key], after[0][key])\nassert after[1] <= before[1], after\nfor key in ('asyncio', 'streams', 'publisher', 'input'):\n    assert pristine[key] == after[0][key], (key, pristine[key], after[0][key])"
        ),
    ]
    live.wait(*cells)
    assert [cell.error for cell in cells] == [None] * len(cells), cells[-1].text
