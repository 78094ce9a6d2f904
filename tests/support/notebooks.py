"""Runs a notebook from top to bottom in a live kernel, with a person at the cells that ask.

The cell's tags say what the person does, one tag for each card: `person approve`, `person edit keep=10`,
`person deny not this one`, `person send name=Anna`. At other cells nobody is there, as in nbconvert.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat

from .kernels import Execution, LiveKernel

PERSON = "person "
ENVIRONMENT = {
    "TOOLLOOP_TIMES": "0",  # so that the outputs are the same each time
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
}


class CellFailed(AssertionError):
    """Raised if a cell without the tag `raises-exception` ends with an error."""


def run_notebook(path: Path, *, timeout: float = 120) -> Any:
    """Run a notebook in its own folder. Return it with its outputs. Raises CellFailed, and KernelTimeout if a cell hangs."""
    notebook = nbformat.read(path, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]
    with _open_kernel(path.parent) as kernel:
        for number, cell in enumerate(cells):
            run = _run_cell(kernel, cell, timeout)
            cell.execution_count = run.reply["execution_count"]
            cell.outputs = [
                output for one in run.outputs if (output := _as_output(one, cell.execution_count))
            ]
            if run.status != "ok" and "raises-exception" not in cell.metadata.get("tags", []):
                raise CellFailed(f"{path.name}: {run.error}\n{cell.source}")
            if number == 0:  # an import continues in the background, while a person would read on
                kernel.execute("import litellm", silent=True)
    return notebook


@contextmanager
def _open_kernel(folder: Path) -> Iterator[LiveKernel]:
    """Return a kernel without this machine's settings: no model, no key."""
    unset = {name for name in os.environ if name.startswith("TOOLLOOP_") or name.endswith("_API_KEY")}
    with LiveKernel(cwd=folder.resolve(), env={**dict.fromkeys(unset), **ENVIRONMENT}) as kernel:
        yield kernel


def _run_cell(kernel: LiveKernel, cell: Any, timeout: float) -> Execution:
    acts = [tag.removeprefix(PERSON) for tag in cell.metadata.get("tags", []) if tag.startswith(PERSON)]
    run = kernel.submit(cell.source, allow_stdin=bool(acts))
    for act in acts:
        _decide(kernel, *act.split(" ", 1))
    kernel.wait(run, timeout=timeout)
    if any(act.startswith("edit") for act in acts) and "approved with edits" not in run.text:
        raise CellFailed(f"what a person typed did not arrive: {run.text}")
    return run


def _decide(kernel: LiveKernel, verb: str, rest: str = "") -> None:
    """Do what a tag says at the card that waits."""
    kernel.button("Send" if verb == "send" else "Approve")
    if verb == "send":
        name, _, value = rest.partition("=")
        (field,) = [w for w in kernel.open_widgets() if w.state.get("description") == name]
        kernel.set_state(field, value=value)
        kernel.click("Send")
        return
    if verb == "deny":
        (why,) = [
            text for text in kernel.open_widgets("TextModel") if "tlj-why" in text.state["_dom_classes"]
        ]
        kernel.set_state(why, value=rest)
        kernel.click("Deny")
        return
    if verb == "edit":
        name, _, value = rest.partition("=")
        kernel.click("Edit")
        kernel.button("Approve edited")
        (field,) = [w for w in kernel.open_widgets() if w.state.get("description") == name]
        typed = isinstance(field.state["value"], str)  # a text field; a number is typed into it, too
        kernel.set_state(field, value=value.strip('"') if typed else json.loads(value))
    kernel.click("Approve")


def _as_output(output: Any, count: int) -> Any:
    """Return an output as a notebook keeps it; None if the output was removed."""
    if output.kind == "stream":
        return nbformat.v4.new_output("stream", name=output.data["name"], text=output.text)
    if output.kind == "error":
        return nbformat.v4.new_output("error", **output.data)
    if not any(output.data.values()):
        return None
    counted = {"execution_count": count} if output.kind == "execute_result" else {}
    return nbformat.v4.new_output(output.kind, data=output.data, metadata=output.metadata, **counted)
