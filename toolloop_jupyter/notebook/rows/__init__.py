"""Show a rows run in its cell: its progress, its finished rows, and the approval cards of its tool calls."""

from .page import RowsPage, tell_size_of_rows
