"""Foreign text for terminals, diffs and error lines: no control sequence gets through, nothing is reordered or hidden."""

from __future__ import annotations

import re

CONTROL = "\x00-\x08\x0b-\x1f\x7f-\x9f"
# Characters that draw nothing or reorder others, of every script (Unicode 16, Default_Ignorable and Bidi_Control).
HIDING = (
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0"
    "\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
SURROGATE = "\ud800-\udfff"  # cannot be encoded: one of them would make the whole display message fail

NOT_PLAIN = re.compile(f"[{CONTROL}{HIDING}{SURROGATE}]")
# Only complete sequences: an unfinished one would otherwise swallow the text behind it.
_ANSI = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]{0,64}[ -/]{0,8}[@-~]"  # CSI: colours, cursor
    "|(?:\x1b[\\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]{0,4096}(?:\x07|\x1b\\\\|\x9c)"  # OSC, DCS, …: titles
    "|\x1b[ -/][0-~]"
)


def without_ansi(text: str) -> str:
    """Remove complete terminal sequences (colours, titles)."""
    return _ANSI.sub("", text) if "\x1b" in text or not text.isascii() else text


def plain(text: str) -> str:
    """Remove terminal sequences, control, bidi and zero-width characters: text for terminals, diffs and files."""
    return NOT_PLAIN.sub(
        lambda m: "\ufffd" if "\ud800" <= m.group() <= "\udfff" else "",
        without_ansi(text.replace("\r\n", "\n")),
    )
