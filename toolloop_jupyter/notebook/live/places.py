"""Show the outputs of one run one below the other, and keep their number below a limit.

JupyterLab (4.6) shows the first 50 outputs of a cell (its setting `maxNumberOutputs`) and hides all later ones. A hidden output
could be an approval card. So when a run has `MOST` outputs, we join the older outputs into one. To do this, we clear the cell
and show all outputs again. A front-end does this without a flicker (`clear_output(wait=True)`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping

from .. import kernel
from ..transcript import WIDGET, Block, make_bundle

MOST = 40
"""The largest number of outputs that a run has. JupyterLab shows 10 more, for outputs of other code in the cell."""
KEPT = 10
"""The number of newest outputs that we do not join, since these outputs may still change (a growing text, a card)."""
EMPTY: Mapping[str, object] = {"text/html": "", "text/plain": ""}


class CellOutput:
    """The output of one block. It gets its position in the cell when it gets its first bundle."""

    def __init__(self, column: OutputColumn) -> None:
        self._column = column
        self.bundle: Mapping[str, object] = EMPTY
        self.display: _Display | None = None

    def put(self, bundle: Mapping[str, object], *, soon: bool = True) -> None:
        """Show a MIME bundle in place of the current one, if any.

        If `soon` is False and this output is joined with others, the front-end gets the change later, together with the next
        change of one of the joined outputs.
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

    @property
    def is_empty(self) -> bool:
        return all(output.bundle == EMPTY for output in self.outputs)

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
        if output.display is not None:
            if soon or len(output.display.outputs) == 1:
                self._cell.update(output.display.bundle(), output.display.display_id)
        elif output.bundle != EMPTY:
            self._append(output)

    def _append(self, output: CellOutput) -> None:
        if self._displays and self.can_update and (last := self._displays[-1]).is_empty:
            last.hold([output])  # a finished card or progress has left an empty output: use it
            self._cell.update(output.bundle, last.display_id)
            return
        if self._owns and len(self._displays) >= MOST:
            self._put_together()
        self._displays.append(_Display([output]))
        self._cell.display(output.bundle, display_id=self._displays[-1].display_id)

    def _put_together(self) -> None:
        """Join the older outputs into one display, but leave widgets alone. Then show all outputs again."""
        older, newest = self._displays[:-KEPT], self._displays[-KEPT:]
        for display in older:
            display.hold([output for output in display.outputs if output.bundle != EMPTY])
        kept = [*_between_widgets(older), *(display.outputs for display in newest)]
        # All displays get new ids: a front-end would show a display with an old id at the old position.
        self._displays = [_Display(outputs) for outputs in kept]
        self._cell.clear()
        for display in self._displays:
            self._cell.display(display.bundle(), display_id=display.display_id)


def _between_widgets(displays: list[_Display]) -> Iterator[list[CellOutput]]:
    """Yield the outputs in groups. Each display with a widget is a group. The displays between two widgets are one group."""
    together: list[CellOutput] = []
    for display in displays:
        if not display.is_widget:
            together += display.outputs
            continue
        if together:
            yield together
        yield display.outputs
        together = []
    if together:
        yield together
