"""Keys are API keys, passwords and tokens. Find the options, headers and variables that hold one, and hide keys in texts.

A key comes back where nobody expects it: a provider's error repeats it, a tool prints it, a model says it. So each key
that a run of this process is given is remembered (`remember`), and every text that is shown, recorded, saved or exported
goes through `hide`. `hide` finds a key as it is, and escaped for JSON, web addresses or HTML. In a base64 text, it finds the
part that depends on the key alone. It also finds the beginning of a key whose end is cut off. The texts that the model and
the tools get are never changed.
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
"""The fewest characters of a key that is hidden. Shorter keys look like words (those of local servers: "EMPTY", "ollama")."""

_NAME = re.compile(
    r"auth(?!ors?(?:$|[-_]))|secret|passw|passphrase|cookie|credential|(?:keys?|token|sig|signature)(?:$|[-_])|headers?$"
    r"|^extra_query$",
    re.IGNORECASE,
)
_ALL_WITHIN = re.compile(r"headers?$|^extra_query$", re.IGNORECASE)
"""Options in which every value counts as a key, since any private header may hold one. The well-known headers do not count."""
_WELL_KNOWN = re.compile(
    r"accept(-language)?|anthropic-(beta|version)|(api|openai)-(version|beta)|content-type|http-referer|user-agent|x-title"
    r"|x-litellm-(tags|spend-logs-metadata)",
    re.IGNORECASE,
)
_USER = re.compile(r"(?<=://)[^/@\s]+@")
_QUERY = re.compile(r"([?&])([^=&#?\s]{1,100})=([^&#\s'\"]+)")


@functools.lru_cache(maxsize=1024)
def names_key(name: str) -> bool:
    """Return whether an option, a header, a field or a variable of this name holds a key, or headers with a key."""
    return name != "prompt_cache_key" and _NAME.search(name) is not None


def holds_key(name: str, value: object) -> bool:
    """Return whether an option must not be shown: it has the name of a key, or such a name or a password in its value."""
    return names_key(name) or next(find_keys(name, value), None) is not None


def leave_out_user(text: str) -> str:
    """Return the text without the user names, passwords and keys in its web addresses."""
    shown = _USER.sub("", text)
    return _QUERY.sub(
        lambda found: f"{found[1]}{found[2]}={HIDDEN}" if names_key(found[2]) else found[0], shown
    )


def find_keys(name: str, value: object) -> Iterator[str]:
    """Find the keys in option `name`: its value, named values inside it, passwords and keys in web addresses."""
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
    """Find the keys in a text: in its JSON, in a web address, or the text itself if it has the name of a key (`whole`)."""
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
    """Find the keys that LiteLLM reads by itself: from the environment, and from its module (`litellm.api_key = …`)."""
    for name in os.environ:  # not items(): each value would be encoded and decoded, at each model call
        if names_key(name):
            yield from find_keys(name, os.environ.get(name, ""))
    names = vars(sys.modules.get("litellm", sys))
    for name in _find_litellm_keys(len(names)):
        if isinstance(key := names.get(name), str):
            yield key


@functools.lru_cache(maxsize=1)
def _find_litellm_keys(_names: int, /) -> tuple[str, ...]:
    """Return the names of keys in the module `litellm`. Cached until the number of its names, some thousands, changes."""
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
"""Values that are not hidden, because texts have them for other reasons: a word ("not-needed", "production"), a file's path,
a web address without a user, a query or a long part that may itself be a key. A value that merely begins with a slash may be a
key: one of 64 base64 texts does."""


_OWN = 12
"""If the end of a key is cut off, so many characters after its public start must be there, else it is not found."""
_PUBLIC_START = re.compile(r"AIza|AKIA|eyJ[\w-]+\.|(?:[a-z]{1,8}\d{0,2}[-_]){0,4}")
"""The public start of a key, which many keys share: "sk-proj-", "sk-ant-api03-", "ghp_", a web token's head."""
_TAG = re.compile(r"<[^<>]{0,200}>")
_TAGS = f"(?:{_TAG.pattern})*"
"""HTML tags that may stand between two characters of a key: highlighted code has each name and number in a tag."""
_HALF = re.compile(
    _TAGS + r"(?:\\{1,8}(?:u[0-9A-Fa-f]{0,3})?|%[0-9A-Fa-f%]{0,24}|&[#\w;]{0,24}|<[^<>]{0,200})?"
)
"""An unfinished escape or tag at the end of a text: the next character of a key may still come."""
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
    """Finds a key in a text; each of its characters may be escaped. The time for it is in proportion to the text's length."""

    def __init__(self, chars: str, least: int = 0) -> None:
        """A key whose end is cut off is found if its first `least` characters are there. With 0, only whole keys are found."""
        steps = [_match_escapes(char) for char in re.findall(r"\\+|.", chars, re.DOTALL)]
        half = "" if re.fullmatch(_PLAIN, chars[0]) else rf"|(?:{_HALF.pattern})\Z"
        self._first = re.compile(steps[0] + half)
        self._head = re.compile(_TAGS.join(steps[:SHORTEST]))
        self._steps = [re.compile(_TAGS + step) for step in steps]
        self._least = min(least, len(steps)) or len(steps)
        self.seed = max(re.findall(f"{_PLAIN}+", chars[:SHORTEST]), key=len, default="")
        """Characters that every text with the key has: a text without them is not searched."""

    def _follow(self, text: str, at: int) -> tuple[int, int]:
        """Return (how many of the key's characters stand in `text` from index `at` on, the index of their end)."""
        for count, step in enumerate(self._steps):
            if (match := step.match(text, at)) is None:
                return count, at
            at = match.end()
        return len(self._steps), at

    def take_out(self, text: str) -> str:
        """Return the text with HIDDEN in the place of the key. HTML tags inside the key stay, so that the HTML stays valid."""
        parts, done, at = [], 0, 0
        while head := self._head.search(text, at):
            count, end = self._follow(text, head.start())
            at = head.start() + 1
            if count >= self._least:
                parts += [text[done : head.start()], HIDDEN, *_TAG.findall(text, head.start(), end)]
                done = at = end
        return "".join([*parts, text[done:]])

    def find_unfinished(self, text: str) -> int:
        """Return where a key begins that the end of `text` may cut off; the text's length if no key does."""
        at = max(0, len(text) - 24 * len(self._steps))  # few escaped keys are longer; this bounds the work
        while start := self._first.search(text, at):
            count, end = self._follow(text, start.start())
            if _HALF.fullmatch(text, end):
                return start.start()
            at = end if count == len(self._steps) else start.start() + 1
        return len(text)


@functools.lru_cache(maxsize=256)
def _make_patterns(key: str) -> tuple[_KeyPattern, ...]:
    """Return the patterns for a key: for the key itself, and for the part of a base64 text that depends on the key alone."""
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
    """Return `text` without the keys that runs of this process were given, and those of `also`. Fast if it has none."""
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
"""Keys as providers print them in their errors: OpenAI/Anthropic/OpenRouter, Google, Groq, xAI, Hugging Face, AWS, bearer."""


def hide_suspected(text: str, also: Iterable[str] = ()) -> str:
    """Like `hide`, and hide everything else that looks like a key."""
    return _SHAPES.sub(HIDDEN, hide(leave_out_user(text), also))


def hide_in(value: Any) -> Any:
    """Return a copy of plain data, without the keys in its texts."""
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, Mapping):
        return {hide(key) if isinstance(key, str) else key: hide_in(item) for key, item in value.items()}
    return [hide_in(item) for item in value] if isinstance(value, (list, tuple)) else value


def hide_in_repr(made: type[T]) -> type[T]:
    """Hide keys in the `repr` of a class's objects. A decorator, to be written above `@dataclass`."""
    own = vars(made)["__repr__"]
    made.__repr__ = lambda self: hide(own(self))  # type: ignore[method-assign]
    return made


class KeyFilter:
    """Hides keys in a text that is printed piece by piece. An end that may begin a key is held back until the next piece."""

    def __init__(self) -> None:
        self._waiting = ""

    def add(self, delta: str) -> str:
        """Take the next piece; returns the text that can be printed now."""
        text = self._waiting + delta
        patterns = (pattern for key in _known for pattern in _make_patterns(key))
        cut = min([len(text), *(pattern.find_unfinished(text) for pattern in patterns)])
        self._waiting = text[cut:]
        return hide(text[:cut])

    def end(self) -> str:
        """Return the text that was held back; no more pieces come."""
        text, self._waiting = self._waiting, ""
        return hide(text)
