"""Fill a JSON schema from what a conversation says: a tool's arguments, or a structured answer.

`Filler.value(…, sure=True)` takes only what has evidence (the word after "line", a file name for `path`, a quoted
text for `query`); with `sure=False` something valid is made up where there is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from . import samples
from .evidence import parse_json, result_lines
from .material import Material, is_file, meant_files, role_of
from .vocabulary import COMMANDS, NEGATIONS, ROLES, name_words, stem, word_positions

MISSING: Any = type("Missing", (), {"__repr__": lambda self: "MISSING"})()
_DEEPEST = 6
_MOST_LOOKS = 3000

_FLAG_WORDS = {"is", "use", "with", "include", "enable", "be", "the", "do"}
_BAD, _GOOD = (
    ("change", "reject", "fail", "fix", "warn"),
    ("approve", "accept", "pass", "ok", "good", "comment"),
)


@dataclass
class Filler:
    """One filling. `lists` says that the tool goes through folders; `avoid` has values that failed, by parameter."""

    material: Material
    definitions: Mapping[str, Any]
    answering: bool = False
    """Fill a structured answer (results count first) rather than a tool's arguments (the prompt counts first)."""
    lists: bool = False
    avoid: Mapping[str, list[Any]] = field(default_factory=dict)
    given: Mapping[str, Any] = field(default_factory=dict)
    """Values that are known by role or by name: of the hit or the record that an item of a list is about."""
    used: list[Any] = field(default_factory=list)
    spent: frozenset[str] = frozenset()
    """Quotations of the prompt that earlier calls of this turn have used up."""
    skip: frozenset[str] = frozenset()
    """Stemmed words (of the tool itself) that are no search terms."""
    budget: list[int] = field(default_factory=lambda: [_MOST_LOOKS])
    """How many more values are looked for; a schema that refers to itself many times over could go on for ever."""

    def arguments(self, schema: Mapping[str, Any]) -> dict[str, Any] | None:
        """Fill a tool's arguments; None when a required one cannot be had."""
        schema = samples.resolve(schema, self.definitions)
        required, filled = schema.get("required") or (), {}
        for name, one in (schema.get("properties") or {}).items():
            value = self.value(one, name, sure=True)
            if value is MISSING and name in required:
                value = self.value(one, name, sure=False)
                if value is MISSING:
                    return None
            if value is not MISSING:
                filled[name] = value
                self.used.append(value)
        return filled

    def again(self, schema: Mapping[str, Any], failed: Mapping[str, Any]) -> dict[str, Any]:
        """Fill a tool's arguments once more: other values for those in `avoid`, where there is evidence for one."""
        schema = samples.resolve(schema, self.definitions)
        arguments, properties = dict(failed), schema.get("properties") or {}
        for name in self.avoid:
            value = self.value(properties.get(name) or {}, name, sure=True)
            if value is not MISSING:
                arguments[name] = value
        for name in set(schema.get("required") or ()) - set(arguments):
            value = self.value(properties.get(name) or {}, name, sure=False)
            if value is not MISSING:
                arguments[name] = value
        return arguments

    def value(self, schema: Mapping[str, Any], name: str, *, sure: bool, depth: int = 0) -> Any:
        """Return a valid value, or MISSING."""
        self.budget[0] -= 1
        if sure and self.budget[0] < 0:
            return MISSING
        schema = samples.resolve(schema, self.definitions)
        if "const" in schema:
            return schema["const"]
        for value in self._known(name, schema):
            if self._takes(schema, name, value):
                return value
        if not self.answering:  # the prompt counts more than an earlier result that has a key of this name
            value = self._by_kind(schema, name, sure=True, depth=depth)
            if value is not MISSING or (sure and self.material.hint):
                return value
        for value in self._recalled(name) if self.answering or not sure else ():
            if self._takes(schema, name, value):
                return value
        return MISSING if sure and not self.answering else self._by_kind(schema, name, sure=sure, depth=depth)

    def _by_kind(self, schema: Mapping[str, Any], name: str, *, sure: bool, depth: int) -> Any:
        options = schema.get("anyOf") or schema.get("oneOf")
        if options:
            return self._option(options, name, sure=sure, depth=depth, outer=schema)
        if "enum" in schema:
            return self._choice(schema, sure=sure)
        kinds = schema.get("type")
        kind = kinds if isinstance(kinds, str) else next((k for k in kinds or () if k != "null"), "")
        if kind == "object" or (not kind and "properties" in schema):
            return self._object(schema, name, sure=sure, depth=depth)
        if kind == "array":
            return self._array(schema, name, sure=sure, depth=depth)
        if kind == "boolean":
            return self._flag(name, schema, sure=sure)
        if kind in ("integer", "number"):
            return self._number(schema, name, sure=sure)
        if kind == "null":
            return MISSING if sure else None
        return self._text(schema, name, sure=sure)

    def _takes(self, schema: Mapping[str, Any], name: str, value: Any) -> bool:
        return value not in self.avoid.get(name, ()) and samples.fits(schema, value, self.definitions)

    def _known(self, name: str, schema: Mapping[str, Any]) -> Iterator[Any]:
        """Yield what is given under this name, here or in the prompt."""
        for key in (name, role_of(name, schema)):
            if key in self.given:
                yield self.given[key]
        if not role_of(name, schema) and "text" in self.given:
            yield self.given["text"]
        if not self.answering:
            said = self.material.prompt.said_for(name)
            if said is not None:
                yield from (said, parse_json(said))

    def _recalled(self, name: str) -> Iterator[Any]:
        """Yield the values under this key in results that are JSON."""
        for evidence in self.material.found:
            for key in (name.lower(), name.lower().replace("_", "")):
                yield from (value for value in evidence.data.get(key, ()) if value is not None)

    def _option(
        self, options: list[dict[str, Any]], name: str, *, sure: bool, depth: int, outer: Mapping[str, Any]
    ) -> Any:
        about = {key: outer[key] for key in ("description", "title") if key in outer}
        real = [{**about, **option} for option in options if option.get("type") != "null"]
        for option in real:
            value = self.value(option, name, sure=True, depth=depth + 1)
            if value is not MISSING:
                return value
        if sure:
            return MISSING
        if len(real) < len(options):
            return None
        # The shallowest one last tried: a union may refer to itself.
        for option in sorted(real, key=lambda o: "$ref" in o):
            value = self.value(option, name, sure=False, depth=depth + 1)
            if value is not MISSING:
                return value
        return MISSING

    def _choice(self, schema: Mapping[str, Any], *, sure: bool) -> Any:
        options = schema["enum"]
        texts = [self.material.prompt] if not self.answering else []
        for evidence in ([self.material.hint] if self.material.hint else []) + texts:
            said = [word for word, _ in word_positions(evidence.text)]
            for option in options:
                words = [stem(word) for word in re.findall(r"\w+", str(option).replace("_", " "))]
                if words and all(word in said for word in words):
                    return option
        if sure and not self.answering:
            return MISSING
        if "default" in schema:
            return schema["default"]
        leaning = _BAD if self.material.failed or self.material.hits else _GOOD
        return next((o for word in leaning for o in options if word in str(o).lower()), options[0])

    def _object(self, schema: Mapping[str, Any], name: str, *, sure: bool, depth: int) -> Any:
        properties = schema.get("properties") or {}
        if not properties:
            return self._mapping(schema, sure=sure)
        required, filled = set(schema.get("required") or ()), {}
        for key, one in properties.items():
            must = key in required
            if depth > _DEEPEST and not must:
                continue
            value = self.value(one, key, sure=not (must and not sure), depth=depth + 1)
            if value is not MISSING:
                filled[key] = value
            elif must:
                return MISSING
        return filled

    def _mapping(self, schema: Mapping[str, Any], *, sure: bool) -> Any:
        for evidence in self.material.found:
            record = parse_json(evidence.text)
            if isinstance(record, dict) and samples.fits(schema, record, self.definitions):
                return record
        if sure:
            return MISSING
        inner = schema.get("additionalProperties")
        inner = inner if isinstance(inner, Mapping) else {}
        keys = [f"key_{i + 1}" for i in range(schema.get("minProperties", 0))]
        return {key: self.value(inner, key, sure=False, depth=_DEEPEST) for key in keys}

    def _array(self, schema: Mapping[str, Any], name: str, *, sure: bool, depth: int) -> Any:
        least, most = schema.get("minItems", 0), schema.get("maxItems", 3 if self.answering else 20)
        if schema.get("prefixItems"):
            items = [self.value(s, name, sure=sure, depth=depth + 1) for s in schema["prefixItems"]]
            return items if MISSING not in items else MISSING
        inner = samples.resolve(schema.get("items") or {}, self.definitions)
        found: list[Any] = []
        for value in self._items(inner, name, depth):
            if len(found) < most and value is not MISSING and samples.fits(inner, value, self.definitions):
                found += [value] if value not in found else []
        if not found and sure:
            return MISSING
        if not found and not least and self.answering and not self.material.found and depth <= 1:
            least = min(1, most)
        while len(found) < least:
            value = self._another(inner, name, found, depth)
            if value is MISSING:
                return MISSING
            found.append(value)
        return found

    def _another(self, inner: Mapping[str, Any], name: str, found: list[Any], depth: int) -> Any:
        """Make up one more item, different from the others where that can be."""
        if depth > _DEEPEST:
            return MISSING
        taken = [v for item in found if isinstance(item, dict) for v in item.values() if isinstance(v, str)]
        value = replace(self, used=taken).value(inner, name, sure=False, depth=depth + 1)
        if value not in found:
            return value
        others = list(inner.get("enum") or ())
        if isinstance(value, str):
            others.append(
                samples.text(inner, f"{value[: int(inner.get('maxLength', 80)) - 3]} {len(found) + 1}")
            )
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            others.append(samples.number(inner, value + len(found) * (inner.get("multipleOf") or 1)))
        fitting = (o for o in others if o not in found and samples.fits(inner, o, self.definitions))
        return next(fitting, value)

    def _items(self, inner: Mapping[str, Any], name: str, depth: int) -> Iterator[Any]:
        """Yield what the conversation offers as items of a list."""
        if depth > _DEEPEST:
            return
        kind = inner.get("type")
        if "enum" in inner:
            said = {word for word, _ in word_positions(self.material.prompt.text)}
            yield from (o for o in inner["enum"] if stem(str(o)) in said)
        elif kind == "object" or "properties" in inner:
            for given in () if self.given else self._records(inner):
                item = replace(self, given=given, used=[])
                yield item.value(inner, name, sure=False, depth=depth + 1)
        elif kind in ("integer", "number"):
            yield from self.material.prompt.numbers
        elif kind == "string" or not kind:
            singular = name.removesuffix("s")
            if self.answering and self.material.results and role_of(singular, inner) not in ("path", "place"):
                for evidence in self.material.results:
                    yield from (samples.text(inner, line) for line in result_lines(evidence.text))
            yield from self._texts(inner, singular)

    def _records(self, inner: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield what each item of a list of objects is about: a record of a JSON result, or a hit in a file."""
        properties = {name.lower() for name in inner.get("properties") or ()}
        for evidence in self.material.found if self.answering else ():
            records = parse_json(evidence.text)
            for record in records if isinstance(records, list) else ():
                if isinstance(record, dict) and properties & {key.lower() for key in record}:
                    yield {key.lower(): value for key, value in record.items()}
        roles = {role_of(name, one) for name, one in (inner.get("properties") or {}).items()}
        if self.answering and roles & {"path", "line"}:
            for hit in self.material.hits:
                yield {"path": hit.path, "line": hit.line, "text": hit.text or f"line {hit.line}"}

    def _flag(self, name: str, schema: Mapping[str, Any], *, sure: bool) -> Any:
        wanted = {word for word in name_words(name) if word not in _FLAG_WORDS}
        said = [word for word, _ in word_positions(self.material.prompt.text)]
        for i, word in enumerate(said):
            if word in wanted and not self.answering:
                return not NEGATIONS & set(said[max(0, i - 3) : i])
        if sure and not self.answering:
            return MISSING
        if self.answering and wanted & {"ok", "success", "found", "pas", "pass", "done"}:
            return bool(self.material.found) and not self.material.failed
        return bool(schema.get("default", False))

    def _number(self, schema: Mapping[str, Any], name: str, *, sure: bool) -> Any:
        role, words = role_of(name, schema), set(name_words(name))
        words |= ROLES[role] if role in ("line", "limit") else set()
        sources = [self.material.prompt, *(self.material.found if self.answering else ())]
        for near in (evidence.number_near(words) for evidence in sources):
            if near is not None and self._takes(schema, name, near):
                return near
        if role == "line":
            for hit in self.material.hits:
                if self._takes(schema, name, hit.line):
                    return hit.line
        if self.answering and role == "limit" and self.material.results:
            return samples.number(schema, len(result_lines(self.material.results[0].text)))
        if sure and not self.answering:
            return MISSING
        for number in () if self.answering else self.material.prompt.numbers:
            if number not in self.used and self._takes(schema, name, number):
                return number
        return samples.number(schema, schema.get("default") or 1)

    def _text(self, schema: Mapping[str, Any], name: str, *, sure: bool) -> Any:
        for value in self._texts(schema, name):
            if value not in self.used and self._takes(schema, name, value):
                return value
        role = role_of(name, schema)
        if sure and not (self.answering and role == "text"):
            return MISSING
        if role == "text" and self.material.story:
            return samples.text(schema, self.material.story)
        if not self.answering and role in ("path", "url", "email"):
            return MISSING  # a made-up file or address would only mislead
        prompt = self.material.prompt
        for value in (
            *prompt.quoted,
            *prompt.identifiers,
            *prompt.names,
            *self._terms(),
            *prompt.content_words,
        ):
            if value not in self.used and self._takes(schema, name, value):
                return value
        examples = schema.get("examples") or ()
        wish = (
            schema.get("default") or next(iter(examples), None) or (self.material.story or prompt.text)[:80]
        )
        return samples.text(schema, str(wish or "example"))

    def _terms(self) -> list[str]:
        """Words of the prompt that may be searched for."""
        prompt = self.material.prompt
        words = [*prompt.after_for, *prompt.content_words]
        return [word for word in words if stem(word) not in COMMANDS | self.skip]

    def _texts(self, schema: Mapping[str, Any], name: str) -> Iterator[str]:
        """Yield texts with evidence, by the role of the parameter, the best first."""
        role, prompt, hint = role_of(name, schema), self.material.prompt, self.material.hint
        if hint:
            yield from (*hint.quoted, *hint.files)
        known = samples.FORMATS.get(str(schema.get("format")))
        for evidence in (prompt, *self.material.found):
            if known:
                yield from re.findall(known[0], evidence.text, re.IGNORECASE)
            if schema.get("pattern"):
                yield from (t for t in evidence.tokens if samples.fits(schema, t, {}))
        if known and role not in ("path", "url"):
            return
        if role == "path":
            yield from self._paths(name)
        elif role == "url":
            yield from (url for evidence in (prompt, *self.material.found) for url in evidence.urls)
        elif role == "email":
            yield from (mail for evidence in (prompt, *self.material.found) for mail in evidence.emails)
        elif role == "query":
            yield from (*prompt.quoted, *prompt.identifiers, *self._terms())
        elif role == "place":
            yield from (*prompt.names, *prompt.quoted)
        elif role == "version":
            yield from prompt.versions
        elif role == "expression":
            yield from (*re.findall(r"[\d(][\d\s.+*/()-]*[\d)]", prompt.text), *prompt.quoted)
        elif role == "text" and not self.answering:
            yield from sorted((q for q in prompt.quoted if q not in self.spent), key=len, reverse=True)
            yield from prompt.saying
            yield from (f"Please look at this line: `{hit.text}`" for hit in self.material.hits[:1])
        elif not role and not self.answering:
            yield from (*prompt.after(name), *prompt.quoted)

    def _paths(self, name: str) -> Iterator[str]:
        prompt = self.material.prompt
        if self.lists or {"folder", "dir", "directory"} & set(name_words(name)):
            yield from prompt.folders
            return
        yield from (file for file in prompt.files if is_file(file))
        yield from meant_files(prompt, self.material.found)
        yield from (file for file in prompt.files if not file.endswith("/"))
