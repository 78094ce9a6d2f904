"""Turn a run's events into blocks of safe HTML and plain text."""

from .blocks import (
    WIDGET,
    Block,
    draw_head,
    draw_notice,
    draw_running,
    draw_text,
    remove_style,
    tell_cost,
    tell_tokens,
)
from .calls import (
    CallStep,
    draw_approval,
    draw_progress,
    join_reason,
    shorten_arguments,
    tell_reach,
    tell_why,
    write_value,
)
from .diagram import draw_timeline
from .rows import draw_finished_rows, draw_running_rows, tell_running_rows
from .steps import (
    Notice,
    Page,
    Step,
    Steps,
    TextStep,
    join_blocks,
    make_bundle,
    render,
    write,
    write_markdown,
)
from .values import find_bundle, get_picture_bytes
