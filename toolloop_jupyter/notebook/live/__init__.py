"""A run in its cell while it goes on, and the display of its Result afterwards."""

from .asking import GRACE, Means, find_means, may_have_buttons, note_click
from .outputs import CallOutputs, pass_on, take_figures
from .presenter import (
    ask_in_cell,
    bundle,
    can_ask_in_cell,
    diagram,
    display,
    keep,
    last,
    mark_shown,
    markdown,
    say_loading,
    show,
)
from .stepper import Stepper, request_block
from .view import CellRun, ViewOptions

__all__ = [
    "GRACE",
    "CallOutputs",
    "CellRun",
    "Means",
    "Stepper",
    "ViewOptions",
    "ask_in_cell",
    "bundle",
    "can_ask_in_cell",
    "diagram",
    "display",
    "find_means",
    "keep",
    "last",
    "mark_shown",
    "markdown",
    "may_have_buttons",
    "note_click",
    "pass_on",
    "request_block",
    "say_loading",
    "show",
    "take_figures",
]
