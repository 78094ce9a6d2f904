"""The notebooks of this repository: they run top to bottom, and their committed copies read well on a code host."""

import re
import time
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[3] / "notebooks").glob("*.ipynb"))
SECONDS = 150
"""For one notebook, on a busy machine; alone on one they take a fraction of it."""
A_MACHINE = re.compile(
    r"/home/|/Users/|/root/|/tmp/|/private/|/opt/|/usr/|\b[A-Z]:\\\\(?=\w)|site-packages|ipykernel_\d|\.venv|localhost:\d"
)
WIDGET = "application/vnd.jupyter.widget-view+json"
MARKS = re.compile(r"^([✓✗⊘⊖■]) ([\w.]+)\(", re.MULTILINE)

each = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def text_of(output):
    """The plain text of an output, or "" for one that has none."""
    if output.output_type == "stream":
        return output.text
    if output.output_type == "error":
        return f"{output.ename}: {output.evalue}"
    return output.data.get("text/plain", "")


def tool_calls(notebook):
    """(mark, tool) of the calls that a notebook's outputs show, cell by cell."""
    return [MARKS.findall("\n".join(text_of(o) for o in cell.outputs)) for cell in code_cells(notebook)]


def record(notebook):
    """What the runs of a notebook left, cell by cell: text and HTML, without addresses in memory and empty outputs."""
    cells = []
    for cell in code_cells(notebook):
        outputs = [output for output in cell.outputs if "tlj" in output.get("data", {}).get("text/html", "")]
        written = [(text_of(output), output.data["text/html"]) for output in outputs]
        texts, pages = (
            ("\n".join(part for part in form if part) for form in zip(*written, strict=True))
            if written
            else ("", "")
        )
        cells.append((re.sub(r"0x[0-9a-f]+", "0x…", texts), re.sub(r"0x[0-9a-f]+", "0x…", pages)))
    return cells


def errors(notebook):
    return [
        f"{o.ename}: {o.evalue}"
        for cell in code_cells(notebook)
        for o in cell.outputs
        if o.output_type == "error" and "raises-exception" not in cell.metadata.get("tags", [])
    ]


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """Nothing of this machine's settings: no key, no model, no profile of IPython."""
    for name in ("TOOLLOOP_MODEL", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "LITELLM_PROXY_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    monkeypatch.setenv("TOOLLOOP_TIMES", "0")  # as notebooks/refresh.py has it


@each
@pytest.mark.notebook
@pytest.mark.timeout(SECONDS + 30)
def test_runs_top_to_bottom(path, offline, record_property):
    """Each notebook runs without an error, leaves no file behind, and its runs leave what its committed copy shows."""
    committed = nbformat.read(path, as_version=4)
    notebook = nbformat.read(path, as_version=4)
    files, began = sorted(path.parent.iterdir()), time.monotonic()
    client = NotebookClient(
        notebook, timeout=SECONDS, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}}
    )
    client.execute()
    record_property("seconds", round(time.monotonic() - began, 1))
    assert errors(notebook) == []
    assert tool_calls(notebook) == tool_calls(committed)
    for cell, (now, then) in enumerate(zip(record(notebook), record(committed), strict=True)):
        assert now[0] == then[0], f"code cell {cell}: run notebooks/refresh.py {path.name}"
        assert now[1] == then[1], f"code cell {cell}: run notebooks/refresh.py {path.name}"
    assert [f for f in sorted(path.parent.iterdir()) if f.name != ".ipynb_checkpoints"] == files


@each
def test_is_committed_as_run(path):
    """The copy was executed top to bottom in one go, has no error but wanted ones, and each run shows something."""
    notebook = nbformat.read(path, as_version=4)
    cells = [cell for cell in code_cells(notebook) if cell.source.strip()]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert errors(notebook) == []
    assert all(cell.outputs for cell in cells if cell.source.lstrip().startswith("%%toolloop"))


@each
def test_outputs_read_without_a_kernel(path):
    """Each output is text or HTML; what acts (widgets, scripts) is never all there is, and no picture is fetched."""
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
    """Neither text nor outputs name a folder, a port or an environment of the machine that made the copy."""
    text = path.read_text("utf-8")
    assert [found.group() for found in A_MACHINE.finditer(text)] == []
    assert str(path.parents[1]) + "/" not in text


@each
def test_texts_load_nothing(path):
    """Texts show no picture from elsewhere: they read the same without a network."""
    texts = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown"]
    assert not [text for text in texts if re.search(r"!\[[^]]*\]\(http|<img", text)]
