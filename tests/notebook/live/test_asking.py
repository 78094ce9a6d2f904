"""What the model is told of a call that nobody could be asked about."""

from __future__ import annotations

import pytest

from toolloop_jupyter.core.events.approval import Decision
from toolloop_jupyter.core.loop.asking import explain_denial
from toolloop_jupyter.notebook.live.asking import NOBODY
from toolloop_jupyter.teaching.demo import Step


@pytest.mark.parametrize("by", ["prompt", "callback", "policy", "unattended"])
def test_who_decided(by):
    """A denial is called a decision only where somebody, or a rule, has decided; the demonstration model reads both."""
    told = explain_denial(Decision(allowed=False, reason=NOBODY, by=by))
    assert ("This was a decision" in told) == (by != "unattended")
    assert ("Nobody could be asked about it" in told) == (by == "unattended")
    assert told.endswith(": do not repeat the same call.")
    assert Step("double", {}, told).kind == "denied"
    assert NOBODY in Step("double", {}, told).told()


@pytest.mark.parametrize(
    ("reason", "told"), [("too late", "too late."), ("too late. ", "too late."), ("Why?", "Why?")]
)
def test_a_reason_ends_as_a_sentence_does(reason, told):
    """What a person typed is followed by one full stop, or by the sign that they set."""
    denial = explain_denial(Decision(allowed=False, reason=reason, by="prompt"))
    assert denial.startswith(f"denied by the user: {told} This was a decision")
