"""Sends signals, on POSIX systems and on others."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

KILL = getattr(signal, "SIGKILL", signal.SIGTERM)
"""The signal that ends a process immediately. Windows has no SIGKILL; there, `os.kill` with SIGTERM does the same."""


def interrupt_this_process() -> None:
    """Send SIGINT to this process, as Ctrl-C does. On Windows, `os.kill` would end the process."""
    if os.name == "posix":
        os.kill(os.getpid(), signal.SIGINT)
    else:
        signal.raise_signal(signal.SIGINT)


def wait_until_main_waits() -> None:
    """Wait, in another thread, until the main thread waits for an event or a lock of `threading`."""
    main = threading.main_thread().ident
    assert main is not None
    while sys._current_frames()[main].f_code.co_filename != threading.__file__:
        time.sleep(0.01)
