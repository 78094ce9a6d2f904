"""The CPU time and memory of a process, from Linux's /proc; 0 if there is no /proc."""

from __future__ import annotations

import os
from pathlib import Path


def read_processor_time(pid: int) -> float:
    """Return the CPU seconds."""
    stat = Path(f"/proc/{pid}/stat")
    fields = stat.read_text().rpartition(")")[2].split() if stat.exists() else ["0"] * 13
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def read_memory(pid: int, *, is_shared: bool = False) -> float:
    """Return the MB in use. With `is_shared`, a page that several processes share counts only in part (PSS)."""
    name, begin = ("smaps_rollup", "Pss:") if is_shared else ("status", "VmRSS")
    told = Path(f"/proc/{pid}/{name}")
    lines = told.read_text().splitlines() if told.exists() else []
    return next((int(line.split()[1]) / 1000 for line in lines if line.startswith(begin)), 0.0)
