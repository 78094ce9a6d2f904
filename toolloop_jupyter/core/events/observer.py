"""The two seams around the loop's steps: an `Observer` sees them, and a `Host` is the place where the run goes on."""

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
"""Takes ("stdout" or "stderr", text) or ("display", MIME bundle); called from any thread."""
RunSync: TypeAlias = Callable[[Callable[[], Coroutine[object, None, Any]]], Any]
"""Runs the coroutine of a function to its end from sync code, and returns its value."""


@dataclass(frozen=True)
class Progress:
    """How far a running tool is."""

    done: float
    """In the tool's own units: items, bytes, per cent."""
    total: float | None = None
    """In the same units; None when the tool does not know."""
    note: str = ""


class Observer:
    """Called around the loop's steps; every method does nothing by default.

    The awaited ones may hold the run (step mode does), and may raise `asyncio.CancelledError` to end it.
    """

    wants_deltas = False
    """Whether `delta` is called: it costs something for each piece of an answer."""
    wants_output = False
    """Whether `output` is called. A tool's output then goes there, and nowhere else."""

    async def before_model(self, request: Request) -> None:
        """A model call is about to go out, exactly as `request` stands."""

    def delta(self, at: float, delta: Mapping[str, object]) -> None:
        """A piece of the answer has come: plain data, and the monotonic time in seconds."""

    async def after_model(self, reply: Reply) -> None:
        """The model call came back whole."""

    async def model_failed(self, error: ModelCallFailed) -> None:
        """The model call failed after its retries; `error` is the error that the person sees."""

    async def before_call(self, call: ToolCall, arguments: Mapping[str, object]) -> None:
        """A call with these validated arguments (JSON form) comes next: a person is asked about it, or it runs."""

    async def before_tool(self, call: ToolCall, arguments: Mapping[str, object]) -> None:
        """The function is about to run with these validated arguments (JSON form); approval is already given."""

    def after_call(self, call: ToolCall, result: ToolResult) -> None:
        """A call has its result: of its function, or why it did not run."""

    def output(self, call: ToolCall, kind: str, payload: Any) -> None:
        """The tool has printed (its text) or displayed (a MIME bundle). May be called from the tool's thread, also late."""

    def item(self, call: ToolCall, item: object) -> None:
        """A generator tool has made one more item. May be called from the tool's thread."""

    def progress(self, call: ToolCall, progress: Progress) -> None:
        """A tool has reported how far it is. May be called from the tool's thread."""


class Gate:
    """Limits that runs side by side share: the pace of their requests, their cost, and the order in which they use a tool and
    ask the person. This class has no limits.
    """

    retries: int | None = None
    """How often a failed model call is tried again where `num_retries` does not say; None leaves it to LiteLLM."""

    def find_limit(self) -> str:
        """Why no further model call may be made, or ""."""
        return ""

    async def enter(self) -> None:
        """Wait until a request may go out. `leave` follows, however the request ends."""

    def leave(
        self, status: int | None = None, wait: float | None = None, said: str = "", *, is_last: bool = True
    ) -> float | None:
        """A request has ended: answered (status 200), failed, or cut (None).

        `wait`: the seconds that the server asks for; `said`: its error's text; `is_last`: whether no `fallback` is asked if
        the call fails. Returns None, or, if all runs wait now, the seconds after which `enter` lets the same request go out
        once more; that does not count as a try of the call.
        """
        return None

    def add_cost(self, cost: float) -> None:
        """A model call has cost so many US dollars, as far as they are known."""

    def use_tool(
        self, function: Callable[..., object], *, parallel: bool
    ) -> AbstractAsyncContextManager[object]:
        """Entered around each call of a tool, with the tool's function."""
        return nullcontext()

    def ask_person(self) -> AbstractAsyncContextManager[object]:
        """Entered around each request to a person."""
        return nullcontext()


class PrintKeeper:
    """Keeps what one call prints, for `@tool(capture_output=True)`. str() is the text for the model."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def take(self, kind: str, payload: Any) -> None:
        """Take a piece of output, as a `Sink` does."""
        if kind != "display":
            self._texts.append(payload)

    def __str__(self) -> str:
        return settle_lines("".join(self._texts))

    @property
    def pictures(self) -> list[bytes]:
        """The pictures that were displayed, as PNG or JPEG."""
        return []


class Host(Presenter):
    """The place where runs go on. This one is plain Python. A notebook's host knows the kernel, its cells and its person."""

    def run_sync(self, make: Callable[[], Coroutine[object, None, T]]) -> T:
        """Run `make()` to its end from sync code and return what it returns."""
        return asyncio.run(make())

    def one_loop(self) -> RunSync:
        """A function like `run_sync`, whose calls all use one event loop: for the steps of one stream."""
        loop = asyncio.new_event_loop()
        return lambda make: loop.run_until_complete(make())

    def attend(self, *, may_ask: bool) -> AbstractAsyncContextManager[object]:
        """Entered around each turn: a notebook lets clicks and interrupts arrive. `may_ask`: the turn may show a request."""
        return nullcontext()

    async def stopped(self, error: asyncio.CancelledError) -> None:
        """Awaited when a stopped turn is about to raise `error` in the code that awaited it."""

    def finished(self, result: Result) -> None:
        """Called with the Result of each turn, however it ended: a notebook keeps the last one."""

    def can_ask(self) -> bool:
        """Whether a person can be asked where there is no `on_approval` and nobody reads the turn's stream."""
        return False

    async def ask(self, approval: Approval) -> None:
        """Ask that person, until the request is decided."""

    def capture(self, sink: Sink, *, shown: bool) -> AbstractContextManager[object]:
        """Give `sink` the prints and displays of the code inside; here nothing is captured.

        `shown=False`: nobody shows the output that `sink` gets, so it also goes where it would go without the capture.
        """
        return nullcontext()

    def keeper(self) -> PrintKeeper:
        """A new keeper, for the output of one call."""
        return PrintKeeper()

    def name_code(self, traceback: str) -> str:
        """The traceback with names that a person knows for code without a file; a notebook names its cells."""
        return traceback
