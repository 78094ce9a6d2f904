"""Turn a run's events into blocks of safe HTML and plain text."""

from .blocks import WIDGET, Block, head, money, notice, tell_tokens, text_block, without_style
from .calls import (
    REACH,
    REACH_OF_ROWS,
    CallStep,
    approval_record,
    join_reason,
    progress_block,
    short_arguments,
    tell_why,
)
from .diagram import timeline
from .rows import draw_finished_rows, draw_running_rows, name_row, tell_running_rows
from .steps import Notice, Page, Step, Steps, TextStep, make_bundle, render, to_markdown, together, write
from .values import find_bundle, get_picture_bytes
