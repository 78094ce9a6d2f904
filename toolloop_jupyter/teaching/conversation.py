"""Read a list of messages: the prompt, what was called in this turn and before it, and the schema that is asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..core.models import ProviderRequest
from .evidence import parse_json

# How this package's loop (and LiteLLM's) begins the results of calls that went wrong.
_ERROR = re.compile(
    r"^(?:[\w.]*(?:Error|Exception|Interrupt|Timeout)\b|error\b|invalid arguments?\b|arguments? (?:must|do|does|are|hold|have)\b"
    r"|unknown tool|there is no tool|no tool\b|timed out|timeout\b|cancelled\b|stopped\b"
    r"|this call was cancelled|the call was not run|the tool ended the run)",
    re.IGNORECASE,
)
_DENIED = re.compile(r"^denied\b", re.IGNORECASE)
_ADDED = re.compile(r"This was a decision|Nobody could be asked")
_EDITED = re.compile(r"^The person edited the arguments to (\{.*\})\.\n")
_CORRECTION = re.compile(r"^Your answer did not validate\b")


@dataclass(frozen=True)
class Step:
    """One tool call and what came of it."""

    name: str
    arguments: Mapping[str, Any]
    result: str

    @property
    def kind(self) -> Literal["ok", "error", "denied"]:
        if _DENIED.match(self.result):
            return "denied"
        return "error" if _ERROR.match(self.result) else "ok"

    @property
    def reason(self) -> str:
        """The reason of a denial, without the sentences that the loop adds."""
        said = self.result.partition(":")[2] if ":" in self.result.splitlines()[0] else ""
        return _ADDED.split(said)[0].strip().rstrip(".")


@dataclass(frozen=True)
class Conversation:
    """What the demonstration model sees."""

    prompt: str
    steps: tuple[Step, ...]
    """The calls since the prompt."""
    earlier_prompts: tuple[str, ...]
    earlier_steps: tuple[Step, ...]
    schema: Mapping[str, Any] | None
    """The JSON schema that the answer has to fit, if one is asked for."""
    json_now: bool
    """The schema is asked for in words, so no tool is called any more."""
    calls: int
    """Tool calls of the whole conversation."""


def read(request: ProviderRequest) -> Conversation:
    """Make a Conversation of a request."""
    users = [i for i, m in enumerate(request.messages) if m.get("role") == "user"]
    texts = {i: text_of(request.messages[i]) for i in users}
    asks = [i for i in users if _CORRECTION.match(texts[i]) or (schema_in(texts[i]) and i != users[0])]
    prompts = [i for i in users if i not in asks]
    start = prompts[-1] if prompts else 0
    in_words = schema_in(texts[asks[-1]] if asks and asks[-1] > start else "") or schema_in(
        texts.get(start, "")
    )
    if in_words is None and any(i > start for i in asks):
        in_words = next((s for i in reversed(asks) if (s := schema_in(texts[i]))), None)
    steps = _steps(request.messages)
    return Conversation(
        prompt=texts.get(start, ""),
        steps=tuple(step for i, step in steps if i > start),
        earlier_prompts=tuple(texts[i] for i in prompts[:-1]),
        earlier_steps=tuple(step for i, step in steps if i < start),
        schema=_asked_schema(request.options.get("response_format")) or in_words,
        json_now=bool(in_words)
        and bool(users)
        and (users[-1] in asks or schema_in(texts[start]) is not None),
        calls=sum(len(m.get("tool_calls") or ()) for m in request.messages),
    )


def text_of(message: Mapping[str, Any]) -> str:
    """Return the text of a message, also of one that is made of parts."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text", "")) for part in content or () if isinstance(part, Mapping))


def schema_in(text: str) -> dict[str, Any] | None:
    """Return the JSON schema that a text asks for, or None."""
    if "schema" not in text.lower():
        return None
    decoder = json.JSONDecoder()
    for match in re.finditer(r"\{", text):
        try:
            value, _ = decoder.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            continue
        keywords = {"type", "properties", "$ref", "anyOf", "oneOf", "allOf", "enum", "const"}
        return value if isinstance(value, dict) and keywords & set(value) else None
    return None


def _steps(messages: list[dict[str, Any]]) -> list[tuple[int, Step]]:
    results = {m.get("tool_call_id"): text_of(m) for m in messages if m.get("role") == "tool"}
    steps = []
    for i, message in enumerate(messages):
        for call in message.get("tool_calls") or ():
            arguments = parse_json(call["function"].get("arguments") or "{}")
            result = results.get(call.get("id"), "")
            if edited := _EDITED.match(result):
                arguments, result = parse_json(edited.group(1)), result[edited.end() :]
            known = arguments if isinstance(arguments, dict) else {}
            steps.append((i, Step(call["function"]["name"], known, result)))
    return steps


def _asked_schema(wanted: Any) -> Mapping[str, Any] | None:
    """Return the schema of a `response_format`, in each of the forms that LiteLLM takes."""
    if isinstance(wanted, type) and hasattr(wanted, "model_json_schema"):
        made: Mapping[str, Any] = wanted.model_json_schema()
        return made
    if not isinstance(wanted, Mapping) or wanted.get("type") not in ("json_schema", "json_object"):
        return None
    schema = (
        (wanted.get("json_schema") or {}).get("schema")
        or wanted.get("schema")
        or wanted.get("response_schema")
    )
    return schema or {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
