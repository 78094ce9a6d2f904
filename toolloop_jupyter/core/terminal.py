"""What stands there at the end of printed text: a progress bar rewrites its line, and only its last state counts."""

from __future__ import annotations

import re

_MOVES = re.compile(r"\x1b\[\d*[A-HJK]|\x08")
"""What moves the cursor (backspace, ANSI) or erases: it is left out, and not carried out."""


def settled(text: str) -> str:
    r"""The text with the last state of each line that was rewritten: `"10%\r20%\rdone"` gives `"done"`.

    Bars that go up by lines (nested ones) leave a line for each state. Colours stay as they are.
    """
    if "\x1b" in text or "\b" in text:
        text = _MOVES.sub("", text)
    if "\r" not in text:
        return text
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)
