"""Turns text from outside into plain text, for terminals, diffs, error messages and requests. Also makes tool names that
providers accept.

Control sequences are removed. Invisible characters, and characters that change the order of other characters, are removed, too.
The two halves of a surrogate pair are joined. If a line was rewritten (by a progress bar), only the last state of the line is
kept.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Collection
from typing import Any

CONTROL = "\x00-\x08\x0b-\x1f\x7f-\x9f"
# Invisible characters, and characters that change the order of other characters, in all scripts. They have the property
# Default_Ignorable or Bidi_Control in Unicode 16.
HIDING = (
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0"
    "\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
SURROGATE = "\ud800-\udfff"  # cannot be encoded: a single half would make the whole display message fail

NOT_PLAIN = re.compile(f"[{CONTROL}{HIDING}{SURROGATE}]")
# Matches only complete sequences. If it matched an unfinished sequence, the text after the sequence would be removed, too.
_ANSI = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]{0,64}[ -/]{0,8}[@-~]"  # CSI: colours, cursor
    "|(?:\x1b[\\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]{0,4096}(?:\x07|\x1b\\\\|\x9c)"  # OSC, DCS, …: titles
    "|\x1b[ -/][0-~]"
)
_LONE_HALF = re.compile("(?<![\ud800-\udbff])[\udc00-\udfff]|[\ud800-\udbff](?![\udc00-\udfff])")
_MOVES = re.compile(r"\x1b\[\d*[A-HJK]|\x08")
"""Sequences that move the cursor (backspace, ANSI) or erase text. The sequences are removed and have no effect."""
WIRE_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
"""A tool's name that OpenAI, Anthropic, Bedrock and Gemini accept. Gemini requires a letter or an underscore as the first
character.
"""


def remove_ansi(text: str) -> str:
    """Remove complete terminal sequences (colours, titles)."""
    return _ANSI.sub("", text) if "\x1b" in text or not text.isascii() else text


def plain(text: str) -> str:
    """Remove terminal sequences, and control, bidi and zero-width characters. The result is for terminals, diffs and files."""
    return NOT_PLAIN.sub(
        lambda m: "\ufffd" if "\ud800" <= m.group() <= "\udfff" else "",
        remove_ansi(text.replace("\r\n", "\n")),
    )


def join_surrogates(text: str) -> str:
    """Return `text` with the two halves of each surrogate pair joined into one character. A single half becomes "�".

    A provider may send an emoji as two JSON escapes, one for each half, and send the halves in two deltas. A text with a half
    cannot be encoded, so a half would break the notebook's messages and every later request.
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        # If a text has many halves, the error handlers of Python's codecs take four times as long as this line.
        return _LONE_HALF.sub("\ufffd", text).encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    return text


def join_surrogates_in(value: Any) -> Any:
    """Return a copy of JSON data. `join_surrogates` is applied to all texts and names in the copy."""
    if isinstance(value, str):
        return join_surrogates(value)
    if isinstance(value, dict):
        return {join_surrogates_in(key): join_surrogates_in(item) for key, item in value.items()}
    return [*map(join_surrogates_in, value)] if isinstance(value, list) else value


def cut_half(text: str) -> tuple[str, str]:
    """If `text` ends with the first half of a surrogate pair, return (the text without this half, this half). The second half
    comes in the next delta. Else return (the text, "").
    """
    whole, half = (text[:-1], text[-1]) if "\ud800" <= text[-1:] <= "\udbff" else (text, "")
    return join_surrogates(whole), half


def settle_lines(text: str) -> str:
    r"""Keep only the last state of each line that was rewritten: `"10%\r20%\rdone"` gives `"done"`.

    Nested progress bars move the cursor up. This function ignores such moves, so each state of a nested bar stays as a line.
    Colours stay as they are.
    """
    if "\x1b" in text or "\b" in text:
        text = _MOVES.sub("", text)
    if "\r" not in text:
        return text
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)


def make_wire_name(name: str, taken: Collection[str] = ()) -> str:
    """Return a name that providers accept: `größe` gives `grosse`. A hash is added to a name that is too long, empty or in
    `taken`.
    """
    if name not in taken and WIRE_NAME.fullmatch(name):
        return name
    letters = unicodedata.normalize("NFKD", name.replace("ß", "ss"))
    ascii_only = "".join(letter for letter in letters if not unicodedata.combining(letter))
    ascii_only = re.sub(r"[^a-zA-Z0-9_-]", "_", ascii_only)
    if not ascii_only.strip("_-"):
        ascii_only = "tool"
    elif not ascii_only[0].isalpha():
        ascii_only = f"t_{ascii_only}"  # Bedrock's names begin with a letter
    if len(ascii_only) <= 64 and ascii_only not in taken and ascii_only != "tool":
        return ascii_only
    return f"{ascii_only[:55]}_{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}"
