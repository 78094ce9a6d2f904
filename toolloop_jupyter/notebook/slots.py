"""Places in a cell's output: where one block stands, a tool call on its way, an approval card."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any

from ..core.events import Approval, Decision, ToolCall, ToolResult
from . import kernel


class Place:
    """One block on its place in the cell's output."""

    def __init__(self, cell: kernel.Cell) -> None:
        self._cell = cell
        self._id: str | None = None
        self.bundle: Mapping[str, Any] = {}

    def put(self, bundle: Mapping[str, Any]) -> None:
        """Show the block, or replace what is there."""
        if bundle == self.bundle:
            return
        self.bundle = bundle
        if self._id is None:
            self._id = f"toolloop-{uuid.uuid4().hex}"
            self._cell.display(bundle, display_id=self._id)
        else:
            self._cell.update(bundle, self._id)

    @property
    def is_there(self) -> bool:
        return self._id is not None


class LiveCall:
    """A tool call between its ask and its result."""

    def __init__(self, call: ToolCall, cell: kernel.Cell, number: int) -> None:
        self.call, self.number = call, number
        self.place = Place(cell)
        self.arguments: Mapping[str, object] | None = None
        self.decision: Decision | None = None
        self.outputs: list[tuple[str, object]] = []
        self.printed: list[str] = []
        self.note = ""
        self.began = time.monotonic()
        self.waiting = False
        self.done = False
        self.result: ToolResult | None = None
        self._seen: tuple[int, str, int] | None = None

    def __str__(self) -> str:
        return "".join(self.printed)

    def has_news(self, delay: float) -> bool:
        """Whether it is worth showing (again) as running: output, a progress note, a second more on the clock."""
        elapsed = time.monotonic() - self.began
        if elapsed < delay:
            return False
        seen, self._seen = self._seen, (len(self.outputs), self.note, int(elapsed))
        return seen != self._seen

    def sink(self, kind: str, payload: object) -> None:
        """Take what the tool prints and displays; called from its thread."""
        if kind in ("stdout", "stderr"):
            self.printed.append(str(payload))
        self.outputs.append((kind, payload))


async def put_card(place: Place, approval: Approval, fallback: Mapping[str, Any], position: str) -> None:
    """Show the approval card at `place` until it is decided; what cannot show widgets shows `fallback`."""
    from .widgets import ApprovalCard

    card = ApprovalCard(approval, position=position)
    place.put({**fallback, **card.mimebundle()})
    try:
        await approval.wait()
    finally:
        card.finish(approval.decision)


def adopted(event: Any) -> Approval:
    """Our Approval for one of LiteLLM's, which has no card's worth of facts."""
    return Approval(tool=event.tool, input=dict(event.input), why="the agent asks")


def hand_back(event: Any, decision: Decision | None) -> None:
    if decision is not None and decision.allowed:
        event.allow()
    else:
        event.deny(decision.reason if decision is not None else "the run ended")
