"""The clock of an event loop, for tests of time limits. The test says when a limit is over, so a busy machine changes nothing."""

from __future__ import annotations

import asyncio


def skip_time(seconds: float) -> None:
    """Put the clock of the running loop forward. Timers that would end within `seconds` end now, in their order."""
    loop = asyncio.get_running_loop()
    earlier = loop.time
    loop.time = lambda: earlier() + seconds  # type: ignore[method-assign]
