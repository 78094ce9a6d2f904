"""Runs one tool loop for each row of a table, here or in an executor's workers, and returns the answers as a `Rows`."""

from .job import AskRow
from .run import RowsRun
from .values import OnError, Row, Rows, RowsOptions, RowsPresenter, RowsProgress, RowsSpeed, RowsWatcher

__all__ = [
    "AskRow",
    "OnError",
    "Row",
    "Rows",
    "RowsOptions",
    "RowsPresenter",
    "RowsProgress",
    "RowsRun",
    "RowsSpeed",
    "RowsWatcher",
]
