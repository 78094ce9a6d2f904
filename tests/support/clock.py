"""The clock of an event loop, for tests of time limits: a limit is over when the test says so, on a machine of any load."""

from __future__ import annotations

import asyncio


def skip_time(seconds: float) -> None:
    """Put the clock of the running loop forward: timers that would end within so many seconds end now, in their order."""
    loop = asyncio.get_running_loop()
    earlier = loop.time
    loop.time = lambda: earlier() + seconds  # type: ignore[method-assign]
