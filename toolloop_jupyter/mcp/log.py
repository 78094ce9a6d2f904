"""Keep what a server writes to stderr in a file. Error messages about the server show the last lines of this file."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TextIO

from ..core.text import hide, plain, settle_lines

MOST_BYTES = 10_000_000
"""If the file has more bytes, it is emptied, since a server may write without end."""
TAIL = 20_000
"""How many bytes are read from the end of the file. Earlier bytes are not used."""
LAST_WORDS = 300
"""How many characters of the last lines an error message shows at most."""


class ServerLog:
    """The log file of one connection. A server that is started again writes to the same file. `close()` removes the file."""

    def __init__(self) -> None:
        handle, name = tempfile.mkstemp(prefix="toolloop-mcp-", suffix=".log")
        os.close(handle)
        self._path = Path(name)
        self._last = ""
        self.noise = 0
        """How many lines of the server on stdout were no MCP messages."""

    def open(self) -> TextIO:
        """Open the file, so that a server's process can write to it. After `trim` has emptied the file, writing continues."""
        return self._path.open("a", encoding="utf-8")

    def trim(self) -> None:
        """Empty the file if it has more than MOST_BYTES. Keep its last TAIL bytes in memory."""
        with contextlib.suppress(OSError):
            if self._path.stat().st_size > MOST_BYTES:
                self._last = self._read()
                os.truncate(self._path, 0)

    def tail(self) -> str:
        """Return the last part of the log as plain text. API keys are hidden."""
        return hide(plain(settle_lines(self._last + self._read()))[-TAIL:])

    def last_words(self) -> str:
        """Return one line. It contains the last lines of stderr, and the number of lines on stdout that were no MCP messages.

        Return "" if the server has written neither.
        """
        lines = [line.strip() for line in self.tail().splitlines() if line.strip()]
        words = " / ".join(lines[-3:])[-LAST_WORDS:]
        said = f"its last lines on stderr: {words}" if words else ""
        noise = f"{self.noise} line{'s' * (self.noise > 1)} on its stdout were no MCP messages"
        return "; ".join(part for part in (said, noise if self.noise else "") if part)

    def add_last_words(self, line: str) -> str:
        """Return `line`, a message about the server, followed by the text of `last_words`."""
        words = self.last_words()
        return f"{line}; {words}" if words else line

    def close(self) -> None:
        """Remove the file. `tail()` can still be called afterwards: it returns the last part, which is kept in memory."""
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
