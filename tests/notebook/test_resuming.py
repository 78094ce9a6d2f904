"""The conversation in pieces: each cell keeps its own turn, and a saved notebook has the whole of it all the same."""

from __future__ import annotations

import contextlib
import json
import random

import pytest

from toolloop_jupyter.core.errors import HistoryInvalid
from toolloop_jupyter.core.history import History
from toolloop_jupyter.notebook import resuming
from toolloop_jupyter.notebook.options import Mistake
from toolloop_jupyter.notebook.turns import MadeBy, NamedSession, hashed


class Session:
    """As much of a session as a notebook's book-keeping needs."""

    def __init__(self, kept=None):
        self.history = History(kept.messages, kept.starts) if kept else History()
        self.rewind = self.history.rewind

    @property
    def starts(self):
        return self.history.starts

    def messages(self):
        return self.history.copy()


class Notebook:
    """A saved notebook: what each cell's output keeps. `run` is a cell of the session "s"."""

    def __init__(self):
        self.session = NamedSession(Session())
        self.cells = {}
        self.clock = 0

    def run(self, cell, text, *, append=False, keep=True, instructions=None, loops=1):
        """Run a cell; with `loops`, several turns of its in one execution, whose outputs stand below each other."""
        self.clock += 1
        kept = self.begin(cell)
        for number in range(loops):
            self.turn(cell, f"{text} {number}".removesuffix(" 0"), append, instructions)
            kept += [self.piece()] if keep else []

    def begin(self, cell):
        """A cell begins, and its outputs are gone; all there is to it for a dry run, a mistake, and Python in its place."""
        self.cells[cell or f"nameless {self.clock}"] = []
        self.session.cleared(cell, str(self.clock))
        return self.cells[cell or f"nameless {self.clock}"]

    def idle(self, cell):
        """Run a cell that makes no turn."""
        self.clock += 1
        self.begin(cell)

    def turn(self, cell, text, append, instructions):
        before = None if append else self.session.turn_of(cell, str(self.clock))
        if before is not None:
            self.session.session.rewind(before)
        self.session.add(MadeBy(hashed(cell), str(self.clock)))
        history = self.session.session.history
        history.begin_turn(instructions)
        history.add_user(text)
        history.add_assistant({"role": "assistant", "content": f"{text}! " * 20})

    def piece(self):
        return json.loads(json.dumps(resuming.bundle("s", self.session, self.session.made_by[-1])))

    def file(self, folder):
        data = {"cells": [{"outputs": [{"data": data} for data in kept]} for kept in self.cells.values()]}
        path = folder / "n.ipynb"
        path.write_text(json.dumps(data))
        return str(path)

    def found(self, folder):
        return resuming.find("s", self.file(folder), {})

    def restart(self, folder):
        """A new kernel that resumes from the notebook."""
        kept = self.found(folder)
        self.session = NamedSession(Session(kept), kept.made_by, states=list(kept.states))
        return kept


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Time that goes on by a second with each look."""
    now = iter(range(1, 1_000_000))
    monkeypatch.setattr(resuming.time, "time", lambda: next(now))


def prompts(kept):
    return [message["content"] for message in kept.messages if message["role"] == "user"]


def test_a_session_grows_by_its_turns(tmp_path):
    """A hundred cells hold the conversation once, not once for each cell; all of it comes back."""
    notebook = Notebook()
    for number in range(100):
        notebook.run(f"c{number}", f"question {number}", instructions="Be brief.")
    kept = notebook.found(tmp_path)
    assert kept.messages == notebook.session.session.messages()
    assert kept.starts == notebook.session.session.starts
    assert [one.cell for one in kept.made_by] == [hashed(f"c{number}") for number in range(100)]
    sizes = [len(json.dumps(data[0][resuming.MIME]["messages"])) for data in notebook.cells.values()]
    assert max(sizes) < 2 * min(sizes)


def test_whatever_is_run_again_the_notebook_has_it_all(tmp_path):
    """Cells run in any order, again, with --append, without an id, with other instructions, dry, with mistakes, after a restart."""
    for seed in range(150):
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
                assert kept.lost == 0
            if keep and chance.random() < 0.2:
                notebook.restart(tmp_path)


def test_a_cleared_cell_costs_its_turns_and_is_said(tmp_path):
    """What was cleared is lost with the turns before it; the rest goes on, and the next cell keeps all there is."""
    notebook = Notebook()
    for number in range(5):
        notebook.run(f"c{number}", f"q{number}", instructions="Be brief.")
    notebook.cells["c1"] = []
    kept = notebook.restart(tmp_path)
    assert kept.lost == 2
    assert prompts(kept) == ["q2", "q3", "q4"]
    assert kept.messages[0] == {"role": "system", "content": "Be brief."}
    assert [one.cell for one in kept.made_by] == [hashed(f"c{number}") for number in (2, 3, 4)]
    notebook.run("c3", "q3 again")
    again = notebook.found(tmp_path)
    assert (again.lost, prompts(again)) == (0, ["q2", "q3 again"])


def test_a_whole_conversation_of_before_is_still_read(tmp_path):
    """A piece without a link is the whole conversation."""
    notebook = Notebook()
    notebook.run("a", "one")
    kept = notebook.cells["a"][0][resuming.MIME]
    for name in ("after", "from", "state", "system"):
        del kept[name]
    assert prompts(notebook.found(tmp_path)) == ["one"]


@pytest.mark.parametrize(
    "change",
    [
        {"after": 5, "from": -1},
        {"after": "nowhere", "from": "x"},
        {"at": 1e400},
        {"at": True, "turns": [[True, "x"]]},
        {"turns": [[10**9, "x"]], "system": 5},
        {"turns": [[-5, "x"]], "after": "nowhere", "from": 10**9},
        {"state": [], "after": []},
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
    """Odd kept data gives a conversation that a provider takes, or an error of ours: no other exception."""
    notebook = Notebook()
    notebook.run("a", "one")
    notebook.run("b", "two")
    notebook.cells["b"][0][resuming.MIME].update(change)
    with contextlib.suppress(Mistake, HistoryInvalid):
        kept = notebook.found(tmp_path)
        History(kept.messages, kept.starts)
