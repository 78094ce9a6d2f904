"""Structured output: asks the model for it, reads it from the answer, and explains the faults of an answer.

A model that takes `response_format` together with tools (see `models.takes_response_format`) answers in JSON. Any other model
works as usual, and at the end a user message asks it for the JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from pydantic import (
    BaseModel,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
    create_model,
)

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
"""A thought, up to its last closing tag. The opening tag may be missing, since some prompt templates end with it."""
_OPENING = re.compile(r"[{\[]")
MOST_ERRORS = 8
MOST_TRIES = 200
"""The most places in an answer that are tried as the beginning of JSON, so that a hostile answer costs little time."""

MOST_READ = 2_000_000
"""Characters that all tries that fail may read together: each may go on to the end of the answer."""


class OutputProblem(ValueError):
    """An answer that does not validate. str() is the message for the model."""


class Output:
    """The type that `output=` names: a pydantic model, a dataclass, a list, a union, …"""

    def __init__(self, kind: Any) -> None:
        """Raises ValueError for something that pydantic cannot describe."""
        self.kind = kind
        made = attempt_call(_describe, kind)  # the hooks of a person's own class may raise anything
        if isinstance(made, Raised):
            said = (
                get_message
                if isinstance(made.error, (PydanticUserError, TypeError, NameError))
                else describe_error
            )
            why = (said(made.error).splitlines() or [type(made.error).__name__])[0]
            raise ValueError(
                f"output={shorten_repr(kind, 500)} cannot be described: {why}{'' if why.endswith('.') else '.'} Use a pydantic model."
            ) from None
        self._adapter, self.schema = made
        self._fields = frozenset(put_object_on_top(self.schema).get("properties", ()))
        if isinstance(kind, type) and issubclass(kind, BaseModel) and self._fields:
            self._fields |= frozenset(kind.model_fields)
        self.name: str = getattr(kind, "__name__", None) or "Answer"
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", self.name):
            self.name = "Answer"

    def response_format(self) -> object:
        """The value of `response_format`.

        A pydantic class whose schema strict mode accepts unchanged is sent as the class, as in LiteLLM's own loop. Any other
        type is sent as a schema that we adapt to strict mode (e.g. we remove `default`). If this is not enough (free-form
        dicts), `strict` is off. A type that is not an object is put into one, since all providers want an object.
        """
        if isinstance(self.kind, type) and issubclass(self.kind, BaseModel) and is_plain(self.schema):
            return self.kind
        schema = put_object_on_top(self.schema)
        if schema.get("type") != "object":
            schema = create_model("Answer", value=(self.kind, ...)).model_json_schema()
        cleaned = close_schema(schema)
        return {
            "type": "json_schema",
            "json_schema": {"name": self.name, "schema": cleaned, "strict": can_be_strict(cleaned)},
        }

    def read(self, text: str) -> object:
        """Return the validated value in a model's answer. Finds JSON that is alone, fenced, in prose, or in the form of a tool call.

        Raises OutputProblem with the validation errors of the most likely candidate.
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
        try:  # an answer that is no JSON may fit, too: a text, a date, one of several words
            return self._validate(cleaned)
        except ValidationError:
            raise OutputProblem(problems[0] if problems else "no JSON was found in the answer") from None

    def _validate(self, candidate: object) -> object:
        """The validated value. Raises ValidationError, or OutputProblem for any other error of a person's own validator."""
        # Validated as JSON: then a strict pydantic model takes a date's text, and an array for a tuple.
        value = attempt_call(self._adapter.validate_json, json.dumps(candidate))
        if not isinstance(value, Raised):
            return value
        if isinstance(value.error, ValidationError):
            raise value.error
        raise OutputProblem(describe_error(value.error)) from value.error

    def _explain_no_field(self, candidate: object) -> str:
        """The fault of an object that has none of the fields, or "". Such an object validates if all fields have defaults."""
        if (
            not self._fields
            or not isinstance(candidate, dict)
            or not candidate
            or self._fields & set(candidate)
        ):
            return ""
        return f"the answer has none of the fields {', '.join(sorted(self._fields))} (it has {', '.join(map(str, candidate))})"

    def request_in_words(self) -> str:
        """The user message that asks for the answer as JSON."""
        schema = json.dumps(self.schema, ensure_ascii=False)
        return (
            "Now give your final answer as JSON only, without any other text and without calling a tool. "
            f"It must validate against this JSON schema:\n{schema}"
        )

    def correction(self, problem: str) -> str:
        """The user message after an answer that did not validate."""
        return f"Your answer did not validate: {problem}\nAnswer again, with the corrected JSON only."


def _describe(kind: Any) -> tuple[TypeAdapter[object], JsonSchema]:
    adapter: TypeAdapter[object] = TypeAdapter(rewrite_annotation(kind))
    return adapter, describe_type(adapter)


def _find_candidates(text: str) -> Iterator[object]:
    """The JSON values in an answer, the most likely first; of several values in prose, the last one first."""
    for source in (text, *reversed([match.strip() for match in _FENCE.findall(text)[-MOST_TRIES:]])):
        value = _parse(source)
        if value is not MISSING:
            yield from _look_inside(value)
    for value in reversed(_find_embedded(text)):
        yield from _look_inside(value)


def _look_inside(value: object) -> Iterator[object]:
    """The value, and the value inside it if it looks like a tool call, like our own wrapping, or like {"Review": {...}}."""
    if isinstance(value, str) and (decoded := _parse(value)) is not MISSING:
        yield decoded
    yield value
    if not isinstance(value, dict) or len(value) > 4:  # a call has a name, an id, a type, arguments
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
    """The top-level objects and arrays inside prose."""
    decoder, found, position = json.JSONDecoder(parse_constant=_refuse), [], 0
    left = MOST_READ
    for _ in range(MOST_TRIES):
        match = _OPENING.search(text, position)
        if match is None or left <= 0:
            break
        try:
            value, position = decoder.raw_decode(text, match.start())
            found.append(value)
        except ValueError as error:
            position = match.start() + 1
            is_told = isinstance(error, json.JSONDecodeError) and not error.msg.startswith("Unterminated")
            left -= (error.pos if is_told else len(text)) - match.start()  # type: ignore[attr-defined]
        except RecursionError:  # no sensible answer is nested so deep
            break
    return found


def _explain(error: ValidationError) -> str:
    lines = []
    for item in error.errors(include_url=False)[:MOST_ERRORS]:
        where = ".".join(str(part) for part in item["loc"]) or "the answer"
        given = repr(item["input"])
        lines.append(f"{where}: {item['msg']} (got {given[:80]})")
    return "; ".join(lines)


# JSON schemas for the strict modes of providers: OpenAI's rules, which the others have adopted.
#
# Every object is closed and all its properties are required; there is no `default`; an object, not a reference, is at the
# top; `anyOf` stands for `oneOf`; nothing stands beside a `$ref`. A type that cannot be described so (a free-form dict, a
# tuple, a set) is sent with strict off.

_NOT_STRICT = frozenset(
    {
        "prefixItems",
        "uniqueItems",
        "patternProperties",
        "propertyNames",
        "allOf",
        "not",
        "if",
        "dependentRequired",
        "contains",
    }
)


def put_object_on_top(schema: JsonSchema) -> JsonSchema:
    """The schema with an object at its top: a reference there (of a recursive model) is replaced by the schema it names."""
    definitions = schema.get("$defs")
    top = resolve_reference({"$ref": schema.get("$ref", "")}, definitions)
    return schema if "$ref" in top else {**top, "$defs": definitions}


def can_be_strict(schema: JsonSchema) -> bool:
    """Return whether strict mode can express the whole cleaned schema."""
    return not any(_is_free_form(node) or _NOT_STRICT & set(node) for node in walk_schema(schema))


def is_plain(schema: JsonSchema) -> bool:
    """Return whether LiteLLM may convert the pydantic class itself. LiteLLM always sets `strict`; the schema must fit that."""
    return (
        "$ref" not in schema
        and can_be_strict(schema)
        and not any("default" in node or "oneOf" in node for node in walk_schema(schema))
    )


def close_schema(schema: JsonSchema) -> JsonSchema:
    """The schema with every object closed, every property required, and without keywords that strict mode refuses."""
    return map_schema(schema, _close)


def _close(node: JsonSchema) -> JsonSchema:
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


def _is_free_form(node: JsonSchema) -> bool:
    return node.get("additionalProperties") not in (None, False) or (
        node.get("type") == "object" and "properties" not in node
    )
