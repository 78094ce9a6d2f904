"""Make foreign text (of a model, a tool, an argument) harmless: the result is text that can only be read.

A person who decides on a call must see every character (`visible`), and every blank (`visible_text`, `visible_json`). A
person who reads prose must be able to read Arabic and family emoji, and must not be deceived by a right-to-left override
(`prose`). Pages, terminals and files show the same names for hidden characters: an approved `a⟨U+202E⟩b` is recorded so, too.
All text that goes into HTML passes through `esc` (inside `<code>`, `<pre>` and attributes) or `inline` (everywhere else, where
MathJax looks for dollars).
"""

from __future__ import annotations

import html
import json
import re

from ...core.text import CONTROL, HIDING, NOT_PLAIN, SURROGATE

_JOINERS = "\u061c\u200c-\u200f\ufe0e\ufe0f"
_ODD_SPACE = "\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"

# Characters that look like a blank, or like nothing, though Unicode takes them for letters and symbols: fillers, joiners,
# the empty Braille cell (plots are drawn with it, so prose keeps it), placeholders, characters that few fonts draw.
_BLANK = (
    "\u2800\u2d7f\U0001107f\U00011a47\U00011a99\U00013430-\U00013440\U00016fe4\U0001d159\U0001da7f\U0001da80"
    "\ufdd0-\ufdef\ufffc\ufffe\uffff\ue000-\uf8ff\U000f0000-\U0010ffff"
)

_SHOW_ALL = re.compile(f"[{CONTROL}{HIDING}{_JOINERS}{SURROGATE}{_ODD_SPACE}]")
_SHOW_BLANK = re.compile(f"[{CONTROL}{HIDING}{_JOINERS}{SURROGATE}{_ODD_SPACE}{_BLANK}]")
_MATH_OPENERS = re.compile(r"[$\\]")
_MOST_DOTS = 40
_MOST_EMPTY = 10
_BLANKS = re.compile(r" {2,}|(?m:^ | $)| (?=\t)|(?<=\t) ")
_GAPS = re.compile(rf" {{{_MOST_DOTS + 1},}}")
_OUTER_BREAKS = re.compile(r"\A\n+|\n+\Z")
_EMPTY_LINES = re.compile(rf"\n{{{_MOST_EMPTY},}}")


def _name_character(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"\u27e8U+{code:04X}\u27e9"


def visible(text: str) -> str:
    """Make every character that hides, reorders or controls visible, such as ␛ or ⟨U+202E⟩. Newlines and tabs stay."""
    return _SHOW_ALL.sub(_name_character, text.replace("\r\n", "\n"))


def visible_text(text: str) -> str:
    """Like `visible`, for a text that somebody is about to approve: its blanks can be seen, too.

    Several blanks, or one at the end of a line, are shown as dots. Very many blanks, which would push text out of sight, are
    replaced by their number. Tabs, and line breaks at both ends, get an arrow. A character that only looks like a blank is shown
    by its code.
    """
    text = _BLANKS.sub(_write_dots, _SHOW_BLANK.sub(_name_character, text)).replace("\t", "\u2192\t")
    text = _EMPTY_LINES.sub(lambda run: f"\n\u27e8{len(run.group()) - 1:,} empty lines\u27e9\n", text)
    return _OUTER_BREAKS.sub(lambda run: run.group().replace("\n", "\u21b5\n"), text)


def without_gaps(text: str) -> str:
    """Replace very many blanks, which would push text out of the line, by their number."""
    return _GAPS.sub(_write_dots, text)


def _write_dots(run: re.Match[str]) -> str:
    count = len(run.group())
    return "\u00b7" * count if count <= _MOST_DOTS else f"\u27e8{count:,} blanks\u27e9"


def visible_json(text: str) -> str:
    """Like `visible_text`, for JSON text. The blanks of the indentation stay: they are outside of the JSON strings."""
    return "\n".join(
        " " * (len(line) - len(bare := line.lstrip(" "))) + visible_text(bare) for line in text.split("\n")
    )


def prose(text: str) -> str:
    """Like `visible`, for prose: joiners and direction marks that scripts and emoji need stay."""
    return NOT_PLAIN.sub(_name_character, text.replace("\r\n", "\n"))


def in_a_line(text: str) -> str:
    """Like `visible`, for one line of plain text. Line breaks become visible, so foreign text cannot pose as our lines."""
    return visible(text).replace("\n", "\u240a")


def hides(text: str) -> bool:
    """Return whether `text` has characters that a person cannot see, or that an input field of a browser would change."""
    return _SHOW_BLANK.search(text) is not None


def escaped_json(text: str) -> str:
    """Write the hidden characters of JSON text as JSON escapes. The value of the JSON stays the same."""
    return _SHOW_BLANK.sub(lambda match: json.dumps(match.group())[1:-1], text)


def esc(text: str) -> str:
    """Escape for HTML inside `<code>`, `<pre>` and quoted attributes, with hidden characters made visible."""
    return html.escape(visible(text))


def guard_math(escaped: str) -> str:
    """Put each dollar and backslash of escaped text into an element of its own, so that no typesetter pairs them.

    MathJax 2 to 4 looks for delimiters within one run of text and never across elements.
    """
    return _MATH_OPENERS.sub(r"<span>\g<0></span>", escaped)


def inline(text: str) -> str:
    """Escape for HTML outside of code. Dollars are guarded there, since a front-end would typeset the text between them."""
    return guard_math(esc(text))


def shorten(text: str, limit: int) -> str:
    """Shorten `text` to `limit` characters, of which the last one is an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1] + "\u2026"


def first_line(text: str, limit: int = 120) -> str:
    """The first line that is not blank, shortened to `limit` characters."""
    for line in text.splitlines():
        if line.strip():
            return shorten(line.strip(), limit)
    return ""


def counted(count: int, word: str, plural: str = "") -> str:
    """Count in words: "1 tool call", "2 tool calls"; with `plural="entries"`: "2 entries"."""
    return f"{count:,} {word if count == 1 else plural or word + 's'}"
