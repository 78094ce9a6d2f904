"""The prompt at which a person decides a call, and the words that the model gets about a denial."""

from __future__ import annotations

import pytest

from toolloop_jupyter.core.events import Approval, Decision
from toolloop_jupyter.core.loop.permissions import deny
from toolloop_jupyter.notebook.live.asking import NOBODY, ask_at_prompt
from toolloop_jupyter.teaching.demo import Step


@pytest.mark.parametrize("by", ["prompt", "callback", "policy", "unattended"])
def test_who_decided(by):
    """The model reads "a decision" only if a person or a rule has denied the call. The demo model can read both kinds of denial."""
    told = deny(Decision(allowed=False, reason=NOBODY, by=by)).message
    assert ("This was a decision" in told) == (by != "unattended")
    assert ("Nobody could be asked about it" in told) == (by == "unattended")
    assert told.endswith(": do not repeat the same call.")
    assert Step("double", {}, told).kind == "denied"
    assert NOBODY in Step("double", {}, told).describe()


@pytest.mark.parametrize(
    ("reason", "told"), [("too late", "too late."), ("too late. ", "too late."), ("Why?", "Why?")]
)
def test_a_reason_ends_as_a_sentence_does(reason, told):
    """The reason that a person types ends with one full stop, or with the person's own sign."""
    denial = deny(Decision(allowed=False, reason=reason, by="prompt")).message
    assert denial.startswith(f"denied by the user: {told} This was a decision")


def ask_at(approval, *lines):
    """Ask at the prompt, and type these lines, then the end of the input. Return the prompts."""
    typed, prompts = iter(lines), []

    def read(prompt):
        prompts.append(prompt)
        try:
            return next(typed)
        except StopIteration:
            raise EOFError from None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("builtins.input", read)  # ipykernel does this, too
        ask_at_prompt(approval)
    return prompts


def test_the_prompt_shows_texts_as_lines(capsys):
    """A text keeps its lines, and hidden characters are visible. The usual reason for asking is not shown."""
    ask_at(Approval("write", {"text": "one\ntwo\u202e\n  three", "n": 1}, why="permissions are 'ask'"), "y")
    assert capsys.readouterr().out == (
        "\n? Run write?\n    text = 3 lines:\n      | one\n      | two⟨U+202E⟩\n      | ··three\n    n = 1\n"
    )


def test_the_prompt_explains_its_keys(capsys):
    """After "?", the prompt says what each key does, and what the tool does."""
    approval = Approval("write", {}, description="Write it.", scopes=("call", "run"), editable=False)
    prompts = ask_at(approval, "?", "a")
    shown = capsys.readouterr().out
    assert prompts == ["  [y]es, [n]o (n REASON), [a]ll of this tool in this run, [?]: "] * 2
    assert "a  run it, and run every later call of write in this run without asking" in shown
    assert "n  do not run it; the model is told so" in shown
    assert "Write it." in shown
    assert "e  change" not in shown
    assert "s  run it" not in shown
    assert approval.decision.scope == "run"


def test_a_name_with_braces_at_the_prompt(capsys):
    """A server may give a tool any name. The prompt shows this name."""
    approval = Approval("get{it}", {})
    ask_at(approval, "?", "y")
    assert "every later call of get{it} in this run without asking" in capsys.readouterr().out
    assert approval.decision.allowed


def test_the_prompt_in_a_run_for_each_row():
    """In a run for a row, a person can decide for the row and for all rows."""
    approval = Approval("write", {}, scopes=("call", "run", "session"), editable=False, row="row 17")
    (prompt,) = ask_at(approval, "s")
    assert prompt == "  [y]es, [n]o (n REASON), [a]ll of this tool in this row, [s]: in all rows, [?]: "
    assert approval.decision.scope == "session"


def test_enter_keeps_a_value(capsys):
    """During an edit, Enter keeps a value. The prompt says so."""
    approval = Approval("write", {"text": "a", "n": 1}, check=lambda given: given)
    prompts = ask_at(approval, "e", "", "2", "y")
    assert prompts[1:] == ['    text ["a"]: ', "    n [1]: "]
    assert "Enter keeps the value in brackets" in capsys.readouterr().out


@pytest.mark.parametrize("typed", [(), ("e",), ("e", "b")])
def test_the_end_of_input_denies(typed):
    """At the end of the input, the call is denied, even during an edit."""
    approval = Approval("write", {"text": "a", "n": 1})
    ask_at(approval, *typed)
    assert (approval.decision.allowed, approval.decision.reason) == (False, "nobody answered (end of input)")
