"""Finds keys in options, headers and variables, and hides keys in texts. A key is an API key, a password or a token.

A key can appear where nobody expects it: a provider's error repeats the key, a tool prints it, a model writes it. So `remember`
stores each key that a run of this process gets. Every text that is shown, recorded, saved or exported goes through `hide`. `hide`
finds a plain key, and a key that is escaped for JSON, web addresses or HTML. In a base64 text, `hide` finds the part that depends
only on the key. `hide` also finds the beginning of a key whose end is cut off. The texts that the model and the tools get are
never changed.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import html
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import unquote

T = TypeVar("T")

HIDDEN = "[key]"
SHORTEST = 8
"""A key with fewer characters is not hidden. Such a key looks like a word: local servers have keys such as "EMPTY"."""

_NAME = re.compile(
    r"auth(?!ors?(?:$|[-_]))|secret|passw|passphrase|cookie|credential|(?:keys?|token|sig|signature)(?:$|[-_])|headers?$"
    r"|^extra_query$",
    re.IGNORECASE,
)
_ALL_WITHIN = re.compile(r"headers?$|^extra_query$", re.IGNORECASE)
"""Options with headers or query parameters. Each of their values counts as a key, since a header of any name may contain a key.
The values of `_WELL_KNOWN` headers do not count.
"""
_WELL_KNOWN = re.compile(
    r"accept(-language)?|anthropic-(beta|version)|(api|openai)-(version|beta)|content-type|http-referer|user-agent|x-title"
    r"|x-litellm-(tags|spend-logs-metadata)",
    re.IGNORECASE,
)
_USER = re.compile(r"(?<=://)[^/@\s]+@")
_QUERY = re.compile(r"([?&])([^=&#?\s]{1,100})=([^&#\s'\"]+)")


@functools.lru_cache(maxsize=1024)
def names_key(name: str) -> bool:
    """Return True if `name` is a usual name for a key, or for headers that may contain a key. `name` is the name of an option, a
    header, a field or a variable.
    """
    return name != "prompt_cache_key" and _NAME.search(name) is not None


def holds_key(name: str, value: object) -> bool:
    """Return True if an option must not be shown: its name is the name of a key, or its value contains a key."""
    return names_key(name) or next(find_keys(name, value), None) is not None


def leave_out_user(text: str) -> str:
    """Return the text without the user names, passwords and keys in its web addresses."""
    shown = _USER.sub("", text)
    return _QUERY.sub(
        lambda found: f"{found[1]}{found[2]}={HIDDEN}" if names_key(found[2]) else found[0], shown
    )


def find_keys(name: str, value: object) -> Iterator[str]:
    """Yield the keys in an option. `name` is the option's name, and `value` is its value.

    If `name`, or a name inside `value`, is a usual name for a key, the value of this name is a key. In other values, passwords
    and keys in web addresses are found.
    """
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not (_ALL_WITHIN.search(name) and _WELL_KNOWN.fullmatch(str(key))):
                yield from find_keys(name if names_key(name) else str(key), item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from find_keys(name, item)
    elif hasattr(value, "get_secret_value"):  # pydantic's SecretStr
        yield from find_keys("key", value.get_secret_value())
    elif isinstance(value, (str, int)) and not isinstance(value, bool):
        yield from _find_in_text(str(value).strip(), whole=names_key(name))


def _find_in_text(text: str, *, whole: bool) -> Iterator[str]:
    """Yield the keys in a text. Passwords and keys in web addresses are always found.

    `whole`: True if the option with this text has a usual name for a key. Then the whole text is a key, with two
    exceptions: if the text is a JSON object, the values in the object are searched; if a web address in the text has a key, the
    rest of the text is not a key.
    """
    if whole and text.startswith("{"):
        with contextlib.suppress(ValueError, RecursionError):
            yield from find_keys("", json.loads(text))
            return
    within = [value for _, name, value in _QUERY.findall(text) if names_key(name)] if "://" in text else []
    for user in _USER.findall(text):
        password = user.removesuffix("@").partition(":")[2]
        within += [password, unquote(password)]
    if within or not whole:
        yield from within
    elif scheme := re.fullmatch(r"(?:basic|bearer|token|apikey|key)\s+(\S+)", text, re.IGNORECASE):
        yield scheme[1]
        with contextlib.suppress(ValueError):  # no base64, or no text in it
            user, _, password = base64.b64decode(scheme[1], validate=True).decode().partition(":")
            yield password or user
    elif text:
        yield text


def find_environment_keys() -> Iterator[str]:
    """Yield the keys that LiteLLM reads by itself, from environment variables and from its own module (`litellm.api_key = …`)."""
    for name in os.environ:  # not items(): each value would be encoded and decoded, at each model call
        if names_key(name):
            yield from find_keys(name, os.environ.get(name, ""))
    names = vars(sys.modules.get("litellm", sys))
    for name in _find_litellm_keys(len(names)):
        if isinstance(key := names.get(name), str):
            yield key


@functools.lru_cache(maxsize=1)
def _find_litellm_keys(_names: int, /) -> tuple[str, ...]:
    """Return the names in the module `litellm` that end with "_key". The values of these names may be API keys.

    The module has thousands of names, so the result is cached. The argument is the number of all names. If it is
    not the same as at the last call, the names are searched again.
    """
    return tuple(name for name in list(vars(sys.modules.get("litellm", sys))) if name.endswith("_key"))


_known: dict[str, None] = {}
"""The keys that runs of this process were given."""


def remember(keys: Iterable[str]) -> None:
    """Hide these keys from now on. A key shorter than `SHORTEST` is ignored."""
    for key in keys:
        if len(key) >= SHORTEST:
            _known[key] = None


_NO_KEY = re.compile(
    r"[A-Z]?[a-z]{1,15}|[A-Z]{1,15}|(?=.{1,23}\Z)[a-z]+(?:[-_][a-z]+)+"
    r"|(?:~|\.{1,2}|[A-Za-z]:)[/\\].*|/.*\.\w{1,8}|(?:/[A-Z]?[a-z_.-]*\d{0,4})+"
    r"|(?i:[a-z][a-z0-9+.-]*://(?!.*[a-z0-9]{20})[^\s?@]*)"
)
"""Values that are not hidden, since they often appear in texts for other reasons: words ("not-needed", "production"), paths of
files, and web addresses. A web address is hidden if it has a user, a query or a long part, since this part may be a key. A value
may be a key even if it begins with a slash: one of 64 base64 texts begins with a slash.
"""


_OWN = 12
"""If the end of a key is cut off, the key is found only if at least this number of characters follow its public start."""
_PUBLIC_START = re.compile(r"AIza|AKIA|eyJ[\w-]+\.|(?:[a-z]{1,8}\d{0,2}[-_]){0,4}")
"""The public start of a key. Many keys have the same start: "sk-proj-", "sk-ant-api03-", "ghp_", the first part of a JWT."""
_TAG = re.compile(r"<[^<>]{0,200}>")
_TAGS = f"(?:{_TAG.pattern})*"
"""HTML tags between two characters of a key. In highlighted code, each name and each number is inside a tag."""
_HALF = re.compile(
    _TAGS + r"(?:\\{1,8}(?:u[0-9A-Fa-f]{0,3})?|%[0-9A-Fa-f%]{0,24}|&[#\w;]{0,24}|<[^<>]{0,200})?"
)
"""Matches an unfinished escape or tag at the end of a text. The next text may finish it and bring the next character of a key."""
_PLAIN = "[A-Za-z0-9._~-]"
"""Characters that are the same in every escaped form."""


@functools.lru_cache(maxsize=512)
def _match_escapes(char: str) -> str:
    """Return a pattern for a character (or a run of backslashes) of a key in all forms: plain, or escaped once or twice."""
    if re.fullmatch(_PLAIN, char):
        return re.escape(char)
    code, wide = ord(char[0]), char.encode("utf-16-be", "surrogatepass").hex()
    escapes = (
        "".join(rf"%(?:25){{0,2}}{byte:02x}" for byte in char.encode("utf-8", "surrogatepass")),
        re.sub("(....)", r"\\\\{1,8}u\1", wide),
        rf"&(?:amp;){{0,2}}(?:#0{{0,4}}{code};|#x0{{0,4}}{code:x};|{re.escape(html.escape(char)[1:]) or '(?!)'})",
    )
    return rf"(?:\\{{0,8}}{re.escape(char)}|(?i:{'|'.join(escapes)}))"


class _KeyPattern:
    """Finds a key in a text, even if the key's characters are escaped. The search time is in proportion to the text's length."""

    def __init__(self, chars: str, least: int = 0) -> None:
        """A whole key is always found. A key whose end is cut off is found if the rest has at least `least` characters.

        If `least` is 0, only the whole key is found.
        """
        steps = [_match_escapes(char) for char in re.findall(r"\\+|.", chars, re.DOTALL)]
        half = "" if re.fullmatch(_PLAIN, chars[0]) else rf"|(?:{_HALF.pattern})\Z"
        self._first = re.compile(steps[0] + half)
        self._head = re.compile(_TAGS.join(steps[:SHORTEST]))
        self._steps = [re.compile(_TAGS + step) for step in steps]
        self._least = min(least, len(steps)) or len(steps)
        self.seed = max(re.findall(f"{_PLAIN}+", chars[:SHORTEST]), key=len, default="")
        """Characters that are in every text with the key. A text without these characters is not searched."""

    def _follow(self, text: str, at: int) -> tuple[int, int]:
        """Return (count, end): `text` has `count` characters of the key from index `at` on, and `end` is the index after them."""
        for count, step in enumerate(self._steps):
            if (match := step.match(text, at)) is None:
                return count, at
            at = match.end()
        return len(self._steps), at

    def take_out(self, text: str) -> str:
        """Return the text with the key replaced by HIDDEN. HTML tags inside the key are kept, so that the HTML stays valid."""
        parts, done, at = [], 0, 0
        while head := self._head.search(text, at):
            count, end = self._follow(text, head.start())
            at = head.start() + 1
            if count >= self._least:
                parts += [text[done : head.start()], HIDDEN, *_TAG.findall(text, head.start(), end)]
                done = at = end
        return "".join([*parts, text[done:]])

    def find_unfinished(self, text: str) -> int:
        """Return the index where the key begins, if `text` ends inside the key. Otherwise, return the text's length."""
        at = max(0, len(text) - 24 * len(self._steps))  # few escaped keys are longer; this bounds the work
        while start := self._first.search(text, at):
            count, end = self._follow(text, start.start())
            if _HALF.fullmatch(text, end):
                return start.start()
            at = end if count == len(self._steps) else start.start() + 1
        return len(text)


@functools.lru_cache(maxsize=256)
def _make_patterns(key: str) -> tuple[_KeyPattern, ...]:
    """Return the patterns that find a key: one for the key itself, and others for the part of a base64 text that depends only
    on the key. Return () if the key is not to be hidden.
    """
    if len(key) < SHORTEST or _NO_KEY.fullmatch(key) or os.path.exists(key):  # noqa: PTH110
        return ()
    start = _PUBLIC_START.match(key)
    whole = "://" in key or re.search(r"\s", key) is not None
    found = [_KeyPattern(key, 0 if whole else (start.end() if start else 0) + _OWN)]
    raw = key.encode("utf-8", "surrogatepass")
    for before in range(3):  # "user:" may stand before the key
        text = base64.b64encode(bytes(before) + raw).decode()
        own = text[-(-8 * before // 6) : 8 * (before + len(raw)) // 6]
        found += map(_KeyPattern, dict.fromkeys((own, own.replace("+", "-").replace("/", "_"))))
    return tuple(found)


def hide(text: str, also: Iterable[str] = ()) -> str:
    """Return `text` without the keys that runs of this process were given, and without the keys in `also`. This is fast if the
    text has no key.
    """
    bare = _TAG.sub("", text) if "<" in text else ""
    for key in sorted({*_known, *also}, key=len, reverse=True) if len(text) >= SHORTEST else ():
        for pattern in _make_patterns(key):
            if pattern.seed in text or (bare and pattern.seed in bare):
                text = pattern.take_out(text)
    return text


_SHAPES = re.compile(
    r"\b(?:sk|rk|pk|gsk|xai|hf|pplx|r8)[-_][A-Za-z0-9_\-*.]{6,}|\bAIza[0-9A-Za-z_\-]{8,}|\bAKIA[0-9A-Z]{12,}"
    r"|(?<=[Bb]earer )[A-Za-z0-9._\-]{8,}|(?<=key=)[A-Za-z0-9._\-]{6,}"
)
"""Matches keys that providers print in their errors: keys of OpenAI, Anthropic, OpenRouter, Google, Groq, xAI, Hugging Face and
AWS, and bearer tokens.
"""


def hide_suspected(text: str, also: Iterable[str] = ()) -> str:
    """Hide the same keys as `hide`, and everything else that looks like a key."""
    return _SHAPES.sub(HIDDEN, hide(leave_out_user(text), also))


def hide_in(value: Any) -> Any:
    """Return a copy of plain data. The keys in all texts of the copy are hidden."""
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, Mapping):
        return {hide(key) if isinstance(key, str) else key: hide_in(item) for key, item in value.items()}
    return [hide_in(item) for item in value] if isinstance(value, (list, tuple)) else value


def hide_in_repr(made: type[T]) -> type[T]:
    """Hide keys in the `repr` of a class's objects. Write this decorator above `@dataclass`."""
    own = vars(made)["__repr__"]
    made.__repr__ = lambda self: hide(own(self))  # type: ignore[method-assign]
    return made


class KeyFilter:
    """Hides keys in a text that is printed in pieces. If the end of a piece may be the beginning of a key, this end is held back
    until the next piece comes.
    """

    def __init__(self) -> None:
        self._waiting = ""

    def add(self, delta: str) -> str:
        """Add the next piece. Return the text that can be printed now."""
        text = self._waiting + delta
        patterns = (pattern for key in _known for pattern in _make_patterns(key))
        cut = min([len(text), *(pattern.find_unfinished(text) for pattern in patterns)])
        self._waiting = text[cut:]
        return hide(text[:cut])

    def end(self) -> str:
        """Return the text that was held back. Call this after the last piece."""
        text, self._waiting = self._waiting, ""
        return hide(text)
