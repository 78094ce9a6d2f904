"""Deltas -> one assistant message, whatever shape the provider sends them in.

LiteLLM's `stream_chunk_builder` (seen on 1.110.2) loses a call whose id never comes and merges two calls that
share an index, so tool calls are put together here, by these rules:

- a fragment belongs to the call with its id; without a known id, to the last call at its index;
- a new id *with a name* opens a new call at the same index; so does a name where the call there already has
  whole arguments, or where it has begun arguments under another name;
- a name that is repeated counts once, a name that is cut in two (before any arguments) is joined;
- several whole JSON objects in one call's arguments are several calls, an identical one sent again counts once;
- a call without an id, or with an id already used, gets one of ours.

Thinking blocks, reasoning items and provider-specific fields are kept as they are, since providers refuse a
history without them (Anthropic's signatures, Gemini's thought signatures).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

LEGACY_INDEX = -1
"""Where the one call of OpenAI's old `function_call` field is kept: it has no index."""


@dataclass
class _Call:
    id: str = ""
    name: str = ""
    arguments: str = ""
    extra: dict[str, Any] = field(default_factory=dict)
    """provider_specific_fields, which go back untouched."""


def get(source: object, name: str) -> Any:
    """Read `name` from LiteLLM's objects and from plain dicts alike; None when it is not there."""
    if isinstance(source, Mapping):
        return source.get(name)
    return getattr(source, name, None)


def plain(value: Any) -> Any:
    """Turn LiteLLM's pydantic objects inside `value` into plain JSON data."""
    if hasattr(value, "model_dump"):
        return value.model_dump(exclude_none=True)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def _text_of(content: object) -> str:
    """The text of a delta's content, which a few providers send as a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(str(get(part, "text") or "") for part in content)
    return ""


def _is_whole(arguments: str) -> bool:
    """Whether the text is a complete JSON object already."""
    text = arguments.strip()
    if not (text.startswith("{") and text.endswith("}")):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def split_objects(arguments: str) -> list[str]:
    """Split `{..}{..}` into its objects, each once; anything else comes back alone and unchanged."""
    decoder, position, found = json.JSONDecoder(), 0, []
    text = arguments.strip()
    while position < len(text):
        if text[position] != "{":
            return [arguments]
        try:
            _, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            return [arguments]
        found.append(text[position:end])
        position = end
        while position < len(text) and text[position].isspace():
            position += 1
    return list(dict.fromkeys(found)) if len(found) > 1 else [arguments]


def new_call_id() -> str:
    """A call id of the form that providers use, unique over sessions."""
    return f"call_{uuid.uuid4().hex[:24]}"


class Assembly:
    """One assistant message while it arrives. `add` takes deltas (or a whole message) of the first choice."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._refusal: list[str] = []
        self._calls: list[_Call] = []
        self._at_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}
        self._thinking: list[dict[str, Any]] = []
        self._thinking_open = False
        self._items: list[Any] = []
        self._provider: dict[str, Any] = {}
        self.finish_reason: str | None = None

    @property
    def text(self) -> str:
        return "".join(self._text)

    @property
    def refusal(self) -> str:
        """The provider's own refusal text (OpenAI's `refusal` field), or ""."""
        return "".join(self._refusal)

    @property
    def has_calls(self) -> bool:
        return bool(self._calls)

    @property
    def has_reasoning(self) -> bool:
        return bool(self._reasoning)

    @property
    def is_empty(self) -> bool:
        """Whether nothing at all has arrived."""
        return not (self._text or self._calls or self._refusal or self._reasoning or self._thinking)

    def add(self, delta: object) -> tuple[str, str]:
        """Take one delta in; returns (text, reasoning) that it added."""
        if delta is None:
            return "", ""
        text, reasoning = _text_of(get(delta, "content")), get(delta, "reasoning_content") or ""
        if text:
            self._text.append(text)
        if reasoning:
            self._reasoning.append(reasoning)
        if refusal := get(delta, "refusal"):
            self._refusal.append(str(refusal))
        for fragment in get(delta, "tool_calls") or ():
            self._add_call(fragment)
        if legacy := get(delta, "function_call"):
            self._add_call({"index": LEGACY_INDEX, "function": legacy})
        for block in get(delta, "thinking_blocks") or ():
            self._add_thinking(plain(block))
        for item in get(delta, "reasoning_items") or ():
            self._items.append(plain(item))
        if fields := get(delta, "provider_specific_fields"):
            self._add_provider_fields(plain(fields))
        return text, reasoning

    def _add_call(self, fragment: object) -> None:
        body = get(fragment, "function") or get(fragment, "custom") or {}
        call_id = get(fragment, "id") or ""
        name = (get(body, "name") or "").strip()
        arguments = get(body, "arguments")
        if arguments is None:
            arguments = get(body, "input")
        if arguments is not None and not isinstance(arguments, str):
            arguments = json.dumps(plain(arguments))
        index = get(fragment, "index") or 0
        call = self._by_id.get(call_id) if call_id else None
        call = call or self._at_index.get(index)
        if call is None or self._opens_new(call, call_id, name):
            call = _Call()
            self._calls.append(call)
        self._at_index[index] = call
        if call_id and not call.id:
            call.id = call_id
            self._by_id[call_id] = call
        call.name = _join_name(call, name)
        call.arguments += arguments or ""
        extra = get(fragment, "provider_specific_fields") or get(body, "provider_specific_fields")
        if extra:
            call.extra.update(plain(extra))

    @staticmethod
    def _opens_new(call: _Call, call_id: str, name: str) -> bool:
        if not name or (call_id and call_id == call.id):
            return False
        if call_id and call.id:
            return True
        return bool(call.arguments) and (name != call.name or _is_whole(call.arguments))

    def _add_thinking(self, block: dict[str, Any]) -> None:
        if block.get("type") != "thinking":
            self._thinking.append(block)
            self._thinking_open = False
            return
        if not self._thinking_open:
            self._thinking.append({"type": "thinking", "thinking": ""})
            self._thinking_open = True
        current = self._thinking[-1]
        current["thinking"] += block.get("thinking") or ""
        for key, value in block.items():
            if key not in ("type", "thinking") and value:
                current[key] = value
        if block.get("signature"):
            self._thinking_open = False

    def _add_provider_fields(self, fields: Mapping[str, Any]) -> None:
        for key, value in fields.items():
            known = self._provider.get(key)
            if isinstance(known, list) and isinstance(value, list):
                self._provider[key] = known + [item for item in value if item not in known]
            elif value is not None:
                self._provider[key] = value

    def _final_calls(self) -> Iterator[_Call]:
        used: set[str] = set()
        for call in self._calls:
            for arguments in split_objects(call.arguments):
                call_id = call.id if call.id and call.id not in used else new_call_id()
                used.add(call_id)
                yield _Call(call_id, call.name or "unnamed_tool", arguments, call.extra)

    def message(self) -> dict[str, Any]:
        """The assistant message in OpenAI format, with the fields that the provider wants back."""
        calls = []
        for call in self._final_calls():
            entry: dict[str, Any] = {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            if call.extra:
                entry["provider_specific_fields"] = dict(call.extra)
            calls.append(entry)
        text = self.text or self.refusal
        # None next to calls: litellm's converters drop both "" and None there (1.110), and "" is what some servers refuse.
        message: dict[str, Any] = {
            "role": "assistant",
            "content": text if text.strip() or not calls else None,
        }
        if calls:
            message["tool_calls"] = calls
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        if self._thinking:
            message["thinking_blocks"] = self._thinking
        if self._items:
            message["reasoning_items"] = self._items
        if self._provider:
            message["provider_specific_fields"] = self._provider
        return message


def _join_name(call: _Call, name: str) -> str:
    """The call's name after a fragment that carries `name`."""
    if not name or name == call.name or call.arguments:
        return call.name or name
    return name if name.startswith(call.name) else call.name + name
