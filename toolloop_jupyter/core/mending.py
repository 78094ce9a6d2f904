"""Make a conversation from outside valid, changing as little as possible."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .arguments import parse_arguments
from .assembly import new_call_id, split_objects, whole_data
from .complaints import InvalidArguments
from .history import NOT_RUN, has_content, is_empty_text, is_json_object

_KEPT_AS_THEY_ARE = ("system", "developer", "user")


def repair(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Make a conversation from outside valid; returns new messages.

    Calls without a result get one that says so, results are put in the order of their calls, those without a call
    are dropped. Arguments become a JSON object as text, {} where they are none. Calls without an id, or with one that
    the conversation has already, get a new one, and so do their results. OpenAI's old `function_call` and "function"
    messages become tool calls and their results. Empty messages and text blocks go, and so do other roles; half of a surrogate pair becomes "�".
    """
    entries: Iterable[Any] = messages  # from outside: anything
    given = [whole_data(copy.deepcopy(dict(message))) for message in entries if isinstance(message, Mapping)]
    repaired: list[dict[str, Any]] = []
    used: set[str] = set()
    for number, message in enumerate(given):
        role = message.get("role")
        _drop_empty_text(message)
        if role in _KEPT_AS_THEY_ARE:
            message["content"] = _as_content(message.get("content"))
            if role != "user" or has_content(message):
                repaired.append(message)
        elif role == "assistant":
            calls = _repair_calls(message)
            if not calls and not has_content(message):
                continue
            repaired.append(message)
            answers = _answers_after(given, number)
            for call in calls:
                content = _take_answer(answers, call)
                if not call.get("id") or call["id"] in used:
                    call["id"] = new_call_id()
                used.add(call["id"])
                repaired.append({"role": "tool", "tool_call_id": call["id"], "content": content})
    return repaired


def _as_content(content: Any) -> Any:
    """Content as providers take it: text or a list of parts, other JSON data as text."""
    if isinstance(content, str | list):
        return content
    return "" if content is None else json.dumps(content, ensure_ascii=False, default=repr)


def _drop_empty_text(message: dict[str, Any]) -> None:
    if isinstance(message.get("content"), list):
        message["content"] = [part for part in message["content"] if not is_empty_text(part)]
        if not message["content"]:
            message["content"] = ""


def _repair_calls(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The message's calls, each with a name and a JSON object; their ids may be missing still."""
    given = [call for call in message.pop("tool_calls", None) or () if isinstance(call, Mapping)]
    if old := message.pop("function_call", None):
        given.append({"function": old, "old": True})
    calls: list[dict[str, Any]] = []
    for call in given:
        function = call.get("function") or {}
        if not function.get("name"):
            continue
        texts = split_objects(function["arguments"]) if isinstance(function.get("arguments"), str) else [None]
        for text in texts:
            arguments = _as_arguments(function.get("arguments") if text is None else text)
            kept = {**call, "type": "function", "function": {**function, "arguments": arguments}}
            if calls and text is not texts[0]:
                kept["id"] = None
            calls.append(kept)
    if calls:
        message["tool_calls"] = calls
        if not has_content(message):
            message["content"] = None
    return calls


def _as_arguments(raw: Any) -> str:
    try:
        parsed = parse_arguments(raw)
    except InvalidArguments:
        return "{}"
    return raw if is_json_object(raw) else json.dumps(parsed, ensure_ascii=False)


def _answers_after(messages: Sequence[Mapping[str, Any]], number: int) -> list[Mapping[str, Any]]:
    """The tool and function messages between this assistant message and the next one."""
    answers: list[Mapping[str, Any]] = []
    for message in messages[number + 1 :]:
        if message.get("role") == "assistant":
            break
        if message.get("role") in ("tool", "function"):
            answers.append(message)
    return answers


def _take_answer(answers: list[Mapping[str, Any]], call: dict[str, Any]) -> Any:
    """The content of the first answer to this call; of the first without an id, where ids are missing."""
    call_id, old = call.get("id"), call.pop("old", False)

    def fits(answer: Mapping[str, Any]) -> bool:
        if answer.get("role") == "function":
            return old and answer.get("name") in (None, call["function"]["name"])
        return not old and answer.get("tool_call_id") == call_id

    found = next((a for a in answers if fits(a)), None)
    if found is None and not old:
        found = next((a for a in answers if a.get("role") == "tool" and not a.get("tool_call_id")), None)
    if found is None:
        return NOT_RUN
    answers.remove(found)
    return _as_content(found.get("content")) or NOT_RUN
