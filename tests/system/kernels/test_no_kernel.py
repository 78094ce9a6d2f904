"""IPython in a terminal, and plain Python: there is no kernel, and no loop runs between the cells."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from support.terminals import end_terminal

pexpect = pytest.importorskip("pexpect", reason="a pseudo-terminal; IPython brings pexpect along on Unix")

pytestmark = pytest.mark.terminal

SETUP = """
import asyncio, time
from toolloop_jupyter.notebook import kernel

log, loops = [], []

async def waits(seconds=300, result=None):
    loops.append(asyncio.get_running_loop())
    print("waiting", flush=True)
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        log.append("cleaned up")
        if result is None:
            raise
    return result

async def attended(make):
    async with kernel.serving_clicks():
        return await make()
"""


@pytest.fixture(scope="module")
def ipython(python, tmp_path_factory):
    """IPython in a terminal, with SETUP. `ask(code)` types a line, and returns what the line prints."""
    folder = tmp_path_factory.mktemp("terminal")
    (folder / "setup_it.py").write_text(SETUP, "utf-8")
    child = pexpect.spawn(
        str(python or sys.executable),
        ["-m", "IPython", "--simple-prompt", "--no-banner", "--colors=NoColor", "--no-confirm-exit"],
        encoding="utf-8",
        timeout=120,
        cwd=str(folder),
        env={**os.environ, "IPYTHONDIR": str(folder), "PYTHON_COLORS": "0", "TERM": "dumb"},
        echo=False,
    )
    child.expect(r"In \[1\]: ")
    child.ask = lambda code: _ask(child, code)
    child.ask("%run -i setup_it.py")
    yield child
    end_terminal(child)


def _ask(child, code):
    child.sendline(code)
    child.expect(r"In \[\d+\]: ")
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", child.before).strip()


def _stopped(child, code):
    """Type a line that waits, press Ctrl-C, and return what was printed."""
    child.sendline(code)
    child.expect("waiting")
    child.sendintr()
    child.expect(r"In \[\d+\]: ")
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", child.before).strip()


FORMS = {"awaited": "await attended({})", "sync": "kernel.run_sync({})"}


@pytest.mark.parametrize("way", FORMS)
def test_a_person_at_a_terminal(ipython, way):
    """Both ways work, and a person can be asked."""
    assert ipython.ask(f"print({FORMS[way].format('lambda: waits(0.01, 5)')})").split() == ["waiting", "5"]
    assert (
        ipython.ask("print(kernel.is_in_terminal(), kernel.has_stdin(), kernel.is_in_kernel())")
        == "True True False"
    )


@pytest.mark.parametrize("way", FORMS)
def test_ctrl_c_cancels_the_run(ipython, way):
    """Ctrl-C ends the run, which cleans up. IPython continues, and its loop has no unfinished task."""
    ipython.ask("log.clear()")
    came = _stopped(ipython, FORMS[way].format("waits"))
    assert "CancelledError" in came or "KeyboardInterrupt" in came
    assert ipython.ask("print(log)") == "['cleaned up']"
    assert ipython.ask("print([t for t in asyncio.all_tasks(loops[-1]) if not t.done()])") == "[]"


@pytest.mark.parametrize("way", FORMS)
def test_ctrl_c_with_a_result(ipython, way):
    """If the cancelled run returns a value, the line gets this value."""
    came = _stopped(ipython, f"print('result', {FORMS[way].format('lambda: waits(300, 7)')})")
    assert came.endswith("result 7"), came


def test_one_loop_for_both_ways(ipython):
    """Awaited and sync runs use the same loop. So what a library (LiteLLM) keeps for a loop stays valid."""
    ipython.ask("loops.clear()")
    for form in FORMS.values():
        ipython.ask(form.format("lambda: waits(0.01)"))
    assert ipython.ask("print(len(set(loops)))") == "1"


def test_blocks_are_printed(ipython):
    """`display` prints the text/plain, and `update` prints nothing."""
    ipython.ask("cell = kernel.Cell.here()")
    assert ipython.ask("cell.display({'text/plain': 'block', 'text/html': '<b>'}, display_id='a')") == "block"
    assert ipython.ask("cell.update({'text/plain': 'again'}, 'a'); print(cell.can_update)") == "False"


@pytest.mark.kernel
def test_a_script(tmp_path):
    """A script starts runs from sync code and from a thread: it ends, and prints nothing on stderr."""
    script = tmp_path / "script.py"
    script.write_text(
        SETUP
        + "\nimport threading\nasync def leaves():\n    asyncio.ensure_future(asyncio.sleep(60))\n    return 3\n"
        "print(kernel.run_sync(lambda: waits(0.01, 1)), kernel.run_sync(leaves))\n"
        "thread = threading.Thread(target=lambda: print(kernel.run_sync(leaves)))\nthread.start(); thread.join()\n"
        "async def main():\n    return kernel.run_sync(lambda: waits(0.01, 4))\nprint(asyncio.run(main()))\n",
        "utf-8",
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout.split(), done.stderr) == (["waiting", "1", "3", "3", "waiting", "4"], "")
