"""Nobody is there: nbconvert, nbclient and papermill run notebooks that ask. Each run comes to its end in limited time."""

from __future__ import annotations

import subprocess
import sys

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

pytestmark = [pytest.mark.notebook, pytest.mark.timeout(180)]

SET_UP = '%load_ext toolloop_jupyter\nruns = []\ndef double(x: int) -> int:\n    "Double."\n    runs.append(x)\n    return 2 * x'
API = "from toolloop_jupyter import agent, Harness\nr = agent(Harness.TOOL_LOOP, 'Double 7', model='toolloop/demo', tools=[double], permissions='ask'{more})"
LAST = "print('LAST', runs, r.stop_reason)"


def written(folder, *cells):
    """A notebook file with these cells."""
    path = folder / "asks.ipynb"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python", "language": "python"}
    nbformat.write(notebook, path)
    return path


def text(notebook):
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "\n".join(o.get("text") or o.get("data", {}).get("text/plain", "") for o in outputs)


def run(runner, path):
    """Let the runner execute the notebook, and return the notebook. The process has two minutes."""
    done = path.with_name("done.ipynb")
    if runner == "nbclient":
        notebook = nbformat.read(path, as_version=4)
        NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
        return notebook
    command = {
        "nbconvert": ["nbconvert", "--execute", "--to", "notebook", "--output", done.name, str(path)],
        "papermill": ["papermill", str(path), str(done)],
    }[runner]
    ran = subprocess.run(
        [sys.executable, "-m", *command], check=False, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return nbformat.read(done, as_version=4)


@pytest.mark.parametrize("runner", ["nbclient", "nbconvert", "papermill"])
def test_each_runner_goes_to_the_end(runner, tmp_path):
    """If nobody is there, the call is denied with this reason. With `allow`, and with the API's own handler, it runs."""
    cells = [
        SET_UP,
        "%%toolloop -t double -p ask --as r\nDouble 7",
        LAST,
        "%%toolloop -t double -p ask --on-unattended allow --as r\nDouble 8",
        LAST,
        API.format(more=""),
        LAST,
        API.format(more=", on_approval=lambda approval: True"),
        LAST,
    ]
    shown = text(run(runner, written(tmp_path, *cells)))
    assert "nobody is there to approve it" in shown
    assert [line for line in shown.splitlines() if line.startswith("LAST")] == [
        "LAST [] done",
        "LAST [8] done",
        "LAST [8] done",
        "LAST [8, 7] done",
    ]


def test_error_stops_the_notebook(tmp_path):
    """`--on-unattended error` makes the cell fail, so a scheduled run counts as failed."""
    cell = "%%toolloop -t double -p ask --on-unattended error --as r\nDouble 7"
    with pytest.raises(CellExecutionError, match="nobody is there to approve it"):
        run("nbclient", written(tmp_path, SET_UP, cell, LAST))


@pytest.mark.parametrize("runner", ["nbclient", "papermill"])
def test_rows_run_to_the_end(runner, tmp_path):
    """If nobody is there, the calls of rows are denied. The saved cell has the record, and before it lines of progress if the
    run took long.
    """
    cells = [
        SET_UP,
        "rows = [{'x': n} for n in range(30)]",
        "%%toolloop --each rows -t double -p ask --as r\nDouble {{x}}",
        "print('LAST', runs, len(r), {row.result.tool_results[0].decision.by for row in r})",
    ]
    notebook = run(runner, written(tmp_path, *cells))
    assert "LAST [] 30 {'unattended'}" in text(notebook)
    *lines, record = next(cell.outputs for cell in notebook.cells if cell.source.startswith("%%toolloop"))
    assert all(line.output_type == "stream" and " of 30 rows" in line.text for line in lines)
    assert record["data"]["text/plain"].splitlines()[-1].startswith("done · 30 of 30 rows · ")
    assert "tlj-rows" in record["data"]["text/html"]
