"""Finds keys in options, headers and variables, and hides keys in texts. A key is an API key, a password or a token.

A key can appear where nobody expects it: a provider's error repeats the key, a tool prints it, a model writes it. So `remember`
stores each key that a run of this process gets, and every text that is shown, recorded, saved or exported goes through `hide`.
The only exception is an approval card: while it waits, it shows the arguments as they will run.
The texts that the model and the tools get are never changed.
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
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import unquote

T = TypeVar("T")

HIDDEN = "[key]"
SHORTEST = 8
"""A shorter key is not hidden, because it looks like a word: local servers have keys such as "EMPTY"."""

_NAME = re.compile(
    r"auth(?!ors?(?:$|[-_]))|secret|passw|passphrase|cookie|credential|(?:keys?|token|sig|signature)(?:$|[-_])|headers?$"
    r"|^extra_query$",
    re.IGNORECASE,
)
_ALL_WITHIN = re.compile(r"headers?$|^extra_query$", re.IGNORECASE)
"""Options in which every value counts as a key, because any header may contain one. The headers in `_WELL_KNOWN` do not count."""
_WELL_KNOWN = re.compile(
    r"accept(-language)?|anthropic-(beta|version)|(api|openai)-(version|beta)|content-type|http-referer|user-agent|x-title"
    r"|x-litellm-(tags|spend-logs-metadata)",
    re.IGNORECASE,
)
_USER = re.compile(r"(?<=://)(?:[^/@\s]+@)+")  # a password may contain "@"
_QUERY = re.compile(r"([?&])([^=&#?\s]{1,100})=([^&#\s'\"]+)")


@functools.lru_cache(maxsize=1024)
def names_key(name: str) -> bool:
    """Return True if an option, header, field or variable of this name usually contains a key."""
    return name != "prompt_cache_key" and _NAME.search(name) is not None


def holds_key(name: str, value: object) -> bool:
    """Return True if an option must not be shown: its name says that it is a key, or its value contains one."""
    return names_key(name) or next(find_keys(name, value), None) is not None


def leave_out_user(text: str) -> str:
    """Return the text without the user names, passwords and keys in its web addresses."""
    shown = _USER.sub("", text)
    return _QUERY.sub(
        lambda found: f"{found[1]}{found[2]}={HIDDEN}" if names_key(found[2]) else found[0], shown
    )


def find_keys(name: str, value: object) -> Iterator[str]:
    """Yield the keys in `value`, the value of the option `name`: each text whose name says that it is a key (`names_key`), and
    the passwords and keys in web addresses.
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
    """Yield the passwords and keys in the web addresses of a text.

    If `whole` is True and there are none, the text itself is a key. But if the text is a JSON object, its values are searched.
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
    for name in os.environ:  # `items()` would encode and decode all values, at each model call
        if names_key(name):
            yield from find_keys(name, os.environ.get(name, ""))
    module = vars(sys.modules.get("litellm", sys))
    for name in _find_key_variables(len(module)):
        if isinstance(value := module.get(name), str):
            yield value


@functools.lru_cache(maxsize=1)
def _find_key_variables(count: int) -> list[str]:
    """Return the names of the variables for keys in LiteLLM (1.110.2 has 1,759 variables). They are searched again if `count`,
    the number of all variables, has changed.
    """
    return [name for name in list(vars(sys.modules.get("litellm", sys))) if name.endswith("_key")]


_known: dict[str, None] = {}
"""The keys that runs of this process were given."""


def remember(keys: Iterable[str]) -> None:
    """Hide these keys from now on. A key shorter than `SHORTEST` is ignored."""
    for key in keys:
        if len(key) >= SHORTEST:
            _known[key] = None


def remember_secrets(secrets: Mapping[str, object] | None) -> None:
    """Hide from now on the keys in the options `secrets`, and the keys that LiteLLM reads by itself."""
    remember([*find_environment_keys(), *find_keys("", secrets)])


_NO_KEY = re.compile(
    r"[A-Z]?[a-z]{1,15}|[A-Z]{1,15}|(?=.{1,23}\Z)[a-z]+(?:[-_][a-z]+)+"
    r"|(?:~|\.{1,2}|[A-Za-z]:)[/\\].*|/.*\.\w{1,8}|(?:/[A-Z]?[a-z_.-]*\d{0,4})+"
    r"|(?i:[a-z][a-z0-9+.-]*://(?!.*[a-z0-9]{20})[^\s?@]*)"
)
"""Values that are not hidden, because they often appear in texts for other reasons: words ("not-needed", "production"), paths of
files, and web addresses without a user, a query or a long part. But a text that begins with a slash may also be a key in base64.
"""
_PUBLIC_START = re.compile(r"AIza|AKIA|eyJ[\w-]+\.|(?:[a-z]{1,8}\d{0,2}[-_]){0,4}")
"""The start that many keys share: "sk-proj-", "sk-ant-api03-", "ghp_", the first part of a JWT."""
_OWN = 12
"""A key whose end is cut off is found if at least this number of characters follow its `_PUBLIC_START`."""
_TAG = re.compile(r"<[^<>]{0,200}>")
_TAGS = f"(?:{_TAG.pattern})*"
"""Matches HTML tags between two characters of a key. In highlighted code, each name and each number is in a tag of its own."""
_HALF = re.compile(
    _TAGS + r"(?:\\{1,8}(?:u[0-9A-Fa-f]{0,3})?|%[0-9A-Fa-f%]{0,24}|&[#\w;]{0,24}|<[^<>]{0,200})?"
)
"""Matches an unfinished escape or tag at the end of a text. The next text may finish it."""
_PLAIN = "[A-Za-z0-9._~-]"
"""Matches a character that no escaping changes."""


@functools.lru_cache(maxsize=512)
def _match_escapes(char: str) -> str:
    """Return a pattern for a character (or a run of backslashes): plain, or escaped once or twice for JSON, addresses or HTML."""
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
    """Finds a key in a text, even if its characters are escaped. The time is in proportion to the length of the text."""

    def __init__(self, chars: str, least: int = 0) -> None:
        """`least`: a text with this many of the key's first characters counts as the key. 0: only the whole key counts."""
        steps = [_match_escapes(char) for char in re.findall(r"\\+|.", chars, re.DOTALL)]
        half = "" if re.fullmatch(_PLAIN, chars[0]) else rf"|(?:{_HALF.pattern})\Z"
        self._first = re.compile(steps[0] + half)
        self._head = re.compile(_TAGS.join(steps[:SHORTEST]))
        self._steps = [re.compile(_TAGS + step) for step in steps]
        self._least = min(least, len(steps)) or len(steps)
        self.seed = max(re.findall(f"{_PLAIN}+", chars[:SHORTEST]), key=len, default="")
        """Characters that every text with the key has."""

    def _follow(self, text: str, at: int) -> tuple[int, int]:
        """Compare the key with `text` from index `at` on. Return (how many characters are equal, the index after them)."""
        for count, step in enumerate(self._steps):
            if (match := step.match(text, at)) is None:
                return count, at
            at = match.end()
        return len(self._steps), at

    def take_out(self, text: str) -> str:
        """Return the text with HIDDEN instead of the key. HTML tags inside the key stay, so that the HTML stays valid."""
        parts, done, at = [], 0, 0
        while head := self._head.search(text, at):
            count, end = self._follow(text, head.start())
            at = head.start() + 1
            if count >= self._least:
                parts += [text[done : head.start()], HIDDEN, *_TAG.findall(text, head.start(), end)]
                done = at = end
        return "".join([*parts, text[done:]])

    def find_unfinished(self, text: str) -> int:
        """Return the index where the key begins if `text` ends inside the key, else the length of the text."""
        at = max(0, len(text) - 24 * len(self._steps))  # few escaped keys are longer; this bounds the work
        while start := self._first.search(text, at):
            count, end = self._follow(text, start.start())
            if _HALF.fullmatch(text, end):
                return start.start()
            at = end if count == len(self._steps) else start.start() + 1
        return len(text)


@functools.lru_cache(maxsize=256)
def _make_patterns(key: str) -> tuple[_KeyPattern, ...]:
    """Return the patterns that find a key, plain or in base64. Return () for a value that is not hidden."""
    if len(key) < SHORTEST or _NO_KEY.fullmatch(key) or os.path.exists(key):  # noqa: PTH110
        return ()
    start = _PUBLIC_START.match(key)
    whole = "://" in key or re.search(r"\s", key) is not None
    patterns = [_KeyPattern(key, 0 if whole else (start.end() if start else 0) + _OWN)]
    raw = key.encode("utf-8", "surrogatepass")
    for before in range(3):  # "user:" may stand before the key: this changes the base64 of the key
        text = base64.b64encode(bytes(before) + raw).decode()
        encoded = text[-(-8 * before // 6) : 8 * (before + len(raw)) // 6]
        patterns += map(_KeyPattern, dict.fromkeys((encoded, encoded.replace("+", "-").replace("/", "_"))))
    return tuple(patterns)


def hide(text: str) -> str:
    """Return `text` with "[key]" for each key that a run of this process was given.

    Finds a key that is plain, escaped for JSON, web addresses or HTML, or in base64 (also as "user:key"). Also finds the
    beginning of a key whose end is cut off. Fast if the text has no key.
    """
    bare = _TAG.sub("", text) if "<" in text else ""
    for key in sorted(_known, key=len, reverse=True) if len(text) >= SHORTEST else ():
        for pattern in _make_patterns(key):
            if pattern.seed in text or (bare and pattern.seed in bare):
                text = pattern.take_out(text)
    return text


_SHAPES = re.compile(
    r"\b(?:sk|rk|pk|gsk|xai|hf|pplx|r8)[-_][A-Za-z0-9_\-*.]{6,}|\bAIza[0-9A-Za-z_\-]{8,}|\bAKIA[0-9A-Z]{12,}"
    r"|(?<=[Bb]earer )[A-Za-z0-9._\-]{8,}|(?<=key=)[A-Za-z0-9._\-]{6,}"
)
"""Matches keys of OpenAI, Anthropic, OpenRouter, Google, Groq, xAI, Hugging Face and AWS, and bearer tokens, in the forms that
providers' errors contain.
"""


def hide_suspected(text: str) -> str:
    """Hide the same keys as `hide`, and everything else that looks like a key."""
    return _SHAPES.sub(HIDDEN, hide(leave_out_user(text)))


def hide_in(
    value: Any, hide_text: Callable[[str], str] = hide, hides_field: Callable[[str], bool] = lambda _: False
) -> Any:
    """Return a copy of plain data. `hide_text` hides the keys in each text, and `hide` hides the keys in each name of a field.

    If `hides_field` returns True for the name of a field, "…" replaces the whole value of the field.
    """
    if isinstance(value, str):
        return hide_text(value)
    if isinstance(value, Mapping):
        fields = {str(name): item for name, item in value.items()}
        return {
            hide(k): "…" if hides_field(k) else hide_in(v, hide_text, hides_field) for k, v in fields.items()
        }
    if isinstance(value, (list, tuple)):
        return [hide_in(item, hide_text, hides_field) for item in value]
    return value


def hide_in_repr(made: type[T]) -> type[T]:
    """Hide keys in the `repr` of a class's objects. Write this decorator above `@dataclass`."""
    plain_repr = vars(made)["__repr__"]
    made.__repr__ = lambda self: hide(plain_repr(self))  # type: ignore[method-assign]
    return made


class KeyFilter:
    """Hides keys in a text that is printed in pieces. The end of a piece waits for the next piece if a key may begin there."""

    def __init__(self) -> None:
        self._waiting = ""

    def add(self, delta: str) -> str:
        """Add the next piece. Return the text that can be printed now."""
        text = self._waiting + delta
        # `list`: meanwhile, another thread may remember a key
        patterns = (pattern for key in list(_known) for pattern in _make_patterns(key))
        cut = min([len(text), *(pattern.find_unfinished(text) for pattern in patterns)])
        self._waiting = text[cut:]
        return hide(text[:cut])

    def end(self) -> str:
        """Return the text that was held back. Call this after the last piece."""
        text, self._waiting = self._waiting, ""
        return hide(text)
