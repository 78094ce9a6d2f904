"""Each cell keeps the conversation up to this cell. A later kernel continues with the newest one."""

from __future__ import annotations

import contextlib
import json
import random
from pathlib import Path

import pytest

from toolloop_jupyter.core.conversation.history import History
from toolloop_jupyter.core.events.errors import HistoryInvalid, Mistake
from toolloop_jupyter.notebook.magic import sessions
from toolloop_jupyter.notebook.magic.sessions import NamedSession, hash_id


class Session:
    """The parts of a session that the notebook's list of turns needs."""

    def __init__(self, kept=None):
        self.history = History(kept.messages, kept.starts) if kept else History()
        self.rewind = self.history.rewind

    @property
    def starts(self):
        return self.history.starts

    def messages(self):
        return self.history.copy()


class Notebook:
    """A saved notebook: for each cell, what its output keeps. `run` runs a cell of the session "s"."""

    def __init__(self):
        self.session = NamedSession(Session())
        self.cells = {}
        self.clock = 0

    def run(self, cell, text, *, append=False, keep=True, instructions=None, loops=1):
        """Run a cell. With `loops`, the cell makes several turns in one execution, each with an output."""
        self.clock += 1
        kept = self.begin(cell)
        for number in range(loops):
            self.turn(cell, f"{text} {number}".removesuffix(" 0"), append, instructions)
            kept += [self.piece()] if keep else []

    def begin(self, cell):
        """Begin a cell, which removes its outputs. A dry run, a mistake and Python code do nothing else."""
        self.cells[cell or f"nameless {self.clock}"] = []
        return self.cells[cell or f"nameless {self.clock}"]

    def idle(self, cell):
        """Run a cell that makes no turn."""
        self.clock += 1
        self.begin(cell)

    def turn(self, cell, text, append, instructions):
        before = None if append else self.session.turn_of(cell, str(self.clock))
        if before is not None:
            self.session.session.rewind(before)
        self.session.add(cell, str(self.clock), {})
        history = self.session.session.history
        history.begin_turn(instructions)
        history.add_user(text)
        history.add_assistant({"role": "assistant", "content": f"{text}! " * 20})

    def piece(self):
        return json.loads(json.dumps(sessions.bundle_conversation("s", self.session)))

    def file(self, folder):
        data = {"cells": [{"outputs": [{"data": data} for data in kept]} for kept in self.cells.values()]}
        path = folder / "n.ipynb"
        path.write_text(json.dumps(data))
        return str(path)

    def found(self, folder):
        return sessions.find_conversation("s", self.file(folder), {})

    def restart(self, folder):
        """Start a new kernel, which resumes from the notebook."""
        kept = self.found(folder)
        self.session = NamedSession(Session(kept), kept.cells)
        return kept


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """A clock that goes on by one second each time it is read."""
    now = iter(range(1, 1_000_000))
    monkeypatch.setattr(sessions.time, "time", lambda: next(now))


def prompts(kept):
    return [message["content"] for message in kept.messages if message["role"] == "user"]


def test_the_newest_cell_has_it_all(tmp_path):
    """A conversation of many cells comes back whole: its messages, its turns, and the cells that made the turns."""
    notebook = Notebook()
    for number in range(20):
        notebook.run(f"c{number}", f"question {number}", instructions="Be brief.")
    kept = notebook.found(tmp_path)
    assert kept.messages == notebook.session.session.messages()
    assert kept.starts == notebook.session.session.starts
    assert [one.cell for one in kept.cells] == [hash_id(f"c{number}") for number in range(20)]
    notebook.run("c3", "another question")
    assert prompts(notebook.found(tmp_path)) == ["question 0", "question 1", "question 2", "another question"]


def test_whatever_is_run_again_the_notebook_has_it_all(tmp_path):
    """Cells run in any order, again, with --append, without an id, with other instructions, as dry runs, with mistakes, and
    after a restart: nothing is lost.
    """
    for seed in range(50):
        chance = random.Random(seed)
        notebook = Notebook()
        for step in range(12):
            keep = step == 11 or chance.random() < 0.8
            if chance.random() < 0.3:
                notebook.idle(chance.choice(["a", "b", "c", "d", ""]))
            notebook.run(
                chance.choice(["a", "b", "c", "d", ""]),
                f"{seed}.{step}",
                append=chance.random() < 0.4,
                keep=keep,
                instructions=chance.choice([None, None, None, "short", "long"]),
                loops=chance.choice([1, 1, 1, 3]),
            )
            if keep:
                kept = notebook.found(tmp_path)
                assert kept.messages == notebook.session.session.messages(), seed
                assert kept.starts == notebook.session.session.starts, seed
            if keep and chance.random() < 0.2:
                notebook.restart(tmp_path)


def test_a_cleared_cell_costs_nothing_but_what_only_it_had(tmp_path):
    """If the output of an earlier cell is removed, nothing is lost. If the newest output is removed, the conversation
    continues from the output before it.
    """
    notebook = Notebook()
    for number in range(4):
        notebook.run(f"c{number}", f"q{number}", instructions="Be brief.")
    notebook.cells["c1"] = []
    kept = notebook.found(tmp_path)
    assert prompts(kept) == ["q0", "q1", "q2", "q3"]
    notebook.cells["c3"] = []
    kept = notebook.restart(tmp_path)
    assert prompts(kept) == ["q0", "q1", "q2"]
    notebook.run("c4", "q4")
    assert prompts(notebook.found(tmp_path)) == ["q0", "q1", "q2", "q4"]


PIECES = Path(__file__).with_name("kept_in_pieces.ipynb")
"""A notebook that was saved by commit 643adb0. Each of its cells keeps a piece of the conversation. "diary" has the cells a,
b and d; c was before b ran again."""


def test_a_notebook_that_keeps_pieces_can_be_resumed():
    """The pieces of a conversation are joined. The piece of a turn that was replaced is not used."""
    kept = sessions.find_conversation("diary", str(PIECES), {})
    assert prompts(kept) == ["One.", "Dos.", "Four."]
    assert kept.messages[0] == {"role": "system", "content": "Be brief."}
    assert kept.starts == [1, 3, 7]
    assert [one.cell for one in kept.cells] == [hash_id(cell) for cell in "abd"]
    assert History(kept.messages, kept.starts).copy() == kept.messages
    assert prompts(sessions.find_conversation("other", str(PIECES), {})) == ["Another conversation."]


@pytest.mark.parametrize("change", [{"state": "x"}, {"after": 5}, {"after": "18ac3e7343f01689"}])
def test_a_missing_piece_is_an_error(tmp_path, change):
    """If the piece of an earlier cell was removed or changed, the conversation is not resumed without it."""
    data = json.loads(PIECES.read_text("utf-8"))
    data["cells"][1]["outputs"][-1]["data"][sessions.MIME].update(change)
    (tmp_path / "n.ipynb").write_text(json.dumps(data), "utf-8")
    with pytest.raises(Mistake, match="an earlier part of this conversation is missing"):
        sessions.find_conversation("diary", str(tmp_path / "n.ipynb"), {})


@pytest.mark.parametrize(
    "change",
    [
        {"at": 1e400},
        {"at": True, "turns": [[True, "x"]]},
        {"turns": [[10**9, "x"]]},
        {"turns": [[-5, "x"]]},
        {"messages": [{"role": "assistant", "tool_calls": 5}]},
        {
            "messages": [
                {"role": "user", "content": "x"},
                {"role": "assistant", "tool_calls": [{"id": "a", "function": 5}]},
            ]
        },
        {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": {"a": 1}}]},
    ],
)
def test_kept_data_that_somebody_wrote_is_taken_or_refused_in_words(tmp_path, change):
    """Strange kept data gives a conversation that a provider accepts, or an error of ours. It causes no other exception."""
    notebook = Notebook()
    notebook.run("a", "one")
    notebook.run("b", "two")
    notebook.cells["b"][0][sessions.MIME].update(change)
    with contextlib.suppress(Mistake, HistoryInvalid):
        kept = notebook.found(tmp_path)
        History(kept.messages, kept.starts)
