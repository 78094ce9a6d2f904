"""The prompt is exactly what the person typed."""

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
    """Only the `{{name}}` of an existing variable is replaced. Everything else reaches the model unchanged."""
    assert split_cell(f"%%toolloop --model m\n{body}\n") == ("--model m", body)
    assert fill_in(body, {}) == body


def test_names_are_filled_in_once() -> None:
    """`{{name}}` becomes the variable's text. Double braces inside this text are not replaced."""
    assert fill_in("a {{x}} {{y}} {{z}}", {"x": "{{y}}", "y": 3}) == "a {{y}} 3 {{z}}"


@pytest.mark.parametrize(
    "cell", ["%%toolloops\nx", "%toolloop\nx", "x = 1\n%%toolloop\ny", "%%toolloop?\n", "%%toolloop?"]
)
def test_other_cells_are_left_alone(cell: str) -> None:
    """Only a cell that begins with `%%toolloop` is a cell of ours. A cell that asks for help (`%%toolloop?`) is IPython's."""
    assert split_cell(cell) is None


@pytest.mark.parametrize("body", ["hi\n\n", "hi\n\n\n", "hi\r\nyou\r\n", "hi", "\n\n hi"])
def test_blank_lines_around_the_prompt(body: str) -> None:
    """Blank lines before and after the text belong to the prompt. IPython adds a newline only if the cell ends without one."""
    cell = f"%%toolloop\n{body}"
    assert split_cell(cell if cell.endswith("\n") else f"{cell}\n") == ("", body)


@pytest.mark.parametrize("behind", ["", " ", "\t", "\r", "\u00a0", "\x0c"])
def test_white_space_behind_the_magic(behind: str) -> None:
    """White space after `%%toolloop`, even the carriage return of a file from Windows, makes no difference."""
    assert split_cell(f"%%toolloop{behind}\nhi\n") == ("", "hi")


def test_a_name_may_be_typed_in_either_unicode_form() -> None:
    """A letter that is composed of two characters and the same letter as one character are the same name, as in Python."""
    assert (
        fill_in("{{gro\u0308\u00dfe}} {{gr\u00f6\u00dfe}} {{x\u00b2}}", {"gr\u00f6\u00dfe": 7})
        == "7 7 {{x\u00b2}}"
    )


def test_a_value_without_a_text_is_a_mistake_of_one_line() -> None:
    """If a value's own `__str__` raises any error, the message names the variable and the error."""

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
    """Blank lines and indentation before the magic make no difference."""
    assert split_cell(f"{before}%%toolloop\nhi\n") == ("", "hi")


def test_cell_without_body() -> None:
    """A cell of one line has an empty prompt, which the run refuses."""
    assert split_cell("%%toolloop --model m") == ("--model m", "")


def test_a_value_that_raises_when_asked_for_its_class() -> None:
    """If a value raises an error when its class is read, it is described like any object without its own text."""

    class Nobody:
        @property
        def __class__(self) -> type:
            raise GeneratorExit

    assert "Nobody" in fill_in("see {{it}}", {"it": Nobody()})
