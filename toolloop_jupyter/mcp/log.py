"""A server's stderr. It is written to a file, never to the stderr of this process. Error messages show its last lines."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TextIO

from ..core.text import hide, plain, settle_lines

MOST_BYTES = 10_000_000
"""A file with more bytes is emptied, since a server may write without end."""
TAIL = 20_000
"""How many bytes at the end of the file can be read."""
LAST_WORDS = 300
"""The most characters of the last lines that an error message shows."""


class ServerLog:
    """The log file of one connection. A server that is started again writes to the same file. `close()` removes the file."""

    def __init__(self) -> None:
        handle, name = tempfile.mkstemp(prefix="toolloop-mcp-", suffix=".log")
        os.close(handle)
        self._path = Path(name)
        self._last = ""
        self.noise = 0
        """Lines on stdout that were no MCP messages."""

    def open(self) -> TextIO:
        """Open the file for a server's process. Each write goes to the end of the file, also after `trim` has emptied it."""
        return self._path.open("a", encoding="utf-8")

    def trim(self) -> None:
        """Empty the file if it is too long. Its end is kept in memory."""
        with contextlib.suppress(OSError):
            if self._path.stat().st_size > MOST_BYTES:
                self._last = self._read()
                os.truncate(self._path, 0)

    def tail(self) -> str:
        """Return the end of the log as plain text, without API keys."""
        return hide(plain(settle_lines(self._last + self._read()))[-TAIL:])

    def last_words(self) -> str:
        """Return one line: the last lines of stderr, and how many lines on stdout were no messages; "" if there are neither."""
        lines = [line.strip() for line in self.tail().splitlines() if line.strip()]
        words = " / ".join(lines[-3:])[-LAST_WORDS:]
        said = f"its last lines on stderr: {words}" if words else ""
        noise = f"{self.noise} line{'s' * (self.noise > 1)} on its stdout were no MCP messages"
        return "; ".join(part for part in (said, noise if self.noise else "") if part)

    def add_last_words(self, line: str) -> str:
        """Return `line`, which is about the server, followed by the server's last lines."""
        words = self.last_words()
        return f"{line}; {words}" if words else line

    def close(self) -> None:
        """Remove the file. `tail()` still returns its end."""
        self._last = self.tail()
        with contextlib.suppress(OSError):
            self._path.unlink()

    def _read(self) -> str:
        try:
            with self._path.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
                return file.read(TAIL).decode("utf-8", "replace")
        except OSError:  # `close()` has removed the file
            return ""
