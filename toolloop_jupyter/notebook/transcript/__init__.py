"""A run as a row of blocks: events in, safe HTML and text out."""

from .blocks import WIDGET, Block, head, money, notice, tell_tokens, text_block, without_style, written
from .calls import approval_record, join_reason, progress_block, short_arguments, tell_why
from .diagram import timeline
from .export import to_markdown, write
from .steps import CallStep, Notice, Page, Step, Steps, TextStep, make_bundle, render
from .values import find_bundle, get_picture_bytes

__all__ = [
    "WIDGET",
    "Block",
    "CallStep",
    "Notice",
    "Page",
    "Step",
    "Steps",
    "TextStep",
    "approval_record",
    "find_bundle",
    "get_picture_bytes",
    "head",
    "join_reason",
    "make_bundle",
    "money",
    "notice",
    "progress_block",
    "render",
    "short_arguments",
    "tell_tokens",
    "tell_why",
    "text_block",
    "timeline",
    "to_markdown",
    "without_style",
    "write",
    "written",
]
