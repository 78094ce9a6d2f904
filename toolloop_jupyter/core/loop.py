"""The loop itself: `run_turn` calls the model until it answers; `call_tool` takes one call from the ask to the result."""

from __future__ import annotations

import asyncio
import functools
import json
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .approvals import SAME_DENIALS, Allowed, decide, refusal, wait_for
from .arguments import InvalidArguments, parse_arguments
from .config import Config
from .context import Progress, ToolContext
from .events import (
    Approval,
    Decision,
    Event,
    Reasoning,
    Retry,
    Span,
    StopReason,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)
from .history import History
from .model import ModelCall, Reply, Request, loaded, takes_response_format
from .output import OutputProblem
from .results import describe
from .running import RunEnded, attempt, call_function
from .tools import BoundCall, Tool, suggest

CANCELLED = "This call was cancelled while it ran; whether it had an effect is not known."
CUT_OFF = "The call was not run: the answer was cut off by the length limit (finish_reason 'length'), so it may be incomplete."


class TurnEnded(Exception):  # noqa: N818 - a signal, not an error
    """The turn ends early with `reason`; `error` is the text for a runtime error."""

    def __init__(self, reason: StopReason, error: str | None = None) -> None:
        super().__init__(error or reason)
        self.reason = reason
        self.error = error


@dataclass
class Turn:
    """The state of one turn, filled as it goes, so that a cancelled turn leaves what it had."""

    config: Config
    history: History
    prompt: str
    emit: Callable[[Event], Awaitable[None]]
    session_allowed: Allowed
    interactive: bool = True
    """Whether a reader of the stream may answer approvals."""
    run_allowed: Allowed = field(default_factory=Allowed)
    started: float = field(default_factory=time.monotonic)
    usage: Usage = Usage()
    cost: float | None = 0.0
    spans: list[Span] = field(default_factory=list)
    tool_calls: int = 0
    final_text: str = ""
    partial_text: str = ""
    output: Any = None
    output_problem: str | None = None
    output_attempts: int = 0
    denied: Counter[str] = field(default_factory=Counter)
    note: str | None = None
    """What a person should know of a cancelled tool: whether its thread was stopped."""
    tools_closed: bool = False
    """Whether the model may call no more tools (the closing answer after a limit, the JSON at the end)."""

    def now(self) -> float:
        """Seconds since the turn began."""
        return time.monotonic() - self.started


async def run_turn(turn: Turn) -> None:
    """Run one turn to its end. Raises TurnEnded for every other end than an answer, CancelledError when cancelled."""
    turn.history.begin_turn(turn.config.instructions)
    turn.history.add_user(turn.prompt)
    tools = {tool.wire_name: tool for tool in turn.config.tools}
    await loaded()
    in_words = _output_in_words(turn)
    try:
        while True:
            reply, as_sent = await _call_model(turn, in_words=in_words)
            calls = reply.message.get("tool_calls", ())
            for call, arguments in zip(calls, as_sent, strict=True):
                cut_off = reply.finish_reason == "length" and call is calls[-1]
                await _one_call(turn, tools, call, arguments, cut_off=cut_off)
            if not calls and await _is_final(turn, reply, in_words=in_words):
                return
    except TurnEnded as end:
        if turn.config.options.on_limit != "answer" or end.reason not in (
            "max_turns",
            "max_model_calls",
            "max_cost",
        ):
            raise
        await _closing_answer(turn)
        raise


async def _closing_answer(turn: Turn) -> None:
    turn.tools_closed = True
    turn.history.add_user("No more tool calls are possible. Answer now with what you have.")
    reply, _ = await _call_model(turn, in_words=True, limited=False)
    turn.final_text = reply.message.get("content") or ""


def _output_in_words(turn: Turn) -> bool:
    """Whether `output=` has to be asked for in words, since the model takes no response_format beside tools."""
    output = turn.config.output
    if output is None:
        return True
    specs = [tool.spec for tool in turn.config.tools]
    return not takes_response_format(turn.config.route.model, specs, output.response_format())


def make_request(turn: Turn, *, in_words: bool = True) -> Request:
    """The next model call, exactly as it will be sent."""
    options, secrets = turn.config.completion_options()
    if turn.config.output is not None and not in_words:
        options["response_format"] = turn.config.output.response_format()
    if turn.tools_closed and turn.config.tools:
        options["tool_choice"] = (
            "none"  # tools stay in the request: Anthropic refuses a history with calls without them
        )
    return Request(
        model=turn.config.route.model,
        messages=turn.history.for_request(),
        tools=[tool.spec for tool in turn.config.tools],
        options=options,
        secrets=secrets,
    )


async def _call_model(turn: Turn, *, in_words: bool, limited: bool = True) -> tuple[Reply, list[object]]:
    """One model call, into the history; returns the reply and each call's arguments as the model sent them."""
    limits = turn.config.options
    if limited and turn.usage.calls >= limits.max_model_calls:
        raise TurnEnded("max_model_calls", f"stopped after {limits.max_model_calls} model calls in one turn")
    if limited and limits.max_cost is not None and (turn.cost or 0.0) >= limits.max_cost:
        raise TurnEnded("max_cost", f"stopped at ${turn.cost:.4f}: max_cost is ${limits.max_cost}")
    request = make_request(turn, in_words=in_words)
    await turn.config.observer.before_model(request)
    call = ModelCall(request, turn.emit, tap=turn.config.observer.tap)
    began = turn.now()
    try:
        reply = await call.run()
    except BaseException:
        _keep_partial(turn, call)
        raise
    turn.usage += reply.usage
    turn.cost = None if turn.cost is None or reply.cost is None else turn.cost + reply.cost
    turn.spans.append(Span("model", request.model, began, turn.now(), reply.usage, reply.cost))
    as_sent = _make_arguments_valid(reply.message)
    empty = not reply.message.get("tool_calls") and not (reply.message.get("content") or "").strip()
    if not empty:
        turn.history.add_assistant(reply.message)
    await turn.config.observer.after_model(reply)
    if empty and not turn.tool_calls and turn.config.output is None:
        raise TurnEnded("runtime_error", _empty_answer(reply))
    return reply, as_sent


def _empty_answer(reply: Reply) -> str:
    if reply.finish_reason == "length":
        return "the answer is empty: the token limit was reached before any text. Raise max_tokens (--set max_tokens=…)."
    if reply.finish_reason == "content_filter":
        return "the provider's content filter stopped the answer. Rephrase the prompt."
    return f"the model sent an empty answer (finish_reason {reply.finish_reason!r}). Run again, or try another model."


def _keep_partial(turn: Turn, call: ModelCall) -> None:
    """Keep the text that had arrived when a call was cut: in the history as an answer, calls that were half sent not."""
    text = call.assembly.text
    turn.partial_text = text
    if text.strip():
        turn.history.add_assistant({"role": "assistant", "content": text})


def _make_arguments_valid(message: dict[str, Any]) -> list[object]:
    """Let every stored call have a JSON object for arguments, since they are replayed; returns them as they were sent."""
    as_sent = [call["function"]["arguments"] for call in message.get("tool_calls", ())]
    for call, raw in zip(message.get("tool_calls", ()), as_sent, strict=True):
        try:
            parsed = parse_arguments(raw)
            as_it_stands = isinstance(raw, str) and raw.strip().startswith("{")
            call["function"]["arguments"] = raw if as_it_stands else json.dumps(parsed, ensure_ascii=False)
        except InvalidArguments:
            call["function"]["arguments"] = "{}"
    return as_sent


async def _is_final(turn: Turn, reply: Reply, *, in_words: bool) -> bool:
    """Take an answer without calls; False when the model has to try again (structured output)."""
    text = reply.message.get("content") or ""
    turn.final_text = text
    output = turn.config.output
    if output is None:
        return True
    try:
        turn.output_attempts += 1
        turn.output = output.read(text)
        turn.output_problem = None
        return True
    except OutputProblem as problem:
        turn.output_problem = str(problem)
    if in_words and not turn.tools_closed:
        turn.tools_closed = True
        turn.output_attempts -= 1  # the answer before the question does not count
        turn.history.add_user(output.request_in_words())
        return False
    if turn.output_attempts > turn.config.options.output_retries:
        return True
    turn.history.add_user(output.correction(turn.output_problem))
    return False


async def _one_call(
    turn: Turn, tools: Mapping[str, Tool], raw: dict[str, Any], arguments: object, *, cut_off: bool
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
    await turn.emit(call)
    began = turn.now()
    result = _refused(call, CUT_OFF) if cut_off else await call_tool(turn, tool, call, arguments)
    turn.history.answer(call.id, result.output)
    turn.spans.append(Span("tool", call.name, began, turn.now(), is_error=result.is_error))
    await turn.emit(result)


def _refused(call: ToolCall, message: str) -> ToolResult:
    return ToolResult(call.id, message, is_error=True, full_length=len(message))


async def call_tool(turn: Turn, tool: Tool | None, call: ToolCall, arguments: object) -> ToolResult:
    """ask -> validate -> run -> result, in the order that nobody is asked about a call that cannot run."""
    if tool is None:
        return _refused(call, suggest(call.name, turn.config.tools))
    try:
        bound = tool.bind(arguments)
    except InvalidArguments as error:
        return _refused(call, str(error))
    mode, why = await decide(turn.config.permissions, bound)
    if mode == "deny":
        return _refused(call, refusal(Decision(allowed=False, reason=why, by="policy")))
    edited = False
    if mode == "ask" and not (turn.run_allowed.covers(tool) or turn.session_allowed.covers(tool)):
        decision = await _ask(turn, bound, call, why)
        if not decision.allowed:
            return _refused(call, refusal(decision))
        if decision.arguments is not None:
            edited = True
            bound = tool.bind_json(decision.arguments)
    return await _run(turn, bound, call, edited=edited)


async def _ask(turn: Turn, bound: BoundCall, call: ToolCall, why: str) -> Decision:
    tool = bound.tool
    same = f"{tool.name} {json.dumps(bound.json, sort_keys=True, default=repr)}"
    if turn.denied[same] >= SAME_DENIALS:
        return Decision(allowed=False, reason=f"it was denied {SAME_DENIALS} times already", by="policy")
    approval = Approval(
        tool=tool.name,
        input=dict(bound.json),
        call_id=call.id,
        description=tool.description,
        source=tool.source,
        schema=tool.parameters,
        why=why,
        check=lambda arguments: _check(tool, arguments),
    )
    began = turn.now()
    await turn.emit(approval)
    if turn.config.on_approval is None and not turn.interactive:
        approval.deny("no approval handler", by="unattended")
    decision = await wait_for(approval, turn.config.on_approval)
    turn.spans.append(Span("approval", tool.name, began, turn.now(), is_error=not decision.allowed))
    if not decision.allowed:
        turn.denied[same] += 1
    elif decision.scope == "run":
        turn.run_allowed.remember(tool)
    elif decision.scope == "session":
        turn.session_allowed.remember(tool)
    return decision


def _check(tool: Tool, arguments: Mapping[str, object]) -> None:
    tool.bind_json(arguments)


async def _run(turn: Turn, bound: BoundCall, call: ToolCall, *, edited: bool) -> ToolResult:
    tool, observer = bound.tool, turn.config.observer
    await observer.before_tool(call, bound.json)
    turn.history.answer(call.id, CANCELLED)
    keywords = dict(bound.kwargs)
    if bound.context_parameter:
        keywords[bound.context_parameter] = ToolContext(call.id, functools.partial(_report, turn, call))
    function = functools.partial(tool.function, *bound.args, **keywords)
    began = time.monotonic()
    with observer.running(call) as captured:
        running = call_function(
            function,
            thread=tool.settings.thread,
            on_item=functools.partial(observer.item, call),
            on_left_behind=functools.partial(_left_behind, turn, tool),
        )
        limit = tool.settings.timeout
        outcome = await attempt(running if limit is None else _limited(running, limit))
    seconds = time.monotonic() - began
    if isinstance(outcome.error, RunEnded):
        turn.history.answer(call.id, f"The tool ended the run: {outcome.error}")
        raise TurnEnded("cancelled", f"the tool {tool.name!r} raised {outcome.error}")
    if outcome.error is not None:
        return _failed(call, outcome.error, seconds)
    described = describe(outcome.value, tool.settings.max_result)
    printed = f"[printed]\n{captured}\n[returned]\n" if tool.settings.capture_output and captured else ""
    told = (
        f"The person edited the arguments to {json.dumps(bound.json, ensure_ascii=False, default=repr)}.\n"
        if edited
        else ""
    )
    text = told + printed + described.text
    return ToolResult(
        call.id,
        text,
        value=outcome.value,
        seconds=seconds,
        full_length=described.full_length + len(text) - len(described.text),
        ran=True,
    )


class ToolTimeout(Exception):  # noqa: N818 - named as it reads in the model's message
    """A tool took longer than its own `timeout`."""


async def _limited(running: Awaitable[Any], limit: float) -> Any:
    try:
        return await asyncio.wait_for(running, limit)
    except asyncio.TimeoutError:
        raise ToolTimeout(f"the tool took longer than its timeout of {limit} s") from None


def _report(turn: Turn, call: ToolCall, progress: Progress) -> None:
    turn.config.observer.progress(call, progress)


def _left_behind(turn: Turn, tool: Tool, stopped: bool) -> None:  # noqa: FBT001 - called with one value
    state = (
        "was stopped"
        if stopped
        else "could not be stopped and runs on in the background; its result is dropped"
    )
    turn.note = f"the tool {tool.name!r} {state}"


def _failed(call: ToolCall, error: Exception, seconds: float) -> ToolResult:
    """A tool's exception: its type and text to the model, the person's part of the traceback to the person."""
    name = "TimeoutError" if isinstance(error, ToolTimeout) else type(error).__name__
    message = describe(f"{name}: {error}" if str(error) else name, None).text
    return ToolResult(
        call.id,
        message,
        is_error=True,
        value=error,
        seconds=seconds,
        traceback=_persons_traceback(error),
        full_length=len(message),
        ran=True,
    )


def _persons_traceback(error: Exception) -> str:
    """The traceback without the frames of this package, which stand above the person's own code."""
    frames = [
        f
        for f in traceback.extract_tb(error.__traceback__)
        if "toolloop_jupyter" not in f.filename.replace("\\", "/")
    ]
    lines = traceback.format_list(frames) + traceback.format_exception_only(type(error), error)
    return "".join(["Traceback (most recent call last):\n", *lines]) if frames else "".join(lines)


__all__ = ["Reasoning", "Retry", "Text", "Turn", "TurnEnded", "call_tool", "make_request", "run_turn"]
