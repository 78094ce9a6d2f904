"""A conversation that outlives its kernel: kept as inert data in the notebook's outputs, found there again.

A vendor MIME type in an output stays in the saved file and is shown by no front-end (seen in JupyterLab 4.6).

Each cell keeps a piece: the messages of its own turn, and the *state* that they go on from, which is a digest of all
messages before them. So a long conversation is in the file once and not once for each cell, and pieces that a re-run has
left behind fit nowhere. A piece begins earlier where the file would not have what is before it: at a turn that no cell
has kept, or whose output has been replaced by that of a new run of its cell.
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

_States = tuple[tuple[str, MadeBy], ...]
MIME = "application/vnd.toolloop.conversation+json"


@dataclass(frozen=True)
class Kept:
    """A conversation that was kept, with the beginnings of its turns and the cells that made them."""

    messages: list[dict[str, Any]]
    starts: list[int]
    made_by: list[MadeBy]
    states: _States = ()
    """The states that the notebook's pieces lead to, and whose outputs they are in."""
    lost: int = 0
    """How many turns at the beginning are not in the notebook any more."""


def bundle(session: str | None, named: NamedSession, now: MadeBy) -> dict[str, Any]:
    """The piece of the conversation that a cell's last output keeps, for its bundle. `now` is the cell that runs."""
    system, messages = _parted(hide_in(named.session.messages()))
    states = _states(messages)
    starts = [max(0, start - len(system)) for start in named.session.starts]
    known = {"": -1} | {state: number for number, (state, _) in enumerate(named.states)}
    begin = max(start for start in (0, *starts) if states[start] in known)
    new = [(states[start], now) for start in (*starts, len(messages)) if start > begin]
    named.states = [*named.states[: known[states[begin]] + 1], *new]
    return {
        MIME: {
            "format": conversation.FORMAT,
            "session": session or "",
            "cell": now.cell,
            "at": round(time.time(), 3),
            "turns": named.kept(),
            "system": system,
            "after": states[begin],
            "from": begin,
            "state": states[-1],
            "messages": messages[begin:],
        }
    }


def _parted(messages: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The system message, which any turn may change, and the rest, which only grows."""
    first = 1 if messages and messages[0].get("role") == "system" else 0
    return messages[:first], messages[first:]


def _states(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """The digest of the first 0, 1, 2, … messages; that of none is ""."""
    digest, states = hashlib.sha256(), [""]
    for message in messages:
        digest.update(json.dumps(message, sort_keys=True).encode() + b"\n")
        states.append(digest.hexdigest()[:16])
    return states


@dataclass(frozen=True)
class _Piece:
    """What one output keeps, as far as a file has it in good order."""

    at: float
    system: list[dict[str, Any]]
    messages: list[dict[str, Any]]
    turns: object
    cell: MadeBy
    after: str
    begin: int
    """How many messages are before these."""
    state: str

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> _Piece:
        at, begin = data.get("at"), data.get("from")
        system, messages = _parted(data["messages"])
        return cls(
            at if isinstance(at, (int, float)) else 0.0,
            system or _messages(data.get("system")) or [],
            messages,
            data.get("turns"),
            MadeBy(str(data.get("cell", ""))),
            str(data.get("after", "")),
            begin if isinstance(begin, int) and begin > 0 else 1,
            str(data.get("state", "")),
        )


def _messages(found: object) -> list[dict[str, Any]] | None:
    whole = isinstance(found, list) and all(isinstance(message, dict) for message in found)
    return found if whole else None  # type: ignore[return-value]  # whole says so


def _put_together(pieces: list[_Piece]) -> Kept:
    """The conversation that the newest piece ends, from its own messages and those of the pieces before it."""
    # What there is at each state: the messages, the states on the way, and how many messages before them are lost.
    known: dict[str, tuple[list[dict[str, Any]], _States, int]] = {"": ([], (), 0)}
    for piece in pieces:
        before, way, lost = known.get(piece.after, ([], (), piece.begin))
        whole = [*before, *piece.messages]
        starts, made_by = read_kept(piece.turns)
        first = len(piece.system)
        if lost:  # the states within it cannot be told
            known[piece.state] = (whole, (), lost)
            continue
        states = _states(whole)
        for end in sorted({start - first for start in starts} | {len(whole)}):
            if len(before) < end <= len(whole):
                way = (*way, (states[end], piece.cell))
                known[states[end]] = (whole[:end], way, 0)
    messages = [*piece.system, *whole]
    if not lost:
        return Kept(messages, starts, made_by, way)
    gone = sum(start < lost + first for start in starts)
    return Kept(messages, [start - lost for start in starts[gone:]], made_by[gone:], lost=gone or 1)


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
    kept = [_Piece.of(data) for data in _kept_in(found) if data.get("session") == session]
    if not kept:
        raise Mistake(
            f"{found.name} keeps no conversation {session!r}; run its cells with --keep-history and save the notebook"
        )
    # The newest one last, whatever the order in which the cells stand.
    return _put_together(sorted(kept, key=lambda piece: piece.at))


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
        if _messages(data.get("messages")) is not None:
            yield data
