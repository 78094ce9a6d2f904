"""The corpus of hostile strings in JupyterLab: live, and in the saved notebook, trusted and not."""

from __future__ import annotations

import json
import time

import pytest

from support.payloads import PAYLOADS

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]

# The outputs of twelve payloads are more than JupyterLab shows for a cell, so some payloads share an output.
BATCHES = {f"b{start // 12}": list(PAYLOADS)[start : start + 12] for start in range(0, len(PAYLOADS), 12)}

SET_UP = '''%load_ext toolloop_jupyter
import json
from toolloop_jupyter.teaching.scripted import ScriptedModel
from toolloop_jupyter.teaching.scripted import call, deltas, reasoning, text
corpus = json.load(open("corpus.json"))

def echo(text: str) -> str:
    """Say it again."""
    return text

def fail(text: str) -> str:
    """Raise it."""
    raise ValueError(text)

def take(given: dict[str, str]) -> int:
    return len(given)

take.__doc__ = "<img src=x onerror='window.pwned=1;alert(1)'> <script>alert(1)</script> ![x](http://evil.example/)"

def said(payload):
    """Word by word where there are not thousands of them."""
    return text(payload) if len(payload) < 1000 else deltas([{"content": payload}])

def everywhere(names, batch):
    """A model that uses each payload as reasoning, text, argument (and so result, and error) and tool name."""
    turns = [
        [reasoning(p) if len(p) < 1000 else deltas([{"reasoning_content": p}]), said(p),
         call("echo", text=p), call("fail", text=p), call(p, text=p)]
        for p in map(corpus.get, names)
    ]
    return ScriptedModel(*turns, f"END OF {batch}")

card = ScriptedModel(call("take", given={**corpus, **{p: n for n, p in corpus.items()}}), "END OF card")
'''
CELLS = [SET_UP]
for batch, names in BATCHES.items():
    CELLS.append(f"{batch} = everywhere({names!r}, {batch!r})")
    CELLS.append(f"%%toolloop -m {batch} -t echo fail --max-turns 1000 --as of_{batch}\nGo.")
    CELLS.append(f"print('BORDER {batch}', len(of_{batch}.tool_results))")
CELLS += [
    "%%toolloop -m card -t take -p ask --as of_card\nGo.",
    "print('BORDER card', of_card.tool_results[0].value)",
]

# Opens all folds, and touches everything that a person might touch by accident.
TOUCH = """() => {
  document.querySelectorAll('.jp-OutputArea details').forEach(e => e.open = true);
  let touched = 0;
  for (const e of document.querySelectorAll('.jp-OutputArea-output .tlj *, .tlj-card .tlj *')) {
    touched++;
    for (const kind of ['mouseover', 'mouseenter', 'focus', 'animationstart', 'toggle', 'load', 'error'])
      e.dispatchEvent(new Event(kind));
  }
  return touched;
}"""
# Elements that we never make, and our own elements outside of an output.
FOREIGN = """() => [...document.querySelectorAll('.jp-OutputArea-output :is(script, iframe, frame, object, embed, form, link, '
  + 'meta, base, svg, math, video, audio, button, input, textarea, select, template)')]
    .filter(e => !e.closest('mjx-container') && !e.matches('.jupyter-widgets') && !e.closest('.tlj-row, .tlj-bar')).map(e => e.outerHTML.slice(0, 200))
  .concat([...document.querySelectorAll('.tlj')].filter(e => !e.closest('.jp-OutputArea-output')).map(e => 'outside: ' + e.outerHTML.slice(0, 200)))"""
# The next cell is at its place, and nothing covers it.
UNCOVERED = """text => {
  const out = [...document.querySelectorAll('.jp-OutputArea-output')].find(e => e.textContent.startsWith(text));
  if (!out) return 'missing';
  out.scrollIntoView({block: 'center'});
  const box = out.getBoundingClientRect(), hit = document.elementFromPoint(box.left + 20, box.top + box.height / 2);
  return out.contains(hit) ? '' : 'covered by ' + (hit ? hit.outerHTML.slice(0, 200) : 'nothing');
}"""
READ = "text => [...document.querySelectorAll('.jp-OutputArea-output')].map(e => e.textContent).join('\\n').replace(/\\s+/g, ' ')"


@pytest.fixture(autouse=True)
def _as_people_have_it(jupyter):
    """Set JupyterLab's default again: cells out of sight are not drawn. Without it, a page of all payloads takes minutes."""
    jupyter.settings("@jupyterlab/notebook-extension:tracker", {"windowingMode": "contentVisibility"})


def check(desk, stage):
    """Check what must hold for the page. Return how many elements were touched."""
    touched = desk.page.evaluate(TOUCH)
    desk.page.wait_for_timeout(300)  # an effect of a payload would be visible by now
    assert desk.page.evaluate("typeof window.pwned") == "undefined", f"{stage}: a script ran"
    assert (desk.dialogs, desk.outside) == ([], []), stage
    assert desk.page.evaluate(FOREIGN) == [], stage
    for batch in [*BATCHES, "card"]:
        # When a cell scrolls into view, it is drawn a moment later.
        uncovered = f"text => ({UNCOVERED})(text) === ''"
        desk.until(uncovered, f"{stage}: what stands behind {batch}", argument=f"BORDER {batch} ")
    return touched


def readable(desk):
    """Return how many of the payloads that have only visible characters can be read unchanged."""
    page = desk.page.evaluate(READ)
    whole = [p for p in PAYLOADS.values() if p.isascii() and p.isprintable() and len(p) < 1000]
    missing = [p for p in whole if " ".join(p.split()) not in page]
    return len(whole), missing


def test_the_test_sees_what_is_unsafe(jupyter, desk):
    """If payloads are shown as other packages show them, they run, send requests and cover the page. So the checks can fail."""
    shown = [
        "<img src=x onerror=\"window.opened = new WebSocket('ws://evil.example/socket')\">",
        PAYLOADS["handler-0"],
        "<img src=http://evil.example/x>",
        "<p style='position:fixed;inset:0;z-index:99999'>over</p>",
    ]
    cells = [
        f"from IPython.display import HTML, display\nfor p in {shown!r}: display(HTML(p))",
        "print('BORDER here')",
    ]
    jupyter.notebook("unsafe.ipynb", cells)
    jupyter.share_kernel("unsafe.ipynb")
    desk.open("unsafe.ipynb", anew=True)
    desk.run_all()
    desk.wait_for("BORDER here")
    desk.until("() => window.pwned && window.opened", "the scripts of two payloads")
    asked = {"http://evil.example/x", "ws://evil.example/socket"}
    desk.until_noted(lambda: asked <= set(desk.outside), "what was asked of the network")
    assert desk.dialogs == ["1"]
    assert desk.page.evaluate(UNCOVERED, "BORDER here").startswith("covered by")


def test_nothing_of_the_corpus_acts(jupyter, desk):
    """Each payload is used as text, reasoning, argument, result, error and tool name, and all of them are on a card: nothing
    runs or loads.
    """
    (jupyter.root / "corpus.json").write_text(json.dumps(PAYLOADS), "utf-8")
    jupyter.notebook("payloads.ipynb", CELLS)
    jupyter.share_kernel("payloads.ipynb")
    desk.open("payloads.ipynb", anew=True)
    desk.run_all()
    began = time.monotonic()
    desk.see(desk.button("Approve"), "the card", 600)
    print(f"\nran in {time.monotonic() - began:.0f} s")
    desk.page.evaluate(TOUCH)
    assert desk.page.evaluate(FOREIGN) == []
    on_card = desk.page.locator(".tlj-card tr").count()
    desk.click("Approve")
    desk.wait_for(f"BORDER card {2 * len(PAYLOADS)}")
    touched = check(desk, "live")
    whole, missing = readable(desk)
    assert missing == []
    errors = list(desk.errors)
    desk.save()
    outputs = sum(len(cell.outputs) for cell in jupyter.read("payloads.ipynb").cells)
    assert desk.page.locator(".jp-OutputArea-child").count() == outputs
    calls = sum(3 for _ in PAYLOADS)
    print(
        f"\npayloads: {len(PAYLOADS)}, uses: {6 * len(PAYLOADS)} and {2 * len(PAYLOADS)} on a card of {on_card} rows"
    )
    print(f"live: tool calls {calls}, outputs {outputs}, elements touched {touched}, read literally {whole}")
    print(f"scripts run 0, dialogs {len(desk.dialogs)}, requests {len(desk.outside)}")
    assert errors == []


@pytest.mark.parametrize("trusted", [True, False])
def test_nothing_of_the_saved_corpus_acts(jupyter, desk, trusted):
    """The same notebook is saved and opened again, by the person who ran it and by somebody else: nothing runs or loads."""
    name = "payloads.ipynb"
    assert (jupyter.root / name).is_file(), "made by the test before"
    if not trusted:
        saved = jupyter.read(name)
        jupyter.write("foreign.ipynb", saved, toolloop_test="changed, so nobody's signature fits")
        name = "foreign.ipynb"
        jupyter.share_kernel(name)
    desk.open(name, anew=True)
    assert desk.page.evaluate(TRUSTED) == trusted
    desk.wait_for("BORDER card")
    touched = check(desk, f"saved, trusted={trusted}")
    whole, missing = readable(desk)
    assert missing == []
    print(
        f"\nsaved, trusted={trusted}: elements touched {touched}, read literally {whole}, scripts run 0, "
        f"dialogs {len(desk.dialogs)}, requests {len(desk.outside)}"
    )


TRUSTED = """() => window.jupyterapp.shell.currentWidget.content.widgets
  .filter(c => c.model.type === 'code').every(c => c.model.trusted)"""
