"""Whether a call may run, by whose decision: the policy, an earlier "all", or a person who is asked."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import json
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

from ..events import Approval, Decision, Scope, Span
from ..execution import RunEnded, attempt_apart, describe_error, get_message, in_thread
from ..tools import BoundCall, Version
from .permissions import ApprovalHandler, find_mode, read_mode
from .turn import Call, Refusal, Turn

SAME_DENIALS = 3
"""A call that was denied this often in a turn is refused without asking again."""
SCOPES: tuple[Scope, ...] = ("call", "run", "session")
CHANGED = (
    "The call was not run: the function {name!r} was changed while a person was asked about it. "
    "Call it again, and they will be asked about the new one."
)
MEANWHILE = (
    "The call was not run: after it was checked, something else changed what it was to run with ({names}). "
    "Call it again, and it will be checked anew."
)
UNCHECKED = "The call was not run: the arguments that it was allowed with were not checked."


@dataclass(frozen=True)
class Permit:
    """That a call may run: with what, by whose decision."""

    bound: BoundCall
    decision: Decision | None = None
    """None where nothing had to be decided."""
    shown: Version | None = None
    """The function as it was when somebody decided."""

    def refuse_if_changed(self) -> Refusal | None:
        """Why it may not run any more: something has changed since the decision."""
        if self.decision is None:
            return None
        if self.shown is not None and not self.shown.is_still(Version.of(self.bound.tool.function)):
            return _overrule(self.decision, CHANGED.format(name=self.bound.tool.name))
        if names := self.bound.changed():
            return _overrule(self.decision, MEANWHILE.format(names=", ".join(names)))
        return None


def _overrule(decision: Decision, why: str) -> Refusal:
    return Refusal(why, "refused", dataclasses.replace(decision, allowed=False, reason=why, by="policy"))


async def permit_call(turn: Turn, call: Call, bound: BoundCall) -> Permit | Refusal:
    """Decide about a call whose arguments are valid; a person is asked where nobody else has decided."""
    mode, why = await find_mode(turn.config.permissions, bound)
    if mode == "deny":
        return _deny(Decision(allowed=False, reason=why, by="policy"))
    await turn.observers.before_call(call.asked, bound.json)
    if mode == "ask":
        permit = await _permit_by_a_person(turn, call, bound, why)
    elif read_mode(turn.config.permissions) != "full":  # there is a policy, and it let this call through
        permit = Permit(bound, Decision(allowed=True, reason=why, by="policy"))
    else:
        permit = Permit(bound)
    call.decision = permit.decision
    return permit


def _deny(decision: Decision) -> Refusal:
    return Refusal(explain_denial(decision), "denied", decision)


async def _permit_by_a_person(turn: Turn, call: Call, bound: BoundCall, why: str) -> Permit | Refusal:
    tool, shown = bound.tool, Version.of(bound.tool.function)
    if (earlier := turn.permissions.decision_on(tool, shown)) is not None:
        return Permit(bound, earlier, shown)
    same = f"{tool.name} {json.dumps(bound.json, sort_keys=True, default=repr)}"
    if turn.permissions.denied[same] >= SAME_DENIALS:
        reason = f"it was denied {SAME_DENIALS} times already"
        return _deny(Decision(allowed=False, reason=reason, by="policy"))
    approval = Approval(
        tool=tool.name,
        input=bound.json,
        call_id=call.asked.id,
        description=tool.description,
        source=tool.source,
        schema=tool.parameters,
        why=why,
        check=bound.edited,
        scopes=SCOPES[: 1 if not shown.fixed else 3 if turn.permissions.lasting else 2],
        number=call.number,
    )
    decision = await _ask(turn, approval)
    if not decision.allowed:
        turn.permissions.denied[same] += 1
        return _deny(decision)
    made = bound if decision.arguments is None else approval.edited_call
    if type(made) is not BoundCall:  # what ran would not be what the person has made of it
        return _overrule(decision, UNCHECKED)
    permit = Permit(made, decision, shown)
    if refusal := permit.refuse_if_changed():
        return refusal
    turn.permissions.remember(tool, shown, decision, turn.history.turns - 1)
    return permit


async def _ask(turn: Turn, approval: Approval) -> Decision:
    """Ask whoever is there, and wait for the decision."""
    began = turn.spent.now()
    await turn.outlet.emit(approval)
    if turn.approver == "nobody":
        approval.deny("no approval handler", by="unattended")
    handlers = {"callback": turn.config.on_approval, "host": turn.config.host.ask}
    try:
        return await wait_for(approval, handlers.get(turn.approver))
    finally:
        refused = approval.decision is None or not approval.decision.allowed
        turn.spent.spans.append(Span("approval", approval.tool, began, turn.spent.now(), is_error=refused))


async def ask_handler(handler: ApprovalHandler, approval: Approval) -> None:
    """Let `on_approval` decide: a sync one in a thread, an async one awaited; one that raises denies (as LiteLLM).

    Only True allows: a text such as "n" (of an `input()`) is true for Python, and no approval.
    """
    call: Any = getattr(type(handler), "__call__", None)  # noqa: B004 - its kind is asked, not whether it is there
    is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)
    answer: Awaitable[Any] = handler(approval) if is_async else in_thread(lambda: handler(approval))  # type: ignore[assignment]
    outcome = await attempt_apart(answer)
    if outcome.error is None and inspect.isawaitable(outcome.value):
        outcome = await attempt_apart(outcome.value)
    if outcome.error is not None:
        said = (
            get_message if isinstance(outcome.error, Exception) else describe_error
        )  # LiteLLM gives the message alone
        approval.deny(f"on_approval raised: {said(outcome.error, 500)}", by="callback")
        if isinstance(outcome.error, RunEnded):
            raise outcome.error
    elif outcome.value is True:
        approval.allow(by="callback")
    elif outcome.value is None or outcome.value is False:
        approval.deny("denied by on_approval", by="callback")
    else:
        given = type(outcome.value).__name__
        approval.deny(f"on_approval gave a value of type {given}; only True allows", by="callback")


HANDLER_GRACE = 1.0
"""Seconds that a handler which is no longer asked gets to clean up."""


async def wait_for(approval: Approval, handler: ApprovalHandler | None) -> Decision:
    """The decision on `approval`: asked of the handler, or awaited from whoever reads the stream."""
    asking = asyncio.ensure_future(ask_handler(handler, approval)) if handler is not None else None
    if asking is not None:
        asking.add_done_callback(lambda ended: _deny_unanswered(approval, ended))
    try:
        await approval.wait()
    finally:
        approval.deny("the turn ended before a decision", by="stop")  # only counts when nobody has decided
        if asking is not None and not asking.done():
            asking.cancel()
            # A card is taken down now: after a sync run nobody may turn the loop again before the next cell.
            await asyncio.wait({asking}, timeout=HANDLER_GRACE)
    if asking is not None and asking.done() and not asking.cancelled():
        error = asking.exception()
        if isinstance(error, RunEnded):
            raise error
    decision = approval.decision
    assert decision is not None
    return decision


def _deny_unanswered(approval: Approval, ended: asyncio.Future[None]) -> None:
    """A handler that came to an end, however it did, has decided: nobody waits for it any more."""
    error = None if ended.cancelled() else ended.exception()
    why = "" if error is None else f": {get_message(error, 500)}"
    approval.deny(f"on_approval gave no answer{why}", by="callback")  # only counts when nobody has decided


def explain_denial(decision: Decision) -> str:
    """What the model is told of a denial: that somebody decided it, or that nobody could. Models repeat what looks like a failure."""
    who = {
        "unattended": "denied",
        "policy": "denied by the notebook's permissions",
        "callback": "denied",
    }.get(decision.by, "denied by the user")
    reason = f": {decision.reason.rstrip()}" if decision.reason else ""
    stop = "" if reason.endswith((".", "!", "?")) else "."
    why = (
        "Nobody could be asked about it"
        if decision.by == "unattended"
        else "This was a decision, not a failure"
    )
    return f"{who}{reason}{stop} {why}: do not repeat the same call."
