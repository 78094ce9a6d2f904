"""Model text as Markdown for a file: as it was written, but for the blocks that would not stay inert where it is rendered.

A file is rendered by tools that nobody here chooses: code hosts, documentation builders, nbconvert. So a block (a
paragraph, a list, a table) is put into fenced code when any of them might load, run or hide something of it, or link
elsewhere than to http, https and mailto. What stands in code already is looked at by none, and stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

from .markdown import LONGEST

_DEEPEST = 18
"""Levels of blocks; the parser reads no deeper than 20, and others may."""
_SAFE_LINK = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)
_LINE_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_WORD = re.compile(r"\w[\w.,;'-]*\Z")
_IN_BRACKETS = re.compile(r"\]:\s*<")
_CODE = "`\x00"
"""Stands for a code span in the text around it, where no text has a zero character."""

# What a dialect may load, run, hide or link to, though CommonMark takes it for words: pictures and links whose target
# stands elsewhere, directives and roles of documentation builders, templates, tags that never end.
_DIALECT = re.compile(
    r"!\[|\]\(\s*<?\s*(?!https?:|mailto:)|\]\s*[:(][\s<]*(?:\w*script|data|file)\s*:|:::|\{[%:={]"
    r"|\{[\w:.+-]+\}`|<[a-z/!?][^<>]*[\s/\"'](?:on\w+|src\w*|href|style|data)\s*=|<(?:script|style|iframe|!--)",
    re.IGNORECASE,
)
# Code that is drawn or run: by code hosts, and in braces by documentation builders.
_DRAWN = re.compile(r"\s*(?:\{|(?:mermaid|math|geojson|topojson|stl)\b)", re.IGNORECASE)


def portable(text: str) -> str:
    """`text` with the blocks that are not inert in fenced code."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if len(text) > LONGEST or "\x00" in text:
        return fenced(text)
    written = _by_blocks(text)
    return written if is_inert(written) else fenced(text)


def is_inert(text: str) -> bool:
    """Whether nothing of `text` is loaded, run or hidden, with tables or without."""
    for parser in (_parser("gfm-like"), _parser("commonmark")):
        env: dict[str, Any] = {}
        tokens = parser.parse(text, env)
        footnotes = _footnotes(env, text)
        if not (_are_inert(tokens, footnotes) and _links_are_safe(env, footnotes)):
            return False
    return True


def fenced(text: str) -> str:
    """Write `text` as fenced code, whatever fences it has."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}text\n{text}\n{fence}"


def _by_blocks(text: str) -> str:
    env: dict[str, Any] = {}
    tokens = _parser("gfm-like").parse(text, env)
    footnotes = _footnotes(env, text)
    safe_links = _links_are_safe(env, footnotes)
    lines, written, done = text.split("\n"), [], 0
    for begin, end, block in _blocks(tokens):
        for first, last, inert in ((done, begin, True), (begin, end, _are_inert(block, footnotes))):
            part = "\n".join(lines[first:last])
            # The addresses that links refer to are no block, or the beginning of one.
            if part.strip() and not (inert and (safe_links or "]:" not in part)):
                written += ["", fenced(part.strip("\n")), ""]
                continue
            written += lines[first:last]
            if last == end and block[0].type == "fence" and not _is_closed(lines[begin:end], block[0].markup):
                written.append(block[0].markup)  # or what follows in the file would be code, too
        done = end
    rest = "\n".join(lines[done:])
    written.append(rest if safe_links or "]:" not in rest else fenced(rest.strip("\n")))
    return "\n".join(written).strip("\n")


def _blocks(tokens: Sequence[Token]) -> Iterator[tuple[int, int, list[Token]]]:
    """(first line, line behind it, tokens) of each block that is in no other."""
    block: list[Token] = []
    for token in tokens:
        block.append(token)
        if token.level == 0 and token.nesting <= 0:
            begin, end = block[0].map or (0, 0)
            yield begin, end, block
            block = []


def _is_closed(lines: Sequence[str], fence: str) -> bool:
    last = lines[-1].strip()
    return len(lines) > 1 and last.startswith(fence) and not last.strip(fence[0])


def _are_inert(tokens: Sequence[Token], footnotes: set[str]) -> bool:
    return all(
        token.level < _DEEPEST
        and token.type != "html_block"
        and not (token.type == "fence" and _DRAWN.match(token.info))
        and not (token.type == "code_block" and not _is_inert_as_text(token.content))
        and (token.children is None or _is_inert_line(token.children, footnotes))
        for token in tokens
    )


def _is_inert_as_text(code: str) -> bool:
    """Whether indented code may be read as Markdown, too: where there are footnotes or notes, it is their text."""
    return is_inert("\n".join(line.lstrip() for line in code.split("\n")))


def _is_inert_line(tokens: Sequence[Token], footnotes: set[str]) -> bool:
    words = []
    for token in tokens:
        if token.type == "image" or (
            token.type == "html_inline" and not _LINE_BREAK.fullmatch(token.content)
        ):
            return False
        if token.type == "link_open":
            target = str(token.attrs.get("href", ""))
            if not (_SAFE_LINK.match(target) or target in footnotes):
                return False
        if token.type == "code_inline":
            # Where a footnote begins with a fence, CommonMark sees a code span.
            if len(token.markup) >= 3 and _DRAWN.match(token.content):
                return False
            words.append(_CODE)
        else:
            words.append("\n" if token.type in ("softbreak", "hardbreak") else token.content)
    return not _DIALECT.search("".join(words))


def _footnotes(env: dict[str, Any], text: str) -> set[str]:
    """The words of footnotes (`[^1]: note`) that CommonMark takes for addresses: plain ones, which lead nowhere else."""
    if _IN_BRACKETS.search(text):  # `[^1]: <div>` is an address, or a footnote with a tag
        return set()
    references = env.get("references", {})
    return {one["href"] for label, one in references.items() if label[:1] == "^" and _WORD.match(one["href"])}


def _links_are_safe(env: dict[str, Any], footnotes: set[str]) -> bool:
    targets = [one["href"] for one in env.get("references", {}).values()]
    return all(_SAFE_LINK.match(target) or target in footnotes for target in targets)


@lru_cache(maxsize=2)
def _parser(dialect: str) -> MarkdownIt:
    md = MarkdownIt(dialect, {"linkify": False, "html": True})
    md.validateLink = lambda url: True  # type: ignore[method-assign]  # so that it is seen, whatever it is
    return md
