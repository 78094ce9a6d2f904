"""The state of one turn, and its model calls: their requests, their replies in the history, their cost."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from .. import text as hiding
from ..conversation import History, Prompt
from ..events import (
    Decision,
    Event,
    ModelCallFailed,
    Observer,
    Reply,
    Request,
    Retry,
    Span,
    StopReason,
    ToolCall,
    ToolResult,
    ToolStatus,
)
from ..models import (
    ModelCall,
    await_litellm,
    choose_picture_place,
    find_cache_marks,
    must_load,
    note,
    takes_response_format,
    takes_tool_choice_none,
)
from ..results import PicturePlace
from ..tools import SentArguments, Tool
from .config import Approver, Config
from .permissions import Permissions
from .spending import Spent


class Outlet(Protocol):
    """Takes a turn's events, and tells the turn when it has to stop."""

    def checkpoint(self) -> None:
        """Raise CancelledError if the turn has to stop. A tool may have caught an earlier CancelledError."""

    async def emit(self, event: Event) -> None:
        """Send an event, or raise CancelledError if the turn has to stop."""

    def record(self, event: Event) -> None:
        """Send an event, even if the turn has to stop. Never waits."""


class TurnEnd(NamedTuple):
    """How a turn ended."""

    reason: StopReason = "done"
    error: str | None = None
    """What a person should know of the end: a failure, an answer that was cut off."""


class Refusal(NamedTuple):
    """The reason why a tool call is not run: the message for the model, the result's status, the decision."""

    message: str
    status: ToolStatus = "refused"
    decision: Decision | None = None


class SentCall(NamedTuple):
    """A tool call as the model sent it."""

    id: str
    wire_name: str
    arguments: SentArguments


@dataclass
class Call:
    """The state of one tool call, from the model's request to the result."""

    asked: ToolCall
    sent: SentCall
    tool: Tool | None
    number: int
    """The number of the call in its turn, from 1."""
    decision: Decision | None = None
    """The decision about the call; None if none was needed, or none has been made yet."""
    began: float | None = None
    """The time of the monotonic clock when the function was started."""
    left_behind: str = ""
    """What became of a thread that did not end with the call, in one sentence; "" if there is none."""

    @property
    def seconds(self) -> float:
        """How long the function has been running; 0.0 when it has not been started."""
        return 0.0 if self.began is None else time.monotonic() - self.began

    def not_run(self, refusal: Refusal) -> ToolResult:
        """The result of a call whose function was not started."""
        message, status, decision = refusal
        message = hiding.join_surrogates(message)  # a person's or a policy's words
        return ToolResult(
            self.asked.id,
            message,
            is_error=True,
            full_length=len(message),
            decision=decision or self.decision,
            status=status,
        )

    def cut_short(self, said: str) -> ToolResult:
        """The result of a call during which the turn was stopped; `said`: the answer to the call in the history."""
        return ToolResult(
            self.asked.id,
            said,
            is_error=True,
            seconds=self.seconds,
            full_length=len(said),
            ran=self.began is not None,
            decision=self.decision,
            status="cancelled",
        )


@dataclass
class Answer:
    """The answer of a turn, as far as it has come."""

    text: str = ""
    output: object = None
    problem: str | None = None
    """Why the last answer does not fit `output=`; None if it fits."""
    attempts: int = 0


@dataclass
class Turn:
    """The state of one turn. The loop fills it step by step, so a cancelled turn still has its state up to then."""

    config: Config
    history: History
    prompt: Prompt
    outlet: Outlet
    permissions: Permissions
    observers: tuple[Observer, ...] = ()
    """Their methods are called around each step, in this order."""
    approver: Approver = "nobody"
    """Who decides about the turn's tool calls."""
    spent: Spent = field(default_factory=Spent)
    answer: Answer = field(default_factory=Answer)
    tool_calls: int = 0
    tools_closed: bool = False
    """True if the model may call no more tools (in the closing answer after a limit, in the JSON at the end)."""
    completion_options: tuple[Mapping[str, object], Mapping[str, object]] = field(init=False)
    """(options to show, secrets to hide) of each model call."""

    def __post_init__(self) -> None:
        """Remember the API keys of this turn, so that no text that leaves the run contains them."""
        hiding.remember(hiding.find_environment_keys())
        _, secrets = self.completion_options = self.config.completion_options()
        hiding.remember(text for name, value in secrets.items() for text in hiding.find_keys(name, value))

    def switch_to_fallback(self) -> bool:
        """Send the model calls from now on to the next model of `fallback`. Returns False if there is no further one."""
        if not self.config.fallbacks:
            return False
        route, *others = self.config.fallbacks
        self.history.change_family(route.family)
        self.config = replace(self.config, route=route, fallbacks=tuple(others))
        for found in ("cache_marks", "asks_in_words", "picture_place"):
            vars(self).pop(found, None)
        self.__post_init__()
        return True

    @functools.cached_property
    def cache_marks(self) -> Mapping[str, object]:
        """The options that let the provider cache the beginning of the requests; {} if no later request is likely to read it.

        A request that writes into a cache costs more. It pays if a later request begins in the same way: in the next step,
        if there are tools, or in the next turn, which is likely if there was a turn before.
        """
        before = self.history.starts[-1] if self.history.starts else 0
        if not self.config.tools and before < 2:  # a system message alone is no turn
            return {}
        given = self.config.options.completion_kwargs
        return find_cache_marks(self.config.route.model, given, self.history.for_request)

    @functools.cached_property
    def asks_in_words(self) -> bool:
        """True if a user message has to ask for `output=`, since the model takes no response_format beside tools."""
        output = self.config.output
        if output is None:
            return True
        specs = [tool.spec for tool in self.config.tools]
        return not takes_response_format(self.config.route.model, specs, output.response_format())

    @functools.cached_property
    def picture_place(self) -> PicturePlace | None:
        """The message in which this turn's model gets pictures that tools return; None if it gets none."""
        config = self.config
        return choose_picture_place(config.route.model, config.options.images, config.route.answers)


def make_request(turn: Turn) -> Request:
    """Make the request of the next model call, exactly as it will be sent."""
    shown, secrets = turn.completion_options
    options = {name: dict(value) if type(value) is dict else value for name, value in shown.items()}
    model, tools = turn.config.route.model, [tool.spec for tool in turn.config.tools]
    if turn.config.output is not None and not (turn.asks_in_words or turn.tools_closed):
        options["response_format"] = turn.config.output.response_format()
    if turn.tools_closed and tools:
        # The tools stay in the request: Anthropic refuses a history with calls without them.
        options.pop("tool_choice", None)
        if takes_tool_choice_none(model, tools):
            options["tool_choice"] = "none"
    options |= turn.cache_marks
    sends_prompts = turn.config.options.images != "never"
    messages = turn.history.for_request(lambda: turn.picture_place, sends_prompts=sends_prompts)
    return Request(model=model, messages=messages, tools=tools, options=options, secrets=dict(secrets))


def find_limit(turn: Turn) -> TurnEnd | None:
    """Return the end of the turn if a limit allows no further model call; else None."""
    limits, spent = turn.config.options, turn.spent
    if spent.usage.calls >= limits.max_model_calls:
        return TurnEnd("max_model_calls", f"stopped after {limits.max_model_calls} model calls in one turn")
    if limits.max_cost is not None and spent.known_cost >= limits.max_cost:
        return TurnEnd("max_cost", f"stopped at ${spent.known_cost:.4f}: max_cost is ${limits.max_cost}")
    if used_up := spent.spending.explain_limit() or turn.config.gate.find_limit():
        return TurnEnd("max_cost", used_up)
    return None


def _explain_no_fallback(turn: Turn, *, is_closing: bool) -> str:
    """Say why no fallback may be asked; "" if there is none, or it may be asked.

    `is_closing`: for the answer after a limit, only the budget of all runs counts.
    """
    if not turn.config.fallbacks:
        return ""
    if is_closing:
        return turn.spent.spending.explain_limit()
    end = find_limit(turn)
    return (end.error or "") if end else ""


async def ask_model(turn: Turn, *, is_closing: bool = False) -> tuple[Reply, list[SentCall]]:
    """Call the model, put its reply into the history, and return the reply with its tool calls.

    `is_closing`: this is the last model call, after a limit. Raises ModelCallFailed if the call fails and no fallback
    can be asked, or the last one fails, too.
    """
    gate = turn.config.gate
    while True:
        request = make_request(turn)
        for one in turn.observers:
            await one.before_model(request)
        turn.outlet.checkpoint()
        call = ModelCall(
            request,
            turn.outlet.emit,
            on_delta=_tell_delta(turn),
            gate=gate,
            is_last=not turn.config.fallbacks,
        )
        began = turn.spent.now()
        try:
            reply = await call.run()
            break
        except ModelCallFailed as error:
            _count_failed(turn, call, began)
            failed = turn.config.route.title
            limit = _explain_no_fallback(turn, is_closing=is_closing)
            goes_on = not limit and turn.switch_to_fallback()
            raised = ModelCallFailed(f"{error} No fallback was asked: {limit}") if limit else error
            if not goes_on:
                _keep_partial(turn, call, failed=True)
            for one in turn.observers:
                await one.model_failed(raised)
            if not goes_on:
                raise raised from None
            told = Retry(1, f"{failed} failed: {error}", call.shown, model=turn.config.route.next_title)
        except BaseException:
            _count_failed(turn, call, began)
            _keep_partial(turn, call, failed=False)
            raise
        turn.outlet.record(told)
        if must_load(turn.config.route.model):
            await await_litellm()
    turn.spent.add(reply)
    gate.add_cost(reply.known_cost)
    turn.spent.spans.append(Span("model", request.model, began, turn.spent.now(), reply.usage, reply.cost))
    calls = _make_arguments_valid(reply.message)
    text = (reply.message.get("content") or "").strip()
    if calls or text or reply.attachments:
        noted = {} if calls or text else {"content": note(reply.attachments)}
        turn.history.add_assistant({**reply.message, **noted})
    for one in turn.observers:
        await one.after_model(_restore_raw_arguments(reply, calls))
    return reply, calls


def _count_failed(turn: Turn, call: ModelCall, began: float) -> None:
    turn.spent.spans.append(Span("model", call.request.model, began, turn.spent.now(), is_error=True))
    turn.spent.add_failed(call)


def _tell_delta(turn: Turn) -> Callable[[float, Mapping[str, object]], None] | None:
    """A function that passes each delta to the observers that want deltas; None if there are none."""
    readers = [one for one in turn.observers if one.wants_deltas]

    def tell(at: float, delta: Mapping[str, object]) -> None:
        for one in readers:
            one.delta(at, delta)

    return tell if readers else None


def _keep_partial(turn: Turn, call: ModelCall, *, failed: bool) -> None:
    """Keep the text of a model call that failed or was cancelled, as an answer in the history. Its tool calls are not kept.

    If a failed call has brought no text, its question is withdrawn, as after an empty answer: if the provider refuses a question
    (too long, a content filter), it would refuse every later request that has it.
    """
    text = call.shown
    if text.strip():
        turn.history.add_assistant({"role": "assistant", "content": text})
    elif failed:
        turn.history.withdraw_question()


def _make_arguments_valid(message: dict[str, Any]) -> list[SentCall]:
    """Give each tool call in `message` a JSON object as arguments, since later requests repeat it. Returns the calls as sent."""
    calls: list[SentCall] = []
    for call in message.get("tool_calls", ()):
        sent = SentArguments(call["function"]["arguments"])
        calls.append(SentCall(call["id"], call["function"]["name"], sent))
        call["function"]["arguments"] = sent.stored()
    return calls


def _restore_raw_arguments(reply: Reply, calls: list[SentCall]) -> Reply:
    """Return the reply with the arguments as the model wrote them, for observers that show or record the reply."""
    stored = reply.message.get("tool_calls") or []
    pairs = list(zip(stored, calls, strict=True))
    if all(call["function"]["arguments"] == sent.arguments.raw for call, sent in pairs):
        return reply
    raw = [
        {**call, "function": {**call["function"], "arguments": sent.arguments.raw}} for call, sent in pairs
    ]
    return replace(reply, message={**reply.message, "tool_calls": raw})
