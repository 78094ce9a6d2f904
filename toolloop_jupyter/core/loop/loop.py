"""The loop itself. `run_turn` calls the model until it answers; `call_tool` checks and runs one tool call."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple

from ..events import (
    Approval,
    Decision,
    ModelCallFailed,
    Observer,
    Observers,
    PrintKeeper,
    Reply,
    Retry,
    Span,
    ToolCall,
    ToolFailed,
    ToolResult,
    ToolStatus,
)
from ..execution import Outcome, RunEnded, ToolTimeout, run_function, run_in_thread
from ..results import LIMIT, cut, cut_traceback, describe, find_pictures, make_addresses
from ..text import join_surrogates, settle_lines
from ..tools import InvalidArguments, Tool, ToolContext, Version, suggest
from .config import find_approver
from .permissions import Permit, Refused, find_mode, wait_for_decision
from .turn import Answer, SentCall, Turn, TurnEnd, ask_model, find_limit

CANCELLED = "This call was cancelled while it ran; whether it had an effect is not known."
CUT_OFF = "The call was not run: the answer was cut off ({reason}), so it may be incomplete."
CLOSED = "No more tool calls are possible: answer with what you have."
TAKEN = "Taken as the final answer."


class TurnCancelled(asyncio.CancelledError):
    """Raised if a turn is cancelled while a tool runs. The text says whether the tool was stopped or still runs; "" if the tool
    had ended.
    """


async def run_turn(turn: Turn) -> TurnEnd:
    """Run one turn, and return how the turn ended. Raises ModelCallFailed, RunEnded or CancelledError."""
    turn.history.begin_turn(turn.config.instructions, turn.config.route.family)
    turn.history.add_user(turn.prompt.content)
    for one in turn.prompt.attached:
        await turn.outlet.emit(one)
    tools = {tool.wire_name: tool for tool in turn.config.tools}
    is_forced = turn.completion_options[0].get("tool_choice") not in (None, "auto", "none")
    repeated: Counter[tuple[str, str, str]] = Counter()
    while True:
        if end := find_limit(turn):
            return await _end_at_limit(turn, end)
        reply, calls = await ask_model(turn)
        if len(calls) == 1 and calls[0].wire_name not in tools and _accept_call_as_answer(turn, calls[0]):
            return TurnEnd()
        for sent in calls:
            # If the turn ends here, the history already says that this call and the rest were not run.
            if turn.tool_calls == turn.config.limits.max_turns:
                return await _end_at_limit(turn, TurnEnd("max_turns"))
            refusal = CLOSED if turn.tools_closed else ""
            if sent is calls[-1] and reply.finish_reason in ("length", "content_filter"):
                refusal = refusal or CUT_OFF.format(reason=f"finish_reason {reply.finish_reason!r}")
            await call_tool(turn, sent, tools.get(sent.wire_name), refusal)
        if is_forced and (end := _find_repetition(turn, repeated, calls)):
            return await _end_at_limit(turn, end)
        if (not calls or turn.tools_closed) and (end := _accept_answer(turn, reply, calls)):
            return end


# --- one call -------------------------------------------------------------------------------------------------


async def call_tool(turn: Turn, sent: SentCall, tool: Tool | None, refusal: str) -> None:
    """Send the event of a tool call, run the call, and send its result. `tool`: None if no tool has this name.

    If `refusal` is not "", the call is refused, and the model gets this reason. A person is asked only about a call that can
    run. The function gets exactly the arguments that were permitted. At each `await`, the history has a tool message for the
    call. So after a cancel, each call has its message.
    """
    call = turn.begin_call(sent, tool)
    turn.outlet.checkpoint()
    began, started, gate = turn.spent.now(), None, turn.config.gate
    ruling: Permit | Approval | None = None
    try:
        await turn.outlet.emit(call)
        if refusal:
            raise Refused(refusal)
        if tool is None:
            raise Refused(suggest(sent.wire_name, turn.config.tools), "invalid")
        bound = tool.bind(sent.arguments)
        mode, why = await find_mode(turn.config.approvals.permissions, bound)
        await turn.observers.await_hook(Observer.before_call, call, bound.json)
        if mode == "ask":
            async with gate.ask_person():
                shown = Version.of(tool.function)
                permit = turn.permissions.find_earlier(bound, shown)
                if permit is None:
                    ruling = turn.permissions.make_question(call, bound, shown, why, turn.tool_calls)
                    await ask(turn, ruling)
                    permit = turn.permissions.permit(bound, ruling, shown, len(turn.history.starts) - 1)
        else:
            permit = Permit(bound, Decision(allowed=True, reason=why, by="policy") if why else None)
        ruling = permit
        await turn.observers.await_hook(Observer.before_tool, call, permit.bound.json)
        async with gate.use_tool(tool.function, parallel=tool.settings.parallel):
            turn.outlet.checkpoint()
            turn.history.answer(call.id, CANCELLED)
            started = time.monotonic()
            ran = await _run(turn, call, permit)
        result = await _make_result(turn, call, permit, ran, time.monotonic() - started)
    except InvalidArguments as error:
        result = _fail(call, join_surrogates(str(error)), "invalid", None)
    except Refused as refused:
        result = _fail(call, join_surrogates(refused.message), refused.status, refused.decision)
    except BaseException:  # the call has no result of its own, but observers and readers still get one
        text, decision = turn.history.answer_of(call.id), None if ruling is None else ruling.decision
        seconds = None if started is None else time.monotonic() - started
        result = _fail(call, text, "cancelled", decision, seconds)
        raise
    finally:
        turn.history.answer(call.id, result.output, result.pictures)
        turn.outlet.record(result)
        turn.observers.call_hook(Observer.after_call, call, result)
        end = turn.spent.now()
        turn.spent.spans.append(Span("tool", call.name, began, end, is_error=result.is_error))
    turn.outlet.checkpoint()


async def ask(turn: Turn, approval: Approval) -> Decision:
    """Ask the turn's approver about `approval`, and return the decision."""
    began, approver = turn.spent.now(), find_approver(turn.config, streamed=turn.streamed)
    approval = replace(approval, row=turn.config.row)  # it shares its decision with the given Approval
    await turn.outlet.emit(approval)
    if approver == "nobody":
        approval.deny("no approval handler", by="unattended")
    handlers = {"callback": turn.config.approvals.on_approval, "host": turn.config.host.ask}
    try:
        return await wait_for_decision(approval, handlers.get(approver))
    finally:
        is_refused = approval.decision is None or not approval.decision.allowed
        end = turn.spent.now()
        turn.spent.spans.append(Span("approval", approval.tool, began, end, is_error=is_refused))


class _FunctionRun(NamedTuple):
    """How the function of a tool call has run."""

    outcome: Outcome
    keeper: PrintKeeper | None
    """The keeper of the printed text; None without `capture_output`."""
    left_behind: str
    """If the call ended before its function: says whether the function was stopped or still runs. Otherwise ""."""


async def _run(turn: Turn, call: ToolCall, permit: Permit) -> _FunctionRun:
    """Run the function. Raises Refused if the function or its arguments have changed since the permit, RunEnded if the function
    ended the run, TurnCancelled if the turn was stopped.
    """
    tool, host, observers = permit.bound.tool, turn.config.host, turn.observers
    keeper = host.keeper() if tool.settings.capture_output else None
    listeners = Observers(filter(attrgetter("wants_output"), observers))
    left_behind: list[str] = []

    async def ask_in_turn(approval: Approval) -> Decision:
        async with turn.config.gate.ask_person():
            return await ask(turn, approval)

    def start() -> object:
        permit.check()  # nothing happens between this check and the call
        return permit.bound.run(context)

    def sink(kind: str, payload: Any) -> None:
        if keeper is not None:
            keeper.take(kind, payload)
        listeners.call_hook(Observer.output, call, kind, payload)

    def note(stopped: bool) -> None:  # noqa: FBT001 - `run_function` passes only this value
        state = "could not be stopped and runs on in the background; its result is dropped"
        left_behind.append(f"the tool {tool.name!r} {'was stopped' if stopped else state}")

    context = None
    if tool.context_parameter:
        context = ToolContext(
            call.id,
            lambda progress: observers.call_hook(Observer.progress, call, progress),
            ask_in_turn,
            turn.tool_calls,
        )
    try:
        is_captured = listeners or keeper is not None
        with host.capture(sink, shown=bool(listeners)) if is_captured else nullcontext():
            outcome = await run_function(
                start,
                thread=tool.settings.thread and tool.kind in ("sync", "generator"),
                limit=tool.settings.timeout,
                on_item=lambda item: observers.call_hook(Observer.item, call, item),
                on_left_behind=note,
            )
    except asyncio.CancelledError:
        raise TurnCancelled(*left_behind[-1:]) from None
    if isinstance(outcome.error, Refused):
        raise outcome.error
    if isinstance(outcome.error, RunEnded):
        turn.history.answer(call.id, f"The tool ended the run: {outcome.error}")
        raise RunEnded(f"the tool {tool.name!r} raised {outcome.error}")
    return _FunctionRun(outcome, keeper, "".join(left_behind[-1:]))


# --- the result of a call -------------------------------------------------------------------------------------

EDITED = "The person edited"
LONGEST_EDITS = 4_000
"""If a person has edited the arguments, the model gets at most this many characters of the new arguments."""
_WRONG_THREAD = re.compile(
    r"\b(?:same|main|another|different) thread\b|\bevent loop in thread\b|\bmain loop\b", re.IGNORECASE
)


def _fail(
    call: ToolCall, text: str, status: ToolStatus, decision: Decision | None, seconds: float | None = None
) -> ToolResult:
    """Return the result of a call that was refused or stopped. `seconds`: how long its function ran; None if it did not start."""
    result = ToolResult(call.id, text, is_error=True, full_length=len(text), decision=decision, status=status)
    return result if seconds is None else replace(result, seconds=seconds, ran=True)


async def _make_result(
    turn: Turn, call: ToolCall, permit: Permit, ran: _FunctionRun, seconds: float
) -> ToolResult:
    """Make the result of a call whose function has run for `seconds`."""
    outcome, keeper, left_behind = ran
    error, decision, limit = outcome.error, permit.decision, permit.bound.tool.settings.max_result
    name_code = turn.config.host.name_code
    edits, printed, pictures = "", "", ()
    if decision is not None and decision.arguments is not None:
        now = json.dumps(permit.bound.json, ensure_ascii=False, default=repr)
        edits = f"{EDITED} the arguments to {cut(now, LONGEST_EDITS)}."
    if keeper is not None:
        printed = cut(join_surrogates(settle_lines(str(keeper)).rstrip("\n")), limit or LIMIT)
    if error is None:
        described = describe(outcome.value, limit, name_code)
        text, behind = described.text, ""
        before = f"{edits}\n" if edits else ""
        before += f"[printed]\n{printed}\n[returned]\n" if printed else ""
        drawable = [*find_pictures(outcome.value), *(keeper.pictures if keeper is not None else ())]
        if drawable and turn.picture_place is not None:
            pictures = await run_in_thread(lambda: make_addresses(drawable))
    else:
        described = describe(str(error) if isinstance(error, ToolFailed) else error, limit)
        text, before = _tell_error(permit.bound.tool, error, described.text, left_behind), ""
        behind = f"\n[printed before the error]\n{printed}" if printed else ""
        behind += f"\n{edits}" if edits else ""
    output = before + text + behind
    return ToolResult(
        call.id,
        output,
        is_error=error is not None,
        value=outcome.value if error is None else error,
        seconds=seconds,
        traceback="" if error is None or isinstance(error, ToolTimeout) else name_code(cut_traceback(error)),
        full_length=len(output) + described.full_length - len(described.text),
        ran=True,
        pictures=pictures,
        decision=decision,
        printed=printed,
        returned=text if before or behind else None,
    )


def _tell_error(tool: Tool, error: BaseException, described: str, left_behind: str) -> str:
    """Return the text of an error for the model.

    A timeout also says whether the tool was stopped. An error about threads (sqlite, GUI toolkits, signals) is followed by
    advice.
    """
    text = described
    if isinstance(error, ToolTimeout):
        text = f"TimeoutError: {described.partition(': ')[2]}" + (f"; {left_behind}" if left_behind else "")
    if tool.kind == "sync" and tool.settings.thread and _WRONG_THREAD.search(text):
        text += f" (Tools run in a worker thread; mark {tool.name} with @tool(thread=False) to run it on the notebook's own thread.)"
    return text


# --- the end of a turn: an answer, a limit, a call without end --------------------------------------------------

RAISE = "Raise the limit: completion_kwargs={'max_tokens': …}."
CUT_ANSWER = f"the answer was cut off by the token limit. {RAISE}"


def _accept_call_as_answer(turn: Turn, sent: SentCall) -> bool:
    """Take the arguments of `sent` as the answer if they fit `output=`. Return whether they fit.

    The call is of an unknown tool: some models give their answer as such a call.
    """
    answer = Answer(str(sent.arguments.raw), attempts=turn.answer.attempts)
    if turn.config.output is None or not answer.read(turn.config.output):
        return False
    turn.answer = answer
    turn.history.answer(sent.id, TAKEN)
    return True


def _accept_answer(turn: Turn, reply: Reply, calls: Sequence[SentCall]) -> TurnEnd | None:
    """Take `reply` as the answer, and return the end of the turn.

    If the answer does not fit `output=` and a try is left, append a user message that asks again, and return None.
    """
    answer, output = turn.answer, turn.config.output
    answer.text = reply.message.get("content") or ""
    if problem := _explain_fault(turn, reply, calls):
        answer.text = answer.text.strip()
        return TurnEnd("runtime_error", problem)
    note = None
    if reply.finish_reason == "length" and not calls:
        note = CUT_ANSWER
    elif reply.is_empty and not calls and output is None:
        note = f"the model sent no text after its tool calls (finish_reason {reply.finish_reason!r})."
    end = TurnEnd(error=note)
    if output is None or answer.read(output):
        return end
    if reply.refusal:
        answer.problem = f"the model refused: {reply.refusal}"
        return end
    if turn.asks_in_words and not turn.tools_closed:
        turn.outlet.record(Retry(0, f"asked for the answer as {output.name}", of_answer=True))
        answer.attempts -= 1  # the answer before this request does not count as an attempt
        turn.close_tools(output.request_in_words())
        return None
    if answer.attempts > turn.config.options.output_retries:
        return end
    problem = answer.problem or ""
    if reply.finish_reason == "length":
        problem += " (it was cut off by the token limit)"
        answer.problem = problem
    message = f"answer {answer.attempts} does not fit {output.name}: {problem}; asked again"
    turn.outlet.record(Retry(answer.attempts, message, of_answer=True))
    request = "Answer again, with the corrected JSON only."
    turn.history.add_user(f"Your answer did not validate: {problem}\n{request}")
    return None


def _explain_fault(turn: Turn, reply: Reply, calls: Sequence[SentCall]) -> str:
    """If a reply without tool calls is not an answer, return the reason; else return "".

    If the reply is not an answer because it is empty, remove the user's message from the history.
    """
    if calls or not (reply.is_empty or reply.finish_reason == "content_filter"):
        return ""
    if reply.finish_reason == "content_filter":
        fault = "the provider's content filter stopped the answer. Rephrase the prompt."
    elif reply.finish_reason == "length":
        fault = f"the answer is empty: the token limit was reached before any text. {RAISE}"
    elif turn.tool_calls or turn.config.output is not None:
        return ""
    elif reply.finish_reason is None:
        fault = "the server sent no answer at all. Is api_base the address of its API (it often ends in /v1)?"
    else:
        fault = f"the model sent an empty answer (finish_reason {reply.finish_reason!r}). Run again, or try another model."
    if reply.is_empty:
        turn.history.withdraw_question()
    return fault


async def _end_at_limit(turn: Turn, end: TurnEnd) -> TurnEnd:
    """Return how a turn ends at a limit. If `on_limit` is "answer", first call the model once more, without tools.

    `end`: how the turn ends without this closing answer.
    """
    if turn.config.options.on_limit != "answer" or find_limit(turn, is_closing=True):
        if not turn.spent.usage.calls:  # no model was asked, so the history does not keep the question
            turn.history.withdraw_question()
        return end
    output = turn.config.output
    turn.close_tools(CLOSED if output is None else f"{CLOSED} {output.request_in_words()}")
    try:
        reply, calls = await ask_model(turn, is_closing=True)
    except ModelCallFailed as error:
        problem = str(error)
    else:
        problem = _explain_fault(turn, reply, calls)
        turn.answer.text = reply.message.get("content") or ""
    if problem:
        return end._replace(error=f"{end.error or end.reason}; there is no closing answer: {problem}")
    if output is not None:
        turn.answer.read(output)
    return end


SAME_RESULTS = 3
"""If `tool_choice` forces a call in each answer, the turn ends when the same call has had the same result this many times."""


def _find_repetition(
    turn: Turn, counts: Counter[tuple[str, str, str]], calls: Sequence[SentCall]
) -> TurnEnd | None:
    """Add `calls` to `counts`. If a call has had the same result SAME_RESULTS times, return the end of the turn; else None.

    `counts`: (name of a tool, arguments, result) -> how many replies had such a call.
    """
    answer_of = turn.history.answer_of
    counts.update({(one.wire_name, str(one.arguments.stored), answer_of(one.id)) for one in calls})
    if max(counts.values(), default=0) < SAME_RESULTS:
        return None
    choice = turn.completion_options[0].get("tool_choice")
    return TurnEnd(
        "runtime_error",
        f"tool_choice ({choice if isinstance(choice, str) else 'a named tool'}) makes the model call a tool in every answer, so the "
        f"turn cannot end. The same call has brought the same result {SAME_RESULTS} times. Leave tool_choice out "
        "(completion_kwargs={'tool_choice': 'auto'}).",
    )
