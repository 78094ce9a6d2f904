"""Write a conversation to a file, read such a file, and repair a conversation that another program wrote."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path

from ..events import HistoryInvalid
from ..models import new_call_id, split_objects
from ..text import DEEPEST, hide_in, is_deeper, join_surrogates_in, list_some, write_whole
from ..tools import SentArguments
from .history import NOT_RUN, Message, ReadMessage, has_content, is_empty_text, validate

FORMAT = "toolloop_jupyter/conversation@1"
_KEPT_AS_THEY_ARE = ("system", "developer", "user")


def dump(messages: Sequence[ReadMessage], path: str | Path, turns: Sequence[object] = ()) -> None:
    """Write a conversation to `path` as readable JSON, without API keys. The file is written whole or not at all.

    `turns` has one item for each turn of a notebook: the index of its first message, and an id of its cell. Raises OSError
    if the file cannot be written.
    """
    known = {"turns": list(turns)} if turns else {}
    data = {"format": FORMAT, **known, "messages": hide_in(list(messages))}
    write_whole(path, json.dumps(data, ensure_ascii=False, indent=1) + "\n")


def load_messages(path: str | Path, *, repaired: bool = False) -> list[Message]:
    """Read a conversation that `dump` wrote, or a bare list of OpenAI messages.

    If `repaired` is True, the conversation is repaired (see `repair`). Raises HistoryInvalid if the file contains no list of
    messages, or if no provider would accept the messages.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise HistoryInvalid([f"{path} is not JSON ({error})"]) from None
    except RecursionError:
        raise HistoryInvalid([f"{path} is nested too deep to be a conversation"]) from None
    messages = data.get("messages") if isinstance(data, dict) else data
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise HistoryInvalid([f"{path} holds no list of messages"])
    if repaired:
        return repair(messages)
    if problems := validate(messages):
        raise HistoryInvalid([*problems, f"toolloop_jupyter.load({str(path)!r}, repair=True) makes it valid"])
    return messages


def repair(messages: Iterable[ReadMessage]) -> list[Message]:
    """Return a valid copy of a conversation that another program wrote. As little as possible is changed.

    If a tool call has no result, a result is added which says that the call did not run. The results are put in the order
    of their calls. A result without a call is dropped. The arguments of a call become a text with a JSON object, or {} if
    they contain no JSON object. If the id of a call is missing or already used, the call and its result get a new id. Empty
    messages, empty text blocks, messages with unknown roles and OpenAI's old `function_call` are removed. Half of a
    surrogate pair becomes "�".
    Raises HistoryInvalid for messages that are nested too deep.
    """
    entries: Iterable[object] = list(messages)  # the messages come from outside and may contain anything
    if deep := [str(number) for number, message in enumerate(entries) if is_deeper(message)]:
        raise HistoryInvalid([f"message {list_some(deep)}: nested more than {DEEPEST} levels deep"])
    given = [
        join_surrogates_in(copy.deepcopy(dict(message)))
        for message in entries
        if isinstance(message, Mapping)
    ]
    for message in given:
        _repair_parts(message)
    repaired: list[Message] = []
    used: set[str] = set()
    for number, message in enumerate(given):
        role = message.get("role")
        if role in _KEPT_AS_THEY_ARE:
            message["content"] = _make_content(message.get("content"))
            if role != "user" or has_content(message):
                repaired.append(message)
        elif role == "assistant":
            if message.get("content") is not None:
                message["content"] = _make_content(message["content"])
            calls = _repair_calls(message)
            if not calls and not has_content(message):
                continue
            repaired.append(message)
            answers = _list_answers(given, number)
            for call in calls:
                content = _take_answer(answers, call)
                if not isinstance(call["id"], str) or not call["id"] or call["id"] in used:
                    call["id"] = new_call_id()
                used.add(call["id"])
                repaired.append({"role": "tool", "tool_call_id": call["id"], "content": content})
    return repaired


def _make_content(content: object) -> object:
    """Return `content` in a form that providers accept: a text or a list of parts. Other JSON data becomes text."""
    if isinstance(content, str | list):
        return content
    return "" if content is None else json.dumps(content, ensure_ascii=False, default=repr)


def _repair_parts(message: Message) -> None:
    """Turn each part of the message's content into a dict, and remove empty text parts. Changes `message` itself."""
    content = message.get("content")
    if isinstance(content, list) and content:
        parts = [part if isinstance(part, Mapping) else _make_part(part) for part in content]
        message["content"] = [part for part in parts if not is_empty_text(part)] or ""


def _make_part(part: object) -> Message:
    text = part if isinstance(part, str) else json.dumps(part, ensure_ascii=False, default=repr)
    return {"type": "text", "text": "" if part is None else text}


def _repair_calls(message: Message) -> list[Message]:
    """Remove the tool calls that have no name, and turn the arguments of the others into JSON objects.

    Changes `message` itself. Returns the remaining tool calls. The id of a call may still be missing.
    """
    message.pop("function_call", None)
    sent = message.pop("tool_calls", None)
    given = [call for call in sent if _has_name(call)] if isinstance(sent, list | tuple) else []
    calls: list[Message] = []
    for call in given:
        function = call["function"]
        texts = split_objects(function["arguments"]) if isinstance(function.get("arguments"), str) else [None]
        for text in texts:
            arguments = str(SentArguments(function.get("arguments") if text is None else text).stored())
            made = {**function, "name": str(function["name"]), "arguments": arguments}
            call_id = call.get("id") if text is texts[0] else None
            calls.append({**call, "id": call_id, "type": "function", "function": made})
    if calls:
        message["tool_calls"] = calls
        if not has_content(message):
            message["content"] = None
    return calls


def _has_name(call: object) -> bool:
    """Return True if `call` is a tool call with the name of a function."""
    function = call.get("function") if isinstance(call, Mapping) else None
    return isinstance(function, Mapping) and bool(function.get("name"))


def _list_answers(messages: Sequence[ReadMessage], number: int) -> list[ReadMessage]:
    """Return the tool messages between the assistant message at index `number` and the next assistant message."""
    behind = takewhile(lambda message: message.get("role") != "assistant", messages[number + 1 :])
    return [message for message in behind if message.get("role") == "tool"]


def _take_answer(answers: list[ReadMessage], call: Message) -> object:
    """Find the tool message that answers `call`. Remove the message from `answers`, and return its content.

    The message is the first one with the id of `call`. If no message has this id, it is the first one without an id. If
    there is no message without an id, return NOT_RUN.
    """
    found = next((one for one in answers if one.get("tool_call_id") == call.get("id")), None)
    found = found or next((one for one in answers if not one.get("tool_call_id")), None)
    if found is None:
        return NOT_RUN
    answers.remove(found)
    return _make_content(found.get("content")) or NOT_RUN
