"""Fill a JSON schema with values from a conversation. The schema is for a tool's arguments or for a structured answer.

A value is a quotation, a path, a number beside the parameter's name, or the value of a key in a JSON result. If no value
fits, a value is made up from the schema. Limits: if the schema has a `pattern`, no value is made up from the pattern; only
the schema's `examples` are tried. The keywords `if`, `not`, `allOf` and `patternProperties` are not used to make up a value.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

MISSING: Any = type("Missing", (), {"__repr__": lambda self: "MISSING"})()
# fmt: off
QUOTED = r"(?s:```[\w-]*\n(.+?)\n?```)|`([^`\n]+)`|\"([^\"\n]+)\"|“([^”\n]+)”|(?<!\w)'([^'\n]+)'(?!\w)"
PATH = r"(?<![\w@/.:-])(?:(?:[\w.~-]*/)*[\w-][\w.-]*\.[A-Za-z]\w{0,6}\b(?![/@])|(?=\S*[A-Za-z])(?:[\w.~-]+/)+[\w.-]*)"
URL = r"https?://[^\s<>\"'`)\]]*[\w/]"
PATTERNS = {"quoted": QUOTED,  # kind of value -> how to find it in a text
    "path": PATH, "url": URL, "email": r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
    "number": r"(?<![\w.])-?\d{1,15}(?:\.\d{1,15})?(?![\w]|\.\d)", "token": r"[^\s,;!?()\[\]{}'\"`“”=]+",
    "expression": r"[\d(][\d\s.()]*[-+*/][\d\s.+*/()-]*[\d)]", "word": r"[^\W\d_][\w'’-]*",
    "folder": r"(?i:\b(?:in|inside|under|from) (?:the )?(?:folder |directory )?[`\"']?([\w.~-]*/[\w./~-]*"
              r"|(?<=folder )\w+|(?<=directory )\w+|(?:src|lib|tests?|docs?|notebooks|examples|data)\b))",
    "saying": r"(?i:(?:\b(?:saying|says?|with the text)|:)\s+(?![`\"'“])([^\n]+))",
    "identifier": r"\b(?:[A-Za-z]+_\w+|[a-z]+[A-Z]\w*|[A-Z]{2,}\w*|[A-Za-z_]\w*(?=\(\)))",
    "name": r"(?<![.!?:\n] )(?<!^)(?<!\w)[A-ZÀ-Ý][a-zß-ÿ][\w'’-]*(?: [A-ZÀ-Ý][\w'’-]+)*",
    "term": r"(?i:\b(?:for|about|containing|mentions?|named|called|of) (?:(?:all|every|the|an?) )*([\w.-]*\w))"}
FORMATS = {  # format -> (a key of PATTERNS, or ""; a value to make up)
    "date": ("token", "2000-01-01"), "date-time": ("", "2000-01-01T00:00:00Z"), "time": ("", "12:00:00Z"),
    "email": ("email", "someone@example.org"), "uri": ("url", "https://example.org/"), "duration": ("", "PT1M"),
    "ipv4": ("token", "192.0.2.1"), "uuid": ("token", "00000000-0000-4000-8000-000000000000")}
ROLES = {"url": "url uri link href", "email": "email mail", "line": "line lineno row", "limit": "limit top max first n count",
         "path": "path file filename filepath folder dir directory document notebook",
         "text": "body message comment content note text title summary description reason answer"}


def stems(text: str) -> list[str]:
    """Return the words of a text or a name (readFile) in lower case, without common endings ("ing", "ed", "s")."""
    ending = r"(?<=...)(?:ing|(?<=[cs]h)es|(?<=ss)es|ed|(?<!s)s)$"
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+", text)
    return [re.sub(ending, "", word.lower()) for word in words]


# AKIN: groups of words that mean the same. WEAK, STOP_WORDS: words that say little. DULL: the words of all three; DULL words
# are not used as values.
AKIN = [stems(group) for group in ("price cost much", "search find grep look locate where mention contain query",
    "read open show view print cat explain review describe summarize", "write save create store", "subtract minus",
    "post comment leave publish send", "delete remove empty drop", "add sum plus total", "count many",
    "multiply times product", "divide quotient", "calculate compute", "weather rain warm forecast", "list show which")]
WEAK = {*stems("get fetch code file data tool run do make text item info set line first last value function")}
STOP_WORDS = {*stems("""a about after again all also an and any are as at be been but by can could did do does don each
    else every for from get give had has have he her here him his how i if in into is it its just let like make may me
    more most must my need new no not now of off on one only or other our out over own please same she should so
    some still than thank that the their them then there these they thing this those to too up us use using very want
    was way we were what when who will with without would yes you your hello hi lot""")}
DULL = STOP_WORDS | WEAK | {word for group in AKIN for word in group}
# fmt: on


def role_of(name: str) -> str:
    """Return the kind of value (a key of ROLES) for a parameter with the name `name`; "" if no kind fits the name."""
    return next((role for role, known in ROLES.items() if {*stems(name)} & {*stems(known)}), "")


def find(kind: str, text: str) -> list[str]:
    """Return the pieces of `text` that match the pattern `PATTERNS[kind]`, in the order of the text."""
    # Very long words are removed first, since the time of some patterns grows with the square of a word's length.
    text = re.sub(r"\S{300,}", " ", text[:20_000])
    hidden = {"path": URL, **dict.fromkeys(("identifier", "name", "term", "word"), f"{QUOTED}|{URL}|{PATH}")}
    matches = re.finditer(PATTERNS[kind], re.sub(hidden.get(kind, "$^"), " ", text))
    found = [next((group for group in match.groups() if group), match.group()) for match in matches]
    return [v if kind == "quoted" else re.sub(r"['’]s$|[.,;:!?]+$", "", v) for v in found if v.strip()]


def parse_json(text: str) -> Any:
    """Return the value of a JSON text; None if the text is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def result_lines(text: str) -> list[str]:
    """Split a result into its lines or, if it is JSON, into its items."""
    value = parse_json(text)
    if isinstance(value, list):
        return [item if isinstance(item, str) else json.dumps(item, ensure_ascii=False) for item in value]
    return [f"{key}: {item}" for key, item in value.items()] if isinstance(value, dict) else text.splitlines()


def records_in(text: str) -> list[dict[str, Any]]:
    """Return the records in a result: objects of a JSON list, and lines of a search result (`src/x.py:41: for …`)."""
    value, hit = parse_json(text), r"\s*([\w./\\~-]{0,200}\w\.\w+):(\d{1,9})(?::\d+)?:?[ \t]*(.{0,1000})"
    objects = [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
    hits = [match for line in result_lines(text)[:500] if (match := re.match(hit, line[:2000]))]
    return [*objects, *({"path": m[1], "line": int(m[2]), "text": m[3] or f"line {m[2]}"} for m in hits)]


@dataclass
class Filler:
    """Finds values for a schema in a prompt and in tool results. Later results are tried first."""

    prompt: str
    defs: Mapping[str, Any]
    results: Sequence[str] = ()
    answering: bool = False  # True for an answer: its values come from the results, then from the prompt
    story: str = ""  # a sentence that says what was done
    skip: set[str] = field(default_factory=set)  # words that are not used as values
    given: Mapping[str, Any] = field(default_factory=dict)  # the record whose fields fill this item
    used: list[Any] = field(default_factory=list)

    def value(self, schema: Any, name: str = "", *, must: bool = True, depth: int = 0) -> Any:
        """Return a value that fits the schema: one from the texts; if `must` is true, else a made-up one; else MISSING."""
        schema = self._dereference(schema)
        for value in (value for group in self._offers(schema, name, must=must) for value in group):
            if (value not in self.used or isinstance(value, bool)) and self.fits(schema, value):
                return value
        if not must or depth > 8:
            return MISSING
        if options := schema.pop("anyOf", None) or schema.pop("oneOf", None):
            real = [{**schema, **self._dereference(one)} for one in options if one.get("type") != "null"]
            real.sort(key=lambda one: "$ref" in json.dumps(one))  # a union may refer to itself
            none = None if len(real) < len(options) else MISSING
            musts = [False, none is MISSING or (self.answering and depth < 2)]
            tries = (self.value(one, name, must=m, depth=depth + 1) for m in musts for one in real)
            return next((value for value in tries if value is not MISSING), none)
        if schema.get("type") == "object" or "properties" in schema:
            return self._object(schema, depth)
        if schema.get("type") == "array":
            return self._array(schema, name, depth)
        if not self.answering and role_of(name) in ("path", "url", "email"):
            return MISSING  # a made-up file or address would only mislead
        return next((v for v in self._made(schema) if v not in self.used and self.fits(schema, v)), MISSING)

    def fits(self, schema: Mapping[str, Any], value: Any) -> bool:
        """Return whether a value fits the schema. If Python cannot read the schema's pattern, return True."""
        # `jsonschema` is imported here, and not at the top, since every notebook imports this module.
        kind = importlib.import_module("jsonschema").Draft202012Validator
        valid = kind({**schema, "$defs": self.defs}, format_checker=kind.FORMAT_CHECKER).is_valid
        try:
            return bool(valid(value))
        except re.error:
            return True

    def _dereference(self, schema: Any) -> dict[str, Any]:
        merged = dict(schema) if isinstance(schema, Mapping) else {}
        reference = str(merged.pop("$ref", "")).rsplit("/", 1)[-1]
        return {**self._dereference(self.defs.get(reference)), **merged} if reference else merged

    def _offers(self, schema: Mapping[str, Any], name: str, *, must: bool) -> Iterator[Iterable[Any]]:
        """Yield groups of values that the texts contain. The most likely values come first."""
        role, kinds = role_of(name), schema.get("type", "" if {"anyOf", "oneOf"} & {*schema} else "string")
        asked, called = "" if self.answering else self.prompt, {*stems(name)}
        yield [schema["const"]] if "const" in schema else []
        yield [self.given[key] for key in (name, role or "text") if key in self.given]
        yield self._recalled(name) if self.answering and not self.given else ()
        if asked and name:  # "branch=main"; also "branch main", if the name has no role
            after = rf"(?i)\b{re.escape(name)}\s*{'[=:]' if role else '[=: ]'}\s*([\w./@-]*\w)"
            yield [v for w in re.findall(after, asked) if w not in DULL for v in (parse_json(w), w)]
        if "enum" in schema or kinds == "boolean":
            words = stems(asked)
            yield [o for o in schema.get("enum", ()) if stems(str(o)) and {*stems(str(o))} <= {*words}]
            at = [i for i, word in enumerate(words) if word in called - STOP_WORDS]
            yield [not {"not", "no", "without", "never", "don"} & {*words[max(0, i - 3) : i]} for i in at]
        elif kinds in ("integer", "number"):
            near = "|".join({*called, *stems(ROLES[role] if role in ("line", "limit") else "")}) or "$^"
            beside = rf"(?i)\b(?:{near})\w*\W{{1,3}}(-?\d+(?:\.\d+)?)\b|(-?\b\d+(?:\.\d+)?) (?:{near})"
            for text in (self.prompt, *(self.results if self.answering else ())):
                yield [parse_json(a or b) for a, b in re.findall(beside, text[:20_000])]
            yield [one.get("line") for t in self.results for one in records_in(t) if role == "line"]
            yield map(parse_json, (*find("number", asked), *self.results) if must else ())
        elif "string" in kinds:
            kinds = ["quoted", "expression", "identifier", "name", "term", "word"] * must
            if "pattern" in schema or schema.get("format") in FORMATS:
                kinds = [FORMATS.get(schema.get("format", ""), ("token", ""))[0]]
            elif role in ("url", "email"):
                kinds = [role]
            elif role == "path":  # an optional path says in which folder to look
                folder = {"folder", "dir", "directory", *["path"] * (not must)} & called
                kinds = ["folder"] * bool(folder) + ["path"] * must
            elif role == "text":
                yield [self.story] if self.answering else []
                kinds = ["quoted", "saying", *kinds]
            for kind in filter(None, kinds):
                dull = DULL | self.skip if kind in ("name", "term", "word") else set()
                yield [value for value in find(kind, self.prompt) if not {*stems(value)} & dull]
            paths = [path for text in self.results for path in find("path", text) if role == "path" and must]
            meant = {*stems(self.prompt)} - DULL - {"src", "py"}  # "the test file": a path with "test" first
            yield sorted(paths, key=lambda path: -len(meant & {*stems(path)}))
        yield self._recalled(name) if must else ()

    def _recalled(self, name: str) -> Iterator[Any]:
        """Yield the values of the key `name` in JSON results, at any depth."""
        left = [parse_json(text) for text in self.results if name]
        for value in left:
            yield from [value[name]] if isinstance(value, dict) and name in value else []
            left += value.values() if isinstance(value, dict) else value if isinstance(value, list) else []

    def _made(self, schema: Mapping[str, Any]) -> Iterator[Any]:
        """Yield values that are made up from the schema."""
        yield from [*(schema[key] for key in ["default"] if key in schema), *schema.get("examples", ())]
        # If the results have records, the last value of the schema's `enum` comes first.
        order = -1 if any(map(records_in, self.results)) else 1
        yield from [*schema.get("enum", [])[::order], None, bool(self.answering and self.results)]
        limits, step = [schema[key] for key in schema if "imum" in key.lower()], schema.get("multipleOf", 1)
        near = (n // step * step + m * step for n in [1, *limits] for m in (0, 1, -1, *range(2, 9)))
        yield from [*near, sum(limits) / max(1, len(limits))]
        least, most = schema.get("minLength", 0), schema.get("maxLength", 200)
        wish = FORMATS.get(schema.get("format", ""), ("", self.story or self.prompt.strip() or "example"))[1]
        wishes = [wish, *(f"example {number}" for number in range(2, 9))]
        yield from ((w * (least // len(w) + 1))[: max(least, min(most, len(w)))] for w in wishes)

    def _object(self, schema: Mapping[str, Any], depth: int) -> Any:
        """Return an object with its required properties; in an answer, or if the texts have a value, also with others."""
        filled: dict[str, Any] = {}
        for key, one in (schema.get("properties") or {}).items():
            needed = key in schema.get("required", ())
            value = self.value(one, key, must=needed or self.answering, depth=depth + 1)
            if value is not MISSING:
                filled[key] = value
                self.used += [] if self.answering else [value]
            elif needed:
                return MISSING
        return filled

    def _array(self, schema: Mapping[str, Any], name: str, depth: int) -> Any:
        """Return a list with an item for each record in the results, else all values of the first group that fits."""
        if fixed := schema.get("prefixItems"):
            found = [self.value(one, name, depth=depth + 1) for one in fixed]
            return MISSING if MISSING in found else found
        inner, found, least = self._dereference(schema.get("items")), [], schema.get("minItems", 0)
        most, text = schema.get("maxItems", 3 if self.answering else 20), inner.get("type") == "string"
        results = self.results if self.answering and not self.given else ()
        records = [one for t in results for one in records_in(t) if {*one} & {*inner.get("properties", ())}]
        lines = [line for t in results for line in result_lines(t) if text and "path" not in name]
        items = [replace(self, given=one).value(inner, depth=depth + 1) for one in records]
        groups = (items, lines, *self._offers(inner, name.removesuffix("s") if text else "", must=True))
        for value in (value for group in groups if not found for value in group):
            found += [value] if len(found) < most and value not in found and self.fits(inner, value) else []
        least = least if found or self.results or depth > 1 else max(least, min(1, most))
        while len(found) < least:
            fresh = replace(self, used=[*self.used, *found]).value(inner, name, depth=depth + 1)
            found.append(self.value(inner, name, depth=depth + 1) if fresh is MISSING else fresh)
        return MISSING if MISSING in found else found
