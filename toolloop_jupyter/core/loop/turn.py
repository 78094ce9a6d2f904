"""One turn's state, and its model calls: the request, the reply into the history, what it has cost."""

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
    Span,
    StopReason,
    ToolCall,
    ToolResult,
    ToolStatus,
    Usage,
)
from ..models import ModelCall, find_cache_marks, note, takes_no_tool_choice, takes_response_format, way_for
from ..results import PicturePlace
from ..tools import SentArguments, Tool
from .config import Approver, Config
from .permissions import Permissions


class Outlet(Protocol):
    """Where a turn's events go, and where it learns that it is to stop."""

    def checkpoint(self) -> None:
        """Raises CancelledError when the turn is to stop: a tool may have swallowed the one that it was sent."""

    async def emit(self, event: Event) -> None:
        """Send an event, or raise CancelledError when the turn is to stop."""

    def record(self, event: Event) -> None:
        """Send an event that has to be told in any case; never waits."""


class TurnEnd(NamedTuple):
    """How a turn ended."""

    reason: StopReason = "done"
    error: str | None = None
    """What a person should know of it: what failed, what was cut off."""


class Refusal(NamedTuple):
    """Why a call is not run, as the model is told."""

    message: str
    status: ToolStatus = "refused"
    decision: Decision | None = None


class SentCall(NamedTuple):
    """A call as the model sent it."""

    id: str
    wire_name: str
    arguments: SentArguments


@dataclass
class Call:
    """One tool call on its way, from the ask to its result."""

    asked: ToolCall
    sent: SentCall
    tool: Tool | None
    number: int
    """Which of the turn it is, from 1."""
    decision: Decision | None = None
    """What was decided about it; None when nothing had to be, or has been yet."""
    began: float | None = None
    """When its function was started, by the monotonic clock."""
    left_behind: str = ""
    """What became of a thread that did not end with the call."""

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
        """The result of a call that the turn's end has cut, with what the history says of it."""
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
    """The answer of a turn, as far as there is one."""

    text: str = ""
    output: object = None
    problem: str | None = None
    """Why the last one does not fit `output=`."""
    attempts: int = 0


@dataclass
class Spent:
    """What a turn has cost so far: time, tokens, dollars."""

    started: float = field(default_factory=time.monotonic)
    usage: Usage = Usage()
    cost: float | None = 0.0
    """US dollars; None as soon as one request's are not known."""
    known_cost: float = 0.0
    """What is known of it, for `max_cost`."""
    spans: list[Span] = field(default_factory=list)

    def now(self) -> float:
        """Seconds since the turn began."""
        return time.monotonic() - self.started

    def add(self, reply: Reply) -> None:
        """Count a model call that came back whole."""
        self.usage += reply.usage
        self.cost = None if self.cost is None or reply.cost is None else self.cost + reply.cost
        self.known_cost += reply.known_cost

    def add_untold(self, call: ModelCall) -> None:
        """Count a call that was cut: it has been made, and is paid for, though nobody tells how much it was."""
        self.usage += Usage(calls=call.untold)
        if call.untold and not call.is_free:
            self.cost = None


@dataclass
class Turn:
    """The state of one turn, filled as it goes, so that a cancelled turn leaves what it had."""

    config: Config
    history: History
    prompt: Prompt
    outlet: Outlet
    permissions: Permissions
    observers: tuple[Observer, ...] = ()
    """Who looks on, each called in order."""
    approver: Approver = "nobody"
    """Who is asked about its calls."""
    spent: Spent = field(default_factory=Spent)
    answer: Answer = field(default_factory=Answer)
    tool_calls: int = 0
    tools_closed: bool = False
    """Whether the model may call no more tools (the closing answer after a limit, the JSON at the end)."""

    def __post_init__(self) -> None:
        """Remember the keys of this turn, so that everything that shows it leaves them out."""
        hiding.remember(hiding.find_environment_keys())
        _, secrets = self.completion_options
        hiding.remember(text for name, value in secrets.items() for text in hiding.find_keys(name, value))

    @functools.cached_property
    def completion_options(self) -> tuple[Mapping[str, object], Mapping[str, object]]:
        """(options to show, secrets to hide) of each model call."""
        return self.config.completion_options()

    @functools.cached_property
    def cache_marks(self) -> Mapping[str, object]:
        """What lets the provider keep the beginning of the requests; nothing where no later request is likely to read it.

        Writing into a cache costs more than not to. The next request that begins so is that of the next step, which there
        is with tools, or of the next turn, which there may be where there was one before.
        """
        before = self.history.starts[-1] if self.history.starts else 0
        if not self.config.tools and before < 2:  # a system message alone is no turn
            return {}
        given = self.config.options.completion_kwargs
        return find_cache_marks(self.config.route.model, given, self.history.for_request)

    @functools.cached_property
    def asks_in_words(self) -> bool:
        """Whether `output=` has to be asked for in words, since the model takes no response_format beside tools."""
        output = self.config.output
        if output is None:
            return True
        specs = [tool.spec for tool in self.config.tools]
        return not takes_response_format(self.config.route.model, specs, output.response_format())

    @functools.cached_property
    def picture_way(self) -> PicturePlace | None:
        """Where this turn's model reads pictures of results, or None."""
        config = self.config
        return way_for(config.route.model, config.options.images, config.route.answers)


def make_request(turn: Turn) -> Request:
    """The next model call, exactly as it will be sent."""
    shown, secrets = turn.completion_options
    options = {name: dict(value) if type(value) is dict else value for name, value in shown.items()}
    model, tools = turn.config.route.model, [tool.spec for tool in turn.config.tools]
    if turn.config.output is not None and not (turn.asks_in_words or turn.tools_closed):
        options["response_format"] = turn.config.output.response_format()
    if turn.tools_closed and tools:
        # The tools stay in the request: Anthropic refuses a history with calls without them.
        options.pop("tool_choice", None)
        if takes_no_tool_choice(model, tools):
            options["tool_choice"] = "none"
    options |= turn.cache_marks
    sends_prompts = turn.config.options.images != "never"
    messages = turn.history.for_request(lambda: turn.picture_way, sends_prompts=sends_prompts)
    return Request(model=model, messages=messages, tools=tools, options=options, secrets=dict(secrets))


async def ask_model(turn: Turn) -> tuple[Reply, list[SentCall]]:
    """One model call, into the history; returns the reply and its calls. Raises ModelCallFailed."""
    request = make_request(turn)
    for one in turn.observers:
        await one.before_model(request)
    turn.outlet.checkpoint()
    call, began = ModelCall(request, turn.outlet.emit, on_delta=_tell_delta(turn)), turn.spent.now()
    try:
        reply = await call.run()
    except BaseException as error:
        turn.spent.spans.append(Span("model", request.model, began, turn.spent.now(), is_error=True))
        turn.spent.add_untold(call)
        _keep_partial(turn, call, failed=isinstance(error, ModelCallFailed))
        if isinstance(error, ModelCallFailed):
            for one in turn.observers:
                await one.model_failed(error)
        raise
    turn.spent.add(reply)
    turn.spent.spans.append(Span("model", request.model, began, turn.spent.now(), reply.usage, reply.cost))
    calls = _make_arguments_valid(reply.message)
    text = (reply.message.get("content") or "").strip()
    if calls or text or reply.attachments:
        noted = {} if calls or text else {"content": note(reply.attachments)}
        turn.history.add_assistant({**reply.message, **noted})
    for one in turn.observers:
        await one.after_model(_as_it_came(reply, calls))
    return reply, calls


def _tell_delta(turn: Turn) -> Callable[[float, Mapping[str, object]], None] | None:
    """What tells a piece of an answer to those who want it; None when nobody does."""
    readers = [one for one in turn.observers if one.wants_deltas]

    def tell(at: float, delta: Mapping[str, object]) -> None:
        for one in readers:
            one.delta(at, delta)

    return tell if readers else None


def _keep_partial(turn: Turn, call: ModelCall, *, failed: bool) -> None:
    """Keep the text that had arrived when a call was cut, as an answer in the history. Its tool calls are not kept.

    If a failed call has no text, its question is withdrawn, as after an empty answer: if the provider refuses a question
    (too long, a content filter), it would refuse every later request that has it.
    """
    text = call.shown
    if text.strip():
        turn.history.add_assistant({"role": "assistant", "content": text})
    elif failed:
        turn.history.withdraw_question()


def _make_arguments_valid(message: dict[str, Any]) -> list[SentCall]:
    """Let every stored call have a JSON object for arguments, since they are replayed; returns the calls as they were sent."""
    calls: list[SentCall] = []
    for call in message.get("tool_calls", ()):
        sent = SentArguments(call["function"]["arguments"])
        calls.append(SentCall(call["id"], call["function"]["name"], sent))
        call["function"]["arguments"] = sent.stored()
    return calls


def _as_it_came(reply: Reply, calls: list[SentCall]) -> Reply:
    """The reply with its calls' arguments as the model wrote them, for whoever shows or records it."""
    stored = reply.message.get("tool_calls") or []
    pairs = list(zip(stored, calls, strict=True))
    if all(call["function"]["arguments"] == sent.arguments.raw for call, sent in pairs):
        return reply
    raw = [
        {**call, "function": {**call["function"], "arguments": sent.arguments.raw}} for call, sent in pairs
    ]
    return replace(reply, message={**reply.message, "tool_calls": raw})
