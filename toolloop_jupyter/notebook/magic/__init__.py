"""`%%toolloop` and `%toolloop`."""

from .extension import load_extension, run_cell, unload_extension
from .options import write_page

__all__ = [
    "load_extension",
    "run_cell",
    "unload_extension",
    "write_page",
]
