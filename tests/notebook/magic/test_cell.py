"""The prompt is what was typed."""

from __future__ import annotations

import pytest

from toolloop_jupyter.core.events.errors import Mistake
from toolloop_jupyter.notebook.magic.extension import split_cell
from toolloop_jupyter.notebook.magic.names import fill_in

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


@pytest.mark.parametrize("body", ["hi\n\n", "hi\n\n\n", "hi\r\nyou\r\n", "hi", "\n\n hi"])
def test_blank_lines_around_the_prompt(body: str) -> None:
    """Blank lines before and behind the text are the person's; IPython adds a newline only where none is."""
    cell = f"%%toolloop\n{body}"
    assert split_cell(cell if cell.endswith("\n") else f"{cell}\n") == ("", body)


@pytest.mark.parametrize("behind", ["", " ", "\t", "\r", "\u00a0", "\x0c"])
def test_white_space_behind_the_magic(behind: str) -> None:
    """Trailing white space of any kind, also the carriage return of a file from Windows, hides nothing."""
    assert split_cell(f"%%toolloop{behind}\nhi\n") == ("", "hi")


def test_a_name_may_be_typed_in_either_unicode_form() -> None:
    """A combined and a composed letter are the same name, as in Python."""
    assert (
        fill_in("{{gro\u0308\u00dfe}} {{gr\u00f6\u00dfe}} {{x\u00b2}}", {"gr\u00f6\u00dfe": 7})
        == "7 7 {{x\u00b2}}"
    )


def test_a_value_without_a_text_is_a_mistake_of_one_line() -> None:
    """Whatever a value's own `__str__` raises, the message names the variable and what was raised."""

    class Mute:
        def __str__(self) -> str:
            raise ValueError("no text")

    class Number:
        def __str__(self) -> str:
            return 5  # type: ignore[return-value]  # noqa: PLE0307 - that is what is tried

    for value, raised in ((Mute(), "ValueError"), (Number(), "TypeError")):
        with pytest.raises(Mistake) as caught:
            fill_in("see {{it}}", {"it": value})
        assert str(caught.value) == (
            f"{{{{it}}}} cannot be filled in: str(it) raised {raised}; use a variable that contains a text instead"
        )


@pytest.mark.parametrize("before", ["", "\n", "\n  \n", "  ", "\r\n", "\u00a0"])
def test_blank_lines_before_the_magic(before: str) -> None:
    """Blank lines and indentation before the magic do not hide it."""
    assert split_cell(f"{before}%%toolloop\nhi\n") == ("", "hi")


def test_cell_without_body() -> None:
    """A cell that is one line has an empty prompt, which the run refuses."""
    assert split_cell("%%toolloop --model m") == ("--model m", "")


def test_a_value_that_raises_when_asked_for_its_class() -> None:
    """Such a value is told as any other object without a text of its own."""

    class Nobody:
        @property
        def __class__(self) -> type:
            raise GeneratorExit

    assert "Nobody" in fill_in("see {{it}}", {"it": Nobody()})
