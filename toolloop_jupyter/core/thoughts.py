"""The thinking of a message while it arrives: in blocks, as Anthropic sends it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class _Thinking:
    parts: list[str] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)

    def block(self) -> dict[str, Any]:
        return {"type": "thinking", "thinking": "".join(self.parts), **self.more}


class ThinkingBlocks:
    """Thinking blocks in their order, the pieces of each put together; blocks of other types as they are."""

    def __init__(self) -> None:
        self._blocks: list[_Thinking | dict[str, Any]] = []
        self._open = False
        """Whether the last one may go on: its signature ends it."""

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def add(self, block: dict[str, Any]) -> None:
        """Take in a block, or the next piece of one."""
        if block.get("type") != "thinking":
            self._blocks.append(block)
            self._open = False
            return
        last = self._blocks[-1] if self._blocks and self._open else None
        if not isinstance(last, _Thinking):
            last = _Thinking()
            self._blocks.append(last)
        last.parts.append(block.get("thinking") or "")
        last.more.update({k: v for k, v in block.items() if k not in ("type", "thinking") and v})
        self._open = not block.get("signature")

    def as_sent(self) -> list[dict[str, Any]]:
        """The blocks as the provider wants them back."""
        return [block.block() if isinstance(block, _Thinking) else block for block in self._blocks]
