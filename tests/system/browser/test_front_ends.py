"""One notebook in ask mode in each front-end: every button does what its label says, and queued cells run afterwards."""

from __future__ import annotations

import json

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

SETTING = "@jupyterlab/apputils-extension:kernels-settings"
FRONT_ENDS = {
    "lab-subshells": ("lab", None, "subshell"),  # the default: a subshell for all widgets
    "lab-main-shell": ("lab", {"commsOverSubshells": "disabled"}, "main shell"),
    "lab-subshell-each": ("lab", {"commsOverSubshells": "perComm"}, "subshell"),
    "notebook": ("notebook", None, "subshell"),
}
"""(the application, the person's setting, the way that a click then takes to the kernel)."""

SET_UP = '''%load_ext toolloop_jupyter
import threading
from toolloop_jupyter.teaching.scripted import ScriptedModel
from toolloop_jupyter.teaching.scripted import call, text
ran, seen = [], []

def order(item: str, count: int = 1, express: bool = False) -> str:
    """Order something from the stock room."""
    ran.append((item, count, express))
    return f"ordered {count} x {item}"

def told(messages):
    seen.append(messages[-1]["content"])
    return "So be it."

def asking(item):
    return ScriptedModel([text("I will order it."), call("order", item=item, count=2)], told)

approve, deny, edit, stop = map(asking, ["pens", "paper", "ink", "glue"])
'''
CELLS = [
    SET_UP,
    "%%toolloop -m approve -t order -p ask --as approved\nOrder pens.",
    "%%toolloop -m deny -t order -p ask --as denied\nOrder paper.",
    "%%toolloop -m edit -t order -p ask --as edited\nOrder ink.",
    "%%toolloop -m stop -t order -p ask --as stopped\nOrder glue.",
    """import json
print('FACTS', json.dumps({'ran': ran, 'seen': seen,
 'by': [r.approvals[0].decision.by for r in (approved, denied, edited, stopped)],
 'ends': [r.stop_reason for r in (approved, denied, edited, stopped)]}))""",
]


@pytest.fixture(params=FRONT_ENDS)
def front_end(request, jupyter):
    """Each front-end, with a person's settings for it."""
    app, settings, over = FRONT_ENDS[request.param]
    jupyter.settings(SETTING, settings)
    return app, request.param, over


def card(desk):
    """Return the card that is on the page now."""
    return desk.page.locator(".tlj-card:visible")


def card_about(desk, what):
    """Return the card that asks about this call."""
    desk.see(card(desk).get_by_text(what), f"the card about {what}")
    return card(desk)


def approve(desk):
    card_about(desk, "pens")
    desk.click("Approve")
    desk.wait_for("approved by click")


def deny(desk):
    card_about(desk, "paper").locator(".tlj-why input").fill("too much paper already")
    desk.click("Deny")
    desk.wait_for("too much paper already")


def edit(desk):
    card_about(desk, "ink")
    desk.click("Edit…")
    fields = card(desk).locator(".tlj-form input")
    desk.see(fields.nth(1), "the form")
    fields.nth(0).fill("blue ink")
    fields.nth(1).fill("12")
    fields.nth(2).check()
    desk.click("Approve edited")
    desk.wait_for("approved with edits by click")


def stop(desk):
    card_about(desk, "glue")
    desk.click("Stop")


def test_every_button_and_what_is_queued_behind_it(jupyter, desk, front_end):
    """Run All: Approve, Deny with a reason, Edit and Stop work, each in its cell. The cell behind them runs at the end."""
    app, name, over = front_end
    jupyter.notebook("asking.ipynb", CELLS)
    jupyter.share_kernel("asking.ipynb")
    desk.open("asking.ipynb", app, anew=True)
    desk.run_all()
    approve(desk)
    deny(desk)
    edit(desk)
    stop(desk)
    desk.wait_for("FACTS")
    facts = json.loads(desk.text_of(5).partition("FACTS ")[2])
    assert facts["ran"] == [["pens", 2, False], ["blue ink", 12, True]]
    assert facts["by"] == ["click", "click", "click", "stop"]
    assert facts["ends"] == ["done", "done", "done", "cancelled"]
    approved, denied, edited = facts["seen"]
    assert approved == "ordered 2 x pens"
    assert "too much paper already" in denied
    assert "blue ink" in edited
    desk.see_number(card(desk), 0, "no card")
    desk.see_number(desk.page.locator(".tlj-bar:visible"), 0, "no toolbar")
    assert len(desk.clicks_over) == 5
    # If a click comes before its subshell has started, it goes to the main shell.
    assert over in desk.clicks_over
    assert over == "subshell" or set(desk.clicks_over) == {over}
    desk.screenshot(f"asking-{name}")
    assert (desk.errors, desk.outside, desk.dialogs) == ([], [], [])
