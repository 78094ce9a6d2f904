"""A run in its cell, while it goes on."""

from .asking import GRACE, a_click_came, may_have_buttons, means_of_asking
from .outputs import Outputs, pass_on, taken_up
from .results import bundle, diagram, display, keep, last, mark_shown, markdown
from .show import ask_in_cell, can_ask_in_cell, show
from .stepper import Stepper, request_block
from .view import View, follow

__all__ = [
    "GRACE",
    "Outputs",
    "Stepper",
    "View",
    "a_click_came",
    "ask_in_cell",
    "bundle",
    "can_ask_in_cell",
    "diagram",
    "display",
    "follow",
    "keep",
    "last",
    "mark_shown",
    "markdown",
    "may_have_buttons",
    "means_of_asking",
    "pass_on",
    "request_block",
    "show",
    "taken_up",
]
