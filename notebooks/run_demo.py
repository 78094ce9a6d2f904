"""Run a notebook on the offline demo model in a real kernel, and print its transcript while it runs.

    python notebooks/run_demo.py [NOTEBOOK] [--to FOLDER]

Writes the executed notebook and an HTML page of it to FOLDER (build/). Ends with status 0 only when no cell failed and the
printed transcript shows at least one tool call, its result and the model's answer.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbconvert import HTMLExporter

HERE = Path(__file__).parent
CELL_TIMEOUT = 300  # seconds; litellm alone may take ten to import, and nobody wants to wait for ever
WIDGET = "application/vnd.jupyter.widget-view+json"

# Runs as the last cell, and is not kept: what the `Result`s of the notebook hold, to be looked for in what was printed.
PROBE = """
import json as _json
from toolloop_jupyter.core.events.result import Result as _Result
_runs = {id(r): r for r in [*globals().values(), *globals().get("Out", {}).values()] if isinstance(r, _Result)}
print(_json.dumps([
    {"calls": [c.name for c in r.calls], "results": [t.output for t in r.tool_results], "answer": r.text}
    for r in _runs.values()
]))
"""


class Transcript:
    """Prints cells and their outputs as plain text, and keeps the outputs."""

    def __init__(self, code_cells: int) -> None:
        self.code_cells = code_cells
        self.outputs: list[str] = []
        self.number = 0

    def begin(self, cell: Any, cell_index: int) -> None:
        if cell.cell_type == "markdown":
            print(f"\n{cell.source.strip()}", flush=True)
        elif not is_probe(cell):
            self.number += 1
            print(f"\n── cell {self.number} of {self.code_cells} " + "─" * 60)
            print("\n".join("  │ " + line for line in cell.source.splitlines()), flush=True)

    def end(self, cell: Any, cell_index: int, execute_reply: Any) -> None:
        if is_probe(cell):
            return
        for output in cell.outputs:
            if text := plain(output):
                self.outputs.append(text)
                print(text, flush=True)


def plain(output: Any) -> str:
    """What a reader of plain text sees of one output; nothing of a widget, which only says that it is one."""
    if output.output_type == "stream":
        text = output.text
    elif output.output_type == "error":
        text = "\n".join(output.traceback)
    elif WIDGET in output.data:
        return ""
    else:
        text = output.data.get("text/plain", "")
    return without_control_characters(text).rstrip()


def without_control_characters(text: str) -> str:
    """`text` without terminal sequences and other control characters than newline and tab."""
    text = re.sub(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|.)", "", text)
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", "", text)


def is_probe(cell: Any) -> bool:
    return bool(cell.metadata.get("toolloop_probe"))


def run(notebook: Any, folder: Path, transcript: Transcript) -> tuple[str, list[dict[str, Any]]]:
    """Execute `notebook` in place, in `folder`; return what went wrong ("" if nothing) and what its runs hold."""
    probe = nbformat.v4.new_code_cell(PROBE, metadata={"toolloop_probe": True})
    notebook.cells.append(probe)
    client = NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        extra_arguments=["--log-level=ERROR"],  # no word on how the kernel's channels are encrypted
        store_widget_state=False,
        on_cell_start=transcript.begin,
        on_cell_executed=transcript.end,
    )
    wrong = ""
    try:
        client.execute()
    except CellExecutionError as error:
        wrong = f"a cell failed: {error.ename}: {error.evalue}"
    except (CellTimeoutError, DeadKernelError) as error:
        wrong = f"{type(error).__name__}: {error}"
    finally:
        notebook.cells.remove(probe)
    lines = "".join(
        o.text for o in probe.outputs if o.output_type == "stream" and o.name == "stdout"
    ).splitlines()
    return wrong, json.loads(lines[-1]) if lines else []


def missing_from(printed: str, runs: list[dict[str, Any]]) -> str:
    """Say what the transcript lacks of a tool call, its result and the answer; "" when one run shows all three."""
    seen = squeezed(printed)
    lacks = ""
    for run_ in runs or [{"calls": [], "results": [], "answer": ""}]:
        parts = {
            "tool call": any(name in seen for name in run_["calls"]),
            "tool result": any(shows(seen, text) for text in run_["results"]),
            "answer": shows(seen, run_["answer"]),
        }
        lacks = ", ".join(name for name, there in parts.items() if not there)
        if not lacks:
            return ""
    return f"the transcript shows no {lacks}"


def shows(seen: str, text: str) -> bool:
    """Whether the beginning of `text` was printed, however its lines were broken and indented."""
    start = squeezed(without_control_characters(text))[:24]
    return bool(start) and start in seen


def squeezed(text: str) -> str:
    """Letters and digits alone: line breaks, frames and Markdown marks are the view's business."""
    return re.sub(r"[\W]+", "", text)


def save(notebook: Any, name: str, folder: Path) -> Path:
    """Write the executed notebook and its HTML page; return the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, folder / f"{name}.ipynb")
    page, _ = HTMLExporter().from_notebook_node(notebook, resources={"metadata": {"name": name}})
    path = folder / f"{name}.html"
    path.write_text(page, "utf-8")
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description="Run a notebook on the offline demo model.")
    parser.add_argument("notebook", nargs="?", type=Path, default=HERE / "quickstart.ipynb")
    parser.add_argument("--to", type=Path, default=HERE.parent / "build", metavar="FOLDER")
    options = parser.parse_args()
    if not options.notebook.is_file():
        print(f"there is no notebook {options.notebook}", file=sys.stderr)
        return 2
    os.environ["TOOLLOOP_MODEL"] = (
        "toolloop/demo"  # whatever is configured here: the demo needs no key and no network
    )
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")  # the debugger's note at every kernel start

    began = time.monotonic()
    notebook = nbformat.read(options.notebook, as_version=4)
    transcript = Transcript(
        sum(cell.cell_type == "code" and bool(cell.source.strip()) for cell in notebook.cells)
    )
    print(
        f"Running {options.notebook.name} on the demo model (no key, no network) in a Jupyter kernel …",
        flush=True,
    )
    wrong, runs = run(notebook, options.notebook.parent.resolve(), transcript)
    page = save(copy.deepcopy(notebook), options.notebook.stem, options.to)
    wrong = wrong or missing_from("\n".join(transcript.outputs), runs)

    print("\n" + "─" * 76)
    print(f"{transcript.number} cells in {time.monotonic() - began:.0f} s.")
    print(f"As a page:     {page.resolve()}")
    print(f"In JupyterLab: ./dev lab, then open {options.notebook.name}, and Run > Run All Cells")
    if wrong:
        print(f"\nThe demo failed: {wrong}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
