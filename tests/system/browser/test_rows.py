"""Many rows in JupyterLab: one block while they run, one card at a time, and an inert record."""

from __future__ import annotations

import json

import pytest

from support.payloads import PAYLOADS

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

ASKING = '''%load_ext toolloop_jupyter
from toolloop_jupyter.teaching import ScriptedModel, call
ran = []

def double(x: int) -> int:
    """Double a number."""
    ran.append(x)
    return 2 * x

numbers = [{"x": 100 + n} for n in range(20)]
model = ScriptedModel(lambda messages: call("double", x=int(messages[-1]["content"])),
                      lambda messages: f"I was told: {messages[-1]['content']}")
'''
ASK = "%%toolloop --each numbers --model model --tools double --permissions ask --concurrency 4 --as doubled\n{{x}}"
DECISIONS = """decided = {row.number: row.result.tool_results[0].decision for row in doubled}
print("RAN", sorted(ran), "ALLOWED", [100 + n for n, one in sorted(decided.items()) if one.allowed],
      "BY", sorted({one.by for one in decided.values()}), len(doubled))"""
# The largest number of cards that were on the page at the same time.
COUNT_CARDS = """() => { window.mostCards = 0;
  const look = () => { window.mostCards = Math.max(window.mostCards,
    [...document.querySelectorAll('.tlj-card')].filter(e => e.offsetWidth).length); };
  const watching = new MutationObserver(look);
  watching.observe(document.body, {childList: true, subtree: true});
  return () => watching.disconnect(); }"""


def row_that_asks(desk, before=""):
    """Wait until the card is about another row than `before`, and takes a click. Return this row."""
    condition = """before => { const cards = [...document.querySelectorAll('.tlj-card')].filter(e => e.offsetWidth);
      const row = cards[0]?.querySelector('.tlj-title')?.textContent.match(/row \\d+ of 20/)?.[0];
      return row && row !== before && cards[0].querySelector('button.tlj-go:enabled') ? row : null; }"""
    return desk.until(condition, "another row's card", argument=before).json_value()


def test_twenty_rows_ask_one_after_the_other(jupyter, desk):
    """One call is approved, one denied, and the third allowed for all rows. There are never two cards, and only allowed calls
    have run.
    """
    jupyter.notebook("rows-ask.ipynb", [ASKING, ASK, DECISIONS])
    jupyter.share_kernel("rows-ask.ipynb")
    desk.open("rows-ask.ipynb")
    desk.page.evaluate("() => window.jupyterapp.shell.collapseLeft()")
    desk.watch(COUNT_CARDS)
    desk.run_all()
    first = row_that_asks(desk)
    desk.screenshot("rows-card-light", desk.cell(1))
    desk.click("Approve")
    second = row_that_asks(desk, first)
    desk.click("Deny")
    row_that_asks(desk, second)
    desk.page.locator(".tlj-all select").select_option("all calls of double in all rows")
    desk.click("Approve")
    desk.wait_for("RAN")
    desk.save()
    denied = 100 + int(second.split()[1])
    allowed = [x for x in range(100, 120) if x != denied]
    assert desk.text_of(2).strip() == f"RAN {allowed} ALLOWED {allowed} BY ['click'] 20"
    assert desk.page.evaluate("() => window.mostCards") == 1
    assert desk.text_of(1).count("told") == 10, "the first and the last five rows"
    desk.screenshot("rows-end-light", desk.cell(1))
    desk.set_theme("Dark")
    desk.screenshot("rows-end-dark", desk.cell(1))
    desk.page.locator(".jp-Cell").nth(1).locator(".jp-InputArea-editor").click()
    desk.menu("Run", "Run Selected Cell")
    row_that_asks(desk)
    desk.screenshot("rows-card-dark", desk.cell(1))
    desk.click("Stop")
    desk.wait_for("the run was stopped")
    desk.set_theme("Light")
    assert (desk.errors, desk.outside, desk.dialogs) == ([], [], [])
    assert "tlj-card" not in json.dumps(jupyter.read("rows-ask.ipynb"))


RUNNING = """%load_ext toolloop_jupyter
from toolloop_jupyter.teaching import ScriptedModel, error, pause
texts = [{"product": f"lamp {n}", "text": "It broke." if n % 7 == 3 else "I like its light, and would buy it again."} for n in range(10_000)]
def say(messages):
    asked = messages[-1]["content"]
    return error("the request is too long", 400) if "broke" in asked else f"praise: {asked[:40]}"
slow = ScriptedModel([pause(0.2), say])
"""
RUN = "%%toolloop --each texts --model slow --concurrency 4 --as labelled\nClassify {{product}}: {{text}}"


def test_stop_keeps_what_has_ended(jupyter, desk):
    """While rows run, the page has counts, bar, speed, the last three rows, and Stop. After a click on Stop, the ended rows
    are there.
    """
    jupyter.notebook("rows-stop.ipynb", [RUNNING, RUN, "print('ENDED', len(labelled), len(labelled.failed))"])
    jupyter.share_kernel("rows-stop.ipynb")
    desk.open("rows-stop.ipynb")
    desk.page.evaluate("() => window.jupyterapp.shell.collapseLeft()")
    desk.run_all()
    desk.until(
        "() => /failed.*rows\\/s.*left/.test(document.querySelector('.tlj-status')?.textContent ?? '')",
        "the pace",
    )
    shown = desk.page.locator(".tlj-bar .tlj-rows")
    desk.until("() => document.querySelectorAll('.tlj-bar .tlj-rows tr').length === 3", "the last three rows")
    assert "of 10,000 rows" in shown.inner_text()
    desk.screenshot("rows-running-light", desk.cell(1))
    desk.set_theme("Dark")
    desk.screenshot("rows-running-dark", desk.cell(1))
    desk.set_theme("Light")
    desk.click("Stop")
    desk.wait_for("ENDED")
    ended, failed = map(int, desk.text_of(2).split()[1:])
    assert 0 < failed < ended < 10_000
    assert f"the run was stopped · {ended} of 10,000 rows · {failed} failed" in desk.text_of(1)
    desk.screenshot("rows-stopped-light", desk.cell(1))
    assert (desk.errors, desk.outside, desk.dialogs) == ([], [], [])


HOSTILE = """%load_ext toolloop_jupyter
import json
from toolloop_jupyter.teaching import ScriptedModel
payloads = json.loads({!r})
hostile = [{{"n": n, "text": one, one: one}} for n, one in enumerate(payloads)]
again = ScriptedModel(lambda messages: messages[-1]["content"])
"""
RUN_HOSTILE = "%%toolloop --each hostile --model again --as shown\n{{text}}"


def test_hostile_rows_are_inert(jupyter, desk):
    """Payloads as cell texts, column names and answers run nothing and load nothing, live and in the saved file."""
    corpus = json.dumps(list(PAYLOADS.values()))
    shows = [
        f"from toolloop_jupyter import Rows\nRows({{n: shown[n] for n in range({n}, {n + 10})}}, presenter=shown.presenter)"
        for n in range(0, len(PAYLOADS) - 9, 10)
    ]
    jupyter.notebook(
        "rows-hostile.ipynb", [HOSTILE.format(corpus), RUN_HOSTILE, *shows, "print('SHOWN', len(shown))"]
    )
    jupyter.share_kernel("rows-hostile.ipynb")
    desk.open("rows-hostile.ipynb")
    desk.run_all()
    desk.wait_for(f"SHOWN {len(PAYLOADS)}")
    desk.unfold()
    look = "() => [window.pwned ?? 0, document.querySelectorAll('.jp-OutputArea-output script, .jp-OutputArea-output iframe, .jp-OutputArea-output img').length]"
    assert desk.page.evaluate(look) == [0, 0]
    desk.save()
    assert (desk.outside, desk.dialogs) == ([], [])
    desk.open("rows-hostile.ipynb", anew=True)
    desk.unfold()
    assert desk.page.evaluate(look) == [0, 0]
    assert (desk.outside, desk.dialogs) == ([], [])
