"""Check a server's JSON schema, rewrite the schema for the model, and check arguments against it.

The schema comes from outside and may be hostile. So its references are never fetched from the network, its size is limited, and
patterns are not tried here, but only by the server.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import jsonschema
from jsonschema.protocols import Validator
from jsonschema.validators import extend, validator_for
from referencing import Registry, Resource

from ..core.execution import Raised, attempt_call
from ..core.text import is_deeper, make_text_plain, make_wire_names
from ..core.tools import (
    ArgumentsByKey,
    InvalidArguments,
    JsonArguments,
    JsonObject,
    JsonSchema,
    adapt_schema,
    explain_unknown,
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
_MOST = 10
"""How many problems one message lists at most."""
_MOST_EXPLAINED = 100
"""How many problems are explained at most, if many of them are equal. (An explanation searches for a similar name, which
takes long.)"""
_TYPES = {
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "string": "a string",
    "array": "an array",
    "object": "an object",
}
_ALONE = {
    "type",
    "properties",
    "required",
    "unevaluatedProperties",
    "title",
    "description",
    "default",
    "$schema",
    "$defs",
}
"""If a schema has only these keywords, no other part of it allows an argument."""
_ENDLESS = (
    "no value can be checked, because the schema refers to itself without end; do not call the tool again: "
    "only the author of its server can correct the schema"
)
_TOO_DEEP = "nested too deep to be checked against the schema; send data with fewer levels"
_KEY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
"""Matches the names that all providers accept for a property."""
_NEWEST = "https://json-schema.org/draft/2020-12/schema"


class UnusableSchema(ValueError):
    """Raised if a tool with this schema cannot be offered to a model. The text contains the reason."""


def check_schema(schema: JsonSchema) -> None:
    """Raise UnusableSchema if providers refuse this schema, or if arguments cannot be checked against it."""
    if is_deeper(schema):
        raise UnusableSchema("its schema is nested too deep")
    # Not valid in JSON: NaN, and half of a surrogate pair.
    text = attempt_call(lambda: json.dumps(schema, ensure_ascii=False, allow_nan=False).encode().decode())
    if isinstance(text, Raised):
        raise UnusableSchema("its schema has a text or a number that JSON cannot contain")
    if len(text) > LONGEST:
        raise UnusableSchema(f"its schema has {len(text):,} characters")
    if schema.get("type") != "object":
        raise UnusableSchema('its schema does not have "type": "object"')
    if mixed := [key for key in ("anyOf", "oneOf", "allOf", "enum", "not", "$ref") if key in schema]:
        raise UnusableSchema(f"its schema has {mixed[0]} at its top level, and providers refuse this")
    parts = attempt_call(walk_schema, schema)
    if isinstance(parts, Raised) or len(parts) > MOST_PARTS:
        raise UnusableSchema(f"its schema has more than {MOST_PARTS:,} parts")
    resolver = Registry().with_resource("", Resource.opaque(schema)).resolver()
    look_up = functools.cache(lambda reference: attempt_call(resolver.lookup, reference))
    for part in parts:
        _check_reference(part, look_up)
    if isinstance(attempt_call(_check_form, schema), Raised):
        raise UnusableSchema("its schema is not a valid JSON schema")
    if isinstance(attempt_call(lambda: _check_form({**make_offered(schema), "$schema": _NEWEST})), Raised):
        raise UnusableSchema(
            "its schema uses an old draft and cannot be written in the newest draft, but providers require the newest draft"
        )


def _check_reference(part: Any, look_up: Callable[[str], Any]) -> None:
    """Raise UnusableSchema if a `$ref` points outside the schema, points to a missing part, or leads back to itself."""
    for _ in range(_LONGEST_CHAIN + 1):
        if not isinstance(part, Mapping) or "$ref" not in part:
            return
        reference = str(part["$ref"])
        target = look_up(reference)
        if isinstance(target, Raised):
            where = "a part that it does not have" if reference[:1] == "#" else "something outside of itself"
            raise UnusableSchema(f"its schema refers to {where}")
        part = target.contents
        if not isinstance(part, (Mapping, bool)):
            raise UnusableSchema("its schema refers to a part that is not a schema")
    raise UnusableSchema(
        f"its schema refers to itself without end, or has more than {_LONGEST_CHAIN} references in a row"
    )


def _check_form(schema: JsonSchema) -> None:
    """Raise an error if the schema is not valid in its draft. Patterns are not checked: they may be written for JavaScript."""
    _find_draft(schema).check_schema(schema, format_checker=jsonschema.FormatChecker(formats=()))


def find_wire_names(schema: JsonSchema) -> dict[str, str]:
    """Return new name -> the schema's name, for each argument whose name in the schema a provider would refuse."""
    keys = make_wire_names([*(schema.get("properties") or ())], _KEY)
    return {key: name for name, key in keys.items() if key != name}


def make_offered(schema: JsonSchema) -> JsonSchema:
    """Return the schema for the model. It contains only keywords and names that all providers accept."""
    wire = {schema_name: key for key, schema_name in find_wire_names(schema).items()}
    made = map_schema(adapt_schema(schema), functools.partial(_adapt_part, wire))
    if wire:
        described = {
            schema_name: {"description": make_text_plain(schema_name), **part}
            if schema_name in wire and isinstance(part, dict)
            else part
            for schema_name, part in made["properties"].items()
        }
        made["properties"] = {
            wire.get(schema_name, schema_name): part for schema_name, part in described.items()
        }
        if "required" in made:
            made["required"] = [wire.get(schema_name, schema_name) for schema_name in made["required"]]
    return made


def _adapt_part(wire: Mapping[str, str], node: JsonSchema) -> JsonSchema:
    """Make `node`'s title and description plain: a person must see all that the model reads. Write new names into its `$ref`."""
    for keyword in ("title", "description"):
        if isinstance(node.get(keyword), str):
            node[keyword] = make_text_plain(node[keyword])
    match str(node.get("$ref", "")).split("/"):
        case ["#", "properties", name, *rest]:
            # A reference has the escapes of URLs and of JSON pointers.
            schema_name = urllib.parse.unquote(name).replace("~1", "/").replace("~0", "~")
            if schema_name in wire:
                node["$ref"] = "/".join(["#", "properties", wire[schema_name], *rest])
    return node


# --- checking a value -------------------------------------------------------------------------------------------
#
# A short schema can cause endless work: a pattern that backtracks, definitions that double at each step, or a comparison of all
# pairs in a long list. So the number of keywords that are tried is limited, and some keywords are left to the server.

_Errors: TypeAlias = Iterable[jsonschema.ValidationError]
_Check: TypeAlias = Callable[[Validator, Any, Any, Any], Any]
"""A function that jsonschema calls to check a value against one keyword. It returns the errors in the value."""
_left: ContextVar[list[int]] = ContextVar("toolloop_mcp_work_left")
_WORK, _WORK_PER_CHARACTER = 20_000, 10
"""How many keywords may be tried on a value: a fixed number, plus a number for each character in the JSON of the value."""


class _TooMuchWork(Exception): ...


def _find_draft(schema: JsonSchema) -> type[Validator]:
    """Return the validator for the draft that `$schema` names. Without `$schema`, the MCP protocol requires draft 2020-12."""
    draft: type[Validator] = validator_for(schema, jsonschema.Draft202012Validator)
    return draft


_SLOW = frozenset({"pattern", "uniqueItems"})
"""Keywords whose check may take very long."""
_TRY_NAME_PATTERNS = frozenset({"patternProperties", "additionalProperties", "unevaluatedProperties"})
_REFUSE_WHAT_FITS = frozenset(
    ("not", "disallow", "if", "contains", "oneOf", "unevaluatedItems", "unevaluatedProperties")
)
"""Keywords that may refuse a value because it fits a part of the schema, for example `not`. If the part has a keyword that is left
to the server, the value may fit here, but not there. So these keywords are left to the server, too.
"""


def _list_left_out(schema: JsonSchema) -> frozenset[str]:
    """Return the keywords that are left to the server."""
    text = json.dumps(schema)
    left_out = _SLOW | (_TRY_NAME_PATTERNS if '"patternProperties"' in text else set())
    # An argument may have the name "pattern", too: then a schema follows, not a text.
    has_some = any(part in text for part in ('"pattern": "', '"uniqueItems"', '"patternProperties"'))
    return left_out | _REFUSE_WHAT_FITS if has_some else left_out


@functools.lru_cache(maxsize=32)
def _make_checker(draft: type[Validator], left_out: frozenset[str]) -> type[Validator]:
    """Return a validator class for `draft` that counts the keywords that it checks. It does not check the keywords in `left_out`."""
    checkers: dict[str, _Check] = {**draft.VALIDATORS, "enum": _check_enum}
    checks = dict.fromkeys(left_out, lambda *_: ()) | {
        key: _count(check) for key, check in checkers.items() if key not in left_out
    }
    if "oneOf" in left_out:  # it is not clear whether only one part fits, but at least one must
        checks["oneOf"] = _count(jsonschema.Draft202012Validator.VALIDATORS["anyOf"])
    made: type[Validator] = extend(draft, checks)
    return made


def _count(check: _Check) -> _Check:
    def counted(validator: Validator, wanted: Any, instance: Any, schema: Any) -> Any:
        left = _left.get()
        left[0] -= 1
        if left[0] < 0:
            raise _TooMuchWork
        return check(validator, wanted, instance, schema)

    return counted


def _check_enum(validator: Validator, wanted: Any, instance: Any, schema: Any) -> _Errors:
    """Check `enum`. Python compares the value with all choices first, because this is fast.

    jsonschema's check is slow, but distinguishes 1 from true. So jsonschema gets only the choices that are equal in Python.
    """
    equal = [one for one in wanted if one == instance]
    check: _Check = jsonschema.Draft202012Validator.VALIDATORS["enum"]
    return check(validator, equal[:_MOST], instance, schema)  # type: ignore[no-any-return]


def find_problem(schema: JsonSchema, value: object) -> str:
    """Return one line with the reason why the value does not fit the schema. Return "" if the value fits."""
    return next(iter(_list_problems(schema, value, {})), "")


def _list_problems(schema: JsonSchema, value: object, shown: Mapping[str, str]) -> list[str]:
    """Return one line for each problem in a value. `shown`: the server's name of a renamed argument -> the model's name."""
    problems = attempt_call(_check_value, schema, value, shown)
    if not isinstance(problems, Raised):
        return problems
    if not isinstance(problems.error, RecursionError):
        return ["cannot be checked against the schema"]
    return [_TOO_DEEP if is_deeper(value, 20) else _ENDLESS]


def _check_value(schema: JsonSchema, value: object, shown: Mapping[str, str]) -> list[str]:
    checker = _make_checker(_find_draft(schema), _list_left_out(schema))  # type: ignore[arg-type]
    made = checker(schema, registry=Registry())
    token = _left.set([_WORK + _WORK_PER_CHARACTER * len(json.dumps(value))])
    problems: dict[str, None] = {}
    lines = (line for error in made.iter_errors(value) for line in _explain(error, shown))
    try:
        for line in itertools.islice(lines, _MOST_EXPLAINED):
            problems[line] = None
            if len(problems) > _MOST:
                break
    finally:
        _left.reset(token)
    return list(problems)


def _explain(error: jsonschema.ValidationError, shown: Mapping[str, str]) -> Iterator[str]:
    """Yield lines that describe an error, in the form of the messages about arguments of Python functions."""
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
    elif _names_unknown(error) and isinstance(given, Mapping):
        properties = [*(error.schema.get("properties") or {})] if isinstance(error.schema, Mapping) else []
        named = properties if path else [shown.get(name, name) for name in properties]
        for name in (name for name in given if name not in properties):
            yield f"{write(name)}: {explain_unknown(name, named)}"
    elif kind == "type":
        kinds = wanted if isinstance(wanted, list) else [wanted]
        yield f"{write()}: expected {' or '.join(_TYPES.get(str(k), str(k)) for k in kinds)}{got}"
    elif kind in ("enum", "const"):
        choices = wanted if kind == "enum" else [wanted]
        yield f"{write()}: expected {' or '.join(shorten_json(one) for one in choices[:20])}{got}"
    else:
        yield f"{write()}: does not fit {kind} {shorten_json(wanted)}{got}"


def _names_unknown(error: jsonschema.ValidationError) -> bool:
    """Return True if the error means that all arguments beside the schema's own `properties` are unknown."""
    if error.validator == "unevaluatedProperties":  # other parts of the schema may allow an argument, too
        return error.validator_value is False and error.schema.keys() <= _ALONE
    return error.validator == "additionalProperties" and error.validator_value is False


@dataclass(frozen=True)
class SchemaArguments(JsonArguments):
    """Checks the arguments of a tool's calls against a JSON schema. The values are not converted to Python types."""

    schema: JsonSchema = field(repr=False)

    def check(self, given: JsonObject) -> JsonObject:
        """Return the model's name of each argument -> its checked value. Raises InvalidArguments, which lists the problems."""
        names = find_wire_names(self.schema)
        shown = {server_name: name for name, server_name in names.items()}
        properties = self.schema.get("properties") or {}
        server_name = {names.get(name, name): value for name, value in given.items()}
        server_name = {name: _decode(value, properties.get(name)) for name, value in server_name.items()}
        if problems := _list_problems(self.schema, server_name, shown):
            lines = problems[:_MOST] + (["and more"] if len(problems) > _MOST else [])
            raise InvalidArguments("\n- ".join([f"invalid arguments, {self.tool} was not run:", *lines]))
        return {shown.get(name, name): value for name, value in server_name.items()}

    def pack(self, arguments: ArgumentsByKey) -> tuple[tuple[JsonObject], JsonObject]:
        """Return the only argument for `ServerTool.call_on_server`: the server's name of each argument -> its value."""
        names = find_wire_names(self.schema)
        return ({names.get(name, name): one.value for name, one in arguments.items()},), {}


def _decode(value: object, part: object) -> object:
    """Return an argument's value. If it is JSON text, and its schema `part` requires an array or object, decode this text."""
    if not isinstance(part, Mapping) or part.get("type") not in ("array", "object"):
        return value
    if not isinstance(value, str) or value.lstrip()[:1] not in ("[", "{"):
        return value
    # The rules of `parse_arguments` for the text of all arguments apply to this text, too.
    made = attempt_call(parse_arguments, f'{{"it": {value}}}')
    return value if isinstance(made, Raised) or set(made) != {"it"} else made["it"]
