"""Fill a JSON schema from what a conversation says: a tool's arguments, or a structured answer.

A value is taken from the texts where one fits: a quotation, a path, the number beside the parameter's name, a key of a
result in JSON. Without one, a valid value is made up by the schema. Limits: no text is made up for a `pattern` (an
example of the schema is taken), and `if`, `not` and `patternProperties` are not looked at.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

MISSING: Any = type("Missing", (), {"__repr__": lambda self: "MISSING"})()
# fmt: off
QUOTED = r"(?s:```[\w-]*\n(.+?)\n?```)|`([^`\n]+)`|\"([^\"\n]+)\"|“([^”\n]+)”|(?<!\w)'([^'\n]+)'(?!\w)"
PATH = r"(?<![\w@/.:-])(?:(?:[\w.~-]*/)*[\w-][\w.-]*\.[A-Za-z]\w{0,6}\b(?![/@])|(?=\S*[A-Za-z])(?:[\w.~-]+/)+[\w.-]*)"
URL = r"https?://[^\s<>\"'`)\]]*[\w/]"
PATTERNS = {  # kinds of evidence in a text
    "quoted": QUOTED, "path": PATH, "url": URL, "email": r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
    "number": r"(?<![\w.])-?\d{1,15}(?:\.\d{1,15})?(?![\w]|\.\d)",
    "expression": r"[\d(][\d\s.+*/()-]*[\d)]",
    "folder": r"(?i:\b(?:in|inside|under|from) (?:the )?(?:folder |directory )?[`\"']?([\w.~-]*/[\w./~-]*"
              r"|(?<=folder )\w+|(?<=directory )\w+|(?:src|lib|tests?|docs?|notebooks|examples|data)\b))",
    "saying": r"(?i:(?:\b(?:saying|says?|with the text)|:)\s+(?![`\"'“])([^\n]+))",
    "token": r"[^\s,;!?()\[\]{}'\"`“”=]+",
    # The others are looked for in the prose.
    "identifier": r"\b(?:[A-Za-z]+_\w+|[a-z]+[A-Z]\w*|[A-Z]{2,}\w*|[A-Za-z_]\w*(?=\(\)))",
    "name": r"(?<![.!?:\n] )(?<!^)(?<!\w)[A-ZÀ-Ý][a-zß-ÿ][\w'’-]*(?: [A-ZÀ-Ý][\w'’-]+)*",
    "term": r"(?i:\b(?:for|about|containing|mentions?|named|called|of) (?:(?:all|every|the|an?) )*([\w.-]*\w))",
    "word": r"[^\W\d_][\w'’-]*",
}
FORMATS = {  # a value of a format; others have digits at the same places
    "date": "2000-01-01", "date-time": "2000-01-01T00:00:00Z", "time": "12:00:00", "duration": "PT1M",
    "email": "someone@example.org", "uri": "https://example.org/", "ipv4": "192.0.2.1",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
# fmt: on


def stems(text: str) -> list[str]:
    """Return the words of a text, also of a name such as search_code or readFile, without the commonest endings."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+", text)
    ending = r"(?<=...)(?:ing|(?<=[cs]h)es|(?<=ss)es|ed|(?<!s)s)$"
    return [re.sub(ending, "", word.lower()) for word in words]


STOP_WORDS = set(
    stems("""a about after again all also an and any are as at be been but by can could did do does don
    each else every for from get give had has have he her here him his how i if in into is it its just let like make may
    me more most much must my need new no not now of off on one only or other our out over own please same she should so
    some still than thank that the their them then there these they thing this those to too up us use using very want
    was way we were what when who will with without would yes you your hello hi lot""")
)
COMMANDS = STOP_WORDS | set(
    stems("""which where many look mention search find read review explain show tell list open
    call write post summarize describe check answer compare count run add compute calculate fetch send comment tool say
    work print return report code file line function value match mean happen used define defined first last few""")
)
"""What is done, not what it is done to: no values."""
ROLES = {
    role: (set(stems(words)), kinds.split())
    for role, words, kinds in (
        ("url", "url uri link href", "url"),
        ("email", "email mail", "email"),
        ("path", "path file filename filepath folder dir directory document notebook", "path"),
        ("line", "line lineno row", ""),
        ("limit", "limit top max maximum first n count", ""),
        ("query", "query pattern search term keyword q needle regex symbol", "quoted identifier term word"),
        ("place", "city place location town country name person user username author who", "name quoted"),
        ("expression", "expression formula equation", "expression quoted"),
        ("text", "body message comment content note text title summary description reason answer", "quoted saying"),
        ("", "", ""),
    )
}  # fmt: skip
"""What a parameter wants -> (words of its name or description, kinds of evidence, the best first)."""


@lru_cache(maxsize=512)
def find(kind: str, text: str) -> tuple[str, ...]:
    """Return what a text holds of a kind of evidence, in its order."""
    text = re.sub(r"\S{300,}", " ", text[:20_000])  # some patterns take the square of a word's length
    text = prose(text) if kind in ("identifier", "name", "term", "word") else text
    found = []
    for match in re.finditer(PATTERNS[kind], re.sub(URL, " ", text) if kind == "path" else text):
        value = next((group for group in match.groups() if group), match.group())
        found.append(value if kind == "quoted" else re.sub(r"['’]s$|[.,;:!?]+$", "", value))
    return tuple(value for value in found if value.strip())


def prose(text: str) -> str:
    """Blank out quotations, addresses and paths."""
    return re.sub(f"{QUOTED}|{URL}|{PATH}", lambda match: " " * len(match.group()), text)


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
    return [f"{key}: {item}" for key, item in value.items()] if isinstance(value, dict) else text.splitlines()


def records_in(text: str) -> list[dict[str, Any]]:
    """Return the objects of a JSON list, and lines found in files (`src/x.py:41: for …`) as path, line and text."""
    value, hit = parse_json(text), r"\s*([\w./\\~-]{0,200}\w\.\w+):(\d{1,9})(?::\d+)?:?[ \t]*(.{0,1000})"
    objects = [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
    hits = [match for line in result_lines(text)[:500] if (match := re.match(hit, line[:2000]))]
    return [*objects, *({"path": m[1], "line": int(m[2]), "text": m[3] or f"line {m[2]}"} for m in hits)]


@dataclass
class Filler:
    """Fills schemas from a prompt and results (the latest first).

    `answering`: a structured answer, where results count first, not arguments, where the prompt does; then `story` says
    what was done. `skip` has stems that are no values, `given` the record that an item of a list is about.
    """

    prompt: str
    definitions: Mapping[str, Any]
    results: Sequence[str] = ()
    answering: bool = False
    story: str = ""
    skip: set[str] = field(default_factory=set)
    given: Mapping[str, Any] = field(default_factory=dict)
    used: list[Any] = field(default_factory=list)

    def value(self, schema: Any, name: str = "", *, must: bool = True, depth: int = 0) -> Any:
        """Return a valid value; MISSING without evidence for one, unless it `must` be had."""
        schema = self._resolve(schema)
        for value in (value for group in self._offers(schema, name, must) for value in group):
            if (value not in self.used or isinstance(value, bool)) and self.fits(schema, value):
                return value
        if depth > 8 or (depth > 2 and not must):
            return MISSING
        if options := schema.pop("anyOf", None) or schema.pop("oneOf", None):
            tries = [{**schema, **self._resolve(option)} for option in options]
            real = [option for option in tries if option.get("type") != "null"]
            real.sort(key=lambda option: "$ref" in json.dumps(option))  # a union may refer to itself
            sure = (self.value(option, name, must=False, depth=depth + 1) for option in real)
            if (value := next((v for v in sure if v is not MISSING), MISSING)) is not MISSING or not must:
                return value
            made = (self.value(option, name, depth=depth + 1) for option in real if len(real) == len(tries))
            return next((v for v in made if v is not MISSING), None if len(real) < len(tries) else MISSING)
        if schema.get("type") == "object" or "properties" in schema:
            return self._object(schema, must, depth)
        if schema.get("type") == "array":
            return self._array(schema, name, must, depth)
        made = self._made(schema) if must else iter(())
        return next((value for value in made if self.fits(schema, value)), MISSING)

    def fits(self, schema: Mapping[str, Any], value: Any) -> bool:
        """Say whether a value is valid."""
        jsonschema = importlib.import_module("jsonschema")  # late: every notebook imports this module
        try:
            whole = {**schema, "$defs": self.definitions}
            return bool(jsonschema.Draft202012Validator(whole).is_valid(value))
        except re.error:  # a pattern of another dialect
            return True

    def _resolve(self, schema: Any) -> dict[str, Any]:
        """Follow `$ref` and merge `allOf`."""
        merged = dict(schema) if isinstance(schema, Mapping) else {}
        for part in merged.pop("allOf", ()):
            merged = {**self._resolve(part), **merged}
        reference = str(merged.pop("$ref", "")).rsplit("/", 1)[-1]
        return {**self._resolve(self.definitions.get(reference)), **merged} if reference else merged

    def _offers(self, schema: Mapping[str, Any], name: str, must: bool) -> Iterator[Iterable[Any]]:
        """Yield groups of values that the texts offer, those with the best evidence first."""
        about, kinds = (
            (stems(name), stems(str(schema.get("description", ""))[:60])),
            schema.get("type", "string"),
        )
        role = next((role for words in about for role, (known, _) in ROLES.items() if known & set(words)), "")
        yield [schema["const"]] if "const" in schema else []
        yield [self.given[key] for key in (name.lower(), role or "text") if key in self.given]
        if self.answering and name and not self.given:
            yield self._recalled(name)
        elif name and not self.answering:  # "branch=main", and where the name tells no more: "branch main"
            after = r"\s*[=:]\s*" if role else r"(?:\s*[=:]\s*|\s+)"
            said = re.findall(rf"(?i)\b{re.escape(name)}{after}([\w./-]*\w)", self.prompt[:20_000])
            yield [one for word in said if word not in COMMANDS for one in (parse_json(word), word)]
        if "enum" in schema or kinds == "boolean":
            yield self._choices(schema, name)
        elif {"integer", "number"} & {*([kinds] if isinstance(kinds, str) else kinds)}:
            yield from self._numbers(name, role, must)
        elif "string" in kinds:
            yield from self._texts(schema, name, role, must)

    def _recalled(self, name: str) -> Iterator[Any]:
        """Yield the values under this key in results that are JSON, at any depth."""
        left = [parse_json(text) for text in self.results]
        for value in left:
            if isinstance(value, dict):
                yield from (v for k, v in value.items() if k.lower() == name.lower() and v is not None)
            if isinstance(value, (dict, list)):
                left += value.values() if isinstance(value, dict) else value

    def _choices(self, schema: Mapping[str, Any], name: str) -> Iterator[Any]:
        """Yield the options that the prompt names, or yes or no to what the parameter is called."""
        said = stems("" if self.answering else self.prompt)
        yield from (o for o in schema.get("enum", ()) if stems(str(o)) and {*stems(str(o))} <= {*said})
        for at in (at for at, word in enumerate(said) if word in {*stems(name)} - STOP_WORDS):
            yield not {"not", "no", "without", "never", "don"} & {*said[max(0, at - 3) : at]}

    def _numbers(self, name: str, role: str, must: bool) -> Iterator[Iterable[Any]]:
        """Yield numbers beside the parameter's name ("line 12", "4 retries"), then of hits, then any."""
        near = {*stems(name)} | (ROLES[role][0] if role in ("line", "limit") else set())
        for text in (self.prompt, *(self.results if self.answering else ())):
            words = ["", *(word.strip(".:") for word in find("token", text)), ""]
            beside = zip(words, words[1:], words[2:], strict=False)
            yield [parse_json(word) for a, word, b in beside if near & {*stems(f"{a} {b}")}]
        yield [r.get("line") for text in self.results for r in records_in(text) if role == "line"]
        yield [len(result_lines(text)) for text in self.results if role == "limit" and self.answering]
        if must:
            yield self._recalled(name)
            yield map(parse_json, () if self.answering else find("number", self.prompt))
            yield map(parse_json, self.results)

    def _texts(self, schema: Mapping[str, Any], name: str, role: str, must: bool) -> Iterator[Iterable[Any]]:
        """Yield texts by the shape of the format, else by the role of the parameter."""
        kinds, spare = ROLES[role][1], ["quoted", "identifier", "name", "term", "word"]
        if "format" in schema or "pattern" in schema:
            shape = re.sub(r"\d", "0", FORMATS.get(schema.get("format", ""), ""))
            words = [word for text in (self.prompt, *self.results) for word in find("token", text)]
            yield [w for w in words if "pattern" in schema or re.sub(r"\d", "0", w) == shape]
            spare = []
        if role == "path":  # one that may be left out says where to look
            folder = {"folder", "dir", "directory"} & {*stems(name)}
            kinds, spare = (
                ["folder"] * (not must or bool(folder)) + ["path"] * must,
                spare if self.answering else [],
            )
        if role == "text" and self.answering:
            yield [self.story]
        for kind in kinds + spare * must:
            dull = COMMANDS | self.skip if kind in ("name", "term", "word") else set()
            texts = (self.prompt, *(self.results if kind in ("url", "email") else ()))
            yield [value for text in texts for value in find(kind, text) if not {*stems(value)} & dull]
        if (
            must and role == "path"
        ):  # of those in results the one first that the prompt means: "the test file"
            paths = [path for text in self.results for path in find("path", text)]
            said = {*stems(self.prompt)} - {"src", "py", "file", "md", "txt"}
            yield sorted(paths, key=lambda path: -len(said & {*stems(path)}))
        yield (value for value in self._recalled(name) if must and isinstance(value, str))

    def _made(self, schema: Mapping[str, Any], number: int = 1) -> Iterator[Any]:
        """Yield values that are made up by the schema; `number` tells one from another."""
        yield from (schema[key] for key in ("default",) if key in schema)
        yield from schema.get("examples", ())
        leaning = (
            "change|reject|fail|fix|warn"
            if any(map(records_in, self.results))
            else "approve|accept|pass|good"
        )
        yield from sorted(
            schema.get("enum", ()), key=lambda option: not re.search(leaning, str(option).lower())
        )
        yield from (
            None,
            bool(self.answering and self.results),
            *FORMATS.get(schema.get("format", ""), "").split(),
        )
        keys, step = (
            ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
            schema.get("multipleOf", 1),
        )
        limits = [schema[key] for key in keys if key in schema]
        yield from (n // step * step + m * step for n in [number, *limits] for m in (0, 1, -1, 2))
        yield sum(limits) / max(1, len(limits))
        least, most = schema.get("minLength", 0), schema.get("maxLength", 200)
        wish = self.story or self.prompt.strip() or "example"
        wish = wish if number == 1 else f"example {number}"
        yield (wish * (least // len(wish) + 1))[: max(least, min(most, len(wish)))]

    def _object(self, schema: Mapping[str, Any], must: bool, depth: int) -> Any:
        properties, required = schema.get("properties") or {}, list(schema.get("required", ()))
        filled: dict[str, Any] = {}
        if not properties:
            records = [value for text in self.results if isinstance(value := parse_json(text), dict)]
            if self.answering and (fitting := [record for record in records if self.fits(schema, record)]):
                return fitting[0]
            required = [f"key_{i + 1}" for i in range(schema.get("minProperties", 0))]
            properties = {key: schema.get("additionalProperties") for key in required}
        for key, one in properties.items():
            value = self.value(one, key, must=must and key in required, depth=depth + 1)
            if value is not MISSING:
                filled[key] = value
                self.used += [] if self.answering else [value]
            elif key in required:
                return MISSING
        return filled if filled or must else MISSING

    def _array(self, schema: Mapping[str, Any], name: str, must: bool, depth: int) -> Any:
        if "prefixItems" in schema:
            items = [self.value(one, name, must=must, depth=depth + 1) for one in schema["prefixItems"]]
            return MISSING if MISSING in items else items
        inner, found, least = self._resolve(schema.get("items")), list[Any](), schema.get("minItems", 0)
        most = schema.get("maxItems", 3 if self.answering else 20)
        # The items come from one group: all that is quoted, say, and nothing else.
        for value in (v for group in self._items(inner, name, must, depth) if not found for v in group):
            if len(found) < most and value not in found and self.fits(inner, value):
                found.append(value)
        if not found and not must:
            return MISSING
        least = least if found or self.results or depth > 1 else max(least, min(1, most))
        while len(found) < least:
            first = self.value(inner, name, depth=depth + 1)
            others = (
                o for o in (first, *self._made(inner, len(found) + 1)) if o is not MISSING and o not in found
            )
            found.append(next((o for o in others if self.fits(inner, o)), first))
        return MISSING if MISSING in found else found

    def _items(self, inner: dict[str, Any], name: str, must: bool, depth: int) -> Iterator[Iterable[Any]]:
        """Yield groups of values that the conversation offers for the items of a list."""
        kind, keys = inner.get("type"), {key.lower() for key in inner.get("properties", ())}
        if kind == "object" or keys:
            found = [
                {k.lower(): v for k, v in one.items()} for text in self.results for one in records_in(text)
            ]
            records = [one for one in found if self.answering and not self.given and keys & set(one)]
            yield (replace(self, given=one).value(inner, depth=depth + 1) for one in records)
        else:
            if self.answering and kind == "string" and not ROLES["path"][0] & {*stems(name)}:
                yield (
                    line[: inner.get("maxLength", 200)]
                    for text in self.results
                    for line in result_lines(text)
                )
            yield from self._offers(inner, name.removesuffix("s") if kind == "string" else "", must)
