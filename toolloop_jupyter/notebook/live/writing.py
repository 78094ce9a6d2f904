"""Show the model's text while it grows.

`grow` is called for every delta, and is cheap. `show` is called ten times a second, and shows the text so far.
"""

from __future__ import annotations

from ...core.text import KeyFilter
from ..html import markdown_html, prose, split_markdown
from ..transcript import Block, Page, TextStep, make_bundle, text_block, written
from .places import CellOutput, OutputColumn


class CellWriter:
    """Writes into the outputs of a cell. A long text takes several outputs, so that its finished parts are not sent again."""

    def __init__(self, column: OutputColumn, page: Page) -> None:
        self._column, self._page = column, page
        self._outputs: dict[TextStep, list[CellOutput]] = {}
        """The outputs of each text: its finished pieces, then the rest."""
        self._step: TextStep | None = None
        """The text that is being written."""
        self._text = StreamingText()
        self._fed = 0
        """How many deltas of the step are in `_text` already."""

    def grow(self, step: TextStep) -> None:
        """Called for each delta of a text. The first delta gets the text's first output."""
        if step is not self._step:
            self._step, self._text, self._fed = step, StreamingText(), 0
            self._outputs[step] = [self._column.output()]

    def show(self) -> None:
        """Show the text that is being written."""
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
        """Show a text that is complete, or that has changed because it was taken back or became the validated output."""
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
    """Writes to a terminal, where nothing can be replaced. A text is printed as it comes, a thought when it is complete."""

    def __init__(self, column: OutputColumn, page: Page) -> None:
        self._column, self._page = column, page
        self._step: TextStep | None = None
        """The text that is partly written."""
        self._filter = KeyFilter()
        self._in_line = False
        """True if the last line on the terminal has text in it."""

    def grow(self, step: TextStep) -> None:
        """Write the newest delta of a text. A thought is not written yet."""
        if not step.is_thought:
            self._step = step
            if new := prose(self._filter.add(step.pieces[-1])):
                self._in_line = not new.endswith("\n")
                print(new, end="", flush=True)  # noqa: T201 - a terminal

    def show(self) -> None:
        """End the line, since the next output is not part of the text. After that output, the text may continue."""
        if self._in_line:
            self._in_line = False
            print()  # noqa: T201 - a terminal

    def end(self, step: TextStep) -> None:
        """Write the rest of a text that is complete or has changed. What is on the terminal stays there."""
        if step is self._step:
            rest = prose(self._filter.end())
            if rest or self._in_line:
                print(rest.removesuffix("\n"))  # noqa: T201 - a terminal
            self._step, self._in_line = None, False
        elif step.is_thought or step.output is not None:
            self._column.output().draw(self._page.draw(step))


# --- model text while it is being written, at a cost that does not grow with its length ---
#
# The complete part (all Markdown blocks but the last) becomes a piece of its own, in its final form. Only the rest is rendered
# and sent again. So for a long answer, only a few times its length is sent.

PIECE = 1_500
"""The least characters of a piece, which ends where a Markdown block ends. Later pieces are longer, so that there are few."""
LONGEST_PIECE = 8_000
"""After so many characters, a piece ends at the next line's end, even within a Markdown block (a long list, or code)."""


class StreamingText:
    """Collects deltas. `take()` returns the complete pieces of the text, `block()` the rest so far."""

    def __init__(self) -> None:
        self.text = ""
        """Everything so far, as the model wrote it."""
        self._open = ""
        """The rest of the text. If the last piece ended within code, the rest begins with a new fence."""
        self._count = 0

    def add(self, delta: str) -> None:
        """Add a delta. This is cheap: nothing is rendered."""
        self.text += delta
        self._open += delta

    def take(self) -> list[Block]:
        """The pieces that have become complete since this was last called (mostly none). Each gets an output of its own."""
        pieces: list[Block] = []
        while split := split_markdown(self._open, self._enough, LONGEST_PIECE):
            piece, self._open = split
            self._count += 1
            pieces.append(text_block(piece))
        return pieces

    def block(self, *, final: bool = False) -> Block:
        """The rest of the text. With `final`, code is in colour and formulas are typeset."""
        # The plain text is left out, since only a finished block needs it: that halves the bytes sent ten times a second.
        if final:
            return text_block(self._open)
        return Block(written(markdown_html(self._open, streaming=True)), "")

    @property
    def _enough(self) -> int:
        return min(PIECE + PIECE * self._count // 10, LONGEST_PIECE)
