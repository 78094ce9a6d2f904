"""The toolbar, the bar with a Stop button, the step card, and the parts that all panels share. `button` makes every button.

Panels consist of plain buttons, fields and escaped HTML. They work with ipywidgets 7.7.1 and 8. A panel that is finished
closes every comm that it has opened. The layout and the style of a widget have comms, too. A card only passes each click on
to its `Approval`. The `Approval` accepts only the first decision, so a late click or a second click does nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, Protocol

import ipywidgets

from ...core.events import Usage
from ...core.text import duration
from ..html import CARD_STYLE, STYLE, counted, dim, inline
from ..transcript import WIDGET, money
from .focus import FOCUS


class Comms(Protocol):
    """What a card needs from the kernel.

    `keep_order` keeps the messages of a widget in order. `is_click` says whether the message that the kernel handles now is a
    person's click on the widget.
    """

    def keep_order(self, comm: object) -> None: ...

    def is_click(self, comm: object) -> bool: ...


class _Panel:
    """A group of widgets. They are shown together and closed together."""

    def __init__(
        self, widget: ipywidgets.Widget, *beside: ipywidgets.Widget, hold: Hold | None = None
    ) -> None:
        """`beside` are further widgets of the panel that are not on the page. `hold` is the panel's Hold, if there is one."""
        self.widget = widget
        self._beside, self._hold = beside, hold
        self._finished = False

    def make_reference(self) -> dict[str, object]:
        """Return the entry of a MIME bundle that refers to the panel's widget. A front-end that knows it shows the widget alone."""
        reference = {"version_major": 2, "version_minor": 0, "model_id": self.widget.model_id}
        return {WIDGET: reference}

    def finish(self) -> None:
        """Remove the panel from the page and close all its comms.

        After this, its buttons do nothing. A second call does nothing.
        """
        if self._finished:
            return
        self._finished = True
        if self._hold is not None:
            self._hold.gone()
        for part in (self.widget, *self._beside):
            close(part)


def parts_of(widget: ipywidgets.Widget) -> Iterator[ipywidgets.Widget]:
    """Yield a widget's children, the widget itself, its layout and its style. Each of these has its own comm."""
    for child in getattr(widget, "children", ()):
        yield from parts_of(child)
    for part in (widget, getattr(widget, "layout", None), getattr(widget, "style", None)):
        if isinstance(part, ipywidgets.Widget):
            yield part


def close(widget: ipywidgets.Widget) -> None:
    """Close a widget, its children, its layout and its style."""
    for part in parts_of(widget):
        part.close()


def button(
    label: str, tooltip: str, css: str = "", clicked: Callable[[object], object] | None = None
) -> ipywidgets.Button:
    """Make a button. A click on the button calls `clicked`."""
    made = ipywidgets.Button(description=label, tooltip=tooltip, layout=ipywidgets.Layout(width="auto"))
    made.add_class("tlj-btn")
    if css:
        made.add_class(css)
    if clicked is not None:
        made.on_click(clicked)
    return made


def put_into_card(*parts: ipywidgets.Widget, buttons: Sequence[ipywidgets.Widget]) -> ipywidgets.Widget:
    """Return a card with these parts. A row of buttons is below the parts."""
    row = ipywidgets.Box(list(buttons))
    row.add_class("tlj-row")
    card = ipywidgets.VBox([*parts, row, _hidden(FOCUS)])
    card.add_class("tlj-card")
    return card


def _hidden(inner: str) -> ipywidgets.Widget:
    """Return an invisible widget. `inner` is HTML that the page needs, such as styles."""
    return ipywidgets.HTML(inner, layout=ipywidgets.Layout(display="none"))


class StopBar(_Panel):
    """A line that says what the run does. The Stop button is beside the line."""

    def __init__(self, on_stop: Callable[[], None], tooltip: str = "Stop this run") -> None:
        self._on_stop = on_stop
        # The bar is the first output of its run, so it contains the styles. The status is sent often. So the styles are not
        # in the status, but in another widget.
        styles = _hidden(STYLE + CARD_STYLE + FOCUS)
        self._status = ipywidgets.HTML("")
        self._stop = button("Stop", tooltip, "", self._clicked)
        bar = ipywidgets.Box([styles, self._status, self._stop])
        bar.add_class("tlj-bar")
        super().__init__(bar)

    def show(self, html: str) -> None:
        """Show `html` beside the button.

        `html` must be inert. If it has changed, one small message is sent; if not, no message is sent.
        """
        if not self._finished and self._status.value != html:
            self._status.value = html

    def _clicked(self, _: object) -> None:
        if self._finished or self._stop.disabled:
            return
        self._stop.disabled = True
        Hold.after_click()
        self._on_stop()


class Toolbar(StopBar):
    """Shows the state, elapsed time, model calls, tokens and cost of a run. It also has the Stop button."""

    def __init__(self, on_stop: Callable[[], None]) -> None:
        super().__init__(on_stop)
        self.update("starting", Usage(), 0.0, 0.0)

    def update(self, state: str, usage: Usage, cost: float | None, elapsed: float) -> None:
        """Show the state, the usage and the cost of the run. `elapsed` is in seconds."""
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
    """The card of step mode, shown while a run waits before its next step.

    "Next" lets the run do one step. "Run to end" lets the run do all further steps. The Stop button is on the toolbar.
    """

    def __init__(self, what: str, on_next: Callable[[], None], on_run: Callable[[], None]) -> None:
        hold = Hold(self._show_held)
        self._next = button(
            "Next", "Go on with this step", "tlj-go", lambda _: self._go(on_next, held=hold.on)
        )
        self._run = button(
            "Run to end", "Go on without waiting again", "", lambda _: self._go(on_run, held=hold.on)
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
    """A button for `%toolloop doctor`, which tests whether clicks reach the kernel."""

    def __init__(self, wait: float, on_click: Callable[[], object]) -> None:
        label = ipywidgets.HTML(
            f"{STYLE}{CARD_STYLE}<div class='tlj'>Does a click come back? ({wait:g} s)</div>"
        )
        click = button("Click me", "Tell the doctor that clicks arrive", "tlj-go", lambda _: on_click())
        super().__init__(put_into_card(label, buttons=[click]))


# --- the second click of a double click must not decide on a card that has just appeared under the pointer ---
#
# A new card may appear within 50 ms of a click, at the place of the old card. So a second click could hit the new card. To
# prevent this, a person's click on one card holds the others: their buttons that allow something are disabled for `PAUSE`
# seconds. Cards are held if they are open already, since they move up. Cards are also held if they appear within `SOON`
# seconds of the click. Deny always works at once. A card is never held without a click before it.

SOON = 1.0
"""A card that appears within this many seconds after a click is held."""
PAUSE = 0.7
"""A card is held for this many seconds.

This is longer than the time between the clicks of a double click (0.5 s on most systems).
"""


class Hold:
    """Holds one card for a moment: the card's buttons that allow something are disabled.

    The function `show` is called with True to disable these buttons, and with False to enable them.
    """

    _shown: ClassVar[dict[Hold, None]] = {}
    """The cards that are on the page now."""
    _clicked: ClassVar[float] = float("-inf")
    """The time at which a person last clicked a deciding button on any card of this kernel (monotonic clock)."""

    def __init__(self, show: Callable[[bool], None]) -> None:
        self._show = show
        self._until = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def on(self) -> bool:
        """True while the card is held."""
        return time.monotonic() < self._until

    def begin(self, *, only_soon: bool = False) -> None:
        """Hold this card for `PAUSE` seconds from now.

        If `only_soon` is true, hold the card only if a click came just before. Can be called on any thread.
        """
        if not only_soon or time.monotonic() < Hold._clicked + SOON:
            self._until = time.monotonic() + PAUSE
            self._show(True)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end)

    def came_up(self) -> bool:
        """Add this card to the cards on the page, and hold it if a click came just before.

        Returns True if the card is held. Must be called on the thread of the running event loop.
        """
        self._loop = asyncio.get_running_loop()
        Hold._shown[self] = None
        self.begin(only_soon=True)
        return self.on

    def gone(self) -> None:
        """Remove this card from the cards on the page."""
        Hold._shown.pop(self, None)

    @classmethod
    def after_click(cls, on: Hold | None = None) -> None:
        """Hold every card except `on`, which is the card that a person has just clicked.

        Must be called before the click takes effect. Can be called on any thread.
        """
        cls._clicked = time.monotonic()
        for card in tuple(cls._shown):
            if card is not on:
                card.begin()

    def _end(self) -> None:
        left = self._until - time.monotonic()
        if left > 0 and self._loop is not None:  # the hold is not over, or another click has begun it again
            self._loop.call_later(left, self._end)
        else:
            self._show(False)
