"""The prompt is what was typed."""

from __future__ import annotations

import pytest

from toolloop_jupyter.notebook.prompt import fill_in, split_cell

VERBATIM = [
    'f-string {x}, {{nope}}, $HOME, 100%, !ls, "q"',
    "{v:k for k,v in d.items()}",
    "if (x) { return 1 }",
    r"\frac{1}{2} and \n and 'single'",
    '{"a": 1}',
    "a } b",
    "%magic\n!ls\n?help",
    "  indented\n\n\n    more\t tabs",
    "größe 你好 🎉",
    ">>> 1 + 1\n2",
    "In [1]: x",
    "{{ spaced }} {{a.b}} {{1}} {{}} {{{x}}",
    '"""triple""" and \'\'\' too \\',
]


@pytest.mark.parametrize("body", VERBATIM)
def test_body_is_verbatim(body: str) -> None:
    """Everything but `{{name}}` of something that exists comes through unchanged."""
    assert split_cell(f"%%toolloop --model m\n{body}\n") == ("--model m", body)
    assert fill_in(body, {}) == body


def test_names_are_filled_in_once() -> None:
    """`{{name}}` becomes the variable's text, and what that contains is not expanded again."""
    assert fill_in("a {{x}} {{y}} {{z}}", {"x": "{{y}}", "y": 3}) == "a {{y}} 3 {{z}}"


@pytest.mark.parametrize(
    "cell", ["%%toolloops\nx", "%toolloop\nx", "x = 1\n%%toolloop\ny", "%%toolloop?\n", "%%toolloop?"]
)
def test_other_cells_are_left_alone(cell: str) -> None:
    """Only a cell that begins with `%%toolloop` is one; a question for help is IPython's."""
    assert split_cell(cell) is None


@pytest.mark.parametrize("before", ["", "\n", "\n  \n", "  "])
def test_blank_lines_before_the_magic(before: str) -> None:
    """Blank lines and indentation before the magic do not hide it."""
    assert split_cell(f"{before}%%toolloop\nhi\n") == ("", "hi")


def test_cell_without_body() -> None:
    """A cell that is one line has an empty prompt, which the run refuses."""
    assert split_cell("%%toolloop --model m") == ("--model m", "")
