"""Code in colour: Pygments' tokens as six classes that `style.py` gives a light and a dark colour."""

from __future__ import annotations

from functools import cache
from typing import Any

from .inert import esc

LONGEST = 20_000
"""Characters; longer code stays in one colour, so that a huge result costs no time."""
_LONGEST_LINE = 1_000
"""Some lexers need the square of a line's length."""

# A fixed set: names come from the model, unknown ones would make Pygments search all installed plugins, and some
# of its five hundred lexers take very long on text made for that.
_LANGUAGES = {
    alias: name
    for name, aliases in {
        "python": "python py python3 py3 ipython ipython3",
        "pycon": "pycon",
        "json": "json jsonc json5",
        "bash": "bash sh shell zsh",
        "console": "console shell-session",
        "yaml": "yaml yml",
        "toml": "toml",
        "ini": "ini cfg",
        "sql": "sql sqlite postgresql",
        "javascript": "javascript js jsx",
        "typescript": "typescript ts tsx",
        "html": "html xml svg",
        "css": "css",
        "diff": "diff patch",
        "c": "c h",
        "cpp": "cpp c++ cc hpp",
        "java": "java",
        "go": "go golang",
        "rust": "rust rs",
        "r": "r",
        "julia": "julia jl",
        "ruby": "ruby rb",
        "docker": "dockerfile docker",
        "make": "make makefile",
        "tex": "tex latex",
    }.items()
    for alias in aliases.split()
}

_CLASSES = (
    ("Token.Comment", "tc"),
    ("Token.Keyword", "tk"),
    ("Token.Operator.Word", "tk"),
    ("Token.Name.Tag", "tk"),
    ("Token.Literal.String", "ts"),
    ("Token.Literal.Number", "tm"),
    ("Token.Name.Function", "tf"),
    ("Token.Name.Class", "tf"),
    ("Token.Name.Decorator", "tf"),
    ("Token.Generic.Heading", "tf"),
    ("Token.Generic.Subheading", "tf"),
    ("Token.Name.Builtin", "tb"),
    ("Token.Name.Attribute", "tb"),
    ("Token.Name.Exception", "tb"),
    ("Token.Generic.Inserted", "ti"),
    ("Token.Generic.Deleted", "td"),
)


@cache
def _class_of(token: Any) -> str:
    name = str(token)
    return next((css for prefix, css in _CLASSES if name == prefix or name.startswith(prefix + ".")), "")


@cache
def _lexer(name: str) -> Any:
    from pygments.lexers import get_lexer_by_name

    return get_lexer_by_name(name, stripnl=False, ensurenl=True)


def highlight(code: str, language: str = "") -> str:
    """Escaped HTML of `code` for the inside of a `<pre>`; in colour when `language` is one we know."""
    name = _LANGUAGES.get(language.strip().lower())
    if name is None or len(code) > LONGEST or max(map(len, code.split("\n"))) > _LONGEST_LINE:
        return esc(code)
    parts: list[str] = []
    run: list[str] = []
    current = ""
    # Most lexers want a last newline; only what the code has of them is shown.
    for token, text in _lexer(name).get_tokens(code):
        css = _class_of(token)
        if css != current and text.strip():
            _flush(parts, run, current)
            current = css
        run.append(text)
    if run and not code.endswith("\n"):
        run[-1] = run[-1].removesuffix("\n")
    _flush(parts, run, current)
    return "".join(parts)


def _flush(parts: list[str], run: list[str], css: str) -> None:
    if run:
        text = esc("".join(run))
        parts.append(f'<span class="{css}">{text}</span>' if css else text)
        run.clear()
