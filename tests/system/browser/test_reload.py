"""While an approval waits, the page is loaded again, or the kernel is restarted."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

SET_UP = '''%load_ext toolloop_jupyter
from toolloop_jupyter.teaching.scripted import ScriptedModel
from toolloop_jupyter.teaching.scripted import call
ran = []

def order(item: str) -> str:
    """Order something."""
    ran.append(item)
    return "ordered " + item

model = ScriptedModel(call("order", item="pens"), "The pens are on their way.")
'''
FACTS = "print('FACTS', ran, run.stop_reason, run.approvals[0].decision.by, [m['role'] for m in h])"
RUN = "n => { const p = window.jupyterapp.shell.currentWidget; p.content.activeCellIndex = n; return window.jupyterapp.commands.execute('notebook:run-cell'); }"
KERNEL = "window.jupyterapp?.shell?.currentWidget?.context?.sessionContext?.session?.kernel"


def open_waiting(jupyter, desk, name, app="lab"):
    """Open a notebook whose second cell waits for a click."""
    cells = [
        SET_UP,
        f"%%toolloop -m model -t order -p ask --as run -s {name}\nOrder pens.",
        f"%toolloop show {name}",
        f"h = %toolloop history {name}\n{FACTS}",
    ]
    jupyter.notebook(name, cells)
    jupyter.share_kernel(name)
    desk.open(name, app, anew=True)
    desk.page.evaluate(RUN, 0)
    desk.wait_until_done()
    start(desk, 1)
    desk.button("Approve").wait_for()


def start(desk, number):
    """Run one cell, without waiting for its end."""
    desk.page.evaluate(f"n => {{ ({RUN})(n); }}", number)


@pytest.mark.parametrize("app", ["lab", "notebook"])
def test_a_saved_card_is_back_and_works(jupyter, desk, app):
    """If the notebook was saved with the card, the loaded page has the card again, and a click on it decides."""
    open_waiting(jupyter, desk, f"reload-saved-{app}.ipynb", app)
    desk.save()
    desk.page.reload()
    desk.page.wait_for_selector(".jp-Notebook .jp-Cell")
    desk.button("Approve").wait_for()
    assert "pens" in desk.page.locator(".tlj-card:visible").inner_text()
    if app == "lab":
        desk.screenshot("reload-card-is-back")
    desk.click("Approve")
    start(desk, 2)
    start(desk, 3)
    desk.wait_for("FACTS")
    assert "FACTS ['pens'] done click ['user', 'assistant', 'tool', 'assistant']" in desk.text_of(3)
    shown = desk.text_of(2)
    assert "Order pens." in shown
    assert "approved" in shown
    assert "The pens are on their way." in shown
    assert desk.errors == []


@pytest.mark.parametrize(("app", "how"), [("lab", "menu"), ("lab", "rest"), ("notebook", "rest")])
def test_an_interrupt_ends_the_turn_after_a_reload(jupyter, desk, app, how):
    """If the notebook was not saved, the loaded page has no card. An interrupt ends the turn, nothing has run, and `%toolloop
    show` shows the run.
    """
    name = f"reload-{how}-{app}.ipynb"
    open_waiting(jupyter, desk, name, app)
    desk.page.reload()
    desk.page.wait_for_selector(".jp-Notebook .jp-Cell")
    desk.until(f"() => {KERNEL}?.connectionStatus === 'connected'", "a connected kernel")
    assert desk.button("Approve").count() == 0
    if how == "menu":
        desk.menu("Kernel", "Interrupt Kernel")
    else:
        jupyter.interrupt(name)
    start(desk, 2)
    start(desk, 3)
    desk.wait_for("FACTS")
    assert "FACTS [] cancelled stop ['user', 'assistant', 'tool']" in desk.text_of(3)
    shown = desk.text_of(2)
    assert "Order pens." in shown
    assert "denied: the turn ended" in shown
    assert "stopped ·" in shown
    # The loaded page does not know the widgets that end with the run, and logs an error about each.
    assert [error for error in desk.errors if "Comm not found" not in error] == []


GONE = "() => [...document.querySelectorAll('.tlj-card')].map(e => getComputedStyle(e, '::before').content + e.innerText).join()"


OF_A_RESTART = "Comm not found for comm id"
"""JupyterLab's message for each widget that the kernel had before. The shared kernel may have had many."""


@pytest.mark.parametrize("app", ["lab", "notebook"])
def test_a_card_says_that_its_kernel_is_gone(jupyter, desk, app):
    """If the kernel is restarted while a card waits, one line says what happened to the call, and no button is left."""
    open_waiting(jupyter, desk, f"restart-{app}.ipynb", app)
    desk.menu("Kernel", "Restart Kernel…")
    desk.page.click(".jp-Dialog .jp-mod-accept")
    desk.until(f"() => ({GONE})().includes('was not run')", "the line")
    desk.see_number(desk.page.locator(".tlj-btn:visible"), 0, "no button")
    line = '"The kernel that asked here is gone: what it asked about was not run. Run the cell again."'
    assert desk.read_until(GONE, line) == line
    desk.screenshot(f"restart-{app}")
    assert [error for error in desk.errors if not error.startswith(OF_A_RESTART)] == []
