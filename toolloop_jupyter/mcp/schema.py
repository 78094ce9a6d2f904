"""A server's JSON schema: whether it can be used, what the model gets of it, and the arguments that are checked against it.

The schema is foreign text. Nothing is fetched for it, no pattern of it is tried that could take for ever, and it is bounded.
"""

from __future__ import annotations

import copy
import difflib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import jsonschema
from jsonschema.protocols import Validator
from jsonschema.validators import extend, validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

from ..core.events import is_same_json
from ..core.execution import Raised, attempt_call
from ..core.text import is_deeper
from ..core.tools import (
    Argument,
    ArgumentsByKey,
    InvalidArguments,
    JsonObject,
    JsonSchema,
    Parameter,
    parse_arguments,
    shorten_json,
    walk_schema,
    write_path,
)

LONGEST = 100_000
"""Characters of a schema. The longest of servers in use have some thousands."""
_MOST = 10  # problems in one message
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
"""What providers take as the name of a property."""
_MOST_PATTERN, _MOST_MATCHED = 200, 2_000
"""Characters of a pattern that is tried, and of a text that it is tried on."""


class UnusableSchema(ValueError):
    """Why a tool with this schema cannot be offered."""


def check_schema(schema: JsonSchema) -> None:
    """Raise UnusableSchema for a schema that no model could be given, or that no arguments could be checked against."""
    if is_deeper(schema):
        raise UnusableSchema("its schema is nested too deep")
    size = len(json.dumps(schema))
    if size > LONGEST:
        raise UnusableSchema(f"its schema has {size:,} characters")
    if schema.get("type") != "object":
        raise UnusableSchema("its schema is of no object")
    if mixed := [key for key in ("anyOf", "oneOf", "allOf", "enum", "not", "$ref") if key in schema]:
        raise UnusableSchema(f"its schema has {mixed[0]} at its top, which providers refuse")
    properties = schema.get("properties", {})
    if isinstance(properties, Mapping) and (odd := [key for key in properties if not _KEY.fullmatch(key)]):
        raise UnusableSchema(f"providers refuse the argument's name {shorten_json(odd[0])}")
    _check_references(schema)
    wrong = attempt_call(validator_for(schema, jsonschema.Draft202012Validator).check_schema, schema)
    if isinstance(wrong, Raised):
        raise UnusableSchema("its schema is no valid JSON schema")


def _check_references(schema: JsonSchema) -> None:
    """Each `$ref` stays within the schema, is there, and comes to something else than itself."""
    for part in walk_schema(schema):
        node: Any = part
        seen: set[str] = set()
        while isinstance(node, Mapping) and "$ref" in node:
            reference = str(node["$ref"])
            if reference in seen:
                raise UnusableSchema("its schema refers to itself in a circle")
            seen.add(reference)
            node = _follow(schema, reference)


def _follow(schema: JsonSchema, reference: str) -> Any:
    node: Any = schema
    if reference not in ("#", "") and not reference.startswith("#/"):
        raise UnusableSchema("its schema refers to something outside of itself")
    for part in reference.removeprefix("#").split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(node, Mapping) or key not in node:
            raise UnusableSchema("its schema refers to a part that it does not have")
        node = node[key]
    return node


def _check_pattern(
    validator: Validator, pattern: object, instance: object, schema: object
) -> Iterator[jsonschema.ValidationError]:
    """JSON schema's `pattern`, where it surely comes to an end soon: no repetition of what repeats. Else the server checks."""
    if not isinstance(instance, str) or not isinstance(pattern, str):
        return
    if len(pattern) > _MOST_PATTERN or len(instance) > _MOST_MATCHED or _may_take_long(pattern):
        return
    if attempt_call(re.search, pattern, instance) is None:
        yield jsonschema.ValidationError(f"must match {pattern}")


def _may_take_long(pattern: str) -> bool:
    repeats = re.findall(r"(?<!\\)(?:[*+]|\{\d*,\d*\})", pattern)
    return len(repeats) > 2 or re.search(r"\)[*+?{]|\\\d|\(\?P=", pattern) is not None


_BASE = extend(jsonschema.Draft202012Validator, {"pattern": _check_pattern, "patternProperties": None})


def find_problem(schema: JsonSchema, value: object) -> str:
    """What is wrong with a value by a schema, in one line; "" where nothing is."""
    problems = attempt_call(lambda: _list_problems(schema, value))
    if isinstance(problems, Raised):
        return "it cannot be checked against the schema"
    return problems[0] if problems else ""


def _list_problems(schema: JsonSchema, value: object) -> list[str]:
    made = _BASE(schema, registry=Registry())
    problems: dict[str, None] = {}
    for error in made.iter_errors(value):
        for line in _explain(error, value, schema):
            problems[line] = None
        if len(problems) > _MOST:
            break
    return list(problems)


def _explain(error: jsonschema.ValidationError, value: object, schema: JsonSchema) -> Iterator[str]:
    """Lines as functions have them: where, what is expected, what was sent."""
    path = [*error.absolute_path]
    kind, wanted, given = error.validator, error.validator_value, error.instance
    got = f", got {shorten_json(given)}"
    if kind == "required" and isinstance(given, Mapping):
        for name in wanted if isinstance(wanted, list) else ():
            if name not in given:
                yield f"{write_path([*path, name])}: missing, and required"
    elif kind in ("additionalProperties", "unevaluatedProperties") and isinstance(given, Mapping):
        known = [*(error.schema.get("properties") or {})] if isinstance(error.schema, Mapping) else []
        for name in given:
            if name not in known and wanted is False:
                near = difflib.get_close_matches(name, known, 1)
                there = f"there are {', '.join(known)}" if known else "there are none"
                yield f"{write_path([*path, name])}: no such argument; " + (
                    f"did you mean {near[0]}?" if near else there
                )
    elif kind == "type":
        kinds = wanted if isinstance(wanted, list) else [wanted]
        yield f"{write_path(path)}: expected {' or '.join(_TYPES.get(str(k), str(k)) for k in kinds)}{got}"
    elif kind in ("enum", "const"):
        choices = wanted if kind == "enum" else [wanted]
        yield f"{write_path(path)}: expected {' or '.join(shorten_json(one) for one in choices[:20])}{got}"
    else:
        yield f"{write_path(path)}: does not fit {kind} {shorten_json(wanted)}{got}"


@dataclass(frozen=True)
class SchemaArguments:
    """Reads the arguments of one tool's calls by a JSON schema. Their values are the JSON itself."""

    tool: str
    schema: JsonSchema = field(repr=False)

    def read(self, raw: object) -> ArgumentsByKey:
        """What the model sent, checked. Raises InvalidArguments."""
        try:
            given = parse_arguments(raw)
        except InvalidArguments as error:
            raise InvalidArguments(f"{error}; {self.tool} was not run") from None
        self._decode(given)
        begin = f"invalid arguments, {self.tool} was not run:"
        problems = attempt_call(_list_problems, self.schema, given)
        if isinstance(problems, Raised):
            circle = isinstance(problems.error, (RecursionError, Unresolvable))
            why = "they nest without end" if circle else "the schema cannot be used"
            raise InvalidArguments(f"{begin} {why}")
        if problems:
            told = problems[:_MOST] + (["and more"] if len(problems) > _MOST else [])
            raise InvalidArguments("\n- ".join([begin, *told]))
        return {key: self._make(key, value) for key, value in given.items()}

    def edit(self, arguments: ArgumentsByKey, edited: Mapping[str, object]) -> ArgumentsByKey:
        """The call as a person edited it, checked anew; `arguments` where nothing was changed. Raises InvalidArguments."""
        if is_same_json(dict(edited), {key: one.value for key, one in arguments.items()}):
            return arguments
        return self.read(dict(edited))

    def pack(self, arguments: ArgumentsByKey) -> tuple[tuple[object, ...], dict[str, object]]:
        """All of them as one mapping: a name may be any text."""
        return ({key: one.value for key, one in arguments.items()},), {}

    def _decode(self, given: JsonObject) -> None:
        """Take an array or an object out of a JSON text, where the schema wants one and takes no text."""
        properties = self.schema.get("properties") or {}
        for key, value in given.items():
            part = properties.get(key)
            if not isinstance(part, Mapping) or part.get("type") not in ("array", "object"):
                continue
            if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
                made = attempt_call(parse_arguments, f'{{"it": {value}}}')  # under the rules of all arguments
                if not isinstance(made, Raised) and set(made) == {"it"}:
                    given[key] = made["it"]

    def _make(self, key: str, value: object) -> Argument:
        shown = copy.deepcopy(value)
        parameter = Parameter(key, key, object, "", positional=False)
        return Argument(parameter, value, True, shown, shown)
