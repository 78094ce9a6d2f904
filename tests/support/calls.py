"""Makes the block of a tool call. The test says in which state the call is."""

from __future__ import annotations

from collections.abc import Sequence

from toolloop_jupyter.core.events import Approval, Decision
from toolloop_jupyter.core.events.events import ToolCall, ToolResult
from toolloop_jupyter.notebook.transcript.blocks import Block
from toolloop_jupyter.notebook.transcript.calls import CallStep
from toolloop_jupyter.notebook.transcript.calls import draw_call as draw


def asked_about(call: ToolCall, decision: Decision | None) -> Approval:
    """Return a request for approval of this call, with its decision."""
    approval = Approval(call.name, call.input, call_id=call.id)
    if decision is not None:
        approval._decide(decision)
    return approval


def draw_call(
    call: ToolCall,
    *,
    result: ToolResult | None = None,
    decision: Decision | None = None,
    outputs: Sequence[tuple[str, object]] = (),
    state: str = "done",
    brief: bool = False,
    **texts: str,
) -> Block:
    """Return the block of a call. `state` is "waiting", "running" or "done"."""
    approval = asked_about(call, decision) if decision is not None or state == "waiting" else None
    step = CallStep(call, 0, approval, result, is_over=state == "done", is_brief=brief)
    return draw(step, outputs, **texts)
