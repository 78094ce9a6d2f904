"""Check a server's JSON schema, rewrite the schema for the model, and check arguments against it.

The schema comes from outside and may be hostile. So its references are never fetched from the network, its size is limited, and
patterns that could take very long are not tried.
"""

from __future__ import annotations

import difflib
import functools
import json
import re
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

import jsonschema
from jsonschema.protocols import Validator
from jsonschema.validators import extend, validator_for
from referencing import Registry

from ..core.execution import Raised, attempt_call
from ..core.text import is_deeper, make_wire_name, plain
from ..core.tools import (
    ArgumentsByKey,
    InvalidArguments,
    JsonArguments,
    JsonObject,
    JsonSchema,
    adapt_schema,
    map_schema,
    parse_arguments,
    shorten_json,
    walk_schema,
    write_path,
)

LONGEST = 100_000
"""How many characters a schema may have. The longest schemas of real servers have several thousand characters."""
MOST_PARTS = 2_000
"""How many schemas a schema may contain. The outer schema counts, too. The check of each schema takes a millisecond."""
_LONGEST_CHAIN = 50
"""How many references may follow each other: a `$ref` to a part that is a `$ref` again, and so on."""
_MOST = 10  # the most problems that one message lists
_TYPES = {
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "string": "a string",
    "array": "an array",
    "object": "an object",
    "null": "null",
}
_KEY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
"""Matches the names that all providers accept for a property."""
_BY_NAME = frozenset(
    ("dependentRequired", "dependentSchemas", "dependencies", "if", "then", "else", "propertyNames")
)
"""Keywords of a schema that contain names of arguments. If an argument gets a new name, these keywords are removed at the top
level of the schema, since they contain the old name."""
_NEWEST = "https://json-schema.org/draft/2020-12/schema"
_MOST_PATTERN = 200
"""If a pattern has more characters, it is not tried."""


class UnusableSchema(ValueError):
    """Raised if a tool with this schema cannot be offered to a model. The text contains the reason."""


def check_schema(schema: JsonSchema) -> None:
    """Raise UnusableSchema if providers refuse this schema, or if arguments cannot be checked against it."""
    if is_deeper(schema):
        raise UnusableSchema("its schema is nested too deep")
    if isinstance(attempt_call(_write, schema), Raised):
        raise UnusableSchema("its schema has a text or a number that JSON does not have")
    size = len(json.dumps(schema))
    if size > LONGEST:
        raise UnusableSchema(f"its schema has {size:,} characters")
    if schema.get("type") != "object":
        raise UnusableSchema('its schema does not have "type": "object"')
    if mixed := [key for key in ("anyOf", "oneOf", "allOf", "enum", "not", "$ref") if key in schema]:
        raise UnusableSchema(f"its schema has {mixed[0]} at its top level, and providers refuse this")
    parts = attempt_call(lambda: sum(1 for _ in walk_schema(schema)))
    if not isinstance(parts, int) or parts > MOST_PARTS:
        raise UnusableSchema(f"its schema has more than {MOST_PARTS:,} parts")
    _check_references(schema)
    if isinstance(attempt_call(_check_form, schema), Raised):
        raise UnusableSchema("its schema is no valid JSON schema")
    if isinstance(attempt_call(lambda: _check_form({**make_offered(schema), "$schema": _NEWEST})), Raised):
        raise UnusableSchema(
            "its schema uses an old draft and cannot be written in the newest draft, but providers require the newest draft"
        )


def _write(schema: JsonSchema) -> bytes:
    """Return the schema as the JSON bytes that a provider gets.

    Raises ValueError if the schema has a value that JSON does not allow, such as NaN or a lone surrogate.
    """
    return json.dumps(schema, ensure_ascii=False, allow_nan=False).encode()


def _check_form(schema: JsonSchema) -> None:
    """Raise an error if the schema is not valid in its draft of JSON Schema.

    Patterns are not checked, since they may be written for JavaScript.
    """
    _find_draft(schema).check_schema(schema, format_checker=jsonschema.FormatChecker(formats=()))


def find_wire_names(schema: JsonSchema) -> dict[str, str]:
    """Return a mapping from new names to the schema's names. It contains the arguments whose names a provider would refuse."""
    names = list(schema.get("properties") or ())
    taken = set(filter(_KEY.fullmatch, names))
    keys: dict[str, str] = {}
    for name in names:
        if name not in taken:
            keys[make_wire_name(name, {*taken, *keys})] = name
    return keys


def make_offered(schema: JsonSchema) -> JsonSchema:
    """Return the schema for the model. It contains only keywords and names that all providers accept."""
    made, wire = adapt_schema(schema), {own: key for key, own in find_wire_names(schema).items()}
    made = map_schema(made, _make_plain)
    if wire:
        for keyword in _BY_NAME & made.keys():
            del made[keyword]
        made = map_schema(made, functools.partial(_rename_reference, wire))
        described = {
            own: {"description": plain(own), **part} if own in wire and isinstance(part, dict) else part
            for own, part in made["properties"].items()
        }
        made["properties"] = {wire.get(own, own): part for own, part in described.items()}
        if "required" in made:
            made["required"] = [wire.get(own, own) for own in made["required"]]
    return made


def _make_plain(node: JsonSchema) -> JsonSchema:
    """Remove invisible characters from the title and the description in `node`, and return `node`.

    So the model reads only text that a person can see.
    """
    for keyword in ("title", "description"):
        if isinstance(node.get(keyword), str):
            node[keyword] = plain(node[keyword])
    return node


def _rename_reference(wire: Mapping[str, str], node: JsonSchema) -> JsonSchema:
    """If the `$ref` in `node` leads to a renamed argument, put the new name into the `$ref`. Return `node`."""
    match str(node.get("$ref", "")).split("/"):
        case ["#", "properties", name, *rest] if (own := _read_key(name)) in wire:
            node["$ref"] = "/".join(["#", "properties", wire[own], *rest])
    return node


def _check_references(schema: JsonSchema) -> None:
    """Raise UnusableSchema if a `$ref` points outside the schema, points to a missing part, or leads back to itself."""
    for part in walk_schema(schema):
        node: Any = part
        seen: set[str] = set()
        while isinstance(node, Mapping) and "$ref" in node:
            reference = str(node["$ref"])
            if reference in seen:
                raise UnusableSchema("its schema refers to itself in a circle")
            if len(seen) == _LONGEST_CHAIN:
                raise UnusableSchema(f"its schema has more than {_LONGEST_CHAIN} references in a row")
            seen.add(reference)
            node = _follow(schema, reference)


def _follow(schema: JsonSchema, reference: str) -> Any:
    node: Any = schema
    if reference not in ("#", "") and not reference.startswith("#/"):
        raise UnusableSchema("its schema refers to something outside of itself")
    for part in reference.removeprefix("#").split("/")[1:]:
        key = _read_key(part)
        if isinstance(node, list):
            node = dict(zip(map(str, range(len(node))), node, strict=True))
        if not isinstance(node, Mapping) or key not in node:
            raise UnusableSchema("its schema refers to a part that it does not have")
        node = node[key]
    return node


def _read_key(part: str) -> str:
    """Return the name in one part of a reference, without the escapes of URLs and JSON pointers."""
    return urllib.parse.unquote(part).replace("~1", "/").replace("~0", "~")


# --- checking a value -------------------------------------------------------------------------------------------
#
# A short schema can cause endless work: a pattern that backtracks, definitions that double at each step, or a comparison of all
# pairs in a long list. So the number of keywords that are tried is limited. If the check of a keyword could take very long, this
# keyword is not checked here, but only by the server.

_Check: TypeAlias = Callable[[Validator, Any, Any, Any], Any]
"""A function that jsonschema calls to check a value against one keyword. It returns the errors in the value."""
_left: ContextVar[list[int]] = ContextVar("toolloop_mcp_work_left")
_WORK, _WORK_PER_CHARACTER = 20_000, 10
"""How many keywords may be tried on a value: a fixed number, plus a number for each character in the JSON of the value."""


class _TooMuchWork(Exception): ...


def _find_draft(schema: JsonSchema) -> type[Validator]:
    """Return the validator for the draft that `$schema` names. Without `$schema`, the MCP protocol requires draft 2020-12."""
    found: type[Validator] = validator_for(schema, jsonschema.Draft202012Validator)
    return found


@functools.lru_cache(maxsize=32)
def _make_checker(draft: type[Validator], *, names_by_pattern: bool) -> type[Validator]:
    """Return a validator class for `draft`. The validator counts the keywords that it checks.

    `names_by_pattern` means that the schema has patterns for property names. Then the keywords that try such patterns are not
    checked.
    """
    own: dict[str, _Check] = {**draft.VALIDATORS, "pattern": _check_pattern}
    own |= {key: check for key, check in _OF_LONG_LISTS.items() if key in own}
    if names_by_pattern:
        off = ("patternProperties", "additionalProperties", "unevaluatedProperties")
        own |= {key: _check_nothing for key in off if key in own}
    made: type[Validator] = extend(draft, {key: _count(check) for key, check in own.items()})
    return made


def _count(check: _Check) -> _Check:
    def counted(validator: Validator, wanted: Any, instance: Any, schema: Any) -> Any:
        left = _left.get()
        left[0] -= 1
        if left[0] < 0:
            raise _TooMuchWork
        return check(validator, wanted, instance, schema)

    return counted


def _check_nothing(_validator: Validator, _wanted: Any, _instance: Any, _schema: Any) -> tuple[()]:
    return ()


def _check_distinct(
    _validator: Validator, wanted: Any, instance: Any, _schema: Any
) -> Iterator[jsonschema.ValidationError]:
    """Check `uniqueItems` without a comparison of all pairs of items. 1 and 1.0 count as different items."""
    if wanted and isinstance(instance, list):
        texts = {json.dumps(item, sort_keys=True) for item in instance}
        if len(texts) < len(instance):
            yield jsonschema.ValidationError("has an item twice")


def _check_enum(
    validator: Validator, wanted: Any, instance: Any, schema: Any
) -> Iterable[jsonschema.ValidationError]:
    """Check `enum`. Python compares the value with all choices first, since this is fast.

    jsonschema's check is slow, but distinguishes 1 from true. So only the choices that are equal in Python go through this check.
    """
    equal = [one for one in wanted if one == instance]
    check: _Check = jsonschema.Draft202012Validator.VALIDATORS["enum"]
    return check(validator, equal[:_MOST], instance, schema)  # type: ignore[no-any-return]


_OF_LONG_LISTS: Mapping[str, _Check] = MappingProxyType({"enum": _check_enum, "uniqueItems": _check_distinct})
"""Our own checks for keywords whose checks in jsonschema take seconds for a long list."""


def _check_pattern(
    _validator: Validator, pattern: Any, instance: Any, _schema: Any
) -> Iterator[jsonschema.ValidationError]:
    """Check `pattern` if it is certain that the check is fast. In all other cases, only the server checks the value."""
    if not isinstance(instance, str) or not isinstance(pattern, str) or len(pattern) > _MOST_PATTERN:
        return
    if len(instance) <= _longest_match(pattern) and attempt_call(re.search, pattern, instance) is None:
        yield jsonschema.ValidationError(f"must match {pattern}")


def _longest_match(pattern: str) -> int:
    """Return a limit: the pattern is tried only on texts with at most this many characters. -1: the pattern is never tried.

    Each repetition or alternative in the pattern (`*`, `+`, `?`, `{1,9}`, `|`) may multiply the time by the length of the text.
    """
    choices = len(re.findall(r"(?<!\\)(?:[*+|]|(?<!\()\?|\{\d*,\d*\})", pattern))
    if choices > 2 or re.search(r"\)[*+?{]|\\\d|\(\?P=", pattern):
        return -1
    return (100_000, 2_000, 200)[choices]


def find_problem(schema: JsonSchema, value: object) -> str:
    """Return one line with the reason why the value does not fit the schema. Return "" if the value fits."""
    problems = attempt_call(_list_problems, schema, value)
    if isinstance(problems, Raised):
        return "it cannot be checked against the schema"
    return problems[0] if problems else ""


def _list_problems(
    schema: JsonSchema, value: object, shown: Mapping[str, str] = MappingProxyType({})
) -> list[str]:
    """Return one line for each problem in a value.

    `shown` contains the renamed arguments. It maps the server's name of an argument to the name that the model sees.
    """
    names_by_pattern = '"patternProperties"' in json.dumps(schema)
    checker = _make_checker(_find_draft(schema), names_by_pattern=names_by_pattern)  # type: ignore[arg-type]
    made = checker(schema, registry=Registry())
    token = _left.set([_WORK + _WORK_PER_CHARACTER * len(json.dumps(value))])
    problems: dict[str, None] = {}
    try:
        for error in made.iter_errors(value):
            problems.update(dict.fromkeys(_explain(error, shown)))
            if len(problems) > _MOST:
                break
    finally:
        _left.reset(token)
    return list(problems)


def _explain(error: jsonschema.ValidationError, shown: Mapping[str, str]) -> Iterator[str]:
    """Yield lines that describe an error: the place, the expected value and the given value.

    The lines have the same form as the messages about arguments of Python functions.
    """
    path = [*error.absolute_path]

    def write(*steps: Any) -> str:
        whole = [*path, *steps]
        return write_path([shown.get(whole[0], whole[0]), *whole[1:]] if whole else [])

    kind, wanted, given = error.validator, error.validator_value, error.instance
    got = f", got {shorten_json(given)}"
    if kind == "required" and isinstance(given, Mapping):
        for name in wanted if isinstance(wanted, list) else ():
            if name not in given:
                yield f"{write(name)}: missing, and required"
    elif kind in ("additionalProperties", "unevaluatedProperties") and isinstance(given, Mapping):
        known = [*(error.schema.get("properties") or {})] if isinstance(error.schema, Mapping) else []
        named = known if path else [shown.get(name, name) for name in known]
        for name in given:
            if name not in known and wanted is False:
                near = difflib.get_close_matches(name, named, 1)
                there = f"there are {', '.join(named)}" if named else "there are none"
                yield f"{write(name)}: no such argument; " + (f"did you mean {near[0]}?" if near else there)
    elif kind == "type":
        kinds = wanted if isinstance(wanted, list) else [wanted]
        yield f"{write()}: expected {' or '.join(_TYPES.get(str(k), str(k)) for k in kinds)}{got}"
    elif kind in ("enum", "const"):
        choices = wanted if kind == "enum" else [wanted]
        yield f"{write()}: expected {' or '.join(shorten_json(one) for one in choices[:20])}{got}"
    else:
        yield f"{write()}: does not fit {kind} {shorten_json(wanted)}{got}"


@dataclass(frozen=True)
class SchemaArguments(JsonArguments):
    """Checks the arguments of a tool's calls against a JSON schema. The values are not converted to Python types."""

    schema: JsonSchema = field(repr=False)

    def check(self, given: JsonObject) -> JsonObject:
        """Return the checked arguments. The keys are the names that the model knows.

        Raises InvalidArguments, which lists the problems.
        """
        names = find_wire_names(self.schema)
        shown = {own: name for name, own in names.items()}
        own = {names.get(name, name): value for name, value in given.items()}
        self._decode(own)
        begin = f"invalid arguments, {self.tool} was not run:"
        problems = attempt_call(_list_problems, self.schema, own, shown)
        if isinstance(problems, Raised):
            circle = isinstance(problems.error, RecursionError)
            why = "they are nested without end" if circle else "they cannot be checked against the schema"
            raise InvalidArguments(f"{begin} {why}")
        if problems:
            told = problems[:_MOST] + (["and more"] if len(problems) > _MOST else [])
            raise InvalidArguments("\n- ".join([begin, *told]))
        return {shown.get(name, name): value for name, value in own.items()}

    def pack(self, arguments: ArgumentsByKey) -> tuple[tuple[JsonObject], JsonObject]:
        """Return (the positional arguments, the keyword arguments) for `ServerTool.call_on_server`.

        The only positional argument is a mapping from the server's names to the values. The server's names may be any text, so
        they are not passed as keyword arguments.
        """
        names = find_wire_names(self.schema)
        return ({names.get(name, name): one.value for name, one in arguments.items()},), {}

    def _decode(self, given: JsonObject) -> None:
        """Decode the values of `given` that a model has sent as JSON text instead of as an array or object.

        A value is decoded only if the schema requires an array or object for it. `given` itself is changed.
        """
        properties = self.schema.get("properties") or {}
        for key, value in given.items():
            part = properties.get(key)
            if not isinstance(part, Mapping) or part.get("type") not in ("array", "object"):
                continue
            if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
                # `parse_arguments` is used, so that the same rules apply to this JSON text as to all arguments.
                made = attempt_call(parse_arguments, f'{{"it": {value}}}')
                if not isinstance(made, Raised) and set(made) == {"it"}:
                    given[key] = made["it"]
