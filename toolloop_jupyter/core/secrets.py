"""Which options and headers hold keys: what is sent to the provider and never shown. `hiding.py` takes them out of texts."""

from __future__ import annotations

import base64
import binascii
import functools
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from .hiding import HIDDEN

_OPTION = re.compile(r"(^|_)(key|token|secret|password|credentials?|headers)($|_)|^extra_query$")
_NOT_SECRET = frozenset({"max_tokens", "max_completion_tokens", "max_output_tokens", "prompt_cache_key"})
_WITHIN = re.compile(r"auth(?!ors?$)|secret|passw|cookie|credential|(?:key|token)(?:$|[-_])", re.IGNORECASE)
"""Names within an option: X-Auth, apiKey, session_token."""
_ALL_WITHIN = re.compile(r"headers$|^extra_query$")
"""Options of which every value is secret: nobody knows what a header of one's own holds."""
OWN_HEADERS = frozenset({"x-litellm-tags", "x-litellm-spend-logs-metadata"})
"""What the loop itself sends to a gateway."""
_PUBLIC = OWN_HEADERS | {
    "accept",
    "accept-language",
    "anthropic-beta",
    "anthropic-version",
    "api-version",
    "content-type",
    "http-referer",
    "openai-beta",
    "user-agent",
    "x-title",
}
"""Well-known headers and query names that hold no key, and whose values are ordinary words."""
_WITH_SCHEME = re.compile(r"(?:basic|bearer|token|apikey|key)\s+(\S+)", re.IGNORECASE)
_IN_ADDRESS = re.compile(r"(?<=://)[^/@\s]+@")
"""User and password in an address."""
_IN_QUERY = re.compile(
    r"([?&][^=&#\s]*(?:key|token|secret|\bsig(?:nature)?)[^=&#\s]*=)([^&#\s'\"]+)", re.IGNORECASE
)
_VARIABLE = re.compile(r"(_KEY|_TOKEN|_SECRET|PASSWORD|API_?KEY|CREDENTIALS)$")
_OF_PROVIDERS = ("ANTHROPIC_", "OPENAI_", "LITELLM_", "AZURE_", "AWS_", "GEMINI_", "GOOGLE_A", "VERTEX")


def is_secret(name: str) -> bool:
    """Whether a completion option of this name holds a key, or headers with one."""
    return name not in _NOT_SECRET and _OPTION.search(name.lower()) is not None


def _says_secret(name: str) -> bool:
    return is_secret(name) or (name not in _NOT_SECRET and _WITHIN.search(name) is not None)


def holds_secret(name: str, value: object) -> bool:
    """Whether an option must not be shown: by its name, by a name within it, or as an address with a password."""
    if is_secret(name):
        return True
    if isinstance(value, str):
        return "://" in value and bool(_IN_ADDRESS.search(value) or _IN_QUERY.search(value))
    if isinstance(value, Mapping):
        return any(_says_secret(str(key)) or holds_secret("", item) for key, item in value.items())
    return isinstance(value, (list, tuple)) and any(holds_secret("", item) for item in value)


def texts(name: str, value: object) -> Iterator[str]:
    """What must not be seen of a secret option: itself, or the values within it whose names say so.

    Every value of headers and of a query is secret, but for the loop's own tags and well-known harmless ones.
    """
    if isinstance(value, Mapping):
        every, all_within = is_secret(name), _ALL_WITHIN.search(name) is not None
        for key, item in value.items():
            if all_within and str(key).lower() in _PUBLIC:
                continue
            if every or _says_secret(str(key)) or isinstance(item, (Mapping, list, tuple)):
                yield from texts(name if every else str(key), item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from texts(name, item)
    elif isinstance(value, (str, int)) and not isinstance(value, bool):
        yield from _keys_in(str(value).strip())
    elif hasattr(value, "get_secret_value"):  # pydantic's SecretStr
        yield from _keys_in(str(value.get_secret_value()))


def _keys_in(text: str) -> Iterator[str]:
    """The keys in one secret text: a JSON document's, those of an address, one behind a scheme, or all of it."""
    if text.startswith("{"):
        try:
            yield from texts("", json.loads(text))
        except (ValueError, RecursionError):
            yield text
    elif found := _WITH_SCHEME.fullmatch(text):
        yield found[1]
        try:
            user, _, password = base64.b64decode(found[1], validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return
        yield password or user
    elif "://" in text and (_IN_ADDRESS.search(text) or _IN_QUERY.search(text)):
        if within := _IN_ADDRESS.search(text):
            yield from {password := within[0].removesuffix("@").partition(":")[2], unquote(password)}
        yield from (value for _, value in _IN_QUERY.findall(text))
    elif text:
        yield text


def names_key(variable: str) -> bool:
    """Whether an environment variable of this name is of a provider, or holds a key by its name."""
    return _holds_key(variable) or variable.upper().startswith(_OF_PROVIDERS)


def of_environment() -> Iterator[str]:
    """The keys that LiteLLM finds by itself: of the environment, and of its own module (`litellm.api_key = …`)."""
    for name, value in os.environ.items():
        if _holds_key(name):
            yield value
    litellm = vars(sys.modules.get("litellm", sys))
    for name in _key_names(len(litellm)):
        if isinstance(key := litellm.get(name), str):
            yield key


@functools.lru_cache(maxsize=4096)
def _holds_key(variable: str) -> bool:
    return _VARIABLE.search(variable.upper()) is not None


@functools.lru_cache(maxsize=8)
def _key_names(_count: int) -> tuple[str, ...]:
    """The names in LiteLLM's module that may hold keys: it has nearly two thousand, and each run asks for them."""
    names = vars(sys.modules.get("litellm", sys))
    return tuple(name for name in names if name.endswith("_key"))


def without(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options as they may be shown: a secret one is there by its name."""
    return {key: HIDDEN if holds_secret(key, value) else value for key, value in options.items()}


def without_user(text: str) -> str:
    """A text whose addresses have no user, no password and no key in them."""
    return _IN_QUERY.sub(rf"\g<1>{HIDDEN}", _IN_ADDRESS.sub("", text))
