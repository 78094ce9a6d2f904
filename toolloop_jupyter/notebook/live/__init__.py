"""A run in its cell, while it goes on, and its Result afterwards."""

from .asking import GRACE, a_click_came, may_have_buttons, means_of_asking
from .outputs import PrintKeeper
from .presenter import bundle, card_handler, keep, last, mark_shown, show
from .stepper import Stepper, request_block
from .view import CellRun, ViewOptions

__all__ = [
    "GRACE",
    "CellRun",
    "PrintKeeper",
    "Stepper",
    "ViewOptions",
    "a_click_came",
    "bundle",
    "card_handler",
    "keep",
    "last",
    "mark_shown",
    "may_have_buttons",
    "means_of_asking",
    "request_block",
    "show",
]
