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
    NotebookPresenter,
    ask_about_row,
    ask_in_cell,
    keep,
    last,
    mark_shown,
    say_importing,
    show,
    warn_of_ignored_ctrl_c,
)
from .stepper import Stepper, cut_bytes, request_block
from .view import CellRun, ViewOptions
