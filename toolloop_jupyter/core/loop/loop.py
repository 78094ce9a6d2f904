"""The loop itself: `run_turn` calls the model until it answers; `call_tool` takes one call from the ask to the result."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import json
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import Any

from ..conversation import add_pictures
from ..events import (
    Approval,
    Decision,
    ModelCallFailed,
    PrintKeeper,
    Progress,
    Reply,
    Scope,
    Span,
    ToolCall,
    ToolResult,
    ToolStatus,
)
from ..execution import RunEnded, attempt, attempt_apart, call_function
from ..models import takes_response_format
from ..tools import (
    BoundCall,
    InvalidArguments,
    SentArguments,
    Tool,
    ToolContext,
    Version,
    parse_arguments,
    suggest,
)
from . import outcome as outcomes
from .outcome import ToolTimeout
from .output import OutputProblem
from .permissions import SAME_DENIALS, decide, mode_of, refusal, wait_for
from .turn import Turn, TurnEnded, call_model

CANCELLED_BEFORE = "This call was cancelled before it ran."
CANCELLED = "This call was cancelled while it ran; whether it had an effect is not known."
CUT_OFF = "The call was not run: the answer was cut off ({reason}), so it may be incomplete."
CLOSED = "No more tool calls are possible: answer with what you have."
SCOPES: tuple[Scope, ...] = ("call", "run", "session")
STOP_WAIT = 1.0
"""Seconds that a tool gets to end after its own timeout."""
TAKEN = "Taken as the final answer."


async def run_turn(turn: Turn) -> None:
    """Run one turn to its end. Raises TurnEnded for every other end than an answer, CancelledError when cancelled."""
    turn.history.begin_turn(turn.config.instructions)
    turn.history.add_user(turn.prompt)
    tools = {tool.wire_name: tool for tool in turn.config.tools}
    in_words = output_in_words(turn)
    try:
        while True:
            reply, as_sent = await call_model(turn, in_words=in_words)
            calls = reply.message.get("tool_calls", ())
            if _is_answer_as_call(turn, tools, calls, as_sent):
                return
            for call, arguments in zip(calls, as_sent, strict=True):
                await _one_call(turn, tools, call, arguments, refusal=_why_not(turn, reply, call))
            if (not calls or turn.tools_closed) and _is_final(turn, reply, in_words=in_words):
                return
    except TurnEnded as end:
        if turn.config.options.on_limit == "answer" and end.reason in LIMITS:
            await _closing_answer(turn, end)
        raise


LIMITS = ("max_turns", "max_model_calls", "max_cost")


async def _closing_answer(turn: Turn, end: TurnEnded) -> None:
    """One last call without tools. When it fails, the reason for the end stays, and says so."""
    output = turn.config.output
    turn.tools_closed = True
    turn.history.add_user(CLOSED if output is None else f"{CLOSED} {output.request_in_words()}")
    try:
        reply, _ = await call_model(turn, in_words=True, limited=False)
    except (ModelCallFailed, TurnEnded) as error:
        end.error = f"{end.error or end.reason}; there is no closing answer: {error}"
        return
    turn.final_text = reply.message.get("content") or ""
    if output is not None:
        turn.output_attempts += 1
        with contextlib.suppress(OutputProblem):
            turn.output = output.read(turn.final_text)


def output_in_words(turn: Turn) -> bool:
    """Whether `output=` has to be asked for in words, since the model takes no response_format beside tools."""
    output = turn.config.output
    if output is None:
        return True
    specs = [tool.spec for tool in turn.config.tools]
    return not takes_response_format(turn.config.route.model, specs, output.response_format())


def _why_not(turn: Turn, reply: Reply, call: dict[str, Any]) -> str:
    """Why a call of this reply is not run, or "": tools are closed, or it is the one that was being written at a cut."""
    if turn.tools_closed:
        return CLOSED
    if reply.finish_reason in ("length", "content_filter") and call is reply.message["tool_calls"][-1]:
        return CUT_OFF.format(reason=f"finish_reason {reply.finish_reason!r}")
    return ""


def _is_answer_as_call(
    turn: Turn, tools: Mapping[str, Tool], calls: Sequence[dict[str, Any]], as_sent: Sequence[SentArguments]
) -> bool:
    """Take a call of no tool of ours whose arguments are the wanted output: some models answer so."""
    output = turn.config.output
    if output is None or len(calls) != 1 or calls[0]["function"]["name"] in tools:
        return False
    try:
        turn.output = output.read(str(as_sent[0].raw))
    except OutputProblem:
        return False
    turn.output_attempts += 1
    turn.output_problem, turn.final_text = None, str(as_sent[0].raw)
    turn.history.answer(calls[0]["id"], TAKEN)
    return True


def _is_final(turn: Turn, reply: Reply, *, in_words: bool) -> bool:
    """Take an answer without calls; False when the model has to try again (structured output)."""
    text = reply.message.get("content") or ""
    turn.final_text = text
    output = turn.config.output
    if output is None:
        return True
    turn.output_attempts += 1
    try:
        turn.output = output.read(text)
        turn.output_problem = None
        return True
    except OutputProblem as problem:
        turn.output_problem = str(problem)
    if reply.refusal:
        turn.output_problem = f"the model refused: {reply.refusal}"
        return True
    if in_words and not turn.tools_closed:
        turn.tools_closed = True
        turn.output_attempts -= 1  # the answer before the question does not count
        turn.history.add_user(output.request_in_words())
        return False
    if turn.output_attempts > turn.config.options.output_retries:
        return True
    if reply.finish_reason == "length":
        turn.output_problem += " (it was cut off by the token limit)"
    turn.history.add_user(output.correction(turn.output_problem))
    return False


async def _one_call(
    turn: Turn, tools: Mapping[str, Tool], raw: dict[str, Any], arguments: SentArguments, *, refusal: str
) -> None:
    """Emit a call, see to it, emit its result; at each await point the history has an answer to it."""
    limit = turn.config.max_turns
    if limit is not None and turn.tool_calls >= limit:
        raise TurnEnded("max_turns")
    turn.tool_calls += 1
    wire_name = raw["function"]["name"]
    tool = tools.get(wire_name)
    try:
        shown: dict[str, Any] = parse_arguments(arguments)
    except InvalidArguments:
        shown = {}
    call = ToolCall(raw["id"], tool.name if tool else wire_name, wire_name, shown, builtin=False)
    turn.history.answer(call.id, CANCELLED_BEFORE)  # until there is something else to say
    await turn.emit(call)
    began, is_error = turn.now(), True
    try:
        result = _refused(call, refusal) if refusal else await call_tool(turn, tool, call, arguments)
        is_error = result.is_error
    finally:  # a call that is cut has taken its time, too
        turn.spans.append(Span("tool", call.name, began, turn.now(), is_error=is_error))
    turn.history.answer(call.id, add_pictures(result.output, result.pictures))
    turn.unsent = result
    await turn.emit(result)


def _refused(
    call: ToolCall, message: str, decision: Decision | None = None, status: ToolStatus = "refused"
) -> ToolResult:
    return ToolResult(
        call.id, message, is_error=True, full_length=len(message), decision=decision, status=status
    )


async def call_tool(turn: Turn, tool: Tool | None, call: ToolCall, arguments: object) -> ToolResult:
    """Ask -> validate -> run -> result, in the order that nobody is asked about a call that cannot run."""
    if tool is None:
        return _refused(call, suggest(call.name, turn.config.tools), status="invalid")
    try:
        bound = tool.bind(arguments)
    except InvalidArguments as error:
        return _refused(call, str(error), status="invalid")
    mode, why = await decide(turn.config.permissions, bound)
    decision: Decision | None = None
    if mode == "deny":
        decision = Decision(allowed=False, reason=why, by="policy")
        return _refused(call, refusal(decision), decision, "denied")
    await turn.observers.before_call(call, bound.json)
    if mode == "ask":
        decision = turn.session_allowed.decision_on(tool) or turn.run_allowed.decision_on(tool)
        if decision is None:
            bound, decision, changed = await _ask(turn, bound, call, why)
            if changed:
                return _refused(call, changed, decision)
            if not decision.allowed:
                return _refused(call, refusal(decision), decision, "denied")
    elif mode_of(turn.config.permissions) != "full":  # there is a policy, and it let this call through
        decision = Decision(allowed=True, reason=why, by="policy")
    if decision is not None and (names := bound.changed()):
        changed = MEANWHILE.format(names=", ".join(names))
        return _refused(
            call, changed, dataclasses.replace(decision, allowed=False, reason=changed, by="policy")
        )
    with turn.session_allowed.follow(tool), turn.run_allowed.follow(tool):
        edited = decision is not None and decision.arguments is not None
        result = await _run(turn, bound, call, edited=edited)
    return result if decision is None else dataclasses.replace(result, decision=decision)


CHANGED = (
    "The call was not run: the function {name!r} was changed while a person was asked about it. "
    "Call it again, and they will be asked about the new one."
)


MEANWHILE = (
    "The call was not run: after it was checked, something else changed what it was to run with ({names}). "
    "Call it again, and it will be checked anew."
)


UNCHECKED = "The call was not run: the arguments that it was allowed with were not checked."


async def _ask(turn: Turn, bound: BoundCall, call: ToolCall, why: str) -> tuple[BoundCall, Decision, str]:
    """(what will run, the decision, what is wrong with it now or "") for a call that somebody has to allow."""
    tool = bound.tool
    same = f"{tool.name} {json.dumps(bound.json, sort_keys=True, default=repr)}"
    if turn.denied[same] >= SAME_DENIALS:
        reason = f"it was denied {SAME_DENIALS} times already"
        return bound, Decision(allowed=False, reason=reason, by="policy"), ""
    shown = Version.of(tool.function)
    approval = Approval(
        tool=tool.name,
        input=bound.json,
        call_id=call.id,
        description=tool.description,
        source=tool.source,
        schema=tool.parameters,
        why=why,
        check=bound.edited,
        scopes=SCOPES[: 1 if not shown.fixed else 3 if turn.lasting else 2],
        number=turn.tool_calls,
    )
    began = turn.now()
    await turn.emit(approval)
    if turn.approver == "nobody":
        approval.deny("no approval handler", by="unattended")
    asks = {"callback": turn.config.on_approval, "host": turn.config.host.ask}
    try:
        decision = await wait_for(approval, asks.get(turn.approver))
    finally:
        refused = approval.decision is None or not approval.decision.allowed
        turn.spans.append(Span("approval", tool.name, began, turn.now(), is_error=refused))
    made = bound if decision.arguments is None else approval.edited_call
    if not decision.allowed:
        turn.denied[same] += 1
    elif type(made) is not BoundCall:  # what ran would not be what the person has made of it
        return bound, dataclasses.replace(decision, allowed=False, reason=UNCHECKED, by="policy"), UNCHECKED
    elif not shown.is_still(Version.of(tool.function)):
        changed = CHANGED.format(name=tool.name)
        return bound, dataclasses.replace(decision, allowed=False, reason=changed, by="policy"), changed
    elif decision.scope != "call":
        allowed = turn.session_allowed if decision.scope == "session" else turn.run_allowed
        allowed.remember(tool, decision, turn.history.turns - 1)
    return made, decision, ""


async def _run(turn: Turn, bound: BoundCall, call: ToolCall, *, edited: bool) -> ToolResult:
    tool, observers = bound.tool, turn.observers
    await observers.before_tool(call, bound.json)
    turn.history.answer(call.id, CANCELLED)
    keywords = dict(bound.kwargs)
    if bound.context_parameter:
        keywords[bound.context_parameter] = ToolContext(call.id, functools.partial(_report, turn, call))
    function = functools.partial(tool.function, *bound.args, **keywords)
    began, before = time.monotonic(), turn.note
    turn.at_work = (call.id, began)
    with _captured(turn, bound, call) as keeper:
        running = call_function(
            function,
            thread=tool.settings.thread,
            on_item=functools.partial(observers.item, call),
            on_left_behind=functools.partial(_left_behind, turn, tool),
        )
        limit = tool.settings.timeout
        outcome = await attempt_apart(running if limit is None else _limited(running, limit))
    seconds = time.monotonic() - began
    error = outcome.error
    if isinstance(error, RunEnded):
        turn.history.answer(call.id, f"The tool ended the run: {error}")
        raise TurnEnded("cancelled", f"the tool {tool.name!r} raised {error}")
    if error is not None:
        note = ""
        if isinstance(error, ToolTimeout) and turn.note != before:  # said with the call: the run goes on
            note, turn.note = f"; {turn.note}", before
        return outcomes.raised(call, bound, error, keeper=keeper, seconds=seconds, note=note, edited=edited)
    return await outcomes.returned(
        call,
        bound,
        outcome.value,
        keeper=keeper,
        seconds=seconds,
        edited=edited,
        see=lambda: turn.pictures_go is not None,
    )


@contextlib.contextmanager
def _captured(turn: Turn, bound: BoundCall, call: ToolCall) -> Iterator[PrintKeeper | None]:
    """Take what the function prints to whoever shows it, and to what keeps it for the model; None when nothing is kept."""
    host, observers = turn.config.host, turn.observers
    keeper = host.keeper() if bound.tool.settings.capture_output else None
    if keeper is None and not observers.wants_output:
        yield None
        return

    def sink(kind: str, payload: Any) -> None:
        if keeper is not None:
            keeper.take(kind, payload)
        observers.output(call, kind, payload)

    with host.capture(sink, shown=observers.wants_output):
        yield keeper


async def _limited(running: Coroutine[Any, Any, Any], limit: float) -> Any:
    """Like `asyncio.wait_for`, but a TimeoutError of the tool's own stays what it is (they are one class since 3.11)."""
    took_longer, began = f"the tool took longer than its timeout of {limit} s", time.monotonic()
    task = asyncio.ensure_future(attempt(running))
    try:
        await asyncio.wait({task}, timeout=limit)
        if task.done():
            outcome = task.result()
            if outcome.error is not None:
                raise outcome.error
            if (took := time.monotonic() - began) > limit + 0.1:
                raise ToolTimeout(
                    f"{took_longer}; it blocked the kernel for {took:.1f} s, its result is dropped"
                )
            return outcome.value
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=STOP_WAIT)
    raise ToolTimeout(
        took_longer if task.done() else f"{took_longer} and does not stop; its result is dropped"
    )


def _report(turn: Turn, call: ToolCall, progress: Progress) -> None:
    turn.observers.progress(call, progress)


def _left_behind(turn: Turn, tool: Tool, stopped: bool) -> None:  # noqa: FBT001 - called with one value
    state = (
        "was stopped"
        if stopped
        else "could not be stopped and runs on in the background; its result is dropped"
    )
    turn.note = f"the tool {tool.name!r} {state}"
