"""Whole characters: a half of a surrogate pair finds its other half, or becomes "�"."""

from __future__ import annotations

from typing import Any


def whole_characters(text: str) -> str:
    """`text` with surrogate halves joined to the characters that they make; a half that is alone becomes "�".

    A character outside the basic plane (an emoji) may come as JSON escapes of its halves, cut into two deltas. A half
    cannot be encoded: it would break the notebook's messages and every later request.
    """
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def whole_data(value: Any) -> Any:
    """JSON data with `whole_characters` in all of its texts, keys too."""
    if isinstance(value, str):
        return whole_characters(value)
    if isinstance(value, dict):
        return {whole_data(key): whole_data(item) for key, item in value.items()}
    return [whole_data(item) for item in value] if isinstance(value, list) else value


def cut_half(text: str) -> tuple[str, str]:
    """(text, half): the first half of a surrogate pair at the end of a delta waits for its second one."""
    whole, half = (text[:-1], text[-1]) if "\ud800" <= text[-1:] <= "\udbff" else (text, "")
    return whole_characters(whole), half
