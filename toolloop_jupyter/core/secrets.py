"""Which options and headers hold keys: what is sent to the provider and never shown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

HIDDEN = "[key]"
_OPTION = re.compile(r"(^|_)(key|token|secret|password|credentials?|headers)($|_)")
_NOT_SECRET = frozenset({"max_tokens", "max_completion_tokens", "max_output_tokens", "prompt_cache_key"})
_WITHIN = re.compile(r"auth|key|token|secret|password|cookie|credential", re.IGNORECASE)
_IN_ADDRESS = re.compile(r"(?<=://)[^/@\s]+@")
"""User and password in an address."""
_IN_QUERY = re.compile(r"[?&][^=&#]*(?:key|token|secret|sig)[^=&#]*=", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Whether a completion option of this name holds a key, or headers with one."""
    return name not in _NOT_SECRET and _OPTION.search(name.lower()) is not None


def holds_secret(name: str, value: object) -> bool:
    """Whether an option must not be shown: by its name, by a name within it, or as an address with a password."""
    if is_secret(name):
        return True
    if isinstance(value, str):
        return "://" in value and bool(_IN_ADDRESS.search(value) or _IN_QUERY.search(value))
    if isinstance(value, Mapping):
        return any(is_secret(str(key)) or holds_secret("", item) for key, item in value.items())
    return isinstance(value, (list, tuple)) and any(holds_secret("", item) for item in value)


def texts(name: str, value: object) -> Iterator[str]:
    """What must not be seen of a secret option: itself, or the values within it whose names say so.

    Not the tags and other harmless headers beside a key.
    """
    if isinstance(value, Mapping):
        every = "header" not in name and is_secret(name)
        for key, item in value.items():
            if every or _WITHIN.search(str(key)) or isinstance(item, (Mapping, list, tuple)):
                yield from texts(name if every else str(key), item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from texts(name, item)
    elif value:
        yield str(value)
        if found := _IN_ADDRESS.search(str(value)):
            yield found[0].removesuffix("@").partition(":")[2]


def without(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options as they may be shown: a secret one is there by its name."""
    return {key: HIDDEN if holds_secret(key, value) else value for key, value in options.items()}


def without_user(address: str) -> str:
    """An address without user and password."""
    return _IN_ADDRESS.sub("", address)
