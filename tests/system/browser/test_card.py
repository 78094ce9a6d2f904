"""The approval card in JupyterLab: its form, a narrow page, dark colours, and what remains of it without a kernel."""

from __future__ import annotations

import json
import os
import signal

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

SET_UP = '''%load_ext toolloop_jupyter
import os
from toolloop_jupyter.teaching.scripted import ScriptedModel
from toolloop_jupyter.teaching.scripted import call, text
ran = []

def place_order(item: str, count: int, note: str = "", lines: list[dict] = [], limit: int | None = None) -> str:
    """Order something from the supplier."""
    ran.append((count, limit, len(lines)))
    return f"ordered {count} x {item}"

note = "Dear supplier, " + "as ever, " * 60 + "send red ink."
lines = [{"sku": f"A-{n}", "count": n} for n in range(40)]
model = ScriptedModel([text("I order **ink**."), call("place_order", item="ink", count=4, note=note, lines=lines, limit=9)],
                      "It is ordered.", repeat_last=True)
'''
RUN = "%%toolloop -m model -t place_order -p ask --as run\nOrder ink."
FACTS = "print('RAN', ran, run.tool_results[0].decision.arguments['note'][-14:])"


def open_waiting(jupyter, desk, name, *cells):
    """Return the card of a notebook whose second cell waits for a click."""
    jupyter.notebook(name, [SET_UP, RUN, *cells])
    jupyter.share_kernel(name)
    desk.open(name)
    desk.page.evaluate("() => window.jupyterapp.shell.collapseLeft()")
    desk.run_all()
    desk.see(desk.button("Approve"), "the card")
    return desk.page.locator(".tlj-card:visible")


def test_the_form_stands_in_the_place_of_the_arguments(jupyter, desk):
    """Each argument is on the card once. Long fields open at their beginning.

    An emptied number is an error, or null if null is allowed. The record marks the changes.
    """
    card = open_waiting(jupyter, desk, "form.ipynb", FACTS)
    desk.see_number(card.locator("table"), 1, "the arguments, once")
    desk.click("Edit…")
    form = card.locator(".tlj-form")
    desk.see(form.get_by_label("item"), "the form")
    card.locator("table").wait_for(state="detached")
    assert "with these arguments?" in card.inner_text()
    for label in ("note", "lines"):
        field = form.get_by_label(label)
        at = "e => [e.selectionStart, e.scrollTop, e.scrollHeight > e.clientHeight]"
        field.focus()
        assert field.evaluate(at)[:2] == [0, 0], label
    assert form.get_by_label("lines").evaluate(at)[2], "long enough to have an end out of sight"
    desk.screenshot("card-form")
    form.get_by_label("count").fill("")
    form.get_by_label("limit").fill("")
    text = form.get_by_label("note").input_value()
    form.get_by_label("note").fill(text.replace("red", "blue"))
    desk.click("Approve edited")
    desk.see(card.locator("[role=alert] .tlj-bad"), "the error")
    assert "count is empty, and it needs a value" in card.inner_text()
    assert desk.text_of(2) == "", "nothing has run"
    form.get_by_label("count").fill("12")
    desk.click("Approve edited")
    desk.wait_for("RAN [(12, None, 40)] send blue ink.")
    desk.unfold()
    record = desk.cell(1).locator(".tlj-call")
    marked = [record.locator(tag).all_inner_texts() for tag in ("del", "ins")]
    assert [[count, limit] for count, _, limit in marked] == [["4", "9"], ["12", "null"]]
    assert [("red" in note, "blue" in note) for _, note, _ in marked] == [(True, False), (False, True)]
    desk.screenshot("card-edited")
    assert (desk.errors, desk.outside, desk.dialogs) == ([], [], [])


def test_what_is_changed_and_changed_back(jupyter, desk):
    """The choice and the reason are changed twice while the card waits. The kernel gets the values that are on the page at
    the end.
    """
    card = open_waiting(
        jupyter, desk, "back.ipynb", "print('SCOPES', [one.decision.scope for one in run.approvals])"
    )
    for label in ("run", "call"):
        card.locator(".tlj-all select").select_option(index={"call": 0, "run": 1}[label])
    for reason in ("at first", "in the end"):
        card.locator(".tlj-why input").fill(reason)
        card.locator(".tlj-why input").blur()
    assert card.locator(".tlj-all select").evaluate("e => e.selectedIndex") == 0
    desk.click("Approve")
    desk.wait_for("SCOPES")
    assert desk.text_of(2).strip() == "SCOPES ['call']"


LEFT_OF = """() => { const area = document.querySelectorAll('.jp-Cell')[1].querySelector('.jp-OutputArea');
  const bar = document.querySelectorAll('.jp-Cell')[1].querySelector('.jp-OutputCollapser').getBoundingClientRect();
  return [...area.querySelectorAll('.jp-OutputArea-output > .tlj, .tlj-card, .tlj-bar')].filter(e => e.offsetWidth)
    .map(e => [e.className, e.getBoundingClientRect().left - bar.right]).filter(([, gap]) => gap < 2); }"""


def test_what_is_saved_has_no_script(jupyter, desk):
    """Only the live card has the script for the focus. No saved output has it, neither while the card waits nor afterwards."""
    open_waiting(jupyter, desk, "script.ipynb", FACTS)
    desk.until(
        "() => !!document.activeElement.closest('.tlj-card')", "the focus on the card: the script has run"
    )
    desk.save()
    saved = [json.dumps(jupyter.read("script.ipynb"))]
    desk.click("Approve")
    desk.wait_for("RAN")
    desk.save()
    saved.append(json.dumps(jupyter.read("script.ipynb")))
    assert "the approval card here works only while its kernel runs" in saved[0]
    assert "here a card asks" not in saved[1]
    for text in saved:
        assert "onerror" not in text
        assert "<script" not in text


# After a change of the page's size, JupyterLab takes a while for its layout.
NOTHING_LEFT = f"() => ({LEFT_OF})().length === 0"
STOP_IN_ITS_LINE = """() => { const of = what => document.querySelector(what).getBoundingClientRect();
  const [state, stop] = ['.tlj-bar .tlj-status b', '.tlj-bar button'].map(of);
  return stop.y < state.bottom && stop.right <= 600; }"""
NOTHING_WIDER = """() => { const card = document.querySelector('.tlj-card');
  return ![...card.querySelectorAll('*')].some(one => one.scrollWidth > card.clientWidth + 1); }"""


def test_a_narrow_page(jupyter, desk):
    """At 600 pixels, nothing is below the front-end's own bar, nothing is wider than the page, and Stop is in the line with
    the state.
    """
    desk.page.set_viewport_size({"width": 600, "height": 900})
    card = open_waiting(jupyter, desk, "narrow.ipynb", FACTS)
    desk.until(NOTHING_LEFT, "nothing under the front-end's bar")
    desk.until(STOP_IN_ITS_LINE, "Stop in the line of the state")
    desk.until(NOTHING_WIDER, "nothing wider than the card")
    asked = card.locator(".tlj-why input")
    assert asked.evaluate("e => { e.value = e.placeholder; return e.scrollWidth <= e.clientWidth; }")
    desk.screenshot("card-narrow")
    desk.click("Approve")
    desk.wait_for("done ·")
    desk.until(NOTHING_LEFT, "nothing under the front-end's bar")


def test_the_choice_is_seen_in_the_dark(jupyter, desk):
    """On a dark page, the browser draws the list "Approve covers" and its arrow in dark colours."""
    card = open_waiting(jupyter, desk, "dark.ipynb")
    look = "e => { const s = getComputedStyle(e); return [s.appearance, s.backgroundImage, s.colorScheme]; }"
    for name, scheme in (("Dark", "dark"), ("Light", "light")):
        desk.set_theme(name)
        desk.until(
            f"() => getComputedStyle(document.querySelector('.tlj-all select')).colorScheme === '{scheme}'",
            f"the {scheme} scheme",
        )
        assert card.locator(".tlj-all select").evaluate(look) == ["auto", "none", scheme]
    desk.click("Stop")
    desk.wait_for("stopped")


def test_a_kernel_that_is_gone_leaves_words(jupyter, desk):
    """If the kernel ends while the card waits, a sentence takes the card's place. No button without effect is left."""
    jupyter.notebook("gone.ipynb", [SET_UP + "print('PID', os.getpid())", RUN])
    desk.open("gone.ipynb")
    desk.run_all()
    desk.see(desk.button("Approve"), "the card")
    os.kill(int(desk.text_of(0).partition("PID ")[2].split()[0]), signal.SIGKILL)
    desk.page.locator(".jp-Dialog button.jp-mod-accept").click()
    desk.until(
        "() => getComputedStyle(document.querySelector('.tlj-card'), '::before').content.includes('was not run')",
        "what is left of the card",
    )
    desk.see_number(desk.page.locator(".tlj-card :visible, .tlj-bar :visible"), 0, "nothing else of it")
    desk.until(
        "() => getComputedStyle(document.querySelector('.tlj-bar'), '::before').content.includes('is gone')",
        "what is left of the toolbar",
    )
    desk.screenshot("card-without-a-kernel")
    desk.until(
        "() => window.jupyterapp.shell.currentWidget.context.sessionContext.session.kernel.status === 'idle'",
        "a new kernel",
    )
