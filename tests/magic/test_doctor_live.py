"""`%toolloop doctor` in a live kernel."""

from __future__ import annotations

import pytest

from support.kernels import LiveKernel

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def kernel():
    """One kernel with the extension loaded."""
    with LiveKernel() as live:
        live.execute("%load_ext toolloop_jupyter")
        yield live


def test_a_click_that_comes_back(kernel):
    """The doctor shows a button and says that the click came back; nothing stays open."""
    cell = kernel.submit("%toolloop doctor --wait 20", allow_stdin=True)
    after = kernel.submit("print('AFTER')")
    kernel.click("Click me")
    kernel.wait(cell, after, timeout=20)
    assert "a click came back" in cell.text
    assert "✗" not in cell.text
    assert after.stdout == "AFTER\n"
    assert kernel.open_widgets() == []


def test_nobody_clicks(kernel):
    """Without a click the doctor says so in time, and how to ask otherwise."""
    cell = kernel.execute("%toolloop doctor --wait 0.5", allow_stdin=True)
    assert "nobody clicked within 0.5 s" in cell.text
    assert "ToolLoop.ask = 'input'" in cell.text


def test_nobody_there(kernel):
    """In an unattended run the doctor does not wait."""
    cell = kernel.execute("%toolloop doctor", timeout=10)
    assert "nobody is there to click; approvals are denied" in cell.text


def test_a_model_that_answers_and_one_that_is_not_there(kernel):
    """`--model` says whether the model answers, and for a wrong name what to write."""
    assert (
        "toolloop/demo answers" in kernel.execute("%toolloop doctor --model toolloop/demo", timeout=60).text
    )
    assert "provider/name" in kernel.execute("%toolloop doctor --model nonsense", timeout=60).text


def test_a_mistake(kernel):
    """A word that the doctor does not know is one line."""
    assert kernel.execute("%toolloop doctor --mdel x").text.strip() == (
        "toolloop: write: %toolloop doctor [--model MODEL] [--wait SECONDS]"
    )
