"""Connections in a live kernel of each stack: cards, ■, a cell that runs again, Tab, the doctor, and what is left when the
kernel ends.
"""

from __future__ import annotations

import time

import pytest

from support.kernels import LiveKernel
from support.mcp_server import HERE, is_alive

pytestmark = pytest.mark.kernel

SET_UP = f"""
%load_ext toolloop_jupyter
import os, sys, threading
os.environ["TEST_PATH"] = os.environ.get("PYTHONPATH") or os.pathsep.join(sys.path)
sys.path.append({str(HERE.parent)!r})
import mcp_server
from mcp_server import list_processes
from toolloop_jupyter.mcp import connect
from toolloop_jupyter.teaching import ScriptedModel, call
""".strip()
CONNECT = "files = connect(mcp_server.command(), env={'PYTHONPATH': 'TEST_PATH'})"
COUNT = """
import collections, gc
def count_all():
    gc.collect()
    kinds = collections.Counter(processes=len(list_processes()), threads=threading.active_count(), tasks=len(asyncio.all_tasks()))
    for number in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd") else []:
        with contextlib.suppress(OSError):
            name = os.readlink(f"/proc/self/fd/{number}").replace("anon_inode:[", "[").split(":")[0]
            kinds[name] += "history.sqlite" not in name  # IPython's own
    del kinds["[eventfd]"]  # of pyzmq's sockets: ipykernel makes some for a thread that prints, and keeps them for a while
    return kinds
"""


@pytest.fixture(scope="module")
def kernel(stack):
    """A kernel of each stack, with a connection to a server over stdio."""
    with LiveKernel(stack.python) as live:
        for code in (SET_UP, CONNECT):
            made = live.execute(code, timeout=120)
            assert made.status == "ok", made.text
        yield live


def test_a_card_asks_and_the_click_runs_it(kernel):
    """`--tools files` in a cell with "full" permissions: a card shows the server's name and its claim. The click runs the
    call.
    """
    kernel.execute("m = ScriptedModel(call('add', a=1, b=2), 'Three.')")
    cell = kernel.submit("%%toolloop --model m --tools files -p full --as r\nAdd.", allow_stdin=True)
    kernel.button("Approve")
    shown = " ".join(str(one.state.get("value")) for one in kernel.open_widgets("HTMLModel"))
    assert "the MCP server “tester 1.0”" in shown
    assert "nobody has checked: it only reads" in shown
    kernel.click("Approve")
    kernel.wait(cell)
    assert "add(a=1, b=2)" in cell.text
    assert kernel.execute("print(r.tool_results[0].value)").stdout == "{'result': 3}\n"


def has_ended(kernel, sent):
    """Return whether the kernel has said that it is done with a message."""
    said = [one for one in kernel.messages if one["parent_header"].get("msg_id") == sent]
    return any(one["content"].get("execution_state") == "idle" for one in said)


def test_a_question_is_a_form_on_a_card(kernel):
    """A server's question during a call is a card with the server's words and a form. "Send" sends the form, and the record
    says so.
    """
    kernel.execute("m = ScriptedModel(call('book'), 'Booked.')")
    cell = kernel.submit("%%toolloop --model m --tools files.book --as r\nBook.", allow_stdin=True)
    kernel.click("Approve")
    kernel.button("Send")
    shown = " ".join(str(one.state.get("value")) for one in kernel.open_widgets("HTMLModel"))
    assert "Where to?" in shown
    (city,) = [one for one in kernel.open_widgets("TextModel") if one.description == "city"]
    # A front-end sends a second change only after the kernel has handled the first one.
    for value in (
        "Roma",
        "Rome",
    ):
        sent = kernel.send_comm(city, {"method": "update", "state": {"value": value}, "buffer_paths": []})
        kernel.wait_until(lambda sent=sent: has_ended(kernel, sent))
    kernel.click("Send")
    kernel.wait(cell)
    assert kernel.execute("print(r.tool_results[0].output)").stdout == "accept: city='Rome' nights=1\n"
    assert kernel.execute("print([a.decision.arguments for a in r.approvals])").stdout == (
        "[None, {'city': 'Rome', 'nights': 1}]\n"
    )
    assert "approved with edits" in cell.text
    assert "asked: Where to?" in cell.text


WATCH = """
import contextlib, logging
logging.disable()  # a server in memory logs into this process
from toolloop_jupyter import Harness, aagent, agent
from toolloop_jupyter.core.events import Observer
class Watching(Observer):
    def progress(self, call, progress):
        seen.append(progress.note)
        if (progress.total, progress.done) == (500, 0):
            open(begun, "w").close()
seen, shop, rest = [], mcp_server.make_server(), contextlib.ExitStack()
"""


@pytest.mark.parametrize("awaited", [True, False])
def test_a_stop_cancels_the_call_and_the_connection_stays(kernel, awaited, tmp_path):
    """■ during a call ends the run, and the server gets the protocol's cancel. The next call uses the same connection."""
    begun = tmp_path / "begun"
    kernel.execute(
        f"{WATCH}begun = {str(begun)!r}\n"
        "m = ScriptedModel(call('slow', steps=500), 'Done.')\nquick = connect(mcp_server.make_server(), permissions='full')\n"
        "before = list_processes()"
    )
    code = (
        "%%toolloop --model m --tools files.slow -p ask --as r\nGo."
        if awaited
        else "r = agent(Harness.TOOL_LOOP, 'Go.', model=m, tools=[files.slow], observer=Watching())"
    )
    cell = kernel.submit(code, allow_stdin=True)
    kernel.click("Approve")
    kernel.wait_until(
        lambda: "step 2" in cell.html + cell.text if awaited else begun.exists(), what="the call"
    )
    kernel.interrupt()
    kernel.wait(cell)
    assert "Traceback" not in cell.text or not awaited
    after = kernel.execute("print(files.add(a=1), list_processes() == before)\nquick.close()")
    assert after.stdout == "{'result': 2} True\n", after.text
    kernel.wait_until(
        lambda: "slow was cancelled" in kernel.execute("print(files.log)").stdout, what="the cancel"
    )


TRANSPORTS = {
    "memory": "connect(shop, permissions='full')",
    "stdio": "connect(mcp_server.command(), env={'PYTHONPATH': 'TEST_PATH'}, permissions='full')",
    "http": "connect(rest.enter_context(mcp_server.serve_http()), permissions='full')",
}


@pytest.mark.parametrize("awaited", [True, False])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_each_transport_does_it_all(kernel, transport, awaited, tmp_path):
    """In memory, over stdio and over HTTP, awaited and not: list, call, progress, error, ■ during a call, and the next call
    all work.
    """
    begun = tmp_path / "begun"
    made = kernel.execute(
        f"{WATCH}begun = {str(begun)!r}\none = {TRANSPORTS[transport]}\nprint(len(one.tools))", timeout=120
    )
    assert made.stdout == "9\n", made.text
    run = "await aagent" if awaited else "agent"
    begin = f"r = {run}(Harness.TOOL_LOOP, 'Go.', tools=[one], observer=Watching(), model=ScriptedModel("
    ran = kernel.execute(f"{begin}[call('add', a=1), call('slow', steps=2), call('fail')], 'Done.'))")
    assert ran.status == "ok", ran.text
    printed = kernel.execute("print([t.output for t in r.tool_results], seen, sep='\\n')").stdout
    assert printed == (
        "['{\"result\": 2}', 'done', 'ServerError: Error executing tool fail: the disk is full']\n"
        "['step 0', 'step 1']\n"
    )
    cell = kernel.submit(f"{begin}call('slow', steps=500), 'Done.'))", allow_stdin=True)
    kernel.wait_until(begun.exists)
    kernel.interrupt()
    kernel.wait(cell)
    after = kernel.execute("print(one.add(a=1), one.closed); one.close(); rest.close()")
    assert after.stdout == "{'result': 2} False\n", after.text


def test_a_cell_that_runs_again_leaves_one_server(kernel):
    """The cell that connects runs again, and runs again after a change: each time, exactly one server is left."""
    for code in (CONNECT, CONNECT, CONNECT.replace("connect(", "connect( ")):
        assert kernel.execute(code).status == "ok"
        done = "import time; until = time.time() + 20\nwhile len(list_processes()) > 1 and time.time() < until: time.sleep(0.05)"
        kernel.execute(done)
        assert kernel.execute("print(len(list_processes()))").stdout == "1\n"


ONCE = """
import asyncio, contextlib
from toolloop_jupyter import Harness, aagent

async def once(stdio):
    server = None if stdio else mcp_server.make_server()
    made = connect(mcp_server.command("slim") if stdio else server, permissions="full")
    with made as one:
        assert one.add(a=1) in ("2", {"result": 2})
        m = ScriptedModel(call("slow", **({} if stdio else {"steps": 500})), "Done.")
        run = asyncio.ensure_future(aagent(Harness.TOOL_LOOP, "Go.", model=m, tools=[one]))
        await until(lambda: "slow has begun" in one.log if stdio else ("slow", 500) in server.ran)
        run.cancel()
        await asyncio.wait([run])
        assert run.cancelled()
        await until(lambda: "slow was cancelled" in one.log if stdio else server.cancelled == [500])

async def until(holds, seconds=20):
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        await asyncio.sleep(0.02)
    assert holds()

async def many(count):  # ten at a time
    for begin in range(0, count, 10):
        await asyncio.gather(*(once(stdio=n % 2 == 0) for n in range(begin, min(count, begin + 10))))
"""


def test_many_connections_calls_and_cancels_leave_nothing(kernel):
    """50 connections make a call and a cancelled call each, ten at a time, half of them over stdio.

    Each server hears its cancel. Afterwards, no additional process, thread, task or file descriptor is left.
    """
    assert kernel.execute(f"import time\n{ONCE}{COUNT}").status == "ok"
    first = kernel.execute("await many(4)")
    assert first.status == "ok", first.text
    # The thread of a tool waits for more work for a while. So the first count waits until these threads have ended.
    kernel.execute(
        "await until(lambda: not any(one.name in ('toolloop-tool', 'toolloop-idle') for one in threading.enumerate()))"
    )
    # A cell that awaits is a task. So each counting cell awaits, and counts itself.
    assert kernel.execute("await asyncio.sleep(0)\nbefore = count_all()").status == "ok"
    many = kernel.execute("await many(50)", timeout=300)
    assert many.status == "ok", many.text
    left = kernel.execute("await until(lambda: not count_all() - before)\nprint(dict(count_all() - before))")
    assert left.stdout == "{}\n", left.text


def test_a_recorded_run_is_played_again(kernel):
    """With `--record` and `--replay`, the model's answers come from the file. The server itself is called both times."""
    kernel.execute(
        "import mcp_server; shop = mcp_server.make_server(); lib = connect(shop, permissions='full')\n"
        "m = ScriptedModel(call('shout', text='hey'), 'It said HEY.')"
    )
    first = kernel.execute("%%toolloop --model m --tools lib --record lesson.jsonl --as r\nShout.")
    again = kernel.execute("%%toolloop --tools lib --replay lesson.jsonl --as r2\nShout.")
    assert (first.status, again.status) == ("ok", "ok"), first.text + again.text
    printed = kernel.execute("print(r2.text, [t.value for t in r2.tool_results], shop.ran); lib.close()")
    assert printed.stdout == "It said HEY. ['HEY'] [('shout', 'hey'), ('shout', 'hey')]\n"


def test_a_recorded_run_is_played_without_its_server(kernel):
    """With `--replay-tools`, neither the server nor the variable of its connection is needed: calls are answered from the
    recording.
    """
    kernel.execute(
        "shop = mcp_server.make_server(); lib = connect(shop, permissions='full')\n"
        "m = ScriptedModel([call('shout', text='hey'), call('fail')], 'It said HEY.')"
    )
    first = kernel.execute("%%toolloop --model m --tools lib --record away.jsonl --as r\nShout.")
    kernel.execute("lib.close(); del lib; ran = list(shop.ran)")
    again = kernel.execute("%%toolloop --tools lib --replay away.jsonl --replay-tools --as r2\nShout.")
    assert (first.status, again.status) == ("ok", "ok"), first.text + again.text
    printed = kernel.execute(
        "print(r2.text, [t.output for t in r2.tool_results] == [t.output for t in r.tool_results], shop.ran == ran)"
    )
    assert printed.stdout == "It said HEY. True True\n"
    assert "replayed from away.jsonl with its tools" in again.text
    alone = kernel.execute("%%toolloop --replay-tools\nShout.")
    assert "--replay-tools needs a recording" in alone.text


def test_a_public_server(kernel):
    """A server from the package index, installed beside the kernel, is connected by its command, called, and closed."""
    made = kernel.execute(
        "clock = connect([sys.executable, '-m', 'mcp_server_time', '--local-timezone', 'UTC'])\nclock"
    )
    assert made.status == "ok", made.text
    assert "convert_time" in made.text
    kernel.execute(
        "m = ScriptedModel(call('convert_time', source_timezone='UTC', time='12:00', target_timezone='Asia/Tokyo'), 'At nine.')"
    )
    cell = kernel.submit("%%toolloop --model m --tools clock --as r\nWhen?", allow_stdin=True)
    kernel.click("Approve")
    kernel.wait(cell)
    printed = kernel.execute(
        "print('T21:00:00' in r.tool_results[0].output, clock.log[-300:]); clock.close()"
    )
    assert printed.stdout.startswith("True"), printed.text + cell.text


def test_tab_and_the_doctor(kernel):
    """Tab offers the connection and its tools; the doctor has a line for it."""
    line = "%%toolloop --tools fil"
    reply = kernel.request("complete_request", {"code": line + "\nx", "cursor_pos": len(line)})
    assert {"files", "files.add"} <= set(reply["matches"])
    found = kernel.execute("%toolloop doctor --wait 0.5", allow_stdin=True)
    assert "“tester 1.0”" in found.text
    assert "tools" in found.text


def test_the_end_of_the_kernel_ends_the_servers(kernel):
    """A kernel that is shut down leaves no server. In all these tests, nothing was printed to a cell's stderr."""
    assert [cell.stderr for cell in kernel.executions.values() if cell.stderr] == []
    pids = [*map(int, kernel.execute("print(*list_processes())").stdout.split())]
    assert pids
    kernel.client.shutdown()
    deadline = time.monotonic() + 30
    while (kernel.alive or any(map(is_alive, pids))) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(is_alive, pids))
