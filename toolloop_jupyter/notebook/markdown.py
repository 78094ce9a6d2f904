"""Model text as safe HTML: CommonMark with tables and strikethrough, and nothing that loads, runs or lies.

Raw HTML is text. Links go to http, https and mailto only and show where they lead; images become links, since a
fetched picture carries data away. Headings are not `<h1>` to `<h6>`, which JupyterLab would put into the notebook's
table of contents. All text keeps its dollars apart from MathJax except in formulas (`mathtext.py`).
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.token import Token

from .highlight import highlight
from .inert import esc, guard_math, prose
from .mathtext import add_math, formula_html
from .style import CELL, CODE, TABLE

LONGEST = 200_000
"""Characters; a longer text is shown as it was written, without markdown."""
_DEEPEST_INLINE = 10
_SAFE_LINK = re.compile(r"(?:https?://|mailto:)[^\s]", re.IGNORECASE)


class _Renderer(RendererHTML):
    """Renders tokens; `options` carries whether the text is still being written."""

    def text(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return _words(tokens[idx].content)

    def code_inline(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return f"<code>{esc(tokens[idx].content)}</code>"

    def fence(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        token = tokens[idx]
        language = "" if env.get("streaming") else token.info.split(" ")[0][:32]
        return f'<pre style="{CODE}"><code>{highlight(token.content.rstrip(), language)}</code></pre>\n'

    def code_block(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return f'<pre style="{CODE}"><code>{esc(tokens[idx].content.rstrip())}</code></pre>\n'

    def image(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        target = str(tokens[idx].attrs.get("src", ""))
        words = _words(tokens[idx].content or "image")
        return f"{_link_tag(target)}{words} (image, not loaded)</a>"

    def link_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return _link_tag(str(tokens[idx].attrs.get("href", "")))

    def heading_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        level = int(tokens[idx].tag[1])
        return f'<p class="tlj-h tlj-h{level}" role="heading" aria-level="{min(level + 2, 6)}"><strong>'

    def heading_close(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return "</strong></p>\n"

    def table_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return f'<table style="{TABLE}">\n'

    def th_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        return _cell_tag(tokens[idx])

    td_open = th_open

    def math(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        token = tokens[idx]
        formula = formula_html(token.content, display=token.meta["display"], typeset=not env.get("streaming"))
        return f"<p>{formula}</p>\n" if token.block else formula


def _words(text: str) -> str:
    return guard_math(html.escape(prose(text), quote=False))


def _link_tag(target: str) -> str:
    # The title says where a link really leads, whatever its words say; it survives in untrusted notebooks.
    address = html.escape(target)
    return f'<a href="{address}" title="{address}" target="_blank" rel="noopener noreferrer">'


def _cell_tag(token: Token) -> str:
    align = str(token.attrs.get("style", "")).removeprefix("text-align:")
    style = (
        CELL if align not in ("right", "center") else CELL.replace("text-align:left", f"text-align:{align}")
    )
    return f'<{token.tag} style="{style}">'


def _bound_nesting(state: StateCore) -> None:
    """Drop emphasis beyond a depth that no person writes, so that a page's nesting stays bounded."""
    for token in state.tokens:
        if not token.children:
            continue
        kept: list[Token] = []
        depth = 0
        for child in token.children:
            depth += child.nesting == 1
            if not child.nesting or depth <= _DEEPEST_INLINE:
                kept.append(child)
            depth -= child.nesting == -1
        token.children = kept


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    # "commonmark" bounds the nesting of blocks at 20 levels.
    md = MarkdownIt("commonmark", {"html": False}, renderer_cls=_Renderer).enable(["table", "strikethrough"])
    md.validateLink = _is_safe_link  # type: ignore[method-assign]  # the documented way to change it
    md.normalizeLink = _normalized  # type: ignore[method-assign]
    md.core.ruler.push("bound_nesting", _bound_nesting)
    add_math(md)
    return md


def _is_safe_link(url: str) -> bool:
    return bool(_SAFE_LINK.match(url)) and len(url) <= 2_000


def _normalized(url: str) -> str:
    """Percent-encode what an address may not hold, homographs of other scripts included (cheaper than a URL parser)."""
    return quote(url, safe="%/:=&?~#+!$,;'@()*[]", errors="replace")


def markdown_html(text: str, *, streaming: bool = False) -> str:
    """Safe HTML of markdown `text`.

    While `streaming`, code has one colour and formulas stay source: both come with the finished text. An unclosed
    fence is code already.
    """
    if len(text) > LONGEST:
        return f'<pre style="{CODE}">{esc(text)}</pre>'
    return str(_parser().render(text, {"streaming": streaming})).strip()
