"""Structured output: ask for it, read it, say what was wrong with it.

Where the model takes `response_format` together with tools, the answer comes as JSON by itself. Where it does not
(`model.takes_response_format` tells), the model works as usual, and is asked for the JSON in words at the end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from pydantic import (
    BaseModel,
    PydanticSchemaGenerationError,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
    create_model,
)

_FENCE = re.compile(r"```[\w-]*\s*\n?(.*?)(?:```|\Z)", re.S)
_THINK = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.S)
MOST_ERRORS = 8


class OutputProblem(ValueError):
    """An answer that does not validate; str() is what the model is told."""


class Output:
    """What `output=` asks for: a pydantic model, a dataclass, a list, a union, …"""

    def __init__(self, kind: Any) -> None:
        """Raises ValueError for something that pydantic cannot describe."""
        self.kind = kind
        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(kind)
            self.schema: dict[str, Any] = self._adapter.json_schema()
        except (PydanticSchemaGenerationError, PydanticUserError, TypeError, NameError) as error:
            raise ValueError(
                f"output={kind!r} cannot be described: {str(error).splitlines()[0]} Use a pydantic model."
            ) from None
        self.name: str = getattr(kind, "__name__", None) or "Answer"
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", self.name):
            self.name = "Answer"

    @property
    def _is_object(self) -> bool:
        return self.schema.get("type") == "object" or "$ref" in self.schema

    def response_format(self) -> Any:
        """The value of `response_format`.

        A plain model goes as its class, as LiteLLM's own loop sends it. What strict mode refuses (free-form dicts,
        `default`: OpenAI's rules) goes as a schema of ours, with strict off where it cannot be met; what is no object
        at its top is wrapped in one, which all providers want.
        """
        if isinstance(self.kind, type) and issubclass(self.kind, BaseModel) and _fits_strict(self.schema):
            return self.kind
        schema = self.schema if self._is_object else self._wrapped_schema()
        cleaned = _without_defaults(schema)
        return {
            "type": "json_schema",
            "json_schema": {"name": self.name, "schema": cleaned, "strict": not _has_free_form(cleaned)},
        }

    def _wrapped_schema(self) -> dict[str, Any]:
        return create_model("Answer", value=(self.kind, ...)).model_json_schema()

    def read(self, text: str) -> Any:
        """The validated value from a model's answer: bare JSON, fenced, in prose, or in the shape of a tool call.

        Raises OutputProblem with the validation errors of the most likely candidate.
        """
        problems: list[str] = []
        for candidate in _candidates(text):
            try:
                return self._adapter.validate_python(candidate)
            except ValidationError as strict_error:
                error: ValidationError = strict_error
            try:  # JSON mode: dates, enums and sets as text
                return self._adapter.validate_json(json.dumps(candidate))
            except ValidationError as json_error:
                error = json_error
            problems.append(_problem(error))
        raise OutputProblem(problems[0] if problems else "no JSON was found in the answer")

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


def _candidates(text: str) -> Iterator[Any]:
    """The JSON values in an answer, most likely first."""
    cleaned = _THINK.sub("", text).strip()
    seen: list[str] = []
    for source in (cleaned, *(m.strip() for m in _FENCE.findall(cleaned))):
        value = _parse(source)
        if value is not None and source not in seen:
            seen.append(source)
            yield from _with_inner(value)
    for value in reversed(_embedded(cleaned)):
        yield from _with_inner(value)


def _with_inner(value: Any) -> Iterator[Any]:
    yield value
    if isinstance(value, dict):
        for key in (
            "arguments",
            "parameters",
            "input",
            "value",
        ):  # the shape of a tool call, or our own wrapping
            inner = value.get(key)
            inner = _parse(inner) if isinstance(inner, str) else inner
            if inner is not None and len(value) <= 4:  # noqa: PLR2004 - a call has a name, an id, a type, arguments
                yield inner
        if len(value) == 1:  # {"Review": {...}}
            yield next(iter(value.values()))


def _parse(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _embedded(text: str) -> list[Any]:
    """The top-level objects and arrays inside prose."""
    decoder, found, position = json.JSONDecoder(parse_constant=_refuse), [], 0
    while match := re.compile(r"[{\[]").search(text, position):
        try:
            value, position = decoder.raw_decode(text, match.start())
            found.append(value)
        except (ValueError, RecursionError):
            position = match.start() + 1
        if position - match.start() > 1_000_000 or len(found) > 50:  # noqa: PLR2004 - hostile answers stay cheap
            break
    return found


def _problem(error: ValidationError) -> str:
    lines = []
    for item in error.errors(include_url=False)[:MOST_ERRORS]:
        where = ".".join(str(part) for part in item["loc"]) or "the answer"
        given = repr(item["input"])
        lines.append(f"{where}: {item['msg']} (got {given[:80]})")
    return "; ".join(lines)


def _walk(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield schema
        for value in schema.values():
            yield from _walk(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _walk(value)


def _has_free_form(schema: Any) -> bool:
    return any(node.get("type") == "object" and "properties" not in node for node in _walk(schema)) or any(
        node.get("additionalProperties") not in (None, False) for node in _walk(schema)
    )


def _fits_strict(schema: Any) -> bool:
    return not _has_free_form(schema) and not any(
        "default" in node and "type" in node for node in _walk(schema)
    )


def _without_defaults(schema: Any) -> Any:
    """The schema without `default`, closed and with every property required, as strict mode wants it."""
    if isinstance(schema, list):
        return [_without_defaults(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    cleaned = {key: _without_defaults(value) for key, value in schema.items() if key != "default"}
    properties = cleaned.get("properties")
    if isinstance(properties, dict) and cleaned.get("type") == "object":
        cleaned.setdefault("additionalProperties", False)
        if cleaned["additionalProperties"] is False:
            cleaned["required"] = list(properties)
    return cleaned
