"""What the loop calls outside of itself: an `Observer` sees its steps; a `Host` is the place where it runs (a notebook)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from ..text import settle_lines
from .result import Presenter

if TYPE_CHECKING:
    from .approval import Approval
    from .errors import ModelCallFailed
    from .events import Reply, Request, ToolCall, ToolResult
    from .result import Result

T = TypeVar("T")
Sink: TypeAlias = Callable[[str, Any], None]
"""Takes output: ("stdout" or "stderr", a text) or ("display", a MIME bundle). It may be called from any thread."""
RunSync: TypeAlias = Callable[[Callable[[], Coroutine[object, None, Any]]], Any]
"""Takes a function that makes a coroutine; runs the coroutine to its end from sync code and returns its value."""


@dataclass(frozen=True)
class Progress:
    """How far a running tool is."""

    done: float
    """In the tool's own units: items, bytes, per cent."""
    total: float | None = None
    """In the same units; None when the tool does not know."""
    note: str = ""


class Observer:
    """Its methods are called around the loop's steps; by default they do nothing.

    The async methods may let the run wait (step mode does), and may raise `asyncio.CancelledError` to end the run.
    """

    wants_deltas = False
    """True if `delta` is to be called. That takes time for each piece of an answer."""
    wants_output = False
    """True if `output` is to be called. The prints and displays of tools then go to this method only."""

    async def before_model(self, request: Request) -> None:
        """A model call is about to be made, with exactly this `request`."""

    def delta(self, at: float, delta: Mapping[str, object]) -> None:
        """A piece of the answer has come. `delta` is plain data; `at` is the monotonic time in seconds."""

    async def after_model(self, reply: Reply) -> None:
        """The model call has brought a complete `reply`."""

    async def model_failed(self, error: ModelCallFailed) -> None:
        """The model call failed after its retries; `error` is the error that the person sees."""

    async def before_call(self, call: ToolCall, arguments: Mapping[str, object]) -> None:
        """A tool call with these validated `arguments` (JSON data) is next. Then a person is asked about it, or it runs."""

    async def before_tool(self, call: ToolCall, arguments: Mapping[str, object]) -> None:
        """The function is about to run with these validated `arguments` (JSON data). Approval is already given."""

    def after_call(self, call: ToolCall, result: ToolResult) -> None:
        """A tool call has its `result`: what the function returned, or why it did not run."""

    def output(self, call: ToolCall, kind: str, payload: Any) -> None:
        """The tool has printed a text or displayed a MIME bundle. May come from the tool's thread, and after the call's end."""

    def item(self, call: ToolCall, item: object) -> None:
        """A generator tool has made one more item. May be called from the tool's thread."""

    def progress(self, call: ToolCall, progress: Progress) -> None:
        """A tool has reported how far it is. May be called from the tool's thread."""


class Gate:
    """Limits that several runs at the same time share: for the pace and cost of their requests, and so that they use a tool
    or ask the person one after the other. This class sets no limits.
    """

    retries: int | None = None
    """How often a failed model call is tried again if `num_retries` is not given. None leaves that to LiteLLM."""

    def find_limit(self) -> str:
        """Return why no more model calls may be made; "" if they may."""
        return ""

    async def enter(self) -> None:
        """Wait until a request may be sent. `leave` is called when the request has ended in any way."""

    def leave(
        self, status: int | None = None, wait: float | None = None, said: str = "", *, is_last: bool = True
    ) -> float | None:
        """A request has ended. `status` is 200 if it was answered, else the status of its error, or None if there is none.

        `wait` is how many seconds the server asks to wait; `said` is the text of its error; `is_last` is False if a
        `fallback` is asked after a failure. Returns None, or the seconds that all runs have to wait now. After them, `enter`
        lets the same request be sent again, and that does not count as a try of the model call.
        """
        return None

    def add_cost(self, cost: float) -> None:
        """A model call has cost `cost` US dollars, as far as that is known."""

    def use_tool(
        self, function: Callable[..., object], *, parallel: bool
    ) -> AbstractAsyncContextManager[object]:
        """Return a context for one call of a tool, whose function is `function`. The loop enters it around the call."""
        return nullcontext()

    def ask_person(self) -> AbstractAsyncContextManager[object]:
        """Return a context for one request to a person. The loop enters it around the request."""
        return nullcontext()


class PrintKeeper:
    """Keeps what one tool call prints, for `@tool(capture_output=True)`. `str(keeper)` is the text for the model."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def take(self, kind: str, payload: Any) -> None:
        """Take a piece of output. This method is a `Sink`."""
        if kind != "display":
            self._texts.append(payload)

    def __str__(self) -> str:
        return settle_lines("".join(self._texts))

    @property
    def pictures(self) -> list[bytes]:
        """The pictures that were displayed, as PNG or JPEG."""
        return []


class Host(Presenter):
    """The place where a run happens: here, plain Python. A notebook's host knows the kernel, its cells and the person."""

    def run_sync(self, make: Callable[[], Coroutine[object, None, T]]) -> T:
        """Run `make()` to its end from sync code and return what it returns."""
        return asyncio.run(make())

    def one_loop(self) -> RunSync:
        """Return a function like `run_sync` for the steps of one stream: all its calls use the same event loop."""
        loop = asyncio.new_event_loop()
        return lambda make: loop.run_until_complete(make())

    def attend(self, *, may_ask: bool) -> AbstractAsyncContextManager[object]:
        """Return a context for one turn, in which a notebook gets clicks and interrupts. `may_ask`: a person may be asked."""
        return nullcontext()

    async def stopped(self, error: asyncio.CancelledError) -> None:
        """Awaited just before a stopped turn raises `error` in the code that awaits the turn."""

    def finished(self, result: Result) -> None:
        """Called with the Result of each turn, however it ended. In a notebook, the newest Result is kept."""

    def can_ask(self) -> bool:
        """Return whether a person can be asked if there is no `on_approval` and nobody reads the turn's stream."""
        return False

    async def ask(self, approval: Approval) -> None:
        """Ask that person, and return when the request is decided."""

    def capture(self, sink: Sink, *, shown: bool) -> AbstractContextManager[object]:
        """Return a context that gives `sink` the prints and displays of the code inside. Here it captures nothing.

        `shown=False` means that nobody shows what `sink` gets. The output then also goes where it goes without a capture.
        """
        return nullcontext()

    def keeper(self) -> PrintKeeper:
        """Return a new keeper, for the output of one tool call."""
        return PrintKeeper()

    def name_code(self, traceback: str) -> str:
        """Return the traceback with known names for code without a file. A notebook puts in the names of its cells."""
        return traceback
