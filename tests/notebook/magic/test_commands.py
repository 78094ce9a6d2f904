"""What `%toolloop` prints about a notebook: its settings, tools and sessions."""

from __future__ import annotations

import pytest

from toolloop_jupyter import Harness, aagent_session, tool
from toolloop_jupyter.core.conversation import dump
from toolloop_jupyter.core.events import Usage
from toolloop_jupyter.core.loop.turn import Spending
from toolloop_jupyter.notebook.magic import commands
from toolloop_jupyter.notebook.magic.cell import Notebook
from toolloop_jupyter.notebook.magic.options import ToolLoop
from toolloop_jupyter.notebook.magic.sessions import NamedSession

TALK = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]


class Shell:
    """The parts of a shell that the state of the magic needs."""

    def __init__(self, **names):
        self.user_ns = {"__name__": "notebook", **names}


@tool
def double(x: int) -> int:
    """Double a number."""
    return 2 * x


@pytest.fixture
def shell():
    """A notebook with one tool under two names, and a list of tools."""
    return Shell(double=double, again=double, TOOLS=[double])


@pytest.fixture
def all_runs(monkeypatch):
    """The spending of all runs, which is zero at the beginning."""
    fresh = Spending()
    monkeypatch.setattr(commands, "SPENDING", fresh)
    return fresh


@pytest.fixture
def book(shell, all_runs):
    return Notebook(shell, ToolLoop())


def test_the_sum_of_all_runs(book, all_runs, capsys):
    """`%toolloop` shows the cost of all runs, the rest of a budget, and the number of runs whose cost is not known."""
    all_runs.add(Usage(15_000, 300, 2, 12_000), 1.5)
    all_runs.add(Usage(20, 10, 1), 0.0, unknown=1)
    all_runs.budget = 5
    commands.run(book, "")
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert lines["budget"] == "$5, $3.5000 left"
    assert lines["spent"] == (
        "$1.50 · 2 runs · 15,020 tokens in, 12,000 of them from cache · 310 out · the cost of 1 run is not known in full"
    )


def test_fallbacks_are_a_default(book, capsys):
    """Several fallback models can be set for the notebook. A cell's run has them in the same order."""
    commands.run(book, "--fallback openai/a --fallback openai/b")
    assert "fallback     openai/a, openai/b" in capsys.readouterr().out.splitlines()
    config = book.new_session({"model": "openai/c", "fallback": ["openai/a"]}).config
    assert [route.model for route in config.fallbacks] == ["openai/a"]
    config = book.new_session({"model": "openai/c"}).config
    assert [route.model for route in config.fallbacks] == ["openai/a", "openai/b"]


def test_each_tool_stands_once_in_aligned_columns(book, capsys):
    """A tool is listed once, even if it has several names. All values begin in the same column."""
    commands.run(book, "")
    assert ["tools", "double"] in [line.split() for line in capsys.readouterr().out.splitlines()]
    commands.run(book, "--tools double TOOLS double,TOOLS --max-model-calls 5 --on-unattended error")
    lines = capsys.readouterr().out.splitlines()
    assert {line[:16].strip() for line in lines} == {
        "model", "permissions", "tools", "max_model_calls", "on_unattended"
    }  # fmt: skip
    assert all(line[15] == " " and line[16] != " " for line in lines)
    assert [line[16:] for line in lines if line.startswith("tools ")] == ["double, TOOLS"]


@pytest.mark.parametrize(("turns", "told"), [([[0, ""]], "x: 1 turn"), (None, "x: 2 messages")])
def test_a_loaded_conversation_has_a_length(book, capsys, tmp_path, turns, told):
    """For a loaded conversation, its turns are counted if the file has them; else its messages. It has no tokens of this
    kernel.
    """
    path = tmp_path / "talk.json"
    dump(TALK, path, turns=turns)
    commands.run(book, f"load x {path.as_posix()}")
    capsys.readouterr()
    commands.run(book, "")
    assert capsys.readouterr().out.splitlines()[-1].split(maxsplit=1) == ["session", told]


def test_history_shows_no_megabytes(shell):
    """The value of `history` has all bytes of pictures and files. A cell that shows the value has only the beginning of them."""
    pretty = pytest.importorskip("IPython.lib.pretty").pretty
    part = {
        "type": "file",
        "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64," + "A" * 9_000},
    }
    talk = [{"role": "user", "content": [part, {"type": "text", "text": "Hi"}]}, TALK[1]]
    book = Notebook(shell, ToolLoop())
    book.sessions["s"] = NamedSession(book.new_session({"model": "toolloop/demo"}))
    book.sessions["s"].session = aagent_session(Harness.TOOL_LOOP, model="toolloop/demo", history=talk)
    messages = commands.history(book, "s")
    assert messages == talk
    shown = pretty(messages)
    assert len(shown) < 500
    assert "'filename': 'a.pdf'" in shown
    assert "8,968 more characters" in shown
    book.sessions["s"].session = aagent_session(Harness.TOOL_LOOP, model="toolloop/demo", history=TALK)
    assert pretty(commands.history(book, "s")) == pretty(TALK)
