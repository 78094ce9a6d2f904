"""The objects that the loop calls. An `Observer` sees each step of the loop. A `Gate` limits runs that happen at the same time.
A `Host` connects the loop to the place where it runs, for example to a notebook.
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
    from .events import Reply, Request, ToolCall, ToolResult
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
    """All the work, in the same unit; None if the tool does not know how much it is."""
    note: str = ""


class Observer:
    """The loop calls the methods of each observer before and after its steps. In this class, the methods do nothing.

    The run waits until an async method has ended; step mode uses this to pause the run. An async method may raise
    `asyncio.CancelledError` to end the run.
    """

    wants_deltas = False
    """True if the loop must call `delta`. Each call takes some time, and there is one call for each piece of an answer."""
    wants_output = False
    """True if the loop must call `output`. What tools print or display is then passed to `output` and not shown elsewhere."""

    def before_import(self) -> bool:
        """Called before the run waits for the import of LiteLLM, which takes seconds, and happens once in a process.

        Return True if this observer tells the person about the wait. If no observer does, `Host.importing` is called.
        """
        return False

    async def before_model(self, request: Request) -> None:
        """Called before each model call. Exactly this `request` will be sent."""

    def delta(self, at: float, delta: Mapping[str, object]) -> None:
        """Called for each piece of an answer. `delta` is plain data; `at` is the monotonic time in seconds."""

    async def after_model(self, reply: Reply) -> None:
        """Called after a model call that succeeded. `reply` is complete."""

    async def model_failed(self, error: ModelCallFailed) -> None:
        """Called after a model call and all its retries have failed. The person sees `error`."""

    async def before_call(self, call: ToolCall, arguments: Mapping[str, object]) -> None:
        """Called before a person is asked about a tool call, or before the call runs without a question.

        `arguments` are the validated arguments as JSON data.
        """

    async def before_tool(self, call: ToolCall, arguments: Mapping[str, object]) -> None:
        """Called after the tool call was approved and before the function runs.

        `arguments` are the validated arguments as JSON data, with the edits of a person.
        """

    def after_call(self, call: ToolCall, result: ToolResult) -> None:
        """Called after each tool call. `result` says what the function returned, or why the function did not run."""

    def output(self, call: ToolCall, kind: str, payload: Any) -> None:
        """Called when a tool has printed a text or displayed a MIME bundle.

        May be called from the tool's thread, and after the call has ended.
        """

    def item(self, call: ToolCall, item: object) -> None:
        """Called when a tool that is a generator has yielded an item. May be called from the tool's thread."""

    def progress(self, call: ToolCall, progress: Progress) -> None:
        """Called when a tool has reported its progress. May be called from the tool's thread."""


class Observers(tuple[Observer, ...]):
    """The observers of a run. A hook is given as the method of `Observer`, and is called on each observer, in this order."""

    __slots__ = ()

    async def wait_for(
        self, hook: Callable[Concatenate[Observer, P], Awaitable[None]], *facts: P.args, **more: P.kwargs
    ) -> None:
        """Call an async hook of each observer with `facts`, one after another."""
        for one in self:
            await getattr(one, hook.__name__)(*facts, **more)

    def tell(self, hook: Callable[Concatenate[Observer, P], None], *facts: P.args, **more: P.kwargs) -> None:
        """Call a hook of each observer with `facts`."""
        for one in self:
            getattr(one, hook.__name__)(*facts, **more)


class Gate:
    """Limits the pace and the cost of all requests of several runs that happen at the same time.

    A gate also makes sure that only one run at a time calls a certain tool or asks the person. This class sets no limits.
    """

    retries: int | None = None
    """How many times a failed model call is tried again if `num_retries` is not given. None: LiteLLM decides this."""

    def find_limit(self) -> str:
        """Return the reason why no more model calls are allowed; "" if more model calls are allowed."""
        return ""

    async def enter(self) -> None:
        """Wait until a request may be sent. The loop calls `leave` after each request, even if the request failed."""

    def leave(
        self, status: int | None = None, wait: float | None = None, said: str = "", *, is_last: bool = True
    ) -> float | None:
        """Called after each request. Returns how many seconds all runs have to wait now, or None.

        `status` is 200 if the request was answered. If the request failed, `status` is the HTTP status of the error; None
        if the error has no status. `wait` is how many seconds the server asks to wait. `said` is the text of the error.
        `is_last` is False if a `fallback` model is asked after a failure. If a number is returned, the loop calls `enter`
        and sends the same request again. This does not count as a retry of the model call.
        """
        return None

    def add_cost(self, cost: float) -> None:
        """Add the known cost of a model call, in US dollars."""

    def use_tool(
        self, function: Callable[..., object], *, parallel: bool
    ) -> AbstractAsyncContextManager[object]:
        """Return a context for one call of a tool. `function` is the tool's function. The loop runs the call inside this context.

        If `parallel` is True, several runs may call the tool at the same time.
        """
        return nullcontext()

    def ask_person(self) -> AbstractAsyncContextManager[object]:
        """Return a context for one question to the person. The loop asks the question inside this context."""
        return nullcontext()


class PrintKeeper:
    """Stores the text that one call of a tool with `@tool(capture_output=True)` prints. `str(keeper)` is the text for the model."""

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
        """Return a function that does the same as `run_sync`, but runs all its coroutines on one event loop.

        A stream calls the returned function for each of its steps.
        """
        loop = asyncio.new_event_loop()
        return lambda make: loop.run_until_complete(make())

    def attend(self, *, may_ask: bool) -> AbstractAsyncContextManager[object]:
        """Return a context for one turn. Inside this context, a notebook receives clicks and interrupts.

        `may_ask` is True if the turn may ask a person about tool calls.
        """
        return nullcontext()

    def importing(self) -> AbstractContextManager[object]:
        """Return a context. The run waits inside it for the import of LiteLLM. A notebook tells the person about the wait."""
        return nullcontext()

    async def stopped(self, error: asyncio.CancelledError) -> None:
        """Awaited after a turn was stopped, just before `error` is raised in the code that awaits the turn."""

    def finished(self, result: Result) -> None:
        """Called after each turn, even after a turn that failed. A notebook stores the newest `result`."""

    @property
    def ask(self) -> AskPerson | None:
        """The function that asks a person about an approval. None if nobody can be asked.

        Read if there is no `on_approval` and nobody reads the turn's stream.
        """
        return None

    def capture(self, sink: Sink, *, shown: bool) -> AbstractContextManager[object]:
        """Return a context. The prints and displays of the code inside this context are passed to `sink`.

        `shown` is True if `sink` shows the output. If `shown` is False, the output is also shown at its usual place. In this
        class, the context captures nothing.
        """
        return nullcontext()

    def keeper(self) -> PrintKeeper:
        """Return a new PrintKeeper for the output of one tool call."""
        return PrintKeeper()

    def name_code(self, traceback: str) -> str:
        """Return the traceback with readable names for code that is not in a file. A notebook uses the names of its cells."""
        return traceback
