"""A run with a figure and a PDF in its prompt: what a person sees, live and in the saved notebook without a kernel."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]

SET_UP = """%load_ext toolloop_jupyter
from pathlib import Path
from matplotlib.figure import Figure
from toolloop_jupyter.teaching import ScriptedModel
sales = {'Jan': 12, 'Feb': 19, 'Mar': 4}
fig = Figure(figsize=(5, 2.5)); fig.subplots().bar(list(sales), list(sales.values()))
size = Path('report.pdf').write_bytes(b'%PDF-1.4\\n%%EOF\\n' * 4000)
m = ScriptedModel('March is low: 4, where January has 12 and the report says 14.')"""
ASK = "%%toolloop --model m --attach report.pdf\nWhat is odd in {{fig}}? The numbers are {{sales}}."
PICTURES = """() => [...document.querySelectorAll('.jp-OutputArea-output .tlj-text img')].map(
    e => e.complete && e.naturalWidth > 100 && e.getBoundingClientRect().width > 100 && e.src.startsWith('data:image/'))"""
WORDS = "() => [...document.querySelectorAll('.jp-OutputArea-output')].map(e => e.innerText).join(' ')"
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}


@pytest.fixture(scope="module")
def saved(jupyter, shared):
    """The notebook after it was run and saved."""
    jupyter.notebook("values.ipynb", [SET_UP, ASK])
    jupyter.share_kernel("values.ipynb")
    with shared.desk(jupyter) as desk:
        desk.open("values.ipynb")
        desk.run_all()
        desk.until(
            "() => ['1 model call', 'with sales'].every(e => document.body.innerText.includes(e))",
            "the end of the run",
        )
        desk.come_to_rest()
        desk.see_number(desk.page.locator(".tlj-bar:visible"), 0, "no toolbar")
        assert desk.read_until(PICTURES, [True]) == [True]
        live = desk.page.evaluate(WORDS)
        desk.save()
        assert desk.errors == []
    made = jupyter.read("values.ipynb")
    del made.metadata["language_info"]  # with this entry, a front-end would still find a kernel
    jupyter.write("alone.ipynb", made, kernelspec={"name": "no-such-kernel", "display_name": "None"})
    return "alone.ipynb", live


@pytest.mark.parametrize("theme", THEMES)
def test_the_thumbnail_is_in_the_saved_notebook(jupyter, desk, saved, theme):
    """Without a kernel, the opened notebook shows the small figure, the PDF's name and size, and the length of the value."""
    name, live = saved
    jupyter.settings("@jupyterlab/apputils-extension:themes", {"theme": THEMES[theme]})
    desk.open(name, kernel=False, anew=True)
    desk.choose_no_kernel()
    assert desk.read_until(PICTURES, [True]) == [True]
    words = desk.read_until(WORDS, live)
    assert words == live
    for part in (
        "with sales: 32 characters",
        "sent report.pdf: PDF, 60 kB",
        "sent fig: PNG picture",
        "March is low",
    ):
        assert part in words
    assert desk.outside == []
    desk.cell(1).scroll_into_view_if_needed()
    desk.screenshot(f"prompt-values-{theme}")
