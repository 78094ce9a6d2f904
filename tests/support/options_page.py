"""Makes the page docs/options.md from the table of options. `./dev docs` writes it, and a test compares it."""

from __future__ import annotations

from pathlib import Path

from toolloop_jupyter.notebook.magic.options import OPTIONS

_PAGE = """# Options

Made by `./dev docs` from the table in `toolloop_jupyter/notebook/magic/options.py`. See also [the guide](guide.md).

*Notebook*: `%toolloop` and `%config ToolLoop` set it for all cells. *Session*: it also holds for later cells of the session.
*API*: the keyword of `agent()`, `aagent()`, `map()` and so on that does the same.

The line is split into words as in a shell: put a value with blanks into quotes. A `\\` takes away the special meaning of the next
character, so write a path on Windows with `/`, or in single quotes.

| option | | default | notebook | session | API |
|---|---|---|---|---|---|
"""


def make_page() -> str:
    """Return the page docs/options.md, in Markdown."""
    rows = []
    for option in OPTIONS:
        keyword, _, field = option.keyword.partition(".")
        if (of := field.partition("."))[2]:
            keyword = f"{keyword}=ToolLoopOptions({of[0]}={{'{of[2]}': …}})"
        elif field:
            keyword = f"{keyword}=ToolLoopOptions({field}=…)"
        cells = [
            f"`{option.usage}`",
            option.help,
            f"`{option.default}`" if option.default not in (None, False) else "",
            "yes" if option.is_setting else "",
            "yes" if option.scope == "session" else "",
            f"`{keyword}`" if keyword else "",
        ]
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n")
    return _PAGE + "".join(rows)


if __name__ == "__main__":
    Path("docs/options.md").write_text(make_page(), "utf-8")
