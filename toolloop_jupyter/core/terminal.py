"""What a terminal would show of printed text: progress bars rewrite their line, and only its last state counts."""

from __future__ import annotations

import re

_MOVES = re.compile(r"\r\n|[\r\n\b]|\x1b\[(\d*)([ABKJ])")
"""What moves the cursor or clears: carriage return, backspace, and what progress bars use of ANSI (up, down, erase)."""
_MOST_LINES_UP = 200


def settled(text: str) -> str:
    r"""The text with carriage returns, backspaces and cursor movements carried out.

    `"10%\r20%\rdone"` gives `"done"`; colours and other sequences stay as they are. Text without such characters is
    returned as it is, at once.
    """
    if "\r" not in text and "\b" not in text and "\x1b[" not in text:
        return text
    screen = _Screen()
    start = 0
    for move in _MOVES.finditer(text):
        screen.write(text[start : move.start()])
        start = move.end()
        screen.move(move.group(2) or move.group()[-1], move.group(1) or "")
    screen.write(text[start:])
    return screen.text()


class _Screen:
    """Lines and a cursor; as wide and as high as needed."""

    def __init__(self) -> None:
        self._lines: list[str] = [""]
        self._row = 0
        self._column = 0

    def write(self, text: str) -> None:
        if not text:
            return
        line = self._lines[self._row]
        if len(line) < self._column:
            line = line.ljust(self._column)
        self._lines[self._row] = line[: self._column] + text + line[self._column + len(text) :]
        self._column += len(text)

    def move(self, what: str, number: str) -> None:
        if what == "\r":
            self._column = 0
        elif what == "\b":
            self._column = max(0, self._column - 1)
        elif what == "\n":
            self._down(1)
            self._column = 0
        elif what == "A":
            self._row = max(0, self._row - _count(number))
        elif what == "B":
            self._down(_count(number))
        elif what == "K":
            self._erase_line(number)
        elif what == "J" and number in ("", "0"):
            self._erase_line("")
            del self._lines[self._row + 1 :]

    def _down(self, rows: int) -> None:
        self._row += rows
        self._lines.extend([""] * (self._row + 1 - len(self._lines)))

    def _erase_line(self, number: str) -> None:
        line = self._lines[self._row]
        if number in ("", "0"):
            self._lines[self._row] = line[: self._column]
        elif number == "2":
            self._lines[self._row] = ""
        elif number == "1":
            self._lines[self._row] = " " * min(self._column, len(line)) + line[self._column :]

    def text(self) -> str:
        return "\n".join(self._lines)


def _count(number: str) -> int:
    return min(int(number or 1) or 1, _MOST_LINES_UP)
