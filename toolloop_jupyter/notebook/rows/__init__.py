"""Show a rows run in its cell: the progress, the finished rows, and the approval cards of the tool calls."""

from .page import RowsPage, tell_size_of_rows
