"""The Markdown text of a model as HTML: the supported Markdown, links, pictures, code and formulas."""

from __future__ import annotations

import re

import pytest

from toolloop_jupyter.notebook.html.markdown import MOST_MARKS, highlight, render_markdown
from toolloop_jupyter.notebook.live.column import StreamingText

FORMULA = 'tex2jax_process">'


def words(page):
    return re.sub(r"<[^>]*>", "", page)


@pytest.mark.parametrize("marks", ["[", "*_", "- a\n", "|x", "~~"])
def test_too_many_marks_are_shown_as_they_are(marks):
    """A text with so many marks that the parser would need long is shown without formatting. A text with fewer marks is
    formatted.
    """
    few = "**b**\n\n" + marks * (MOST_MARKS // 3)
    assert render_markdown(few).startswith("<p><strong>b</strong></p>")
    many = marks * (MOST_MARKS + 1)
    assert render_markdown(many).startswith("<pre")
    assert words(render_markdown(many)) == many


def test_the_usual_marks():
    """Emphasis, strikethrough, lists, quotes, code and tables get their HTML elements."""
    page = render_markdown("**b** *i* ~~s~~ `c`\n\n- x\n\n> q\n\n|a|b|\n|-|-:|\n|1|2|")
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
    """JupyterLab lists every h1 to h6 of an output in the notebook's table of contents. So there are none."""
    page = render_markdown("# One\n\n## Two")
    assert not re.search(r"<h\d", page)
    assert page.count('role="heading"') == 2


def test_headings_leave_no_level_out():
    """For a screen reader, a heading is at most one level below the heading before it. The first one is below the page's
    title.
    """
    page = render_markdown("#### a\n\n# b\n\n### c\n\n###### d\n\n### e\n\n## f")
    assert re.findall(r'aria-level="(\d)"', page) == ["2", "2", "3", "4", "3", "3"]


def test_links_say_where_they_go():
    """An allowed link opens in a new tab, without an opener. Its title is its real address."""
    page = render_markdown("[https://bank.example](https://evil.example/x)")
    assert (
        'href="https://evil.example/x" title="https://evil.example/x" target="_blank" rel="noopener noreferrer"'
        in page
    )


@pytest.mark.parametrize(
    "address",
    ["javascript:alert(1)", "data:text/html,x", "file:///etc", "//host/x", "/api", "x.html", "vscode:x"],
)
def test_other_addresses_are_no_links(address):
    """Only http, https and mailto addresses become links. The text of other links can still be read."""
    page = render_markdown(f"[words]({address})")
    assert "<a" not in page
    assert "words" in page


def test_pictures_are_links():
    """A picture in a model's text becomes a link that a person may click. It causes no request."""
    page = render_markdown("![a chart](https://host.example/p.png?q=secret)")
    assert "<img" not in page
    assert "a chart (image, not loaded)" in page


def test_code_is_coloured_and_whole():
    """Code in a known language has classes for its tokens, and all its characters."""
    page = render_markdown("```python\ndef f(x):\n    return 'a' # b\n```")
    assert 'class="tk"' in page
    assert 'class="tc"' in page
    assert words(page) == "def f(x):\n    return &#x27;a&#x27; # b"


@pytest.mark.parametrize("code", ["x = 1", "x = 1\n", "\n\nx = 1\n\n", "a\n\tb", "", "\\d+"])
@pytest.mark.parametrize("language", ["python", "json", "diff", "bash", "none-such"])
def test_highlighting_changes_no_character(code, language):
    """Blank lines and tabs at the beginning and the end stay."""
    assert words(highlight(code, language)) == code.replace("'", "&#x27;")


def test_an_unclosed_fence_is_code_already():
    """While the model still writes a code block, it is shown as code."""
    assert "<pre" in render_markdown("Look:\n```python\nx = 1", streaming=True)


@pytest.mark.parametrize(
    "source", ["$x^2$", "$$x^2$$", r"\(x^2\)", r"\[x^2\]", "$$\na\n- b\n$$", "so $a$, $b$ and ($c$)."]
)
def test_formulas_are_handed_to_the_typesetter(source):
    """Formulas in all four notations get delimiters that MathJax knows."""
    page = render_markdown(source)
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
    """A dollar sign outside of a formula is shown, in an element of its own, so that MathJax finds no pair of them."""
    page = render_markdown(source)
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
    """Formulas with lengths, repetitions or hundreds of lines are shown as source: they could push the rest out of sight."""
    page = render_markdown(f"$${tex}$$ then $\\begin{{array}}[t]{{l|r}}a\\\\b\\end{{array}}$")
    assert page.count(FORMULA) == 1


def test_unknown_macros_are_source():
    """If a formula has a macro that is not plain notation, the formula is shown as written."""
    page = render_markdown(r"$\href{x}{y}$ but $\frac{1}{2}$")
    assert page.count(FORMULA) == 1
    assert r"<code>\href{x}{y}</code>" in page


def test_formulas_wait_for_the_end():
    """While text is streamed, formulas are shown as source. Otherwise they would be typeset ten times a second."""
    assert FORMULA not in render_markdown("$x$", streaming=True)


# -- streaming -----------------------------------------------------------------------------------------------------

PARAGRAPH = "Some *words* with `code` and a [link](https://example.org), for a while.\n\n"
CODE = "```python\n" + "x = 'a line of code'\n" * 900 + "```\n\nafter\n"
LIST = "".join(f"{n}. item number {n} of a long list\n\n" for n in range(1, 500))


@pytest.mark.parametrize(
    "text", [PARAGRAPH * 300, CODE, LIST, "word " * 5000, PARAGRAPH * 50 + CODE + LIST], ids=len
)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_streamed_text_loses_nothing(text, size):
    """However a text is cut into deltas, the pieces and the rest together have all its words."""
    stream, taken = StreamingText(), []
    for start in range(0, len(text), size):
        stream.add(text[start : start + size])
        if start % 500 < size:
            taken += stream.take()
    taken.append(stream.block(final=True))
    flat = " ".join(words(block.html) for block in taken).split()
    assert flat == words(render_markdown(text)).split()
    assert stream.text == text


def test_blank_lines_alone_are_no_piece():
    """A text of line breaks alone causes no piece and no error."""
    stream = StreamingText()
    stream.add("\n" * 20_000)
    assert stream.take() == []
    assert words(stream.block().html).strip() == ""


def test_the_rest_stays_small():
    """The rest, which is rendered and sent again and again, does not grow with the text."""
    stream, largest, pieces = StreamingText(), 0, 0
    for _ in range(600):
        stream.add(PARAGRAPH)
        pieces += len(stream.take())
        largest = max(largest, len(stream.block().html))
    assert pieces > 5
    assert largest < 15_000


def test_a_finished_piece_ends_at_a_paragraph():
    """A piece ends where another block begins, not inside a short list or a short code block."""
    stream = StreamingText()
    stream.add(PARAGRAPH * 60 + "- one\n\n- two\n\n" + "```\n\nx\n\n```\n")
    assert all(block.text.endswith(("for a while.", "- two")) for block in stream.take())
