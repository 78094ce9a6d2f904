"""Each cell keeps the conversation up to there; the newest one is gone on with, also of a notebook that kept it in pieces."""

from __future__ import annotations

import contextlib
import json
import random
from pathlib import Path

import pytest

from toolloop_jupyter.core.conversation.history import History
from toolloop_jupyter.core.events.errors import HistoryInvalid, Mistake
from toolloop_jupyter.notebook.magic import sessions as resuming
from toolloop_jupyter.notebook.magic.sessions import NamedSession, TurnOrigin, hash_id


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
        return self.cells[cell or f"nameless {self.clock}"]

    def idle(self, cell):
        """Run a cell that makes no turn."""
        self.clock += 1
        self.begin(cell)

    def turn(self, cell, text, append, instructions):
        before = None if append else self.session.turn_of(cell, str(self.clock))
        if before is not None:
            self.session.session.rewind(before)
        self.session.add(TurnOrigin(hash_id(cell), str(self.clock)))
        history = self.session.session.history
        history.begin_turn(instructions)
        history.add_user(text)
        history.add_assistant({"role": "assistant", "content": f"{text}! " * 20})

    def piece(self):
        return json.loads(json.dumps(resuming.bundle_conversation("s", self.session)))

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
        self.session = NamedSession(Session(kept), kept.cells)
        return kept


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Time that goes on by a second with each look."""
    now = iter(range(1, 1_000_000))
    monkeypatch.setattr(resuming.time, "time", lambda: next(now))


def prompts(kept):
    return [message["content"] for message in kept.messages if message["role"] == "user"]


def test_the_newest_cell_has_it_all(tmp_path):
    """The conversation of many cells comes back whole, with its turns and the cells that made them, and nothing but those."""
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
    """Cells run in any order, again, with --append, without an id, with other instructions, dry, with mistakes, after a restart."""
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
                assert kept.lost == 0
            if keep and chance.random() < 0.2:
                notebook.restart(tmp_path)


def test_a_cleared_cell_costs_nothing_but_what_only_it_had(tmp_path):
    """With the output of an earlier cell nothing is lost; without the newest, the one before it is gone on with."""
    notebook = Notebook()
    for number in range(4):
        notebook.run(f"c{number}", f"q{number}", instructions="Be brief.")
    notebook.cells["c1"] = []
    kept = notebook.found(tmp_path)
    assert (kept.lost, prompts(kept)) == (0, ["q0", "q1", "q2", "q3"])
    notebook.cells["c3"] = []
    kept = notebook.restart(tmp_path)
    assert (kept.lost, prompts(kept)) == (0, ["q0", "q1", "q2"])
    notebook.run("c4", "q4")
    assert prompts(notebook.found(tmp_path)) == ["q0", "q1", "q2", "q4"]


PIECES = Path(__file__).with_name("kept_in_pieces.ipynb")
"""A notebook whose cells kept a piece each (the code of 643adb0): a, b, c, d of "diary"; b ran again, so c is left behind."""


def without(folder, *cells):
    """The notebook in pieces, without the outputs of these cells."""
    data = json.loads(PIECES.read_text("utf-8"))
    for cell in data["cells"]:
        cell["outputs"] = [] if cell["id"] in cells else cell["outputs"]
    (folder / "p.ipynb").write_text(json.dumps(data), "utf-8")
    return str(folder / "p.ipynb")


def test_a_notebook_in_pieces_is_still_read(tmp_path):
    """The pieces are put together, those that a re-run left behind are not; the turns, the cells and other sessions are right."""
    kept = resuming.find("diary", str(PIECES), {})
    assert [message["role"] for message in kept.messages] == [
        "system", "user", "assistant", "user", "assistant", "tool", "assistant", "user", "assistant"
    ]  # fmt: skip
    assert prompts(kept) == ["One.", "Dos.", "Four."]
    assert (kept.starts, kept.lost) == ([1, 3, 7], 0)
    assert [one.cell for one in kept.cells] == [hash_id(cell) for cell in "abd"]
    assert History(kept.messages, kept.starts).copy() == kept.messages
    assert prompts(resuming.find("other", str(PIECES), {})) == ["Another conversation."]
    without_d = resuming.find("diary", without(tmp_path, "d"), {})
    assert (prompts(without_d), without_d.starts) == (["One.", "Dos."], [1, 3])


@pytest.mark.parametrize(
    ("cleared", "lost", "left", "starts"),
    [("a", 1, ["Dos.", "Four."], [1, 5]), ("b", 2, ["Four."], [1]), ("ab", 2, ["Four."], [1])],
)
def test_a_piece_that_was_cleared_is_said(tmp_path, cleared, lost, left, starts):
    """Of a notebook in pieces, what was cleared is lost with the turns before it, and how many those are is told."""
    kept = resuming.find("diary", without(tmp_path, *cleared), {})
    assert (kept.lost, prompts(kept), kept.starts) == (lost, left, starts)
    assert kept.messages[0] == {"role": "system", "content": "Be brief."}
    assert [one.cell for one in kept.cells] == [hash_id(cell) for cell in "abd"[lost:]]


def test_a_notebook_in_pieces_goes_on(tmp_path):
    """A cell that goes on with such a conversation keeps all of it, and counts from then on."""
    notebook = Notebook()
    kept = resuming.find("diary", str(PIECES), {})
    notebook.session = NamedSession(Session(kept), kept.cells)
    notebook.run("e", "Five.")
    (piece,) = notebook.cells["e"]
    piece[resuming.MIME].update(session="diary", at=kept_at() + 1)
    data = json.loads(PIECES.read_text("utf-8"))
    data["cells"].insert(0, {"outputs": [{"data": piece}]})
    (tmp_path / "n.ipynb").write_text(json.dumps(data), "utf-8")
    again = resuming.find("diary", str(tmp_path / "n.ipynb"), {})
    assert prompts(again) == ["One.", "Dos.", "Four.", "Five."]
    assert [one.cell for one in again.cells] == [hash_id(cell) for cell in "abde"]


def kept_at():
    """When the newest piece of the notebook in pieces was kept."""
    cells = json.loads(PIECES.read_text("utf-8"))["cells"]
    outputs = [output["data"] for cell in cells for output in cell["outputs"]]
    return max(data[resuming.MIME]["at"] for data in outputs if resuming.MIME in data)


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
