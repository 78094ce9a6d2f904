"""Make foreign HTML harmless: the HTML of a tool's value or display goes through nh3's allowlist.

Tables, text, links (http, https, mailto) and pictures that have their data in the HTML remain. Styles, classes and ids are
removed, since they could draw over the page or pick up a front-end's own styles. So are headings, which JupyterLab would list in
its table of contents. nh3 builds a tree, so the result is balanced, and cannot end the block around it.
"""

from __future__ import annotations

import html
import re

from ...core.text import plain
from .escape import guard_math, prose

MOST_IMAGE = 3_000_000
"""The most characters of a picture's base64 text. A larger picture is not kept."""

_TAGS = frozenset(
    """
    a abbr b blockquote br caption code col colgroup dd del details div dl dt em figcaption figure hr i img ins kbd li mark
    ol p pre q s samp small span strong sub summary sup table tbody td tfoot th thead tr u ul var
    """.split()  # noqa: SIM905 - a list reads better without its quotation marks
)
_DROPPED = frozenset("script style title template iframe noscript svg math select".split())  # noqa: SIM905
"""Elements that are removed with their content."""
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
_DATA_IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}")


def _clean_attribute(tag: str, name: str, value: str) -> str | None:
    if tag == "img" and name == "src":
        return value if len(value) <= MOST_IMAGE and _DATA_IMAGE.fullmatch(value) else None
    if tag == "a" and name == "href":
        return value if re.match(r"(?:https?://|mailto:)", value, re.IGNORECASE) else None
    return plain(value)  # nh3 escapes it


_DEEPEST = 60
"""The most levels of elements. A tree that is a few hundred levels deep is rearranged by browsers, even beyond our blocks."""
_VOID = ("<br", "<hr", "<img", "<col>", "<col ")
_PIECE = re.compile(r'(<[^>"]*(?:"[^"]*"[^>"]*)*>)')


def clean_html(raw: str) -> str:
    """Reduce foreign HTML to tables, text, links and pictures as data. The result is balanced, and has no style, class or id.

    Returns "" if the elements are nested too deep to show.
    """
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
    pieces = _PIECE.split(clean)
    if _find_depth(pieces) > _DEEPEST:
        return ""
    _unhead_empty_cells(pieces)
    return "".join(piece if index % 2 else guard_math(prose(piece)) for index, piece in enumerate(pieces))


def _unhead_empty_cells(pieces: list[str]) -> None:
    """Turn each empty `<th>` into a `<td>`. It is a table's corner, not a heading; a screen reader would look for its text."""
    for index in range(1, len(pieces) - 2, 2):
        if (
            pieces[index].startswith(("<th>", "<th "))
            and pieces[index + 2] == "</th>"
            and not pieces[index + 1].strip()
        ):
            pieces[index] = re.sub(r' scope="[^"]*"', "", f"<td{pieces[index][3:]}")
            pieces[index + 2] = "</td>"


def _find_depth(pieces: list[str]) -> int:
    depth = deepest = 0
    for tag in pieces[1::2]:
        depth += -1 if tag.startswith("</") else 0 if tag.startswith(_VOID) else 1
        deepest = max(deepest, depth)
    return deepest


def read_words(clean: str) -> str:
    """The text of cleaned HTML, a line for each row or paragraph."""
    text = re.sub(r"</(?:tr|p|div|li|h\d|pre)>|<br>", "\n", clean)
    return plain(html.unescape(_PIECE.sub(" ", text))).strip()
