"""Makes text plain, limits its length, writes lists and times as text, makes names that providers accept, and writes files."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import time
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

CONTROL = "\x00-\x08\x0b-\x1f\x7f-\x9f"
# Invisible characters, and characters that change the order of other characters, in all scripts. They have the property
# Default_Ignorable or Bidi_Control in Unicode 16.
HIDING = (
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0"
    "\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
SURROGATE = "\ud800-\udfff"  # half of a surrogate pair cannot be encoded: a message with it cannot be sent

NOT_PLAIN = re.compile(f"[{CONTROL}{HIDING}{SURROGATE}]")
# Matches only complete sequences. If it matched an unfinished sequence, the text after the sequence would be removed, too.
_ANSI = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]{0,64}[ -/]{0,8}[@-~]"  # CSI: colours, cursor
    "|(?:\x1b[\\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]{0,4096}(?:\x07|\x1b\\\\|\x9c)"  # OSC, DCS, …: titles
    "|\x1b[ -/][0-~]"
)
_LONE_HALF = re.compile("(?<![\ud800-\udbff])[\udc00-\udfff]|[\ud800-\udbff](?![\udc00-\udfff])")
_MOVES = re.compile(r"\x1b\[\d*[A-HJK]|\x08")
"""Sequences that move the cursor (backspace, ANSI) or erase text."""
IN_BRACES = re.compile(r"\{\{([^{}\n]+)\}\}")
"""A name in double braces: the name of a variable, or of a table's column, which may contain blanks."""
WIRE_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
"""A tool's name that OpenAI, Anthropic, Bedrock and Gemini accept. Gemini wants a letter or an underscore in front."""


def remove_ansi(text: str) -> str:
    """Remove complete terminal sequences (colours, titles)."""
    return _ANSI.sub("", text) if "\x1b" in text or not text.isascii() else text


def make_text_plain(text: str) -> str:
    """Remove terminal sequences, and control, bidi and zero-width characters. Half of a surrogate pair becomes "�"."""
    return NOT_PLAIN.sub(
        lambda m: "\ufffd" if "\ud800" <= m.group() <= "\udfff" else "",
        remove_ansi(text.replace("\r\n", "\n")),
    )


def join_surrogates(text: str) -> str:
    """Return `text` with the two halves of each surrogate pair joined into one character. A single half becomes "�".

    A provider may send the halves of an emoji as two JSON escapes. A text with a half cannot be encoded, so a half would break
    the notebook's messages and every later request.
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
    """Return a copy of JSON data, with `join_surrogates` applied to all texts and names."""
    if isinstance(value, str):
        return join_surrogates(value)
    if isinstance(value, dict):
        return {join_surrogates_in(key): join_surrogates_in(item) for key, item in value.items()}
    return [*map(join_surrogates_in, value)] if isinstance(value, list) else value


def settle_lines(text: str) -> str:
    r"""Keep only the last state of each line that was rewritten: `"10%\r20%\rdone"` gives `"done"`. Colours stay.

    Moves of the cursor (by nested progress bars) have no effect, so each state of a nested bar stays as a line.
    """
    if "\x1b" in text or "\b" in text:
        text = _MOVES.sub("", text)
    if "\r" not in text:
        return text
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)


def make_wire_name(name: str, taken: Collection[str] = ()) -> str:
    """Return a name that providers accept: `größe` gives `grosse`. A name that is too long, empty or in `taken` gets a hash."""
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


def make_wire_names(names: Sequence[str], accepted: re.Pattern[str] = WIRE_NAME) -> dict[str, str]:
    """Return name -> the name for providers: the same name if `accepted` matches it, else one from `make_wire_name`.

    The names for providers are distinct. The same `names` always give the same result, so that another run can continue a
    conversation.
    """
    wire = {name: name for name in names if accepted.fullmatch(name)}
    for name in names:
        if name not in wire:
            wire[name] = make_wire_name(name, wire.values())
    return wire


def shorten(text: str, most: int) -> str:
    """Return `text`. If it has more than `most` characters, return its first `most - 1` characters and "…"."""
    return text if len(text) <= most else text[: most - 1] + "…"


def list_some(texts: Iterable[str], most: int = 5, between: str = ", ") -> str:
    """Join the texts. If there are more than `most`, join the first ones and the number of the others: `a, b and 3 more`."""
    listed = list(texts)
    more = len(listed) - most
    return between.join(listed[:most]) + (f" and {more:,} more" if more > 0 else "")


def count_same(one: Sequence[object], other: Sequence[object]) -> int:
    """Return how many items (or characters) are the same at the beginning of two sequences."""
    differing = (number for number, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differing, min(len(one), len(other)))


# --- bounds for data from a model, a server or a file -------------------------------------------------------------

# Reading data within these bounds does not block the event loop. A model that works correctly stays far below each bound. An
# answer with too many tool calls ends the run. A tool call whose arguments are above a bound is not run, and the model gets an
# error that names the bound.

MOST_CALLS = 1_000
"""The largest number of tool calls in one answer. Only a model or a server that repeats itself sends more."""
LONGEST_ARGUMENTS = 1_000_000
"""The largest number of characters of one tool call's arguments. The longest answers of today's models have fewer."""
MOST_VALUES = 10_000
"""The largest number of JSON values in one tool call's arguments. Reading them blocks the event loop for less than 50 ms
(measured: 35 ms)."""
DEEPEST = 100
"""The largest number of levels of nesting in JSON data. Pydantic's serialiser fails at 255 levels, Python's recursion a little
deeper."""


def is_deeper(value: object, levels: int = DEEPEST) -> bool:
    """Return True if JSON data is nested deeper than `levels` or contains itself. Uses no recursion."""
    level = [value]
    for _ in range(levels + 1):
        # Each container is checked only once.
        holders = {id(one): one for one in level if isinstance(one, (Mapping, list, tuple))}
        if not holders:
            return False
        level = [
            item for one in holders.values() for item in (one.values() if isinstance(one, Mapping) else one)
        ]
    return True


# --- times of a transcript -------------------------------------------------------------------------------------

_OFF = ("0", "false", "no", "off")


_setting = {"keep_times": True}
"""The setting `%config ToolLoop.times` of this process."""


def keep_times(*, keep: bool) -> None:
    """Set whether transcripts have times from now on. Without times, the same run gives the same file each time."""
    _setting["keep_times"] = keep


def are_times_kept() -> bool:
    """Return True if transcripts have times. The setting or the environment variable TOOLLOOP_TIMES can turn the times off."""
    return _setting["keep_times"] and os.environ.get("TOOLLOOP_TIMES", "").strip().lower() not in _OFF


def write_duration(seconds: float, *, whole: bool = False) -> str:
    """Return a duration as text: "0.31 s" below ten seconds, else "0:21" or "1:02:03". `whole`: "5 s", not "5.00 s"."""
    if seconds < 10:
        return f"{int(seconds)} s" if whole else f"{seconds:.2f} s"
    minutes, rest = divmod(int(seconds) if whole else round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def tell_duration(seconds: float) -> str:
    """Return a duration as text for a transcript; "" if transcripts have no times."""
    return write_duration(seconds) if are_times_kept() else ""


def tell_clock(at: float) -> str:
    """Return the local time of day at `at` (seconds since the epoch) for a transcript; "" if transcripts have no times."""
    return time.strftime("%H:%M:%S", time.localtime(at)) if are_times_kept() else ""


def write_whole(path: str | Path, text: str) -> None:
    """Write `text` to the file `path`. If this fails (a full disk, an interrupt), the old file stays as it was, and no temporary
    file is left. Half of a surrogate pair is written as an escape sequence. Raises OSError with the reason and `path`.
    """
    data = text.encode("utf-8", "backslashreplace")
    target = Path(os.path.realpath(path))  # a link stays: the file that it points to is replaced
    aside = target.with_name(f".{os.urandom(8).hex()}.part")  # each writer has its own temporary file
    try:
        if target.is_fifo():  # writing would wait for a reader, perhaps for ever
            raise OSError(errno.EINVAL, "It is a pipe, not a file")
        if target.exists() and not target.is_file():  # write to a device itself; a folder raises OSError
            target.write_bytes(data)
            return
        if target.exists() and not os.access(target, os.W_OK):  # `replace` would replace a read-only file
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        aside.write_bytes(data)
        if target.exists():
            shutil.copymode(target, aside)
        aside.replace(target)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)
