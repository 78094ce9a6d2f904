"""Make text and HTML from a model or a tool harmless: escape text, show its hidden characters, and reduce HTML to an allowlist.

A person who allows or denies a call must see every character (`mark_hidden`) and every blank (`mark_hidden_and_blanks`,
`mark_hidden_in_json`). In prose, a person must be able to read Arabic, and emoji that are joined from several characters. But
a right-to-left override in prose must not deceive the person (`mark_hidden_in_prose`). Pages, terminals and files show the
same name for a hidden character, for example ⟨U+202E⟩. All text that goes into HTML passes through one of two functions:
`esc` inside `<code>`, `<pre>` and attributes, or `inline` everywhere else, because MathJax looks for `$` there. The HTML of a
value or a display passes through `clean_html`.
"""

from __future__ import annotations

import functools
import html
import json
import re

from ...core.text import CONTROL, HIDING, NOT_PLAIN, SURROGATE, make_text_plain, shorten

_JOINERS = "\u061c\u200c-\u200f\ufe0e\ufe0f"
_ODD_SPACE = "\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"

# Letters and symbols of Unicode that look like a blank or are invisible: fillers, joiners, the empty Braille cell, placeholders,
# and characters that few fonts can draw. `mark_hidden_in_prose` does not replace these characters: for example, plots use the
# Braille cell.
_BLANK = (
    "\u2800\u2d7f\U0001107f\U00011a47\U00011a99\U00013430-\U00013440\U00016fe4\U0001d159\U0001da7f\U0001da80"
    "\ufdd0-\ufdef\ufffc\ufffe\uffff\ue000-\uf8ff\U000f0000-\U0010ffff"
)

_UNSEEN = f"{CONTROL}{HIDING}{_JOINERS}{SURROGATE}{_ODD_SPACE}"
_SHOW_ALL = re.compile(f"[{_UNSEEN}]")
_SHOW_BLANK = re.compile(f"[{_UNSEEN}{_BLANK}]")
_MATH_OPENERS = re.compile(r"[$\\]")
_MOST_DOTS = 40
_MOST_EMPTY = 10
_BLANKS = re.compile(r" {2,}|(?m:^ | $)| (?=\t)|(?<=\t) ")
_GAPS = re.compile(rf" {{{_MOST_DOTS + 1},}}")
_OUTER_BREAKS = re.compile(r"\A\n+|\n+\Z")
_EMPTY_LINES = re.compile(rf"\n{{{_MOST_EMPTY},}}")


def _name_character(match: re.Match[str]) -> str:
    return _name(match.group())


@functools.lru_cache(maxsize=1024)
def _name(character: str) -> str:
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"\u27e8U+{code:04X}\u27e9"


def mark_hidden(text: str) -> str:
    """Return `text` with visible names in the place of invisible characters, such as ␛ or ⟨U+202E⟩.

    Invisible are control characters (not newlines and tabs), unusual spaces, and characters that draw nothing or that change
    the order of the text.
    """
    return _SHOW_ALL.sub(_name_character, text.replace("\r\n", "\n"))


def mark_hidden_and_blanks(text: str) -> str:
    """Replace invisible characters as `mark_hidden` does, and show blanks, too. This is for a text that a person has to approve.

    Several blanks in a row, or a blank at an end of a line, are shown as dots. Very many blanks would push text out of
    sight, so their number is shown instead. Each tab, and each line break at an end of the text, gets an arrow.
    """
    text = _BLANKS.sub(_write_dots, _SHOW_BLANK.sub(_name_character, text)).replace("\t", "\u2192\t")
    text = _EMPTY_LINES.sub(lambda run: f"\n\u27e8{len(run.group()) - 1:,} empty lines\u27e9\n", text)
    return _OUTER_BREAKS.sub(lambda run: run.group().replace("\n", "\u21b5\n"), text)


def count_long_gaps(text: str) -> str:
    """Replace each very long row of blanks by the number of its blanks."""
    return _GAPS.sub(_write_dots, text)


def _write_dots(run: re.Match[str]) -> str:
    count = len(run.group())
    return "\u00b7" * count if count <= _MOST_DOTS else f"\u27e8{count:,} blanks\u27e9"


def mark_hidden_in_json(text: str) -> str:
    """Replace characters of JSON text as `mark_hidden_and_blanks` does, but keep the indentation: the blanks that begin each line."""
    return "\n".join(
        " " * (len(line) - len(bare := line.lstrip(" "))) + mark_hidden_and_blanks(bare)
        for line in text.split("\n")
    )


def mark_hidden_in_prose(text: str) -> str:
    """Replace invisible characters as `mark_hidden` does, but keep the joiners and direction marks of scripts and emoji."""
    return NOT_PLAIN.sub(_name_character, text.replace("\r\n", "\n"))


def put_in_a_line(text: str) -> str:
    """Replace invisible characters as `mark_hidden` does, and line breaks by ␊. So a text cannot add a line of its own."""
    return mark_hidden(text).replace("\n", "\u240a")


def hides(text: str) -> bool:
    """Return True if `text` has characters that a person cannot see, or that an input field of a browser would change."""
    return _SHOW_BLANK.search(text) is not None


def escape_json(text: str) -> str:
    """Return JSON text with JSON escapes in the place of hidden characters. The value of the JSON stays the same."""
    return _SHOW_BLANK.sub(lambda match: json.dumps(match.group())[1:-1], text)


def esc(text: str) -> str:
    """Return `text` escaped for HTML inside `<code>`, `<pre>` and quoted attributes. Hidden characters become visible."""
    return html.escape(mark_hidden(text))


def guard_math(escaped: str) -> str:
    """Put each `$` and each backslash of escaped text into a separate `<span>`, so that MathJax finds no formula in the text.

    MathJax 2 to 4 finds a formula only if both of its delimiters are in the same element.
    """
    return _MATH_OPENERS.sub(r"<span>\g<0></span>", escaped)


def inline(text: str) -> str:
    """Return `text` escaped for HTML outside of code, where a front-end would otherwise typeset text between two `$` signs."""
    return guard_math(esc(text))


def take_first_line(text: str, limit: int = 120) -> str:
    """Return the first line that is not blank, shortened to `limit` characters. Return "" if all lines are blank."""
    return next((shorten(line.strip(), limit) for line in text.splitlines() if line.strip()), "")


def tell_count(count: int, word: str, plural: str = "") -> str:
    """Return a number and a noun: "1 tool call", "2 tool calls". `plural` is needed if it is not `word` + "s"."""
    return f"{count:,} {word if count == 1 else plural or word + 's'}"


# nh3 removes all elements and attributes of foreign HTML that are not allowed here. Text, tables and links (http, https, mailto)
# remain. A picture remains if its data is in the HTML itself. Styles, classes and ids are removed: with them, the HTML could draw
# over the page or get styles of the front-end. The tags of headings are removed, because JupyterLab would list the headings in its
# table of contents. The result closes all its own elements, and no element of the page.

MOST_IMAGE = 3_000_000  # if a picture's address (`data:…`) has more characters, the picture is removed

_TAGS = frozenset(
    """
    a abbr b blockquote br caption code col colgroup dd del details div dl dt em figcaption figure hr i img ins kbd li mark
    ol p pre q s samp small span strong sub summary sup table tbody td tfoot th thead tr u ul var
    """.split()  # noqa: SIM905 - a list reads better without its quotation marks
)
_DROPPED = frozenset("script style title template iframe noscript svg math select".split())  # noqa: SIM905
"""Elements that are removed together with their content. For other elements, only the tags are removed."""
_ATTRIBUTES = {
    "*": {"title", "dir", "lang"},
    "a": {"href"},
    "img": {"src", "alt", "width", "height"},
    "th": {"colspan", "rowspan", "scope", "align"},
    "td": {"colspan", "rowspan", "align"},
    "col": {"span"},
    "colgroup": {"span"},
    "ol": {"start"},
}
SAFE_LINK = re.compile(r"(?:https?://|mailto:)[^\s]", re.IGNORECASE)
_DATA_IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}")


def _clean_attribute(tag: str, name: str, value: str) -> str | None:
    if tag == "img" and name == "src":
        return value if len(value) <= MOST_IMAGE and _DATA_IMAGE.fullmatch(value) else None
    if tag == "a" and name == "href":
        return value if SAFE_LINK.match(value) else None
    return make_text_plain(value)  # nh3 escapes it


# If elements are nested several hundred levels deep, a browser moves some of them, even out of the block that contains them.
_DEEPEST = 60
_VOID = ("<br", "<hr", "<img", "<col>", "<col ")
_PIECE = re.compile(r'(<[^>"]*(?:"[^"]*"[^>"]*)*>)')


def clean_html(raw: str) -> str:
    """Return foreign HTML, reduced to text, tables, links, and pictures whose data is in the HTML; "" if nested too deep."""
    import nh3

    clean = nh3.clean(
        raw.encode("utf-8", "replace").decode(),  # nh3 raises an error for a lone surrogate
        tags=set(_TAGS),
        clean_content_tags=set(_DROPPED),
        attributes=_ATTRIBUTES,
        attribute_filter=_clean_attribute,
        url_schemes={"http", "https", "mailto", "data"},
        link_rel="noopener noreferrer",
        set_tag_attribute_values={"a": {"target": "_blank"}},
        strip_comments=True,
    )
    pieces, depth = _PIECE.split(clean), 0
    for at in range(1, len(pieces), 2):
        tag = pieces[at]
        depth += -1 if tag.startswith("</") else not tag.startswith(_VOID)
        if depth > _DEEPEST:
            return ""
        # An empty `<th>` is usually the corner of a table. A screen reader would treat it as a heading without text.
        if tag.startswith(("<th>", "<th ")) and pieces[at + 2] == "</th>" and not pieces[at + 1].strip():
            pieces[at] = re.sub(r' scope="[^"]*"', "", f"<td{tag[3:]}")
            pieces[at + 2] = "</td>"
    return "".join(
        piece if at % 2 else guard_math(mark_hidden_in_prose(piece)) for at, piece in enumerate(pieces)
    )


def read_words(clean: str) -> str:
    """Return the text in cleaned HTML, with one line for each row or paragraph."""
    text = re.sub(r"</(?:tr|p|div|li|h\d|pre)>|<br>", "\n", clean)
    return make_text_plain(html.unescape(_PIECE.sub(" ", text))).strip()
