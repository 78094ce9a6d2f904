"""The magics `%%toolloop` and `%toolloop`."""

from .extension import load_extension, run_cell, unload_extension
