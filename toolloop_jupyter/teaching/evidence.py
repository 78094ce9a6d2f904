"""What a text holds that could be an argument: quoted strings, files, numbers, names, `path:line: text` hits.

The demonstration model has no language, only these patterns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .vocabulary import FOLDERS, STOP_WORDS, WRITERS, stem, word_positions, words_of

_MOST_READ = 20_000
_MOST_LINES = 500
_MOST_WIDE = 300
"""How much of one text is looked at. Some of the patterns take the square of a word's length, so words longer than
`_MOST_WIDE`, which name nothing, are left out."""

_QUOTED = re.compile(
    r"```[\w-]*\n(.+?)```|`([^`\n]+)`|\"([^\"\n]+)\"|“([^”\n]+)”|«([^»\n]+)»|(?<!\w)'([^'\n]+)'(?!\w)",
    re.DOTALL,
)
_FILE = re.compile(
    r"(?<![\w@/.-])(?:[\w.~-]*/)*[\w-][\w.-]*\.(?!\d|\.)[A-Za-z]\w{0,6}\b(?![/@])|(?<![\w:/])(?:[\w.~-]+/)+[\w.-]*"
)
_URL = re.compile(r"https?://[^\s<>\"'`)\]]+")
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_NUMBER = re.compile(r"(?<![\w.])-?\d{1,15}(?:\.\d{1,15})?(?:[eE][+-]?\d{1,2})?(?![\w]|\.\d)")
_IDENTIFIER = re.compile(r"\b(?:[A-Za-z]+_\w+|[a-z]+[A-Z]\w*|[A-Z]{2,}\w*|[A-Za-z_]\w*(?=\(\)))")
_HIT = re.compile(
    r"^[\s\"'\[-]*([\w./\\~-]*\w\.\w+):(\d{1,9})(?::\d+)?:?[ \t]*(.*?)[\"',\]\s]*$", re.MULTILINE
)
_SAYING = re.compile(
    r"(?:\b(?:saying|says?|that reads?|with the text)\b|:)\s+(?![`\"'“])([^\n]+)", re.IGNORECASE
)
_FOR = re.compile(
    r"\b(?:for|about|regarding|containing|contains?|mentions?|mentioning|named|called|of)\s+(?:all |every |the |an? )*([\w.-]*\w)",
    re.IGNORECASE,
)
_WHERE = re.compile(
    r"\b(?:in|inside|under|within|through|from)\s+(?:the\s+)?(?:folder\s+|directory\s+)?[`\"']?([\w./~-]*\w/?)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Hit:
    """One line found in a file: `src/x.py:41: for attempt in …`."""

    path: str
    line: int
    text: str


class Evidence:
    """The patterns in one text. `without`: names (of tools) that are no arguments."""

    def __init__(self, text: str, without: Collection[str] = ()) -> None:
        self._whole = text
        self.text = re.sub(rf"\S{{{_MOST_WIDE},}}", " ", text[:_MOST_READ])
        self._without = frozenset(without)

    @cached_property
    def quoted(self) -> list[str]:
        groups = [next((g for g in match.groups() if g), "") for match in _QUOTED.finditer(self.text)]
        return [
            group.strip("\n") for group in groups if group.strip() and group.rstrip("()") not in self._without
        ]

    @cached_property
    def bare(self) -> str:
        """The text without what is quoted in it."""
        return _QUOTED.sub(" ", self.text)

    @cached_property
    def prose(self) -> str:
        """The text without quotations, addresses and paths."""
        return _FILE.sub(" ", _URL.sub(" ", self.bare))

    @cached_property
    def orders(self) -> str:
        """The text without what is only to be said: "… saying it looks fine", "comment on line 3: look here"."""
        for match in _SAYING.finditer(self.text):
            before = {word for word, _ in word_positions(self.text[: match.start()])}
            if not match.group().startswith(":") or WRITERS & before:
                return self.text[: match.start()]
        return self.text

    @cached_property
    def files(self) -> list[str]:
        text = _URL.sub(" ", self.text)
        found = [match.group() for match in _FILE.finditer(text)]
        abbreviations = {"e.g", "i.e"}
        return _unique(f for f in found if f not in abbreviations and any(c.isalpha() for c in f))

    @cached_property
    def folders(self) -> list[str]:
        """What stands after "in", "under", …, and looks like a place in a file system."""
        found = [match.group(1) for match in _WHERE.finditer(self.text)]
        return _unique(f for f in found if "/" in f or f.lower() in FOLDERS or f in self.files)

    @cached_property
    def urls(self) -> list[str]:
        return [url.rstrip(".,;:!?") for url in _URL.findall(self.text)]

    @cached_property
    def emails(self) -> list[str]:
        return _EMAIL.findall(self.text)

    @cached_property
    def hits(self) -> list[Hit]:
        return [
            Hit(m.group(1), int(m.group(2)), m.group(3))
            for m in _HIT.finditer("\n".join(result_lines(self.text)))
        ]

    @cached_property
    def numbers(self) -> list[float]:
        return [_number(found) for found in _NUMBER.findall(_IDENTIFIER.sub(" ", self.text))]

    def number_near(self, words: Collection[str]) -> float | None:
        """Return the number beside one of these (stemmed) words: "line 12", "limit=5", "3 days"."""
        for match in _NUMBER.finditer(self.text):
            before = [stem(w) for w in words_of(self.text[max(0, match.start() - 60) : match.start()])[-2:]]
            after = [stem(w) for w in words_of(self.text[match.end() : match.end() + 40])[:1]]
            if set(before[-1:] + after) & set(words) or (before[-1:] == ["of"] and set(before) & set(words)):
                return _number(match.group())
        return None

    def said_for(self, name: str) -> str | None:
        """Return what is given by name: "query=retry", "path: src"."""
        match = re.search(
            rf"\b{re.escape(name)}\s*[=:]\s*(?:[`\"']([^`\"'\n]+)[`\"']|([^\s,;]+))", self.text, re.IGNORECASE
        )
        return (match.group(1) or match.group(2)) if match else None

    def after(self, name: str) -> list[str]:
        """Return the words that follow a name: "branch main", "version 1.2.0"."""
        found = re.findall(rf"\b{re.escape(name)}\s+([\w./-]*\w)", self.bare, re.IGNORECASE)
        return [word for word in found if stem(word) not in STOP_WORDS]

    @cached_property
    def versions(self) -> list[str]:
        return re.findall(r"(?<![\w.])v?\d+(?:\.\d+)+(?:[-.]?(?:a|b|rc|dev|alpha|beta)\.?\d*)?", self.text)

    @cached_property
    def identifiers(self) -> list[str]:
        return _unique(i for i in _IDENTIFIER.findall(self.prose) if i not in self._without)

    @cached_property
    def names(self) -> list[str]:
        """Capitalised words, joined where they follow one another, but not the first word of a sentence."""
        found = re.findall(
            r"(?<![.!?:\n] )(?<!^)(?<!\w)[A-ZÀ-Ý][\w'’-]+(?: [A-ZÀ-Ý][\w'’-]+)*", self.bare.strip()
        )
        return _unique(re.sub(r"['’]s$", "", n) for n in found if n not in self._without and not n.isupper())

    @cached_property
    def after_for(self) -> list[str]:
        """Words after "for", "about", "containing", …"""
        found = [m.group(1) for m in _FOR.finditer(self.bare)]
        return _unique(w for w in found if stem(w) not in STOP_WORDS and w not in self._without)

    @cached_property
    def saying(self) -> list[str]:
        return [match.group(1).strip() for match in _SAYING.finditer(self.text)]

    @cached_property
    def content_words(self) -> list[str]:
        """The words that carry meaning, in their order."""
        words = [w for w in words_of(self.prose) if stem(w) not in STOP_WORDS and not w.isdigit()]
        return _unique(w for w in words if w not in self._without)

    @cached_property
    def data(self) -> dict[str, list[Any]]:
        """The values of a text that is JSON, by their (lower-case) keys, at any depth."""
        found: dict[str, list[Any]] = {}
        value = parse_json(self._whole)
        if isinstance(value, (dict, list)):
            _collect(value, found, depth=0)
        return found

    @cached_property
    def tokens(self) -> list[str]:
        """Everything between spaces, without punctuation around it."""
        return _unique(token.strip(".,;:!?()[]{}'\"`“”") for token in self.text.split())


def parse_json(text: str) -> Any:
    """Return the JSON value that a text is, or None."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def result_lines(text: str) -> list[str]:
    """Cut a result into its lines, or its items if it is JSON."""
    value = parse_json(text)
    if isinstance(value, list):
        return [item if isinstance(item, str) else json.dumps(item, ensure_ascii=False) for item in value]
    if isinstance(value, dict):
        return [f"{key}: {item}" for key, item in value.items()]
    return [line for line in text.splitlines() if line.strip()]


def _number(text: str) -> float:
    return float(text) if re.search(r"[.eE]", text) else int(text)


def _unique(found: Any) -> list[str]:
    return list(dict.fromkeys(f for f in found if f))


def _collect(value: Any, found: dict[str, list[Any]], depth: int) -> None:
    if depth > 6:
        return
    if isinstance(value, dict):
        for key, item in value.items():
            found.setdefault(key.lower(), []).append(item)
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, (dict, list)):
            _collect(item, found, depth + 1)
