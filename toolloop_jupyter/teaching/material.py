"""What a conversation offers to fill in, and which kind of thing a parameter wants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .evidence import Evidence, Hit
from .vocabulary import LISTERS, ROLES, name_words, word_positions

_FILE_WORDS = {"src", "py", "file", "md", "txt"}
_ORDINALS = {"second": 1, "third": 2, "fourth": 3, "last": -1}


@dataclass(frozen=True)
class Material:
    """What the conversation offers, the best first."""

    prompt: Evidence
    results: tuple[Evidence, ...] = ()
    """Tool results of this turn, the latest first."""
    earlier: tuple[Evidence, ...] = ()
    """Results and prompts of earlier turns, the latest first."""
    hint: Evidence | None = None
    """An error to do better than."""
    story: str = ""
    """A sentence about what has been done, for fields such as `summary`."""
    failed: bool = False

    @property
    def found(self) -> tuple[Evidence, ...]:
        return self.results + self.earlier

    @property
    def hits(self) -> list[Hit]:
        return [hit for evidence in self.found for hit in evidence.hits]


def role_of(name: str, schema: Mapping[str, Any]) -> str:
    """Say what kind of thing a parameter wants, by its name, else by its description."""
    for words in (name_words(name), name_words(str(schema.get("description", "")))[:8]):
        for role, known in ROLES.items():
            if known & set(words):
                return role
    return ""


def meant_files(prompt: Evidence, found: tuple[Evidence, ...]) -> list[str]:
    """The files of earlier results, the one first that the prompt means: "the test file", "the second match"."""
    hits = list(dict.fromkeys(hit.path for evidence in found for hit in evidence.hits))
    files = list(dict.fromkeys(file for evidence in found for file in evidence.files if is_file(file)))
    said = {word for word, _ in word_positions(prompt.text)}
    nth = next((number for word, number in _ORDINALS.items() if word in said), 0)
    picked = hits[nth : nth + 1] if nth >= 0 else hits[nth:]
    if nth == 0:
        hits.sort(key=lambda path: -len(said & (set(name_words(path)) - _FILE_WORDS)))
        picked = []
    return list(dict.fromkeys([*picked, *hits, *files]))


def is_file(path: str) -> bool:
    """Say whether a path ends in a name with an ending."""
    return "." in path.rsplit("/", 1)[-1].strip(".")


def is_lister(name: str) -> bool:
    """Say whether a tool of this name goes through many files, so that its `path` is a place to look in."""
    return bool(LISTERS & set(name_words(name)))
