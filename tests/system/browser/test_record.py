"""The saved notebook is the record: opened without a kernel, it has the same words everywhere. The test also takes pictures
for a person.
"""

from __future__ import annotations

import nbformat
import pytest

from support.asking_run import CELLS, decide
from support.calls import draw_call
from toolloop_jupyter.core.events.events import ToolCall
from toolloop_jupyter.notebook.transcript.steps import make_bundle

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

WORDS = """() => {
  document.querySelectorAll('.jp-OutputArea-output details').forEach(e => e.open = true);
  return [...document.querySelectorAll('.jp-OutputArea-output')].map(e => e.innerText).join(' ').split(/\\s+/).filter(w => w);
}"""
# Lists our elements that are wider than the page. The page must not scroll sideways.
TOO_WIDE = """() => [...document.querySelectorAll('.jp-OutputArea-output .tlj')].filter(e => {
    const box = e.getBoundingClientRect(), cell = e.closest('.jp-OutputArea-output').getBoundingClientRect();
    return box.right > cell.right + 1; }).map(e => e.outerHTML.slice(0, 150))"""
# Lists the parts that a reader would miss on paper, where nothing can be unfolded or scrolled: parts that are not drawn, and
# parts in a box that is too small.
NOT_ON_PAPER = """() => [...document.querySelectorAll('.jp-OutputArea-output .tlj *')].filter(e =>
    !['STYLE', 'COL', 'COLGROUP'].includes(e.tagName) && (!e.checkVisibility() ||
    (getComputedStyle(e).overflow != 'visible' && getComputedStyle(e).display != 'inline' &&
     (e.scrollHeight > e.clientHeight + 1 || e.scrollWidth > e.clientWidth + 1)))).map(e => e.outerHTML.slice(0, 150))"""
BEYOND_PAPER = """() => [...document.querySelectorAll('.jp-OutputArea-output .tlj *')].filter(e =>
    e.getBoundingClientRect().right > innerWidth).map(e => e.outerHTML.slice(0, 150))"""
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}


@pytest.fixture(scope="module")
def record(jupyter, shared):
    """The notebook, after a person has run it with clicks and saved it. Returns (its name, the words that it had while it was
    live).
    """
    name = "record.ipynb"
    jupyter.notebook(name, CELLS)
    jupyter.share_kernel(name)
    with shared.desk(jupyter) as desk:
        desk.open(name)
        desk.run_all()
        desk.see(desk.button("Approve"), "the card")
        desk.cell(1).scroll_into_view_if_needed()
        desk.screenshot("record-card")
        decide(desk)
        desk.come_to_rest()
        desk.see_number(desk.page.locator(".tlj-card:visible, .tlj-bar:visible"), 0, "no card, no toolbar")
        desk.save()
        live = desk.page.evaluate(WORDS)
        assert desk.errors == []
    saved = jupyter.read(name)
    assert "widgets" not in saved.metadata, "the file needs no widget state"
    del saved.metadata["language_info"]  # with this entry, a front-end would still find a kernel
    jupyter.write("alone.ipynb", saved, kernelspec={"name": "no-such-kernel", "display_name": "None"})
    return "alone.ipynb", live


def opened(desk, record, app):
    """Open the notebook in a front-end that has no kernel for it. Wait until its words are those of the live notebook, and
    return them.
    """
    name, live = record
    desk.open(name, app, kernel=False, anew=True)
    desk.choose_no_kernel()
    return desk.read_until(WORDS, live)


def test_the_same_words_everywhere(jupyter, desk, record):
    """Live, and without a kernel in JupyterLab, Notebook 7 and nbconvert's page, the words are exactly the same."""
    from nbconvert import HTMLExporter

    name, live = record
    assert "See" not in live  # the prompt is in the cell, not in the outputs
    assert {"edits", "A-17", "ink", "LookupError:", "paper", "enough", "Traceback", "41.5"} <= set(live)
    assert opened(desk, record, "lab") == live
    assert opened(desk, record, "notebook") == live
    page, _ = HTMLExporter().from_filename(str(jupyter.root / name))
    (jupyter.root / "record.html").write_text(page, "utf-8")
    desk.page.goto(f"{jupyter.url}/files/record.html")
    assert desk.page.evaluate(WORDS) == live
    print(
        f"\n{len(live)} words: the same live, and without a kernel in JupyterLab, Notebook 7 and nbconvert's page"
    )


def test_on_paper_everything_is_unfolded(jupyter, desk, record):
    """The printed page of nbconvert is complete: each part of each block is drawn, and neither a fold nor a scrolling box
    cuts a part off.
    """
    from nbconvert import HTMLExporter

    name, _ = record
    saved = jupyter.read(name)
    long = draw_call(ToolCall("1", "f", "f", {"one_word": "x" * 190}))
    saved.cells[-1].outputs.append(nbformat.v4.new_output("display_data", make_bundle(long)))
    page, _ = HTMLExporter().from_notebook_node(saved)
    (jupyter.root / "paper.html").write_text(page, "utf-8")
    desk.page.goto(f"{jupyter.url}/files/paper.html")
    assert desk.page.evaluate(NOT_ON_PAPER) != []  # on the screen, calls are folded
    desk.page.emulate_media(media="print")
    desk.page.set_viewport_size({"width": 720, "height": 1000})  # A4's, about
    assert desk.read_until(NOT_ON_PAPER, []) == []
    assert desk.read_until(BEYOND_PAPER, []) == []
    assert desk.page.pdf(format="A4").startswith(b"%PDF-")


@pytest.mark.parametrize("theme", THEMES)
def test_pictures(jupyter, desk, record, theme):
    """Pictures for a person: light and dark, wide and narrow. Nothing is wider than its cell."""
    from nbconvert import HTMLExporter

    name, live = record
    page, _ = HTMLExporter(theme=theme).from_filename(str(jupyter.root / name))
    (jupyter.root / f"{theme}.html").write_text(page, "utf-8")
    jupyter.settings("@jupyterlab/apputils-extension:themes", {"theme": THEMES[theme]})
    for app, width in (("lab", 1200), ("notebook", 1200), ("notebook", 400)):
        desk.page.set_viewport_size({"width": width, "height": 1500})
        assert opened(desk, record, app) == live
        desk.cell(1).scroll_into_view_if_needed()
        desk.screenshot(f"record-{app}-{theme}-{width}-open")
        desk.page.evaluate(
            "() => document.querySelectorAll('.jp-OutputArea details').forEach(e => e.open = false)"
        )
        desk.cell(1).scroll_into_view_if_needed()
        desk.screenshot(f"record-{app}-{theme}-{width}")
        assert desk.read_until(TOO_WIDE, []) == []
    for width in (1200, 400):
        desk.page.set_viewport_size({"width": width, "height": 1500})
        desk.page.goto(f"{jupyter.url}/files/{theme}.html")
        desk.screenshot(f"record-html-{theme}-{width}", desk.page.locator("body"))
        assert desk.read_until(TOO_WIDE, []) == []
