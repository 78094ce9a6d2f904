"""The thinking of a message while it arrives: in blocks, as Anthropic sends it, or in tags before the answer."""

from __future__ import annotations

import re
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


_NAMES = ("think", "thinking", "budget:thinking")
_OPENINGS = tuple(f"<{name}>" for name in _NAMES)
_CLOSINGS = tuple(f"</{name}>" for name in _NAMES)
_CLOSING = re.compile("|".join(_CLOSINGS))


class TaggedThought:
    """Takes the thought out of text that begins `<think>…</think>`, however the text is cut.

    By the rule that LiteLLM (1.110, `parse_content_for_reasoning`) has for whole responses and not for streams: the tag
    is the very first thing, any of the closing ones ends it, and one that nobody closes is text. Since a thought is
    shown as it comes, that text comes once more at the end.
    """

    def __init__(self) -> None:
        self._held = ""
        """The beginning of what may become a tag."""
        self._opening = ""
        """The tag that a thought is in."""
        self._thought: list[str] = []
        self._over = False
        """Whether all that follows is text."""

    @property
    def thought(self) -> str:
        """The thought so far."""
        return "".join(self._thought)

    @property
    def held_text(self) -> str:
        """What is held back and is text as it stands."""
        return "" if self._opening else self._held

    def take(self, text: str) -> tuple[str, str]:
        """Take in the next piece of the answer; returns the (text, thought) that is certain now."""
        if self._over or not text:
            return text, ""
        text, self._held = self._held + text, ""
        if not self._opening:
            self._opening = next((tag for tag in _OPENINGS if text.startswith(tag)), "")
            if not self._opening:
                return self._wait(text) if _may_become(text, _OPENINGS) else (self.give_up() + text, "")
            text = text[len(self._opening) :]
        if closing := _CLOSING.search(text):
            self._over, self._opening = True, ""
            return text[closing.end() :], self._think(text[: closing.start()])
        at = text.rfind("<")
        if at >= 0 and _may_become(text[at:], _CLOSINGS):
            text, self._held = text[:at], text[at:]
        return "", self._think(text)

    def give_up(self) -> str:
        """Look for no opening any more; returns the text that was held back for one."""
        if self._opening or self._over:
            return ""
        self._over = True
        return self._release()

    def cut(self) -> tuple[str, str]:
        """The stream broke off: returns the (text, thought) that was held back."""
        return ("", self._think(self._release())) if self._opening else (self.give_up(), "")

    def end(self) -> str:
        """The answer is whole: returns the rest of its text. A thought that nobody closed is none."""
        if not self._opening:
            return self.give_up()
        text = self._opening + self.thought + self._release()
        self._over, self._opening, self._thought = True, "", []
        return text

    def _wait(self, text: str) -> tuple[str, str]:
        self._held = text
        return "", ""

    def _think(self, thought: str) -> str:
        if thought:
            self._thought.append(thought)
        return thought

    def _release(self) -> str:
        held, self._held = self._held, ""
        return held


def _may_become(text: str, tags: tuple[str, ...]) -> bool:
    return any(tag.startswith(text) for tag in tags)
