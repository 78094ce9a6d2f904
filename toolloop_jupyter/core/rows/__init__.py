"""Run one tool loop for each row of a table, in this process or in the workers of an executor, and return a `Rows` object."""

from .run import RowsOptions, RowsRun
