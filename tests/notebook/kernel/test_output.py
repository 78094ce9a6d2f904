"""Without a kernel: prints and displays go to the right place (`output.py`)."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import io
import os
import subprocess
import sys
import threading

import pytest

from toolloop_jupyter.notebook.kernel.comms import serving_clicks
from toolloop_jupyter.notebook.kernel.output import Cell, capture
from toolloop_jupyter.notebook.kernel.sync import run_sync
from toolloop_jupyter.notebook.kernel.where import (
    delivers_clicks,
    get_shell,
    has_widgets,
    is_in_kernel,
)


@pytest.fixture(autouse=True)
def put_back():
    """No test changes sys.stdout or sys.stderr for the next one."""
    found = sys.stdout, sys.stderr
    yield
    assert (sys.stdout, sys.stderr) == found


def kept(into):
    return lambda kind, payload: into.append((kind, payload))


def text(captured, kind="stdout"):
    return "".join(payload for k, payload in captured if k == kind)


def test_both_streams(capsys):
    """In a capture, prints go to the sink, with the name of the stream. After the capture, they go to the old place."""
    got = []
    with capture(kept(got)):
        print("out")
        print("err", file=sys.stderr)
    print("after")
    assert (text(got), text(got, "stderr"), capsys.readouterr().out) == ("out\n", "err\n", "after\n")


def test_nested(capsys):
    """A print goes to the innermost capture. After that capture has ended, prints go to the outer one."""
    outer, inner = [], []
    with capture(kept(outer)):
        print(1)
        with capture(kept(inner)):
            print(2)
        print(3)
    assert (text(outer), text(inner), capsys.readouterr().out) == ("1\n3\n", "2\n", "")


async def test_out_of_order(capsys):
    """The captures of two tasks overlap, and the first one ends first: each gets the prints of its task."""
    first, second = [], []

    async def run(into, before, during):
        await asyncio.sleep(before)
        with capture(kept(into)):
            for n in range(3):
                print(n)
                await asyncio.sleep(during)

    await asyncio.gather(run(first, 0, 0.02), run(second, 0.03, 0.03))
    print("between")
    assert (text(first), text(second), capsys.readouterr().out) == ("0\n1\n2\n", "0\n1\n2\n", "between\n")


def in_thread(function, *arguments):
    thread = threading.Thread(target=function, args=arguments)
    thread.start()
    thread.join()


def test_threads(capsys):
    """A thread with a copy of the context is captured. So is a thread without one, while the captures are nested in each other."""
    got, other = [], []
    with capture(kept(got)):
        in_thread(contextvars.copy_context().run, print, "inside")
        in_thread(print, "bare")
        with capture(kept(other)):
            in_thread(print, "whose")
    assert (text(got), text(other)) == ("inside\nbare\n", "whose\n")
    assert capsys.readouterr().out == ""


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="threads start in a copy of the context there")
def test_threads_of_two_tools_at_once(capsys):
    """Two tools run side by side: the print of a thread without a context is not captured, because it may belong to either tool."""
    got, other, beside = [], [], contextvars.copy_context()
    with contextlib.ExitStack() as stack, capture(kept(got)):
        second = capture(kept(other))
        beside.run(second.__enter__)
        stack.callback(beside.run, second.__exit__, None, None, None)
        in_thread(print, "whose")
    assert (text(got), text(other), capsys.readouterr().out) == ("", "", "whose\n")


def test_a_reference_that_somebody_keeps(capsys):
    """A logging handler stores `sys.stdout` in a capture. After the capture, what it writes goes to the usual place."""
    with capture(kept([])):
        stream = sys.stdout
    print("late", file=stream)
    stream.writelines(["a", "b"])
    stream.flush()
    assert capsys.readouterr().out == "late\nab"


def test_somebody_redirects_inside_and_across(capsys):
    """`redirect_stdout` in a capture gets the prints. If it ends after the capture, the stream that it restores works."""
    got, text_file = [], io.StringIO()
    with capture(kept(got)), contextlib.redirect_stdout(text_file):
        print("redirected")
    assert (text_file.getvalue(), got) == ("redirected\n", [])
    before, redirect = sys.stdout, contextlib.redirect_stdout(io.StringIO())
    with capture(kept(got)):
        redirect.__enter__()
    redirect.__exit__(None, None, None)
    print("works")
    assert capsys.readouterr().out == "works\n"
    with capture(kept(got)):
        pass
    sys.stdout = before


PRINTING = """
import sys, threading
from toolloop_jupyter.notebook.kernel.output import capture

class Slow:
    def write(self, text):
        begun.set()
        removed.wait(30)
        sys.__stdout__.write(text)

def show():
    hooked.wait(30)
    print("one", "two")

hooked, begun, removed = threading.Event(), threading.Event(), threading.Event()
sys.stdout = Slow()
thread = threading.Thread(target=show)
thread.start()  # before the capture: so its print is not captured
with capture(lambda kind, payload: None):
    hooked.set()
    begun.wait(30)
removed.set()
thread.join()
assert type(sys.stdout) is Slow
sys.stdout = sys.__stdout__
"""


def test_a_print_that_goes_on_while_a_capture_ends():
    """Another thread's `print` begins in a capture and ends after it: Python still uses the hook, which must not be freed."""
    ended = subprocess.run(
        [sys.executable, "-c", PRINTING],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONMALLOC": "debug"},  # freed memory is overwritten, so that its use shows
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "one two\n", "")


def test_what_is_no_text():
    """`write` refuses bytes, as the real stream does. The other attributes are those of the real stream."""
    found = sys.stdout
    with capture(kept([])):
        with pytest.raises(TypeError, match="must be str, not bytes"):
            sys.stdout.write(b"bytes")
        assert sys.stdout.encoding == found.encoding


def test_plain_python(capsys):
    """In plain Python, `display` prints the text/plain, `update` shows nothing, and `serving_clicks` does nothing."""
    assert (get_shell(), is_in_kernel(), has_widgets(), delivers_clicks()) == (
        None,
        False,
        False,
        False,
    )

    async def run():
        async with serving_clicks():
            cell = Cell.here()
            with cell.outputs():
                cell.display({"text/plain": "block", "text/html": "<b>block</b>"}, display_id="a")
                cell.update({"text/plain": "again"}, "a")
            return cell.can_update

    assert run_sync(run) is False
    assert capsys.readouterr().out == "block\n"


def test_a_cell_inside_a_capture():
    """A tool that is captured starts a run: the prints, blocks and updates of the run go to the capture."""
    got = []
    with capture(kept(got)):
        cell = Cell.here()
    cell.display({"text/plain": "block"}, "id")
    cell.update({"text/plain": "again"}, "id")
    with cell.outputs():
        print("text")
    assert [(kind, payload) for kind, payload in got][:2] == [
        ("display", {"text/plain": "block"}),
        ("display", {"text/plain": "again"}),
    ]
    (_, shown), (_, replaced) = got[:2]
    assert (shown.metadata, shown.display_id, shown.replaces, replaced.replaces) == (
        {},
        "id",
        False,
        True,
    )
    assert text(got[2:]) == "text\n"
