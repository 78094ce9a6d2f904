"""Runs by keyboard alone, in JupyterLab. The focus goes to the card that waits for a person, but never away from a person who
types.
"""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

SET_UP = '''%load_ext toolloop_jupyter
import time
from pathlib import Path
from toolloop_jupyter.teaching.scripted import ScriptedModel
from toolloop_jupyter.teaching.scripted import call, text
ran = []

def order(item: str, count: int = 1) -> str:
    """Order something."""
    ran.append((item, count))
    return f"ordered {count} x {item}"

def wait_for(name: str) -> str:
    """Wait until there is a file of this name."""
    while not Path(name).exists():
        time.sleep(0.05)
    return name

model = ScriptedModel(
    [text("Ink first."), call("order", item="ink", count=4)],
    call("order", item="paper", count=10),
    call("order", item="glue"),
    "All is decided.",
)
stepped = ScriptedModel(call("order", item="pens"), call("order", item="tape"), "Two orders.")
slow = ScriptedModel(call("wait_for", name="go-on"), call("order", item="ink"), "Waited.")
'''
APPROVALS = "%%toolloop -m model -t order -p ask --as run\nOrder what we need."
STEPS = "%%toolloop -m stepped -t order --step --as steps\nOrder in steps."
FACTS = "print('RAN', ran, [(a.decision.allowed, a.decision.reason, a.decision.by) for a in run.approvals])"

FOCUS = """() => { const e = document.activeElement; const card = e.closest('.tlj-card');
  return [e.tagName, e.matches('button') ? e.innerText.trim() : e.labels?.[0]?.innerText.trim() ?? e.className,
    card?.innerText ?? '']; }"""
WATCH = """() => { window.strays = [];
  const look = () => { if (document.activeElement === document.body) window.strays.push(document.querySelectorAll('.tlj-card').length);
    window.watching = requestAnimationFrame(look); }; look();
  return () => cancelAnimationFrame(window.watching); }"""


def run_by_keys(desk, number):
    """Run a cell as a person does: select it, press Shift+Enter."""
    desk.page.evaluate(
        "n => { const p = window.jupyterapp.shell.currentWidget; p.content.activeCellIndex = n; p.content.mode = 'command'; p.content.activate(); }",
        number,
    )
    desk.page.keyboard.press("Shift+Enter")


def wait_for_focus(desk, label, within=""):
    """Wait until the control with this name, on a card with this text, has the focus."""
    desk.until(
        f"([label, within]) => {{ const [, name, card] = ({FOCUS})(); return name === label && card.includes(within); }}",
        f"the focus on {label!r} {within!r}, which is on {desk.page.evaluate(FOCUS)}",
        argument=[label, within],
    )


def begin(jupyter, desk, name, *cells):
    jupyter.notebook(name, [SET_UP, *cells])
    jupyter.share_kernel(name)
    desk.open(name)
    run_by_keys(desk, 0)
    desk.wait_until_done()


def test_three_cards_and_four_steps_without_a_mouse(jupyter, desk):
    """Approve, edit, deny with a reason, and four steps: each decision takes at most two keys, and the focus is never on the
    page's body.
    """
    begin(jupyter, desk, "keyboard.ipynb", APPROVALS, STEPS, FACTS)
    press, type_ = desk.page.keyboard.press, desk.page.keyboard.type
    run_by_keys(desk, 1)
    wait_for_focus(desk, "Approve", '"ink"')
    desk.watch(WATCH)
    press("Enter")
    wait_for_focus(desk, "Approve", '"paper"')
    press("Tab")
    press("Enter")
    wait_for_focus(desk, "item")
    press("Tab")
    wait_for_focus(desk, "count")
    type_("12")
    press("Enter")
    wait_for_focus(desk, "Approve edited")
    press("Enter")
    wait_for_focus(desk, "Approve", '"glue"')
    for _ in range(3):
        press("Tab")
    wait_for_focus(desk, "Deny because")
    type_("there is enough glue")
    press("Enter")
    desk.wait_for("done ·")
    desk.until("() => !!document.activeElement.closest('.tlj-foot')", "the focus on the end of the run")
    run_by_keys(desk, 2)
    for step in ("call the model", "run order", "call the model", "run order"):
        wait_for_focus(desk, "Next", step)
        press("Space" if step == "run order" else "Enter")
    wait_for_focus(desk, "Next", "call the model")
    press("Enter")
    desk.until("() => document.querySelectorAll('.tlj-foot').length === 2", "the end of the steps")
    desk.until(
        "() => document.activeElement.closest('.tlj-foot') === [...document.querySelectorAll('.tlj-foot')][1]",
        "the focus on the end of the steps",
    )
    assert desk.page.evaluate("() => window.strays") == []
    run_by_keys(desk, 3)
    desk.wait_for("RAN")
    assert (
        "RAN [('ink', 4), ('paper', 12), ('pens', 1), ('tape', 1)] [(True, '', 'click'), (True, '', 'click'), "
        "(False, 'there is enough glue', 'click')]"
    ) in desk.text_of(3)
    assert (desk.errors, desk.outside, desk.dialogs) == ([], [], [])


def test_whoever_types_is_not_interrupted(jupyter, desk):
    """If a card appears while a person types in another cell, the focus stays there. Every typed character is in that cell."""
    (jupyter.root / "go-on").unlink(missing_ok=True)
    policy = "%%toolloop -m slow -t wait_for order -p policy --as run\nWait."
    begin(
        jupyter, desk, "typing.ipynb", "policy = {'wait_for': 'full', '*': 'ask'}", policy, "note = 1", FACTS
    )
    run_by_keys(desk, 1)
    run_by_keys(desk, 2)
    desk.wait_for("running")
    cell = "() => window.jupyterapp.shell.currentWidget.content.widgets[3].model.sharedModel.getSource()"
    desk.page.locator(".jp-Notebook .jp-Cell").nth(3).locator(".cm-content").click()
    desk.page.keyboard.press("End")
    desk.page.keyboard.type("00")
    (jupyter.root / "go-on").write_text("")
    desk.see(desk.button("Approve"), "the card")
    for _ in range(20):
        desk.page.keyboard.type("0")
    assert desk.page.evaluate(cell) == "note = 1" + "0" * 22
    assert desk.page.evaluate("() => document.activeElement.className").startswith("cm-content")
    desk.page.keyboard.press("Escape")
    desk.click("Deny")
    desk.wait_until_done()
    run_by_keys(desk, 4)
    desk.wait_for("RAN []")
    assert desk.errors == []


def test_a_key_held_down_decides_once(jupyter, desk):
    """Enter is held down on Approve: one call runs. The repetitions of the key, on the next cards, decide nothing."""
    begin(jupyter, desk, "held.ipynb", APPROVALS, FACTS)
    run_by_keys(desk, 1)
    wait_for_focus(desk, "Approve", '"ink"')
    desk.page.keyboard.down("Enter")
    desk.see(desk.page.locator(".tlj-card:visible", has_text='"paper"'), "the second card")
    wait_for_focus(desk, "Approve", '"paper"')
    for _ in range(10):
        desk.page.keyboard.down("Enter")  # the key is down already, so this is a repetition
    assert desk.page.evaluate(FOCUS)[2].count('"paper"') == 1
    desk.page.keyboard.up("Enter")
    desk.click("Stop")
    desk.wait_for("stopped ·")
    run_by_keys(desk, 2)
    desk.wait_for("RAN")
    assert "RAN [('ink', 4)] [(True, '', 'click'), (False" in desk.text_of(2)
