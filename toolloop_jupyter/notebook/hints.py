"""What a beginner writes in place of a `%%toolloop` cell, and the line that helps: one % for two, the magic not on top."""

from __future__ import annotations

import ast
import re
from typing import Any

_SINGLE = re.compile(r"\s*%toolloop(?![\w%?])[^\n]*\n(?P<rest>.*)", re.DOTALL)
_DOUBLE = re.compile(r"^[ \t]*%%toolloop(?![\w%?])", re.MULTILINE)


def misplaced(text: str) -> str | None:
    """The line that helps, for a cell that is no `%%toolloop` cell but was meant to be one; None for every other cell.

    IPython itself would call it a syntax error in the middle of the prompt, or a line magic that does not exist.
    """
    if "%toolloop" not in text or text.lstrip().startswith("%%"):
        return None
    single = _SINGLE.match(text)
    if single is not None and single["rest"].strip() and not _is_python(single["rest"]):
        return "%toolloop takes no prompt; with two percent signs, %%toolloop, the lines below are the prompt"
    double = _DOUBLE.search(text)
    if double is not None and _is_python(text[: double.start()]):
        return (
            "%%toolloop must be the first line of its cell; put what stands above it into a cell of its own"
        )
    return None


def _is_python(code: str) -> bool:
    """Whether this is whole Python, magics and all: an open string, say, may hold any line."""
    from IPython.core.inputtransformer2 import TransformerManager

    manager: Any = TransformerManager  # without types before IPython 9
    try:
        ast.parse(manager().transform_cell(code))
    except (SyntaxError, ValueError, RecursionError):
        return False
    return True


def unquoted(words: list[str], stray: str, flags: dict[str, bool]) -> str:
    """The option whose text was written without quotes, as it should be typed; "" when `stray` is none of such.

    `words` are the words of the line, `flags` the options, with whether each takes one value.
    """
    at = words.index(stray) if stray in words else 0
    if at < 2 or not flags.get(words[at - 2], False):
        return ""
    text = [words[at - 1]]
    for word in words[at:]:
        if word in flags:
            break
        text.append(word)
    return f'{words[at - 2]} "{" ".join(text)}"'
