"""Structured output: ask the model for JSON, read the value from its answer, and explain the faults of an answer.

Some models accept `response_format` together with tools (see `models.takes_response_format`); each of their answers is JSON.
Any other model first calls tools and answers as usual. Then a user message asks this model for the answer as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, PydanticUserError, TypeAdapter, ValidationError, create_model

from ..execution import MISSING, Raised, attempt_call, describe_error, get_message, shorten_repr
from ..tools import (
    JsonSchema,
    describe_type,
    map_schema,
    resolve_reference,
    rewrite_annotation,
    walk_schema,
)

_FENCE = re.compile(r"```[\w-]*\s*\n?(.*?)(?:```|\Z)", re.DOTALL)
_THINK = re.compile(r"^.*</think(?:ing)?>", re.DOTALL)
"""The model's thinking, up to the last closing tag. The answer may lack the opening tag: some prompt templates end with it."""
_OPENING = re.compile(r"[{\[]")
MOST_ERRORS = 8
MOST_TRIES = 200
"""At most this many places in an answer are tried as the beginning of JSON, so that a hostile answer costs little time."""
MOST_READ = 2_000_000
"""When the failed tries have read this many characters in total, no further try begins. One try may read the whole answer."""


class OutputProblem(ValueError):
    """The answer does not fit `output=`. The error's text is for the model."""


class Output:
    """The type that `output=` names: a pydantic model, a dataclass, a list, a union, …"""

    def __init__(self, kind: Any) -> None:
        """Make the JSON schema of the type `kind`. Raises ValueError if pydantic cannot describe this type."""
        self.kind = kind
        made = attempt_call(_describe, kind)  # pydantic's hooks in a user's class may raise any error
        if isinstance(made, Raised):
            is_clear = isinstance(made.error, (PydanticUserError, TypeError, NameError))
            text = get_message(made.error) if is_clear else describe_error(made.error)
            why = (text.splitlines() or [type(made.error).__name__])[0].removesuffix(".")
            shown = shorten_repr(kind, 500)
            raise ValueError(f"output={shown} cannot be described: {why}. Use a pydantic model.") from None
        self._adapter, self.schema = made
        self._fields = frozenset(_put_object_on_top(self.schema).get("properties", ()))
        if isinstance(kind, type) and issubclass(kind, BaseModel) and self._fields:
            self._fields |= frozenset(kind.model_fields)
        self.name: str = getattr(kind, "__name__", None) or "Answer"
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", self.name):
            self.name = "Answer"

    def response_format(self) -> object:
        """Return the value of the completion option `response_format`.

        If strict mode accepts the schema of a pydantic class unchanged, the class itself is sent, as in LiteLLM's own loop.
        LiteLLM then turns strict mode on. Otherwise, the schema is adapted to strict mode and sent. If strict mode cannot
        express the type (free-form dicts), `strict` is False. All providers want an object, so a type that is not an object
        (a list, a number) becomes the field `value` of an object.
        """
        if isinstance(self.kind, type) and issubclass(self.kind, BaseModel):
            is_kept = not any("default" in node or "oneOf" in node for node in walk_schema(self.schema))
            if is_kept and "$ref" not in self.schema and _can_be_strict(self.schema):
                return self.kind
        schema = _put_object_on_top(self.schema)
        if schema.get("type") != "object":
            schema = create_model("Answer", value=(self.kind, ...)).model_json_schema()
        closed = map_schema(schema, _close)
        sent = {"name": self.name, "schema": closed, "strict": _can_be_strict(closed)}
        return {"type": "json_schema", "json_schema": sent}

    def read(self, text: str) -> object:
        """Return the validated value that `text`, a model's answer, contains.

        The answer may be JSON, contain JSON in a code fence or inside prose, or have the form of a tool call. Raises
        OutputProblem with the validation errors of the JSON value that is most likely the answer.
        """
        problems: list[str] = []
        whole = text.strip()
        cleaned = whole if _parse(whole) is not MISSING else _THINK.sub("", whole).strip()
        for candidate in _find_candidates(cleaned):
            if problem := self._explain_no_field(candidate):
                problems.append(problem)
                continue
            try:
                return self._validate(candidate)
            except ValidationError as error:
                problems.append(_explain(error))
        try:  # an answer that is not JSON may be valid, too: a text, a date, one of several words
            return self._validate(cleaned)
        except ValidationError:
            raise OutputProblem(problems[0] if problems else "no JSON was found in the answer") from None

    def _validate(self, candidate: object) -> object:
        """Validate a JSON value. Raises ValidationError, or OutputProblem if a user's validator raises another error."""
        # A strict pydantic model accepts a text as a date, and an array as a tuple, only if the input is JSON text.
        value = attempt_call(self._adapter.validate_json, json.dumps(candidate))
        if not isinstance(value, Raised):
            return value
        if isinstance(value.error, ValidationError):
            raise value.error
        raise OutputProblem(describe_error(value.error)) from value.error

    def _explain_no_field(self, candidate: object) -> str:
        """If `candidate` is an object with none of the type's fields, return a text that says so; else "".

        Pydantic would accept such an object if all fields have defaults.
        """
        if not isinstance(candidate, dict) or not candidate or not self._fields.isdisjoint(candidate):
            return ""
        fields, given = ", ".join(sorted(self._fields)), ", ".join(map(str, candidate))
        return f"the answer has none of the fields {fields} (it has {given})" if fields else ""

    def request_in_words(self) -> str:
        """Return the user message that asks for the answer as JSON."""
        schema = json.dumps(self.schema, ensure_ascii=False)
        return (
            "Now give your final answer as JSON only, without any other text and without calling a tool. "
            f"It must validate against this JSON schema:\n{schema}"
        )


def _describe(kind: Any) -> tuple[TypeAdapter[object], JsonSchema]:
    adapter: TypeAdapter[object] = TypeAdapter(rewrite_annotation(kind))
    return adapter, describe_type(adapter)


def _find_candidates(text: str) -> Iterator[object]:
    """Yield the JSON values in `text`, the most likely one first. In prose, the last value is the most likely one."""
    for source in (text, *reversed([match.strip() for match in _FENCE.findall(text)[-MOST_TRIES:]])):
        value = _parse(source)
        if value is not MISSING:
            yield from _look_inside(value)
    for value in reversed(_find_embedded(text)):
        yield from _look_inside(value)


def _look_inside(value: object) -> Iterator[object]:
    """Yield `value`. If `value` looks like a tool call, {"value": …} or {"Review": {…}}, yield the value inside it, too. If
    `value` is a string that contains JSON, yield this JSON first.
    """
    if isinstance(value, str) and (decoded := _parse(value)) is not MISSING:
        yield decoded
    yield value
    # A tool call has at most four fields: name, id, type, arguments.
    if not isinstance(value, dict) or len(value) > 4:
        return
    names = [k for k in ("arguments", "parameters", "input", "value", "function") if k in value]
    for name in names or (list(value) if len(value) == 1 else []):
        inner = value[name]
        if isinstance(inner, str) and (parsed := _parse(inner)) is not MISSING:
            yield parsed
        yield from _look_inside(inner) if name == "function" else (inner,)


def _parse(text: str) -> object:
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return MISSING


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _find_embedded(text: str) -> list[object]:
    """Return the JSON objects and arrays in the prose `text`; of nested ones, only the outermost."""
    decoder, values, position = json.JSONDecoder(parse_constant=_refuse), [], 0
    left = MOST_READ
    for _ in range(MOST_TRIES):
        match = _OPENING.search(text, position)
        if match is None or left <= 0:
            break
        try:
            value, position = decoder.raw_decode(text, match.start())
            values.append(value)
        except ValueError as error:
            position = match.start() + 1
            is_told = isinstance(error, json.JSONDecodeError) and not error.msg.startswith("Unterminated")
            left -= (error.pos if is_told else len(text)) - match.start()  # type: ignore[attr-defined]
        except RecursionError:  # no sensible answer is nested so deep
            break
    return values


def _explain(error: ValidationError) -> str:
    lines = []
    for item in error.errors(include_url=False)[:MOST_ERRORS]:
        where = ".".join(map(str, item["loc"])) or "the answer"
        lines.append(f"{where}: {item['msg']} (got {repr(item['input'])[:80]})")
    return "; ".join(lines)


# JSON schemas for strict mode. The rules are OpenAI's; other providers have adopted them.
#
# No object allows additional properties, and all properties are required. There is no `default`. The top of the schema is an
# object, not a reference. `anyOf` is used instead of `oneOf`. An object with `$ref` has no other keys. If a type cannot be
# described by these rules (a free-form dict, a tuple, a set), its schema is sent with `strict` off.

_NOT_STRICT = frozenset(
    [
        "prefixItems",
        "uniqueItems",
        "patternProperties",
        "propertyNames",
        "allOf",
        "not",
        "if",
        "dependentRequired",
        "contains",
    ]
)


def _put_object_on_top(schema: JsonSchema) -> JsonSchema:
    """Return `schema`, but with an object at its top. The schema of a recursive model has a reference at its top."""
    definitions = schema.get("$defs")
    top = resolve_reference({"$ref": schema.get("$ref", "")}, definitions)
    return schema if "$ref" in top else {**top, "$defs": definitions}


def _can_be_strict(schema: JsonSchema) -> bool:
    """Return True if strict mode accepts the schema: it has no free-form dict, and no keyword of `_NOT_STRICT`."""
    for node in walk_schema(schema):
        is_free = node.get("type") == "object" and "properties" not in node
        if is_free or node.get("additionalProperties") not in (None, False) or _NOT_STRICT & set(node):
            return False
    return True


def _close(node: JsonSchema) -> JsonSchema:
    """Return a part of a schema for strict mode: no object allows additional properties, and every property is required."""
    kept = {key: value for key, value in node.items() if key not in ("default", "discriminator")}
    if "oneOf" in kept:
        kept["anyOf"] = kept.pop("oneOf")
    if "$ref" in kept and len(kept) > 1 and "$defs" not in kept:
        kept["anyOf"] = [{"$ref": kept.pop("$ref")}]
    if isinstance(kept.get("properties"), dict) and kept.get("type") == "object":
        kept.setdefault("additionalProperties", False)
        if kept["additionalProperties"] is False:
            kept["required"] = list(kept["properties"])
    return kept
