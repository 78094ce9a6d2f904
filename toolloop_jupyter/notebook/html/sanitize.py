"""Make the HTML of a tool's value or display harmless. nh3 removes all elements and attributes that are not allowed here.

Text, tables and links (http, https, mailto) remain. A picture remains if its data is in the HTML itself. Styles, classes and ids
are removed, since with them, the HTML could draw over the page or get styles of the front-end. The tags of headings are removed,
since JupyterLab would list the headings in its table of contents. The result closes all its elements, and no element of the page.
"""

from __future__ import annotations

import html
import re

from ...core.text import plain
from .escape import guard_math, prose

MOST_IMAGE = 3_000_000
"""If a picture's address (`data:…`) has more characters, the picture is removed."""

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
_DATA_IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/]+={0,2}")


def _clean_attribute(tag: str, name: str, value: str) -> str | None:
    if tag == "img" and name == "src":
        return value if len(value) <= MOST_IMAGE and _DATA_IMAGE.fullmatch(value) else None
    if tag == "a" and name == "href":
        return value if re.match(r"(?:https?://|mailto:)", value, re.IGNORECASE) else None
    return plain(value)  # nh3 escapes it


_DEEPEST = 60
"""How many levels of elements are allowed. If elements are nested several hundred levels deep, browsers move some of them, also
out of the block that contains them."""
_VOID = ("<br", "<hr", "<img", "<col>", "<col ")
_PIECE = re.compile(r'(<[^>"]*(?:"[^"]*"[^>"]*)*>)')


def clean_html(raw: str) -> str:
    """Return foreign HTML, reduced to text, tables, links, and pictures whose data is in the HTML; "" if it is nested too deep."""
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
    return "".join(piece if at % 2 else guard_math(prose(piece)) for at, piece in enumerate(pieces))


def read_words(clean: str) -> str:
    """Return the text in cleaned HTML, with one line for each row or paragraph."""
    text = re.sub(r"</(?:tr|p|div|li|h\d|pre)>|<br>", "\n", clean)
    return plain(html.unescape(_PIECE.sub(" ", text))).strip()
