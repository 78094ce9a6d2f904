"""Writes durations and times of day for the transcript of a run. Times can be left out: then the same run gives the same file
each time.
"""

from __future__ import annotations

import os
import time

_OFF = ("0", "false", "no", "off")


class _Setting:
    """The setting `%config ToolLoop.times` of this process."""

    keeps = True


def keep_times(*, keep: bool) -> None:
    """Set whether transcripts have times from now on."""
    _Setting.keeps = keep


def are_times_kept() -> bool:
    """Return True if transcripts have times. The setting or the environment variable TOOLLOOP_TIMES can turn the times off."""
    return _Setting.keeps and os.environ.get("TOOLLOOP_TIMES", "").strip().lower() not in _OFF


def duration(seconds: float, *, whole: bool = False) -> str:
    """Return a duration as text: "0.31 s" below ten seconds, else "0:21" or "1:02:03". If `whole` is True, the
    seconds are a whole number, as on a running clock: "5 s", not "5.00 s".
    """
    if seconds < 10:
        return f"{int(seconds)} s" if whole else f"{seconds:.2f} s"
    minutes, rest = divmod(int(seconds) if whole else round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def tell_duration(seconds: float) -> str:
    """Return a duration as text for a transcript; "" if transcripts have no times."""
    return duration(seconds) if are_times_kept() else ""


def tell_clock(at: float) -> str:
    """Return the local time of day at `at` (seconds since the epoch) for a transcript; "" if transcripts have no times."""
    return time.strftime("%H:%M:%S", time.localtime(at)) if are_times_kept() else ""
