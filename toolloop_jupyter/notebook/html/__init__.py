"""Turn text from a model, a tool or an argument into inert HTML: HTML that loads nothing and runs no code."""

from .escape import (
    counted,
    esc,
    escaped_json,
    first_line,
    hides,
    in_a_line,
    inline,
    prose,
    visible,
    visible_json,
    visible_text,
    without_gaps,
)
from .markdown import as_source, highlight, markdown_html, split_markdown
from .sanitize import MOST_IMAGE, clean_html, read_words
from .style import (
    BLOCK,
    CALL,
    CARD_STYLE,
    CELL,
    CODE,
    DARK_PAGE,
    DIM,
    INLINE_CODE,
    NAME,
    STYLE,
    SUMMARY,
    TABLE,
    WIDE,
    block,
    dim,
    fold,
    pre,
    put_style_behind,
    table,
)
