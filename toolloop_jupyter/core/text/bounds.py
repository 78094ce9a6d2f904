"""Upper bounds for data from a model, a server or a file, so that reading the data does not block the event loop.

A model that works correctly stays far below each bound. An answer with too many tool calls ends the run. A tool call whose
arguments are above a bound is not run, and the model gets an error that names the bound.
"""

from __future__ import annotations

from collections.abc import Mapping

MOST_CALLS = 1_000
"""The most tool calls in one answer. Only a model or a server that repeats itself sends more."""
LONGEST_ARGUMENTS = 1_000_000
"""The most characters of one tool call's arguments. The longest answers of today's models have fewer."""
MOST_VALUES = 10_000
"""The most JSON values in one tool call's arguments. Reading them blocks the event loop for less than 50 ms (measured: 35 ms)."""
DEEPEST = 100
"""The most levels of nesting in JSON data. Pydantic's serialiser fails at 255 levels, Python's recursion a little deeper."""
LONGEST_ID = 50_000
"""The most characters of a tool call's id; a longer id is replaced. LiteLLM appends a thought signature of some thousand
characters to Gemini's ids.
"""
LONGEST_NAME = 1_000
"""While a tool's name comes in pieces, at most this number of characters is kept. At most 64 are sent back to the model."""


class TooManyCalls(Exception):
    """An answer asks for more than MOST_CALLS calls."""

    def __init__(self) -> None:
        super().__init__(f"the answer asks for more than {MOST_CALLS:,} tool calls; none of them was run.")


def is_deeper(value: object, levels: int = DEEPEST) -> bool:
    """Return True if JSON data is nested deeper than `levels` or contains itself. Uses no recursion."""
    level = [value]
    for _ in range(levels + 1):
        # Each container is checked only once.
        holders = {id(one): one for one in level if isinstance(one, (Mapping, list, tuple))}
        if not holders:
            return False
        level = [
            item for one in holders.values() for item in (one.values() if isinstance(one, Mapping) else one)
        ]
    return True
