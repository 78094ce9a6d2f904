"""The toolbar with its Stop button, the step card, and the parts that all panels share. `make_button` makes every button.

Panels consist of plain buttons, fields and escaped HTML. They work with ipywidgets 7.7.1 and 8. A panel that is finished
closes every comm that it has opened: the layout and the style of a widget have comms, too.
"""

from __future__ import annotations

import asyncio
import html
import time
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, Protocol

import ipywidgets

from ..html import CARD_STYLE, STYLE, dim, inline
from ..transcript import WIDGET


class Comms(Protocol):
    """What a card needs from the kernel. The class `CardComms` in the room `kernel` has these methods."""

    def keep_order(self, comm: object) -> None: ...

    def is_click(self, comm: object) -> bool: ...


class _Panel:
    """A group of widgets. They are shown together and closed together."""

    def __init__(self, widget: ipywidgets.Widget, *beside: ipywidgets.Widget) -> None:
        """`beside` are further widgets of the panel that are not on the page."""
        self.widget = widget
        self._beside = beside
        self._finished = False

    def make_reference(self) -> dict[str, object]:
        """Return {MIME type: reference to the widget}, for a MIME bundle. A front-end with widgets shows only the widget."""
        reference = {"version_major": 2, "version_minor": 0, "model_id": self.widget.model_id}
        return {WIDGET: reference}

    def finish(self) -> None:
        """Remove the panel from the page and close all its comms. After this, its buttons do nothing."""
        if not self._finished:
            self._finished = True
            for part in (self.widget, *self._beside):
                close(part)


def list_parts(widget: ipywidgets.Widget) -> Iterator[ipywidgets.Widget]:
    """Yield a widget's children, the widget itself, its layout and its style. Each of these has its own comm."""
    for child in getattr(widget, "children", ()):
        yield from list_parts(child)
    for part in (widget, getattr(widget, "layout", None), getattr(widget, "style", None)):
        if isinstance(part, ipywidgets.Widget):
            yield part


def close(widget: ipywidgets.Widget) -> None:
    """Close a widget, its children, its layout and its style."""
    for part in list_parts(widget):
        part.close()


def make_button(
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


def _make_hidden(inner: str) -> ipywidgets.Widget:
    """Return an invisible widget. `inner` is HTML that the page needs, such as styles."""
    return ipywidgets.HTML(inner, layout=ipywidgets.Layout(display="none"))


class Toolbar(_Panel):
    """A line that says what the run does. The Stop button is beside the line."""

    def __init__(self, on_stop: Callable[[], None], tooltip: str = "Stop this run") -> None:
        self._on_stop = on_stop
        # The toolbar is the first output of its run, so it contains the styles. The status has none, because it is sent often.
        styles = _make_hidden(STYLE + CARD_STYLE + FOCUS)
        self._status = ipywidgets.HTML("")
        self._stop = make_button("Stop", tooltip, "", self._clicked)
        bar = ipywidgets.Box([styles, self._status, self._stop])
        bar.add_class("tlj-bar")
        super().__init__(bar)

    def show(self, html: str) -> None:
        """Show `html`, which must be inert, beside the button. A message is sent only if `html` has changed."""
        if not self._finished and self._status.value != html:
            self._status.value = html

    def _clicked(self, _: object) -> None:
        if self._finished or self._stop.disabled:
            return
        self._stop.disabled = True
        hold_cards()
        self._on_stop()


# --- cards ------------------------------------------------------------------------------------------------------
#
# A new card may appear within 50 ms of a click, at the place of the old card. So the second click of a double click could hit
# the new card. To prevent this, a person's click on one card holds the others: their buttons that allow something are disabled
# for `PAUSE` seconds. Cards are held if they are open already, because they move up. Cards are also held if they appear within
# `SOON` seconds of the click. Deny always works at once. A card is never held without a click before it.

SOON = 1.0
"""A card that appears within this many seconds after a click is held."""
PAUSE = 0.7
"""A card is held for this many seconds. Most systems wait 0.5 s at most for the second click of a double click."""


class Card(_Panel):
    """A panel on which a person decides. For a moment after a click on another card, the card is held (see above)."""

    on_page: ClassVar[dict[Card, None]] = {}
    """The cards that are on the page now."""
    last_click: ClassVar[float] = float("-inf")
    """When a person last clicked Stop, or a button that decides on a card, in this kernel (monotonic clock)."""

    def __init__(
        self,
        *parts: ipywidgets.Widget,
        buttons: Sequence[ipywidgets.Widget],
        allowing: Sequence[ipywidgets.Widget] = (),
        beside: Sequence[ipywidgets.Widget] = (),
    ) -> None:
        """Put a row of `buttons` below the parts. The buttons in `allowing` are disabled while the card is held."""
        row = ipywidgets.Box(list(buttons))
        row.add_class("tlj-row")
        card = ipywidgets.VBox([*parts, row, _make_hidden(FOCUS)])
        card.add_class("tlj-card")
        super().__init__(card, *beside)
        self._allowing = allowing
        self._held_until = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._hold_if_clicked()

    @property
    def is_decided(self) -> bool:
        """True if a further click on the card does nothing."""
        return self._finished

    @property
    def is_held(self) -> bool:
        return time.monotonic() < self._held_until

    def enter_page(self) -> None:
        """Add this card to the cards on the page. Must be called on the thread of the running event loop."""
        self._loop = asyncio.get_running_loop()
        Card.on_page[self] = None
        self._hold_if_clicked()

    def finish(self) -> None:
        Card.on_page.pop(self, None)
        super().finish()

    def hold(self) -> None:
        """Hold this card for `PAUSE` seconds from now. Can be called on any thread."""
        self._held_until = time.monotonic() + PAUSE
        self._show_held()

    def _hold_if_clicked(self) -> None:
        if time.monotonic() < Card.last_click + SOON:
            self._held_until = time.monotonic() + PAUSE
        self._show_held()

    def _show_held(self) -> None:
        if self.is_decided:
            return
        # The time is read once. So if the buttons are disabled here, a later call is sure to enable them.
        wait = self._held_until - time.monotonic()
        for each in self._allowing:
            each.disabled = wait > 0
        if wait > 0 and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.call_later, wait, self._show_held)


def hold_cards(but: Card | None = None) -> None:
    """Hold every card except `but`, the clicked card (None: Stop was clicked). Call this before the click has its effect.

    Any thread may call this.
    """
    Card.last_click = time.monotonic()
    for card in tuple(Card.on_page):
        if card is not but:
            card.hold()


class StepCard(Card):
    """The card of step mode. "Next" lets the run do one step; "Run to end" lets it do all further steps.

    The button Stop is on the toolbar.
    """

    def __init__(self, what: str, on_next: Callable[[], None], on_run: Callable[[], None]) -> None:
        self._answered = False
        self._buttons = [
            make_button("Next", "Go on with this step", "tlj-go", lambda _: self._go(on_next)),
            make_button("Run to end", "Go on without waiting again", "", lambda _: self._go(on_run)),
        ]
        label = ipywidgets.HTML(
            f'{STYLE}{CARD_STYLE}<div class="tlj">{dim("to", "span")} {inline(what)}</div>'
        )
        super().__init__(buttons=[*self._buttons, label], allowing=self._buttons)

    @property
    def is_decided(self) -> bool:
        return self._finished or self._answered

    def _go(self, act: Callable[[], None]) -> None:
        if self.is_decided or self.is_held:
            return
        self._answered = True
        for button in self._buttons:
            button.disabled = True
        hold_cards(self)
        act()


class ClickTest(Card):
    """A button for `%toolloop doctor`, which tests whether clicks reach the kernel."""

    def __init__(self, wait: float, on_click: Callable[[], object]) -> None:
        label = ipywidgets.HTML(
            f"{STYLE}{CARD_STYLE}<div class='tlj'>Does a click reach the kernel? ({wait:g} s)</div>"
        )
        click = make_button(
            "Click me", "Tell the doctor that your clicks arrive", "tlj-go", lambda _: on_click()
        )
        super().__init__(label, buttons=[click])


# --- the keyboard's focus ---------------------------------------------------------------------------------------
#
# The focus moves to a card that waits for a decision, but never while a person types elsewhere. The kernel can tell a widget to
# take the focus, but cannot see where the focus is. So each card and each toolbar has a few lines of JavaScript, which watch the
# output area around the widget. Only live widgets have the script; a saved run has no script. If a page forbids inline scripts,
# the focus does not move, and a person can reach the card with the Tab key.

_SCRIPT = """
const begin = (mark, patience) => {
  if (!mark.isConnected) return patience && setTimeout(begin, 50, mark, patience - 1);
  const area = mark.closest('.jp-OutputArea') ?? document.body;
  mark.remove();
  area.toolloopFocus ??= follow(area);
  area.toolloopFocus();
};
const follow = area => {
  const seen = new WeakSet();
  let parked, isOurs = area.contains(document.activeElement), end;
  const isGone = element => !element?.isConnected || element === document.body || element.matches(':disabled');
  const isTaken = () => {
    if (window !== window.parent && !document.hasFocus()) return true;
    const now = document.activeElement;
    return !isGone(now) && now.closest('input,textarea,select,[contenteditable="true"],.lm-Menu,.lm-MenuBar,dialog,[role="dialog"]');
  };
  const take = (element, mayScroll) => {
    parked = element.matches('button,input,select,textarea') ? undefined : element;
    if (parked && element.tabIndex < 0) element.tabIndex = -1;
    if (mayScroll) (element.matches('.tlj-form *') ? element : element.closest('.tlj-card')).scrollIntoView({block: 'nearest'});
    element.focus({preventScroll: true});
    isOurs = true;
  };
  const openCard = () => [...area.querySelectorAll('.tlj-card')].find(card => card.querySelector('.tlj-btn:enabled'));
  const rest = () => area.querySelector('.tlj-bar') ?? [...area.querySelectorAll('.tlj-foot')].at(-1)
    ?? [...area.querySelectorAll('.jp-OutputArea-output')].at(-1);
  const look = () => {
    const card = openCard(), now = document.activeElement;
    const form = card?.querySelector('.tlj-form :is(input,select,textarea)');
    for (const text of card?.querySelectorAll('.tlj-form textarea') ?? [])
      if (!seen.has(text)) seen.add(text), text.setSelectionRange(0, 0);
    if (form && !seen.has(form)) {
      seen.add(form);
      if (card.contains(now)) take(form, true);
    } else if (card ? !seen.has(card) && !isTaken() : false) {
      take(card.querySelector('.tlj-go:enabled') ?? card, true);
    } else if (isOurs && (isGone(now) || now === parked)) {
      let place = card ? card.querySelector('.tlj-go:enabled') ?? card : rest();
      if (place?.matches('details')) place = place.firstElementChild;
      if (place && place !== now) take(place, !!card);
    }
    if (card) seen.add(card);
    clearTimeout(end);
    if (!area.isConnected || !area.querySelector('.tlj-bar,.tlj-card')) end = setTimeout(leave, 2000);
  };
  const moved = event => {
    isOurs = area.contains(event.target);
    if (event.target !== parked) parked = undefined;
  };
  const left = event => setTimeout(() => {
    if (document.activeElement === document.body && !isGone(event.target)) isOurs = false;
  });
  const pressed = event => {
    if (event.key !== 'Enter' && event.key !== ' ') return;
    const on = event.target, card = on.closest('.tlj-card');
    const leadsTo = event.key === 'Enter' && card?.querySelector(
      on.matches('.tlj-why input') ? '.tlj-no:enabled' : on.matches('.tlj-form input') ? '.tlj-go:enabled' : ':not(*)');
    const isHeldDown = event.repeat && on.closest('.tlj-btn');
    if (!leadsTo && !isHeldDown && !(on === parked && on.matches('.tlj-card,.tlj-bar'))) return;
    event.preventDefault();
    event.stopPropagation();
    if (!leadsTo || event.repeat) return;
    leadsTo.focus();
    if (leadsTo.matches('.tlj-no')) leadsTo.click();
  };
  const observer = new MutationObserver(look);
  observer.observe(area, {childList: true, subtree: true, attributes: true, attributeFilter: ['disabled']});
  document.addEventListener('focusin', moved);
  document.addEventListener('focusout', left);
  area.addEventListener('keydown', pressed, true);
  const leave = () => {
    observer.disconnect();
    document.removeEventListener('focusin', moved);
    document.removeEventListener('focusout', left);
    area.removeEventListener('keydown', pressed, true);
    delete area.toolloopFocus;
  };
  return look;
};
begin(this, 100);
"""
# `seen`: the cards and fields that the script has seen before. `parked`: the element that has the focus until the next card
# comes. `isOurs`: true if the focus was in this area until now. If the focused element has disappeared, the script sets the
# focus again. If the person has clicked elsewhere, the script leaves the focus there. Enter in "Deny because" presses Deny.
# Enter in a field of the form moves the focus to Approve. In both cases the focus leaves the field, so the field's content is
# sent. A key that is held down presses a button only once.

FOCUS = f'<img hidden alt="" src="data:," onerror="{html.escape(_SCRIPT)}">'
"""The script as an HTML element. Live widgets have this element in their HTML."""
