"""The model "toolloop/demo". It follows rules and is not a language model, so it needs no API key and no network.

The model calls a tool if the prompt contains the tool's name, or words that fit the tool. Then the model answers with the
results. The same messages always get the same answer. In each process, the first answer in Markdown says that this is not a
language model. The line above a run says so for every run.

The arguments of a call, and an answer with a schema, are filled in from the conversation: a value is a quotation, a path, a
number beside the parameter's name, or a field with this name in a JSON result. If there is none, a value is made up from the
schema. Limits: for a `pattern`, only the schema's `examples` are tried. `if`, `not`, `allOf` and `patternProperties` are not
used to make up a value.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, NamedTuple

from ..core.events import read_content
from ..core.execution import MISSING
from ..core.models import Answers, Delta, ProviderRequest
from ..core.tools import resolve_reference
from . import registry
from .scripted import End, ScriptedTurn, call, count_words, make_parts, make_usage, reasoning, text

# --- values for a schema --------------------------------------------------------------------------------------

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
FORMATS = {  # format in a schema -> (a key of PATTERNS, or ""; a value to make up)
    "date": ("token", "2000-01-01"), "date-time": ("", "2000-01-01T00:00:00Z"), "time": ("", "12:00:00Z"),
    "email": ("email", "someone@example.org"), "uri": ("url", "https://example.org/"), "duration": ("", "PT1M"),
    "ipv4": ("token", "192.0.2.1"), "uuid": ("token", "00000000-0000-4000-8000-000000000000")}
ROLES = {"url": "url uri link href", "email": "email mail", "line": "line lineno row", "limit": "limit top max first n count",
         "path": "path file filename filepath folder dir directory document notebook",
         "text": "body message comment content note text title summary description reason answer"}


def stem(text: str) -> list[str]:
    """Return the words of a text or a name (readFile) in lower case, without common endings ("ing", "ed", "s")."""
    ending = r"(?<=...)(?:ing|(?<=[cs]h)es|(?<=ss)es|ed|(?<!s)s)$"
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+", text)
    return [re.sub(ending, "", word.lower()) for word in words]


# AKIN: groups of words that mean the same. WEAK, STOP_WORDS: words that say little. DULL: the words of all three; DULL words
# are not used as values.
AKIN = [stem(group) for group in ("price cost much", "search find grep look locate where mention contain query",
    "read open show view print cat explain review describe summarize", "write save create store", "subtract minus",
    "post comment leave publish send", "delete remove empty drop", "add sum plus total", "count many",
    "multiply times product", "divide quotient", "calculate compute", "weather rain warm forecast", "list show which")]
WEAK = {*stem("get fetch code file data tool run do make text item info set line first last value function")}
STOP_WORDS = {*stem("""a about after again all also an and any are as at be been but by can could did do does don each
    else every for from get give had has have he her here him his how i if in into is it its just let like make may me
    more most must my need new no not now of off on one only or other our out over own please same she should so
    some still than thank that the their them then there these they thing this those to too up us use using very want
    was way we were what when who will with without would yes you your hello hi lot""")}
DULL = STOP_WORDS | WEAK | {word for group in AKIN for word in group}
# fmt: on


def find_role(name: str) -> str:
    """Return the kind of value (a key of ROLES) for a parameter with the name `name`; "" if no kind fits the name."""
    return next((role for role, names_of_role in ROLES.items() if {*stem(name)} & {*stem(names_of_role)}), "")


def find(kind: str, text: str) -> list[str]:
    """Return the pieces of `text` that match the pattern `PATTERNS[kind]`, in the order of the text."""
    # Very long words are removed first, because the time of some patterns grows with the square of a word's length.
    text = re.sub(r"\S{300,}", " ", text[:20_000])
    hidden = {"path": URL, **dict.fromkeys(("identifier", "name", "term", "word"), f"{QUOTED}|{URL}|{PATH}")}
    matches = re.finditer(PATTERNS[kind], re.sub(hidden.get(kind, "$^"), " ", text))
    pieces = [next((group for group in match.groups() if group), match.group()) for match in matches]
    return [v if kind == "quoted" else re.sub(r"['’]s$|[.,;:!?]+$", "", v) for v in pieces if v.strip()]


def parse_json(text: str) -> Any:
    """Return the value of a JSON text; None if the text is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def split_result(text: str) -> list[str]:
    """Split a result into its lines or, if it is JSON, into its items."""
    value = parse_json(text)
    if isinstance(value, list):
        return [item if isinstance(item, str) else json.dumps(item, ensure_ascii=False) for item in value]
    return [f"{key}: {item}" for key, item in value.items()] if isinstance(value, dict) else text.splitlines()


def find_records(text: str) -> list[dict[str, Any]]:
    """Return the records in a result: objects of a JSON list, and lines of a search result (`src/x.py:41: for …`)."""
    value, hit = parse_json(text), r"\s*([\w./\\~-]{0,200}\w\.\w+):(\d{1,9})(?::\d+)?:?[ \t]*(.{0,1000})"
    objects = [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
    hits = [match for line in split_result(text)[:500] if (match := re.match(hit, line[:2000]))]
    return [*objects, *({"path": m[1], "line": int(m[2]), "text": m[3] or f"line {m[2]}"} for m in hits)]


@dataclass
class Filler:
    """Finds values for a schema in a prompt and in tool results. Later results are tried first."""

    prompt: str
    defs: Mapping[str, Any]
    results: Sequence[str] = ()
    answering: bool = False  # True: fill an answer, first from the results; False: fill a call's arguments
    story: str = ""  # a sentence that says what was done
    skip: set[str] = field(default_factory=set)  # words that are not used as values
    given: Mapping[str, Any] = field(default_factory=dict)  # a record in a result; its fields fill this item
    used: list[Any] = field(default_factory=list)

    def find_value(self, schema: Any, name: str = "", *, must: bool = True, depth: int = 0) -> Any:
        """Return a value from the texts if one fits the schema. If none fits: make one up if `must`, else return MISSING."""
        schema = self._resolve(schema)
        for value in (value for group in self._offer(schema, name, must=must) for value in group):
            if (value not in self.used or isinstance(value, bool)) and self.fits(schema, value):
                return value
        if not must or depth > 8:
            return MISSING
        if options := schema.pop("anyOf", None) or schema.pop("oneOf", None):
            real = [{**schema, **self._resolve(one)} for one in options if one.get("type") != "null"]
            real.sort(key=lambda one: "$ref" in json.dumps(one))  # last: members that refer to the union
            none = None if len(real) < len(options) else MISSING
            musts = [False, none is MISSING or (self.answering and depth < 2)]
            tries = (self.find_value(one, name, must=m, depth=depth + 1) for m in musts for one in real)
            return next((value for value in tries if value is not MISSING), none)
        if schema.get("type") == "object" or "properties" in schema:
            return self._fill_object(schema, depth)
        if schema.get("type") == "array":
            return self._fill_array(schema, name, depth)
        if not self.answering and find_role(name) in ("path", "url", "email"):
            return MISSING  # a made-up file or address would only mislead
        return next(
            (v for v in self._make_up(schema) if v not in self.used and self.fits(schema, v)), MISSING
        )

    def fits(self, schema: Mapping[str, Any], value: Any) -> bool:
        """Return whether a value fits the schema. If Python cannot read the schema's pattern, return True."""
        # `jsonschema` is imported here, and not at the top, because every notebook imports this module.
        kind = importlib.import_module("jsonschema").Draft202012Validator
        valid = kind({**schema, "$defs": self.defs}, format_checker=kind.FORMAT_CHECKER).is_valid
        try:
            return bool(valid(value))
        except re.error:
            return True

    def _resolve(self, schema: Any) -> dict[str, Any]:
        """Return a copy of a schema, with the definition in place of its `$ref`. A `$ref` without a definition is left out."""
        resolved = resolve_reference(schema, self.defs) if isinstance(schema, Mapping) else {}
        return {key: value for key, value in resolved.items() if key != "$ref"}

    def _offer(self, schema: Mapping[str, Any], name: str, *, must: bool) -> Iterator[Iterable[Any]]:
        """Yield groups of values that the texts contain. The most likely values come first."""
        role, kinds = find_role(name), schema.get("type", "" if {"anyOf", "oneOf"} & {*schema} else "string")
        asked, called = "" if self.answering else self.prompt, {*stem(name)}
        yield [schema["const"]] if "const" in schema else []
        yield [self.given[key] for key in (name, role or "text") if key in self.given]
        yield self._recall(name) if self.answering and not self.given else ()
        if asked and name:  # "branch=main"; also "branch main", if the name has no role
            after = rf"(?i)\b{re.escape(name)}\s*{'[=:]' if role else '[=: ]'}\s*([\w./@-]*\w)"
            yield [v for w in re.findall(after, asked) if w not in DULL for v in (parse_json(w), w)]
        if "enum" in schema or kinds == "boolean":
            words = stem(asked)
            yield [o for o in schema.get("enum", ()) if stem(str(o)) and {*stem(str(o))} <= {*words}]
            at = [i for i, word in enumerate(words) if word in called - STOP_WORDS]
            yield [not {"not", "no", "without", "never", "don"} & {*words[max(0, i - 3) : i]} for i in at]
        elif kinds in ("integer", "number"):
            near = "|".join({*called, *stem(ROLES[role] if role in ("line", "limit") else "")}) or "$^"
            beside = rf"(?i)\b(?:{near})\w*\W{{1,3}}(-?\d+(?:\.\d+)?)\b|(-?\b\d+(?:\.\d+)?) (?:{near})"
            for text in (self.prompt, *(self.results if self.answering else ())):
                yield [parse_json(a or b) for a, b in re.findall(beside, text[:20_000])]
            yield [one.get("line") for t in self.results for one in find_records(t) if role == "line"]
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
                yield [value for value in find(kind, self.prompt) if not {*stem(value)} & dull]
            paths = [path for text in self.results for path in find("path", text) if role == "path" and must]
            meant = {*stem(self.prompt)} - DULL - {"src", "py"}  # "the test file": a path with "test" first
            yield sorted(paths, key=lambda path: -len(meant & {*stem(path)}))
        yield self._recall(name) if must else ()

    def _recall(self, name: str) -> Iterator[Any]:
        """Yield the values of the key `name` in JSON results, at any depth."""
        left = [parse_json(text) for text in self.results if name]
        for value in left:
            yield from [value[name]] if isinstance(value, dict) and name in value else []
            left += value.values() if isinstance(value, dict) else value if isinstance(value, list) else []

    def _make_up(self, schema: Mapping[str, Any]) -> Iterator[Any]:
        """Yield values that are made up from the schema."""
        yield from [*(schema[key] for key in ["default"] if key in schema), *schema.get("examples", ())]
        # If the results have records, the last value of the schema's `enum` comes first.
        order = -1 if any(map(find_records, self.results)) else 1
        yield from [*schema.get("enum", [])[::order], None, bool(self.answering and self.results)]
        limits, step = [schema[key] for key in schema if "imum" in key.lower()], schema.get("multipleOf", 1)
        near = (n // step * step + m * step for n in [1, *limits] for m in (0, 1, -1, *range(2, 9)))
        yield from [*near, sum(limits) / max(1, len(limits))]
        least, most = schema.get("minLength", 0), schema.get("maxLength", 200)
        wish = FORMATS.get(schema.get("format", ""), ("", self.story or self.prompt.strip() or "example"))[1]
        wishes = [wish, *(f"example {number}" for number in range(2, 9))]
        yield from ((w * (least // len(w) + 1))[: max(least, min(most, len(w)))] for w in wishes)

    def _fill_object(self, schema: Mapping[str, Any], depth: int) -> Any:
        """Return an object with all required properties, or MISSING. A call has another property only if a value is found."""
        filled: dict[str, Any] = {}
        for key, one in (schema.get("properties") or {}).items():
            needed = key in schema.get("required", ())
            value = self.find_value(one, key, must=needed or self.answering, depth=depth + 1)
            if value is not MISSING:
                filled[key] = value
                self.used += [] if self.answering else [value]
            elif needed:
                return MISSING
        return filled

    def _fill_array(self, schema: Mapping[str, Any], name: str, depth: int) -> Any:
        """Return a list. Its items are the records in the results, or else the lines, or else values from the texts."""
        if fixed := schema.get("prefixItems"):
            made = [self.find_value(one, name, depth=depth + 1) for one in fixed]
            return MISSING if MISSING in made else made
        inner, made, least = self._resolve(schema.get("items")), [], schema.get("minItems", 0)
        most, text = schema.get("maxItems", 3 if self.answering else 20), inner.get("type") == "string"
        results = self.results if self.answering and not self.given else ()
        records = [one for t in results for one in find_records(t) if {*one} & {*inner.get("properties", ())}]
        lines = [line for t in results for line in split_result(t) if text and "path" not in name]
        items = [replace(self, given=one).find_value(inner, depth=depth + 1) for one in records]
        groups = (items, lines, *self._offer(inner, name.removesuffix("s") if text else "", must=True))
        for value in (value for group in groups if not made for value in group):
            made += [value] if len(made) < most and value not in made and self.fits(inner, value) else []
        least = least if made or self.results or depth > 1 else max(least, min(1, most))
        while len(made) < least:
            fresh = replace(self, used=[*self.used, *made]).find_value(inner, name, depth=depth + 1)
            made.append(self.find_value(inner, name, depth=depth + 1) if fresh is MISSING else fresh)
        return MISSING if MISSING in made else made


# --- what to call, and what to answer --------------------------------------------------------------------------

PACE, MOST_CALLS = 0.004, 5  # seconds for each word; the most calls in one turn
DISCLAIMER = "*This is a demonstration, not a language model: `toolloop/demo` follows a few rules. Choose a real model with `--model`.*"
WRITERS = {*stem("post write send delete create update comment save remove publish submit")}
EXPLAIN = re.compile(r"\b(explain|review|summari[sz]e|describe)\b", re.IGNORECASE)
RECALL = re.compile(r"\b(?:did|have|had|was|were|found|said|again)\b.*\?", re.IGNORECASE)
TRANSIENT = re.compile(r"again|temporar|time[d ]?-?\s?out|busy|unavailable|rate limit", re.IGNORECASE)
FAILED = re.compile(r"[\w.]*(Error|Exception|Timeout)\b|invalid arg|arguments are|unknown tool|This call")


class Step(NamedTuple):
    """One tool call and its result. Like any model, the demo model sees a failure or a denial only in the result's text."""

    name: str
    arguments: Mapping[str, Any]
    result: str

    @property
    def kind(self) -> str:
        """Either "ok", "error" or "denied"."""
        return "denied" if self.result[:6] == "denied" else "error" if FAILED.match(self.result) else "ok"

    def describe(self) -> str:
        """Return a sentence about the result, and the first lines of the result."""
        lines, value = [line[:160] for line in split_result(self.result)], parse_json(self.result)
        first = (lines or [""])[0].replace("`", "'")
        if self.kind == "denied":
            return f"I was not allowed to run `{self.name}`, so I left it: `{first.split('. ')[0]}`."
        if self.kind == "error":
            return f"`{self.name}` failed: `{first}`."
        if not any(lines) or self.result in ("null", "None"):
            return f"`{self.name}` found nothing."
        if len(lines) == 1:
            return f"`{self.name}` says: `{first}`"
        kind = "items" if isinstance(value, list) else "entries" if isinstance(value, dict) else "lines"
        path = next(iter(find("path", str(self.arguments))), ".text") if kind == "lines" else ".text"
        begins, fence = " and begins" * (len(lines) > 8), "````" if "```" in self.result else "```"
        block = [fence + path.rpartition(".")[2], *lines[:8], fence]
        return "\n".join([f"`{self.name}` returned {len(lines)} {kind}{begins}:\n", *block])


class Conversation:
    """The messages of a request, and the rules for the model's next step."""

    def __init__(self, request: ProviderRequest) -> None:
        self.prompts, self.unfilled, self.steps, self.earlier = [""], list[str](), list[Step](), list[Step]()
        results = {
            m.get("tool_call_id"): read_content(m.get("content"), "\n")
            for m in request.messages
            if m.get("role") == "tool"
        }
        for message in request.messages:
            if message.get("role") == "user":
                self.prompts.append(read_content(message.get("content"), "\n"))
                self.earlier, self.steps = self.earlier + self.steps, []
            for one in message.get("tool_calls") or ():
                sent = parse_json(one["function"].get("arguments") or "")
                sent = sent if isinstance(sent, dict) else {}
                self.steps.append(Step(one["function"]["name"], sent, results.get(one.get("id"), "")))
        self.prompt, self.choice = self.prompts[-1], request.options.get("tool_choice")
        self.tools = dict[str, dict[str, Any]]()
        for tool in (tool["function"] for tool in request.tools if "function" in tool):
            shape = {"type": "object", "properties": {}, **(tool.get("parameters") or {})}
            self.tools[tool["name"]] = {**shape, "description": f"{tool.get('description')} "}
        self.plain = not any(find(k, self.prompt) for k in ("quoted", "path", "number", "name", "identifier"))
        wanted: Any = request.options.get("response_format") or {}
        as_class = getattr(wanted, "model_json_schema", None)
        self.schema = as_class() if as_class else wanted.get("json_schema", {}).get("schema")

    def choose_call(self) -> tuple[str, dict[str, Any]] | None:
        """Return the next tool call as (tool name, arguments); None if there is no further call."""
        if self.choice == "none" or len(self.steps) >= MOST_CALLS:
            return None
        if self.steps and self.steps[-1].name in self.tools and (again := self._retry(self.steps[-1])):
            return again
        for name in [name for name in self._choose_tools() if name not in [step.name for step in self.steps]]:
            arguments = self._make_filler(name).find_value(self.tools[name])
            if arguments is not MISSING:
                return name, arguments
            self.unfilled.append(name)
        return None

    def _make_filler(self, name: str = "", story: str = "") -> Filler:
        """Return the Filler for the arguments of the tool `name`; if "", for an answer. No tool's name is used as a value."""
        schema, names = self.tools.get(name, self.schema or {}), "|".join(map(re.escape, self.tools)) or "$^"
        prompt = re.sub(rf"`?(?<![\w\"'])(?:{names})(?![\w\"'])(?:\(\))?`?", " ", self.prompt)
        good = [step.result for step in reversed(self.earlier + self.steps) if step.kind == "ok"]
        return Filler(prompt, schema.get("$defs", {}), good, not name, story, {*stem(name)})

    def _choose_tools(self) -> list[str]:
        """Return the names of the tools that the prompt asks for: first tools that only read; each kind in the prompt's order."""
        if isinstance(self.choice, Mapping):
            return [self.choice["function"]["name"]]
        if self.plain and self.earlier and RECALL.search(self.prompt):
            return []
        scores = {name: self._score(name) for name in self.tools}
        writers = [name for name in self.tools if WRITERS & {*stem(name)}]
        chosen = [name for name in scores if scores[name][0] >= 2]
        if chosen or (self.plain and len({*stem(self.prompt)} - STOP_WORDS) < 2):
            return sorted(chosen, key=lambda name: (name in writers, scores[name][1]))
        if re.match(r"(?i)(?:and|what about|how about|now)\b", self.prompt):  # "And in Bergen?"
            return [step.name for step in reversed(self.earlier) if step.name in self.tools][:1]
        best = sorted((-scores[name][0], name) for name in scores if name not in writers)
        return [name for score, name in best[:1] if score < 0 or (len(scores) == 1 and not self.plain)]

    def _score(self, name: str) -> tuple[float, int]:
        """Return (score, place): how well the prompt fits the tool, and the index of the prompt's first fitting word."""
        others, parts = {word for other in self.tools for word in stem(other)}, {*stem(name)}
        about = {*stem(self.tools[name]["description"] + " ".join(self.tools[name]["properties"]))} - WEAK
        stems = stem(" ".join(find("word", re.split(r"\b(?:saying|with the text)\b", self.prompt)[0])))
        if named := re.search(rf"(?<!\w){re.escape(name)}(?!\w)", self.prompt):
            stems.insert(len(stem(" ".join(find("word", self.prompt[: named.start()])))), name)
        score, place = 0.0, len(stems)
        for at, word in [(i, word) for i, word in enumerate(stems) if word not in {*STOP_WORDS, *stems[:i]}]:
            akin = word not in others and any(word in group and {*group} & parts for group in AKIN)
            strong = 9 if word == name else 3 if word in parts - WEAK else 2 if akin else 0
            if strong and {"not", "no", "without", "never", "don"} & {*stems[max(0, at - 2) : at]}:
                return 0, len(stems)
            score += strong or (word in parts) + (word in about) / 2
            place = min(place, at) if strong else place
        return score, place

    def _retry(self, failed: Step) -> tuple[str, dict[str, Any]] | None:
        """Return (tool name, arguments) for a second try of a failed call; None if no second try makes sense.

        One argument gets a similar value from the result. After a temporary error (TRANSIENT), the arguments stay unchanged.
        """
        count = [step.name for step in self.steps].count(failed.name)
        for key, value in failed.arguments.items() if failed.kind == "error" and count == 1 else ():
            texts = [failed.result, *(self._make_filler().results if find("path", str(value)) else [])]
            offered = find("quoted", failed.result) + find("path", "\n".join(texts))
            near = get_close_matches(str(value), [one for one in offered if one != value], 1, 0)
            if str(value) in failed.result and near:
                return failed.name, {**failed.arguments, key: near[0]}
        again = failed.kind == "error" and count == 1 and TRANSIENT.search(failed.result)
        return (failed.name, dict(failed.arguments)) if again else None

    def answer(self, *, first: bool) -> str:
        """Return the answer: JSON if there is a schema, else Markdown. If `first`, the Markdown says that this is a demo."""
        if self.schema:
            good = [step for step in self.earlier + self.steps if step.kind == "ok"][-2:]
            counts = [(s.name, len(split_result(s.result))) for s in good]
            done = ", then ".join(f"{name} returned {n} line{'s' * (n != 1)}" for name, n in counts)
            story = f"Demonstration: {(done or self.prompt[:80]).rstrip('.')}."
            value = self._make_filler(story=story).find_value(self.schema)
            return json.dumps({} if value is MISSING else value, ensure_ascii=False)
        lines, names, asked = list[str](), [step.name for step in self.steps], EXPLAIN.search(self.prompt)
        for number, step in enumerate(self.steps, 1):
            last = step.kind == "error" and step.name not in names[number:]
            lines.append(step.describe() + " I know no other way to call it." * last)
        lines += [f"I found no values for the arguments of `{name}`." for name in self.unfilled]
        if not lines and self.earlier:
            kept = ([step for step in self.earlier if step.kind == "ok"] or self.earlier)[-1]
            lines = [f"Before this you asked: “{self.prompts[-2][:160]}” I still have that:", kept.describe()]
        elif not lines:
            fit = f"None of my tools ({', '.join(self.tools)}) fits." if self.tools else "I have no tools."
            lines = [f"You wrote: “{self.prompt[:160]}”", fit]
        if asked:
            lines.append(f"I cannot {asked[0].lower()} that.")
        return "\n\n".join(lines + [DISCLAIMER] * first)


class DemoModel(Answers):
    """The rule-based demo model. Between two requests it remembers only whether it has said that it is a demo."""

    def __init__(self, pace: float = PACE) -> None:
        self.pace, self._introduced = pace, False

    async def respond(self, request: ProviderRequest) -> AsyncIterator[Delta]:
        """Stream a tool call, an answer in Markdown, or an answer in JSON."""
        talk = Conversation(request)
        number, wanted, sent = len(talk.earlier + talk.steps) + 1, talk.choose_call(), ""
        thought = f"The prompt fits {wanted[0]}." if wanted else "I have no further call to make."
        aloud = request.options.get("reasoning_effort") not in (None, "none")
        parts: list[Any] = [reasoning(thought)] * aloud
        if wanted:
            answer = f"{'Next' if talk.steps else 'First'} I'll call `{wanted[0]}`."
            sent = json.dumps(wanted[1], ensure_ascii=False)
            parts += [text(answer), call(wanted[0], sent).as_id(f"call_{number}")]
        else:
            answer = talk.answer(first=not self._introduced)
            self._introduced, parts = self._introduced or not talk.schema, [*parts, text(answer)]
        usage = make_usage(request.messages, count_words(f"{answer} {sent}"))
        turn = ScriptedTurn(number, request.messages, self.pace)
        async for delta in turn.answer(make_parts([*parts, End(usage=usage)])):
            yield delta


_demo = DemoModel()
_demo.model = registry.put("demo", _demo)
