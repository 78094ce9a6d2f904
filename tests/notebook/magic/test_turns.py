"""A cell that runs again replaces turns. They are removed if the run brings an answer; otherwise they are put back."""

from __future__ import annotations

import pytest

from support.asking import replace_config
from toolloop_jupyter import Harness, aagent_session
from toolloop_jupyter.notebook.magic.sessions import NamedSession
from toolloop_jupyter.teaching.scripted import ScriptedModel, error


async def three_turns(**more):
    session = aagent_session(Harness.TOOL_LOOP, model=ScriptedModel("a", "b", "c", "d"), **more)
    named = NamedSession(session)
    for number, prompt in enumerate(["One", "Two", "Three"]):
        named.add(f"cell {number}", "", {})
        await session.arun(prompt)
    return named


async def run_again(named, model, turn=0, **more):
    """Run a cell again. Return the note at its beginning, and the note at its end."""
    replaced = named.go_back(turn)
    named.add(f"cell {turn}", "", {})
    changed = aagent_session(Harness.TOOL_LOOP, model=model, **more)
    replace_config(named.session, routes=changed.config.routes, instructions=changed.config.instructions)
    await named.session.arun("Uno")
    return replaced.note, replaced.settle(), replaced.settle()


def list_questions(named):
    return [message["content"] for message in named.session.messages() if message["role"] == "user"]


async def test_an_answer_replaces():
    """A run with an answer replaces the cell's turn and all later turns."""
    named = await three_turns()
    note, settled, _ = await run_again(named, ScriptedModel("new"), turn=1)
    assert "its turn is replaced, and the later turn is dropped: “Three”" in note
    assert settled is None
    assert (list_questions(named), len(named.session.results)) == (["One", "Uno"], 2)


@pytest.mark.parametrize("model", ["opnai/gpt-4o", ScriptedModel(error("no", 400))])
async def test_no_answer_puts_back(model):
    """A run without an answer changes nothing: not the messages, the results, the origins of the turns, or the system
    message.
    """
    named = await three_turns(instructions="Be brief.")
    before = (named.session.messages(), named.session.starts, named.turns(), list(named.session.results))
    _, settled, later = await run_again(named, model, instructions="Be long.")
    assert settled == later
    assert "its turn stays as it was, and so do the 2 later ones" in settled
    assert before == (named.session.messages(), named.session.starts, named.turns(), named.session.results)


async def test_nothing_to_put_back():
    """If the cell's old turn had no answer itself, no note says that it stays."""
    named = await three_turns()
    named.add("cell 3", "", {})
    replace_config(named.session, routes=aagent_session(Harness.TOOL_LOOP, model="opnai/x").config.routes)
    await named.session.arun("Four")
    _, settled, _ = await run_again(named, "opnai/x", turn=3)
    assert settled is None
    assert list_questions(named) == ["One", "Two", "Three"]
