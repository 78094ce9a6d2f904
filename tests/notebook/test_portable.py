"""Model text in an exported Markdown file: what is inert stays as it was written, block by block; the rest is code."""

from __future__ import annotations

import random
import time

import pytest
from markdown_it import MarkdownIt

from support.payloads import PAYLOADS
from toolloop_jupyter.notebook.portable import is_inert, portable

ORDINARY = {
    "generics in code": "```java\nList<String> x = new ArrayList<>();\n```",
    "html in code": '```html\n<div class="a">{{ x }}</div>\n```',
    "a tag in a code span": "Use the `<div>` tag, or `![x](y)`.",
    "comparison": "if a < b and c > d, x <- y, a<b",
    "colons": "the data: it is 5. JavaScript: a language",
    "entities": "R&D &amp; more",
    "footnote": "Text[^1] and[^2]\n\n[^1]: note\n[^2]: a longer one",
    "reference": "See [a][1]\n\n[1]: https://x.org",
    "table": "# Title\n\n| a | b |\n|---|---|\n| x<br>y | `<z>` |",
    "list": "1. a\n   - b\n     ```sh\n     ls <x\n     ```",
    "indented code": "text\n\n    code < b",
    "formula": "So\n\n$$\\frac{a}{b}$$ and \\(y\\)",
    "link": "See [docs](https://docs.python.org/3/), <https://x.org>, a@b.org.",
}
ACTIVE = [
    "<img src=x>",
    "a <b>bold</b> word",
    "<!-- hidden -->",
    "<script>\n\nalert(1)\n\n</script>",
    "![plot](https://x.org/a.png)",
    "![plot][elsewhere]",
    "[a](javascript:alert(1))",
    "[a](java&#115;cript:alert(1))",
    "<javascript:alert(1)>",
    "[a](data:text/html,x)",
    "[a](other.md)",
    "[a] (javascript:alert(1) )",
    "see [a]\n\n[a]: javascript:alert(1)",
    "> quoted\n>\n> [a]: javascript:alert(1)",
    "[^1]: javascript:alert(1)",
    "```mermaid\ngraph TD\n```",
    "- item\n\n  ~~~ {image} https://x.org/a.png\n  ~~~",
    "[^1]: ```mermaid\n    graph\n    ```",
    "[^1]: <img/src=x>",
    "Text[^1]\n\n[^1]: <div>",
    "[^1]: a note\n\n    <img src=x>",
    "!!! note\n\n        ![x](https://x.org/a.png)",
    "{raw}`<img src=x>`",
    "`<img src=x>`{=html}",
    ":::note\ntext\n:::",
    "{% include x %}",
    "{{ secret }}",
    '<a title="x" onclick=alert(1)',
    "> " * 25 + "<img src=x>",
    "| `a | b` |\n|---|---|\n| `x | <img src=x> | y` |",
]


def unsafe(text):
    """What a parser that passes HTML, with tables or without, finds in `text` that is no code."""
    found = []
    for dialect in ("gfm-like", "commonmark"):
        parser = MarkdownIt(dialect, {"linkify": False, "html": True})
        flat = [token for block in parser.parse(text) for token in [block, *(block.children or [])]]
        found += [token.content for token in flat if token.type in ("html_block", "html_inline", "image")]
    return [one for one in found if one != "<br>"]


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_text_stays_as_it_was_written(name):
    """Code with tags, comparisons, colons, footnotes, tables and headings are no danger and no code block."""
    assert portable(ORDINARY[name]) == ORDINARY[name]


@pytest.mark.parametrize("text", ACTIVE)
def test_only_the_block_that_is_not_inert_is_code(text):
    """A picture, a tag, a link elsewhere, a diagram or a directive costs its own block, not the heading and table around."""
    table = ORDINARY["table"]
    page = portable(f"{table}\n\n{text}\n\n## The end")
    assert page.startswith(f"{table}\n\n")
    assert page.endswith("\n\n## The end")
    assert not is_inert(text)
    assert "```text\n" in page
    assert is_inert(page)
    assert not unsafe(page)


def test_whatever_stands_together_is_inert():
    """Ordinary and hostile blocks in any order, close together or apart, cut anywhere, in one file with what follows."""
    pieces = [
        *ORDINARY.values(),
        *ACTIVE,
        *PAYLOADS.values(),
        "```python\nopen",
        "~~~~",
        "- ",
        "> ",
        "    ",
        "\t",
    ]
    for seed in range(400):
        chance = random.Random(seed)
        text = chance.choice(["\n", "\n\n"]).join(chance.choices(pieces, k=chance.randint(2, 5)))[:20_000]
        page = portable(text[: chance.randint(1, len(text))])
        assert is_inert(page), seed
        assert not unsafe(page), seed
        assert not unsafe(f"{page}\n\n```text\n<img src=x>\n```"), seed


@pytest.mark.parametrize(
    "part", ["<a ", "](", "] ", "{a", "![", "`", "> ", "[a]: b\n", "<a on", "**", "x\n\n<b>\n\n"]
)
def test_a_hostile_text_costs_little(part):
    """No run of openers makes an export take long."""
    for text in (part * (60_000 // len(part)), part + " " * 60_000):
        began = time.perf_counter()
        portable(text)
        assert time.perf_counter() - began < 5
