"""What the model is writing: its words, shown as they grow.

`grow` is cheap and comes with every delta; `show` comes ten times a second and brings to the screen what has come.
"""

from __future__ import annotations

import re

from ...core.text import KeyFilter, plain
from ..html import markdown_html
from ..transcript import Block, Page, TextStep, mimebundle, text_block, written
from .places import CellOutput, OutputColumn


class CellWriter:
    """Writes into the outputs of a cell. A long text takes several: what is finished of it is not sent again."""

    def __init__(self, column: OutputColumn, page: Page) -> None:
        self._column, self._page = column, page
        self._outputs: dict[TextStep, list[CellOutput]] = {}
        """Where each text stands: its finished pieces, and the rest last."""
        self._step: TextStep | None = None
        """The text that is being written."""
        self._text = StreamingText()
        self._fed = 0
        """How many of its pieces the streaming text has."""

    def grow(self, step: TextStep) -> None:
        """More of a text has come, or its beginning."""
        if step is not self._step:
            self._step, self._text, self._fed = step, StreamingText(), 0
            self._outputs[step] = [self._column.output()]

    def show(self) -> None:
        """Show what is being written."""
        step = self._step
        if step is None or step.is_whole:
            return
        outputs = self._outputs[step]
        if step.is_thought:
            outputs[0].draw(self._page.draw(step))
            return
        self._feed(step)
        if finished := self._text.take():
            outputs[-1].put(mimebundle(finished))
            outputs.append(self._column.output())
        outputs[-1].draw(self._text.block())

    def end(self, step: TextStep) -> None:
        """A text is whole, or has become something else: it was taken back, or is the answer's output."""
        outputs = self._outputs.setdefault(step, [self._column.output()])
        if len(outputs) > 1 and step is self._step and self._feed(step) == step.text and step.output is None:
            rest = self._text.block(final=True)
            outputs[-1].draw(rest if rest.text else None)
            return
        outputs[0].draw(self._page.draw(step))
        for output in outputs[1:]:
            output.draw(None)

    def _feed(self, step: TextStep) -> str:
        self._text.add("".join(step.pieces[self._fed :]))
        self._fed = len(step.pieces)
        return self._text.text


class TerminalWriter:
    """Writes where nothing can be replaced: text as it comes, thoughts and outputs when they are whole."""

    def __init__(self, column: OutputColumn, page: Page) -> None:
        self._column, self._page = column, page
        self._step: TextStep | None = None
        """The text of which something has been written."""
        self._filter = KeyFilter()
        self._in_line = False
        """Whether the last line has something in it."""

    def grow(self, step: TextStep) -> None:
        """Write the last piece of a text."""
        if not step.is_thought:
            self._step = step
            if new := plain(self._filter.add(step.pieces[-1])):
                self._in_line = not new.endswith("\n")
                print(new, end="", flush=True)  # noqa: T201 - a terminal

    def show(self) -> None:
        """End the line: what comes next is not of the text, which may go on behind it."""
        if self._in_line:
            self._in_line = False
            print()  # noqa: T201 - a terminal

    def end(self, step: TextStep) -> None:
        """A text is whole, or has become something else; what is written stays."""
        if step is self._step:
            rest = plain(self._filter.end())
            if rest or self._in_line:
                print(rest.removesuffix("\n"))  # noqa: T201 - a terminal
            self._step, self._in_line = None, False
        elif step.is_thought or step.output is not None:
            self._column.output().draw(self._page.draw(step))


# --- model text while it is being written, at a cost that does not grow with its length ---
#
# What is complete (up to a blank line at which a block surely ended) becomes a piece of its own, in its final form; only
# the rest is rendered and sent again. So the bytes of a long answer stay a few times its length.

PIECE = 1_500
"""Characters after which the next safe blank line ends a piece; more in a long text, whose pieces shall not be too many."""
LONGEST_PIECE = 8_000
"""Characters after which a piece ends at any line end: in an endless list, or in code."""

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
# What may belong to the block before a blank line: an indented line, the next list item, the next quoted line.
_GOES_ON = re.compile(r"[ \t>]|[-*+] |\d{1,9}[.)] ")


class StreamingText:
    """Collects deltas: `take()` gives what is complete of the text, `block()` the rest as far as it has come."""

    def __init__(self) -> None:
        self.text = ""
        """Everything so far, as the model wrote it."""
        self._finished: list[str] = []
        self._count = 0
        self._reopened = ""
        """The fence that the rest goes on with, where a piece ended within code."""
        self._open = ""
        self._fence = self._opener = ""
        self._scanned = 0
        self._cut = 0

    def add(self, delta: str) -> None:
        """Take the next piece of text. Cheap: nothing is rendered."""
        self.text += delta
        self._open += delta

    def take(self) -> list[Block]:
        """The pieces that have been finished since the last time, each for an output of its own. Mostly none."""
        self._keep_finished()
        new, self._finished = self._finished, []
        return [text_block(piece) for piece in new]

    def block(self, *, final: bool = False) -> Block:
        """The rest. With `final`, code is in colour and formulas are typeset."""
        rest = self._reopened + self._open
        # Without its text form, which only a finished block needs: half of what would be sent ten times a second.
        return text_block(rest) if final else Block(written(markdown_html(rest, streaming=True)), "")

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
        return PIECE + PIECE * self._count // 10

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
        self._finished.append(self._reopened + self._open[:end])
        self._count += 1
        self._reopened = ""
        self._open = self._open[end:]
        self._scanned, self._cut = self._scanned - end, 0
