"""A run in its cell, while it goes on."""

from .asking import GRACE, a_click_came, may_have_buttons, means_of_asking
from .outputs import Kept
from .results import bundle, keep, last, mark_shown, markdown
from .show import card_handler, show
from .stepper import Stepper, request_block
from .view import View, follow

__all__ = [
    "GRACE",
    "Kept",
    "Stepper",
    "View",
    "a_click_came",
    "bundle",
    "card_handler",
    "follow",
    "keep",
    "last",
    "mark_shown",
    "markdown",
    "may_have_buttons",
    "means_of_asking",
    "request_block",
    "show",
]
