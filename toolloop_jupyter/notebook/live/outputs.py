"""What one tool call prints, displays and yields while it runs, kept in the order in which a person reads it.

Prints of one stream that follow each other are one text, with progress bars at their last state; a display that is
updated is replaced; a widget (tqdm's bar in notebooks is one) is its own text as it stands.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ...core.events import Approval, Decision, PrintKeeper, ToolCall, ToolResult
from ...core.execution import Raised, attempt_call
from ...core.text import settled
from .. import kernel
from ..html import counted
from ..transcript import picture_of
from .places import Place

MOST_KEPT = 400_000
"""Characters of one printed text that are kept: its beginning and its end."""
LAST_ITEMS = 20
"""Items of a generator that are shown while it goes on."""
WIDGET = "application/vnd.jupyter.widget-view+json"


class Text:
    """A printed text that grows."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = 0

    def add(self, piece: str) -> None:
        self._pieces.append(piece)
        self._length += len(piece)
        if self._length > 2 * MOST_KEPT:
            self._shrink()

    def _shrink(self) -> None:
        whole = settled("".join(self._pieces))
        half = MOST_KEPT // 2
        if len(whole) > MOST_KEPT:
            whole = f"{whole[:half]}\n… some of it is not kept …\n{whole[-half:]}"
        self._pieces, self._length = [whole], len(whole)

    def __str__(self) -> str:
        if len(self._pieces) > 1:
            self._pieces[:] = ["".join(self._pieces)]
        return settled(self._pieces[0]) if self._pieces else ""


class Outputs(PrintKeeper):
    """Takes what comes, from any thread, and shows what is there. str() is the text for the model."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._parts: list[tuple[str, Any]] = []
        self._places: dict[str, int] = {}
        self._widgets: dict[int, Any] = {}
        self._taken = 0
        self._items: deque[object] = deque(maxlen=LAST_ITEMS)
        self._item_count = 0

    def take(self, kind: str, payload: Any) -> None:
        """A piece: ("stdout" or "stderr", text) or ("display", MIME bundle)."""
        with self._lock:
            self._taken += 1
            if kind != "display":
                if not self._parts or self._parts[-1][0] != kind:
                    self._parts.append((kind, Text()))
                self._parts[-1][1].add(str(payload))
                return
            self._display(payload)

    def _display(self, bundle: Mapping[str, Any]) -> None:
        name = getattr(bundle, "display_id", None)
        known = self._places.get(name) if name is not None else None
        if known is not None and getattr(bundle, "replaces", False):
            self._parts[known] = ("display", bundle)
            return
        if name is not None:
            self._places[name] = len(self._parts)
        if WIDGET in bundle:
            self._widgets[len(self._parts)] = _widget(bundle[WIDGET])
        self._parts.append(("display", bundle))

    def add_item(self, item: object) -> None:
        """One more item of a generator."""
        with self._lock:
            self._taken += 1
            self._items.append(item)
            self._item_count += 1

    def shown(self, *, items: bool) -> tuple[tuple[str, object], ...]:
        """What is there now, in order; the last `items` of a generator behind it, while there is no result with them."""
        with self._lock:
            parts: list[tuple[str, object]] = [
                (kind, str(data) if isinstance(data, Text) else self._now(index, data))
                for index, (kind, data) in enumerate(self._parts)
            ]
            if items and self._item_count:
                earlier = self._item_count - len(self._items)
                parts += [("note", f"… {counted(earlier, 'earlier item')}")] if earlier else []
                parts += [("item", item) for item in self._items]
            return tuple(parts)

    def _now(self, index: int, bundle: Any) -> Any:
        widget = self._widgets.get(index)
        if widget is None:
            return bundle
        text = attempt_call(repr, widget)
        return {"text/plain": bundle.get("text/plain", "") if isinstance(text, Raised) else text}

    def state(self) -> object:
        """Something that differs when there is something new to see."""
        with self._lock:
            return (
                self._taken,
                *(attempt_call(repr, widget) for widget in self._widgets.values() if widget is not None),
            )

    def clear(self) -> None:
        """Forget everything; what still comes is taken."""
        with self._lock:
            self._parts, self._places, self._widgets = [], {}, {}
            self._items.clear()
            self._item_count = 0

    def __str__(self) -> str:
        texts = []
        for kind, data in self.shown(items=False):
            text = str(data) if kind != "display" else _words(data)
            texts.append(text if not text or text.endswith("\n") or kind != "display" else f"{text}\n")
        return "".join(texts)

    @property
    def pictures(self) -> list[bytes]:
        """The pictures that were displayed, as PNG or JPEG."""
        with self._lock:
            bundles = [data for kind, data in self._parts if kind == "display"]
        return [data for bundle in bundles if (data := picture_of(bundle))]


def pass_on(kind: str, payload: Any) -> None:
    """Let what a tool prints or displays come where it would have come without us."""
    with kernel.redirect_output(None):
        if kind != "display":
            getattr(sys, kind).write(payload)
        elif (publisher := getattr(kernel.get_shell(), "display_pub", None)) is not None:
            transient = {"display_id": payload.display_id} if payload.display_id else {}
            publisher.publish(
                dict(payload), dict(payload.metadata), transient=transient, update=payload.replaces
            )


def _words(bundle: Any) -> str:
    for kind in ("text/markdown", "text/latex", "text/plain"):
        if isinstance(text := bundle.get(kind), str):
            return text
    return ""


def _widget(view: Any) -> Any:
    """The live widget of a view, or None. Nothing is imported: a widget exists only where ipywidgets is."""
    module = sys.modules.get("ipywidgets.widgets.widget")
    if module is None or not isinstance(view, Mapping):
        return None
    # Private (ipywidgets 8), `Widget.widgets` before; what a front-end's state request reads.
    known = getattr(module, "_instances", None) or getattr(module.Widget, "widgets", None) or {}
    return known.get(view.get("model_id"))


# --- Figures that a tool leaves open in pyplot: shown under its call, where the inline backend would show them below the cell. ---

_watching: list[object] = []
"""One for each tool that runs now: with several at once nobody can tell whose a figure is, so they are left alone."""


class FigureBundle(dict[str, Any]):
    """A MIME bundle that knows the figure that it was made of."""

    def __init__(self, data: Mapping[str, Any], figure: Any) -> None:
        super().__init__(data)
        self.figure = figure


@contextmanager
def taken_up(
    sink: Callable[[str, Any], None], bundle_of: Callable[[Any], Mapping[str, Any]]
) -> Iterator[None]:
    """Give `sink` a bundle for each figure that the code inside opened and did not close, and close it in pyplot.

    Only with the inline backend, and only where it closes figures at a cell's end itself (its own default).
    """
    before = {id(figure) for figure in _open_figures()}
    me = object()
    _watching.append(me)
    try:
        yield
    finally:
        alone = _watching == [me]
        _watching.remove(me)
        new = (
            [figure for figure in _open_figures() if id(figure) not in before]
            if alone and _is_inline()
            else []
        )
        for figure in new:
            sink("display", FigureBundle(bundle_of(figure), figure))
            attempt_call(sys.modules["matplotlib.pyplot"].close, figure)


def _open_figures() -> list[Any]:
    helpers = sys.modules.get(
        "matplotlib._pylab_helpers"
    )  # where pyplot keeps them; the inline backend reads it, too
    return (
        [] if helpers is None else [manager.canvas.figure for manager in helpers.Gcf.get_all_fig_managers()]
    )


def _is_inline() -> bool:
    pyplot, config = sys.modules.get("matplotlib.pyplot"), sys.modules.get("matplotlib_inline.config")
    if pyplot is None or "inline" not in str(pyplot.get_backend()).lower():
        return False
    return config is None or bool(config.InlineBackend.instance().close_figures)


# --- What stands at a place in a cell's output: a tool call on its way, an approval card. ---------------------

CATCH_UP = 0.05
"""Seconds that the reader of the stream gets to show what came before something that the loop's own side shows."""
LATE = 0.2
"""Seconds in which what comes late is collected before it is shown."""


class LiveCall:
    """A tool call between its ask and its result."""

    def __init__(self, call: ToolCall, place: Place, number: int) -> None:
        self.call, self.number = call, number
        self.place = place
        self.arguments: Mapping[str, object] | None = None
        self.decision: Decision | None = None
        self.outputs = Outputs()
        self.note = ""
        self.began = time.monotonic()
        self.waiting = False
        self.done = False
        self.result: ToolResult | None = None
        self.show_again: Callable[[ToolResult], None] | None = None
        """Called, from a thread, when something has come after the call's end: a tool may leave a thread behind."""
        self._late: threading.Timer | None = None
        self._seen: object = None

    def __str__(self) -> str:
        return str(self.outputs)

    @property
    def pictures(self) -> list[bytes]:
        """The pictures that the tool has displayed."""
        return self.outputs.pictures

    def has_news(self, delay: float) -> bool:
        """Whether it is worth showing (again) as running: output, a progress note, a second more on the clock."""
        elapsed = time.monotonic() - self.began
        if elapsed < delay:
            return False
        seen, self._seen = self._seen, (self.outputs.state(), self.note, int(elapsed))
        return seen != self._seen

    def sink(self, kind: str, payload: object) -> None:
        """Take what the tool prints and displays; called from its thread."""
        self.outputs.take(kind, payload)
        if self.result is not None and self.show_again is not None and self._late is None:
            self._late = threading.Timer(LATE, self._show_late)
            self._late.daemon, self._late.name = True, "toolloop-show"
            self._late.start()

    def _show_late(self) -> None:
        self._late = None
        if self.result is not None and self.show_again is not None:
            self.show_again(self.result)


async def put_card(place: Place, approval: Approval, fallback: Mapping[str, Any], position: str) -> None:
    """Show the approval card at `place` until it is decided; what cannot show widgets shows `fallback`."""
    from ..widgets import ApprovalCard

    card = ApprovalCard(approval, position=position)
    place.put({**fallback, **card.mimebundle()})
    card.came_up()
    try:
        await approval.wait()
    finally:
        card.finish(approval.decision)
