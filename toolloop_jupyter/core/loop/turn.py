"""The state, the cost and the model calls of one turn. Each model call has a request, a reply in the history, and a cost."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import NamedTuple, Protocol

from ..conversation import History, Prompt
from ..events import (
    Event,
    Host,
    ModelCallFailed,
    Observer,
    Observers,
    Reply,
    Request,
    Retry,
    Span,
    StopReason,
    ToolCall,
    Usage,
    add_costs,
    thaw,
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
from ..text import remember_secrets
from ..tools import SentArguments, Tool
from .config import Config
from .output import Output, OutputProblem
from .permissions import Permissions

CANCELLED_BEFORE = "This call was cancelled before it ran."


# --- the cost -------------------------------------------------------------------------------------------------


class Spending:
    """The cost and the budget of all runs in this process and in its worker processes. In US dollars."""

    def __init__(self) -> None:
        self.budget: float | None = None
        self.cost = 0.0
        """The known part of the cost."""
        self.usage = Usage()
        self.runs = 0
        """The number of runs that have called a model."""
        self.unknown = 0
        """The number of runs whose cost is unknown, or only partly known."""
        self._lock = threading.Lock()

    def add(self, usage: Usage, cost: float, *, runs: int = 1, unknown: int = 0) -> None:
        """Add the usage and the known cost of a model call, or of a whole run in another process. Any thread may call this.

        `runs` and `unknown` are added to the attributes of the same names.
        """
        if not usage.calls:
            return
        with self._lock:
            self.cost += cost
            self.usage += usage
            self.runs += runs
            self.unknown += unknown

    def limit(self, budget: float | None) -> None:
        """Set the budget of all runs. If it is None, there is no budget."""
        self.budget = budget

    @property
    def left(self) -> float | None:
        """The part of the budget that is left; None if there is no budget."""
        return None if self.budget is None else max(0.0, self.budget - self.cost)

    def explain_limit(self) -> str:
        """Return why the budget allows no further model call; "" if a further model call is allowed."""
        if self.budget is None or self.cost < self.budget:
            return ""
        spent = f"${self.cost:.4f} in {self.runs} run{'s' * (self.runs != 1)}"
        if self.unknown:
            spent += f"; for {self.unknown} of these runs, a part of the cost is unknown and is not counted"
        used_up = f"the budget of ${self.budget:g} for all runs is used up: {spent}"
        return f"{used_up}. Raise it to go on: %toolloop --budget USD"


SPENDING = Spending()


@dataclass(eq=False)
class Spent:
    """The cost of a turn so far: time, tokens, US dollars."""

    started: float = field(default_factory=time.monotonic)
    usage: Usage = Usage()
    cost: float | None = 0.0
    """None if the cost of at least one request is unknown."""
    known_cost: float = 0.0
    """The known part of the cost, for `max_cost`."""
    spans: list[Span] = field(default_factory=list)

    def now(self) -> float:
        """Return the seconds since the turn began."""
        return time.monotonic() - self.started


# --- the state ------------------------------------------------------------------------------------------------


class Outlet(Protocol):
    """Sends the events of a turn, and raises CancelledError in the turn when the turn has to stop."""

    def checkpoint(self) -> None:
        """Raise CancelledError, perhaps again, if the turn has to stop: a tool may have caught an earlier CancelledError."""

    async def emit(self, event: Event) -> None:
        """Send an event, or raise CancelledError if the turn has to stop."""

    def record(self, event: Event) -> None:
        """Send an event, even if the turn has to stop. Never waits."""


class TurnEnd(NamedTuple):
    """How a turn ended."""

    reason: StopReason = "done"
    error: str | None = None
    """A message to the person about a failure or an incomplete answer; None if there is nothing to say."""


class SentCall(NamedTuple):
    """A tool call as the model sent it."""

    id: str
    wire_name: str
    arguments: SentArguments


@dataclass
class Answer:
    """The answer of a turn; while the turn runs, only the part so far."""

    text: str = ""
    output: object = None
    problem: str | None = None
    """Why the last answer does not fit `output=`; None if it fits."""
    attempts: int = 0
    """How many answers were read since the model was asked for `output=`. Each one after the first is a retry."""

    def read(self, output: Output) -> bool:
        """Read the value for `output=` from the text, and return True. If the text does not fit, set `problem`; return False."""
        self.attempts += 1
        try:
            self.output, self.problem = output.read(self.text), None
        except OutputProblem as error:
            self.problem = str(error)
        return self.problem is None


@dataclass
class Turn:
    """The state of one turn. The loop updates this state after each step, so it is right even after a cancel."""

    config: Config
    history: History
    prompt: Prompt
    outlet: Outlet
    permissions: Permissions
    observers: Observers
    streamed: bool
    """True if somebody reads the events of the turn. The reader can answer Approvals."""
    spent: Spent = field(default_factory=Spent)
    answer: Answer = field(default_factory=Answer)
    tool_calls: int = 0
    tools_closed: bool = False
    """True if the model may call no more tools: it must give the last answer (after a limit) or the JSON for `output=`."""
    completion_options: tuple[Mapping[str, object], Mapping[str, object]] = field(init=False)
    """The options of each model call: (the options that may be shown, the secret options)."""

    def __post_init__(self) -> None:
        self._set_completion_options()

    def _set_completion_options(self) -> None:
        """Set the options of the model calls. Remember the API keys in them: every text that leaves the run then hides the keys."""
        self.completion_options = self.config.completion_options()
        remember_secrets(self.completion_options[1])

    def spend(self, span: Span, usage: Usage, cost: float | None, known_cost: float = 0.0) -> None:
        """Add a model call to the cost of the turn and to SPENDING, and tell the observers the cost of the turn."""
        spent = self.spent
        is_first, was_known = not spent.usage.calls, spent.cost is not None
        spent.spans.append(span)
        spent.usage += usage
        spent.known_cost += known_cost
        spent.cost = add_costs(spent.cost, cost)
        SPENDING.add(usage, known_cost, runs=is_first, unknown=was_known and spent.cost is None)
        self.observers.call_hook(Observer.spent, spent.usage, spent.cost)

    def begin_call(self, sent: SentCall, tool: Tool | None) -> ToolCall:
        """Count a tool call, and return its event. Until the call has a result, the history says that this call was cancelled."""
        self.tool_calls += 1
        self.history.answer(sent.id, CANCELLED_BEFORE)
        name = tool.name if tool else sent.wire_name
        return ToolCall(sent.id, name, sent.wire_name, thaw(sent.arguments.parsed), builtin=False)

    def close_tools(self, request: str) -> None:
        """Let the model call no more tools, and ask for its last answer with the user message `request`."""
        self.tools_closed = True
        self.history.add_user(request)

    def switch_to_fallback(self) -> None:
        """Use the next model of `fallback` for the following model calls."""
        self.config = replace(self.config, routes=self.config.fallbacks)
        self.history.change_family(self.config.route.family)
        for cached in ("cache_marks", "asks_in_words", "picture_place"):
            vars(self).pop(cached, None)
        self._set_completion_options()

    @functools.cached_property
    def cache_marks(self) -> Mapping[str, object]:
        """The options that let the provider cache the beginning of the requests.

        They are {} if the model has no tools and this is the first turn. A later request is then not likely, and a request
        that writes to the cache costs more than one that does not.
        """
        before = self.history.starts[-1] if self.history.starts else 0
        if not self.config.tools and before < 2:  # there is no earlier turn, at most a system message
            return {}
        given = self.config.options.completion_kwargs
        return find_cache_marks(self.config.route.model, given, self.history.for_request)

    @functools.cached_property
    def asks_in_words(self) -> bool:
        """True if a user message has to ask for `output=`, because the model takes no `response_format` with tools."""
        output = self.config.output
        specs = [tool.spec for tool in self.config.tools]
        return output is not None and not takes_response_format(
            self.config.route.model, specs, output.response_format()
        )

    @functools.cached_property
    def picture_place(self) -> PicturePlace | None:
        """Where the model gets pictures from tools: in a "tool" or a "user" message; None if it gets no pictures."""
        config = self.config
        return choose_picture_place(config.route.model, config.options.images, config.route.answers)


# --- a model call ---------------------------------------------------------------------------------------------


async def wait_for_import(model: str, host: Host, observers: Iterable[Observer]) -> None:
    """If `model` needs LiteLLM, wait for its import. An observer or the host tells the person about the wait."""
    if must_load(model):
        is_shown = [one.before_import() for one in observers]
        with nullcontext() if any(is_shown) else host.importing():
            await await_litellm()


def make_request(turn: Turn) -> Request:
    """Make the request of the next model call, exactly as it will be sent."""
    shown, secrets = turn.completion_options
    options = thaw(dict(shown))
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


def find_limit(turn: Turn, *, is_closing: bool = False) -> TurnEnd | None:
    """Return how the turn ends if a limit allows no further model call; None if no limit is reached.

    `is_closing`: True for the last answer after a limit. Then only the budget of all runs is checked.
    """
    limits, spent, used_up = turn.config.options, turn.spent, SPENDING.explain_limit()
    if not is_closing:
        if spent.usage.calls >= limits.max_model_calls:
            return TurnEnd(
                "max_model_calls", f"stopped after {limits.max_model_calls} model calls in one turn"
            )
        if limits.max_cost is not None and spent.known_cost >= limits.max_cost:
            return TurnEnd("max_cost", f"stopped at ${spent.known_cost:.4f}: max_cost is ${limits.max_cost}")
        used_up = used_up or turn.config.gate.find_limit()
    return TurnEnd("max_cost", used_up) if used_up else None


async def ask_model(turn: Turn, *, is_closing: bool = False) -> tuple[Reply, list[SentCall]]:
    """Call the model, add its reply to the history, and return (the reply, the tool calls as the model sent them).

    If the call fails, the fallback models are called one after another. Raises ModelCallFailed if all fail, or if a limit
    forbids the next call. `is_closing`: True for the last model call of a turn that has reached a limit.
    """
    readers = Observers(filter(attrgetter("wants_deltas"), turn.observers))
    on_delta = (lambda at, delta: readers.call_hook(Observer.delta, at, delta)) if readers else None
    gate = turn.config.gate
    while True:
        request, is_last = make_request(turn), not turn.config.fallbacks
        await turn.observers.await_hook(Observer.before_model, request)
        turn.outlet.checkpoint()
        call = ModelCall(request, turn.outlet.emit, on_delta=on_delta, gate=gate, is_last=is_last)
        began = turn.spent.now()
        try:
            reply = await call.run()
            break
        except ModelCallFailed as error:
            _add_failed(turn, call, began)
            failure = error
        except BaseException:
            _add_failed(turn, call, began)
            _keep_partial(turn, call)
            raise
        await _go_on_with_fallback(turn, call, failure, is_closing=is_closing)
    span = Span("model", request.model, began, turn.spent.now(), reply.usage, reply.cost)
    turn.spend(span, reply.usage, reply.cost, reply.known_cost)
    gate.add_cost(reply.known_cost)
    calls = _store_reply(turn.history, reply)
    await turn.observers.await_hook(Observer.after_model, reply)
    return reply, calls


def _store_reply(history: History, reply: Reply) -> list[SentCall]:
    """Add `reply` to the history, unless it is empty. Return the reply's tool calls as the model sent them.

    In the history, the arguments of these calls are valid JSON, because later requests send them again.
    """
    calls, stored = [], []
    for one in reply.message.get("tool_calls") or ():
        function = one["function"]
        calls.append(SentCall(one["id"], function["name"], SentArguments(function["arguments"])))
        stored.append({**one, "function": {**function, "arguments": calls[-1].arguments.stored}})
    message = dict(reply.message)
    if calls:
        message["tool_calls"] = stored
    elif not (message.get("content") or "").strip():
        message["content"] = "\n".join(f"[{one.name}]" for one in reply.attachments)
    if calls or not reply.is_empty:
        history.add_assistant(message)
    return calls


def _add_failed(turn: Turn, call: ModelCall, began: float) -> None:
    """Add a failed or cancelled model call to the cost: its time, and how many of its requests the provider may bill."""
    usage = Usage(calls=call.billable)
    span = Span("model", call.request.model, began, turn.spent.now(), is_error=True)
    turn.spend(span, usage, 0.0 if call.is_free or not usage.calls else None)


async def _go_on_with_fallback(
    turn: Turn, call: ModelCall, error: ModelCallFailed, *, is_closing: bool
) -> None:
    """After a failed model call, switch to the next fallback model. Raises ModelCallFailed if none is left, or at a limit."""
    end = find_limit(turn, is_closing=is_closing) if turn.config.fallbacks else None
    if turn.config.fallbacks and end is None:
        failed = turn.config.route.title
        turn.switch_to_fallback()
        await turn.observers.await_hook(Observer.model_failed, error)
        route = turn.config.route
        turn.outlet.record(Retry(1, f"{failed} failed: {error}", call.shown, model=route.next_title))
        await wait_for_import(route.model, turn.config.host, turn.observers)
        return
    if end is not None:
        error = ModelCallFailed(f"{error} No fallback was asked: {end.error}")
    if not _keep_partial(turn, call):
        # The provider may have refused the user's message (for its length, its content), and would refuse it again later.
        turn.history.withdraw_question()
    await turn.observers.await_hook(Observer.model_failed, error)
    raise error from None


def _keep_partial(turn: Turn, call: ModelCall) -> bool:
    """Add the text of a failed or cancelled model call to the history, as an answer. Return False if there is no text."""
    if is_text := bool(call.shown.strip()):
        turn.history.add_assistant({"role": "assistant", "content": call.shown})
    return is_text
