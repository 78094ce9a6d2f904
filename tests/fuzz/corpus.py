"""The faults that were found, one file each: {"seam", "found", "mended", "input"}. A quick test runs them all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fuzz.search import Fault

FOLDER = Path(__file__).parent / "corpus"


def load_corpus() -> dict[str, dict[str, Any]]:
    """Return name of a file -> its content."""
    return {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.json"))}


def write(fault: Fault) -> str:
    """Write a fault as a file of the corpus. A person has to add what the fault was, and which commit has fixed it."""
    entry = {
        "seam": fault.seam,
        "found": f"{fault.invariant}: {fault.what[:300]}",
        "mended": "",
        "input": fault.input,
    }
    return _lay_out(entry) + "\n"


def _lay_out(value: Any, indent: str = "") -> str:
    """Return JSON in few lines: each part that fits into one line is in one line."""
    flat = json.dumps(value)
    if len(indent) + len(flat) <= 110 or not isinstance(value, dict | list) or not value:
        return flat
    inner = indent + " "
    if isinstance(value, dict):
        lines = [f"{json.dumps(key)}: {_lay_out(item, inner)}" for key, item in value.items()]
        return "{\n" + ",\n".join(inner + line for line in lines) + f"\n{indent}}}"
    return "[\n" + ",\n".join(inner + _lay_out(item, inner) for item in value) + f"\n{indent}]"
