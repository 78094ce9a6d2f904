"""Parameters -> a pydantic validator for the whole call, and the JSON schema that the model gets.

Pydantic validates a stand-in function that has only keyword-only parameters: the one shape that takes every name
(`model_config`, `schema`, `self`, `_x`), describes any mix of positional-only and keyword-only parameters, and
reports all bad arguments at once, without ever calling the tool.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from pydantic import ConfigDict, Field, PydanticUserError, TypeAdapter
from pydantic.errors import PydanticUndefinedAnnotation
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import SchemaError, to_jsonable_python
from pydantic_core.core_schema import IsSubclassSchema

from ..events import ToolDefinitionError
from ..execution import MISSING, Raised, attempt_call
from .signature import Parameter

# An annotation's own hooks (`__get_pydantic_core_schema__`) may raise the last five.
_SCHEMA_ERRORS = (
    PydanticUserError,
    PydanticUndefinedAnnotation,
    SchemaError,
    TypeError,
    ValueError,
    NameError,
    AttributeError,
    RecursionError,
)
_NAMED_SCHEMAS = ("properties", "$defs", "patternProperties")
_LISTED_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE_SCHEMAS = ("items", "additionalProperties", "not", "contains", "propertyNames")
_SAYS_A_TYPE = {"type", "anyOf", "allOf", "enum", "$ref", "not"}
_JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}

ANY_VALUE: dict[str, Any] = {
    "anyOf": [
        {"type": "string"},
        {"type": "number"},
        {"type": "boolean"},
        {"type": "object", "additionalProperties": True},
        {"type": "array", "items": {}},
        {"type": "null"},
    ]
}
"""Any JSON value, spelled out: LiteLLM 1.110 makes of an empty schema "an object" for Gemini (seen)."""


class _Generator(GenerateJsonSchema):
    # A default that is no JSON is simply not told: `MISSING` above all.
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default", "skipped-discriminator"}  # noqa: RUF012

    def is_subclass_schema(self, schema: IsSubclassSchema) -> dict[str, Any]:
        """Refuse `type[...]`: pydantic describes it as any value, and takes none that JSON has."""
        return self.handle_invalid_for_json_schema(schema, "a class")


def build(
    label: str, module: str, parameters: Sequence[Parameter]
) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    """The validator of a call's arguments and their JSON schema.

    The validator takes a dict by schema names and returns one by Python names. Raises ToolDefinitionError that
    names each parameter whose annotation has no schema.
    """
    try:
        return _build(module, parameters)
    except _SCHEMA_ERRORS as error:
        problems = [
            f"{label}: parameter {p.name!r}: {text}" for p in parameters if (text := _problem(module, p))
        ]
        raise ToolDefinitionError(problems or [f"{label}: {_first_sentence(error)}"]) from None


def _build(module: str, parameters: Sequence[Parameter]) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    adapter = TypeAdapter(_stand_in(module, parameters), config=ConfigDict(allow_inf_nan=False))
    schema = adapter.json_schema(schema_generator=_Generator)
    return adapter, _finish(schema, parameters)


def _stand_in(module: str, parameters: Sequence[Parameter]) -> Any:
    def arguments(**values: Any) -> dict[str, Any]:
        return values

    annotations = {
        p.name: Annotated[p.annotation, Field(alias=p.key, validation_alias=p.key)]
        if p.key != p.name
        else p.annotation
        for p in parameters
    }
    arguments.__module__ = module  # where pydantic looks for the names of forward references
    arguments.__annotations__ = annotations
    arguments.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                p.name,
                inspect.Parameter.KEYWORD_ONLY,
                annotation=annotations[p.name],
                default=p.field or (inspect.Parameter.empty if p.default is MISSING else MISSING),
            )
            for p in parameters
        ]
    )
    return arguments


def _problem(module: str, parameter: Parameter) -> str:
    """What is wrong with this parameter's annotation alone, and what to write instead; "" if nothing is."""
    try:
        _build(module, [parameter])
    except _SCHEMA_ERRORS as error:
        return (
            f"{inspect.formatannotation(parameter.annotation)} cannot be described to a model "
            f"({_first_sentence(error)}); take plain data instead (str, int, list[...], a pydantic model), "
            f"or fill it yourself with functools.partial(..., {parameter.name}=...)"
        )
    return ""


def _first_sentence(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].split(". ")[0].rstrip(".")


def _finish(schema: dict[str, Any], parameters: Sequence[Parameter]) -> dict[str, Any]:
    properties = schema.get("properties", {})
    for parameter in parameters:
        node = properties[parameter.key]
        node.pop("default", None)
        node.pop("title", None)
        says_nothing = not node
        known = default_json(parameter)
        infinite = isinstance(parameter.default, float) and not math.isfinite(parameter.default)
        if known is not MISSING and known is not None and not infinite:
            node["default"] = known
        if parameter.description:
            node["description"] = parameter.description
        elif says_nothing:
            node["description"] = "Any JSON value."
    finished = _inline(_clean(schema))
    order = ("type", "properties", "required", "additionalProperties", "$defs")
    return {key: finished[key] for key in order if key in finished}


def default_json(parameter: Parameter) -> Any:
    """The parameter's default as JSON, or MISSING when there is none or it is no JSON value."""
    default, info = parameter.default, parameter.field
    if info is not None and not info.is_required() and not info.default_factory:
        default = info.default
    if default is MISSING or hasattr(default, "__next__"):  # an iterator would be used up
        return MISSING
    told = attempt_call(lambda: to_jsonable_python(default, by_alias=True))
    return MISSING if isinstance(told, Raised) else strict_json(told)


def strict_json(value: Any) -> Any:
    """JSON has no NaN and no infinities (pydantic leaves them in): their names, which a float field reads again."""
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: strict_json(item) for key, item in value.items()}
    return [strict_json(item) for item in value] if isinstance(value, list) else value


def _children(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for key in _NAMED_SCHEMAS:
        yield from (child for child in node.get(key, {}).values() if isinstance(child, dict))
    for key in _LISTED_SCHEMAS:
        yield from (child for child in node.get(key, ()) if isinstance(child, dict))
    for key in _SINGLE_SCHEMAS:
        if isinstance(child := node.get(key), dict):
            yield child


def _clean(node: dict[str, Any]) -> dict[str, Any]:
    """Make one schema node, and all below it, what strict providers take. Changes it in place."""
    node.pop("title", None)  # pydantic's, made from the name: says nothing new
    if node.get("default", MISSING) is None:
        del node["default"]  # says no more than "not required", and some providers refuse it
    if "oneOf" in node:  # a tagged union; not every provider knows the tag, and the members carry it
        node["anyOf"] = node.pop("oneOf")
        node.pop("discriminator", None)
    if "const" in node:
        node["enum"] = [node.pop("const")]
    if "enum" in node and "type" not in node:
        _type_of_enum(node)
    if "(?" in node.get("pattern", ""):  # lookarounds are refused by some providers; pydantic checks anyway
        del node["pattern"]
    if node.get("type") == "array" and "items" not in node:
        node["items"] = _any_of(node.get("prefixItems", []))
    if node.get("type") == "object":  # types with fields that take more say so themselves
        node.setdefault("additionalProperties", "properties" not in node)
    for child in _children(node):
        _clean(child)
    if not node.keys() & _SAYS_A_TYPE or any(member == ANY_VALUE for member in node.get("anyOf", ())):
        node.update(copy.deepcopy(ANY_VALUE))
    return node


def _type_of_enum(node: dict[str, Any]) -> None:
    """Say the type of allowed values, one alternative for each type where they are mixed."""
    kinds: dict[str, list[Any]] = {}
    for value in node["enum"]:
        kinds.setdefault(_JSON_TYPES.get(type(value), ""), []).append(value)
    if "" in kinds:
        return  # lists or objects
    if len(kinds) == 1:
        node["type"] = next(iter(kinds))
        return
    del node["enum"]
    node["anyOf"] = [
        {"type": kind} if kind == "null" else {"type": kind, "enum": values} for kind, values in kinds.items()
    ]


def _any_of(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    """What each item of a tuple may be, for providers that do not know `prefixItems`."""
    distinct = [schema for index, schema in enumerate(schemas) if schema not in schemas[:index]]
    if len(distinct) == 1:
        return dict(distinct[0])
    return {"anyOf": [dict(schema) for schema in distinct]} if distinct else {}


def _inline(schema: dict[str, Any]) -> dict[str, Any]:
    """Put definitions that are used once where they are used; keep shared and recursive ones as `$defs`.

    So nothing grows, whatever the models look like, and most schemas need no `$ref` at all.
    """
    definitions: dict[str, dict[str, Any]] = schema.pop("$defs", {})
    uses = [name for node in (schema, *definitions.values()) for name in _references(node)]
    once = {
        name for name in definitions if uses.count(name) == 1 and name not in _reachable(name, definitions)
    }
    kept = {name: _replace(node, definitions, once) for name, node in definitions.items() if name not in once}
    schema = _replace(schema, definitions, once)
    return {**schema, "$defs": kept} if kept else schema


def _references(node: dict[str, Any]) -> Iterator[str]:
    if "$ref" in node:
        yield node["$ref"].removeprefix("#/$defs/")
    for child in _children(node):
        yield from _references(child)


def _reachable(name: str, definitions: dict[str, dict[str, Any]]) -> set[str]:
    found: set[str] = set()
    waiting = list(_references(definitions[name]))
    while waiting:
        if (current := waiting.pop()) not in found:
            found.add(current)
            waiting += _references(definitions[current])
    return found


def _replace(node: dict[str, Any], definitions: dict[str, dict[str, Any]], once: set[str]) -> dict[str, Any]:
    if "$ref" in node:
        beside = {key: value for key, value in node.items() if key != "$ref"}
        name = node["$ref"].removeprefix("#/$defs/")
        if name in once:
            return {**_replace(definitions[name], definitions, once), **beside}
        # Strict providers allow nothing beside a `$ref`.
        return {"anyOf": [{"$ref": node["$ref"]}], **beside} if beside else node
    replaced = dict(node)
    for key in _NAMED_SCHEMAS:
        if key in node:
            replaced[key] = {name: _replaced(child, definitions, once) for name, child in node[key].items()}
    for key in _LISTED_SCHEMAS:
        if key in node:
            replaced[key] = [_replaced(child, definitions, once) for child in node[key]]
    for key in _SINGLE_SCHEMAS:
        if key in node:
            replaced[key] = _replaced(node[key], definitions, once)
    return replaced


def _replaced(child: Any, definitions: dict[str, dict[str, Any]], once: set[str]) -> Any:
    return _replace(child, definitions, once) if isinstance(child, dict) else child
