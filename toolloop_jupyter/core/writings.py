"""Two writings of one call: some servers tell a call both in `tool_calls` and in OpenAI's old `function_call`.

llama-cpp-python's "chatml-function-calling" does so in each delta. Such a call is one call, and runs once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TypeAlias

from .frozen import same_json

Writing: TypeAlias = tuple[str, str]
"""(name, arguments) of a call, as a server wrote them."""


def find_same_call(old: Writing, calls: Sequence[Writing]) -> int | None:
    """The place of the call that `old` is a second writing of; None where it is a call of its own.

    A writing without a name may be of any. One whose arguments are only the beginning of the other's was cut, or its
    server writes them in one of the two places only.
    """
    name, arguments = old
    named = [n for n, call in enumerate(calls) if not name or call[0] in ("", name)]
    for same in (_are_same, _is_beginning):
        for number in named:
            if same(arguments, calls[number][1]):
                return number
    return None


def fuller(one: str, other: str) -> str:
    """Of two writings of a call's arguments, the one that says more; `one` where they say the same."""
    return other if len(one.strip()) < len(other.strip()) and _is_beginning(one, other) else one


def _are_same(one: str, other: str) -> bool:
    if one.strip() == other.strip():
        return True
    try:
        return same_json(json.loads(one), json.loads(other))
    except (ValueError, RecursionError):
        return False


def _is_beginning(one: str, other: str) -> bool:
    one, other = one.strip(), other.strip()
    return one.startswith(other) or other.startswith(one)
