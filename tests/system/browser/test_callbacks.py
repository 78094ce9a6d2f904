"""A widget's callback starts a run: its card is in the last cell, or in the Output widget that the callback has entered."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

SET_UP = '''%load_ext toolloop_jupyter
import ipywidgets as widgets
from toolloop_jupyter import Harness, agent
from toolloop_jupyter.teaching.scripted import ScriptedModel
from toolloop_jupyter.teaching.scripted import call
ran = []

def order(item: str) -> str:
    """Order something."""
    ran.append(item)
    return "ordered " + item

def begin(item):
    model = ScriptedModel(call("order", item=item), f"The {item} are on their way.")
    print(agent(Harness.TOOL_LOOP, "Order.", model=model, tools=[order], permissions="ask").text)

def begin_inside(_):
    with out:
        begin("pencils")

out = widgets.Output()
here, inside = widgets.Button(description="Here"), widgets.Button(description="Inside")
here.on_click(lambda _: begin("pens"))
inside.on_click(begin_inside)
_ = agent(Harness.TOOL_LOOP, "Hello.", model=ScriptedModel("Hello.")).text'''


def press(desk, label):
    desk.page.locator(f".jp-OutputArea button:text-is('{label}')").click()
    desk.click("Approve")
    desk.page.wait_for_selector(".tlj-call >> text=approved")


def test_the_card_of_a_callbacks_run(jupyter, desk):
    """Without an Output widget, the card and its record are in the cell that ran last. With one, they are in this widget."""
    jupyter.notebook("callbacks.ipynb", [SET_UP, "widgets.VBox([here, inside, out])", "print('last')"])
    desk.open("callbacks.ipynb")
    desk.run_all()
    desk.wait_until_done()
    press(desk, "Here")
    assert 'order item="pens"' in desk.text_of(2).replace("\n", " ")
    press(desk, "Inside")
    desk.until("() => document.body.innerText.includes('pencils are on their way')", "the answer")
    desk.see_number(desk.cell(1).get_by_text("waiting for you"), 0, "no card")
    inside = desk.text_of(1).replace("\n", " ")
    assert 'order item="pencils" approved' in inside
    assert "waiting for you" not in inside
    assert "pencils" not in desk.text_of(2)
    desk.screenshot("callbacks")
    assert desk.errors == []
