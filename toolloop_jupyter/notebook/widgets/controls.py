"""Toolbar, bar with a Stop button, step card and what every panel is made of.

Panels are built of plain buttons, fields and escaped HTML, work on ipywidgets 7.7.1 and 8, and close every comm they
opened when they are done (a widget's layout and style have comms of their own). What a click does is decided by the
`Approval`; a card only passes it on, so a late or second click does nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import ClassVar

import ipywidgets

from ...core.events import Usage
from ...core.text import duration
from ..html import CARD_STYLE, STYLE, counted, dim, inline
from ..transcript import WIDGET, money
from .focus import FOCUS


class _Panel:
    """Widgets shown together and closed together."""

    def __init__(
        self, widget: ipywidgets.Widget, *beside: ipywidgets.Widget, hold: Hold | None = None
    ) -> None:
        """`beside` are those that are not on the page; `hold` is what holds its buttons back."""
        self.widget = widget
        self._beside, self._hold = beside, hold
        self._finished = False

    def mimebundle(self) -> dict[str, object]:
        """What to put into a display message: the reference that a front-end replaces by the widget."""
        reference = {"version_major": 2, "version_minor": 0, "model_id": self.widget.model_id}
        return {WIDGET: reference}

    def finish(self) -> None:
        """Take it off the page: nothing on it acts any more, and all its comms are closed. Safe to call twice."""
        if self._finished:
            return
        self._finished = True
        if self._hold is not None:
            self._hold.gone()
        for part in (self.widget, *self._beside):
            close(part)


def close(widget: ipywidgets.Widget) -> None:
    """Close a widget and all that it made, children first: layouts and styles have comms of their own."""
    for child in getattr(widget, "children", ()):
        close(child)
    for part in (widget, getattr(widget, "layout", None), getattr(widget, "style", None)):
        if isinstance(part, ipywidgets.Widget):
            part.close()


def button(
    label: str, tooltip: str, css: str = "", clicked: Callable[[object], object] | None = None
) -> ipywidgets.Button:
    """A button of ours, and what it does."""
    made = ipywidgets.Button(description=label, tooltip=tooltip, layout=ipywidgets.Layout(width="auto"))
    made.add_class("tlj-btn")
    if css:
        made.add_class(css)
    if clicked is not None:
        made.on_click(clicked)
    return made


def put_into_card(*parts: ipywidgets.Widget, buttons: Sequence[ipywidgets.Widget]) -> ipywidgets.Widget:
    """A card of these parts, with a row of buttons below them."""
    row = ipywidgets.Box(list(buttons))
    row.add_class("tlj-row")
    card = ipywidgets.VBox([*parts, row, _hidden(FOCUS)])
    card.add_class("tlj-card")
    return card


def _hidden(inner: str) -> ipywidgets.Widget:
    """What is for the page and not for the eye."""
    return ipywidgets.HTML(inner, layout=ipywidgets.Layout(display="none"))


class StopBar(_Panel):
    """What goes on, as HTML of ours, and beside it the Stop button."""

    def __init__(self, on_stop: Callable[[], None], tooltip: str = "Stop this run") -> None:
        self._on_stop = on_stop
        # It is the first output of its run, so it brings the styles; apart from what is sent anew each second.
        styles = _hidden(STYLE + CARD_STYLE + FOCUS)
        self._status = ipywidgets.HTML("")
        self._stop = button("Stop", tooltip, "", self._clicked)
        bar = ipywidgets.Box([styles, self._status, self._stop])
        bar.add_class("tlj-bar")
        super().__init__(bar)

    def show(self, html: str) -> None:
        """Show this beside the button: one message, and none when nothing changed."""
        if not self._finished and self._status.value != html:
            self._status.value = html

    def _clicked(self, _: object) -> None:
        if self._finished or self._stop.disabled:
            return
        self._stop.disabled = True
        Hold.after_click()
        self._on_stop()


class Toolbar(StopBar):
    """State, elapsed time, model calls, tokens and cost of a run, with the Stop button."""

    def __init__(self, on_stop: Callable[[], None]) -> None:
        super().__init__(on_stop)
        self.update("starting", Usage(), 0.0, 0.0)

    def update(self, state: str, usage: Usage, cost: float | None, elapsed: float) -> None:
        """Show where the run is. `elapsed` in seconds."""
        css = "tlj-ask" if "waiting" in state else "tlj-ok"
        facts = [duration(elapsed, whole=True)]
        if usage.calls:
            facts.append(
                f"{counted(usage.calls, 'model call')} · {counted(usage.total_tokens, 'token')} · {money(cost)}"
            )
        rest = "".join(f" <span>{inline(fact)}</span>" for fact in facts)
        self.show(
            f'<div class="tlj tlj-status"><span class="{css}">●</span> <b>{inline(state)}</b>{rest}</div>'
        )


class StepCard(_Panel):
    """Holds a run before its next step: Next lets one step go on, Run to end all that follow. Stop is on the toolbar."""

    def __init__(self, what: str, on_next: Callable[[], None], on_run: Callable[[], None]) -> None:
        hold = Hold(self._show_held)
        self._next = button(
            "Next", "Go on with this step", "tlj-go", lambda _: self._go(on_next, held=hold.on)
        )
        self._run = button(
            "Run to end", "Go on without holding again", "", lambda _: self._go(on_run, held=hold.on)
        )
        label = ipywidgets.HTML(
            f'{STYLE}{CARD_STYLE}<div class="tlj">{dim("to", "span")} {inline(what)}</div>'
        )
        self._buttons = [self._next, self._run]
        self._answered = False
        super().__init__(put_into_card(buttons=[*self._buttons, label]), hold=hold)
        self.came_up = hold.came_up
        hold.begin(only_soon=True)

    def _go(self, act: Callable[[], None], *, held: bool = False) -> None:
        if self._finished or self._answered or held:
            return
        self._answered = True
        for button in self._buttons:
            button.disabled = True
        Hold.after_click(self._hold)
        act()

    def _show_held(self, held: bool) -> None:  # noqa: FBT001 - called with one value
        if not self._finished and not self._answered:
            self._next.disabled = self._run.disabled = held


class ClickTest(_Panel):
    """A button that only wants to be clicked: `%toolloop doctor` finds out whether clicks come back."""

    def __init__(self, wait: float, on_click: Callable[[], object]) -> None:
        label = ipywidgets.HTML(
            f"{STYLE}{CARD_STYLE}<div class='tlj'>Does a click come back? ({wait:g} s)</div>"
        )
        click = button("Click me", "Tell the doctor that clicks arrive", "tlj-go", lambda _: on_click())
        super().__init__(put_into_card(label, buttons=[click]))


# --- the second click of a double click must not decide on a card that came up under the pointer in between ---
#
# The next card may come up within 50 ms of a click, at the same place. So for `PAUSE` seconds after a person's click no
# other card takes a click that lets something run: not one that was open already (it moves up), and not one that comes
# up within `SOON` seconds of the click. Denying works at once. A card that nobody's click comes before is never held.

SOON = 1.0
"""Seconds after a click within which a card that comes up is held."""
PAUSE = 0.7
"""Seconds for which it is held: longer than the two clicks of a double click may be apart (0.5 s on most systems)."""


class Hold:
    """Holds one card's allowing buttons back. `show(held)` disables them, or enables them where they still act."""

    _shown: ClassVar[dict[Hold, None]] = {}
    """The cards that are on the page."""
    _clicked: ClassVar[float] = float("-inf")
    """When a person last decided by a click on any card of this kernel (monotonic clock)."""

    def __init__(self, show: Callable[[bool], None]) -> None:
        self._show = show
        self._until = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def on(self) -> bool:
        """Whether an allowing click would come too early."""
        return time.monotonic() < self._until

    def begin(self, *, only_soon: bool = False) -> None:
        """Hold this card for PAUSE seconds from now; `only_soon`: if a click came shortly before. From any thread."""
        if not only_soon or time.monotonic() < Hold._clicked + SOON:
            self._until = time.monotonic() + PAUSE
            self._show(True)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end)

    def came_up(self) -> bool:
        """The card is on the page now; tells whether it is held. On the thread of the running loop."""
        self._loop = asyncio.get_running_loop()
        Hold._shown[self] = None
        self.begin(only_soon=True)
        return self.on

    def gone(self) -> None:
        """The card is off the page."""
        Hold._shown.pop(self, None)

    @classmethod
    def after_click(cls, on: Hold | None = None) -> None:
        """Hold every card but the one that a person decides on by this click. From any thread, before it is acted on."""
        cls._clicked = time.monotonic()
        for card in tuple(cls._shown):
            if card is not on:
                card.begin()

    def _end(self) -> None:
        left = self._until - time.monotonic()
        if left > 0 and self._loop is not None:  # not yet, or another click came meanwhile
            self._loop.call_later(left, self._end)
        else:
            self._show(False)
