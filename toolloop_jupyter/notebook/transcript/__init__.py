"""Turn a run's events into blocks of safe HTML and plain text."""

from .blocks import WIDGET, Block, draw_running, head, money, notice, tell_tokens, text_block, without_style
from .calls import (
    CallStep,
    approval_record,
    join_reason,
    progress_block,
    short_arguments,
    tell_reach,
    tell_why,
    value_text,
)
from .diagram import timeline
from .rows import draw_finished_rows, draw_running_rows, tell_running_rows
from .steps import Notice, Page, Step, Steps, TextStep, join_blocks, make_bundle, render, to_markdown, write
from .values import find_bundle, get_picture_bytes
