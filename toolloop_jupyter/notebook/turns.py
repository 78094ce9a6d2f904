"""Which cell made which turn of a session, so that running a cell again replaces its turn.

JupyterLab, Notebook 7 and VS Code send a cell's id with each execution (`cellId` in the request's metadata), and keep it
in the saved notebook. A conversation that is kept there has its cells' ids with it (hashed: VS Code's hold a path), so
that a cell of a resumed session finds its turn, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
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
    had: set[str] = field(default_factory=set)
    """The tools that its cells had: the permissions that it keeps may have rules for them."""

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

    def go_back(self, turn: int) -> Replaced:
        """Take back turn number `turn` and those after it, for the turn that takes their place."""
        later = [self._prompt(number) for number in range(turn + 1, len(self.turns()))]
        put_back, made_by, had = self.session.bookmark(), self.turns(), self.answers()
        self.session.rewind(turn)
        return Replaced(self, later, put_back, made_by, had, self.answers())

    def answers(self) -> int:
        """How many messages of the conversation are a model's."""
        return sum(message["role"] == "assistant" for message in self.session.messages())

    def _prompt(self, turn: int) -> str:
        starts, messages = self.session.starts, self.session.messages()
        end = starts[turn + 1] if turn + 1 < len(starts) else len(messages)
        asked = next((m["content"] for m in messages[starts[turn] : end] if m["role"] == "user"), "")
        text = asked if isinstance(asked, str) else "a question with pictures"
        return f"“{shorten(first_line(text, 200), 48)}”" if text.strip() else "one without a message"

    def kept(self) -> list[list[object]]:
        """[where it began, hashed cell id] of each turn, to be kept with the messages."""
        return [[start, turn.cell] for start, turn in zip(self.session.starts, self.turns(), strict=True)]


@dataclass
class Replaced:
    """Turns that a cell has taken back to run again. They come back when this run gets no answer."""

    named: NamedSession
    later: list[str]
    """The prompts of the turns behind the cell's own."""
    put_back: Callable[[], None]
    made_by: list[MadeBy]
    had: int
    """How many answers there were with these turns."""
    answers: int
    """How many there are without them."""
    are_back: bool = False

    @property
    def note(self) -> str:
        """What to tell the person when the cell begins."""
        text = "this cell ran before: its turn is replaced"
        if self.later:
            named = ", ".join(self.later[:8])
            named += f" and {len(self.later) - 8} more" if len(self.later) > 8 else ""
            count = len(self.later)
            turns = "the later turn is" if count == 1 else f"the {count} later turns are"
            text += f", and {turns} dropped: {named}"
        return text + "; --append adds instead"

    def settle(self) -> str | None:
        """When the run is over: put the turns back if it brought no answer, and say so; None when it did."""
        nothing_came = not self.named.session.busy and self.named.answers() == self.answers
        if nothing_came and self.had > self.answers:
            self.put_back()
            self.named.made_by, self.are_back = self.made_by, True
        if not self.are_back:
            return None
        count = len(self.later)
        later = (
            ""
            if not count
            else ", and so does the later one"
            if count == 1
            else f", and so do the {count} later ones"
        )
        return f"this cell ran before, and got no answer now: its turn stays as it was{later}"


def read_kept(turns: object) -> tuple[list[int], list[MadeBy]]:
    """(starts, cells) from what `kept` gave, as far as a file has it in good order; else nothing."""
    if not isinstance(turns, Sequence) or isinstance(turns, str):
        return [], []
    pairs = [turn for turn in turns if isinstance(turn, (list, tuple)) and len(turn) == 2]
    sound = len(pairs) == len(turns) and all(isinstance(p[0], int) and isinstance(p[1], str) for p in pairs)
    return ([p[0] for p in pairs], [MadeBy(p[1]) for p in pairs]) if sound else ([], [])
