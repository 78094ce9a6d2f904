"""Show a run in its cell while it runs, and its Result afterwards."""

from .asking import (
    GRACE,
    Means,
    Unattended,
    ask_person,
    find_means,
    may_have_buttons,
    note_click,
    put_card,
)
from .outputs import LOADING, CallOutputs, pass_on, take_figures
from .places import CellOutput, OutputColumn
from .presenter import (
    ask_about_row,
    ask_in_cell,
    bundle,
    bundle_rows,
    can_ask_in_cell,
    diagram,
    display,
    display_rows,
    keep,
    last,
    mark_shown,
    markdown,
    say_loading,
    show,
)
from .stepper import Stepper, cut_bytes, request_block
from .view import CellRun, ViewOptions

__all__ = [
    "GRACE",
    "LOADING",
    "CallOutputs",
    "CellOutput",
    "CellRun",
    "Means",
    "OutputColumn",
    "Stepper",
    "Unattended",
    "ViewOptions",
    "ask_about_row",
    "ask_in_cell",
    "ask_person",
    "bundle",
    "bundle_rows",
    "can_ask_in_cell",
    "cut_bytes",
    "diagram",
    "display",
    "display_rows",
    "find_means",
    "keep",
    "last",
    "mark_shown",
    "markdown",
    "may_have_buttons",
    "note_click",
    "pass_on",
    "put_card",
    "request_block",
    "say_loading",
    "show",
    "take_figures",
]
