"""Show the model's text while it grows.

`grow` is called for each delta, and does little work. `show` is called ten times a second, and shows the text so far.
"""

from __future__ import annotations

from ...core.text import KeyFilter
from ..html import markdown_html, prose, split_markdown
from ..transcript import Block, Page, TextStep, make_bundle, text_block, written
from .places import CellOutput, OutputColumn


class CellWriter:
    """Writes into the outputs of a cell. A long text gets several outputs, so that its complete pieces are sent only once."""

    def __init__(self, column: OutputColumn, page: Page) -> None:
        self._column, self._page = column, page
        self._outputs: dict[TextStep, list[CellOutput]] = {}
        """The outputs of each text: first those of its complete pieces, then the output of the rest."""
        self._step: TextStep | None = None
        """The text that is being written."""
        self._text = StreamingText()
        self._fed = 0
        """The number of the deltas of `_step` that are in `_text`."""

    def grow(self, step: TextStep) -> None:
        """Create the output of a text when its first delta comes. Later deltas of the text change nothing here."""
        if step is not self._step:
            self._step, self._text, self._fed = step, StreamingText(), 0
            self._outputs[step] = [self._column.output()]

    def show(self) -> None:
        """Show the current text so far."""
        step = self._step
        if step is None or step.is_whole:
            return
        outputs = self._outputs[step]
        if step.is_thought:
            outputs[0].draw(self._page.draw(step))
            return
        self._feed(step)
        if finished := self._text.take():
            outputs[-1].put(make_bundle(finished))
            outputs.append(self._column.output())
        outputs[-1].draw(self._text.block())

    def end(self, step: TextStep) -> None:
        """Show the final form of a text.

        Called when the text is complete, when a retry has removed it, or when the validated output replaces it.
        """
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
    """Writes to a terminal, where printed text cannot be replaced. Prints each delta of a text, but a thought only as a whole."""

    def __init__(self, column: OutputColumn, page: Page) -> None:
        self._column, self._page = column, page
        self._step: TextStep | None = None
        """The text that is not complete on the terminal yet."""
        self._filter = KeyFilter()
        self._in_line = False
        """True if the text that was printed last did not end with a newline."""

    def grow(self, step: TextStep) -> None:
        """Write the newest delta of a text. Write nothing for a thought: `end` writes the whole thought."""
        if not step.is_thought:
            self._step = step
            if new := prose(self._filter.add(step.pieces[-1])):
                self._in_line = not new.endswith("\n")
                print(new, end="", flush=True)  # noqa: T201 - a terminal

    def show(self) -> None:
        """End the line. Called before another output, which is not part of the text. After that output, the text may continue."""
        if self._in_line:
            self._in_line = False
            print()  # noqa: T201 - a terminal

    def end(self, step: TextStep) -> None:
        """Write what is still missing of a text that is complete or was replaced. What the terminal already shows is not rewritten."""
        if step is self._step:
            rest = prose(self._filter.end())
            if rest or self._in_line:
                print(rest.removesuffix("\n"))  # noqa: T201 - a terminal
            self._step, self._in_line = None, False
        elif step.is_thought or step.output is not None:
            self._column.output().draw(self._page.draw(step))


# --- model text while it grows. The work for one update does not depend on the length of the text. ---
#
# All Markdown blocks but the last one are complete. They become a piece, which is sent once, in its final form. Only the rest
# is rendered and sent again and again. So the bytes that are sent for a long answer are only a few times its length.

PIECE = 1_500
"""The smallest number of characters in the first piece. Later pieces are longer, so that a text has few pieces. A piece ends at
the end of a Markdown block."""
LONGEST_PIECE = 8_000
"""A Markdown block may be very long (a list, or code). A piece with more characters than this therefore ends at the end of a
line, also inside a block."""


class StreamingText:
    """Collects deltas. `take()` returns the complete pieces of the text. `block()` returns the rest so far."""

    def __init__(self) -> None:
        self.text = ""
        """All deltas so far, unchanged."""
        self._open = ""
        """The rest of the text, behind the last piece. If that piece ended inside a code block, the rest begins with a new
        fence."""
        self._count = 0

    def add(self, delta: str) -> None:
        """Add a delta. This renders nothing, so it takes little time."""
        self.text += delta
        self._open += delta

    def take(self) -> list[Block]:
        """Return the pieces that are complete since the last call of this method. The list is mostly empty."""
        pieces: list[Block] = []
        while split := split_markdown(self._open, self._enough, LONGEST_PIECE):
            piece, self._open = split
            self._count += 1
            pieces.append(text_block(piece))
        return pieces

    def block(self, *, final: bool = False) -> Block:
        """Return the block of the rest. With `final`, code is in colour and formulas are typeset."""
        # An unfinished block has no text/plain, so that each of the ten updates a second has half the bytes.
        if final:
            return text_block(self._open)
        return Block(written(markdown_html(self._open, streaming=True)), "")

    @property
    def _enough(self) -> int:
        return min(PIECE + PIECE * self._count // 10, LONGEST_PIECE)
