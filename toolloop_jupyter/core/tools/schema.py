"""Makes the pydantic validator of a tool's arguments, and the JSON schema that the model gets.

Pydantic gets a stand-in function, never the tool. All parameters of this function are keyword-only. They may have any name, and
pydantic reports all wrong arguments together. A pydantic model would forbid some names (`model_config`, `schema`, `self`, `_x`).
"""

from __future__ import annotations

import copy
import functools
import inspect
import json
import math
import types
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeAlias

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import to_jsonable_python
from pydantic_core.core_schema import EnumSchema, IsSubclassSchema

from ..events import ToolDefinitionError, thaw
from ..execution import MISSING, Raised, attempt_call
from .signature import Parameter, explain_refusal

JsonSchema: TypeAlias = dict[str, Any]
JsonNode: TypeAlias = Mapping[str, Any]
"""A schema that is only read and not changed."""
Validator: TypeAlias = TypeAdapter[Any]

_NAMED_SCHEMAS = ("properties", "$defs", "patternProperties")
_LISTED_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE_SCHEMAS = ("items", "additionalProperties", "not", "contains", "propertyNames")
_SAYS_A_TYPE = {"type", "anyOf", "allOf", "enum", "$ref", "not"}
_TYPE_OF_KEYWORD = {"items": "array", "properties": "object"}
"""Keyword -> type. A schema with this keyword gets this type if the schema does not name a type."""
_LONGEST_CHAIN = 10
"""The largest number of references, each to the next one, that are followed."""
_JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}

_ANY_VALUE: JsonSchema = {
    "anyOf": [
        *({"type": t} for t in ("string", "number", "boolean")),
        {"type": "object", "additionalProperties": True},
        {"type": "array", "items": {}},
        {"type": "null"},
    ]
}
"""A schema that allows any JSON value and lists all types. An empty schema would mean the same, but for Gemini, LiteLLM 1.110
turns an empty schema into the schema of an object.
"""
_LONGEST_TUPLE = 2_000
"""`items` repeats the parts of a tuple that contains tuples only if the parts have at most this many characters. Each level of
nesting doubles the length, so without this limit 30 levels from a server would fill the memory."""


class _Generator(GenerateJsonSchema):
    # A default without a JSON form (above all `MISSING`) is left out of the schema.
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default", "skipped-discriminator"}  # noqa: RUF012

    def enum_schema(self, schema: EnumSchema) -> JsonSchema:
        """Raise TypeError for an Enum without members, at any depth of the schema, because no value is valid for this Enum."""
        made: JsonSchema = super().enum_schema(schema)
        if made.get("enum") == []:
            raise TypeError(f"{made.get('title')} has no members; a member is written A = 'a', not A: 'a'")
        return made

    def is_subclass_schema(self, schema: IsSubclassSchema) -> JsonSchema:
        """Raise an error for `type[...]`. Pydantic would describe it as any JSON value, but accepts no JSON value for it."""
        return self.handle_invalid_for_json_schema(schema, "a class")


def build_schema(label: str, parameters: Sequence[Parameter]) -> tuple[Validator, JsonSchema]:
    """Return (the validator of a call's arguments, their JSON schema).

    The validator takes: name in the schema -> JSON value. It returns: name in the function -> typed value. The names may differ.
    Raises ToolDefinitionError if a parameter's annotation has no schema. The error names each such parameter, and the tool
    (`label`).
    """
    made = attempt_call(_build, parameters)  # an annotation's class may have hooks, which may raise anything
    if not isinstance(made, Raised):
        return made
    problems = [
        f"{label}: parameter {parameter.name!r}: {inspect.formatannotation(parameter.annotation)} "
        f"cannot be described to a model ({explain_refusal(alone.error)}); take plain data instead "
        "(str, int, list[...], a pydantic model), "
        f"or fill it yourself with functools.partial(..., {parameter.name}=...)"
        for parameter in parameters
        if isinstance(alone := attempt_call(_build, [parameter]), Raised)
    ]
    raise ToolDefinitionError(problems or [f"{label}: {explain_refusal(made.error)}"]) from made.error


def _build(parameters: Sequence[Parameter]) -> tuple[Validator, JsonSchema]:
    kinds = []  # 1, 1.0 and True are equal, but differ in the schema
    for one in parameters:
        kinds.append(kind := type(one.default))
        has_plain_default = one.default is MISSING or kind in _JSON_TYPES
        if not (has_plain_default and one.field is None and _is_plain_type(one.annotation)):
            return _build_anew(parameters)
    adapter, schema = _build_once(tuple(parameters), tuple(kinds))
    return adapter, thaw(schema)


def _is_plain_type(annotation: object) -> bool:
    """Return True for a built-in type, such as `int` or `list[str]`. Nobody can change such a type."""
    if type(annotation) is types.GenericAlias:
        return annotation.__origin__ in (list, dict) and all(map(_is_plain_type, annotation.__args__))
    return type(annotation) is type and annotation in _JSON_TYPES


@functools.lru_cache(maxsize=128)
def _build_once(parameters: tuple[Parameter, ...], _: tuple[type, ...]) -> tuple[Validator, JsonSchema]:
    """Build the validator and the schema of plain parameters. The cache helps, because each `agent()` describes its tools anew."""
    return _build_anew(parameters)


def _build_anew(parameters: Sequence[Parameter]) -> tuple[Validator, JsonSchema]:
    def arguments(**values: object) -> dict[str, object]:
        return values

    made = []
    annotations: dict[str, object] = {}
    for one in parameters:
        annotation = one.annotation
        if one.key != one.name:
            annotation = Annotated[annotation, Field(alias=one.key, validation_alias=one.key)]
        annotations[one.name] = annotation
        default = one.field or (inspect.Parameter.empty if one.default is MISSING else MISSING)
        kind = inspect.Parameter.KEYWORD_ONLY
        made.append(inspect.Parameter(one.name, kind, annotation=annotation, default=default))
    arguments.__annotations__ = annotations
    arguments.__signature__ = inspect.Signature(made)  # type: ignore[attr-defined]
    adapter = TypeAdapter(arguments, config=ConfigDict(allow_inf_nan=False))  # type: ignore[arg-type]
    return adapter, _finish(describe_type(adapter), parameters)


def describe_type(adapter: Validator) -> JsonSchema:
    """Return the JSON schema of the adapter's type. Raises pydantic's errors, and TypeError if no value is valid for the type.

    Limits that exclude each other, such as `Field(gt=5, lt=3)`, are not found.
    """
    schema: JsonSchema = adapter.json_schema(schema_generator=_Generator)
    for node in walk_schema(schema):
        if [] in (node.get("anyOf"), node.get("oneOf")):
            raise TypeError(f"no value can satisfy {json.dumps(node)[:200]}")
    _refuse_endless(schema.get("$defs", {}))
    return schema


def _refuse_endless(definitions: Mapping[str, JsonNode]) -> None:
    """Raise TypeError if each object of a class needs another object of this class, so that every value would be endless."""
    finite: set[str] = set()
    while more := {name for name in definitions.keys() - finite if _can_end(definitions[name], finite)}:
        finite |= more
    if endless := sorted(definitions.keys() - finite):
        raise TypeError(
            f"no value can satisfy {endless[0]}: each {endless[0]} needs another {endless[0]} inside"
        )


def _can_end(node: object, finite: set[str]) -> bool:
    """Return True if the schema `node` needs no objects, or only objects of the definitions in `finite`."""
    if not isinstance(node, Mapping):
        return True
    if "$ref" in node:
        where, _, name = str(node["$ref"]).rpartition("/")
        return where != "#/$defs" or name in finite
    for key in ("anyOf", "oneOf"):
        if key in node and not any(_can_end(part, finite) for part in node[key]):
            return False
    named = node.get("properties", {})
    needed = [named[name] for name in node.get("required", ()) if name in named]
    needed += [*node.get("allOf", ()), *node.get("prefixItems", ())]
    needed += [node["items"]] if node.get("minItems") and "items" in node else []
    return all(_can_end(part, finite) for part in needed)


def _finish(schema: JsonSchema, parameters: Sequence[Parameter]) -> JsonSchema:
    for parameter in parameters:
        node = schema["properties"][parameter.key]
        node.pop("default", None)
        node.pop("title", None)
        text = parameter.description or ("" if node else "Any JSON value.")
        default = find_default_json(parameter)
        is_infinite = isinstance(parameter.default, float) and isinstance(default, str)
        if default not in (MISSING, None) and not is_infinite:
            node["default"] = default
        if text:
            node["description"] = text
    finished = _inline_definitions(map_schema(schema, _clean))
    order = ("type", "properties", "required", "additionalProperties", "$defs")
    return {key: finished[key] for key in order if key in finished}


def find_default_json(parameter: Parameter) -> object:
    """Return the parameter's default as JSON; MISSING if there is no default or if it cannot be written as JSON."""
    default, info = parameter.default, parameter.field
    if info is not None and not info.is_required() and not info.default_factory:
        default = info.default
    if default is MISSING or hasattr(default, "__next__"):  # an iterator would be used up
        return MISSING
    written = attempt_call(lambda: to_jsonable_python(default, by_alias=True))
    return MISSING if isinstance(written, Raised) else make_strict_json(written)


def make_strict_json(value: object) -> object:
    """Return JSON data with NaN and infinities as texts ("NaN"): JSON has no such numbers. A float field reads these texts."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: make_strict_json(item) for key, item in value.items()}
    return [make_strict_json(item) for item in value] if isinstance(value, list) else value


# --- the parts of a schema ------------------------------------------------------------------------------------


def map_schema(schema: JsonSchema, change: Callable[[JsonSchema], JsonSchema]) -> JsonSchema:
    """Return a copy of a JSON schema, with `change` applied to each schema inside it, and then to the schema itself."""
    if not isinstance(schema, dict):
        return schema  # type: ignore[unreachable]  # `true` and `false` are schemas, too
    made = dict(schema)
    for key, value in schema.items():
        if key in _NAMED_SCHEMAS and isinstance(value, dict):
            made[key] = {name: map_schema(part, change) for name, part in value.items()}
        elif key in _LISTED_SCHEMAS and isinstance(value, list):
            made[key] = [map_schema(part, change) for part in value]
        elif key in _SINGLE_SCHEMAS:
            made[key] = map_schema(value, change)
    return change(made)


def walk_schema(schema: JsonSchema) -> list[JsonSchema]:
    """Return a list of all schemas inside a JSON schema. The schema itself comes last. Do not change these schemas."""
    schemas: list[JsonSchema] = []

    def note(node: JsonSchema) -> JsonSchema:
        schemas.append(node)
        return node

    map_schema(schema, note)
    return schemas


def resolve_reference(schema: JsonNode, definitions: JsonNode | None) -> JsonNode:
    """Return the definition that `$ref` names, with the keywords beside `$ref`; `schema` itself if there is no definition.

    If the definition is a `$ref` to another definition, return that definition, after at most _LONGEST_CHAIN steps: a server may send a
    very long chain, or a circle.
    """
    for _ in range(_LONGEST_CHAIN):
        target = (definitions or {}).get(str(schema.get("$ref", "")).rpartition("/")[2])
        if not isinstance(target, Mapping):
            break
        schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
    return schema


def adapt_schema(schema: JsonSchema) -> JsonSchema:
    """Return a copy of a server's object schema in the form that a function's schema has. The copy allows the same values."""
    given = {key: value for key, value in schema.items() if key not in ("$schema", "$id", "$comment")}
    if "$defs" not in given and isinstance(given.get("definitions"), dict):  # `definitions` is the older name
        given["$defs"] = given.pop("definitions")
        given = json.loads(json.dumps(given).replace('"#/definitions/', '"#/$defs/'))
    addresses = {f"#/$defs/{name}" for name in given.get("$defs", ())}
    used = [str(node["$ref"]) for node in walk_schema(given) if "$ref" in node]
    made = map_schema(given, _adapt)
    made.setdefault("properties", {})
    # Definitions are moved only if all references refer to definitions in `addresses`, and `walk_schema` has found all references.
    is_plain = addresses.issuperset(used) and len(used) == json.dumps(given).count('"$ref"')
    return _inline_definitions(made) if is_plain else made


def _clean(node: JsonSchema) -> JsonSchema:
    """Change one schema from pydantic, in place, for strict providers. The schemas inside it must be changed before."""
    node.pop("title", None)  # pydantic makes the title from the name, so the title says nothing new
    if node.get("type") == "object":  # if a type with fields allows other fields, its schema says so already
        node.setdefault("additionalProperties", "properties" not in node)
    return _adapt(node)


def _adapt(node: JsonSchema) -> JsonSchema:
    """Change one schema, in place, so that all providers know its keywords. The schemas inside it must be changed before."""
    if node.get("default", MISSING) is None:
        del node["default"]  # a default of null says only "not required", and some providers refuse it
    if "oneOf" in node and "anyOf" not in node:
        # A tagged union. Some providers do not know `discriminator`. The members' tags make the keyword unnecessary.
        node["anyOf"] = node.pop("oneOf")
        node.pop("discriminator", None)
    if "const" in node:
        node["enum"] = [node.pop("const")]
    if "enum" in node and "type" not in node:
        _add_type_of_enum(node)
    # Some providers refuse patterns with lookarounds or classes such as \p{L}. Our validation still checks the pattern.
    if "(?" in (pattern := node.get("pattern", "")) or "\\p" in pattern.replace("\\\\", ""):
        del node["pattern"]
    for limit, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(node.get(exclusive), bool):  # the older way: true or false beside the limit
            is_exclusive = node.pop(exclusive)
            if is_exclusive and limit in node:
                node[exclusive] = node.pop(limit)
    if isinstance(node.get("items"), list):  # the older way to write a tuple
        node["prefixItems"] = node.pop("items")
    if node.get("type") == "array" and "items" not in node:
        # Some providers do not know `prefixItems`. For these, `items` says what each item of a tuple may be.
        parts = node.get("prefixItems") or [_ANY_VALUE]
        if "prefixItems" in (text := str(parts)) and len(text) > _LONGEST_TUPLE:
            parts = [_ANY_VALUE]
        distinct = [part for index, part in enumerate(parts) if part not in parts[:index]]
        node["items"] = copy.deepcopy({"anyOf": distinct} if len(distinct) > 1 else distinct[0])
    for name, part in (node.get("properties") or {}).items():
        if part is True:
            node["properties"] = {**node["properties"], name: copy.deepcopy(_ANY_VALUE)}
    if not node.keys() & _SAYS_A_TYPE and (keywords := node.keys() & _TYPE_OF_KEYWORD):
        node["type"] = _TYPE_OF_KEYWORD[min(keywords)]
    if not node.keys() & _SAYS_A_TYPE or _ANY_VALUE in node.get("anyOf", ()):
        node.update(copy.deepcopy(_ANY_VALUE))
    return node


def _add_type_of_enum(node: JsonSchema) -> None:
    """Add to `node` the type of the values in its enum. If the values have several types, make one alternative for each type."""
    by_type: dict[str, list[object]] = {}
    for value in node["enum"]:
        by_type.setdefault(_JSON_TYPES.get(type(value), ""), []).append(value)
    if "" in by_type:
        return  # some values are lists or objects
    if len(by_type) == 1:
        (node["type"],) = by_type
        return
    del node["enum"]
    node["anyOf"] = [
        {"type": kind} if kind == "null" else {"type": kind, "enum": values}
        for kind, values in by_type.items()
    ]


def _inline_definitions(schema: JsonSchema) -> JsonSchema:
    """Move each definition that is used only once to the place where it is used. So most schemas need no `$ref`, and none grows.

    A recursive definition cannot cause an endless loop: it is used at least twice, so it stays in `$defs`.
    """
    definitions: dict[str, JsonSchema] = schema.pop("$defs", {})
    if not definitions:
        return schema
    nodes = [node for part in (schema, *definitions.values()) for node in walk_schema(part)]
    uses = Counter(node["$ref"].removeprefix("#/$defs/") for node in nodes if "$ref" in node)

    def put_in_place(node: JsonSchema) -> JsonSchema:
        if "$ref" not in node:
            return node
        beside = {key: value for key, value in node.items() if key != "$ref"}
        name = node["$ref"].removeprefix("#/$defs/")
        if uses[name] == 1:
            return {**map_schema(definitions[name], put_in_place), **beside}
        # Strict providers allow nothing beside a `$ref`.
        return {"anyOf": [{"$ref": node["$ref"]}], **beside} if beside else node

    kept = {name: map_schema(node, put_in_place) for name, node in definitions.items() if uses[name] > 1}
    schema = map_schema(schema, put_in_place)
    return {**schema, "$defs": kept} if kept else schema
