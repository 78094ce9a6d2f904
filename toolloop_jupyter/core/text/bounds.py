"""Upper bounds for data from a model, a server or a file, so that no step which reads it blocks the event loop.

Each bound is far above what a working model sends. The error tells the sender which bound it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

MOST_CALLS = 1_000
"""Tool calls in one answer. More come from a model or a server that repeats itself."""
LONGEST_ARGUMENTS = 1_000_000
"""Characters of one call's arguments: more than the longest answers of today's models."""
MOST_VALUES = 10_000
"""Keys, items and values in one call's arguments. Handling so many blocks the loop for less than 50 ms (measured: 35)."""
DEEPEST = 100
"""Levels of nesting. Pydantic's serialiser stops at 255, Python's recursion soon after."""
LONGEST_ID = 50_000
"""Characters of a call's id. Gemini's come from LiteLLM with a thought signature behind them, of some thousands."""
LONGEST_NAME = 1_000
"""Characters that are kept of a tool's name that comes in pieces; 64 of them are sent back."""


class TooManyCalls(Exception):
    """An answer asks for more than MOST_CALLS calls."""

    def __init__(self) -> None:
        super().__init__(f"the answer asks for more than {MOST_CALLS:,} tool calls; none of them was run.")


def is_deeper(value: object, levels: int = DEEPEST) -> bool:
    """Whether JSON data is nested deeper than `levels`, or contains itself. Goes level by level, without recursion."""
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
    """`a, b and 3 more`: the first of the texts, and how many more there are."""
    listed = list(texts)
    more = len(listed) - most
    return between.join(listed[:most]) + (f" and {more:,} more" if more > 0 else "")


def count_same(one: Sequence[object], other: Sequence[object]) -> int:
    """Count the items, or characters, that two sequences have in common at their beginning."""
    differing = (number for number, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differing, min(len(one), len(other)))
