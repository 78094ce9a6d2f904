"""A conversation that outlives its kernel: kept as inert data in the notebook's outputs, found there again.

A vendor MIME type in an output stays in the saved file and is shown by no front-end (seen in JupyterLab 4.6). The last
output of each cell keeps the whole conversation up to there, and the newest one counts: whatever was cleared, deleted or
run again since, what it has is in good order. So ten turns are ten growing copies in the file.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
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
    lost: int = 0
    """How many turns at the beginning are not in the notebook any more (of one that was kept in pieces)."""


def bundle(session: str | None, named: NamedSession) -> dict[str, Any]:
    """What a cell's last output keeps of the conversation, for its bundle."""
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
    kept.sort(key=_when)  # the newest one last, whatever the order in which the cells stand
    if "after" in kept[-1]:
        return _of_pieces(kept)
    return Kept(kept[-1]["messages"], *read_kept(kept[-1].get("turns")))


def _when(data: Mapping[str, Any]) -> float:
    at = data.get("at")
    return at if isinstance(at, (int, float)) else 0.0


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
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Mistake(f"{path.name} is no notebook") from None
    outputs = [o for cell in cells if isinstance(cell, dict) for o in cell.get("outputs") or ()]
    for output in outputs:
        shown = output.get("data") if isinstance(output, dict) else None
        data = shown.get(MIME) if isinstance(shown, dict) else None
        if not isinstance(data, dict):
            continue
        if _are_messages(data.get("messages")):
            yield data


def _are_messages(found: object) -> bool:
    return isinstance(found, list) and all(isinstance(message, dict) for message in found)


# --- notebooks of before ------------------------------------------------------------------------------------------
# Each cell kept a piece: its own turn's messages, the digest of all before them (`after`), and of all with them (`state`).


def _of_pieces(pieces: Sequence[Mapping[str, Any]]) -> Kept:
    """The conversation that the newest piece ends, from its own messages and those of the pieces before it."""
    known: dict[str, tuple[list[dict[str, Any]], int]] = {
        "": ([], 0)
    }  # digest -> messages, how many are lost
    for piece in pieces:
        system, own = _parted(piece["messages"])
        system = system or (piece["system"] if _are_messages(piece.get("system")) else [])
        begin = piece.get("from")
        missing = begin if isinstance(begin, int) and begin > 0 else 1
        before, lost = known.get(str(piece.get("after", "")), ([], missing))
        whole = [*before, *own]
        known[str(piece.get("state", ""))] = (whole, lost)
        if not lost:
            known |= {state: (whole[:end], 0) for end, state in enumerate(_states(whole))}
    starts, made_by = read_kept(pieces[-1].get("turns"))
    messages = [*system, *whole]
    if not lost:
        return Kept(messages, starts, made_by)
    gone = sum(start < lost + len(system) for start in starts)
    return Kept(messages, [start - lost for start in starts[gone:]], made_by[gone:], lost=gone or 1)


def _parted(messages: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The system message, which any turn could change, and the rest, which only grew."""
    first = 1 if messages and messages[0].get("role") == "system" else 0
    return messages[:first], messages[first:]


def _states(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The digest of the first 0, 1, 2, … messages; that of none is ""."""
    digest = hashlib.sha256()
    yield ""
    for message in messages:
        digest.update(json.dumps(message, sort_keys=True).encode() + b"\n")
        yield digest.hexdigest()[:16]
