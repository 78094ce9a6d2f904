"""An exported Markdown file: each text is code from its first line to its last, whatever is beside it."""

from __future__ import annotations

import random

import pytest
from markdown_it import MarkdownIt

from support.hostile import run
from support.payloads import PAYLOADS
from toolloop_jupyter.core.events.events import Text, Usage
from toolloop_jupyter.core.events.result import Result
from toolloop_jupyter.notebook.transcript.steps import write_markdown

ACTIVE = [
    "<img src=x>",
    "![plot](https://x.org/a.png)",
    "[a](javascript:alert(1))",
    "> quoted\n>\n> [a]: javascript:alert(1)",
    "```mermaid\ngraph TD\n```",
    "[^1]: ```mermaid\n    graph\n    ```",
    "{raw}`<img src=x>`",
    ":::note\ntext\n:::",
    "{{ secret }}",
    "> " * 25 + "<img src=x>",
    "```python\nopen",
    "````\n```\n<b>\n``````text",
    "~~~~",
    "- ",
    "    ",
    "\t",
    "a\rb",
]


def blocks_of(page, dialect):
    """Return (kind, info) of each block that a Markdown parser which accepts HTML finds. The containers of the quoted prompt
    are left out.
    """
    tokens = MarkdownIt(dialect, {"linkify": False, "html": True}).parse(page)
    return [(one.type, one.info) for one in tokens if not one.type.startswith("blockquote")]


@pytest.mark.parametrize("dialect", ["gfm-like", "commonmark"])
def test_everything_is_code(dialect):
    """Ordinary and hostile texts are code: in any order, close together or apart, cut anywhere, as a prompt and as an answer."""
    pieces = ["Text with `code`.", "# Title\n\n| a | b |\n|---|---|\n| x | y |", *ACTIVE, *PAYLOADS.values()]
    for seed in range(300):
        chance = random.Random(seed)
        text = chance.choice(["\n", "\n\n"]).join(chance.choices(pieces, k=chance.randint(2, 5)))[:20_000]
        text = text[: chance.randint(1, len(text))]
        result = Result(text, None, [], [Text(text)], Usage(), None, "done", "s", prompt=text)
        assert set(blocks_of(write_markdown(result), dialect)) == {("fence", "text")}, seed


@pytest.mark.parametrize("text", ACTIVE)
def test_every_part_of_a_run_is_code(text):
    """Names, arguments, results, decisions, retries, files and errors are code, too."""
    assert set(blocks_of(write_markdown(run(text)), "commonmark")) == {("fence", "text")}


def test_a_text_stays_as_it_was_written():
    """The Markdown of a text is kept letter by letter. Its fence is longer than any fence in the text."""
    text = "# Title\n\n````python\nx = 1  # `y`\n````\n\n- a\n  - b"
    result = Result(text, None, [], [Text(text)], Usage(), None, "done", "s")
    assert f"\n`````text\n{text}\n`````\n" in write_markdown(result)
