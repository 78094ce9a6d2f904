"""Upper bounds for data from a model, a server or a file, so that reading the data does not block the event loop.

Each bound is far above what a model sends that works correctly. Too many calls in one answer end the run. If a call's arguments
are above a bound, the call is not run and the model gets an error that names the bound. An id that is too long is replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

MOST_CALLS = 1_000
"""The most tool calls in one answer. Only a model or a server that repeats itself sends more."""
LONGEST_ARGUMENTS = 1_000_000
"""The most characters of one tool call's arguments. The longest answers of today's models have fewer."""
MOST_VALUES = 10_000
"""The most JSON values in one tool call's arguments. So many block the loop for less than 50 ms (measured: 35)."""
DEEPEST = 100
"""The most levels of nesting. Pydantic's serialiser stops at 255 levels, Python's recursion soon after."""
LONGEST_ID = 50_000
"""The most characters of a tool call's id. LiteLLM appends a thought signature of some thousand characters to Gemini's ids."""
LONGEST_NAME = 1_000
"""The most characters that are kept of a tool's name, which may come in pieces. Of these, 64 are sent back."""


class TooManyCalls(Exception):
    """An answer asks for more than MOST_CALLS calls."""

    def __init__(self) -> None:
        super().__init__(f"the answer asks for more than {MOST_CALLS:,} tool calls; none of them was run.")


def is_deeper(value: object, levels: int = DEEPEST) -> bool:
    """Return whether JSON data is nested deeper than `levels`, or contains itself. Goes level by level, without recursion."""
    level = [value]
    for _ in range(levels + 1):
        holders = {id(one): one for one in level if isinstance(one, (Mapping, list, tuple))}  # each once
        if not holders:
            return False
        level = [
            item for one in holders.values() for item in (one.values() if isinstance(one, Mapping) else one)
        ]
    return True


def list_some(texts: Iterable[str], most: int = 5, between: str = ", ") -> str:
    """Write the first of the texts, and how many more there are: `a, b and 3 more`."""
    listed = list(texts)
    more = len(listed) - most
    return between.join(listed[:most]) + (f" and {more:,} more" if more > 0 else "")


def count_same(one: Sequence[object], other: Sequence[object]) -> int:
    """Count the items, or characters, that two sequences have in common at their beginning."""
    differing = (number for number, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differing, min(len(one), len(other)))
