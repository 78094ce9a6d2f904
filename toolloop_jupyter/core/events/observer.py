"""The one seam through which a view watches and holds the loop without the loop knowing it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .errors import ModelCallFailed
    from .events import ToolCall
    from .request import Reply, Request


class Observer:
    """Called around the loop's steps; every method does nothing by default.

    The awaited ones may hold the run (step mode does), and may raise `asyncio.CancelledError` to end it.
    """

    tap: Callable[[float, Mapping[str, Any]], None] | None = None
    """Takes every delta of the model as plain data, with the monotonic time in seconds; recording uses it."""

    steps_aside = False
    """Whether a view may take its place."""

    async def before_model(self, request: Request) -> None:
        """A model call is about to go out, exactly as `request` stands."""

    async def after_model(self, reply: Reply) -> None:
        """The model call came back whole."""

    async def model_failed(self, error: ModelCallFailed) -> None:
        """The model call failed for good; this is what the person is told."""

    async def before_call(self, call: ToolCall, arguments: Mapping[str, object]) -> None:
        """A call with these validated arguments (JSON form) is about to be asked about, or else to run."""

    async def before_tool(self, call: ToolCall, arguments: Mapping[str, object]) -> None:
        """The function is about to run with these validated arguments (JSON form); approval is already given."""

    def running(self, call: ToolCall) -> AbstractContextManager[object]:
        """Entered around the function's own run, in the context that it runs in.

        str() of what it gives is the text that the tool printed, for `@tool(capture_output=True)`; None if not kept.
        """
        return nullcontext()

    def item(self, call: ToolCall, item: object) -> None:
        """A generator tool has made one more item. May be called from the tool's thread."""

    def progress(self, call: ToolCall, progress: Progress) -> None:
        """A tool has reported how far it is. May be called from the tool's thread."""


@dataclass(frozen=True)
class Progress:
    """How far a running tool is."""

    done: float
    """In the tool's own units: items, bytes, per cent."""
    total: float | None = None
    """In the same units; None when the tool does not know."""
    note: str = ""
