"""A run as a row of blocks: events in, safe HTML and text out."""

from .blocks import WIDGET, Block, head, money, notice, text_block, without_style, written
from .calls import (
    REACH,
    REACH_OF_ROWS,
    approval_record,
    progress_block,
    reason_in,
    short_arguments,
    tell_why,
)
from .diagram import timeline
from .export import to_markdown, write
from .rows import RowsLike, draw_finished_rows, draw_running_rows, name_row, tell_running_rows
from .steps import CallStep, Notice, Page, Step, Steps, TextStep, mimebundle, render, together
from .values import bundle_of, picture_of

__all__ = [
    "REACH",
    "REACH_OF_ROWS",
    "WIDGET",
    "Block",
    "CallStep",
    "Notice",
    "Page",
    "RowsLike",
    "Step",
    "Steps",
    "TextStep",
    "approval_record",
    "bundle_of",
    "draw_finished_rows",
    "draw_running_rows",
    "head",
    "mimebundle",
    "money",
    "name_row",
    "notice",
    "picture_of",
    "progress_block",
    "reason_in",
    "render",
    "short_arguments",
    "tell_running_rows",
    "tell_why",
    "text_block",
    "timeline",
    "to_markdown",
    "together",
    "without_style",
    "write",
    "written",
]
