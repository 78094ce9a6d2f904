"""Which cell made which turn of a session, so that running a cell again replaces its turn.

JupyterLab, Notebook 7 and VS Code send a cell's id with each execution (`cellId` in the request's metadata), and keep it
in the saved notebook. A conversation that is kept there has its cells' ids with it (hashed: VS Code's hold a path), so
that a cell of a resumed session finds its turn, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .inert import first_line, shorten

KEPT = ("model", "tools", "permissions", "instructions", "sandbox", "api_base", "api_key")
"""The options that hold for a whole session: a cell that goes on with it has the same tools, and asks as it did."""


@dataclass(frozen=True)
class MadeBy:
    """The cell behind one turn."""

    cell: str = ""
    """Its hashed id; "" where the front-end told none."""
    execution: str = ""
    """Which execution of it: turns of one loop in one cell do not replace each other."""
    said: Mapping[str, Any] = field(default_factory=dict)
    """What the session's cells have said of KEPT, this one included; later cells need not say it again."""


def hashed(cell_id: str | None) -> str:
    return hashlib.sha256(cell_id.encode()).hexdigest()[:16] if cell_id else ""


@dataclass
class NamedSession:
    """A conversation that cells go on with, and which cell made which turn of it."""

    session: Any
    made_by: list[MadeBy] = field(default_factory=list)
    told: bool = False
    """Whether the person knows that running a cell again adds a turn here."""

    def turns(self) -> list[MadeBy]:
        """One for each turn of the conversation that can be gone back to."""
        count = len(self.session.starts)
        return [*self.made_by[:count], *[MadeBy()] * (count - len(self.made_by))]

    def turn_of(self, cell_id: str | None, execution: str) -> int | None:
        """The turn that this cell made when it ran before, or None."""
        cell = hashed(cell_id)
        for number, turn in enumerate(self.turns()):
            if cell and turn.cell == cell and not (execution and turn.execution == execution):
                return number
        return None

    def said_before(self, turn: int | None) -> Mapping[str, Any]:
        """What holds for turn number `turn` (None: for a new one): what the turns before it have said."""
        before = self.turns() if turn is None else self.turns()[:turn]
        return before[-1].said if before else {}

    def add(self, made_by: MadeBy) -> None:
        """Note who makes the turn that begins now."""
        self.made_by = [*self.turns(), made_by]

    def go_back(self, turn: int) -> str:
        """Take back turn number `turn` and those after it; returns what to tell the person."""
        later = [self._prompt(number) for number in range(turn + 1, len(self.turns()))]
        self.session.rewind(turn)
        text = "this cell ran before: its turn is replaced"
        if later:
            named = ", ".join(later[:8]) + (f" and {len(later) - 8} more" if len(later) > 8 else "")
            count = "the later turn is" if len(later) == 1 else f"the {len(later)} later turns are"
            text += f", and {count} dropped: {named}"
        return text + "; --append adds instead"

    def _prompt(self, turn: int) -> str:
        starts, messages = self.session.starts, self.session.messages()
        end = starts[turn + 1] if turn + 1 < len(starts) else len(messages)
        asked = next((m["content"] for m in messages[starts[turn] : end] if m["role"] == "user"), "")
        text = asked if isinstance(asked, str) else "a question with pictures"
        return f"“{shorten(first_line(text, 200), 48)}”" if text.strip() else "one without a message"

    def kept(self) -> list[list[object]]:
        """[where it began, hashed cell id] of each turn, to be kept with the messages."""
        return [[start, turn.cell] for start, turn in zip(self.session.starts, self.turns(), strict=True)]


def read_kept(turns: object) -> tuple[list[int], list[MadeBy]]:
    """(starts, cells) from what `kept` gave, as far as a file has it in good order; else nothing."""
    if not isinstance(turns, Sequence) or isinstance(turns, str):
        return [], []
    pairs = [turn for turn in turns if isinstance(turn, (list, tuple)) and len(turn) == 2]
    sound = len(pairs) == len(turns) and all(isinstance(p[0], int) and isinstance(p[1], str) for p in pairs)
    return ([p[0] for p in pairs], [MadeBy(p[1]) for p in pairs]) if sound else ([], [])
