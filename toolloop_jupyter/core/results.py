"""What a tool returned -> the bounded text that the model gets. Never raises."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

LIMIT = 20_000
"""Characters of a result that the model gets unless the tool or the run says otherwise."""


@dataclass(frozen=True)
class Described:
    """A result as text for the model."""

    text: str
    full_length: int
    """Characters before the cut; `len(text)` when nothing was cut."""


def describe(value: Any, limit: int | None = None) -> Described:
    """The value as text of at most `limit` characters (LIMIT when None)."""
    limit = limit or LIMIT
    text = value if isinstance(value, str) else json.dumps(value, default=repr, ensure_ascii=False)
    text = text or "(no output)"
    if len(text) <= limit:
        return Described(text, len(text))
    half = limit // 2
    return Described(
        f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}", len(text)
    )
