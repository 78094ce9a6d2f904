"""All seams."""

from __future__ import annotations

from fuzz.growth import GROWTH
from fuzz.histories import HISTORIES
from fuzz.option_lines import OPTION_LINES
from fuzz.outcomes import OUTCOMES
from fuzz.policies import POLICIES
from fuzz.recordings import RECORDINGS
from fuzz.seam import Seam
from fuzz.streams import STREAMS
from fuzz.wire import BYTES

SEAMS: tuple[Seam, ...] = (STREAMS, BYTES, OUTCOMES, POLICIES, OPTION_LINES, RECORDINGS, HISTORIES, GROWTH)
"""All seams, in the order in which they run."""


def find_seam(name: str) -> Seam:
    """Return the seam with this name."""
    return next(seam for seam in SEAMS if seam.name == name)
