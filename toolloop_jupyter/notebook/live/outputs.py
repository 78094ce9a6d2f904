"""Collect the prints, displays and generator items of a running tool call, in their order on the page.

Consecutive prints become one text, in which a progress bar has only its last state. An update of a display replaces the display.
A widget (for example tqdm's bar in notebooks) is shown as its current `repr`.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from ...core.events import Observer, PrintKeeper, Progress, Request, ToolCall, Usage
from ...core.execution import Raised, attempt_call
from ...core.models import must_load
from ...core.text import settle_lines
from .. import kernel
from ..html import tell_count
from ..transcript import WIDGET, find_bundle, get_picture_bytes

MOST_KEPT = 400_000
"""The largest number of characters that we keep of one printed text. Of a longer text, we keep the beginning and the end."""
LOADING = "loading litellm (once in a kernel, some seconds)"
LAST_ITEMS = 20
"""The number of items that are shown while a generator runs: its newest ones."""
LATE = 0.2
"""Seconds for which we collect the output that comes after the end of a call, before we show it."""


class PrintedText:
    """A printed text to which more is added."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = 0

    def add(self, piece: str) -> None:
        self._pieces.append(piece)
        self._length += len(piece)
        if self._length > 2 * MOST_KEPT:
            whole, half = settle_lines("".join(self._pieces)), MOST_KEPT // 2
            if len(whole) > MOST_KEPT:
                whole = f"{whole[:half]}\n… part of the printed text was not kept …\n{whole[-half:]}"
            self._pieces, self._length = [whole], len(whole)

    def __str__(self) -> str:
        if len(self._pieces) > 1:
            self._pieces[:] = ["".join(self._pieces)]
        return kernel.name_cells(settle_lines(self._pieces[0])) if self._pieces else ""


@dataclass(eq=False)
class _Part:
    """A printed text, or a display (a MIME bundle)."""

    kind: str
    data: PrintedText | Mapping[str, object]
    widget: object = None
    """The widget that was displayed, if any."""

    def show(self) -> str | Mapping[str, object]:
        if isinstance(self.data, PrintedText):
            return str(self.data)
        text = None if self.widget is None else attempt_call(repr, self.widget)
        return self.data if text is None or isinstance(text, Raised) else {"text/plain": text}


class CallOutputs(PrintKeeper):
    """Collects the outputs, the progress and the time of a tool call whose function has started. Any thread may add outputs.

    `str()` returns the outputs as text for the model.
    """

    def __init__(self) -> None:
        self.note = ""
        """The last progress that the tool has reported, in words."""
        self._began = time.monotonic()
        self._lock = threading.RLock()
        self._parts: list[_Part] = []
        self._displays: dict[str, _Part] = {}
        """The id of each display -> its part."""
        self.taken = 0
        """The number of outputs so far."""
        self._items: deque[object] = deque(maxlen=LAST_ITEMS)
        self._item_count = 0
        self._seen: object = None
        self._show_late: Callable[[], None] | None = None
        self._timer: threading.Timer | None = None

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def take(self, kind: str, payload: Any) -> None:
        """Add an output. `kind` is "stdout" or "stderr" if `payload` is a text, "display" if `payload` is a MIME bundle."""
        with self._lock:
            self.taken += 1
            if self._show_late is not None and self._timer is None:
                self._timer = threading.Timer(LATE, self._late)
                self._timer.daemon, self._timer.name = True, "toolloop-show"
                self._timer.start()
            if kind != "display":
                if not self._parts or self._parts[-1].kind != kind:
                    self._parts.append(_Part(kind, PrintedText()))
                cast("PrintedText", self._parts[-1].data).add(str(payload))
                return
            name = getattr(payload, "display_id", None)
            view = payload.get(WIDGET)
            widget = (
                kernel.find_widgets().get(str(view.get("model_id"))) if isinstance(view, Mapping) else None
            )
            part = _Part(kind, payload, widget)
            if name in self._displays and getattr(payload, "replaces", False):
                shown = self._displays[name]
                shown.data, shown.widget = part.data, part.widget
                return
            self._parts.append(part)
            if name is not None:
                self._displays[name] = part

    def add_item(self, item: object) -> None:
        """Add an item that the tool's generator has yielded."""
        with self._lock:
            self.taken += 1
            self._items.append(item)
            self._item_count += 1

    def shown(self, *, items: bool) -> tuple[tuple[str, object], ...]:
        """Return the outputs so far, in order. If `items` is True (no value yet), a generator's newest items follow."""
        with self._lock:
            parts: list[tuple[str, object]] = [(part.kind, part.show()) for part in self._parts]
            if items and self._item_count:
                earlier = self._item_count - len(self._items)
                parts += [("note", f"… {tell_count(earlier, 'earlier item')}")] if earlier else []
                parts += [("item", item) for item in self._items]
            return tuple(parts)

    def has_news(self) -> bool:
        """Return True if something has changed since the last call of this method: an output, the progress, or the whole seconds."""
        with self._lock:
            widgets = [part.widget for part in self._parts if part.widget is not None]
        shown = [attempt_call(repr, widget) for widget in widgets]
        seen, self._seen = self._seen, (self.taken, shown, self.note, int(self.seconds))
        return seen != self._seen

    def end(self, show_late: Callable[[], None]) -> None:
        """Store that the call has its result. If a thread of the call still writes output later, `show_late` is called."""
        self._show_late = show_late

    def _late(self) -> None:
        self._timer = None  # before the page is drawn, so that output during the drawing starts a new timer
        if self._show_late is not None:
            self._show_late()

    def clear(self) -> None:
        """Forget all outputs so far. Later outputs are still collected."""
        with self._lock:
            self._parts, self._displays, self._item_count = [], {}, 0
            self._items.clear()

    def __str__(self) -> str:
        texts = []
        for kind, data in self.shown(items=False):
            text = _read_text(data) if isinstance(data, Mapping) else str(data)
            texts.append(text if not text or text.endswith("\n") or kind != "display" else f"{text}\n")
        return "".join(texts)

    @property
    def pictures(self) -> list[bytes]:
        """The pictures that were displayed, as PNG or JPEG."""
        with self._lock:
            bundles = [part.data for part in self._parts if isinstance(part.data, Mapping)]
        return [data for bundle in bundles if (data := get_picture_bytes(bundle))]


def _read_text(bundle: Mapping[str, object]) -> str:
    kinds = ("text/markdown", "text/latex", "text/plain")
    return next((text for kind in kinds if isinstance(text := bundle.get(kind), str)), "")


# --- facts about a run while it runs ----------------------------------------------------------------------------


class RunHooks(Observer):
    """Collects facts for a run's page that its events do not have: what the run does, its usage, and the outputs of its tools.

    This class draws nothing. Any thread may call its methods.
    """

    wants_output = True

    def __init__(self, model: str, *, is_on_page: bool) -> None:
        """If the run's `model` needs LiteLLM, `doing` contains words about LiteLLM's import until the first model call.

        `is_on_page`: True if the run's page shows `doing`. A terminal does not show it.
        """
        self.doing = LOADING if model and must_load(model) else "starting"
        self.is_on_page = is_on_page
        self.usage = Usage()
        self.cost: float | None = 0.0
        self._began = time.monotonic()
        self._calls: dict[str, CallOutputs] = {}

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def of(self, call_id: str) -> CallOutputs | None:
        """Return the facts about this call; None before its function starts."""
        return self._calls.get(call_id)

    def begin(self, call_id: str) -> None:
        """Begin to collect facts about a call, whose function starts now."""
        self._calls[call_id] = CallOutputs()

    def say(self, doing: str) -> None:
        """Set the words for what the run is doing, such as "waiting for you"."""
        self.doing = doing

    def before_import(self) -> bool:
        self.doing = LOADING
        return self.is_on_page

    async def before_model(self, request: Request) -> None:
        self.doing = "the model answers"

    def spent(self, usage: Usage, cost: float | None) -> None:
        self.usage, self.cost = usage, cost

    async def before_tool(self, call: ToolCall, arguments: Mapping[str, object]) -> None:
        self.doing = f"running {call.name}"
        self.begin(call.id)

    def output(self, call: ToolCall, kind: str, payload: Any) -> None:
        self._calls[call.id].take(kind, payload)

    def item(self, call: ToolCall, item: object) -> None:
        self._calls[call.id].add_item(item)

    def progress(self, call: ToolCall, progress: Progress) -> None:
        of = f" of {progress.total:g}" if progress.total is not None else ""
        self._calls[call.id].note = f"{progress.done:g}{of} {progress.note}".strip()


def pass_on(kind: str, payload: Any) -> None:
    """Print or display a tool's output as if this package did not capture it."""
    with kernel.redirect_output(None):
        if kind != "display":
            getattr(sys, kind).write(payload)
        elif (publisher := getattr(kernel.get_shell(), "display_pub", None)) is not None:
            transient = {"display_id": payload.display_id} if payload.display_id else {}
            publisher.publish(
                dict(payload), dict(payload.metadata), transient=transient, update=payload.replaces
            )


# --- figures that a tool leaves open in pyplot; we show them with the tool's call, not below the cell -------------

_watching: list[object] = []
"""One object for each running tool. If several tools run at the same time, we cannot know which of them opened a figure. We then leave
the figure open, and the inline backend shows it below the cell."""


class FigureBundle(dict[str, object]):
    """A MIME bundle that shows `figure`. If the tool returns the figure, the transcript leaves the bundle out."""

    def __init__(self, figure: object) -> None:
        super().__init__(find_bundle(figure))
        self.figure = figure


@contextmanager
def take_figures(take: Callable[[str, object], None]) -> Iterator[None]:
    """At the end of the `with` block, call `take` with a MIME bundle of each pyplot figure that the block has left open.

    The figures are then closed. All this happens only with the inline backend, and only if this backend closes figures at the
    end of a cell (its default).
    """
    before = {id(figure) for figure in _open_figures()}
    me = object()
    _watching.append(me)
    try:
        yield
    finally:
        alone = _watching == [me]
        _watching.remove(me)
        for figure in _open_figures() if alone and _is_inline() else []:
            if id(figure) not in before:
                take("display", FigureBundle(figure))
                attempt_call(sys.modules["matplotlib.pyplot"].close, figure)


def _open_figures() -> list[object]:
    # matplotlib keeps all open figures in its module `_pylab_helpers`. pyplot and the inline backend look there, too.
    helpers = sys.modules.get("matplotlib._pylab_helpers")
    managers = [] if helpers is None else helpers.Gcf.get_all_fig_managers()
    return [manager.canvas.figure for manager in managers]


def _is_inline() -> bool:
    pyplot, config = sys.modules.get("matplotlib.pyplot"), sys.modules.get("matplotlib_inline.config")
    if pyplot is None or "inline" not in str(pyplot.get_backend()).lower():
        return False
    return config is None or bool(config.InlineBackend.instance().close_figures)
