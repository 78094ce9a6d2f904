"""The picture of a run in another person's notebook, which is untrusted and is opened without running anything."""

from __future__ import annotations

import nbformat
import pytest

from support.diagrams import a_run
from toolloop_jupyter.notebook.transcript.diagram import draw_timeline
from toolloop_jupyter.notebook.transcript.steps import make_bundle, render

pytestmark = pytest.mark.browser

_PICTURES = """() => [...document.querySelectorAll('.jp-OutputArea-output img')].map(
    img => [img.complete, img.naturalWidth, img.alt.slice(0, 8)])"""


@pytest.mark.parametrize("app", ["lab", "notebook"])
def test_the_picture_survives_in_an_untrusted_notebook(jupyter, desk, app):
    """In an untrusted notebook, both front-ends draw the image in the saved outputs, and keep its text."""
    run = a_run()
    cells = [
        nbformat.v4.new_code_cell(
            "x", outputs=[nbformat.v4.new_output("display_data", data=make_bundle(blocks))]
        )
        for blocks in ([draw_timeline(run)], render(run))
    ]
    notebook = nbformat.v4.new_notebook(cells=cells)
    notebook.metadata.update(kernelspec={"name": "python3", "display_name": "Python 3"})
    name = f"untrusted-{app}.ipynb"
    nbformat.write(notebook, jupyter.root / name)
    desk.open(name, app)
    trusted = desk.page.evaluate(
        "() => window.jupyterapp.shell.currentWidget.content.model.cells.get(0).trusted"
    )
    assert not trusted
    pictures = [[True, 640, "timeline"]] * 2
    assert desk.read_until(_PICTURES, pictures) == pictures
    assert "as text" in desk.text_of(0)
    assert desk.outside == []
