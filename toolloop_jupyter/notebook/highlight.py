"""Code in colour: Pygments' tokens as a few classes that `style.py` gives a light and a dark colour."""

from __future__ import annotations

from functools import cache
from itertools import groupby
from typing import Any

from .inert import esc

LONGEST = 20_000
"""Characters; longer code stays in one colour, so that a huge result costs no time."""
_LONGEST_LINE = 1_000
"""Some lexers need the square of a line's length."""

# A fixed set: names come from the model, unknown ones would make Pygments search all installed plugins, and some
# of its five hundred lexers take very long on text made for that.
_LANGUAGES = """
python py python3 py3 pycon json bash sh shell zsh console yaml toml ini cfg sql postgresql javascript js typescript ts
html xml css diff c cpp c++ java go golang rust rs r julia ruby rb dockerfile docker make makefile tex latex
"""
_KNOWN = frozenset(_LANGUAGES.split())
_CLASSES = {
    **dict.fromkeys(["k", "ow", "nt"], "tk"),
    **dict.fromkeys(["nf", "nc", "nd", "fm", "gh", "gu"], "tf"),
    **dict.fromkeys(["nb", "bp", "na", "ne"], "tb"),
    "c": "tc",
    "s": "ts",
    "m": "tm",
    "gi": "ti",
    "gd": "td",
}
"""Ours by Pygments' own short names of tokens, or by their first letter."""


@cache
def _class_of(token: Any) -> str:
    from pygments.token import STANDARD_TYPES

    while token not in STANDARD_TYPES:
        token = token.parent
    name = STANDARD_TYPES[token]
    return _CLASSES.get(name) or _CLASSES.get(name[:2]) or _CLASSES.get(name[:1], "")


@cache
def _lexer(name: str) -> Any:
    from pygments.lexers import get_lexer_by_name

    return get_lexer_by_name(name, stripnl=False, ensurenl=True)


def highlight(code: str, language: str = "") -> str:
    """Escaped HTML of `code` for the inside of a `<pre>`; in colour when `language` is one we know."""
    name = language.strip().lower()
    if name not in _KNOWN or len(code) > LONGEST or max(map(len, code.split("\n"))) > _LONGEST_LINE:
        return esc(code)
    tokens = list(_lexer(name).get_tokens(code))
    if tokens and not code.endswith("\n"):  # most lexers want one, and are given it
        tokens[-1] = (tokens[-1][0], tokens[-1][1].removesuffix("\n"))
    parts = []
    for css, run in groupby(tokens, lambda token: _class_of(token[0])):
        text = esc("".join(text for _, text in run))
        parts.append(f'<span class="{css}">{text}</span>' if css and text else text)
    return "".join(parts)
