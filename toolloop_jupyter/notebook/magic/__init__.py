"""The magics `%%toolloop` and `%toolloop`."""

from .extension import load_extension, run_cell, unload_extension

__all__ = ["load_extension", "run_cell", "unload_extension"]
