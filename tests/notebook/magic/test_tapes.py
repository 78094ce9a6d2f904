"""Recordings and scripts in a kernel: shared by the cells that name them, and gone back to when a cell runs again."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from support.asking import replace_config
from toolloop_jupyter import Harness, aagent_session
from toolloop_jupyter.notebook.magic.cell import CellTape, TapeNotes, Tapes
from toolloop_jupyter.notebook.transcript.blocks import head
from toolloop_jupyter.teaching.recording import Recorder, Replay
from toolloop_jupyter.teaching.scripted import ScriptedModel
from toolloop_jupyter.teaching.tape import RecordingError


def record(path, *prompts):
    recorder = Recorder(path)
    for prompt in prompts:
        recorder.record({"messages": [{"role": "user", "content": prompt}]}, [(0.0, {"content": "ok"})], {})


class Played:
    """Stands for a script: only its position counts here."""

    position = 0

    def continue_at(self, position):
        self.position = position


def test_a_cell_that_runs_again_goes_back_to_where_it_began():
    """The first cell plays two turns, the second one more; each plays its own again, in any order."""
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
    """What cells have played of the model before does not count for the new one under the same name."""
    tapes = Tapes()
    old, new = ScriptedModel("one"), ScriptedModel("one")
    old.requests = [None]
    tapes.go_back(old, "second cell", "1")
    tapes.go_back(new, "second cell", "2")
    assert (old.position, new.position) == (1, 0)


def test_without_a_cell_id_it_just_goes_on():
    """A front-end that sends no ids of cells, and a model without a position, are left alone."""
    tapes, model = Tapes(), Played()
    model.position = 5
    tapes.go_back(model, None, "1")
    tapes.go_back(None, "a", "1")
    assert model.position == 5


def test_cells_share_a_recording_until_it_is_written_again(tmp_path):
    """One Replay for one file, by whatever path; after the file was recorded anew it is read anew."""
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
    """`--record` wins over `%toolloop record on`; without both nothing is recorded."""
    tapes = Tapes()
    assert tapes.recorder(None) is None
    tapes.recording_to = tmp_path / "all.jsonl"
    assert tapes.recorder(None).path == tmp_path / "all.jsonl"
    assert tapes.recorder(str(tmp_path / "one.jsonl")).path == tmp_path / "one.jsonl"
    assert tapes.recorder(None) is tapes.recorder(str(tmp_path / "all.jsonl"))
    with pytest.raises(RecordingError, match="there is no folder"):
        tapes.recorder(str(tmp_path / "no" / "one.jsonl"))


def test_the_head_says_what_is_recorded_and_replayed(tmp_path):
    """The line above a run names the file that it is recorded to, and the one that answers; others say nothing."""
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
        head("m", (), tape=CellTape("m", Replay(path), None).source).text == "m · replayed from lesson.jsonl"
    )


async def test_the_head_of_a_replay_has_this_calls_model(tmp_path):
    """Two models in one recording: a cell's head has its own, also where cells run in another order."""
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
