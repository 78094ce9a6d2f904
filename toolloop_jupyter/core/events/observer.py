"""The objects that the loop calls. An `Observer` sees each step of the loop. A `Gate` limits runs that happen at the same time. A
`Host` connects the loop to the place where it runs, for example to a notebook.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from ..text import settle_lines
from .events import Approval
from .result import Presenter

if TYPE_CHECKING:
    from .errors import ModelCallFailed
    from .events import Reply, Request, ToolCall, ToolResult, Usage
    from .result import Result

T = TypeVar("T")
P = ParamSpec("P")
Sink: TypeAlias = Callable[[str, Any], None]
"""Takes a piece of output: ("stdout" or "stderr", a text) or ("display", a MIME bundle). May be called from any thread."""
AskPerson: TypeAlias = Callable[[Approval], Awaitable[None]]
"""Asks a person about an approval, and returns when the decision is made."""
RunSync: TypeAlias = Callable[[Callable[[], Coroutine[object, None, Any]]], Any]
"""Takes a function that returns a coroutine. Runs this coroutine to its end from sync code, and returns its value."""


@dataclass(frozen=True)
class Progress:
    """The progress of a running tool."""

    done: float
    """The work that is done, in a unit that the tool chooses: items, bytes, per cent."""
    total: float | None = None
    """All the work, in the same unit; None if the tool does not know this amount."""
    note: str = ""


class Observer:
    """The loop calls the methods of each observer before and after its steps. In this class, the methods do nothing.

    The run waits for an async method, so step mode can pause the run. An async method may raise CancelledError to end the run.
    `call` is the event of a tool call, and `arguments` are its validated arguments as JSON data.
    """

    wants_deltas = False
    """True if the loop must call `delta`, which takes some time for each piece of an answer."""
    wants_output = False
    """True if what tools print or display must be passed to `output`, and not be shown elsewhere."""

    def before_import(self) -> bool:
        """Called before the run waits some seconds for the import of LiteLLM. Return True if this observer tells the person about
        the wait. If no observer does, `Host.importing` is called.
        """
        return False

    async def before_model(self, request: Request) -> None:
        """Called before each model call. Exactly this `request` will be sent."""

    def delta(self, at: float, delta: Mapping[str, object]) -> None:
        """Called for each piece of an answer. `delta` is plain data. It came at the monotonic time `at`, in seconds."""

    async def after_model(self, reply: Reply) -> None:
        """Called after a model call that succeeded. `reply` is complete."""

    def spent(self, usage: Usage, cost: float | None) -> None:
        """Called after each model call, even if it failed or was cancelled. `usage` and `cost`: the sums of the turn so far."""

    async def model_failed(self, error: ModelCallFailed) -> None:
        """Called after a model call and all its retries have failed. The person sees `error`."""

    async def before_call(self, call: ToolCall, arguments: Mapping[str, object]) -> None:
        """Called before a person is asked about a tool call, or before the call runs without a question."""

    async def before_tool(self, call: ToolCall, arguments: Mapping[str, object]) -> None:
        """Called after the tool call was approved and before the function runs. `arguments` include a person's edits."""

    def after_call(self, call: ToolCall, result: ToolResult) -> None:
        """Called after each tool call. `result` says what the function returned, or why the function did not run."""

    def output(self, call: ToolCall, kind: str, payload: Any) -> None:
        """Called when a tool has printed or displayed `payload` (see `Sink`); perhaps in the tool's thread or after the call."""

    def item(self, call: ToolCall, item: object) -> None:
        """Called when a tool that is a generator has yielded an item; perhaps from the tool's thread."""

    def progress(self, call: ToolCall, progress: Progress) -> None:
        """Called when a tool has reported its progress; perhaps from the tool's thread."""


class Observers(tuple[Observer, ...]):
    """The observers of a run. Each method of this class calls one method of every observer, in the order of the tuple.

    `hook` is this method as an attribute of the class `Observer`, such as `Observer.delta`. `facts` and `more` are its arguments.
    """

    __slots__ = ()

    async def await_hook(
        self, hook: Callable[Concatenate[Observer, P], Awaitable[None]], *facts: P.args, **more: P.kwargs
    ) -> None:
        """Await the async method `hook` of each observer, one after another."""
        for one in self:
            await getattr(one, hook.__name__)(*facts, **more)

    def call_hook(
        self, hook: Callable[Concatenate[Observer, P], None], *facts: P.args, **more: P.kwargs
    ) -> None:
        """Call the method `hook` of each observer."""
        for one in self:
            getattr(one, hook.__name__)(*facts, **more)


class Gate:
    """Several runs may share a gate. A subclass limits the pace and the cost of their requests. This class sets no limits.

    In a subclass, only one run at a time may ask the person, and only one at a time may call a tool that is not `parallel`.
    """

    retries: int | None = None
    """How many times a failed model call is tried again if `num_retries` is not given. None: LiteLLM decides this."""

    def find_limit(self) -> str:
        """Return why no more model calls are allowed; "" if more are allowed."""
        return ""

    async def enter(self) -> None:
        """Wait until a request may be sent. The loop calls `leave` after each request, even if the request failed."""

    def leave(
        self, status: int | None = None, wait: float | None = None, message: str = "", *, is_last: bool = True
    ) -> float | None:
        """Called after each request. Returns None, or how many seconds all runs have to wait now.

        If a number is returned, the same request is sent again; this does not count as a retry of the model call. `status`:
        200, or the HTTP status of the error; None if the error has no status. `wait`: how many seconds the server asks to wait.
        `message`: the text of the error. `is_last`: False if a `fallback` model is asked after a failure.
        """
        return None

    def add_cost(self, cost: float) -> None:
        """Add the known cost of a model call, in US dollars."""

    def use_tool(
        self, function: Callable[..., object], *, parallel: bool
    ) -> AbstractAsyncContextManager[object]:
        """Return a context for one call of a tool. If `parallel` is True, several runs may call the tool at the same time."""
        return nullcontext()

    def ask_person(self) -> AbstractAsyncContextManager[object]:
        """Return a context for one question to the person."""
        return nullcontext()


class PrintKeeper:
    """Stores what one call of a tool with `@tool(capture_output=True)` prints. `str(keeper)` is the text for the model."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def take(self, kind: str, payload: Any) -> None:
        """Store a printed text. This method is a `Sink`."""
        if kind != "display":
            self._texts.append(payload)

    def __str__(self) -> str:
        return settle_lines("".join(self._texts))

    @property
    def pictures(self) -> list[bytes]:
        """The pictures that the tool displayed, as PNG or JPEG. This class stores no pictures."""
        return []


class Host:
    """The place where a run happens. This class is for plain Python; a subclass for notebooks uses the kernel and its cells."""

    presenter = Presenter()
    """Shows the results of the runs."""

    def run_sync(self, make: Callable[[], Coroutine[object, None, T]]) -> T:
        """Run the coroutine that `make()` returns, and return its result. Sync code calls this method."""
        return asyncio.run(make())

    def one_loop(self) -> RunSync:
        """Return a function that does the same as `run_sync`, but runs all coroutines (a stream's steps) on one event loop."""
        loop = asyncio.new_event_loop()
        return lambda make: loop.run_until_complete(make())

    def attend(self, *, may_ask: bool) -> AbstractAsyncContextManager[object]:
        """Return a context for one turn. Inside this context, a notebook receives clicks and interrupts.

        `may_ask`: True if a person may be asked during the turn.
        """
        return nullcontext()

    def importing(self) -> AbstractContextManager[object]:
        """Return the context in which a run waits for the import of LiteLLM. A notebook tells the person about the wait."""
        return nullcontext()

    async def stopped(self, error: asyncio.CancelledError) -> None:
        """Awaited after a turn was stopped, just before `error` is raised in the code that awaits the turn."""

    def finished(self, result: Result) -> None:
        """Called after each turn, even after a turn that failed. A notebook stores the newest `result`."""

    @property
    def ask(self) -> AskPerson | None:
        """The function that asks a person; None if nobody can be asked. `on_approval` or the reader of a stream is asked first."""
        return None

    def capture(self, sink: Sink, *, shown: bool) -> AbstractContextManager[object]:
        """Return a context. `sink` gets what the code inside the context prints or displays; in this class, it gets nothing.

        `shown`: True if `sink` shows the output. If False, the output is also shown at its usual place.
        """
        return nullcontext()

    def keeper(self) -> PrintKeeper:
        """Return a new PrintKeeper for the output of one tool call."""
        return PrintKeeper()

    def name_code(self, traceback: str) -> str:
        """Return the traceback with readable names for code that is not in a file, for example of cells."""
        return traceback
