"""The second click of a double click must not decide on a card that came up under the pointer in between.

The next card may come up within 50 ms of a click, at the same place. So for `PAUSE` seconds after a person's click no
other card takes a click that lets something run: not one that was open already (it moves up), and not one that comes
up within `SOON` seconds of the click. Denying works at once. A card that nobody's click comes before is never held.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import ClassVar

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
