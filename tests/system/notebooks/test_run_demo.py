"""`notebooks/run_demo.py`, which `./dev demo` runs: it prints a transcript and writes a page. It fails if there is no
transcript.
"""

from __future__ import annotations

import subprocess
import sys

import nbformat
import pytest

pytestmark = pytest.mark.notebook

RUN = """
from toolloop_jupyter.core.events.result import Result
from toolloop_jupyter.core.events.events import ToolCall, ToolResult, Usage
from IPython.display import HTML
events = [ToolCall("c1", "look_up", "look_up", {}), ToolResult("c1", "four\\nlines of result")]
result = Result("The answer is **42**, they say.", None, [], events, Usage(), None, "done", "s")
"""
SHOW = """
h = display({"text/html": "<p>x", "text/plain": "writing"}, raw=True, display_id="one")
print("\\x1b[31m→ look_up()\\x1b[0m\\n   four\\n   lines of result")
h.update({"text/html": "<p>The answer", "text/plain": "The answer is 42,\\nthey say."}, raw=True)
"""


@pytest.fixture
def demo(tmp_path, repository):
    """Run the script on a notebook with these cells. Return (status, standard output, standard error)."""

    def run(*cells):
        notebook = nbformat.v4.new_notebook()
        notebook.cells = [nbformat.v4.new_markdown_cell("# A lesson"), *map(nbformat.v4.new_code_cell, cells)]
        nbformat.write(notebook, tmp_path / "small.ipynb")
        command = [
            sys.executable,
            repository / "notebooks/run_demo.py",
            tmp_path / "small.ipynb",
            "--to",
            tmp_path / "out",
        ]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        return ran.returncode, ran.stdout, ran.stderr

    return run


def test_transcript_and_page(demo, tmp_path):
    """If the whole run is shown, the status is 0. The transcript has the last state of each output, in plain text."""
    status, printed, errors = demo(RUN, SHOW)
    assert status == 0, printed + errors
    for text in (
        "# A lesson",
        "cell 2 of 2",
        "  │ h = display",
        "→ look_up()",
        "The answer is 42,\nthey say.",
    ):
        assert text in printed
    assert "\x1b" not in printed
    assert "\nwriting" not in printed
    assert "<p>The answer" in (tmp_path / "out/small.html").read_text("utf-8")
    executed = nbformat.read(tmp_path / "out/small.ipynb", as_version=4)
    assert len(executed.cells) == 3


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ((RUN, SHOW, "1/0"), "a cell failed: ZeroDivisionError"),
        (("print('nothing')",), "shows no tool call, tool result, answer"),
        ((RUN, "print('look_up four lines of result')"), "shows no answer"),
        ((RUN, "print('look_up The answer is 42, they say.')"), "shows no tool result"),
        ((RUN, "print('four lines of result. The answer is 42, they say.')"), "shows no tool call"),
    ],
)
def test_what_is_missing_is_a_failure(demo, cells, message):
    """If a cell has failed, or if a reader would not see a call, a result or an answer, the status is 1, and the script names
    what is missing.
    """
    status, printed, errors = demo(*cells)
    assert status == 1
    assert message in errors
    assert "In JupyterLab" in printed


def test_missing_notebook(repository):
    """If the notebook does not exist, the error is one line."""
    command = [sys.executable, repository / "notebooks/run_demo.py", "no.ipynb"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (2, "there is no notebook no.ipynb\n")
