"""What a server writes to stderr: into a file of ours, never to this process's, and its last words from there."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TextIO

from ..core.text import hide, plain, settle_lines

MOST_BYTES = 10_000_000
"""A file that is longer begins anew: a server may write without end."""
TAIL = 20_000
"""Bytes of its end that can be read."""
LAST_WORDS = 300
"""Characters of them in an error."""


class ServerLog:
    """The file of one connection; every life of it writes there. It goes with `close()`."""

    def __init__(self) -> None:
        handle, name = tempfile.mkstemp(prefix="toolloop-mcp-", suffix=".log")
        os.close(handle)
        self._path = Path(name)
        self._last = ""
        self.noise = 0
        """Lines on stdout that were no messages."""

    def open(self) -> TextIO:
        """The file for a process to write to; each write goes to its end, also after it was cut."""
        return self._path.open("a", encoding="utf-8")

    def trim(self) -> None:
        """Empty a file that has become too long; its end is kept in memory."""
        with contextlib.suppress(OSError):
            if self._path.stat().st_size > MOST_BYTES:
                self._last = self._read()
                os.truncate(self._path, 0)

    def tail(self) -> str:
        """The end of what was written: plain text, without keys."""
        return hide(plain(settle_lines(self._last + self._read()))[-TAIL:])

    def last_words(self) -> str:
        """The last lines in one, and how much else came that was no message; "" where nothing was written."""
        lines = [line.strip() for line in self.tail().splitlines() if line.strip()]
        words = " / ".join(lines[-3:])[-LAST_WORDS:]
        said = f"its last words: {words}" if words else ""
        noise = f"{self.noise} line{'s' * (self.noise > 1)} on its stdout were no MCP messages"
        return "; ".join(part for part in (said, noise if self.noise else "") if part)

    def add_last_words(self, line: str) -> str:
        """A line about the server, with its last words behind it."""
        words = self.last_words()
        return f"{line}; {words}" if words else line

    def close(self) -> None:
        """Remove the file; its end can be read still."""
        self._last = self.tail()
        with contextlib.suppress(OSError):
            self._path.unlink()

    def _read(self) -> str:
        try:
            with self._path.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
                return file.read(TAIL).decode("utf-8", "replace")
        except OSError:  # it is closed
            return ""
