"""Execute notebooks again and keep their outputs, cleaned of what only says where and when they ran.

    python notebooks/refresh.py [NOTEBOOK …]        without names: all of this folder

For the committed copies, so that a code host shows notebooks with their outputs. At the cells that ask, a script sits in a
person's place (tests/support/notebooks.py). Ends with status 1, and leaves the file
as it was, when a cell fails that is not tagged raises-exception, or an output names a path of this machine.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import nbformat

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))

from support.notebooks import CellFailed, run_notebook  # noqa: E402 - from the tests' folder


def clean(notebook: Any) -> Any:
    """Take out what changes from machine to machine: versions, times of execution."""
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell in notebook.cells:
        kept = {key: cell.metadata[key] for key in ("tags",) if key in cell.metadata}
        cell.metadata = nbformat.from_dict(kept)
    return notebook


def machine_paths(notebook: Any) -> list[str]:
    """Return the paths of this machine that outputs name: home, temporary, working and Python's folders."""
    folders = {
        str(Path.home()),
        tempfile.gettempdir(),
        str(HERE.parent.resolve()),
        sys.prefix,
        sys.base_prefix,
    }
    places = "|".join(re.escape(folder.rstrip("/")) for folder in sorted(folders) if len(folder) > 1)
    pattern = re.compile(rf"(?:{places})[/\\][^\s\"'<&]*")
    outputs = [o for cell in notebook.cells if cell.cell_type == "code" for o in cell.outputs]
    return sorted(
        {found for output in outputs for found in pattern.findall(str(output).replace("\\\\", "\\"))}
    )


def refresh(path: Path) -> str:
    """Execute and rewrite one notebook; return what went wrong, or ""."""
    try:
        notebook = clean(run_notebook(path))
    except CellFailed as error:
        return f"a cell failed: {error}"
    if paths := machine_paths(notebook):
        return f"outputs name paths of this machine: {', '.join(paths)}"
    nbformat.validate(notebook)
    nbformat.write(notebook, path)
    return ""


def main() -> int:
    failed = False
    for path in [Path(name) for name in sys.argv[1:]] or sorted(HERE.glob("*.ipynb")):
        began = time.monotonic()
        wrong = refresh(path)
        failed = failed or bool(wrong)
        print(f"{path.name}: {wrong or 'done'} ({time.monotonic() - began:.0f} s)", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
