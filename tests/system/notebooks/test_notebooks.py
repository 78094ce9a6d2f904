"""The notebooks of this repository: they run from top to bottom, and their committed outputs can be read on a site that hosts
code.
"""

import re
import time
from pathlib import Path

import nbformat
import pytest

from support.notebooks import run_notebook

NOTEBOOKS = sorted((Path(__file__).parents[3] / "notebooks").glob("*.ipynb"))
SECONDS = 150
"""The most seconds for one notebook on a busy machine. On a quiet machine, a notebook takes only a fraction of this."""
A_MACHINE = re.compile(
    r"/home/|/Users/|/root/|/tmp/|/private/|/opt/|/usr/|\b[A-Z]:\\\\(?=\w)|site-packages|ipykernel_\d|\.venv|localhost:\d"
)
WIDGET = "application/vnd.jupyter.widget-view+json"

each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def text_of(output):
    """Return the plain text of an output; "" if it has none."""
    if output.output_type == "stream":
        return output.text
    if output.output_type == "error":
        return f"{output.ename}: {output.evalue}"
    return output.data.get("text/plain", "")


def record(notebook):
    """Return the text and HTML that the cells of a notebook have shown, cell by cell, without addresses in memory."""
    return [
        re.sub(
            r"0x[0-9a-f]+",
            "0x…",
            "\n".join(f"{text_of(one)}\n{one.get('data', {}).get('text/html', '')}" for one in cell.outputs),
        )
        for cell in code_cells(notebook)
    ]


def errors(notebook):
    return [
        f"{o.ename}: {o.evalue}"
        for cell in code_cells(notebook)
        for o in cell.outputs
        if o.output_type == "error" and "raises-exception" not in cell.metadata.get("tags", [])
    ]


@each
@pytest.mark.notebook
@pytest.mark.timeout(SECONDS + 30)
def test_committed_outputs_are_of_this_commit(path, record_property):
    """Each notebook runs without an error and leaves no file behind. Each cell shows what the committed notebook shows."""
    files, began = sorted(path.parent.iterdir()), time.monotonic()
    notebook = run_notebook(path, timeout=SECONDS)
    record_property("seconds", round(time.monotonic() - began, 1))
    cells = zip(record(notebook), record(nbformat.read(path, as_version=4)), strict=True)
    for number, (now, committed) in enumerate(cells):
        assert now == committed, f"code cell {number}: run notebooks/refresh.py {path.name}"
    assert [f for f in sorted(path.parent.iterdir()) if f.name != ".ipynb_checkpoints"] == files


@each
def test_is_committed_as_run(path):
    """The committed notebook was run from top to bottom in one go. It has only wanted errors, and each run shows something."""
    notebook = nbformat.read(path, as_version=4)
    cells = [cell for cell in code_cells(notebook) if cell.source.strip()]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert errors(notebook) == []
    assert all(cell.outputs for cell in cells if cell.source.lstrip().startswith("%%toolloop"))


@each
def test_outputs_read_without_a_kernel(path):
    """Each output has text or HTML. Widgets and scripts are never its only form, and no picture is fetched."""
    for cell in code_cells(nbformat.read(path, as_version=4)):
        for output in cell.outputs:
            if output.output_type in ("display_data", "execute_result"):
                assert {"text/plain", "text/html"} & set(output.data), output.data.keys()
                assert WIDGET not in output.data, "a widget was left in the saved copy"
                assert "<script" not in output.data.get("text/html", "")
                assert not re.search(r"<img[^>]+src=[\"'](?!data:)", output.data.get("text/html", ""))
    assert "widgets" not in nbformat.read(path, as_version=4).metadata


@each
def test_names_no_machine(path):
    """Neither texts nor outputs name a folder, a port or an environment of the machine on which the notebook was run."""
    text = path.read_text("utf-8")
    assert [found.group() for found in A_MACHINE.finditer(text)] == []
    assert str(path.parents[1]) + "/" not in text


@each
def test_texts_load_nothing(path):
    """No text shows a picture from another address, so the texts are the same without a network."""
    texts = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown"]
    assert not [text for text in texts if re.search(r"!\[[^]]*\]\(http|<img", text)]
