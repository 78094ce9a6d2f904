"""Where a traceback's lines stand, as a notebook names it: `Cell In[3], line 4`."""

from __future__ import annotations

import re
from typing import Any

from .kernel_output import shell

_FILE = re.compile(r'File "([^"\n]+)", line')
_IPYTHON_7 = re.compile(r"<ipython-input-(\d+)-")
"""A cell's file name in a terminal with IPython 7.34."""
_WARNING = re.compile(r"^(\S+\.py):(\d+): (?=\w*Warning\b)", re.MULTILINE)


def with_cell_names(traceback: str) -> str:
    """Replace the kernel's temporary file names of cells, which mean nothing to a person and differ at each start.

    In tracebacks, and where `warnings` names a line. Other files keep their names.
    """
    traceback = _FILE.sub(
        lambda found: f"{_cell(found[1]) or found[0].removesuffix(', line')}, line", traceback
    )
    return _WARNING.sub(
        lambda found: f"{_cell(found[1])}, line {found[2]}: " if _cell(found[1]) else found[0], traceback
    )


def _cell(filename: str) -> str:
    """`Cell In[3]` for the file name that IPython compiled that cell under, or "" for any other file."""
    compiler: Any = getattr(shell(), "compile", None)
    if hasattr(compiler, "format_code_name"):  # IPython >= 8
        return " ".join(compiler.format_code_name(filename) or ())
    if plain := _IPYTHON_7.match(filename):
        return f"Cell In[{plain[1]}]"
    # IPython 7.34 in a kernel: private, and what format_code_name reads from 8 on.
    number = getattr(compiler, "_filename_map", {}).get(filename)
    return "" if number is None else f"Cell In[{number}]"
