"""A double click on Approve lets one call run, the one that the person saw."""

from __future__ import annotations

import time

import pytest

from toolloop_jupyter.notebook.widgets.controls import PAUSE

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

SET_UP = '''%load_ext toolloop_jupyter
from toolloop_jupyter.teaching.scripted import ScriptedModel
from toolloop_jupyter.teaching.parts import call
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
CARD = "() => document.activeElement.closest('.tlj-card') && document.activeElement.innerText"


def second_card(desk):
    """The card about the second call, once it is there."""
    card = desk.page.locator(".tlj-card:visible", has_text="Delete an account")
    desk.see(card, "the second card")
    return card


def run_cell(desk, number):
    desk.page.evaluate(
        "n => { const p = window.jupyterapp.shell.currentWidget; p.content.activeCellIndex = n;"
        " window.jupyterapp.commands.execute('notebook:run-cell'); }",
        number,
    )


def press_twice(desk, gap):
    """Run the cell and press Approve twice, `gap` milliseconds apart; False if the machine was too busy for that."""
    run_cell(desk, 1)
    desk.see(desk.button("Approve"), "the first card")
    approve, mouse = desk.button("Approve").first, desk.page.mouse
    approve.scroll_into_view_if_needed()
    desk.page.wait_for_timeout(300)
    box = approve.bounding_box()
    began = time.monotonic()
    mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    desk.page.wait_for_timeout(gap)
    mouse.down()
    mouse.up()
    took = time.monotonic() - began
    desk.page.wait_for_timeout(300)
    return took < PAUSE


def press_key_twice(desk, key):
    """Run the cell and press a key twice on Approve, 0.2 s apart; False if the machine was too busy for that."""
    run_cell(desk, 1)
    desk.see(desk.button("Approve"), "the first card")
    desk.button("Approve").focus()
    began = time.monotonic()
    desk.page.keyboard.press(key)
    desk.page.wait_for_timeout(200)
    desk.page.keyboard.press(key)
    return time.monotonic() - began < PAUSE


def end_round(desk):
    """Deny the second call unless it has run; returns what the last cell then prints."""
    desk.until(SECOND_OR_END, "the second card, or the end of the run")
    if "done ·" not in desk.text_of(1):
        desk.click("Deny")
    desk.wait_until_done()
    run_cell(desk, 2)
    desk.wait_for("RAN")
    desk.wait_until_done()
    return desk.text_of(2)


@pytest.mark.parametrize("app", ["lab", "notebook"])
def test_a_double_click_approves_one_call(jupyter, desk, app):
    """Two clicks 0.2 and 0.45 s apart, at one place: the second call still waits, its Approve disabled, then enabled."""
    jupyter.notebook("double.ipynb", [SET_UP, RUN, "print('RAN', ran); ran.clear()"])
    jupyter.share_kernel("double.ipynb")
    desk.open("double.ipynb", app)
    run_cell(desk, 0)
    desk.wait_until_done()
    for gap in (200, 450):
        while not press_twice(desk, gap):
            end_round(desk)  # these were two clicks, and no double click
        assert second_card(desk).count() == 1, f"{gap} ms apart: the second call ran unseen"
        desk.see(desk.button("Approve"), "an enabled Approve")
        assert "RAN ['noted']" in end_round(desk)
    assert (desk.errors, desk.outside) == ([], [])


@pytest.mark.parametrize("key", ["Enter", "Space"])
def test_a_key_pressed_twice_approves_one_call(jupyter, desk, key):
    """Enter or Space twice on Approve runs one call; the focus is on the next card, and on its Approve once that acts."""
    jupyter.notebook("keys-twice.ipynb", [SET_UP, RUN, "print('RAN', ran); ran.clear()"])
    jupyter.share_kernel("keys-twice.ipynb")
    desk.open("keys-twice.ipynb")
    run_cell(desk, 0)
    desk.wait_until_done()
    while not press_key_twice(desk, key):
        end_round(desk)  # these were two keys, one after the other
    card = second_card(desk)
    desk.until(CARD, "the focus on the card")
    desk.until(f"() => ({CARD})() === 'Approve'", "the focus on Approve")
    assert card.count() == 1
    desk.page.keyboard.press(key)
    desk.wait_until_done()
    run_cell(desk, 2)
    desk.wait_for("RAN ['noted', 'DELETED']")
    assert desk.errors == []
