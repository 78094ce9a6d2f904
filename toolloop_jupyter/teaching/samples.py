"""Values that a JSON schema allows, where nothing in the conversation says one: texts for a pattern or format, numbers.

`fits()` checks a value against the keywords that pydantic writes.
"""

from __future__ import annotations

import importlib
import math
import re
import sys
from collections.abc import Mapping
from typing import Any

FORMATS: Mapping[str, tuple[str, str]] = {
    "date": (r"\d{4}-\d\d-\d\d", "2000-01-01"),
    "date-time": (
        r"\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?",
        "2000-01-01T00:00:00Z",
    ),
    "time": (r"\d\d:\d\d(?::\d\d)?", "12:00:00"),
    "duration": (r"P(?=\w)(?:\d+D)?(?:T\w+)?", "PT1M"),
    "email": (r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+", "someone@example.org"),
    "uri": (r"https?://[^\s<>\"'`)\]]*[\w/]", "https://example.org/"),
    "uuid": (r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", "00000000-0000-4000-8000-000000000000"),
    "uuid4": (r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", "00000000-0000-4000-8000-000000000000"),
    "ipv4": (r"\d{1,3}(?:\.\d{1,3}){3}", "192.0.2.1"),
    "ipv6": (r"(?:[0-9a-f]{0,4}:){2,7}[0-9a-f]{1,4}", "2001:db8::1"),
    "hostname": (r"[\w-]+(?:\.[\w-]+)+", "example.org"),
    "json-string": (r"\{.*\}", "{}"),
}
"""format -> (what it looks like in a text, a value to fall back on)."""

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}
_MOST_ITEMS = 50
_CHARACTERS = "aA0_-. ,:/éЖ@"


def fits(schema: Mapping[str, Any], value: Any, definitions: Mapping[str, Any]) -> bool:
    """Say whether `value` is valid by the schema's types, limits, patterns, formats and enums."""
    schema = resolve(schema, definitions)
    if "const" in schema and value != schema["const"]:
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    options = schema.get("anyOf") or schema.get("oneOf")
    if options and not any(fits(option, value, definitions) for option in options):
        return False
    kinds = schema.get("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds or list(_TYPES)
    if not any(isinstance(value, _TYPES[k]) and (k == "boolean") == isinstance(value, bool) for k in kinds):
        return False
    if isinstance(value, bool) or value is None:
        return True
    if isinstance(value, str):
        return _text_fits(schema, value)
    if isinstance(value, (int, float)):
        return _number_fits(schema, value)
    if isinstance(value, list):
        return _list_fits(schema, value, definitions)
    return _object_fits(schema, value, definitions)


def _text_fits(schema: Mapping[str, Any], value: str) -> bool:
    if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", math.inf):
        return False
    known = FORMATS.get(str(schema.get("format")))
    if known and not re.fullmatch(known[0], value, re.IGNORECASE | re.DOTALL):
        return False
    pattern = schema.get("pattern")
    return pattern is None or _search(pattern, value)


def _search(pattern: str, value: str) -> bool:
    try:
        return re.search(pattern, value) is not None
    except re.error:  # a pattern of another dialect
        return True


def _number_fits(schema: Mapping[str, Any], value: float) -> bool:
    step = schema.get("multipleOf")
    return (
        schema.get("minimum", -math.inf) <= value <= schema.get("maximum", math.inf)
        and schema.get("exclusiveMinimum", -math.inf) < value < schema.get("exclusiveMaximum", math.inf)
        and (not step or math.isclose(value / step, round(value / step), abs_tol=1e-9))
    )


def _list_fits(schema: Mapping[str, Any], value: list[Any], definitions: Mapping[str, Any]) -> bool:
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", math.inf):
        return False
    if schema.get("uniqueItems") and any(item in value[:i] for i, item in enumerate(value)):
        return False
    fixed = schema.get("prefixItems") or []
    items = schema.get("items") if isinstance(schema.get("items"), Mapping) else {}
    schemas = [*fixed, *[items] * (len(value) - len(fixed))]
    return all(fits(s or {}, item, definitions) for s, item in zip(schemas, value, strict=False))


def _object_fits(schema: Mapping[str, Any], value: dict[str, Any], definitions: Mapping[str, Any]) -> bool:
    properties, more = schema.get("properties") or {}, schema.get("additionalProperties", True)
    if any(name not in value for name in schema.get("required") or ()):
        return False
    if not schema.get("minProperties", 0) <= len(value) <= schema.get("maxProperties", math.inf):
        return False
    if more is False and any(name not in properties for name in value):
        return False
    rest = more if isinstance(more, Mapping) else {}
    return all(fits(properties.get(name, rest), item, definitions) for name, item in value.items())


def resolve(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Follow `$ref` and merge `allOf`, one level."""
    merged = dict(schema)
    for _ in range(20):  # a chain of references that never ends is no schema
        reference = merged.pop("$ref", None)
        if reference is None:
            break
        merged = {**definitions.get(str(reference).rsplit("/", 1)[-1], {}), **merged}
    for part in merged.pop("allOf", None) or ():
        merged = {**resolve(part, definitions), **merged}
    return merged


def number(schema: Mapping[str, Any], wish: float = 1) -> float:
    """Return the number nearest to `wish` that the schema allows; an int where it asks for one."""
    whole = schema.get("type") == "integer"
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    step = schema.get("multipleOf") or (1 if whole else None)
    value: float = wish
    room = (below if below is not None else high if high is not None else math.inf) - (
        above if above is not None else 0
    )
    gap = 1 if whole else min(1.0, room / 2 if room > 0 else 1.0)
    low = low if above is None else max(low if low is not None else -math.inf, above + gap)
    high = high if below is None else min(high if high is not None else math.inf, below - gap)
    if low is not None:
        value = max(value, low)
    if high is not None:
        value = min(value, high)
    if step:
        value = math.ceil(value / step - 1e-9) * step
        if high is not None and value > high:
            value = math.floor(high / step + 1e-9) * step
    return round(value) if whole else value


def text(schema: Mapping[str, Any], wish: str = "example") -> str:
    """Return a text that the schema allows, `wish` if it can be."""
    for candidate in (wish, FORMATS.get(str(schema.get("format")), ("", ""))[1]):
        if candidate and _text_fits(schema, candidate):
            return candidate
    if schema.get("pattern"):
        made = matching(schema["pattern"], schema.get("minLength", 0))
        if made is not None:
            return made
    least, most = schema.get("minLength", 0), schema.get("maxLength", math.inf)
    padded = wish or "example"
    while len(padded) < least:
        padded += f" {wish or 'example'}"
    return padded[: int(min(most, max(least, len(padded))))]


def matching(pattern: str, least: int = 0) -> str | None:
    """Make a text that matches a regular expression, at least so long; None where that is beyond this generator."""
    # The parser of `re` is private: `sre_parse` up to Python 3.10, `re._parser` since. Its tree has been the same
    # from 3.8 to 3.14; without it a pattern would need a parser of its own here.
    parser: Any = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
    try:
        tree = parser.parse(pattern)
        for extra in (0, 1, 3, least):
            made = _make(tree, extra, {})
            if len(made) >= least and re.search(pattern, made):
                return made
    except (re.error, NotImplementedError, OverflowError):
        return None
    return None


def _make(tree: Any, extra: int, groups: dict[int, str]) -> str:
    """Walk the parsed pattern; repetitions run `extra` times over their least."""
    made = ""
    for operator, value in tree:
        name = str(operator)
        if name == "LITERAL":
            made += chr(value)
        elif name in ("ANY", "NOT_LITERAL"):
            made += "x" if name == "ANY" or value != ord("x") else "y"
        elif name == "IN":
            made += _character(value)
        elif name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            least, most, inner = value
            made += "".join(
                _make(inner, extra, groups) for _ in range(min(int(most), least + extra, _MOST_ITEMS * 4))
            )
        elif name == "SUBPATTERN":
            part = _make(value[-1], extra, groups)
            groups[value[0]] = part
            made += part
        elif name == "ATOMIC_GROUP":
            made += _make(value, extra, groups)
        elif name == "BRANCH":
            made += _make(value[1][0], extra, groups)
        elif name == "GROUPREF":
            made += groups.get(value, "")
        elif name not in (
            "AT",
            "ASSERT",
            "ASSERT_NOT",
        ):  # the result is checked, so look-arounds may be tried
            raise NotImplementedError(name)
    return made


def _character(options: Any) -> str:
    """Pick one character of a class such as [a-z]."""
    candidates: list[str] = [*_CHARACTERS, *map(chr, range(33, 127))]
    for candidate in candidates:
        inside = any(_in_class(str(operator), value, candidate) for operator, value in options)
        if inside is not (str(options[0][0]) == "NEGATE"):
            return candidate
    first: Any = options[0][1]
    return chr(first if isinstance(first, int) else first[0])


def _in_class(operator: str, value: Any, character: str) -> bool:
    if operator == "LITERAL":
        return bool(ord(character) == value)
    if operator == "RANGE":
        return bool(value[0] <= ord(character) <= value[1])
    if operator == "CATEGORY":
        kind = str(value).removeprefix("CATEGORY_")
        tests = {
            "DIGIT": character.isdigit(),
            "SPACE": character.isspace(),
            "WORD": character.isalnum() or character == "_",
        }
        return not tests[kind[4:]] if kind.startswith("NOT_") else tests[kind]
    return False
