"""A model call as it goes out, and what it brought: plain data between the loop, its observers and the client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..text import hide_in_repr
from .events import Attachment, Reasoning, Retry, Text, Usage

Emit = Callable[[Text | Reasoning | Attachment | Retry], Awaitable[None]]


@hide_in_repr
@dataclass(frozen=True)
class Request:
    """One model call, exactly as it goes to `litellm.acompletion`."""

    model: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] = field(default_factory=list)
    options: Mapping[str, Any] = field(default_factory=dict)
    """Everything else: stream, response_format, api_base, temperature, …"""
    secrets: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """api_key and headers: sent, never shown."""

    def keywords(self) -> dict[str, object]:
        """The keyword arguments of `acompletion`. No tools, no tool options: providers refuse an empty list."""
        tools = {"tools": self.tools} if self.tools else {}
        options = self.options
        if not tools:
            options = {k: v for k, v in options.items() if k not in ("tool_choice", "parallel_tool_calls")}
        return {
            **options,
            **self.secrets,
            **tools,
            "model": self.model,
            "messages": self.messages,
        }

    def shown(self) -> dict[str, Any]:
        """The same without keys and headers, as plain data: for step mode, dry runs and recordings."""
        options = {key: _shown_option(value) for key, value in self.options.items()}
        return {
            "model": self.model,
            "messages": make_plain(self.messages),
            "tools": make_plain(self.tools),
            **options,
        }


def _shown_option(value: object) -> object:
    """A completion option as plain data; a class (`response_format=Review`) as its JSON schema."""
    if isinstance(value, type) and hasattr(value, "model_json_schema"):
        return value.model_json_schema()
    return make_plain(value)


@hide_in_repr
@dataclass(frozen=True)
class Reply:
    """What a model call brought."""

    message: dict[str, Any]
    finish_reason: str | None
    usage: Usage
    cost: float | None
    """US dollars, or None when neither the provider nor LiteLLM's price list tells all of it."""
    known_cost: float = 0.0
    """What is known of it: an answer's own cost, without that of the tries before it which broke off."""
    refusal: str = ""
    attachments: tuple[Attachment, ...] = ()
    seconds: float = 0.0


# --- The fields of a delta or a message, whether LiteLLM made an object of it or it is a plain dict. ----------

Fields: TypeAlias = Mapping[str, Any]
"""The fields of one of them by their names."""


def read_fields(source: object) -> Fields:
    """Read the fields of LiteLLM's objects and of plain dicts alike; what is neither has none.

    A pydantic object's own dicts are read: its `__getattr__` takes some 3 µs to say that a field is absent, as most
    of them are in most deltas.
    """
    if type(source) is dict:
        return source
    if hasattr(type(source), "__pydantic_fields__"):
        fields, extra = source.__dict__, source.__pydantic_extra__  # type: ignore[attr-defined]  # a model has it
        return {**extra, **fields} if extra else fields
    return source if isinstance(source, Mapping) else getattr(source, "__dict__", {})


def make_plain(value: Any) -> Any:
    """Turn LiteLLM's pydantic objects inside `value` into plain JSON data."""
    if hasattr(value, "model_dump"):
        return value.model_dump(exclude_none=True)
    if isinstance(value, Mapping):
        return {key: make_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [make_plain(item) for item in value]
    return value


def read_content(content: object) -> str:
    """The text of a delta's content, which a few providers send as a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(str(read_fields(part).get("text") or "") for part in content)
    return ""
