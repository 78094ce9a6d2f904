"""A conversation that outlives its kernel: kept as inert data in the notebook's outputs, found there again.

A vendor MIME type in an output stays in the saved file and is shown by no front-end (seen in JupyterLab 4.6).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core import history as conversation
from .options import Mistake

MIME = "application/vnd.toolloop.conversation+json"


def bundle(session: str | None, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The conversation after a turn, to go into the bundle of its last output."""
    return {MIME: {"format": conversation.FORMAT, "session": session or "", "messages": list(messages)}}


def find(session: str, path: str | None, names: Mapping[str, object]) -> list[dict[str, Any]]:
    """The newest conversation of `session` in a saved file: a session's own, or a notebook with --keep-history.

    Without `path`, the notebook that the kernel belongs to, where the front-end tells it. Raises Mistake when there
    is none, HistoryInvalid for one that no provider would take.
    """
    found = Path(path) if path else _this_notebook(names)
    if found is None:
        raise Mistake(
            f"which file? write: %toolloop resume {session} NOTEBOOK.ipynb (or a file of %toolloop save)"
        )
    if not found.is_file():
        raise Mistake(f"there is no file {str(found)!r}")
    if found.suffix != ".ipynb":
        return conversation.load(found)
    kept = [data for data in _kept_in(found) if data.get("session") == session]
    if not kept:
        raise Mistake(
            f"{found.name} keeps no conversation {session!r}; run its cells with --keep-history and save the notebook"
        )
    messages: list[dict[str, Any]] = kept[-1]["messages"]
    return messages


def _this_notebook(names: Mapping[str, object]) -> Path | None:
    """The notebook file: JPY_SESSION_NAME of jupyter_server 2, `__vsc_ipynb_file__` of VS Code."""
    for said in (names.get("__vsc_ipynb_file__"), os.environ.get("JPY_SESSION_NAME")):
        if said and str(said).endswith(".ipynb"):
            for candidate in (Path(str(said)), Path(str(said)).name):
                if Path(candidate).is_file():
                    return Path(candidate)
    return None


def _kept_in(path: Path) -> Iterator[dict[str, Any]]:
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    except (ValueError, KeyError, TypeError):
        raise Mistake(f"{path.name} is no notebook") from None
    for cell in cells:
        for output in cell.get("outputs", ()):
            data = output.get("data", {}).get(MIME)
            if isinstance(data, dict) and isinstance(data.get("messages"), list):
                yield data
