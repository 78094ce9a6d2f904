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

    `turns`: for each turn of a notebook, the index of the turn's first message and an id of the turn's cell. Raises OSError.
    """
    known = {"turns": list(turns)} if turns else {}
    data = {"format": FORMAT, **known, "messages": hide_in(list(messages))}
    write_whole(path, json.dumps(data, ensure_ascii=False, indent=1) + "\n")


def load_messages(path: str | Path, *, repaired: bool = False) -> list[Message]:
    """Read a conversation that `dump` wrote, or a bare list of OpenAI messages.

    If `repaired` is True, `repair` makes the conversation valid. Raises HistoryInvalid for a file without a list of messages,
    and for messages that no provider would accept.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        fault = (
            f"not JSON ({error})" if isinstance(error, ValueError) else "nested too deep to be a conversation"
        )
        raise HistoryInvalid([f"{path} is {fault}"]) from None
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

    Results are put in the order of their calls. A call without a result gets NOT_RUN as its result; a result without a
    call is removed. The arguments of a call become the text of a JSON object; "{}" if they contain no JSON object.
    If the id of a call is missing or already used, the call and its result get a new id. Empty messages, empty text blocks,
    messages with unknown roles and OpenAI's old `function_call` are removed. Half of a surrogate pair becomes "�". Raises
    HistoryInvalid for messages that are nested too deep.
    """
    entries: Iterable[object] = list(messages)  # the messages come from outside and may contain anything
    if deep := [str(number) for number, message in enumerate(entries) if is_deeper(message)]:
        raise HistoryInvalid([f"message {list_some(deep)}: nested more than {DEEPEST} levels deep"])
    given: list[Message] = [
        join_surrogates_in(copy.deepcopy(dict(message)))
        for message in entries
        if isinstance(message, Mapping)
    ]
    for message in given:
        if isinstance(content := message.get("content"), list):
            parts = [
                part if isinstance(part, Mapping) else {"type": "text", "text": _make_text(part)}
                for part in content
            ]
            message["content"] = [part for part in parts if not is_empty_text(part)] or ""
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
            behind = takewhile(lambda message: message.get("role") != "assistant", given[number + 1 :])
            answers: list[ReadMessage] = [one for one in behind if one.get("role") == "tool"]
            for call in calls:
                content = _take_answer(answers, call)
                if not isinstance(call["id"], str) or not call["id"] or call["id"] in used:
                    call["id"] = new_call_id()
                used.add(call["id"])
                repaired.append({"role": "tool", "tool_call_id": call["id"], "content": content})
    return repaired


def _make_content(content: object) -> object:
    """Return `content` in a form that providers accept: a text or a list of parts. Other JSON data becomes text."""
    return content if isinstance(content, list) else _make_text(content)


def _make_text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=repr)


def _repair_calls(message: Message) -> list[Message]:
    """Repair the tool calls of `message`, and return those that have a name. The id of a call may still be missing."""
    message.pop("function_call", None)
    sent = message.pop("tool_calls", None)
    calls: list[Message] = []
    for call in sent if isinstance(sent, list | tuple) else ():
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not function.get("name"):
            continue
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


def _take_answer(answers: list[ReadMessage], call: Message) -> object:
    """Remove the first of `answers` with the id of `call`, else the first without an id. Return its content; NOT_RUN if none."""
    found = next((one for one in answers if one.get("tool_call_id") == call.get("id")), None)
    found = found or next((one for one in answers if not one.get("tool_call_id")), None)
    if found is None:
        return NOT_RUN
    answers.remove(found)
    return _make_content(found.get("content")) or NOT_RUN
