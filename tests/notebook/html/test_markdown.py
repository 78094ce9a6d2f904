"""Model text as HTML: what markdown it speaks, what it does with links, pictures, code and formulas."""

from __future__ import annotations

import re

import pytest

from toolloop_jupyter.notebook.html.markdown import MOST_MARKS, highlight, markdown_html
from toolloop_jupyter.notebook.live.column import StreamingText

FORMULA = 'tex2jax_process">'


def words(page):
    return re.sub(r"<[^>]*>", "", page)


@pytest.mark.parametrize("marks", ["[", "*_", "- a\n", "|x", "~~"])
def test_too_many_marks_are_shown_as_they_are(marks):
    """A text whose marks would hold the notebook for long is shown without formatting; one with fewer is formatted."""
    few = "**b**\n\n" + marks * (MOST_MARKS // 3)
    assert markdown_html(few).startswith("<p><strong>b</strong></p>")
    many = marks * (MOST_MARKS + 1)
    assert markdown_html(many).startswith("<pre")
    assert words(markdown_html(many)) == many


def test_the_usual_marks():
    """Emphasis, strikethrough, lists, quotes, code and tables become what they are."""
    page = markdown_html("**b** *i* ~~s~~ `c`\n\n- x\n\n> q\n\n|a|b|\n|-|-:|\n|1|2|")
    for part in (
        "<strong>b",
        "<em>i",
        "<s>s",
        "<code>c",
        "<li>x",
        "<blockquote>",
        "<table",
        "text-align:right",
    ):
        assert part in page, part


def test_headings_stay_out_of_the_table_of_contents():
    """JupyterLab lists every h1 to h6 of an output in the notebook's contents: there are none."""
    page = markdown_html("# One\n\n## Two")
    assert not re.search(r"<h\d", page)
    assert page.count('role="heading"') == 2


def test_headings_leave_no_level_out():
    """For a screen reader each heading is at most one below the one before it, and the first one is below the page's title."""
    page = markdown_html("#### a\n\n# b\n\n### c\n\n###### d\n\n### e\n\n## f")
    assert re.findall(r'aria-level="(\d)"', page) == ["2", "2", "3", "4", "3", "3"]


def test_links_say_where_they_go():
    """Allowed links open elsewhere, without an opener, and have their true address as title."""
    page = markdown_html("[https://bank.example](https://evil.example/x)")
    assert (
        'href="https://evil.example/x" title="https://evil.example/x" target="_blank" rel="noopener noreferrer"'
        in page
    )


@pytest.mark.parametrize(
    "address",
    ["javascript:alert(1)", "data:text/html,x", "file:///etc", "//host/x", "/api", "x.html", "vscode:x"],
)
def test_other_addresses_are_no_links(address):
    """Only http, https and mailto are links; the text stays readable."""
    page = markdown_html(f"[words]({address})")
    assert "<a" not in page
    assert "words" in page


def test_pictures_are_links():
    """A picture in model text is a link that somebody may click, never a request."""
    page = markdown_html("![a chart](https://host.example/p.png?q=secret)")
    assert "<img" not in page
    assert "a chart (image, not loaded)" in page


def test_code_is_coloured_and_whole():
    """A fence in a known language has classes for its tokens and no character more or less."""
    page = markdown_html("```python\ndef f(x):\n    return 'a' # b\n```")
    assert 'class="tk"' in page
    assert 'class="tc"' in page
    assert words(page) == "def f(x):\n    return &#x27;a&#x27; # b"


@pytest.mark.parametrize("code", ["x = 1", "x = 1\n", "\n\nx = 1\n\n", "a\n\tb", "", "\\d+"])
@pytest.mark.parametrize("language", ["python", "json", "diff", "bash", "none-such"])
def test_highlighting_changes_no_character(code, language):
    """Leading and trailing blank lines and tabs stay as they are."""
    assert words(highlight(code, language)) == code.replace("'", "&#x27;")


def test_an_unclosed_fence_is_code_already():
    """While a code block is being written it is shown as one."""
    assert "<pre" in markdown_html("Look:\n```python\nx = 1", streaming=True)


@pytest.mark.parametrize(
    "source", ["$x^2$", "$$x^2$$", r"\(x^2\)", r"\[x^2\]", "$$\na\n- b\n$$", "so $a$, $b$ and ($c$)."]
)
def test_formulas_are_handed_to_the_typesetter(source):
    """All four notations reach MathJax as its own delimiters."""
    page = markdown_html(source)
    assert FORMULA in page
    assert "$" not in page
    assert "<li>" not in page


@pytest.mark.parametrize(
    "source",
    [
        "costs $5 and $10",
        "$5-$10",
        "from $20 in US$ to $30",
        "US$5, then $6.",
        "a $1,000 bill and a $20 note",
        "$HOME and $PATH",
        "100$ and 200$",
        "$ x $",
        r"\$5 and \$6",
        "between $5k and $10k",
        "$5 (= €4) or 6 US$",
        "A: $10 -> B: 20$",
        "$$5 and $$6",
        "$$$ and $$",
        "Save $10_per_user or 20$",
        "$5+tax is in US$",
        "${HOME}:${PATH}",
        "$(pwd)/$(date)",
    ],
)
def test_money_and_variables_stay_themselves(source):
    """Dollars that are no formula are shown, each in an element of its own, where no typesetter pairs them."""
    page = markdown_html(source)
    assert FORMULA not in page
    assert page.count("<span>$</span>") == source.count("$")


@pytest.mark.parametrize(
    "tex",
    [
        r"\begin{matrix}a\\[9999em]b\end{matrix}",
        r"\begin{matrix}a\\*  [9999em]b\end{matrix}",
        r"\begin{array}{*{9999}{c}}a\end{array}",
        r"\begin{array}{p{9999em}}a\end{array}",
        r"a" + r"\\ " * 500,
    ],
)
def test_no_formula_is_as_tall_as_it_likes(tex):
    """Lengths, repetitions and hundreds of lines are shown as source: they would push the rest out of sight."""
    page = markdown_html(f"$${tex}$$ then $\\begin{{array}}[t]{{l|r}}a\\\\b\\end{{array}}$")
    assert page.count(FORMULA) == 1


def test_unknown_macros_are_source():
    """A macro that is no plain notation keeps its formula from being typeset; it is shown as written."""
    page = markdown_html(r"$\href{x}{y}$ but $\frac{1}{2}$")
    assert page.count(FORMULA) == 1
    assert r"<code>\href{x}{y}</code>" in page


def test_formulas_wait_for_the_end():
    """While text is streamed formulas stay source, so that they are not typeset ten times a second."""
    assert FORMULA not in markdown_html("$x$", streaming=True)


# -- streaming -----------------------------------------------------------------------------------------------------

PARAGRAPH = "Some *words* with `code` and a [link](https://example.org), for a while.\n\n"
CODE = "```python\n" + "x = 'a line of code'\n" * 900 + "```\n\nafter\n"
LIST = "".join(f"{n}. item number {n} of a long list\n\n" for n in range(1, 500))


@pytest.mark.parametrize(
    "text", [PARAGRAPH * 300, CODE, LIST, "word " * 5000, PARAGRAPH * 50 + CODE + LIST], ids=len
)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_streamed_text_loses_nothing(text, size):
    """However the deltas fall, the words of the pieces and of the rest are the words of the text."""
    stream, taken = StreamingText(), []
    for start in range(0, len(text), size):
        stream.add(text[start : start + size])
        if start % 500 < size:
            taken += stream.take()
    taken.append(stream.block(final=True))
    flat = " ".join(words(block.html) for block in taken).split()
    assert flat == words(markdown_html(text)).split()
    assert stream.text == text


def test_blank_lines_alone_are_no_piece():
    """A model that streams nothing but line breaks ends no page."""
    stream = StreamingText()
    stream.add("\n" * 20_000)
    assert stream.take() == []
    assert words(stream.block().html).strip() == ""


def test_the_rest_stays_small():
    """What is rendered and sent again with each look does not grow with the text."""
    stream, largest, pieces = StreamingText(), 0, 0
    for _ in range(600):
        stream.add(PARAGRAPH)
        pieces += len(stream.take())
        largest = max(largest, len(stream.block().html))
    assert pieces > 5
    assert largest < 15_000


def test_a_finished_piece_ends_at_a_paragraph():
    """Pieces end where another block has begun, not within a list or a fence that is still short."""
    stream = StreamingText()
    stream.add(PARAGRAPH * 60 + "- one\n\n- two\n\n" + "```\n\nx\n\n```\n")
    assert all(block.text.endswith(("for a while.", "- two")) for block in stream.take())
