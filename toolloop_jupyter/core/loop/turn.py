"""The state of one turn, and its model calls. Each model call has a request, a reply in the history, and a cost."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from .. import text as hiding
from ..conversation import History, Prompt
from ..events import (
    Decision,
    Event,
    Host,
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
    takes_response_format,
    takes_tool_choice_none,
)
from ..results import PicturePlace
from ..tools import SentArguments, Tool
from .config import Approver, Config
from .permissions import Permissions
from .spending import Spent


class Outlet(Protocol):
    """Sends the events of a turn, and raises CancelledError in the turn when the turn has to stop."""

    def checkpoint(self) -> None:
        """Raise CancelledError if the turn has to stop. This is needed since a tool may have caught the first CancelledError."""

    async def emit(self, event: Event) -> None:
        """Send an event, or raise CancelledError if the turn has to stop."""

    def record(self, event: Event) -> None:
        """Send an event, even if the turn has to stop. Never waits."""


class TurnEnd(NamedTuple):
    """How a turn ended."""

    reason: StopReason = "done"
    error: str | None = None
    """A message to the person if the turn ended badly, for example with a failure or with an incomplete answer."""


class Refusal(NamedTuple):
    """Why a tool call is not run: the message for the model, the status of the result, and the decision about the call."""

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
    """The decision about the call; None if no decision was needed, or if it has not been made yet."""
    began: float | None = None
    """The time on the monotonic clock at which the function was started; None if it has not been started."""
    left_behind: str = ""
    """If the function did not end with its call: a sentence that says whether the function was stopped or runs on. Else ""."""

    @property
    def seconds(self) -> float:
        """The seconds since the function was started; 0.0 if it has not been started."""
        return 0.0 if self.began is None else time.monotonic() - self.began

    def not_run(self, refusal: Refusal) -> ToolResult:
        """Return the result of a call whose function was not started."""
        message, status, decision = refusal
        message = hiding.join_surrogates(message)  # the message may have words of a person or a policy
        return ToolResult(
            self.asked.id,
            message,
            is_error=True,
            full_length=len(message),
            decision=decision or self.decision,
            status=status,
        )

    def cut_short(self, said: str) -> ToolResult:
        """Return the result of a call during which the turn was stopped. `said`: the text of the result in the history."""
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
    """The answer of a turn; while the turn runs, only the part so far."""

    text: str = ""
    output: object = None
    problem: str | None = None
    """Why the last answer does not fit `output=`; None if it fits."""
    attempts: int = 0


@dataclass
class Turn:
    """The state of one turn. The loop updates it after each step, so that the state is also right if the turn is cancelled."""

    config: Config
    history: History
    prompt: Prompt
    outlet: Outlet
    permissions: Permissions
    observers: tuple[Observer, ...] = ()
    """The observers of the turn. The loop calls their methods before and after each step, in this order."""
    approver: Approver = "nobody"
    """Who decides about the tool calls of this turn."""
    spent: Spent = field(default_factory=Spent)
    answer: Answer = field(default_factory=Answer)
    tool_calls: int = 0
    tools_closed: bool = False
    """True if the model may call no more tools, since it must give the last answer (after a limit) or the JSON for `output=`."""
    completion_options: tuple[Mapping[str, object], Mapping[str, object]] = field(init=False)
    """The options of each model call: (the options that may be shown, the secret options)."""

    def __post_init__(self) -> None:
        """Remember the API keys of this turn. The keys are then hidden in every text that leaves the run."""
        hiding.remember(hiding.find_environment_keys())
        _, secrets = self.completion_options = self.config.completion_options()
        hiding.remember(text for name, value in secrets.items() for text in hiding.find_keys(name, value))

    def switch_to_fallback(self) -> bool:
        """Use the next model of `fallback` for the following model calls. Return False if no such model is left."""
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
        """The options that let the provider cache the beginning of the requests; {} if the cache is unlikely to be read.

        A request that writes into the cache costs more. The cache is worth its price if a later request has the same
        beginning. A later request is likely if the model has tools, or if the session has had a turn before this turn.
        """
        before = self.history.starts[-1] if self.history.starts else 0
        if not self.config.tools and before < 2:  # there is no earlier turn, only a system message
            return {}
        given = self.config.options.completion_kwargs
        return find_cache_marks(self.config.route.model, given, self.history.for_request)

    @functools.cached_property
    def asks_in_words(self) -> bool:
        """True if a user message has to ask for `output=`, since the model does not support `response_format` with tools."""
        output = self.config.output
        if output is None:
            return True
        specs = [tool.spec for tool in self.config.tools]
        return not takes_response_format(self.config.route.model, specs, output.response_format())

    @functools.cached_property
    def picture_place(self) -> PicturePlace | None:
        """Where this turn's model gets pictures from tools: in a "tool" or in a "user" message; None if it gets no pictures."""
        config = self.config
        return choose_picture_place(config.route.model, config.options.images, config.route.answers)


async def wait_for_import(model: str, host: Host, observers: Iterable[Observer]) -> None:
    """If `model` needs LiteLLM, wait until LiteLLM is imported. An observer or the host tells the person about the wait."""
    if must_load(model):
        is_told = [one.before_import() for one in observers]
        with nullcontext() if any(is_told) else host.importing():
            await await_litellm()


def make_request(turn: Turn) -> Request:
    """Make the request of the next model call, exactly as it will be sent."""
    shown, secrets = turn.completion_options
    options = {name: dict(value) if type(value) is dict else value for name, value in shown.items()}
    model, tools = turn.config.route.model, [tool.spec for tool in turn.config.tools]
    if turn.config.output is not None and not (turn.asks_in_words or turn.tools_closed):
        options["response_format"] = turn.config.output.response_format()
    if turn.tools_closed and tools:
        # The tools stay in the request: without them, Anthropic refuses a history that contains tool calls.
        options.pop("tool_choice", None)
        if takes_tool_choice_none(model, tools):
            options["tool_choice"] = "none"
    options |= turn.cache_marks
    sends_prompts = turn.config.options.images != "never"
    messages = turn.history.for_request(lambda: turn.picture_place, sends_prompts=sends_prompts)
    return Request(model=model, messages=messages, tools=tools, options=options, secrets=dict(secrets))


def find_limit(turn: Turn) -> TurnEnd | None:
    """Return how the turn ends if a limit allows no further model call; None if no limit is reached."""
    limits, spent = turn.config.options, turn.spent
    if spent.usage.calls >= limits.max_model_calls:
        return TurnEnd("max_model_calls", f"stopped after {limits.max_model_calls} model calls in one turn")
    if limits.max_cost is not None and spent.known_cost >= limits.max_cost:
        return TurnEnd("max_cost", f"stopped at ${spent.known_cost:.4f}: max_cost is ${limits.max_cost}")
    if used_up := spent.spending.explain_limit() or turn.config.gate.find_limit():
        return TurnEnd("max_cost", used_up)
    return None


def _explain_no_fallback(turn: Turn, *, is_closing: bool) -> str:
    """Return why a limit forbids a call of the next fallback model; "" if the call is allowed or no fallback model is left.

    `is_closing`: True for the last answer after a limit. Then only the budget of all runs is checked.
    """
    if not turn.config.fallbacks:
        return ""
    if is_closing:
        return turn.spent.spending.explain_limit()
    end = find_limit(turn)
    return (end.error or "") if end else ""


async def ask_model(turn: Turn, *, is_closing: bool = False) -> tuple[Reply, list[SentCall]]:
    """Call the model, add its reply to the history, and return (the reply, the tool calls as the model sent them).

    If the call fails, the fallback models are called one after another. Raises ModelCallFailed if all of them fail, or if
    a limit forbids the next call. `is_closing`: True for the last model call of a turn that has reached a limit.
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
        await wait_for_import(turn.config.route.model, turn.config.host, turn.observers)
    turn.spent.add(reply)
    gate.add_cost(reply.known_cost)
    turn.spent.spans.append(Span("model", request.model, began, turn.spent.now(), reply.usage, reply.cost))
    calls = _make_arguments_valid(reply.message)
    text = (reply.message.get("content") or "").strip()
    if calls or text or reply.attachments:
        # An answer of attachments only is kept with their names as its text.
        named = "\n".join(f"[{one.name}]" for one in reply.attachments)
        noted = {} if calls or text else {"content": named}
        turn.history.add_assistant({**reply.message, **noted})
    for one in turn.observers:
        await one.after_model(_restore_raw_arguments(reply, calls))
    return reply, calls


def _count_failed(turn: Turn, call: ModelCall, began: float) -> None:
    turn.spent.spans.append(Span("model", call.request.model, began, turn.spent.now(), is_error=True))
    turn.spent.add_failed(call)


def _tell_delta(turn: Turn) -> Callable[[float, Mapping[str, object]], None] | None:
    """Return a function that passes each delta to the observers that want deltas; None if no observer wants deltas."""
    readers = [one for one in turn.observers if one.wants_deltas]

    def tell(at: float, delta: Mapping[str, object]) -> None:
        for one in readers:
            one.delta(at, delta)

    return tell if readers else None


def _keep_partial(turn: Turn, call: ModelCall, *, failed: bool) -> None:
    """Add the text of a failed or cancelled model call to the history, as an answer without tool calls.

    If a failed call brought no text, remove the user message that the call had to answer. A provider may have refused this
    message (for its length or its content), and would then refuse every later request with this message.
    """
    text = call.shown
    if text.strip():
        turn.history.add_assistant({"role": "assistant", "content": text})
    elif failed:
        turn.history.withdraw_question()


def _make_arguments_valid(message: dict[str, Any]) -> list[SentCall]:
    """Replace the arguments of each tool call in `message` by valid JSON, since later requests repeat these calls.

    Returns the calls as the model sent them.
    """
    calls: list[SentCall] = []
    for call in message.get("tool_calls", ()):
        sent = SentArguments(call["function"]["arguments"])
        calls.append(SentCall(call["id"], call["function"]["name"], sent))
        call["function"]["arguments"] = sent.stored()
    return calls


def _restore_raw_arguments(reply: Reply, calls: list[SentCall]) -> Reply:
    """Return the reply with the original arguments of the model, for observers that show or record the reply."""
    stored = reply.message.get("tool_calls") or []
    pairs = list(zip(stored, calls, strict=True))
    if all(call["function"]["arguments"] == sent.arguments.raw for call, sent in pairs):
        return reply
    raw = [
        {**call, "function": {**call["function"], "arguments": sent.arguments.raw}} for call, sent in pairs
    ]
    return replace(reply, message={**reply.message, "tool_calls": raw})
