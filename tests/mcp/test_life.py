"""Guarantee: a connection has a separate thread and leaves nothing behind, whatever its server does."""

from __future__ import annotations

import contextlib
import http.server
import re
import subprocess
import sys
import threading
import time

import psutil
import pytest

from support.mcp_server import (
    command,
    environment,
    is_alive,
    leave_out_processes,
    list_processes,
    make_server,
)
from toolloop_jupyter.core.events import Mistake
from toolloop_jupyter.mcp import ConnectionFailed, ServerError
from toolloop_jupyter.mcp.link import THREAD


@pytest.fixture(autouse=True, scope="module")
def _without_pools_of_other_tests():
    leave_out_processes()


def count_all():
    """(threads, processes, file descriptors) of this process."""
    files = getattr(psutil.Process(), "num_fds", lambda: 0)()  # Windows has no such count
    return len(threading.enumerate()), len(list_processes()), files


def threads():
    return [one for one in threading.enumerate() if one.name == THREAD]


def test_each_transport_connects_lists_calls_and_closes(connection):
    """In memory, over stdio and over HTTP, the list is there after the handshake, direct calls work, and `close` ends the
    connection.
    """
    assert {"add", "shout", "slow"} <= set(connection.list_tools())
    assert "tester 1.0" in connection.title
    assert connection.shout(text="hey") == "HEY"
    assert connection.add(a=1, b=2) == {"result": 3}
    connection.close()
    connection.close()
    assert connection.closed
    assert threads() == []
    with pytest.raises(ServerError, match="closed"):
        connection.add(a=1)


async def test_connects_inside_a_running_loop(connect):
    """`connect()` and direct calls need no `await`, and work in a cell, where a loop is already running."""
    files = connect(make_server())
    assert files.shout(text="a") == "A"


def test_nothing_is_left_after_many(connect):
    """Ten connections with a call and a close each leave no thread, no process and no file descriptor."""
    connect(make_server()).close()
    connect(command(), env=environment()).close()
    before = count_all()
    for number in range(10):
        with connect(make_server()) if number % 5 else connect(command(), env=environment()) as one:
            assert one.add(a=number) == {"result": number + 1}
    deadline = time.monotonic() + 20  # a thread in which a server's function ran ends a moment after its loop
    while count_all()[0] > before[0] and time.monotonic() < deadline:
        time.sleep(0.01)
    # What earlier tests of this process left open may be closed meanwhile.
    assert all(now <= earlier for now, earlier in zip(count_all(), before, strict=True)), (
        before,
        count_all(),
    )


def test_its_children_end_with_it(connect):
    """If a server ends by itself and leaves a child process that ignores SIGTERM, this process is ended, too."""
    files = connect(command("litter"), env=environment())
    files.add(a=1)
    child = int(re.search(r"child (\d+)", files.log)[1])
    assert is_alive(child)
    files.close()
    assert not is_alive(child)


def test_one_that_heeds_nothing_is_ended(connect):
    """A server that ignores both the end of its input and SIGTERM is killed."""
    files = connect(command("stubborn"), env=environment())
    running = list_processes()
    assert running
    files.close()
    assert not any(map(is_alive, running))


def test_nobody_holds_it_any_more(connect):
    """A connection that no variable refers to is closed, for example when a cell runs again."""
    from toolloop_jupyter import mcp

    files = mcp.connect(command(), env=environment())
    running = list_processes()
    del files
    deadline = time.monotonic() + 20
    while (any(map(is_alive, running)) or threads()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_alive, running))
    assert threads() == []


def test_the_end_of_the_interpreter_ends_it():
    """A script that ends with open connections ends at once, and its servers with it."""
    code = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "from support.mcp_server import *\n"
        "from toolloop_jupyter.mcp import connect\n"
        "one, two = connect(command(), env=environment()), connect(make_server())\n"
        "print(*list_processes())"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.split()
    assert not any(is_alive(int(pid)) for pid in ran.stdout.split())
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("hang", "did not answer the handshake within {} s; its last lines on stderr: starting up …"),
        ("garbage", "did not answer the handshake within {} s; 50 lines on its stdout were not MCP messages"),
        ("gone", "cannot be connected to: .*; its last lines on stderr: no database at localhost"),
    ],
)
def test_a_failed_handshake_is_one_line(connect, kind, says):
    """If a server hangs, writes no MCP messages or ends, the error is one line with its last lines on stderr, and no process
    is left.
    """
    for seconds in (2, 10, 60):  # a busy machine may need longer to start the server
        with pytest.raises(ConnectionFailed) as failed:
            connect(command(kind), env=environment(), handshake=seconds)
        if re.search(says.format(seconds), str(failed.value)):
            break
    failed.match(says.format(seconds))
    assert "\n" not in str(failed.value)
    assert failed.value._render_traceback_() == [f"toolloop: {failed.value}"]
    assert list_processes() == []
    assert threads() == []


def test_a_flood_of_stderr_is_bounded(connect):
    """A server that writes to stderr without end works. Only the last part of its stderr can be read."""
    files = connect(command("flood"), env=environment())
    for _ in range(20):
        assert files.add(a=1) == {"result": 2}
    assert 0 < len(files.log) <= 20_000
    assert files.log.count("noise") > 10


def test_one_that_died_is_started_again(connect):
    """If a server ends during a call, the error has its last lines on stderr, and the next call starts a new server."""
    files = connect(command(), env=environment())
    with pytest.raises(ServerError, match=r"the server is gone.*a last word"):
        files.die()
    assert files.add(a=1) == {"result": 2}
    assert len(threads()) == 1


def test_a_gone_address_is_one_line(connect):
    """If no server listens at an address, the error is one line."""
    with pytest.raises(ConnectionFailed, match="cannot be connected to"):
        connect("http://127.0.0.1:9/mcp", handshake=10)


@contextlib.contextmanager
def answering(status):
    """The address of a server that answers everything with this status, and points elsewhere."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            seen.append(self.path)
            self.send_response(status)
            self.send_header("Location", f"http://localhost:{running.server_port}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_): ...

    seen = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{running.server_port}/mcp", seen
        finally:
            running.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("status", "headers", "says"),
    [
        (
            401,
            {"Authorization": "A_TOKEN"},
            r"refuses the key \(HTTP 401\); check the variables in headers=: 'A_TOKEN'",
        ),
        (401, None, r"refuses the key \(HTTP 401\); pass a key: headers="),
        (403, {"X-Key": "A_TOKEN"}, r"refuses a request with this key \(HTTP 403\)"),
        (307, {"X-Key": "A_TOKEN"}, r"\(HTTP 307\)"),
        (500, None, r"\(HTTP 500\)"),
    ],
)
def test_what_an_address_answers_is_told(connect, monkeypatch, status, headers, says):
    """If a server refuses the key, the error says where the key comes from. For any other answer, it has the HTTP status. The
    headers are sent to no other host.
    """
    monkeypatch.setenv("A_TOKEN", "opaque+Q7/x9.Zp3wVt")
    with answering(status) as (address, seen):
        with pytest.raises(ConnectionFailed, match=says) as failed:
            connect(address, headers=headers, handshake=20)
        assert "\n" not in str(failed.value)
        assert "Q7" not in str(failed.value)
        assert set(seen) == {"/mcp"}


def test_variables_are_named_and_never_shown(connect, monkeypatch):
    """`env=` and `headers=` name variables. If a value is typed there, it is refused and not repeated. The value of a
    variable is never shown.
    """
    monkeypatch.setenv("BOARD_TOKEN", "opaque+Q7/x9.Zp3wVt")
    for keyword in ("env", "headers"):
        where = "https://host/mcp" if keyword == "headers" else command()
        with pytest.raises(Mistake, match="NAME of an environment or notebook variable") as refused:
            connect(where, **{keyword: {"Authorization": "sk-live-12345678901234567890"}})
        assert "12345" not in str(refused.value)
    with pytest.raises(ConnectionFailed) as failed:
        connect("http://127.0.0.1:9/opaque+Q7/x9.Zp3wVt", headers={"Authorization": "BOARD_TOKEN"})
    assert "Q7" not in str(failed.value)


def test_a_key_with_a_line_break_is_not_shown(connect, monkeypatch, address):
    """A key that ends with a line break is sent without it. If a key cannot be in a header, the error does not show it."""
    monkeypatch.setenv("A_TOKEN", "opaque+Q7/x9.Zp3wVt\n")
    assert connect(address, headers={"X-Key": "A_TOKEN"}).add(a=1) == {"result": 2}
    for value in ("opaque+Q7/x9.Zp3wVt\nX-More: 1", "opaque+Q7/x9.Zp3wVt-ü"):
        monkeypatch.setenv("A_TOKEN", value)
        with pytest.raises(Mistake, match="cannot send the value of 'A_TOKEN'") as refused:
            connect(address, headers={"X-Key": "A_TOKEN"})
        assert "Q7" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "keywords", "says"),
    [
        ("", {}, "takes a command"),
        ("no-such-program-here", {}, "there is no program 'no-such-program-here'"),
        ('say "', {}, "No closing quotation"),
        ("litellm_proxy", {}, "needs the variable LITELLM_PROXY_API_BASE"),
        ("python", {"headers": {"a": "b"}}, "this kind of server does not use headers="),
        ("python", {"permissions": "fuul"}, "permissions must be"),
        ("ws://host/mcp", {}, "an address"),
        (3, {}, "this is a int"),
        (command, {}, r"if command\(\) makes the server, write command\(\)"),
        ("python", {"roots": ""}, "there is no folder ''"),
        ("python", {"roots": None}, "roots= takes folders"),
        ("python", {"include": 3}, "include must be"),
        ("python", {"exclude": None}, "exclude must be"),
        ("python", {"name": 3}, "name must be text"),
        ("python", {"timeout": "long"}, "timeout must be a number of seconds"),
        ("python", {"handshake": 0}, "handshake must be > 0"),
        ("python", {"max_result": 0}, "max_result must be >= 1"),
        ("python", {"cwd": 3}, "cwd must be"),
        ("python", {"env": ["HOME"]}, "env= must be a dict that maps each name"),
        ("python", {"env": {"A=B": "PATH"}}, "cannot send the value of 'PATH'"),
        ("https://host/mcp", {"headers": {"a b": "PATH"}}, "cannot send the value of 'PATH'"),
    ],
)
def test_what_is_typed_wrong(connect, given, keywords, says, monkeypatch):
    """A wrong argument raises an error before anything is started."""
    monkeypatch.delenv("LITELLM_PROXY_API_BASE", raising=False)
    with pytest.raises(ValueError, match=says):
        connect(given, **keywords)
    assert threads() == []


def test_the_notebook_loads_none_of_it():
    """Importing the package and `%load_ext` import neither `mcp`, nor this room, nor `anyio`."""
    code = (
        "import sys\nfrom IPython.core.interactiveshell import InteractiveShell\nshell = InteractiveShell.instance()\n"
        "before = set(sys.modules)\nshell.run_line_magic('load_ext', 'toolloop_jupyter')\n"
        "print(*(set(sys.modules) - before))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = ran.stdout.split()
    assert "toolloop_jupyter.notebook.magic.extension" in loaded
    assert not [name for name in loaded if name.split(".")[0] in ("mcp", "mcp_types", "anyio", "httpx2")]
    assert "toolloop_jupyter.mcp" not in loaded
