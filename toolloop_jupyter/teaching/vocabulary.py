"""The English words that the demonstration model knows, and how it cuts words.

All sets hold stems (`stem()`), so that "searching" and "searches" meet "search".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_WORD = re.compile(r"[^\W\d_][\w'’-]*|\d+")


def stem(word: str) -> str:
    """Cut the commonest English endings."""
    word = word.lower().replace("’", "'").removesuffix("'s")
    for ending in ("ing", "ies", "ches", "shes", "sses", "ed", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            kept = {"ies": "y", "ches": "ch", "shes": "sh", "sses": "ss"}.get(ending, "")
            return word[: -len(ending)] + kept
    return word


def name_words(name: str) -> list[str]:
    """Split a name as programmers write it: search_code, readFile, HTTPGet."""
    return [stem(word) for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]


def word_positions(text: str) -> Iterator[tuple[str, int]]:
    """Yield (stemmed word, where it begins)."""
    for match in _WORD.finditer(text):
        yield stem(match.group()), match.start()


def words_of(text: str) -> list[str]:
    """Return the words as they are written, in their order."""
    return _WORD.findall(text)


def _stems(text: str) -> frozenset[str]:
    return frozenset(stem(word) for word in text.split())


STOP_WORDS = _stems("""
    a about after again all also an and any are as at be been before but by can could did do does don each else
    every everything few first for from get give had has have he her here him his how i if in into is it its just
    last let like make many may me might more most much must my need new no not now of off on one only or other our
    out over own please same say she should so some still such t tell than that the their them then there these
    they this those to too two up us very want was way we were what when where which who why will with would yes
    you your thing using without line file says mention named s hello hi thanks thank lot
""")
COMMANDS = _stems("""
    search find read review explain show tell list look open use call write post summarize summarise describe check
    give answer compare count run add compute calculate fetch get send leave comment tool fix see suggest suggestion
    print display return report repository code function value handle handled define defined used work happen
    implement implemented make do declare declared locate located mean match say think exist explanation briefly
    short sentence
""")
"""What is done, not what it is done to: no search terms."""
NEGATIONS = frozenset({"not", "no", "without", "never", "don", "dont", "don't", "skip"})
FOLDERS = frozenset(
    {"src", "lib", "test", "tests", "doc", "docs", "notebooks", "examples", "scripts", "data", "packages"}
)

LISTERS = _stems("search find list grep ls scan walk count glob")
"""Verbs of tools that go through many files, so that their `path` is a place to look in."""
WRITERS = _stems("post write send delete create update comment save remove publish submit commit")
READERS = _stems("read open show view load cat get fetch")
READ_ON = _stems("read review explain summarize summarise how why what understand describe")
"""Words of a prompt that wants more than a list of matches."""
WEAK = _stems("get fetch code file data tool run do make text item info set my the a of for")
"""Words of a tool's name that say little."""

ROLES: Mapping[str, frozenset[str]] = {
    "path": _stems("path file filename filepath folder dir directory document notebook"),
    "url": _stems("url uri link href"),
    "email": _stems("email mail"),
    "line": _stems("line lineno row"),
    "limit": _stems("limit top max maximum first n count"),
    "query": _stems("query pattern search term keyword q needle regex phrase topic symbol"),
    "place": _stems("city place location town country region name person user username author who"),
    "expression": _stems("expression formula equation calculation"),
    "version": _stems("version"),
    "text": _stems(
        "body message comment content note text title summary description reason subject answer explanation detail"
        " what finding problem issue remark"
    ),
}
"""Kinds of parameters -> words of their names."""

MEANT: Mapping[str, frozenset[str]] = {
    stem(verb): _stems(said)
    for verb, said in {
        "search": "find look grep locate where occur mention lookup query contain",
        "find": "search look locate where",
        "grep": "search find",
        "read": "open show view print content cat look",
        "open": "read show",
        "list": "show which enumerate",
        "write": "save create store",
        "post": "comment leave publish send add",
        "comment": "annotate remark note",
        "send": "mail email notify message",
        "delete": "remove drop erase",
        "add": "sum plus total",
        "multiply": "times product",
        "subtract": "minus difference",
        "divide": "divided quotient",
        "calculate": "compute calculator sum evaluate",
        "weather": "temperature rain warm cold sunny forecast wind umbrella degree",
        "forecast": "weather tomorrow rain",
        "time": "clock late",
        "date": "today day",
        "run": "execute",
        "count": "many number",
        "price": "cost expensive cheap",
        "translate": "translation",
    }.items()
}
"""Words of a tool's name -> words of a prompt that mean it."""
