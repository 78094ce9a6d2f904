"""A run as a row of blocks: events in, safe HTML and text out."""

from .blocks import WIDGET, Block, head, money, notice, tell_tokens, text_block, without_style, written
from .calls import approval_record, progress_block, reason_in, short_arguments, tell_why
from .diagram import timeline
from .export import to_markdown, write
from .steps import CallStep, Notice, Page, Step, Steps, TextStep, mimebundle, render
from .values import bundle_of, picture_of

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
    "bundle_of",
    "head",
    "mimebundle",
    "money",
    "notice",
    "picture_of",
    "progress_block",
    "reason_in",
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
