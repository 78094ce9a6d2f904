"""One turn's state, and its model calls: the limits, the request, the reply into the history."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

from .. import conversation, models
from .. import results as images
from .. import text as hiding
from ..conversation import History, merge_user_messages
from ..events import (
    Event,
    ModelCallFailed,
    Observers,
    Reply,
    Request,
    Span,
    StopReason,
    ToolResult,
    Usage,
)
from ..models import ModelCall, note, takes_no_tool_choice
from ..tools import SentArguments
from .config import Approver, Config
from .permissions import Allowed


class TurnEnded(Exception):
    """The turn ends early with `reason`; `error` is the text for a runtime error."""

    def __init__(self, reason: StopReason, error: str | None = None) -> None:
        super().__init__(error or reason)
        self.reason = reason
        self.error = error


def _go_on() -> None:
    return None


@dataclass
class Turn:
    """The state of one turn, filled as it goes, so that a cancelled turn leaves what it had."""

    config: Config
    history: History
    prompt: str
    emit: Callable[[Event], Awaitable[None]]
    session_allowed: Allowed
    observers: Observers = field(default_factory=Observers)
    approver: Approver = "nobody"
    """Who is asked about its calls."""
    lasting: bool = True
    """Whether the session goes on after this turn, so that something can be allowed for all of it."""
    checkpoint: Callable[[], None] = _go_on
    """Raises CancelledError when the turn is to stop: a tool may have swallowed the one that it was sent."""
    run_allowed: Allowed = field(default_factory=Allowed)
    started: float = field(default_factory=time.monotonic)
    usage: Usage = Usage()
    cost: float | None = 0.0
    """US dollars; None as soon as one request's are not known."""
    known_cost: float = 0.0
    """What is known of it, for `max_cost`."""
    spans: list[Span] = field(default_factory=list)
    tool_calls: int = 0
    final_text: str = ""
    output: Any = None
    output_problem: str | None = None
    output_attempts: int = 0
    denied: Counter[str] = field(default_factory=Counter)
    note: str | None = None
    """What a person should know of how it ended: an answer that was cut off, a tool whose thread could not be stopped."""
    unsent: ToolResult | None = None
    """The result of a call between its end and its event."""
    at_work: tuple[str, float] | None = None
    """(call id, since when) of the function that was started last."""
    tools_closed: bool = False
    """Whether the model may call no more tools (the closing answer after a limit, the JSON at the end)."""

    def __post_init__(self) -> None:
        """Whatever this turn is shown with, its keys are not in it."""
        _, secrets = self.config.completion_options()
        hiding.remember(hiding.find_environment_keys())
        hiding.remember(text for name, value in secrets.items() for text in hiding.find_keys(name, value))

    def now(self) -> float:
        """Seconds since the turn began."""
        return time.monotonic() - self.started

    @functools.cached_property
    def pictures_go(self) -> images.PicturePlace | None:
        """Where this turn's model reads pictures of results, or None."""
        config = self.config
        return models.way_for(config.route.model, config.options.images, config.route.answers)


def make_request(turn: Turn, *, in_words: bool = True) -> Request:
    """The next model call, exactly as it will be sent."""
    options, secrets = turn.config.completion_options()
    model, tools = turn.config.route.model, [tool.spec for tool in turn.config.tools]
    if turn.config.output is not None and not in_words:
        options["response_format"] = turn.config.output.response_format()
    if turn.tools_closed and tools:
        # The tools stay in the request: Anthropic refuses a history with calls without them.
        options.pop("tool_choice", None)
        if takes_no_tool_choice(model, tools):
            options["tool_choice"] = "none"
    messages = merge_user_messages(
        conversation.place_pictures(turn.history.for_request(), lambda: turn.pictures_go)
    )
    return Request(model=model, messages=messages, tools=tools, options=options, secrets=secrets)


async def call_model(
    turn: Turn, *, in_words: bool, limited: bool = True
) -> tuple[Reply, list[SentArguments]]:
    """One model call, into the history; returns the reply and each call's arguments as the model sent them, parsed.

    Raises TurnEnded for a limit (with `limited`) and for an answer that cannot be one, ModelCallFailed.
    """
    if limited:
        _check_limits(turn)
    request = make_request(turn, in_words=in_words)
    await turn.observers.before_model(request)
    turn.checkpoint()
    call = ModelCall(
        request, turn.emit, on_delta=turn.observers.delta if turn.observers.wants_deltas else None
    )
    began = turn.now()
    try:
        reply = await call.run()
    except BaseException as error:
        turn.spans.append(Span("model", request.model, began, turn.now(), is_error=True))
        _count_untold(turn, call)
        _keep_partial(turn, call, failed=isinstance(error, ModelCallFailed))
        if isinstance(error, ModelCallFailed):
            await turn.observers.model_failed(error)
        raise
    turn.usage += reply.usage
    turn.cost = None if turn.cost is None or reply.cost is None else turn.cost + reply.cost
    turn.known_cost += reply.known_cost
    turn.spans.append(Span("model", request.model, began, turn.now(), reply.usage, reply.cost))
    as_sent = _make_arguments_valid(reply.message)
    calls, text = reply.message.get("tool_calls"), (reply.message.get("content") or "").strip()
    if calls or text or reply.attachments:
        noted = {} if calls or text else {"content": note(reply.attachments)}
        turn.history.add_assistant({**reply.message, **noted})
    await turn.observers.after_model(_as_it_came(reply, as_sent))
    if not calls:
        _check_answer(turn, reply, text)
    return reply, as_sent


def _check_limits(turn: Turn) -> None:
    limits = turn.config.options
    if turn.usage.calls >= limits.max_model_calls:
        raise TurnEnded("max_model_calls", f"stopped after {limits.max_model_calls} model calls in one turn")
    if limits.max_cost is not None and turn.known_cost >= limits.max_cost:
        raise TurnEnded("max_cost", f"stopped at ${turn.known_cost:.4f}: max_cost is ${limits.max_cost}")


def _check_answer(turn: Turn, reply: Reply, text: str) -> None:
    """An answer that the provider stopped, or that is none, ends the turn; one that was only cut off gets a note."""
    problem = _problem(turn, reply, text)
    if problem and not (text or reply.attachments):
        turn.history.withdraw_question()
    if problem:
        turn.final_text = text
        raise TurnEnded("runtime_error", problem)
    if reply.finish_reason == "length":
        turn.note = "the answer was cut off by the token limit. Raise max_tokens (--set max_tokens=…)."


def _problem(turn: Turn, reply: Reply, text: str) -> str:
    """Why this reply without calls is no answer, or ""."""
    if reply.finish_reason == "content_filter":
        return "the provider's content filter stopped the answer. Rephrase the prompt."
    if text or reply.attachments:
        return ""
    if reply.finish_reason == "length":
        return "the answer is empty: the token limit was reached before any text. Raise max_tokens (--set max_tokens=…)."
    if turn.tool_calls or turn.config.output is not None:
        return ""
    if reply.finish_reason is None:
        return "the server sent no answer at all. Is api_base the address of its API (it often ends in /v1)?"
    return f"the model sent an empty answer (finish_reason {reply.finish_reason!r}). Run again, or try another model."


def _count_untold(turn: Turn, call: ModelCall) -> None:
    """A call that was cut has been made, and is paid for, though nobody tells how much it was."""
    turn.usage += Usage(calls=call.untold)
    if call.untold and not call.is_free:
        turn.cost = None


def _keep_partial(turn: Turn, call: ModelCall, *, failed: bool) -> None:
    """Keep the text that had arrived when a call was cut: in the history as an answer, calls that were half sent not.

    A call that failed with nothing to keep takes its question with it, as an answer that is none does: one that the
    provider refuses (too long, a content filter) would have every later request refused.
    """
    text = call.shown
    if text.strip():
        turn.history.add_assistant({"role": "assistant", "content": text})
    elif failed:
        turn.history.withdraw_question()


def _as_it_came(reply: Reply, as_sent: list[SentArguments]) -> Reply:
    """The reply with its calls' arguments as the model wrote them, for whoever shows or records it."""
    calls = reply.message.get("tool_calls") or []
    if all(call["function"]["arguments"] == sent.raw for call, sent in zip(calls, as_sent, strict=True)):
        return reply
    raw_calls = [
        {**call, "function": {**call["function"], "arguments": sent.raw}}
        for call, sent in zip(calls, as_sent, strict=True)
    ]
    return replace(reply, message={**reply.message, "tool_calls": raw_calls})


def _make_arguments_valid(message: dict[str, Any]) -> list[SentArguments]:
    """Let every stored call have a JSON object for arguments, since they are replayed; returns them as they were sent."""
    as_sent: list[SentArguments] = []
    for call in message.get("tool_calls", ()):
        sent = SentArguments(call["function"]["arguments"])
        as_sent.append(sent)
        call["function"]["arguments"] = sent.stored()
    return as_sent
