"""The saved notebook as nbconvert's Markdown, as HTML and on paper: the blocks of the record stay blocks, whatever they
quote.
"""

from __future__ import annotations

import re
from functools import cache

import nbformat
import pytest

from support.diagrams import a_run
from support.hostile import blocks
from support.payloads import PAYLOADS
from toolloop_jupyter.notebook.html.style import STYLE
from toolloop_jupyter.notebook.transcript.steps import make_bundle, render

SOURCE = "%%toolloop\nx"


@cache
def exporter():
    nbconvert = pytest.importorskip("nbconvert")
    return nbconvert.MarkdownExporter()


def notebook(*outputs):
    """Return a notebook with one cell that has these outputs.

    The exporter validates the notebook. nbformat's own functions would validate each output, which takes twice as long as the
    export.
    """
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(SOURCE)])
    made.cells[0].outputs = [
        nbformat.from_dict({"output_type": "display_data", "data": data, "metadata": {}}) for data in outputs
    ]
    return made


def tokens_of(text):
    """Return (kind, content) of each part that a CommonMark parser which accepts HTML finds at the top level of a Markdown
    file.
    """
    from markdown_it import MarkdownIt

    parser = MarkdownIt("gfm-like", {"linkify": False, "html": True})
    return [(token.type, token.content.strip()) for token in parser.parse(text) if token.level == 0]


def markdown_of(*outputs):
    return tokens_of(exporter().from_notebook_node(notebook(*outputs))[0])


def test_the_check_is_able_to_fail():
    """A blank line in a bundle ends CommonMark's HTML block: then a picture and a heading stand outside of it."""
    found = markdown_of({"text/html": f"<div>{PAYLOADS['paragraph-0']}</div>", "text/plain": "x"})
    assert {"paragraph_open", "heading_open"} <= {kind for kind, _ in found}


@pytest.mark.parametrize("name", PAYLOADS)
def test_each_output_is_one_html_block_of_markdown(name):
    """In `nbconvert --to markdown`, the HTML of a block is one HTML block. No part of it is read as Markdown."""
    bundles = [make_bundle(block) for block in blocks(PAYLOADS[name]).values()]
    assert markdown_of(*bundles) == [("fence", SOURCE), *(("html_block", b["text/html"]) for b in bundles)]


@pytest.mark.parametrize("name", PAYLOADS)
def test_each_text_is_one_code_block_of_markdown(name):
    """If only the text form of a block is saved, nbconvert's Markdown has it as code."""
    between = {"text/html": "<div>next</div>", "text/plain": ""}
    texts = [block.text for block in blocks(PAYLOADS[name]).values()]
    found = markdown_of(*(data for text in texts for data in ({"text/plain": text}, between)))
    assert {kind for kind, _ in found[1:]} <= {"code_block", "html_block"}
    assert sum(kind == "code_block" for kind, _ in found) == sum(bool(text.strip()) for text in texts)


def test_a_line_break_that_counts_is_one_for_the_reader():
    """Several lines are several lines on the page, too, although the HTML is written in one line."""
    from html.parser import HTMLParser

    class Words(HTMLParser):
        def handle_data(self, data):
            texts.append(data)

    texts = []
    block = blocks("first\n\n  second\tthird\n")["call"]
    Words().feed(make_bundle(block)["text/html"])
    assert "\n" not in make_bundle(block)["text/html"]
    assert any("first\n\n  second\tthird" in words for words in texts)


TAG_FILTER = re.compile(
    r"<(?=/?(?:title|textarea|style|xmp|iframe|noembed|noframes|script|plaintext)(?:\s|/?>))", re.IGNORECASE
)
"""The tags that GitHub-flavoured Markdown shows as text (its specification, 6.11)."""


def visible_on_a_code_host(*outputs):
    """Return the text that a reader sees of a notebook's Markdown on a site that filters tags, removes styles and closes
    folds.
    """
    page = TAG_FILTER.sub("&lt;", exporter().from_notebook_node(notebook(*outputs))[0])
    while (
        inner := re.sub(r"(<summary[^>]*>.*?</summary>)(?:(?!<details).)*?</details>", r"\1", page)
    ) != page:
        page = inner
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())


def test_a_run_is_readable_on_a_code_host():
    """With `nbconvert --to markdown`, the reader sees the words of the run, and no text of a style sheet."""
    for outputs in (render(a_run()), [render(a_run())]):
        seen = visible_on_a_code_host(*map(make_bundle, outputs))
        assert "done · 3 model calls" in seen
        assert "{" not in seen
    assert "{" in visible_on_a_code_host({"text/html": f"{STYLE}<p>x</p>"}), "the check is able to fail"
