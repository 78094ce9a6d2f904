"""The outputs of one run, one below the other, and never too many of them.

JupyterLab shows the first 50 outputs of a cell (its `maxNumberOutputs`, 4.6) and hides the newest, which would be the
approval card. So when a run has `MOST` outputs, those that are long finished are put together into one: the cell is
cleared and shown again, which a front-end does without a flicker (`clear_output(wait=True)`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from .. import kernel

MOST = 40
"""Outputs of a cell; JupyterLab's limit leaves room for what a person's own code adds."""
KEPT = 10
"""The newest outputs, which stay outputs of their own: one of them is being written, one may be a card."""
WIDGET = "application/vnd.jupyter.widget-view+json"
EMPTY: Mapping[str, Any] = {"text/html": "", "text/plain": ""}


class Place:
    """Where one block stands; `put` shows it, or replaces what is there."""

    def __init__(self, column: Column) -> None:
        self._column = column
        self.bundle: Mapping[str, Any] = {}
        self.output: _Output | None = None

    def put(self, bundle: Mapping[str, Any], *, soon: bool = True) -> None:
        """Show the block. With `soon` False, a block that has been put together with others is sent when they are."""
        if bundle != self.bundle:
            if WIDGET in self.bundle and not self._column.can_update:
                self.output = None  # a card that cannot be replaced: its record comes below it
            self.bundle = bundle
            self._column.show(self, soon=soon)

    @property
    def is_there(self) -> bool:
        return self.output is not None


class _Output:
    """One output of the cell: mostly one place, later several that were put together."""

    def __init__(self, places: list[Place]) -> None:
        self.places = places
        self.display_id = f"toolloop-{uuid.uuid4().hex}"
        for place in places:
            place.output = self

    @property
    def is_widget(self) -> bool:
        return any(WIDGET in place.bundle for place in self.places)

    def bundle(self) -> Mapping[str, Any]:
        if len(self.places) == 1:
            return self.places[0].bundle
        kept = {
            kind: value
            for place in self.places
            for kind, value in place.bundle.items()
            if kind not in ("text/html", "text/plain")
        }
        texts = [str(place.bundle.get("text/plain", "")) for place in self.places]
        htmls = [str(place.bundle.get("text/html", "")) for place in self.places]
        return {
            **kept,
            "text/html": "".join(htmls),
            "text/plain": "\n".join(text for text in texts if text),
        }


class Column:
    """All places of one run. `owns` says that nothing else is in the cell, so that it may be cleared."""

    def __init__(self, cell: kernel.Cell, *, owns: bool = False) -> None:
        self._cell = cell
        self.can_update = cell.can_update
        self._owns = owns and cell.can_update
        self._outputs: list[_Output] = []

    def place(self) -> Place:
        """A new place; it gets its position when something is first put there."""
        return Place(self)

    def show(self, place: Place, *, soon: bool) -> None:
        """Show what a place holds now."""
        if place.output is not None:
            if soon or len(place.output.places) == 1:
                self._cell.update(place.output.bundle(), place.output.display_id)
            return
        if self._owns and len(self._outputs) >= MOST:
            self._put_together()
        self._outputs.append(_Output([place]))
        self._cell.display(place.bundle, display_id=self._outputs[-1].display_id)

    def _put_together(self) -> None:
        """Make one output of the finished ones between widgets, and show all again."""
        older, newest = self._outputs[:-KEPT], self._outputs[-KEPT:]
        for place in (place for output in older for place in output.places):
            place.output = None  # one that is empty gets no new output until something is put there
        self._outputs = [_Output(places) for places in (*_runs(older), *(one.places for one in newest))]
        self._cell.clear()
        for output in self._outputs:
            self._cell.display(output.bundle(), display_id=output.display_id)


def _runs(outputs: list[_Output]) -> Iterator[list[Place]]:
    """The places of neighbours without widgets together, those with a widget alone."""
    together: list[Place] = []
    for output in outputs:
        if not output.is_widget:
            together += [place for place in output.places if place.bundle != EMPTY]
            continue
        if together:
            yield together
        yield output.places
        together = []
    if together:
        yield together
