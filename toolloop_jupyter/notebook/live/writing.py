"""What the model is writing: its text and its reasoning, shown as they grow."""

from __future__ import annotations

import re

from ...core.text import KeyFilter, plain
from .. import kernel
from ..html import BLOCK, markdown_html
from ..transcript import Block, mimebundle, notice, reasoning_block, text_block
from .places import EMPTY, Column, Place


class Written:
    """The text and the reasoning of one run. Adding is cheap; `show` brings what has come to the screen."""

    def __init__(self, column: Column, cell: kernel.Cell, *, whole: bool) -> None:
        """With `whole`, a text stays one block (it may turn out to be an answer's JSON)."""
        self._column, self._cell, self._whole = column, cell, whole
        self._text: StreamingText | None = None
        self._places = [column.place()]
        """Where the text stands: its finished pieces, and the rest last."""
        self._reasoning = ""
        self._reasoning_place = column.place()
        self._filter = KeyFilter()

    @property
    def last_place(self) -> Place:
        """Where the last text stands, for what it turns out to be; a new place when there was none."""
        return self._places[-1] if self._places[-1].is_there else self._column.place()

    def add_text(self, delta: str) -> None:
        if self._text is None:
            self._text, self._places = StreamingText(), [self._column.place()]
        self._text.add(delta)
        if not self._cell.can_update:
            print(plain(self._filter.add(delta)), end="", flush=True)  # noqa: T201 - a terminal: text as it comes

    def add_reasoning(self, delta: str) -> None:
        if not self._reasoning:
            self._reasoning_place = self._column.place()
        self._reasoning += delta

    def take_back(self) -> None:
        """What was written no longer holds: the connection broke, and the second try says something else."""
        self._text = None
        for place in self._places[1:]:
            place.put(EMPTY)
        self._places[0].put(mimebundle([notice("the connection broke; the answer begins again", "warning")]))

    def show(self) -> None:
        """Show what is being written."""
        if self._text is not None:
            self._show_pieces(self._text)
            self._places[-1].put(mimebundle([self._text.block(final=False)]))
        if self._reasoning:
            self._reasoning_place.put(mimebundle([reasoning_block(self._reasoning, streaming=True)]))

    def end_text(self) -> None:
        """The text is whole."""
        text, self._text = self._text, None
        if text is None:
            return
        if not self._cell.can_update:
            print(plain(self._filter.end()))  # noqa: T201 - a terminal
            return
        self._show_pieces(text)
        rest = text.block(final=True)
        if rest.text or len(self._places) == 1:
            self._places[-1].put(mimebundle([rest]))

    def end_reasoning(self) -> None:
        """The reasoning is whole."""
        text, self._reasoning = self._reasoning, ""
        if text:
            self._reasoning_place.put(mimebundle([reasoning_block(text)]))

    def _show_pieces(self, text: StreamingText) -> None:
        """Let what is finished of a long text stand on its own, so that it is not sent again with each word."""
        for piece in [] if self._whole else text.take():
            self._places[-1].put(mimebundle([piece]))
            self._places.append(self._column.place())


# --- Model text while it is being written, rendered at a cost that does not grow with its length. -------------
#
# Markdown that is complete (up to a blank line at which a block surely ended) is rendered once and kept; only the rest is
# rendered again. A view that shows each finished piece in an output of its own (`take`) then also sends only the rest
# again: the bytes of a long answer stay a few times its length.

PIECE = 1_500
"""Characters after which the next safe blank line ends a piece; more in a long text, whose pieces shall not be too many."""
LONGEST_PIECE = 8_000
"""Characters after which a piece ends at any line end: in an endless list, or in code."""

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
# What may belong to the block before a blank line: an indented line, the next list item, the next quoted line.
_GOES_ON = re.compile(r"[ \t>]|[-*+] |\d{1,9}[.)] ")


class StreamingText:
    """Collects deltas; `block()` is the text so far, or what `take()` left of it."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._pieces: list[tuple[str, str]] = []  # the fence that a piece goes on with, and its own text
        self._html: list[str] = []
        self._reopened = ""
        self._open = ""
        self._fence = self._opener = ""
        self._scanned = 0
        self._cut = 0
        self._taken = 0

    def add(self, delta: str) -> None:
        """Take the next piece of text. Cheap: nothing is rendered."""
        self._parts.append(delta)
        self._open += delta

    @property
    def text(self) -> str:
        """Everything so far, as the model wrote it, taken or not."""
        return "".join(self._parts)

    def take(self) -> list[Block]:
        """The pieces that are finished and were not taken yet, each for an output of its own.

        They are in their final form, and `block()` holds them no more. Mostly empty.
        """
        self._keep_finished()
        new = [text_block(reopened + piece) for reopened, piece in self._pieces[self._taken :]]
        self._taken = len(self._pieces)
        return new

    def block(self, *, final: bool = False) -> Block:
        """The text so far, without what was taken.

        With `final`, rendered as a whole: code in colour, formulas typeset, references across pieces right.
        """
        if final:
            return text_block(self._rest(), final=True)
        self._keep_finished()
        while len(self._html) < len(self._pieces):
            self._html.append(markdown_html("".join(self._pieces[len(self._html)]), streaming=True))
        tail = markdown_html(self._reopened + self._open, streaming=True)
        body = "\n".join([*self._html[self._taken :], tail])
        html = f'<div class="tlj tlj-text" style="{BLOCK}" dir="auto">{body}</div>'
        # Without its text form, which only a finished block needs: half of what would be sent ten times a second.
        return Block(html, "")

    def _rest(self) -> str:
        """The markdown that was not taken, in one; a fence that an earlier piece opened is opened again."""
        pieces = [*self._pieces[self._taken :], (self._reopened, self._open)]
        return pieces[0][0] + "".join(piece for _, piece in pieces)

    def _keep_finished(self) -> None:
        """Set aside what is complete in `_open`, line by line from where the last look ended."""
        while (end := self._open.find("\n", self._scanned)) >= 0:
            line = self._open[self._scanned : end]
            begin, self._scanned = self._scanned, end + 1
            if self._in_fence(line):
                if self._fence and self._scanned > LONGEST_PIECE:
                    self._split_fence()
            elif not line.strip():
                self._cut = self._scanned  # a block may have ended here: the next line tells
            elif self._cut == begin and self._cut > self._enough and not _GOES_ON.match(line):
                self._keep(self._cut)
            elif self._scanned > LONGEST_PIECE:
                self._keep(self._cut if self._cut > PIECE else self._scanned)

    @property
    def _enough(self) -> int:
        return PIECE + PIECE * len(self._pieces) // 10

    def _in_fence(self, line: str) -> bool:
        """Follow fences; whether `line` is part of one."""
        match = _FENCE.match(line)
        if self._fence:
            if match and match[1].startswith(self._fence) and not match[2].strip():
                self._fence = ""
                self._cut = self._scanned  # nothing goes on behind a closed fence
            return True
        if match and not (match[1][0] == "`" and "`" in match[2]):
            self._fence, self._opener = match[1], line
            return True
        return False

    def _split_fence(self) -> None:
        """End a piece within code: the piece's fence ends with it, and the rest opens one again."""
        self._keep(self._scanned)
        self._reopened = f"{self._opener}\n"

    def _keep(self, end: int) -> None:
        self._pieces.append((self._reopened, self._open[:end]))
        self._reopened = ""
        self._open = self._open[end:]
        self._scanned, self._cut = self._scanned - end, 0
