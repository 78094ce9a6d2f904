"""What is said of a decision: in a word on a call's line, in full behind it."""

from __future__ import annotations

from ..core.events import Decision
from .blocks import clock
from .inert import first_line

_DECIDED = {
    "click": "by click",
    "prompt": "at the prompt",
    "policy": "by the policy",
    "callback": "by on_approval",
    "stream": "by the program",
    "unattended": "as nobody is there",
    "stop": "by Stop",
}


def decision_text(decision: Decision) -> str:
    """Such as "approved by click 14:02:11 for this run", "denied by click 14:02:11: wrong table"."""
    scope = {"call": "", "run": ", all calls in this run", "session": ", all calls in this session"}[
        decision.scope
    ]
    reason = f": {decision.reason}" if decision.reason else ""
    return f"{_word(decision)} {_DECIDED.get(decision.by, decision.by)} {clock(decision.at)}{scope}{reason}"


def in_a_word(decision: Decision | None) -> str:
    """The decision for the line of a call, "" for a policy's leave; who decided and when is in the fold."""
    if decision is None or (decision.allowed and decision.by == "policy"):
        return ""
    reason = "" if decision.allowed else first_line(decision.reason, 40)
    return f"{_word(decision)}: {reason}" if reason else _word(decision)


def _word(decision: Decision) -> str:
    if not decision.allowed:
        return "denied"
    return "approved" if decision.arguments is None else "approved with edits"


__all__ = ["decision_text", "in_a_word"]
