"""What stands at a place in a cell's output: a tool call on its way, an approval card."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from ..core.events import Approval, Decision, ToolCall, ToolResult
from .column import Place
from .printed import Outputs

CATCH_UP = 0.05
"""Seconds that the reader of the stream gets to show what came before something that the loop's own side shows."""
LATE = 0.2
"""Seconds in which what comes late is collected before it is shown."""


class LiveCall:
    """A tool call between its ask and its result."""

    def __init__(self, call: ToolCall, place: Place, number: int) -> None:
        self.call, self.number = call, number
        self.place = place
        self.arguments: Mapping[str, object] | None = None
        self.decision: Decision | None = None
        self.outputs = Outputs()
        self.note = ""
        self.began = time.monotonic()
        self.waiting = False
        self.done = False
        self.result: ToolResult | None = None
        self.show_again: Callable[[ToolResult], None] | None = None
        """Called, from a thread, when something has come after the call's end: a tool may leave a thread behind."""
        self._late: threading.Timer | None = None
        self._seen: object = None

    def __str__(self) -> str:
        return str(self.outputs)

    @property
    def pictures(self) -> list[bytes]:
        """The pictures that the tool has displayed."""
        return self.outputs.pictures

    def has_news(self, delay: float) -> bool:
        """Whether it is worth showing (again) as running: output, a progress note, a second more on the clock."""
        elapsed = time.monotonic() - self.began
        if elapsed < delay:
            return False
        seen, self._seen = self._seen, (self.outputs.state(), self.note, int(elapsed))
        return seen != self._seen

    def sink(self, kind: str, payload: object) -> None:
        """Take what the tool prints and displays; called from its thread."""
        self.outputs.take(kind, payload)
        if self.result is not None and self.show_again is not None and self._late is None:
            self._late = threading.Timer(LATE, self._show_late)
            self._late.daemon, self._late.name = True, "toolloop-show"
            self._late.start()

    def _show_late(self) -> None:
        self._late = None
        if self.result is not None and self.show_again is not None:
            self.show_again(self.result)


async def put_card(place: Place, approval: Approval, fallback: Mapping[str, Any], position: str) -> None:
    """Show the approval card at `place` until it is decided; what cannot show widgets shows `fallback`."""
    from .widgets import ApprovalCard

    card = ApprovalCard(approval, position=position)
    place.put({**fallback, **card.mimebundle()})
    card.came_up()
    try:
        await approval.wait()
    finally:
        card.finish(approval.decision)
