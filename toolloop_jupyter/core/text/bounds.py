"""Upper bounds for data from a model, a server or a file, so that reading the data does not block the event loop.

A model that works correctly stays far below each bound. An answer with too many tool calls ends the run. If the arguments of a
tool call are above a bound, the tool call is not run, and the model gets an error that names the bound. An id that is too long
is replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

MOST_CALLS = 1_000
"""The most tool calls in one answer. Only a model or a server that repeats itself sends more."""
LONGEST_ARGUMENTS = 1_000_000
"""The most characters of one tool call's arguments. The longest answers of today's models have fewer."""
MOST_VALUES = 10_000
"""The most JSON values in one tool call's arguments. Reading this number of values blocks the event loop for less than 50 ms
(measured: 35 ms).
"""
DEEPEST = 100
"""The most levels of nesting in JSON data. Pydantic's serialiser fails at 255 levels. Python's recursion fails a little deeper."""
LONGEST_ID = 50_000
"""The most characters of a tool call's id. LiteLLM appends a thought signature of some thousand characters to Gemini's ids."""
LONGEST_NAME = 1_000
"""The most characters of a tool's name that are kept while the name comes in pieces. At most 64 characters are sent back to the
model.
"""


class TooManyCalls(Exception):
    """An answer asks for more than MOST_CALLS calls."""

    def __init__(self) -> None:
        super().__init__(f"the answer asks for more than {MOST_CALLS:,} tool calls; none of them was run.")


def is_deeper(value: object, levels: int = DEEPEST) -> bool:
    """Return True if JSON data is nested deeper than `levels` or contains itself. The check goes level by level and uses no
    recursion.
    """
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


def list_some(texts: Iterable[str], most: int = 5, between: str = ", ") -> str:
    """Join the texts. If there are more than `most`, join only the first ones, and add the number of the others:
    `a, b and 3 more`.
    """
    listed = list(texts)
    more = len(listed) - most
    return between.join(listed[:most]) + (f" and {more:,} more" if more > 0 else "")


def count_same(one: Sequence[object], other: Sequence[object]) -> int:
    """Count the items (or characters) at the beginning of two sequences that are the same in both."""
    differing = (number for number, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differing, min(len(one), len(other)))
