"""The sessions of cells: which cell has made each turn, and how a conversation is kept for a later kernel.

If a cell runs again, its turn is replaced. JupyterLab, Notebook 7 and VS Code send the id of a cell with each execution
(`cellId` in the metadata of the request), and save the id in the notebook. A kept conversation also has the ids, so a cell
finds its turn in a session that was resumed. The ids are kept as hashes, because VS Code's ids contain a path.

A conversation is kept as data in the notebook's outputs, under a MIME type of our own, which no front-end shows (seen in
JupyterLab 4.6). The last output of each cell has the whole conversation up to that cell. We read only the newest one. So a
person may delete older outputs. But the file has ten copies after ten turns.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core import conversation
from ...core.events import Mistake
from ...core.text import are_times_kept, hide_in, list_some, shorten
from ..html import take_first_line
from .options import OPTIONS, Options

if TYPE_CHECKING:
    from ...core.session import AsyncSession


@dataclass(frozen=True)
class TurnOrigin:
    """The cell that has made a turn."""

    cell: str = ""
    """The cell's hashed id; "" if the front-end sends none."""
    execution: str = ""
    """The id of the cell's execution. Turns of the same execution (a loop in the cell) do not replace each other."""
    lasting: Options = field(default_factory=dict)
    """The lasting options (with the `Option.scope` "session") of this cell and the session's earlier cells. They hold for
    later cells."""


def hash_id(cell_id: str | None) -> str:
    return hashlib.sha256(cell_id.encode()).hexdigest()[:16] if cell_id else ""


@dataclass
class NamedSession:
    """A conversation that cells continue. It knows which cell has made each turn."""

    session: AsyncSession
    cells: list[TurnOrigin] = field(default_factory=list)
    had: set[str] = field(default_factory=set)
    """The names of earlier cells' tools. The permissions last for the whole session, so they may have rules for these tools."""
    _has_told: bool = False
    """True if `tell_that_turns_add_up` has returned its note."""

    def tell_that_turns_add_up(self, name: str) -> list[str]:
        """Return [a note] once, when turn 2 or a later turn begins: without cell ids, a cell that runs again adds a turn.
        Otherwise return [].
        """
        number = len(self.turns()) + 1
        if number == 1 or self._has_told:
            return []
        self._has_told = True
        again = f"a cell that runs again adds a turn (this is turn {number} of {name!r})"
        return [f"this front-end sends no cell ids, so {again}; to forget all turns: %toolloop reset {name}"]

    def turns(self) -> list[TurnOrigin]:
        """Return the origin of each turn that `rewind` can go back to."""
        count = len(self.session.starts)
        return [*self.cells[:count], *[TurnOrigin()] * (count - len(self.cells))]

    def turn_of(self, cell_id: str | None, execution: str) -> int | None:
        """Return the number (from 0) of the turn that this cell has made in another execution; None if there is no such turn."""
        cell = hash_id(cell_id)
        for number, turn in enumerate(self.turns()):
            if cell and turn.cell == cell and not (execution and turn.execution == execution):
                return number
        return None

    def find_lasting(self, turn: int | None) -> Options:
        """Return the lasting options that the turns before turn number `turn` have set. If `turn` is None, use all turns."""
        before = self.turns() if turn is None else self.turns()[:turn]
        return before[-1].lasting if before else {}

    def add(self, cell_id: str | None, execution: str, options: Options) -> None:
        """Store the origin of the turn that begins now. `options`: the options of this cell and of the session's earlier cells."""
        lasting = {o.name: options[o.name] for o in OPTIONS if o.scope == "session" and o.name in options}
        self.cells = [*self.turns(), TurnOrigin(hash_id(cell_id), execution, lasting)]

    def go_back(self, turn: int) -> ReplacedTurns:
        """Remove turn number `turn` and all later turns, and return them. The next turn replaces them."""
        later = [self._show_prompt(number) for number in range(turn + 1, len(self.turns()))]
        restore, cells, before = self.session.bookmark(), self.turns(), self.count_answers()

        def put_back() -> None:
            restore()
            self.cells = cells

        self.session.rewind(turn)
        answers = self.count_answers()
        return ReplacedTurns(self, later, put_back if before > answers else None, answers)

    def count_answers(self) -> int:
        """Return the number of messages in the conversation that came from a model."""
        return sum(message["role"] == "assistant" for message in self.session.messages())

    def _show_prompt(self, turn: int) -> str:
        starts, messages = self.session.starts, self.session.messages()
        end = starts[turn + 1] if turn + 1 < len(starts) else len(messages)
        asked = next((m["content"] for m in messages[starts[turn] : end] if m["role"] == "user"), "")
        text = conversation.join_text(asked) or ("a prompt without words" if asked else "")
        return f"“{shorten(take_first_line(text, 200), 48)}”" if text.strip() else "one without a message"

    def cells_of_turns(self) -> list[list[object]]:
        """Return a list that is kept with the messages: for each turn, [index of its first message, hashed cell id]."""
        return [[start, turn.cell] for start, turn in zip(self.session.starts, self.turns(), strict=True)]


@dataclass
class ReplacedTurns:
    """The turns that a cell replaces when it runs again: its own and all later ones. They are put back if no new answer comes."""

    named: NamedSession
    later: list[str]
    """The prompts of the removed turns that came after this cell's turn."""
    put_back: Callable[[], None] | None
    """Puts the removed turns back; None if they had no answer."""
    answers: int
    """How many messages of a model the session has without the removed turns."""
    are_back: bool = False

    @property
    def note(self) -> str:
        """The note that is shown to the person when the cell begins."""
        dropped = self._say_of_later(
            ", and the later turn is dropped: ", ", and the {} later turns are dropped: "
        )
        return f"this cell ran before: its turn is replaced{dropped}{list_some(self.later, 8)}; write --append to add a turn instead"

    def _say_of_later(self, one: str, many: str) -> str:
        return "" if not self.later else one if len(self.later) == 1 else many.format(len(self.later))

    def settle(self) -> str | None:
        """After the run: if it got no answer, put the turns back, and return a note about this. Else return None."""
        has_answer = self.named.session.busy or self.named.count_answers() > self.answers
        if self.put_back is not None and not has_answer:
            self.put_back()
            self.are_back = True
        if not self.are_back:
            return None
        later = self._say_of_later(", and so does the later one", ", and so do the {} later ones")
        return f"this cell ran before, and got no answer now: its turn stays as it was{later}"


def read_turns(turns: object) -> tuple[list[int], list[TurnOrigin]]:
    """Return (index of each turn's first message, origins) from a list of `cells_of_turns`; ([], []) if it is not valid."""
    pairs = turns if isinstance(turns, list) else []
    if not all(isinstance(p, list) and [*map(type, p)] == [int, str] for p in pairs):
        return [], []
    return [start for start, _ in pairs], [TurnOrigin(cell) for _, cell in pairs]


# --- conversations that outlive their kernel -------------------------------------------------------------------

MIME = "application/vnd.toolloop.conversation+json"


@dataclass(frozen=True)
class SavedConversation:
    """A saved conversation. For each turn, `starts` has the index of its first message, and `cells` its origin."""

    messages: list[dict[str, Any]]
    starts: list[int]
    cells: list[TurnOrigin]


def bundle_conversation(session: str | None, named: NamedSession) -> dict[str, object]:
    """Return the conversation as MIME data for the last output of a cell."""
    return {
        MIME: {
            "format": conversation.FORMAT,
            "session": session or "",
            **({"at": round(time.time(), 3)} if are_times_kept() else {}),
            "turns": named.cells_of_turns(),
            "messages": hide_in([_leave_out_files(message) for message in named.session.messages()]),
        }
    }


def _leave_out_files(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a person's message without its pictures and files: each later cell would keep another copy of each file."""
    if message["role"] != "user":
        return message
    return {**message, "content": conversation.leave_out_parts(message["content"], _NOT_KEPT)}


_NOT_KEPT = "[An earlier {}, not kept in the notebook.]"


def find_conversation(session: str, path: str | None, names: Mapping[str, object]) -> SavedConversation:
    """Return the newest conversation of `session` from a file of `%toolloop save`, or from a notebook with `--keep-history`.

    Without `path`, this kernel's notebook is read. Raises Mistake if there is no such conversation, HistoryInvalid if no
    provider would accept its messages.
    """
    file = Path(path) if path else _find_this_notebook(names)
    if file is None:
        raise Mistake(
            f"which file? write: %toolloop resume {session} NOTEBOOK.ipynb (or a file that %toolloop save has written)"
        )
    if not file.is_file():
        raise Mistake(f"there is no file {str(file)!r}")
    if file.suffix != ".ipynb":
        messages = conversation.load_messages(file)
        data = json.loads(file.read_text(encoding="utf-8-sig"))
        turns = data.get("turns") if isinstance(data, dict) else None
        return SavedConversation(messages, *read_turns(turns))
    kept = [data for data in _read_kept(file) if data.get("session") == session]
    if not kept:
        raise Mistake(
            f"{file.name} keeps no conversation {session!r}; run its cells with --keep-history, then save the notebook"
        )
    newest = max(reversed(kept), key=_read_time)  # if several have the same time: the last of them
    messages = _join_pieces(newest, kept) if "after" in newest else newest["messages"]
    return SavedConversation(messages, *read_turns(newest.get("turns")))


def _join_pieces(newest: Mapping[str, Any], pieces: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages of a conversation that ends with the piece `newest`.

    Before the first release, a cell kept only its own messages, with digests of the conversation before them ("after") and
    with them ("state"). Raises Mistake if a piece is missing.
    """
    by_state = {piece["state"]: piece for piece in pieces if isinstance(piece.get("state"), str)}
    messages, after = list(newest["messages"]), newest["after"]
    while after != "":
        # A piece is used once, so that pieces that follow each other in a circle end, too.
        piece = by_state.pop(after, None) if isinstance(after, str) else None
        if piece is None:
            raise Mistake(
                "an earlier part of this conversation is missing in the notebook; run its cells again"
            )
        messages, after = [*piece["messages"], *messages], piece.get("after", "")
    system = newest.get("system")
    return [*system, *messages] if isinstance(system, list) else messages


def _read_time(data: Mapping[str, object]) -> float:
    at = data.get("at")
    return at if isinstance(at, (int, float)) else 0.0


def _find_this_notebook(names: Mapping[str, object]) -> Path | None:
    """Return the path of this kernel's notebook; None if it is not known.

    jupyter_server 2 sets the environment variable JPY_SESSION_NAME, VS Code the notebook's variable __vsc_ipynb_file__.
    """
    given = [str(names.get("__vsc_ipynb_file__") or ""), os.environ.get("JPY_SESSION_NAME", "")]
    paths = [Path(path) for path in given if path.endswith(".ipynb")]
    return next((path for one in paths for path in (one, Path(one.name)) if path.is_file()), None)


def _read_kept(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the conversations that are kept in the outputs of a notebook."""
    try:
        cells = json.loads(path.read_text(encoding="utf-8-sig"))["cells"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Mistake(f"{path.name} is not a valid notebook; save it again, or name another file") from None
    outputs = [o for cell in cells if isinstance(cell, dict) for o in cell.get("outputs") or ()]
    for output in outputs:
        bundled = output.get("data") if isinstance(output, dict) else None
        data = bundled.get(MIME) if isinstance(bundled, dict) else None
        messages = data.get("messages") if isinstance(data, dict) else None
        if data and isinstance(messages, list) and all(isinstance(message, dict) for message in messages):
            yield data
