"""Ask about a call: a handler, a person where the run lives, or the reader of the stream; and tell the model of a denial."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable

from ..events import Approval, Decision, Span
from ..execution import RunEnded, attempt_apart, describe_error, get_message, in_thread
from .permissions import ApprovalHandler
from .turn import Turn

HANDLER_GRACE = 1.0
"""Seconds that a handler which is no longer asked gets to clean up."""


async def ask(turn: Turn, approval: Approval) -> Decision:
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
    call: object = getattr(type(handler), "__call__", None)  # noqa: B004 - its kind is asked, not whether it is there
    is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)
    answer: Awaitable[object] = handler(approval) if is_async else in_thread(lambda: handler(approval))  # type: ignore[assignment]
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
        "code": "denied by code in the notebook",
    }.get(decision.by, "denied by the user")
    reason = f": {decision.reason.rstrip()}" if decision.reason else ""
    stop = "" if reason.endswith((".", "!", "?")) else "."
    why = (
        "Nobody could be asked about it"
        if decision.by == "unattended"
        else "This was a decision, not a failure"
    )
    return f"{who}{reason}{stop} {why}: do not repeat the same call."
