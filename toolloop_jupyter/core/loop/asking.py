"""Ask `on_approval`, the notebook's user or the stream's reader whether a tool call may run. Explain a denial to the model."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable

from ..events import Approval, Decision, Span
from ..execution import RunEnded, attempt_apart, describe_error, get_message, in_thread
from .permissions import ApprovalHandler
from .turn import Turn

HANDLER_GRACE = 1.0
"""A cancelled handler has this many seconds to clean up."""


async def ask(turn: Turn, approval: Approval) -> Decision:
    """Ask the turn's approver about `approval`, and return the decision."""
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
    """Call `handler`, which decides about `approval`. The handler is `on_approval`, or the method `ask` of the host.

    A sync handler runs in a thread; an async handler is awaited. If the handler raises an exception, the call is denied, as
    in LiteLLM. If the handler returns a value, only True allows the call: a text such as "n" (from `input()`) is true in
    Python, but it is not an approval.
    """
    call: object = getattr(type(handler), "__call__", None)  # noqa: B004 - the question is whether it is async
    is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)
    answer: Awaitable[object] = handler(approval) if is_async else in_thread(lambda: handler(approval))  # type: ignore[assignment]
    outcome = await attempt_apart(answer)
    if outcome.error is None and inspect.isawaitable(outcome.value):
        outcome = await attempt_apart(outcome.value)
    if outcome.error is not None:
        said = (
            get_message if isinstance(outcome.error, Exception) else describe_error
        )  # LiteLLM gives only the message
        approval.deny(f"on_approval raised: {said(outcome.error, 500)}", by="callback")
        if isinstance(outcome.error, RunEnded):
            raise outcome.error
    elif outcome.value is True:
        approval.allow(by="callback")
    elif outcome.value is None or outcome.value is False:
        approval.deny("denied by on_approval", by="callback")
    else:
        given = type(outcome.value).__name__
        approval.deny(f"on_approval gave a value of type {given}; only True allows the call", by="callback")


async def wait_for(approval: Approval, handler: ApprovalHandler | None) -> Decision:
    """Wait for the decision about `approval`, and return it. If `handler` is None, the reader of the stream decides."""
    asking = asyncio.ensure_future(ask_handler(handler, approval)) if handler is not None else None
    if asking is not None:
        asking.add_done_callback(lambda ended: _deny_unanswered(approval, ended))
    try:
        await approval.wait()
    finally:
        approval.deny("the turn ended before a decision", by="stop")  # has no effect if somebody has decided
        if asking is not None and not asking.done():
            asking.cancel()
            # Let the handler remove its card now. After a sync run, the event loop may not run before the next cell.
            await asyncio.wait({asking}, timeout=HANDLER_GRACE)
    if asking is not None and asking.done() and not asking.cancelled():
        error = asking.exception()
        if isinstance(error, RunEnded):
            raise error
    decision = approval.decision
    assert decision is not None
    return decision


def _deny_unanswered(approval: Approval, ended: asyncio.Future[None]) -> None:
    """If the handler has ended without a decision, deny `approval`. Otherwise the turn would wait for ever."""
    error = None if ended.cancelled() else ended.exception()
    why = "" if error is None else f": {get_message(error, 500)}"
    approval.deny(f"on_approval gave no answer{why}", by="callback")  # has no effect if somebody has decided


def explain_denial(decision: Decision) -> str:
    """Return the text of a denial for the model. Models repeat calls that seem to have failed, so the text says that a denial
    is a decision.
    """
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
