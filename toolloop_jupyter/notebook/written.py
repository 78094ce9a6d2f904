"""What the model is writing: its text and its reasoning, shown as they grow."""

from __future__ import annotations

from ..core.cleaning import plain
from ..core.hiding import KeyFilter
from . import kernel
from .blocks import notice, reasoning_block
from .column import EMPTY, Column, Place
from .streaming import StreamingText
from .transcript import mimebundle


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
