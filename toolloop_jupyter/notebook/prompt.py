"""From a cell's text to the prompt: verbatim, except for `{{name}}`."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

from ..core.foreign import Raised, attempt
from .options import Mistake

_CELL = re.compile(r"(?:[^\S\n]*\n)*[^\S\n]*%%toolloop(?P<line>[^\S\n][^\n]*)?(?:\n|\Z)")
_NAME = re.compile(r"\{\{([^\s{}]+)\}\}")


def split_cell(text: str) -> tuple[str, str] | None:
    """(option line, body) of a `%%toolloop` cell as a person typed it, or None for any other cell.

    `%%toolloop?` is IPython's own question for help, so it is not ours.
    """
    found = _CELL.match(text)
    if found is None:
        return None
    return (found["line"] or "").strip(), as_typed(text[found.end() :])


def as_typed(body: str) -> str:
    """The body without the newline that IPython puts at the end of a cell, where it has put one.

    It does so for a cell without a newline at its end. A body that ends in a blank line was typed so, and one that ends
    a carriage return and a newline as well; a single newline cannot be told from IPython's and is taken for it.
    """
    return body if body.endswith(("\n\n", "\r\n")) else body.removesuffix("\n")


def fill_in(body: str, names: Mapping[str, object]) -> str:
    """Replace `{{name}}` by the text of that notebook variable, once: what it contains is not looked at again.

    Double braces around anything else than the bare name of something that exists stay as they are. Raises Mistake
    for a value that cannot give its text.
    """

    def text_of(match: re.Match[str]) -> str:
        # Python reads names in this form: "ö" may be typed as one character or as two.
        name = unicodedata.normalize("NFKC", match[1])
        if not name.isidentifier() or name not in names:
            return match[0]
        text = attempt(str, names[name])
        if isinstance(text, Raised):
            raised = type(text.error).__name__
            raise Mistake(
                f"{{{{{name}}}}} cannot be filled in: str({name}) raised {raised}; put its text into a variable of its own"
            )
        return text

    return _NAME.sub(text_of, body)
