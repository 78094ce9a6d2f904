"""Whatever a model, a tool, an argument or an error contains is inert, in every block, card and text."""

from __future__ import annotations

import json
import re
import time
import unicodedata

import pytest

from support.hostile import Reader, blocks, calls, pages, run
from support.payloads import PAYLOADS
from toolloop_jupyter.core.text.plain import make_text_plain
from toolloop_jupyter.notebook.html.escape import (
    mark_hidden,
    mark_hidden_and_blanks,
    mark_hidden_in_json,
    mark_hidden_in_prose,
)
from toolloop_jupyter.notebook.transcript.steps import make_bundle, render, write_markdown

HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)


def test_the_corpus_is_large():
    """The corpus has the promised size and kinds."""
    assert len(PAYLOADS) >= 150
    assert len({name.split("-")[0] for name in PAYLOADS}) >= 10


@pytest.mark.parametrize("name", PAYLOADS)
def test_every_page_is_inert_and_whole(name):
    """A page has only our own elements, attributes, addresses and styles. Every block closes all elements that it opens."""
    for place, page in pages(PAYLOADS[name]).items():
        reader = Reader(page)
        assert not reader.problems, f"{place}: {reader.problems[:3]}"
        assert reader.deepest < 120, f"{place}: nested {reader.deepest} deep"


@pytest.mark.parametrize("name", PAYLOADS)
def test_every_text_is_plain(name):
    """The text form of a block has no control, direction or zero-width character, and can be encoded."""
    for place, block in blocks(PAYLOADS[name]).items():
        assert not HIDDEN.search(block.text), place
        json.dumps(make_bundle(block)).encode("utf-8")
        block.html.encode("utf-8")


@pytest.mark.parametrize("name", [name for name in PAYLOADS if not name.startswith(("math", "link"))])
def test_no_formula_comes_of_other_text(name):
    """MathJax finds delimiters only around a formula with plain macros."""
    for place, page in pages(PAYLOADS[name]).items():
        outside = re.sub(r"<(pre|code)\b.*?</\1>", "", page, flags=re.DOTALL)
        outside = re.sub(
            r'<span class="mathjax_process tex2jax_process">.*?</span>', "", outside, flags=re.DOTALL
        )
        # MathJax does not search across the borders of elements.
        outside = re.sub(r'<[^>"]*(?:"[^"]*"[^>"]*)*>', "|", outside)
        assert not re.search(r"\$[^|]*\$|\\[(\[][^|]|\\begin", outside), place


@pytest.mark.parametrize("name", [name for name in PAYLOADS if name.startswith("math")])
def test_formulas_with_macros_that_act_are_source(name):
    """Formulas with macros that link, define or load are never given to MathJax."""
    for place, page in pages(PAYLOADS[name]).items():
        for formula in re.findall(r'tex2jax_process">(.*?)</span>', page, flags=re.DOTALL):
            assert not re.search(
                r"\\(href|url|unicode|class|cssId|style|def|require|newcommand|mmlToken|data|bbox)", formula
            ), place


def test_a_hostile_text_costs_little():
    """For each payload, rendering all blocks takes far less time than a person would notice."""
    for name, payload in PAYLOADS.items():
        began = time.thread_time()
        calls(payload)
        assert time.thread_time() - began < 5, name


def test_visible_shows_what_hides():
    """Control characters, overrides and zero-width characters are replaced by names. Letters, newlines and tabs stay."""
    assert mark_hidden("a\x1b[0m\u202eb\u200bc\td\n") == "a␛[0m⟨U+202E⟩b⟨U+200B⟩c\td\n"
    assert mark_hidden("line\r\nforged\rline") == "line\nforged␍line"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("rm  -rf   /", "rm··-rf···/"),
        (" a b \n\n  c ", "·a b·\n\n··c·"),
        ("x \t y\t", "x·→\t·y→\t"),
        ("\nx\n", "↵\nx↵\n"),
        ("a\r\nb", "a␍\nb"),
        ("ls" + " " * 130 + "; rm", "ls⟨130 blanks⟩; rm"),
        ("a" + "\n" * 60 + "rm", "a\n⟨59 empty lines⟩\nrm"),
        ("a\u2800\U0001d159\u3164\u00a0\ufffc\ue000b", "a⟨U+2800⟩⟨U+1D159⟩⟨U+3164⟩⟨U+00A0⟩⟨U+FFFC⟩⟨U+E000⟩b"),
    ],
)
def test_blanks_of_what_is_approved_can_be_seen(text, shown):
    """Blanks in a row, blanks at both ends of a line, tabs, line breaks at the ends, and characters that only look like a
    blank become visible.
    """
    assert mark_hidden_and_blanks(text) == shown


def test_blanks_within_json_can_be_seen():
    """A JSON text keeps its indentation. The blanks in its strings become dots."""
    text = json.dumps({"a": {"b": "x  y", "c d": "\u2800"}}, indent=2, ensure_ascii=False)
    assert mark_hidden_in_json(text) == text.replace("x  y", "x··y").replace("\u2800", "⟨U+2800⟩")


def test_no_character_that_looks_blank_is_left():
    """On the card, every format character and space of Unicode has a name, except the few that scripts draw."""
    drawn = "[\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd]"
    quiet = [
        f"U+{code:04X}"
        for code in range(0x110000)
        if unicodedata.category(character := chr(code)) in ("Cc", "Cf", "Co", "Cs", "Zl", "Zp", "Zs")
        and character not in " \t\n"
        and not re.match(drawn, character)
        and mark_hidden_and_blanks(f"a{character}b") == f"a{character}b"
    ]
    assert quiet == []


def test_prose_stays_readable():
    """Running text keeps the joiners and marks that emoji, Persian and Hebrew need. Overrides are replaced."""
    assert mark_hidden_in_prose("👩\u200d💻 می\u200cخواهم \u202e") == "👩\u200d💻 می\u200cخواهم ⟨U+202E⟩"


def test_plain_drops_sequences_but_no_words():
    """A complete terminal sequence is removed. The text after an unfinished one stays."""
    assert make_text_plain("\x1b]0;title\x07a\x1b[31mb\x1b[0m") == "ab"
    assert make_text_plain("\x1b]0;unfinished") == "]0;unfinished"


@pytest.mark.parametrize("name", PAYLOADS)
def test_words_are_still_readable(name):
    """The words of a payload can be read in the text form of its block."""
    said = mark_hidden_in_prose(PAYLOADS[name]).strip()
    shown = blocks(PAYLOADS[name])["text"].text
    assert shown == said


@pytest.mark.parametrize("name", PAYLOADS)
def test_markdown_of_a_run_is_inert(name):
    """A Markdown parser that accepts HTML and loads pictures finds neither in the export, outside of code."""
    from markdown_it import MarkdownIt

    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(write_markdown(run(PAYLOADS[name]), "result"))
    flat = [token for block in tokens for token in [block, *(block.children or [])]]
    assert not [token.type for token in flat if token.type in ("html_block", "html_inline", "image")]
    links = [str(token.attrs["href"]) for token in flat if token.type == "link_open"]
    assert all(link.startswith(("http://", "https://", "mailto:")) for link in links), links


def test_a_whole_run_is_shown_again():
    """A hostile run keeps its blocks: one for each step, and each closes all its elements."""
    for block in render(run("</details></div><script>alert(1)</script>"), "x"):
        assert not Reader(block.html).problems
