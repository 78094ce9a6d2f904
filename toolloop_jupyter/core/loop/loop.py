"""The loop itself. `run_turn` calls the model until it answers; `call_tool` checks and runs one tool call."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, NamedTuple

from ..conversation import History
from ..events import (
    Approval,
    Decision,
    ModelCallFailed,
    PrintKeeper,
    Progress,
    Reply,
    Retry,
    Scope,
    Span,
    ToolCall,
    ToolResult,
    thaw,
)
from ..execution import Outcome, RunEnded, is_exactly, run_function
from ..tools import BoundCall, InvalidArguments, Tool, ToolContext, Version, suggest
from .asking import ask, explain_denial
from .outcome import make_result
from .output import OutputProblem
from .permissions import Mode, find_mode
from .turn import Call, Refusal, SentCall, Turn, TurnEnd, ask_model, find_limit

CANCELLED_BEFORE = "This call was cancelled before it ran."
CANCELLED = "This call was cancelled while it ran; whether it had an effect is not known."
CUT_OFF = "The call was not run: the answer was cut off ({reason}), so it may be incomplete."
CLOSED = "No more tool calls are possible: answer with what you have."
TAKEN = "Taken as the final answer."


class TurnCancelled(asyncio.CancelledError):
    """The turn was cancelled during a tool call. The text says whether the tool was stopped or still runs; "" if neither."""


async def run_turn(turn: Turn) -> TurnEnd:
    """Run one turn, and return how the turn ended. Raises ModelCallFailed, RunEnded or CancelledError."""
    turn.history.begin_turn(turn.config.instructions, turn.config.route.family)
    turn.history.add_user(turn.prompt.content)
    for one in turn.prompt.attached:
        await turn.outlet.emit(one)
    tools = {tool.wire_name: tool for tool in turn.config.tools}
    choice = turn.completion_options[0].get("tool_choice")
    forced = None if choice in (None, "auto", "none") else ForcedCalls(turn.history, choice)
    while True:
        if end := find_limit(turn):
            return await _end_at_limit(turn, end)
        reply, calls = await ask_model(turn)
        if _accept_call_as_answer(turn, tools, calls):
            return TurnEnd()
        for sent in calls:
            if turn.tool_calls == turn.config.max_turns:
                return await _end_at_limit(turn, TurnEnd("max_turns"))
            await _answer_call(
                turn, tools.get(sent.wire_name), sent, _explain_not_run(turn, reply, sent, calls)
            )
        if forced is not None and (end := forced.find_end(calls)):
            return await _end_at_limit(turn, end)
        if (not calls or turn.tools_closed) and (end := _accept_answer(turn, reply, calls)):
            return end


# --- one call -------------------------------------------------------------------------------------------------


def _explain_not_run(turn: Turn, reply: Reply, sent: SentCall, calls: Sequence[SentCall]) -> str:
    """If a tool call of `reply` must not run, return the reason; else "".

    There are two reasons: no more calls are allowed, or the reply broke off in this call.
    """
    if turn.tools_closed:
        return CLOSED
    if reply.finish_reason in ("length", "content_filter") and sent is calls[-1]:
        return CUT_OFF.format(reason=f"finish_reason {reply.finish_reason!r}")
    return ""


async def _answer_call(turn: Turn, tool: Tool | None, sent: SentCall, reason: str) -> None:
    """Emit a tool call, run the call, and emit its result. If `reason` is not "", refuse the call and give this reason.

    At each await, the history has a tool message for the call.
    """
    turn.tool_calls += 1
    shown = thaw(sent.arguments.parsed)
    name = tool.name if tool else sent.wire_name
    call = Call(ToolCall(sent.id, name, sent.wire_name, shown, builtin=False), sent, tool, turn.tool_calls)
    turn.history.answer(sent.id, CANCELLED_BEFORE)  # until the result is known
    turn.outlet.checkpoint()
    began = turn.spent.now()
    try:
        await turn.outlet.emit(call.asked)
        result = call.not_run(Refusal(reason)) if reason else await call_tool(turn, call)
    except BaseException as error:  # the call has no result of its own, but observers still get one
        _tell_result(turn, call, call.cut_short(turn.history.answer_of(sent.id)), began)
        if isinstance(error, asyncio.CancelledError):
            raise TurnCancelled(call.left_behind) from None
        raise
    turn.history.answer(sent.id, result.output, result.pictures)
    _tell_result(turn, call, result, began)
    turn.outlet.checkpoint()


def _tell_result(turn: Turn, call: Call, result: ToolResult, began: float) -> None:
    turn.outlet.record(result)
    for one in turn.observers:
        one.after_call(call.asked, result)
    span = Span("tool", call.asked.name, began, turn.spent.now(), is_error=result.is_error)
    turn.spent.spans.append(span)


async def call_tool(turn: Turn, call: Call) -> ToolResult:
    """Return the result of one tool call: check its arguments, get a permit, run the function.

    A person is asked only about a call that can run. The function gets exactly the arguments that were permitted.
    """
    if call.tool is None:
        return call.not_run(Refusal(suggest(call.asked.name, turn.config.tools), "invalid"))
    try:
        bound = call.tool.bind(call.sent.arguments)
    except InvalidArguments as error:
        return call.not_run(Refusal(str(error), "invalid"))
    permit = await permit_call(turn, call, bound)
    if isinstance(permit, Refusal):
        return call.not_run(permit)
    for one in turn.observers:
        await one.before_tool(call.asked, permit.bound.json)
    async with turn.config.gate.use_tool(call.tool.function, parallel=call.tool.settings.parallel):
        turn.outlet.checkpoint()
        turn.history.answer(call.asked.id, CANCELLED)
        call.began = time.monotonic()
        capture, keeper = _prepare_capture(turn, call, call.tool)
        with capture:
            outcome = await _run(turn, call, permit)
    if isinstance(outcome.error, Changed):
        return call.not_run(outcome.error.refusal)
    if isinstance(outcome.error, RunEnded):
        turn.history.answer(call.asked.id, f"The tool ended the run: {outcome.error}")
        raise RunEnded(f"the tool {call.tool.name!r} raised {outcome.error}")
    return await make_result(
        call,
        permit.bound,
        outcome,
        keeper,
        see=lambda: turn.picture_place is not None,
        name_code=turn.config.host.name_code,
    )


# --- whether a call may run -----------------------------------------------------------------------------------

SAME_DENIALS = 3
"""If the same call was denied this many times in a turn, the next call is denied without a question."""
SCOPES: tuple[Scope, ...] = ("call", "run", "session")
CHANGED = (
    "The call was not run: the function {name!r} was changed while a person was asked about it. "
    "Call it again, and they will be asked about the new one."
)
MEANWHILE = (
    "The call was not run: some arguments were changed by other code after they were checked ({names}). "
    "Call it again, and they will be checked anew."
)
UNCHECKED = "The call was not run: its edited arguments were not checked."


class Permit(NamedTuple):
    """The permission to run one tool call. `bound` has the permitted arguments."""

    bound: BoundCall
    decision: Decision | None = None
    """None if nothing had to be decided."""
    shown: Version | None = None
    """The version that the function had when a person was asked; None if nobody was asked."""

    def refuse_if_changed(self) -> Refusal | None:
        """Return a refusal if the function or the arguments have changed since the decision; else None."""
        if self.decision is None:
            return None
        if self.shown is not None and not self.shown.is_still(Version.of(self.bound.tool.function)):
            return _overrule(self.decision, CHANGED.format(name=self.bound.tool.name))
        if names := self.bound.changed():
            return _overrule(self.decision, MEANWHILE.format(names=", ".join(names)))
        return None


def _overrule(decision: Decision, why: str) -> Refusal:
    return Refusal(why, "refused", replace(decision, allowed=False, reason=why, by="policy"))


def _deny(decision: Decision) -> Refusal:
    return Refusal(explain_denial(decision), "denied", decision)


async def permit_call(turn: Turn, call: Call, bound: BoundCall) -> Permit | Refusal:
    """Return a Permit or a Refusal for a call with valid arguments. The policy decides, or an earlier approval of the tool, or
    the approver of the turn.
    """
    is_open = is_exactly(turn.config.permissions, "full")
    mode: Mode = "full"
    why = ""
    if not is_open or bound.tool.settings.permissions is not None:
        mode, why = await find_mode(turn.config.permissions, bound)
    if mode == "deny":
        return _deny(Decision(allowed=False, reason=why, by="policy"))
    for one in turn.observers:
        await one.before_call(call.asked, bound.json)
    if mode == "ask":
        async with turn.config.gate.ask_person():
            permit = await _permit_by_a_person(turn, call, bound, why)
    elif is_open:
        permit = Permit(bound)
    else:
        permit = Permit(bound, Decision(allowed=True, reason=why, by="policy"))
    call.decision = permit.decision
    return permit


async def _ask_in_turn(turn: Turn, approval: Approval) -> Decision:
    """Ask the approver of the turn about `approval`, which a running tool has made (see `ToolContext`)."""
    async with turn.config.gate.ask_person():
        return await ask(turn, approval)


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
        origin=tool.origin,
        why=why,
        check=bound.edited,
        scopes=SCOPES[: 1 if not shown.fixed else 3 if turn.permissions.lasting else 2],
        number=call.number,
    )
    try:
        decision = await ask(turn, approval)
    finally:
        call.decision = approval.decision  # even if the turn is stopped before the call runs
    if not decision.allowed:
        turn.permissions.denied[same] += 1
        return _deny(decision)
    made = bound if decision.arguments is None else approval.edited_call
    if type(made) is not BoundCall:  # nobody has checked the edited arguments
        return _overrule(decision, UNCHECKED)
    permit = Permit(made, decision, shown)
    if refusal := permit.refuse_if_changed():
        return refusal
    turn.permissions.remember(tool, shown, decision, len(turn.history.starts) - 1)
    return permit


# --- one call runs --------------------------------------------------------------------------------------------


class Changed(Exception):
    """The function or its arguments have changed since the call was permitted."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


async def _run(turn: Turn, call: Call, permit: Permit) -> Outcome:
    """Run the function and return its outcome. The outcome's error may be an exception of the function, ToolTimeout or Changed."""
    bound, settings = permit.bound, permit.bound.tool.settings

    def report(progress: Progress) -> None:
        for one in turn.observers:
            one.progress(call.asked, progress)

    def tell_item(item: object) -> None:
        for one in turn.observers:
            one.item(call.asked, item)

    context = None
    if bound.tool.context_parameter:
        context = ToolContext(
            call.asked.id, report, lambda approval: _ask_in_turn(turn, approval), call.number
        )

    def start() -> object:
        if refusal := permit.refuse_if_changed():  # nothing happens between this check and the call
            raise Changed(refusal)
        return bound.run(context)

    def left_behind(stopped: bool) -> None:  # noqa: FBT001 - called with one value
        state = (
            "was stopped"
            if stopped
            else "could not be stopped and runs on in the background; its result is dropped"
        )
        call.left_behind = f"the tool {bound.tool.name!r} {state}"

    return await run_function(
        start,
        thread=settings.thread and bound.tool.kind in ("sync", "generator"),
        limit=settings.timeout,
        on_item=tell_item,
        on_left_behind=left_behind,
    )


def _prepare_capture(
    turn: Turn, call: Call, tool: Tool
) -> tuple[AbstractContextManager[object], PrintKeeper | None]:
    """Return (context, keeper). Inside the context, the observers and the keeper get the output of the function.

    The keeper stores the printed text for the model. It is None if the tool does not use `capture_output`.
    """
    host, listeners = turn.config.host, [one.output for one in turn.observers if one.wants_output]
    keeper = host.keeper() if tool.settings.capture_output else None
    if keeper is None and not listeners:
        return contextlib.nullcontext(), None

    def sink(kind: str, payload: Any) -> None:
        if keeper is not None:
            keeper.take(kind, payload)
        for listen in listeners:
            listen(call.asked, kind, payload)

    return host.capture(sink, shown=bool(listeners)), keeper


# --- the end of a turn: an answer, a limit, a call without end --------------------------------------------------


def _accept_call_as_answer(turn: Turn, tools: Mapping[str, Tool], calls: Sequence[SentCall]) -> bool:
    """If the only call is for an unknown tool and its arguments fit `output=`, take the arguments as the answer.

    Some models answer in this way. Returns True if the arguments were taken.
    """
    output = turn.config.output
    if output is None or len(calls) != 1 or calls[0].wire_name in tools:
        return False
    said = str(calls[0].arguments.raw)
    try:
        turn.answer.output = output.read(said)
    except OutputProblem:
        return False
    turn.answer.attempts += 1
    turn.answer.problem, turn.answer.text = None, said
    turn.history.answer(calls[0].id, TAKEN)
    return True


def _accept_answer(turn: Turn, reply: Reply, calls: Sequence[SentCall]) -> TurnEnd | None:
    """Take `reply` as the answer, and return the end of the turn.

    If the answer does not fit `output=` and a try is left, append a user message that asks again, and return None.
    """
    answer, output = turn.answer, turn.config.output
    answer.text = reply.message.get("content") or ""
    if problem := _explain_fault(turn, reply, calls):
        if reply.is_empty:
            turn.history.withdraw_question()
        answer.text = answer.text.strip()
        return TurnEnd("runtime_error", problem)
    cut = reply.finish_reason == "length" and not calls
    end = TurnEnd(error=CUT_ANSWER if cut else _note_silence(turn, reply, calls))
    if output is None:
        return end
    answer.attempts += 1
    try:
        answer.output, answer.problem = output.read(answer.text), None
        return end
    except OutputProblem as error:
        answer.problem = str(error)
    if reply.refusal:
        answer.problem = f"the model refused: {reply.refusal}"
        return end
    if turn.asks_in_words and not turn.tools_closed:
        turn.tools_closed = True
        turn.outlet.record(Retry(0, f"asked for the answer as {output.name}", of_answer=True))
        answer.attempts -= 1  # the answer that came before this request does not count
        turn.history.add_user(output.request_in_words())
        return None
    if answer.attempts > turn.config.options.output_retries:
        return end
    if reply.finish_reason == "length":
        answer.problem += " (it was cut off by the token limit)"
    told = f"answer {answer.attempts} does not fit {output.name}: {answer.problem}; asked again"
    turn.outlet.record(Retry(answer.attempts, told, of_answer=True))
    turn.history.add_user(output.correction(answer.problem))
    return None


RAISE = "Raise the limit: completion_kwargs={'max_tokens': …}."
CUT_ANSWER = f"the answer was cut off by the token limit. {RAISE}"


def _note_silence(turn: Turn, reply: Reply, calls: Sequence[SentCall]) -> str | None:
    """Return a note for a person if the answer after tool calls is empty; else None."""
    if calls or turn.answer.text.strip() or reply.attachments or turn.config.output is not None:
        return None
    return f"the model ended without a word after its tool calls (finish_reason {reply.finish_reason!r})."


def _explain_fault(turn: Turn, reply: Reply, calls: Sequence[SentCall]) -> str:
    """If a reply without tool calls is not an answer, return the reason; else ""."""
    may_be_empty = bool(turn.tool_calls) or turn.config.output is not None
    if calls:
        return ""
    if reply.finish_reason == "content_filter":
        return "the provider's content filter stopped the answer. Rephrase the prompt."
    if not reply.is_empty:
        return ""
    if reply.finish_reason == "length":
        return f"the answer is empty: the token limit was reached before any text. {RAISE}"
    if may_be_empty:
        return ""
    if reply.finish_reason is None:
        return "the server sent no answer at all. Is api_base the address of its API (it often ends in /v1)?"
    return f"the model sent an empty answer (finish_reason {reply.finish_reason!r}). Run again, or try another model."


async def _end_at_limit(turn: Turn, end: TurnEnd) -> TurnEnd:
    """End a turn that has reached a limit.

    If `on_limit` is "answer", the model is called once more, without tools, before the turn ends. If this call fails,
    `TurnEnd.error` says so.
    """
    if turn.config.options.on_limit != "answer" or turn.spent.spending.explain_limit():
        if not turn.spent.usage.calls:  # no model was asked, so the history does not keep the question
            turn.history.withdraw_question()
        return end
    output = turn.config.output
    turn.tools_closed = True
    turn.history.add_user(CLOSED if output is None else f"{CLOSED} {output.request_in_words()}")
    try:
        reply, calls = await ask_model(turn, is_closing=True)
        problem = _explain_fault(turn, reply, calls)
        if problem and reply.is_empty:
            turn.history.withdraw_question()
    except ModelCallFailed as error:
        reply, problem = None, str(error)
    if reply is not None:
        turn.answer.text = reply.message.get("content") or ""
    if problem:
        return end._replace(error=f"{end.error or end.reason}; there is no closing answer: {problem}")
    if output is not None:
        turn.answer.attempts += 1
        with contextlib.suppress(OutputProblem):
            turn.answer.output = output.read(turn.answer.text)
    return end


class ForcedCalls:
    """Ends a turn in which the model only repeats a tool call. This happens if `tool_choice` forces a call in each answer."""

    MOST = 3
    """The turn ends when the same call has had the same result this many times."""

    def __init__(self, history: History, choice: object) -> None:
        """Begin with no calls. `choice` is the value of `tool_choice`."""
        self._history, self._choice = history, choice
        self._counts: Counter[tuple[str, str, str]] = Counter()
        """(name of a tool, arguments, result) -> how many replies had such a call."""

    def find_end(self, calls: Sequence[SentCall]) -> TurnEnd | None:
        """Count `calls`. If a call has now had the same result MOST times, return the end of the turn; else None."""
        self._counts.update(
            {
                (sent.wire_name, str(sent.arguments.stored()), self._history.answer_of(sent.id))
                for sent in calls
            }
        )
        if max(self._counts.values(), default=0) < self.MOST:
            return None
        shown = self._choice if isinstance(self._choice, str) else "a named tool"
        return TurnEnd(
            "runtime_error",
            f"tool_choice ({shown}) makes the model call a tool in every answer, so the turn cannot end. The same call has brought "
            f"the same result {self.MOST} times. Leave tool_choice out (completion_kwargs={{'tool_choice': 'auto'}}).",
        )
