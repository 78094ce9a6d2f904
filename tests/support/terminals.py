"""Programs in a terminal of their own (pexpect)."""

from __future__ import annotations

import signal
from typing import Any


def end_terminal(child: Any) -> None:
    """Kill a program that pexpect has started, and wait for its end: pexpect's own `close` gives up after a tenth of a second."""
    if child.isalive():
        child.kill(signal.SIGKILL)
        child.wait()
    child.close()
