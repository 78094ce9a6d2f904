"""What a saved notebook holds of one call and of one run: each part is bounded by itself, here their sum is.

Left out is only what is there to be had elsewhere, and what is left out is said, with where it is.
"""

from __future__ import annotations

from .blocks import Block
from .inert import counted

OF_CALL = 4_000_000
"""Characters of HTML of one call: the largest picture that is kept, and as much as one reads beside it."""
OF_RUN = 20_000_000
"""Characters of HTML of all calls of a run that are kept in full; the later ones are one line each."""
OF_ARGUMENTS = 200_000
"""Characters of HTML of the arguments of one call."""
MOST_OUTPUTS = 100
"""Prints and displays of one call: the first and the last of them."""
MOST_FILES = 200
"""Changed files of a run that are shown with their diffs."""
TOO_LARGE = "more than the record of a run holds"


class Room:
    """Keeps count of what a run's calls and files take."""

    def __init__(self) -> None:
        self._sizes: dict[object, int] = {}
        self._used = 0
        self._files = 0
        self.files_left_out = 0

    def holds(self, key: object, block: Block) -> bool:
        """Whether there is room for a block, which then takes it, instead of what `key` took before."""
        size = len(block.html)
        used = self._used - self._sizes.get(key, 0) + size
        if used > OF_RUN:
            return False
        self._used, self._sizes[key] = used, size
        return True

    def holds_file(self, block: Block) -> bool:
        """Whether there is room for one more changed file; those without are counted."""
        self._files += 1
        fits = self._files <= MOST_FILES and self.holds(("file", self._files), block)
        self.files_left_out += not fits
        return fits

    def files_note(self, expression: str) -> str:
        """What to say of the files that were left out; `expression` has all of them."""
        return f"… {counted(self.files_left_out, 'more changed file')}: {expression}"
