"""Show the outputs of one run one below the other, keep their number below a limit, and let the model's text grow in them.

JupyterLab (4.6) shows the first 50 outputs of a cell (its setting `maxNumberOutputs`) and hides all later ones. A hidden output
could be an approval card. So when a run has `MOST` outputs, we join the older outputs into one. To do this, we clear the cell
and show all outputs again. A front-end does this without a flicker (`clear_output(wait=True)`).
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator, Mapping

from ...core.text import KeyFilter
from .. import kernel
from ..html import mark_hidden_in_prose, split_markdown
from ..transcript import WIDGET, Block, Page, TextStep, draw_text, make_bundle

MOST = 40
"""The largest number of outputs that a run has. JupyterLab shows 10 more, for outputs of other code in the cell."""
KEPT = 10
"""The number of newest outputs that we do not join, because these outputs may still change (a growing text, a card)."""
EMPTY: Mapping[str, object] = {"text/html": "", "text/plain": ""}


class CellOutput:
    """The output of one block. It gets its position in the cell when it gets its first bundle."""

    def __init__(self, column: OutputColumn) -> None:
        self._column = column
        self.bundle: Mapping[str, object] = EMPTY
        self.display: _Display | None = None

    def put(self, bundle: Mapping[str, object], *, soon: bool = True) -> None:
        """Show a MIME bundle in place of the current one, if any.

        If several outputs share one display, `soon=False` waits: the front-end gets the bundle when another of them changes.
        """
        if bundle == self.bundle:
            return
        if WIDGET in self.bundle and not self._column.can_update:
            self.display = None  # the card cannot be replaced, so this bundle is shown below it
        self.bundle = bundle
        self._column.show(self, soon=soon)

    @property
    def is_there(self) -> bool:
        """True if the output is in the cell already."""
        return self.display is not None

    def draw(self, block: Block | None, *, soon: bool = True) -> None:
        """Show a block in place of the current one; if `block` is None, empty the output. For `soon`, see `put`."""
        self.put(EMPTY if block is None else make_bundle(block), soon=soon)


class _Display:
    """One output of a front-end. It shows one of our outputs or, later, several that were joined."""

    def __init__(self, outputs: list[CellOutput]) -> None:
        self.display_id = f"toolloop-{uuid.uuid4().hex}"
        self.outputs: list[CellOutput] = []
        self.hold(outputs)

    def hold(self, outputs: list[CellOutput]) -> None:
        """Replace the shown outputs by `outputs`."""
        for output in self.outputs:
            output.display = None
        for output in outputs:
            output.display = self
        self.outputs = outputs

    @property
    def is_widget(self) -> bool:
        return any(WIDGET in output.bundle for output in self.outputs)

    def bundle(self) -> Mapping[str, object]:
        if len(self.outputs) == 1:
            return self.outputs[0].bundle
        bundles = [output.bundle for output in self.outputs]
        texts = [str(bundle.get("text/plain", "")) for bundle in bundles]
        return {
            **{kind: value for bundle in bundles for kind, value in bundle.items()},
            "text/html": "".join(str(bundle.get("text/html", "")) for bundle in bundles),
            "text/plain": "\n".join(text for text in texts if text),
        }


class OutputColumn:
    """All outputs of one run. `owns`: True if the cell has no outputs of other code. Only then we may clear the cell."""

    def __init__(self, cell: kernel.Cell, *, owns: bool = False) -> None:
        self._cell = cell
        self.can_update = cell.can_update
        self._owns = owns and cell.can_update
        self._displays: list[_Display] = []

    def output(self) -> CellOutput:
        """Return a new output."""
        return CellOutput(self)

    def show(self, output: CellOutput, *, soon: bool) -> None:
        """Send the current bundle of `output` to the front-end. For `soon`, see `CellOutput.put`."""
        last = self._displays[-1] if self._displays and self.can_update else None
        if output.display is not None:
            if soon or len(output.display.outputs) == 1:
                self._cell.update(output.display.bundle(), output.display.display_id)
        elif output.bundle == EMPTY:
            return
        elif last is not None and all(each.bundle == EMPTY for each in last.outputs):
            last.hold([output])  # an ended card or progress display has left this output empty: use it again
            self._cell.update(output.bundle, last.display_id)
        else:
            if self._owns and len(self._displays) >= MOST:
                self._join()
            self._displays.append(_Display([output]))
            self._cell.display(output.bundle, display_id=self._displays[-1].display_id)

    def _join(self) -> None:
        """Join the older outputs into one display, but leave widgets alone. Then show all outputs again."""
        older, newest = self._displays[:-KEPT], self._displays[-KEPT:]
        for display in older:
            display.hold([output for output in display.outputs if output.bundle != EMPTY])
        kept = [*_join_between_widgets(older), *(display.outputs for display in newest)]
        # All displays get new ids: a front-end would show a display with an old id at the old position.
        self._displays = [_Display(outputs) for outputs in kept]
        self._cell.clear()
        for display in self._displays:
            self._cell.display(display.bundle(), display_id=display.display_id)


def _join_between_widgets(displays: list[_Display]) -> Iterator[list[CellOutput]]:
    for is_widget, group in itertools.groupby(displays, lambda display: display.is_widget):
        outputs = [display.outputs for display in group]
        yield from outputs if is_widget else filter(None, [[*itertools.chain(*outputs)]])


# --- the model's text -------------------------------------------------------------------------------------------
#
# `grow` is called for each delta, and does little work. `show` is called ten times a second, and shows the text so far.


class CellWriter:
    """Writes into the outputs of a cell. A long text gets several outputs, so that its complete pieces are sent only once."""

    def __init__(self, column: OutputColumn, page: Page) -> None:
        self._column, self._page = column, page
        self._outputs: dict[TextStep, list[CellOutput]] = {}
        """The outputs of each text: first the outputs of its complete pieces, then the output of the rest."""
        self._step: TextStep | None = None
        """The text that is being written."""
        self._text = StreamingText()
        self._fed = 0
        """How many deltas of `_step` were added to `_text`."""

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
        """Show a complete text, or the validated output that was read from it; nothing if a retry has removed the text."""
        outputs = self._outputs.setdefault(step, [self._column.output()])
        if len(outputs) > 1 and step is self._step and self._feed(step) == step.text and step.output is None:
            rest = self._text.block(final=True)
            outputs[-1].draw(rest if rest.text else None)
            return
        outputs[0].draw(self._page.draw(step))
        for output in outputs[1:]:
            output.draw(None)

    def _feed(self, step: TextStep) -> str:
        """Add the new deltas of `step` to `_text`. Return the text of all its deltas so far."""
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
            if new := mark_hidden_in_prose(self._filter.add(step.pieces[-1])):
                self._in_line = not new.endswith("\n")
                print(new, end="", flush=True)  # noqa: T201 - a terminal

    def show(self) -> None:
        """End the line that has begun. Call this before an output that is not part of the text. The text may continue after it."""
        if self._in_line:
            self._in_line = False
            print()  # noqa: T201 - a terminal

    def end(self, step: TextStep) -> None:
        """Write the end of a text, a whole thought, or the output that was read from a text. Printed text stays as it is."""
        if step is self._step:
            rest = mark_hidden_in_prose(self._filter.end())
            if rest or self._in_line:
                print(rest.removesuffix("\n"))  # noqa: T201 - a terminal
            self._step, self._in_line = None, False
        elif step.is_thought or step.output is not None:
            self._column.output().draw(self._page.draw(step))


PIECE = 1_500
"""The smallest number of characters in the first piece. Later pieces are longer, so that a text has few pieces. A piece ends at
the end of a Markdown block."""
LONGEST_PIECE = 8_000
"""A Markdown block may be very long (a list, or code). A piece with more characters than this therefore ends at the end of a
line, also inside a block."""


class StreamingText:
    """Collects deltas. `take()` returns the complete pieces of the text. `block()` returns the rest so far.

    All Markdown blocks but the last one are complete. Complete blocks are sent once. Only the rest is sent again and again.
    """

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
        """Return the pieces that are complete since the last call of this method. The list is usually empty."""
        pieces: list[Block] = []
        while split := split_markdown(
            self._open, min(PIECE + PIECE * self._count // 10, LONGEST_PIECE), LONGEST_PIECE
        ):
            piece, self._open = split
            self._count += 1
            pieces.append(draw_text(piece))
        return pieces

    def block(self, *, final: bool = False) -> Block:
        """Return the block of the rest. If `final` is True, code is in colour and formulas are typeset."""
        return draw_text(self._open, streaming=not final)
