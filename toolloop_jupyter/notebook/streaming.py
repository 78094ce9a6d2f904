"""Model text while it is being written, rendered at a cost that does not grow with its length.

Markdown that is complete (up to a blank line at which a block surely ended) is rendered once and kept; only the rest
is rendered again. The finished text is rendered as a whole, so that references and lists that span pieces are right.
"""

from __future__ import annotations

import re

from .blocks import Block, text_block
from .inert import plain
from .markdown import markdown_html
from .style import BLOCK

PIECE = 1_500
"""Characters after which the next safe blank line ends a piece."""
LONGEST_PIECE = 6_000
"""Characters after which a piece ends at any line end: in an endless list, or in code."""

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
# What may belong to the block before a blank line: an indented line, the next list item, the next quoted line.
_GOES_ON = re.compile(r"[ \t>]|[-*+] |\d{1,9}[.)] ")


class StreamingText:
    """Collects deltas; `block()` is the text so far."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._kept: list[str] = []
        self._open = ""
        self._fence = ""
        self._scanned = 0
        self._cut = 0

    def add(self, delta: str) -> None:
        """Take the next piece of text. Cheap: nothing is rendered."""
        self._parts.append(delta)
        self._open += delta

    @property
    def text(self) -> str:
        """Everything so far, as the model wrote it."""
        return "".join(self._parts)

    def block(self, *, final: bool = False) -> Block:
        """The text so far. With `final`, rendered as a whole, with code in colour and formulas typeset."""
        text = self.text
        if final:
            return text_block(text, final=True)
        self._keep_finished()
        tail = markdown_html(self._open, streaming=True)
        body = "\n".join([*self._kept, tail])
        html = f'<div class="tlj tlj-text" style="{BLOCK}" dir="auto">{body}</div>'
        return Block(html, plain(text))

    def _keep_finished(self) -> None:
        """Render and set aside what is complete in `_open`, line by line from where the last look ended."""
        while (end := self._open.find("\n", self._scanned)) >= 0:
            line = self._open[self._scanned : end]
            self._scanned = end + 1
            if self._in_fence(line):
                if self._scanned > LONGEST_PIECE and self._fence:
                    self._split_fence()
                continue
            if not line.strip():
                self._cut = self._scanned  # a block may have ended here: the next line tells
                continue
            too_long = self._scanned > LONGEST_PIECE
            if self._cut > PIECE and (too_long or not _GOES_ON.match(line)):
                self._keep(self._cut)
            elif too_long:
                self._keep(self._scanned)

    def _in_fence(self, line: str) -> bool:
        """Follow fences; whether `line` is part of one."""
        match = _FENCE.match(line)
        if self._fence:
            if match and match[1].startswith(self._fence) and not match[2].strip():
                self._fence = ""
                self._cut = self._scanned  # nothing goes on behind a closed fence
            return True
        if match and not (match[1][0] == "`" and "`" in match[2]):
            self._fence = match[1]
            return True
        return False

    def _split_fence(self) -> None:
        fence = self._fence
        self._kept.append(markdown_html(self._open[: self._scanned], streaming=True))
        self._open = f"{fence}\n" + self._open[self._scanned :]
        self._scanned, self._cut = len(fence) + 1, 0

    def _keep(self, end: int) -> None:
        self._kept.append(markdown_html(self._open[:end], streaming=True))
        self._open = self._open[end:]
        self._scanned, self._cut = self._scanned - end, 0
