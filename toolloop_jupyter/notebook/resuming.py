"""A conversation that outlives its kernel: kept as inert data in the notebook's outputs, found there again.

A vendor MIME type in an output stays in the saved file and is shown by no front-end (seen in JupyterLab 4.6).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core import history as conversation
from ..core.hiding import hide_in
from .options import Mistake
from .turns import MadeBy, NamedSession, read_kept

MIME = "application/vnd.toolloop.conversation+json"


@dataclass(frozen=True)
class Kept:
    """A conversation that was kept, with the beginnings of its turns and the cells that made them."""

    messages: list[dict[str, Any]]
    starts: list[int]
    made_by: list[MadeBy]

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Kept:
        return cls(data["messages"], *read_kept(data.get("turns")))


def bundle(session: str | None, named: NamedSession) -> dict[str, Any]:
    """The conversation after a turn, to go into the bundle of its last output."""
    return {
        MIME: {
            "format": conversation.FORMAT,
            "session": session or "",
            "at": round(time.time(), 3),
            "turns": named.kept(),
            "messages": hide_in(named.session.messages()),
        }
    }


def save(named: NamedSession, path: str) -> int:
    """Write a session to a file of its own; returns how many messages it has."""
    messages = named.session.messages()
    conversation.dump(messages, path, turns=named.kept())
    return len(messages)


def load(path: Path) -> Kept:
    """A session from a file of `save`. Raises HistoryInvalid."""
    messages = conversation.load(path)
    data = json.loads(path.read_text(encoding="utf-8"))
    turns = data.get("turns") if isinstance(data, dict) else None
    return Kept(messages, *read_kept(turns))


def find(session: str, path: str | None, names: Mapping[str, object]) -> Kept:
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
        return load(found)
    kept = [data for data in _kept_in(found) if data.get("session") == session]
    if not kept:
        raise Mistake(
            f"{found.name} keeps no conversation {session!r}; run its cells with --keep-history and save the notebook"
        )
    # The newest one, whatever the order in which the cells stand.
    return Kept.of(max(kept, key=lambda data: data["at"] if isinstance(data.get("at"), (int, float)) else 0))


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
    outputs = [o for cell in cells if isinstance(cell, dict) for o in cell.get("outputs") or ()]
    for output in outputs:
        shown = output.get("data") if isinstance(output, dict) else None
        data = shown.get(MIME) if isinstance(shown, dict) else None
        if not isinstance(data, dict):
            continue
        messages = data.get("messages")
        if isinstance(messages, list) and all(isinstance(message, dict) for message in messages):
            yield data
