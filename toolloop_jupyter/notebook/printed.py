"""What one tool call prints, displays and yields while it runs, kept in the order in which a person reads it.

Prints of one stream that follow each other are one text, with progress bars at their last state; a display that is
updated is replaced; a widget (tqdm's bar in notebooks is one) is its own text as it stands.
"""

from __future__ import annotations

import base64
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..core.events import ToolCall
from ..core.foreign import Raised, attempt
from ..core.observer import Observer
from ..core.pictures import kind_of
from ..core.terminal import settled
from . import kernel_output as kernel
from .inert import counted

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


class Outputs:
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
        text = attempt(repr, widget)
        return {"text/plain": bundle.get("text/plain", "") if isinstance(text, Raised) else text}

    def state(self) -> object:
        """Something that differs when there is something new to see."""
        with self._lock:
            return (
                self._taken,
                *(attempt(repr, widget) for widget in self._widgets.values() if widget is not None),
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


class Kept(Observer):
    """For a run that nobody shows: prints go where they went, and are kept for the tools that ask for it."""

    steps_aside = True

    @contextmanager
    def running(self, call: ToolCall) -> Iterator[Outputs]:
        outputs = Outputs()

        def sink(kind: str, payload: Any) -> None:
            outputs.take(kind, payload)
            with kernel.into(None):
                if kind != "display":
                    getattr(sys, kind).write(payload)
                elif (publisher := getattr(kernel.shell(), "display_pub", None)) is not None:
                    transient = {"display_id": payload.display_id} if payload.display_id else {}
                    publisher.publish(
                        dict(payload), dict(payload.metadata), transient=transient, update=payload.replaces
                    )

        with kernel.capture(sink):
            yield outputs


def picture_of(bundle: Any) -> bytes:
    """The bytes of a MIME bundle's picture, b"" when it has none."""
    for kind in ("image/png", "image/jpeg"):
        data = bundle.get(kind)
        if isinstance(data, str):
            data = attempt(base64.b64decode, data)
        if isinstance(data, bytes) and kind_of(data):
            return data
    return b""


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
