"""`%toolloop doctor` in a live kernel."""

from __future__ import annotations

import pytest

from support.kernels import LiveKernel

pytestmark = pytest.mark.kernel

TOOL = """from toolloop_jupyter.teaching.scripted import ScriptedModel, call
m = ScriptedModel(call("double", x=1), "end", call("double", x=1), "end")
def double(x: int) -> int:
    "Double."
    return 2 * x
"""


@pytest.fixture(scope="module")
def kernel():
    """One kernel with the extension loaded."""
    with LiveKernel() as live:
        live.execute("%load_ext toolloop_jupyter")
        yield live


def test_a_click_that_comes_back(kernel):
    """The doctor shows a button, and says that the click arrived. No widget stays open."""
    cell = kernel.submit("%toolloop doctor --wait 20", allow_stdin=True)
    after = kernel.submit("print('AFTER')")
    kernel.click("Click me")
    kernel.wait(cell, after)
    assert "your click reached the kernel" in cell.text
    assert "✗" not in cell.text
    assert after.stdout == "AFTER\n"
    assert kernel.open_widgets() == []


def test_nobody_clicks(kernel):
    """Without a click, the doctor ends after its wait, and says how else a person can be asked."""
    cell = kernel.execute("%toolloop doctor --wait 0.5", allow_stdin=True)
    assert "nobody clicked within 0.5 s" in cell.text
    assert "ToolLoop.ask = 'input'" in cell.text


def test_a_client_without_a_keyboard(kernel):
    """If the client answers no `input()`, the button is still shown. A click on it also counts for later approvals."""
    cell = kernel.submit("%toolloop doctor --wait 20", allow_stdin=False)
    kernel.click("Click me")
    kernel.wait(cell)
    assert "your click reached the kernel" in cell.text
    kernel.execute("from toolloop_jupyter.notebook.live import asking")
    assert kernel.execute("print(asking.find_means())", allow_stdin=False).stdout == "card\n"


def test_nobody_there(kernel):
    """In a run without a keyboard, the doctor waits some seconds, and says what happens to approvals."""
    kernel.execute("from toolloop_jupyter.notebook.live import asking; asking._Clicks.arrive = None")
    cell = kernel.execute("%toolloop doctor", allow_stdin=False)
    assert (
        "nobody clicked within 3 s, and there is no other way to ask; requests for approval are denied"
        in cell.text
    )
    assert "✗" not in cell.text


def test_an_interrupt_ends_the_wait(kernel):
    """■ ends only the doctor's wait for a click: the doctor still shows its table, and the queued cell runs."""
    cell = kernel.submit("%toolloop doctor --wait 20", allow_stdin=True)
    after = kernel.submit("print('AFTER')")
    kernel.button("Click me")
    kernel.interrupt()
    kernel.wait(cell, after)
    assert "not tried: stopped by you before a click" in cell.text
    assert "versions" in cell.text
    assert (cell.status, after.stdout) == ("ok", "AFTER\n")
    assert kernel.open_widgets() == []


def test_cells_that_cannot_await(kernel):
    """The doctor reports `%autoawait off`."""
    kernel.execute("%autoawait off")
    try:
        cell = kernel.execute("%toolloop doctor --wait 0.1", allow_stdin=True)
    finally:
        kernel.execute("%autoawait on")
    assert "%autoawait is off" in cell.text


def test_a_model_that_answers_and_one_that_is_not_there(kernel):
    """`--model` says whether the model answers, and for a wrong name what to write."""
    assert "toolloop/demo answers" in kernel.execute("%toolloop doctor --model toolloop/demo").text
    assert "provider/name" in kernel.execute("%toolloop doctor --model nonsense").text


def test_a_mistake(kernel):
    """For a word that the doctor does not know, the error has one line."""
    assert kernel.execute("%toolloop doctor --mdel x").text.strip() == (
        "toolloop: write: %toolloop doctor [--model MODEL] [--wait SECONDS]"
    )


def test_without_ipywidgets(start_kernel):
    """Without ipywidgets, the doctor says in one line what to install. A run then asks by typing, not by cards."""
    live = start_kernel()
    live.execute(
        "import sys; sys.modules['ipywidgets'] = None  # as if it were not installed\n%load_ext toolloop_jupyter"
    )
    cell = live.execute("%toolloop doctor", allow_stdin=True)
    assert "there are none without ipywidgets; you decide by typing" in cell.text
    assert "pip install 'ipywidgets>=7.7.1'" in cell.text
    live.execute(TOOL)
    live.on_input = lambda question: "y"
    run = live.execute("%%toolloop --model m -t double -p ask --as r\ngo", allow_stdin=True, timeout=90)
    assert run.status == "ok", run.text
    assert "approved at the prompt" in run.text
    assert live.execute("%%toolloop -p ask -t double --model m --as r\ngo", allow_stdin=False).status == "ok"
