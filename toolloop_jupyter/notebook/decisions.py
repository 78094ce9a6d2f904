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
    word = "approved" if decision.allowed else "denied"
    if decision.allowed and decision.arguments is not None:
        word = "approved with edits"
    scope = {"call": "", "run": ", all calls in this run", "session": ", all calls in this session"}[
        decision.scope
    ]
    reason = f": {decision.reason}" if decision.reason else ""
    return f"{word} {_DECIDED.get(decision.by, decision.by)} {clock(decision.at)}{scope}{reason}"


def in_a_word(decision: Decision | None) -> str:
    """The decision for the line of a call, "" for a policy's leave; who decided and when is in the fold."""
    if decision is None or (decision.allowed and decision.by == "policy"):
        return ""
    if decision.allowed:
        return "approved" if decision.arguments is None else "approved with edits"
    reason = first_line(decision.reason, 40)
    return f"denied: {reason}" if reason else "denied"


__all__ = ["decision_text", "in_a_word"]
