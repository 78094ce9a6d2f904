"""Programs that run in their own terminal (pexpect)."""

from __future__ import annotations

import signal
from typing import Any


def end_terminal(child: Any) -> None:
    """Kill a program that pexpect has started, and wait for its end. Pexpect's own `close` waits only a tenth of a second."""
    if child.isalive():
        child.kill(signal.SIGKILL)
        child.wait()
    child.close()
