"""Show a run in its cell while it runs, and its Result afterwards."""

from .asking import (
    GRACE,
    Means,
    Unattended,
    ask_in_cell,
    ask_person,
    find_means,
    may_have_buttons,
    note_click,
)
from .column import EMPTY, CellOutput, OutputColumn
from .outputs import LOADING, CallOutputs, pass_on, take_figures
from .presenter import (
    NotebookPresenter,
    get_last,
    keep,
    mark_shown,
    say_importing,
    show,
    warn_of_ignored_ctrl_c,
)
from .stepper import Stepper, cut_bytes, draw_request
from .view import CellRun, ViewOptions
