"""What a run says while it goes on, and what it leaves behind.

Names, fields and meanings are those of `litellm.harness` 1.110; fields after the comment "ours" are additions
with defaults, so code written for LiteLLM's events reads these, and `show()` reads LiteLLM's.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

from . import checks
from .attachments import Attachment
from .foreign import is_exactly, told
from .frozen import frozen, same_json, thawed
from .hiding import hide, hide_in_repr

StopReason: TypeAlias = Literal[
    "done", "max_turns", "timeout", "cancelled", "runtime_error", "max_model_calls", "max_cost"
]
FileChangeKind: TypeAlias = Literal["created", "modified", "deleted"]
DecidedBy: TypeAlias = Literal["click", "prompt", "policy", "callback", "stream", "unattended", "stop"]
Scope: TypeAlias = Literal["call", "run", "session"]


@dataclass(frozen=True)
class Usage:
    """Tokens and model calls of a turn or a session, as the provider reported them."""

    input_tokens: int = 0
    output_tokens: int = 0
    calls: int = 0
    """Model calls, not tool calls."""

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.calls + other.calls,
        )


@dataclass(frozen=True)
class Text:
    """A piece of the model's text, as it arrives (LiteLLM's loop sends whole messages instead)."""

    delta: str


@dataclass(frozen=True)
class Reasoning:
    """A piece of the model's reasoning, as it arrives."""

    delta: str


@dataclass(frozen=True)
class ToolCall:
    """The model asks for a tool. Comes before validation; `input` is what it sent, {} when that was no JSON object."""

    id: str
    name: str
    """The name in the notebook; for a made-up tool, what the model wrote."""
    native_name: str
    """The name as it goes over the wire (differs where the notebook's is not a valid tool name)."""
    input: Mapping[str, object]
    builtin: bool = True
    """Whether it is a tool of the harness itself (LiteLLM's default); the Tool Loop's are functions, and never are."""


@dataclass(frozen=True)
class Decision:
    """What was decided about one call, by whom, when."""

    allowed: bool
    reason: str = ""
    arguments: Mapping[str, object] | None = None
    """The edited arguments (JSON form), or None when the call was allowed as it stood."""
    by: DecidedBy = "stream"
    scope: Scope = "call"
    """"run" or "session": the person allowed all further calls of this tool for so long."""
    at: float = field(default_factory=time.time)
    """Seconds since the epoch."""


def _accept_anything(arguments: Mapping[str, object]) -> None: ...


@dataclass(frozen=True)
class Approval:
    """A request to run a tool. The turn waits until `allow()` or `deny()` is called; the first one counts.

    `input` is a snapshot of the validated arguments in JSON form; it cannot be changed.
    """

    tool: str
    input: Mapping[str, object]
    _waiting: list[asyncio.Future[tuple[bool, str]]] = field(default_factory=list, compare=False, repr=False)
    """One for each `wait()` that goes on, on whatever loop: an Approval itself can be made without any."""
    # ours
    call_id: str = ""
    description: str = ""
    source: str = field(default="", compare=False, repr=False)
    """The function's source code, or "" where there is none."""
    schema: Mapping[str, object] = field(default_factory=dict, compare=False, repr=False)
    """The JSON schema of the arguments, for an edit form."""
    why: str = ""
    """Why somebody is asked, e.g. "permissions are 'ask'"."""
    check: Callable[[Mapping[str, object]], Any] = field(default=_accept_anything, compare=False, repr=False)
    """Validates edited arguments by the code that validates a call, and gives the call that will run (with its arguments
    as `.json`); raises ValueError with the model's-eye message."""
    scopes: tuple[Scope, ...] = field(default=("call", "run"), compare=False, repr=False)
    """How far it may reach: "session" where the conversation goes on, "call" alone where the function may change unseen."""
    editable: bool = field(default=True, compare=False, repr=False)
    """Whether edited arguments can reach the tool: those of another runtime's request cannot."""
    number: int = field(default=0, compare=False)
    """Which tool call of the turn this is, from 1; 0 when nobody has counted."""
    _state: dict[str, Any] = field(
        default_factory=lambda: {"lock": threading.Lock()}, compare=False, repr=False
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "input", frozen(dict(self.input)))

    def allow(
        self,
        arguments: Mapping[str, object] | None = None,
        *,
        by: DecidedBy = "stream",
        scope: Scope = "call",
    ) -> None:
        """Let the call run: as shown, or with edited `arguments`. A `scope` that is not among `scopes` is "call".

        Raises ValueError, and decides nothing, when these do not validate, or for another scope. From any thread.
        """
        call, edited = None, None
        if not is_exactly(scope, "call", "run", "session"):
            raise ValueError(f"scope must be 'call', 'run' or 'session', got {told(scope)}")
        if arguments is not None and not self.editable:
            raise ValueError("this request cannot be run with other arguments; allow() or deny() it as it is")
        if arguments is not None:
            call = self.check(given := thawed(dict(arguments)))
            edited = frozen(made if isinstance(made := getattr(call, "json", None), dict) else given)
            if same_json(edited, self.input):
                call, edited = None, None
        self._decide(Decision(True, "", edited, by, scope if scope in self.scopes else "call"), call)

    def deny(self, reason: str = "", *, by: DecidedBy = "stream") -> None:
        """Refuse the call; `reason` reaches the model. From any thread."""
        self._decide(Decision(False, reason, by=by))

    @property
    def answered(self) -> bool:
        return "decision" in self._state

    @property
    def decision(self) -> Decision | None:
        """The decision, or None while nobody has decided."""
        decided: Decision | None = self._state.get("decision")
        return decided

    @property
    def edited_call(self) -> Any:
        """What `check` made of the edited arguments, the very values that run; None when they are as shown."""
        return self._state.get("call")

    async def wait(self) -> tuple[bool, str]:
        """(allowed, reason), once decided."""
        future: asyncio.Future[tuple[bool, str]] = asyncio.get_running_loop().create_future()
        with self._state["lock"]:
            self._waiting.append(future)
            decision = self.decision
        if decision is not None:
            return decision.allowed, decision.reason
        return await future

    def _decide(self, decision: Decision, call: object = None) -> None:
        with self._state["lock"]:
            if "decision" in self._state:
                return  # a second click, a late click, a click after Stop
            self._state.update(decision=decision, call=call)
            waiting = list(self._waiting)
        # A click may come on a kernel subshell's thread (facts: ipykernel 7), so the loop has to be woken.
        for future in waiting:
            with contextlib.suppress(RuntimeError):  # a loop that is closed: nobody waits any more
                future.get_loop().call_soon_threadsafe(_wake, future, decision)


def _wake(future: asyncio.Future[tuple[bool, str]], decision: Decision) -> None:
    if not future.done():
        future.set_result((decision.allowed, decision.reason))


@dataclass(frozen=True)
class ToolResult:
    """What came of one tool call. `output` is exactly the text that the model gets."""

    id: str
    output: str
    is_error: bool = False
    # ours
    value: Any = field(default=None, compare=False, repr=False)
    """The live object that the function returned."""
    seconds: float = field(default=0.0, compare=False)
    """How long the function ran; 0.0 when it did not."""
    traceback: str = field(default="", compare=False, repr=False)
    """For a person: the traceback of the function's own exception, cut to the person's code."""
    full_length: int = field(default=0, compare=False)
    """Characters of the whole text before it was cut for the model; equal to len(output) when it was not."""
    ran: bool = field(default=False, compare=False)
    """Whether the function was started."""
    pictures: tuple[str, ...] = field(default=(), compare=False, repr=False)
    """Data addresses of the pictures that the model gets beside `output`; empty when it takes none."""
    decision: Decision | None = field(default=None, compare=False, repr=False)
    """By whose decision it ran or did not, also by an earlier approval of all calls; None when nothing had to be decided."""


@dataclass(frozen=True)
class FileChange:
    """A file of the sandbox folder that changed during the turn. `diff` is a unified diff, None for binary files."""

    path: str
    kind: FileChangeKind
    diff: str | None = None


@dataclass(frozen=True)
class Compaction:
    """A harness has shortened its conversation, from and to so many tokens. LiteLLM's; the Tool Loop never does."""

    tokens_before: int | None = None
    tokens_after: int | None = None


@dataclass(frozen=True)
class Retry:
    """Ours: a model call failed and is tried again.

    `discard` is streamed text that no longer holds ("" mostly: a try that repeats the beginning goes on behind it).
    """

    attempt: int
    error: str
    discard: str = ""


@dataclass(frozen=True)
class Span:
    """Ours: one model call or tool call on the run's time line. Times in seconds since the turn began."""

    kind: Literal["model", "tool", "approval"]
    name: str
    start: float
    end: float
    usage: Usage = Usage()
    cost: float | None = None
    is_error: bool = False


class Presenter(Protocol):
    """Shows Results to people."""

    def display(self, result: Result) -> None: ...

    def bundle(self, result: Result) -> Mapping[str, str]: ...

    def markdown(self, result: Result) -> str: ...

    def diagram(self, result: Result) -> Any: ...


@dataclass(frozen=True)
class Result:
    """What a turn leaves. `text` is the final answer, or the partial one with the error behind it."""

    text: str
    output: Any
    """The validated `output=` instance, or None."""
    files: list[FileChange]
    events: list[Event]
    usage: Usage
    cost: float | None
    """US dollars; None when nobody told the price (never 0.0 for "unknown")."""
    stop_reason: StopReason
    session_id: str
    # ours
    error: str | None = None
    """For `runtime_error`: one line that says what failed and what to set."""
    model: str = ""
    prompt: str = ""
    spans: tuple[Span, ...] = field(default=(), compare=False, repr=False)
    output_attempts: int = 0
    """How many answers were read before `output` validated (0 without `output=`)."""

    presenter: ClassVar[Presenter | None] = None
    """How a Result looks in a notebook; the notebook layer sets it, since the core knows no notebook."""

    @property
    def calls(self) -> list[ToolCall]:
        """The tool calls, in order."""
        return [event for event in self.events if isinstance(event, ToolCall)]

    @property
    def tool_results(self) -> list[ToolResult]:
        """The results, one for each of `calls`, in the same order; `.value` is the live object."""
        return [event for event in self.events if isinstance(event, ToolResult)]

    @property
    def approvals(self) -> list[Approval]:
        return [event for event in self.events if isinstance(event, Approval)]

    def assert_called(
        self,
        tool: checks.Tool,
        arguments: Mapping[str, Any] | None = None,
        /,
        *,
        times: int | None = None,
        **more: Any,
    ) -> ToolCall | None:
        """Check that the model called this tool (a name, or the function); gives the first such call.

        The arguments, by name or as a dict, must be among the call's own. `times` wants exactly so many such calls.
        Raises AssertionError with what was called instead; TypeError for arguments that are no dict. A call counts
        whether or not it succeeded (`tool_results[i].is_error` tells).
        """
        if arguments is not None and not isinstance(arguments, Mapping):
            raise TypeError(hide(f"write assert_called(tool, name=value, times=count), not {arguments!r}"))
        return checks.assert_called(self.calls, tool, times, {**(arguments or {}), **more})

    def assert_not_called(
        self, tool: checks.Tool, arguments: Mapping[str, Any] | None = None, /, **more: Any
    ) -> None:
        """Check that the model did not call this tool (with these arguments). Raises AssertionError with the calls."""
        checks.assert_not_called(self.calls, tool, {**(arguments or {}), **more})

    def assert_order(self, *tools: checks.Tool) -> None:
        """Check that these tools were called in this order, others between them or not."""
        checks.assert_order(self.calls, tools)

    def diagram(self) -> Any:
        """A picture of the run for a notebook: who spoke when, and how long each call took."""
        if self.presenter is None:
            raise RuntimeError("diagram() needs a notebook: import toolloop_jupyter.api first")
        return self.presenter.diagram(self)

    def _ipython_display_(self) -> None:
        if self.presenter is None:
            print(repr(self))  # noqa: T201 - what IPython would do
        else:
            self.presenter.display(self)

    def _repr_html_(self) -> str:
        """The run's transcript as safe, self-contained HTML."""
        return "" if self.presenter is None else self.presenter.bundle(self)["text/html"]

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Mapping[str, str]:
        """The run's transcript as "text/html" and "text/plain"."""
        return {"text/plain": repr(self)} if self.presenter is None else self.presenter.bundle(self)

    def to_markdown(self) -> str:
        """The run's transcript as Markdown that is safe to show anywhere."""
        return hide(self.text) if self.presenter is None else self.presenter.markdown(self)


@dataclass(frozen=True)
class Done:
    """The last event of every turn."""

    result: Result

    @property
    def usage(self) -> Usage:
        return self.result.usage

    @property
    def cost(self) -> float | None:
        return self.result.cost

    @property
    def stop_reason(self) -> StopReason:
        return self.result.stop_reason


for _made in (Text, Reasoning, ToolCall, Decision, Approval, ToolResult, FileChange, Retry, Span, Result):
    hide_in_repr(_made)

_Part: TypeAlias = Text | Reasoning | Attachment
Event: TypeAlias = _Part | ToolCall | Approval | ToolResult | FileChange | Retry | Done
