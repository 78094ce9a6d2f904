"""A run in its cell, while it goes on, and its Result afterwards."""

from .asking import GRACE, Means, a_click_came, may_have_buttons, means_of_asking
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
    "a_click_came",
    "ask_in_cell",
    "bundle",
    "can_ask_in_cell",
    "diagram",
    "display",
    "keep",
    "last",
    "mark_shown",
    "markdown",
    "may_have_buttons",
    "means_of_asking",
    "pass_on",
    "request_block",
    "say_loading",
    "show",
    "take_figures",
]
