"""A run as a row of blocks: events in, safe HTML and text out."""

from .blocks import (
    TOO_LARGE,
    Block,
    Room,
    files_block,
    foot,
    head,
    money,
    notice,
    reasoning_block,
    retry_block,
    text_block,
)
from .calls import approval_record, call_block
from .diagram import picture, timeline
from .export import write
from .steps import FULL_STEPS, mimebundle, render, to_markdown
from .values import answer_block, attachment_block, bundle_of, picture_of

__all__ = [
    "FULL_STEPS",
    "TOO_LARGE",
    "Block",
    "Room",
    "answer_block",
    "approval_record",
    "attachment_block",
    "bundle_of",
    "call_block",
    "files_block",
    "foot",
    "head",
    "mimebundle",
    "money",
    "notice",
    "picture",
    "picture_of",
    "reasoning_block",
    "render",
    "retry_block",
    "text_block",
    "timeline",
    "to_markdown",
    "write",
]
