"""Keys taken out of whatever is shown, recorded, saved or exported, in each writing that they may come in.

A key comes back where nobody expects it: a provider's error repeats it, a tool prints it, a model says it. So each key
that a run of this process is given is remembered (`remember`), and where text leaves (`hide`) that is read without its
escapes, blanks and tags, and a key found in it: as it is, as JSON, an address or HTML writes it, in base64, cut off
behind the beginning, or with blanks, zero-width characters or tags in it. What the model and the tools get is
never changed.
"""

from __future__ import annotations

import base64
import functools
import html.entities
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

HIDDEN = "[key]"
SHORTEST = 8
"""Characters. A shorter key cannot be told from ordinary words (a local server's is "EMPTY" or "ollama")."""

_ZERO_WIDTH = "\u00ad\u034f\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
_BLANKS = re.compile(rf"[\s\x00-\x1f{_ZERO_WIDTH}\u2400-\u2421]+|\u27e8U\+[0-9A-F]{{4,6}}\u27e9")
"""What may stand between two characters of a key; ␛ and ⟨U+200B⟩ are how a transcript shows some of them."""
_TAG = re.compile(r"<[^<>]{0,200}>")
_ESCAPE = re.compile(
    r"(?P<pct>(?:%(?:25)*[89A-Fa-f][0-9A-Fa-f])+|%(?:25)*[0-7][0-9A-Fa-f])"
    r"|\\+u(?P<json>[0-9A-Fa-f]{4})|\\+(?P<plain>[^u])"
    r"|&(?:amp;)*(?:#0*(?P<dec>\d{1,7})|#[xX]0*(?P<hex>[0-9A-Fa-f]{1,6})|(?P<name>\w{2,24}));"
)
_PERCENT = re.compile(r"%(?:25)*([0-9A-Fa-f]{2})")
_HALF_AN_ESCAPE = re.compile(
    r"(?:\\+(?:u[0-9A-Fa-f]{0,3})?|%(?:25)*[0-9A-Fa-f]?|&[#\w;]{0,32}|\u27e8[U+0-9A-F]{0,8})\Z"
)
_LONGEST_ESCAPE = 64
_TAGS_DROPPED = re.compile(f"{_TAG.pattern}|{_BLANKS.pattern}|{_ESCAPE.pattern}")
_TAGS_READ = re.compile(f"{_BLANKS.pattern}|{_ESCAPE.pattern}")
"""What is not read as it stands. Each is looked for once in a text, so that the work grows with the text and not faster."""


class _Reading:
    """A text as one who looks for keys reads it, and where in the text each character that is read stands."""

    def __init__(self, text: str, special: re.Pattern[str]) -> None:
        parts: list[str] = []
        self.starts: list[int] = []
        self.ends: list[int] = []
        done = 0
        for match in special.finditer(text):
            start, end = match.span()
            if start > done:
                parts.append(text[done:start])
                self.starts += range(done, start)
                self.ends += range(done + 1, start + 1)
            if match.lastgroup and (chars := _BLANKS.sub("", _decoded(match))):
                parts.append(chars)
                self.starts += [start] * len(chars)
                self.ends += [end] * len(chars)
            done = end
        self.read = "".join([*parts, text[done:]])
        self.starts += range(done, len(text))
        self.ends += range(done + 1, len(text) + 1)


@dataclass(frozen=True)
class _Form:
    """One writing of a key: its characters as they are read, at least `SHORTEST`."""

    chars: str
    least: int
    """How many of its first characters are hidden where the others are missing."""

    @property
    def start(self) -> str:
        return self.chars[:SHORTEST]

    def out_of(self, text: str) -> str:
        """The text without it."""
        text = self._out_of(text, _TAGS_DROPPED)
        return self._out_of(text, _TAGS_READ) if "<" in text else text

    def _out_of(self, text: str, special: re.Pattern[str]) -> str:
        reading = _Reading(text, special)
        parts, done, at = [], 0, reading.read.find(self.start)
        while at >= 0:
            there = _common(self.chars, reading.read[at : at + len(self.chars)])
            if there == self.chars or (len(there) >= self.least and _looks_random(there)):
                start, end = reading.starts[at], reading.ends[at + len(there) - 1]
                within = _TAG.findall(text, start, end) if special is _TAGS_DROPPED else []
                parts += [text[done:start], HIDDEN, *within]  # so that HTML stays whole
                done, at = end, at + len(there) - 1
            at = reading.read.find(self.start, at + 1)
        return "".join([*parts, text[done:]])

    def begins_at(self, text: str) -> int:
        """Where a beginning of it stands at the end of `text`, or the text's length."""
        # So much do few writings need; the work stays bounded.
        before = max(0, len(text) - 16 * len(self.chars))
        begins = len(text)
        for special in (_TAGS_DROPPED, _TAGS_READ) if "<" in text[before:] else (_TAGS_DROPPED,):
            reading = _Reading(text[before:], special)
            for length in range(min(len(self.chars) - 1, len(reading.read)), 0, -1):
                if reading.read.endswith(self.chars[:length]):
                    begins = min(begins, before + reading.starts[-length])
                    break
        return begins


def _common(one: str, other: str) -> str:
    """The beginning that both have."""
    return one[: next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(other))]


_OWN = 12
"""Characters of its own that a key's beginning must have to be taken for it."""
_PUBLIC_START = re.compile(r"AIza|AKIA|eyJ[\w-]+\.|(?:[a-z]{1,8}\d{0,2}[-_]){0,4}")
"""How many keys begin: "sk-proj-", "sk-ant-api03-", "ghp_", a web token's head."""


def _looks_random(text: str) -> bool:
    """Whether these first characters are a key's own, and not words."""
    return any(c.isdigit() for c in text) or (text.lower() != text and text.upper() != text)


_WORD = re.compile(r"[A-Z]?[a-z]{1,15}|[A-Z]{1,15}|(?=.{1,23}\Z)[a-z]+(?:[-_][a-z]+)+")
"""What local servers take for a key ("not-needed") and headers hold ("production"): it stands in ordinary sentences."""
_PATH = re.compile(r"(?:~|\.{1,2}|[A-Za-z]:)[/\\].*|/.*\.\w{1,8}|(?:/[A-Z]?[a-z_.-]*\d{0,4})+")
"""A file's place. What merely begins with a slash may be a key: in base64 one of 64 does."""
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://(?!.*[a-z0-9]{20})[^\s?@]*", re.IGNORECASE)
"""One without user, query and a long part that may be a key of itself (a webhook's)."""


def _is_no_key(text: str) -> bool:
    """Whether a value is a word, a file or an address without a password: texts have these for other reasons."""
    return (
        len(text) < SHORTEST
        or any(shape.fullmatch(text) for shape in (_WORD, _PATH, _ADDRESS))
        or os.path.exists(text)  # noqa: PTH110  # Path's raises for a name that is too long
    )


@functools.lru_cache(maxsize=256)
def _forms(key: str) -> tuple[_Form, ...]:
    """The writings of a key: itself, and the part of any base64 text that only it decides."""
    chars = _Reading(key, _TAGS_READ).read
    if len(chars) < SHORTEST or _is_no_key(key):
        return ()
    public = _PUBLIC_START.match(chars)
    may_be_cut = "://" not in key and _BLANKS.search(key) is None
    forms = [_Form(chars, (public.end() if public else 0) + _OWN if may_be_cut else len(chars))]
    raw = key.encode("utf-8", "surrogatepass")
    for before in range(3):  # "user:" may stand before it
        whole = base64.b64encode(bytes(before) + raw).decode()
        own = whole[-(-8 * before // 6) : 8 * (before + len(raw)) // 6]
        forms += [
            _Form(text, len(text))
            for text in dict.fromkeys((own, own.replace("+", "-").replace("/", "_")))
            if len(text) >= SHORTEST
        ]
    return tuple(forms)


_known: dict[str, None] = {}
"""The keys that runs of this process were given."""


def remember(keys: Iterable[str]) -> None:
    """Never show these again. Short ones are left out: see `SHORTEST`."""
    _known.update((key, None) for key in keys if len(key) >= SHORTEST)


def hide(text: str, also: Iterable[str] = ()) -> str:
    """`text` without the keys of this process's runs (and those of `also`). Cheap where there is none."""
    if len(text) < SHORTEST:
        return text
    seen = ""
    for key in sorted({*_known, *also}, key=len, reverse=True):
        for form in _forms(key):
            seen = seen or _readable(text)
            if form.start in seen:
                text = form.out_of(text)
    return text


def hide_in(value: Any) -> Any:
    """Plain data without keys: a copy, also where nothing is hidden."""
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, Mapping):
        return {hide(key) if isinstance(key, str) else key: hide_in(item) for key, item in value.items()}
    return [hide_in(item) for item in value] if isinstance(value, (list, tuple)) else value


def hide_in_repr(made: type) -> None:
    """Let the repr of a class's objects leave the keys out."""
    own = vars(made)["__repr__"]

    def without_keys(self: object) -> str:
        return hide(own(self))

    made.__repr__ = without_keys  # type: ignore[assignment, method-assign]  # around the dataclass's


def _readable(text: str) -> str:
    """What `_Reading` reads, in a quicker way: first without the text's tags, then with them."""
    if "<" in text:
        text = "\0".join([_TAG.sub("", text), text])
    if "%" in text or "\\" in text or "&" in text:
        text = _ESCAPE.sub(_decoded, text)
    return _BLANKS.sub("", text)


def _decoded(match: re.Match[str]) -> str:
    kind = match.lastgroup or ""
    found = match[kind]
    if kind == "plain":
        return "" if found in "nrt" else found
    if kind == "name":
        return html.entities.html5.get(found + ";", match[0])
    if kind == "pct":
        digits = _PERCENT.findall(found)
        return bytes.fromhex("".join(digits)).decode("utf-8", "replace")
    code = int(found, 10 if kind == "dec" else 16)
    return chr(code) if 0 < code <= 0x10FFFF else match[0]


class Withheld:
    """Text that is printed as it comes: what may be the beginning of a key waits for what follows."""

    def __init__(self) -> None:
        self._waiting = ""

    def add(self, delta: str) -> str:
        """What can be printed now."""
        text = self._waiting + delta
        forms = [form for key in _known for form in _forms(key)]
        half = _HALF_AN_ESCAPE.search(text, max(0, len(text) - _LONGEST_ESCAPE)) if forms else None
        whole = text[: half.start()] if half else text
        ends = [whole]
        tag = whole.rfind("<", max(0, len(whole) - 200))
        if tag >= 0 and ">" not in whole[tag:]:  # half a tag waits only where a key may go on behind it
            ends.append(whole[:tag])
        begins = [(form.begins_at(end), len(end)) for form in forms for end in ends]
        cut = min([len(whole), *(at for at, end in begins if at < end)])
        self._waiting = text[cut:]
        return hide(text[:cut])

    def end(self) -> str:
        """What was still waiting."""
        text, self._waiting = self._waiting, ""
        return hide(text)
