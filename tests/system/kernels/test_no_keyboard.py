"""Approvals if the kernel's client answers no `input()`: it may be a script, or a front-end that has only buttons."""

from __future__ import annotations

import nbformat
import pytest
from nbclient import NotebookClient

from support.kernels import LiveKernel
from support.pace import Pace

pytestmark = pytest.mark.kernel

SET_UP = """%load_ext toolloop_jupyter
from toolloop_jupyter import Harness, aagent
from toolloop_jupyter.notebook.live import asking
from toolloop_jupyter.teaching.scripted import ScriptedModel
from toolloop_jupyter.teaching.scripted import call
runs = []
def double(x: int) -> int:
    "Double a number."
    runs.append(x)
    asking.GRACE = min(asking.GRACE, 0.2)
    return 2 * x
usual = asking.GRACE
def begin(grace=usual):
    # The first card waits for so many seconds; one after a tool has run would wait for a moment.
    global m
    asking.GRACE = grace
    m, asking._Clicks.arrive = ScriptedModel(call("double", x=1), call("double", x=2), "end"), None
    runs.clear()
"""
RUN = "%%toolloop -p ask -t double --model m --as r\ngo"
API = "r = await aagent(Harness.TOOL_LOOP, 'go', model=m, tools=[double], permissions='ask')"


@pytest.fixture(scope="module")
def kernel():
    """A kernel in which a run has ended, so that later runs only wait for approvals."""
    with LiveKernel() as live:
        live.execute(SET_UP)
        assert live.execute("%%toolloop\nhi", timeout=120).status == "ok"
        yield live


def cards(kernel):
    """Return how many cards this kernel has shown."""
    return len([w for w in kernel.widgets.values() if w.description == "Approve"])


@pytest.mark.parametrize("code", [RUN, API])
def test_a_click_is_taken_all_the_same(kernel, code):
    """The first card waits for some seconds. After a click on it, the next card waits without a limit."""
    kernel.execute("begin(grace=300)")
    cell = kernel.submit(code, allow_stdin=False)
    after = kernel.submit("print(runs, [a.decision.by for a in r.approvals])")
    kernel.click("Approve")
    kernel.wait_for_text("double(x=2)")
    kernel.settle(1.0)  # this is longer than a first card would wait
    kernel.click("Approve")
    kernel.wait(cell, after)
    assert after.stdout == "[1, 2] ['click', 'click']\n"


@pytest.mark.parametrize("code", [RUN, API])
def test_without_a_click_nobody_is_there(kernel, code):
    """Nobody clicks: the first call is denied after some seconds, and the next one at once."""
    kernel.execute("begin()")
    before = cards(kernel)
    with Pace() as pace:
        cell = kernel.execute(code, allow_stdin=False)
    printed = kernel.execute("print(runs, [a.decision.by for a in r.approvals])").stdout
    assert printed == "[] ['unattended', 'unattended']\n"
    (waited, *_) = kernel.execute(
        "print(*[s.end - s.start for s in r.spans if s.kind == 'approval'])"
    ).stdout.split()
    assert float(waited) > 2.5
    assert cell.seconds < 5.5 * pace.slowdown
    assert kernel.open_widgets() == []
    assert cards(kernel) == before + 1
    kernel.execute("m.reset()")
    assert kernel.execute(RUN, allow_stdin=False).status == "ok"
    assert kernel.execute("print(runs, {a.decision.by for a in r.approvals})").stdout == "[] {'unattended'}\n"
    assert cards(kernel) == before + 1, "at once: no further card is tried"


def test_on_unattended_allow_shows_no_card(kernel):
    """With `--on-unattended allow`, no card is shown, and the calls run."""
    kernel.execute("begin()")
    before = cards(kernel)
    kernel.execute(RUN.replace("-p ask", "-p ask --on-unattended allow"), allow_stdin=False)
    assert cards(kernel) == before
    assert kernel.execute("print(runs)").stdout == "[1, 2]\n"


@pytest.mark.notebook
def test_nbclient_is_known():
    """If nbclient executes the notebook (for nbconvert or papermill), the call is denied at once, without a card."""
    cells = [
        SET_UP,
        "%%toolloop\nhi",
        "begin()",
        RUN,
        "from toolloop_jupyter.notebook import kernel\nprint(kernel.executes_notebooks())",
    ]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(book, timeout=120).execute()
    assert book.cells[-1].outputs[0].text == "True\n"
    assert "denied because nobody is there" in str(book.cells[3].outputs)
    assert "waiting for you" not in str(book.cells[3].outputs)
