"""Many rows in their cell, while they run."""

from .page import RowsPage, RowsPageOptions

__all__ = ["RowsPage", "RowsPageOptions"]
