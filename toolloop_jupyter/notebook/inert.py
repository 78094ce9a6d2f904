"""Foreign text made harmless: what a model, a tool or an argument says, as text that can only be read.

Three readers need three things. A person who decides on a call must see every character (`visible`). A person who
reads prose must be able to read Arabic and family emoji, and must not be lied to by a right-to-left override
(`prose`). A terminal or a diff gets no control sequence at all (`plain`). Whatever goes into HTML passes through
`esc` (inside `<code>`, `<pre>` and attributes) or `inline` (everywhere else, where MathJax looks for dollars).
"""

from __future__ import annotations

import html
import json
import re

from ..core.cleaning import CONTROL, HIDING, NOT_PLAIN, SURROGATE, plain, without_ansi

_JOINERS = "\u061c\u200c-\u200f\ufe0e\ufe0f"
_ODD_SPACE = "\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"

_SHOW_ALL = re.compile(f"[{CONTROL}{HIDING}{_JOINERS}{SURROGATE}{_ODD_SPACE}]")
_SHOW_PROSE = NOT_PLAIN
_MATH_OPENERS = re.compile(r"[$\\]")
_TRAILING = re.compile(r"[ \t]+(?=\n|\Z)")


def _name(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"\u27e8U+{code:04X}\u27e9"


def visible(text: str, *, spaces: bool = False) -> str:
    """Make every character that hides, reorders or controls visible, such as ␛ or ⟨U+202E⟩.

    Newlines and tabs stay. With `spaces`, tabs get an arrow and blanks at the end of a line become dots, for a
    text that somebody is about to approve.
    """
    text = _SHOW_ALL.sub(_name, text.replace("\r\n", "\n"))
    if spaces:
        text = _TRAILING.sub(lambda m: m.group().replace(" ", "\u00b7"), text).replace("\t", "\u2192\t")
    return text


def prose(text: str) -> str:
    """As `visible`, for running text: joiners and direction marks that scripts and emoji need stay."""
    return _SHOW_PROSE.sub(_name, text.replace("\r\n", "\n"))


def hides(text: str) -> bool:
    """Whether `text` has characters that a person cannot see, or that an input field of a browser would change."""
    return _SHOW_ALL.search(text) is not None


def escaped_json(text: str) -> str:
    """JSON text with its hidden characters as JSON escapes: the same value, all of it to be seen."""
    return _SHOW_ALL.sub(lambda match: json.dumps(match.group())[1:-1], text)


def esc(text: str) -> str:
    """Escape for HTML inside `<code>`, `<pre>` and quoted attributes, with hidden characters made visible."""
    return html.escape(visible(text))


def guard_math(escaped: str) -> str:
    """Put each dollar and backslash of escaped text into an element of its own, so that no typesetter pairs them.

    MathJax 2 to 4 looks for delimiters within one run of text and never across elements.
    """
    return _MATH_OPENERS.sub(r"<span>\g<0></span>", escaped)


def inline(text: str) -> str:
    """Escape for HTML outside of code, where a front-end would typeset what stands between dollars."""
    return guard_math(esc(text))


def shorten(text: str, limit: int) -> str:
    """Cut to `limit` characters with an ellipsis as the last one."""
    return text if len(text) <= limit else text[: limit - 1] + "\u2026"


def first_line(text: str, limit: int = 120) -> str:
    """The first line that is not blank, shortened."""
    for line in text.splitlines():
        if line.strip():
            return shorten(line.strip(), limit)
    return ""


__all__ = [
    "esc",
    "escaped_json",
    "first_line",
    "guard_math",
    "hides",
    "inline",
    "plain",
    "prose",
    "shorten",
    "visible",
    "without_ansi",
]
