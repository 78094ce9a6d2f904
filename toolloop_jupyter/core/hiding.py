"""Keys taken out of whatever is shown, recorded, saved or exported, in each writing that they may come in.

A key comes back where nobody expects it: a provider's error repeats it, a tool prints it, a model says it. So each key
that a run of this process is given is remembered (`remember`), and where text leaves (`hide`) it is found by its first
characters and then followed, character by character: as it is, as JSON, an address or HTML writes it, in base64, cut
off behind the beginning, or with blanks, zero-width characters or tags in it. What the model and the tools get is
never changed.
"""

from __future__ import annotations

import base64
import functools
import html.entities
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

HIDDEN = "[key]"
SHORTEST = 8
"""Characters. A shorter key cannot be told from ordinary words (a local server's is "EMPTY" or "ollama")."""

_ZERO_WIDTH = "\u00ad\u034f\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
_BLANKS = re.compile(rf"[\s\x00-\x1f{_ZERO_WIDTH}\u2400-\u2421]+|\u27e8U\+[0-9A-F]{{4,6}}\u27e9")
"""What may stand between two characters of a key; ␛ and ⟨U+200B⟩ are how a transcript shows some of them."""
_BETWEEN = rf"(?:{_BLANKS.pattern}|<[^<>]{{0,200}}>|\\+[nrt])*"
_TAG = re.compile(r"<[^<>]{0,200}>")
_ESCAPE = re.compile(
    r"(?P<pct>(?:%(?:25)*[0-9A-Fa-f]{2})+)|\\+u(?P<json>[0-9A-Fa-f]{4})|\\+(?P<plain>[^u])"
    r"|&(?:amp;)*(?:#0*(?P<dec>\d{1,7})|#[xX]0*(?P<hex>[0-9A-Fa-f]{1,6})|(?P<name>\w{2,24}));"
)
_PERCENT = re.compile(r"%(?:25)*([0-9A-Fa-f]{2})")
_NAMES: dict[str, list[str]] = {}
for _name, _char in html.entities.html5.items():
    if _name.endswith(";"):
        _NAMES.setdefault(_char, []).append(_name[:-1])


@functools.lru_cache(maxsize=512)
def _one(char: str) -> str:
    """The pattern of one character of a key, in every writing."""
    code = ord(char)
    ways = [re.escape(char)]
    if not char.isalnum():
        ways.append(r"\\+" + re.escape(char))
    ways.append("".join(f"%(?:25)*(?i:{byte})" for byte in quote(char, safe="").strip("%").split("%")))
    if char.isascii():
        ways[-1] = f"%(?:25)*(?i:{code:02x})"
    ways += [rf"\\+u(?i:{code:04x})", f"&(?:amp;)*#(?:0*{code}|[xX]0*(?i:{code:x}));"]
    if char in _NAMES:
        ways.append(f"&(?:amp;)*(?:{'|'.join(_NAMES[char])});")
    return f"(?:{'|'.join(ways)})"


@functools.lru_cache(maxsize=512)
def _next(char: str) -> re.Pattern[str]:
    return re.compile(_BETWEEN + _one(char))


@dataclass(frozen=True)
class _Form:
    """One writing of a key: its characters without blanks, at least `SHORTEST`."""

    chars: str
    sign: str
    """Its first characters as `_readable` gives them: what is looked for first."""
    may_be_cut: bool
    """Whether its beginning alone is hidden: not that of an address, which others begin with, too."""

    @property
    def start(self) -> str:
        return self.chars[:SHORTEST]

    def out_of(self, text: str) -> str:
        """The text without it."""
        pattern = _start_pattern(self.start)
        parts, done, found = [], 0, pattern.search(text)
        while found:
            end, length = self._follow(text, found.end())
            if length == len(self.chars) or (self.may_be_cut and _looks_random(self.chars[:length])):
                within = "".join(_TAG.findall(found.string, found.start(), end))  # so that HTML stays whole
                parts += [text[done : found.start()], HIDDEN, within]
                done = end
            found = pattern.search(text, max(end, found.start() + 1))
        return "".join([*parts, text[done:]])

    def _follow(self, text: str, end: int) -> tuple[int, int]:
        """(where it ends, how many of its characters are there) for one whose start ends at `end`."""
        for number in range(len(self.start), len(self.chars)):
            more = _next(self.chars[number]).match(text, end)
            if more is None:
                return end, number
            end = more.end()
        return end, len(self.chars)

    def begins_at(self, text: str) -> int:
        """Where a beginning of it stands at the end of `text`, or the text's length."""
        for found in _start_pattern(self.chars[0]).finditer(text):
            end = found.end()
            for char in self.chars[1:]:
                more = _next(char).match(text, end)
                if more is None:
                    break
                end = more.end()
            if _NOTHING_MORE.fullmatch(text, end):
                return found.start()
        return len(text)


_HALF_AN_ESCAPE = re.compile(r"(?:\\+(?:u[0-9A-Fa-f]{0,3})?|%(?:25)*[0-9A-Fa-f]?|&[#\w;]{0,32})\Z")
_NOTHING_MORE = re.compile(f"{_BETWEEN}(?:{_HALF_AN_ESCAPE.pattern})?")


@functools.lru_cache(maxsize=256)
def _start_pattern(start: str) -> re.Pattern[str]:
    return re.compile(_BETWEEN.join(_one(char) for char in start))


def _looks_random(text: str) -> bool:
    """Whether these first characters are a key's own: "litellm-" and "sk-proj-" are many others', too."""
    return any(c.isdigit() for c in text) or (text.lower() != text and text.upper() != text)


@functools.lru_cache(maxsize=256)
def _forms(key: str) -> tuple[_Form, ...]:
    """The writings of a key: itself, and the part of any base64 text that only it decides."""
    squeezed = _BLANKS.sub("", key)
    if len(squeezed) < SHORTEST:
        return ()
    forms = [_Form(squeezed, _readable(squeezed)[:SHORTEST], may_be_cut="://" not in key and squeezed == key)]
    raw = key.encode("utf-8", "surrogatepass")
    for before in range(3):  # "user:" may stand before it
        whole = base64.b64encode(bytes(before) + raw).decode()
        own = whole[-(-8 * before // 6) : 8 * (before + len(raw)) // 6]
        forms += [
            _Form(text, text[:SHORTEST], may_be_cut=False)
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
            if form.sign in seen:
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
    """The text's characters in a form in which a key is one run of them: first without its tags, then those."""
    if "<" in text:
        text = "\0".join([_TAG.sub("", text), *_TAG.findall(text)])
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
        half = _HALF_AN_ESCAPE.search(text) if forms else None
        cut = min([half.start() if half else len(text), *(form.begins_at(text) for form in forms)])
        self._waiting = text[cut:]
        return hide(text[:cut])

    def end(self) -> str:
        """What was still waiting."""
        text, self._waiting = self._waiting, ""
        return hide(text)
