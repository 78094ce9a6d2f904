"""Shows many rows in their cell while they run, and asks about their calls."""

from .page import RowsPage, RowsPageOptions, tell_size_of_rows

__all__ = ["RowsPage", "RowsPageOptions", "tell_size_of_rows"]
