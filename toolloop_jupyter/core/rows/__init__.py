"""A tool loop for each row of a table: rows in, pace, the store, executors, and the value that comes out."""

from .job import AskRow
from .run import RowsRun
from .values import OnError, Row, Rows, RowsOptions, RowsPresenter, RowsProgress, RowsWatcher

__all__ = [
    "AskRow",
    "OnError",
    "Row",
    "Rows",
    "RowsOptions",
    "RowsPresenter",
    "RowsProgress",
    "RowsRun",
    "RowsWatcher",
]
