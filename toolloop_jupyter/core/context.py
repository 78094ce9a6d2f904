"""What a tool may ask for while it runs: a `ToolContext` parameter, hidden from the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Progress:
    """How far a running tool is."""

    done: float
    """In the tool's own units: items, bytes, per cent."""
    total: float | None = None
    """In the same units; None when the tool does not know."""
    note: str = ""


def _nobody_watches(progress: Progress) -> None:
    return None


@dataclass(frozen=True)
class ToolContext:
    """Given to a tool that has a parameter annotated `ToolContext`; the model never sees that parameter.

    `ToolContext()` makes one that reports to nobody, for calling the function by hand.
    """

    call_id: str = ""
    """The id of the model's call, unique in a conversation."""
    report: Callable[[Progress], None] = field(default=_nobody_watches, repr=False, compare=False)
    """Takes what `progress()` is told. Whoever runs the tool sets it; it is called on the tool's thread."""

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Say how far the work is; shown beside the running call. Cheap enough for every step of a loop."""
        self.report(Progress(done, total, note))
