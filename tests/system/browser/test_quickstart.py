"""The quickstart as a reader uses it: JupyterLab, Run All, clicks, answers."""

from __future__ import annotations

import re

import nbformat
import pytest

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]


def test_quickstart_in_jupyterlab(jupyter, desk, repository):
    """Run All in a new kernel, and Approve for each question: every run answers, and the console has no error."""
    notebook = nbformat.read(repository / "notebooks" / "quickstart.ipynb", as_version=4)
    runs = [n for n, cell in enumerate(notebook.cells) if cell.source.startswith("%%toolloop")]
    asks = [n for n in runs if "ask" in notebook.cells[n].source.split("\n")[0]]
    failing = next(n for n in runs if "nothing.py" in notebook.cells[n].source)
    assert len(runs) >= 6
    assert asks
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    nbformat.write(notebook, jupyter.root / "quickstart.ipynb")
    desk.open("quickstart.ipynb")
    desk.run_all()
    for number in asks:
        desk.see(desk.cell(number).locator(".tlj-card"), "the card")
        desk.button("Approve").scroll_into_view_if_needed()
        desk.screenshot("quickstart-card")
        while approve := desk.button_or("Approve", number, "done · "):
            approve.click()
            desk.has_gone(approve, "the Approve that was clicked")
    desk.wait_until_done()
    for number in runs:
        text = desk.text_of(number)
        assert re.search(r"^done · ", text, re.MULTILINE), text
    for number in asks:
        assert "approved" in desk.text_of(number)
    assert "FileNotFoundError" in desk.text_of(failing)
    assert "demonstration, not a language model" in desk.text_of(runs[0])
    desk.page.locator(".jp-Notebook .jp-Cell").first.scroll_into_view_if_needed()
    desk.screenshot("quickstart-top")
    desk.cell(runs[1]).scroll_into_view_if_needed()
    desk.screenshot("quickstart-runs")
    desk.save()
    assert (desk.errors, desk.outside, desk.dialogs) == ([], [], [])
