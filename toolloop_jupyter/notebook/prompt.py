"""From a cell's text to the prompt: verbatim, except for `{{name}}`."""

from __future__ import annotations

import re
from collections.abc import Mapping

_CELL = re.compile(r"(?:[ \t]*\n)*[ \t]*%%toolloop(?P<line>[ \t][^\n]*)?(?:\n|\Z)")
_NAME = re.compile(r"\{\{([^\W\d]\w*)\}\}")


def split_cell(text: str) -> tuple[str, str] | None:
    """(option line, body) of a `%%toolloop` cell as a person typed it, or None for any other cell.

    `%%toolloop?` is IPython's own question for help, so it is not ours.
    """
    found = _CELL.match(text)
    if found is None:
        return None
    body = text[found.end() :]
    # IPython ends every cell with a newline; that one is not the person's.
    return (found["line"] or "").strip(), body.removesuffix("\n")


def fill_in(body: str, names: Mapping[str, object]) -> str:
    """Replace `{{name}}` by the text of that notebook variable, once: what it contains is not looked at again.

    Double braces around anything else than the bare name of something that exists stay as they are.
    """
    return _NAME.sub(lambda match: str(names[match[1]]) if match[1] in names else match[0], body)
