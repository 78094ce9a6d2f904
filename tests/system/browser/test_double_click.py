"""A double click on Approve lets one call run, the one that the person saw."""

from __future__ import annotations

import pytest

from toolloop_jupyter.notebook.widgets.controls import PAUSE, SOON

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

SET_UP = '''%load_ext toolloop_jupyter
from toolloop_jupyter.teaching.scripted import ScriptedModel
from toolloop_jupyter.teaching.scripted import call
ran = []

def add_note(title: str, body: str, tag: str = "a", pinned: bool = False) -> str:
    """Add a note."""
    ran.append("noted")
    return "ok"

def delete_account(user: str, reason: str = "", force: bool = True) -> str:
    """Delete an account for ever."""
    ran.append("DELETED")
    return "gone"

model = ScriptedModel([call("add_note", title="t", body="b"), call("delete_account", user="root")], "Done.", repeat_last=True)
'''
RUN = "%%toolloop -m model -t add_note delete_account -p ask --as run\nGo."
SECOND_OR_END = """() => [...document.querySelectorAll('.jp-Cell')[1].querySelectorAll('.tlj-card')].some(
    e => e.offsetWidth && e.innerText.includes('Delete an account')) || document.querySelectorAll('.jp-Cell')[1].innerText.includes('done ·')"""
# If the second click came too late, it may have approved the second call. Then the run ends without a Deny.
DENY_OR_END = """() => { const cell = document.querySelectorAll('.jp-Cell')[1];
    [...cell.querySelectorAll('button.tlj-btn:enabled')].find(e => e.offsetWidth && e.innerText.trim() === 'Deny')?.click();
    return cell.innerText.includes('done ·'); }"""
ON_SECOND = "() => !!document.activeElement.closest('.tlj-card')?.innerText.includes('Delete an account')"
CARD = "() => document.activeElement.closest('.tlj-card') && document.activeElement.innerText"


LONG = 3.0
"""Seconds for which a card is held in the rounds with real mouse and key events, which need some time to reach the page."""
SET_PAUSE = "from toolloop_jupyter.notebook.widgets import controls; controls.PAUSE, controls.SOON = {}, {}"
PRINT = "print('RAN', ran); ran.clear()"
CELLS = [SET_UP, RUN, PRINT, SET_PAUSE.format(LONG, LONG + 1), SET_PAUSE.format(PAUSE, SOON)]
FIRST, RUNS, PRINTS, LONG_PAUSE, USUAL_PAUSE = range(5)

# The times at which the page gets each press. The kernel gets it later.
NOTE = """() => { window.pressed = []; const all = new AbortController();
    for (const kind of ['pointerdown', 'keydown'])
        document.addEventListener(kind, e => e.repeat || window.pressed.push(performance.now()), {capture: true, signal: all.signal});
    return () => all.abort(); }"""
GAP = "() => window.pressed.at(-1) - window.pressed.at(-2)"
# Clicks twice at one place, on the button that is there at the time. Returns the milliseconds between the clicks.
CLICK_TWICE = """([x, y, gap]) => new Promise(done => {
    const click = () => document.elementFromPoint(x, y)?.closest('button')?.click();
    const began = performance.now();
    click();
    setTimeout(() => { const took = performance.now() - began; click(); done(took); }, gap); })"""


def second_card(desk):
    """Wait for the card about the second call, and return it."""
    card = desk.page.locator(".tlj-card:visible", has_text="Delete an account")
    desk.see(card, "the second card")
    return card


RUN_CELL = """n => { const p = window.jupyterapp.shell.currentWidget; p.content.activeCellIndex = n;
    return window.jupyterapp.commands.execute('notebook:run-cell').then(() => null); }"""


def run_cell(desk, number):
    """Run one cell, without waiting for its end."""
    desk.page.evaluate(f"n => {{ ({RUN_CELL})(n); }}", number)


def run_and_end(desk, number):
    desk.page.evaluate(RUN_CELL, number)


def find_approve(desk):
    """Run the cell, move the mouse over its first Approve, and wait until the page is still. Return the middle of the button."""
    run_cell(desk, RUNS)
    approve = desk.button("Approve")
    desk.see(approve, "the first card")
    approve.hover()
    box = approve.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def press_twice(desk):
    """Press Approve with the mouse, and again as soon as the second card appears. Return False if this was too slow for a
    double click.
    """
    at = find_approve(desk)
    desk.page.mouse.click(*at)
    second_card(desk)
    desk.page.mouse.click(*at)
    return desk.page.evaluate(GAP) < 1000 * LONG


def click_twice(desk, gap):
    """Click Approve twice, `gap` milliseconds apart by the page's clock. Return False if the second click was too late for a
    double click.
    """
    return desk.page.evaluate(CLICK_TWICE, [*find_approve(desk), gap]) < 1000 * PAUSE


def press_key_twice(desk, key):
    """Press a key on Approve, and again as soon as the second card has the focus. Return False if this was too slow."""
    find_approve(desk)
    desk.button("Approve").focus()
    desk.page.keyboard.press(key)
    desk.until(ON_SECOND, "the focus on the second card")
    desk.page.keyboard.press(key)
    return desk.page.evaluate(GAP) < 1000 * LONG


def end_round(desk):
    """Deny the second call unless it has run. Return what the last cell then prints."""
    desk.until(SECOND_OR_END, "the second card, or the end of the run")
    desk.until(DENY_OR_END, "the end of the run")
    desk.wait_until_done()
    run_and_end(desk, PRINTS)
    return desk.text_of(PRINTS)


def open_notebook(jupyter, desk, name, app="lab"):
    jupyter.notebook(name, CELLS)
    jupyter.share_kernel(name)
    desk.open(name, app)
    desk.watch(NOTE)
    run_and_end(desk, FIRST)
    run_and_end(desk, LONG_PAUSE)


@pytest.mark.parametrize("app", ["lab", "notebook"])
def test_a_double_click_approves_one_call(jupyter, desk, app):
    """The second of two clicks at one place comes on the new card, or 0.2 or 0.45 s later. The second call still waits. Its
    Approve is disabled first, then enabled.
    """
    open_notebook(jupyter, desk, f"double-{app}.ipynb", app)
    for gap in (None, 200, 450):
        while not (click_twice(desk, gap) if gap else press_twice(desk)):
            end_round(desk)  # these were two separate clicks, not a double click
        assert second_card(desk).count() == 1, f"{gap} ms apart: the second call ran unseen"
        desk.see(desk.button("Approve"), "an enabled Approve")
        assert "RAN ['noted']" in end_round(desk)
        run_and_end(desk, USUAL_PAUSE)
    assert (desk.errors, desk.outside) == ([], [])


@pytest.mark.parametrize("key", ["Enter", "Space"])
def test_a_key_pressed_twice_approves_one_call(jupyter, desk, key):
    """Enter or Space twice on Approve runs one call. The focus is on the next card, and on its Approve when this button
    works.
    """
    open_notebook(jupyter, desk, f"keys-twice-{key}.ipynb")
    while not press_key_twice(desk, key):
        end_round(desk)  # these were two separate key presses
    card = second_card(desk)
    desk.until(CARD, "the focus on the card")
    desk.until(f"() => ({CARD})() === 'Approve'", "the focus on Approve")
    assert card.count() == 1
    desk.page.keyboard.press(key)
    desk.wait_until_done()
    run_and_end(desk, USUAL_PAUSE)
    run_cell(desk, PRINTS)
    desk.wait_for("RAN ['noted', 'DELETED']")
    assert desk.errors == []
