"""Recordings and scripts in a kernel: all cells that name one share it. If a cell runs again, it goes back to its place."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from support.asking import replace_config
from toolloop_jupyter import Harness, aagent_session
from toolloop_jupyter.notebook.magic.cell import CellTape, TapeNotes, Tapes
from toolloop_jupyter.notebook.transcript.blocks import draw_head
from toolloop_jupyter.teaching.recording import Recorder, Replay
from toolloop_jupyter.teaching.scripted import ScriptedModel
from toolloop_jupyter.teaching.tape import RecordingError


def record(path, *prompts):
    recorder = Recorder(path)
    for prompt in prompts:
        recorder.record({"messages": [{"role": "user", "content": prompt}]}, [(0.0, {"content": "ok"})], {})


class Played:
    """An object in place of a script. Only its position matters here."""

    position = 0

    def continue_at(self, position):
        self.position = position


def test_a_cell_that_runs_again_goes_back_to_where_it_began():
    """The first cell plays two turns, the second cell plays one more. If they run again, in any order, each plays its own
    turns.
    """
    tapes, model = Tapes(), Played()
    for cell, turns in (("a", 2), ("b", 1)):
        tapes.go_back(model, cell, f"first of {cell}")
        model.position += turns
    assert model.position == 3
    tapes.go_back(model, "a", "second of a")
    assert model.position == 0
    model.position += 1
    tapes.go_back(model, "a", "second of a")
    assert model.position == 1, "a second run in one execution of the cell goes on"
    tapes.go_back(model, "b", "second of b")
    assert model.position == 2


def test_a_model_that_was_made_again_starts_at_its_beginning():
    """If a model is made again, it starts with its first turn, whatever cells have played of the old model with this name."""
    tapes = Tapes()
    old, new = ScriptedModel("one"), ScriptedModel("one")
    old.requests = [None]
    tapes.go_back(old, "second cell", "1")
    tapes.go_back(new, "second cell", "2")
    assert (old.position, new.position) == (1, 0)


def test_without_a_cell_id_it_just_goes_on():
    """If the front-end sends no cell id, or if there is no model with a position, nothing goes back."""
    tapes, model = Tapes(), Played()
    model.position = 5
    tapes.go_back(model, None, "1")
    tapes.go_back(None, "a", "1")
    assert model.position == 5


def test_cells_share_a_recording_until_it_is_written_again(tmp_path):
    """There is one Replay for a file, whatever path names it. After the file was recorded again, it is read again."""
    path = tmp_path / "lesson.jsonl"
    record(path, "one")
    tapes = Tapes()
    first = tapes.replay(str(path), loose=False)
    assert tapes.replay(os.path.relpath(path), loose=True) is first
    assert first.loose
    record(path, "one", "two")
    again = tapes.replay(str(path), loose=False)
    assert again is not first
    assert len(again.calls) == 2


def test_recording_every_run_and_one_cell(tmp_path):
    """`--record` wins over `%toolloop record on`. Without both, nothing is recorded."""
    tapes = Tapes()
    assert tapes.recorder(None) is None
    tapes.recording_to = tmp_path / "all.jsonl"
    assert tapes.recorder(None).path == tmp_path / "all.jsonl"
    assert tapes.recorder(str(tmp_path / "one.jsonl")).path == tmp_path / "one.jsonl"
    assert tapes.recorder(None) is tapes.recorder(str(tmp_path / "all.jsonl"))
    with pytest.raises(RecordingError, match="there is no folder"):
        tapes.recorder(str(tmp_path / "no" / "one.jsonl"))


def test_the_head_says_what_is_recorded_and_replayed(tmp_path):
    """The line above a run names the file to which it is recorded, and the file that answers. The line above other runs names
    none.
    """
    path = tmp_path / "lesson.jsonl"
    record(path, "one")
    recorder = Recorder(tmp_path / "again.jsonl")
    assert CellTape("m", ScriptedModel("one"), None).source == ""
    assert CellTape("toolloop/demo", None, None).source == "a demonstration, no language model"
    assert CellTape("m", None, recorder).source == "recording to again.jsonl"
    assert (
        CellTape("m", Replay(path), recorder).source == "replayed from lesson.jsonl, recording to again.jsonl"
    )
    assert (
        draw_head("m", (), tape=CellTape("m", Replay(path), None).source).text
        == "m · replayed from lesson.jsonl"
    )


async def test_the_head_of_a_replay_has_this_calls_model(tmp_path):
    """A recording has calls of two models: the line above a cell names the model of its own call, even if cells run in
    another order.
    """
    path = tmp_path / "lesson.jsonl"
    recorder = Recorder(path)
    for model in ("first", "second"):
        message = {"role": "user", "content": model}
        recorder.record({"model": model, "messages": [message]}, [(0.0, {"content": "ok"})], {})
    replay, shown = Replay(path, speed=0), []

    class View:
        head = SimpleNamespace(replace=shown.append)

    async def play(prompt):
        session = aagent_session(Harness.TOOL_LOOP, model=replay)
        replace_config(
            session, observers=(TapeNotes(CellTape("", replay, None), View(), lambda model: model),)
        )
        return (await session.arun(prompt)).model

    assert (replay.next_title, await play("first")) == ("first", "first")
    assert (replay.next_title, await play("second")) == ("second", "second")
    assert (replay.next_title, await play("second")) == ("first", "second")
    assert shown == ["first", "second", "second"]
