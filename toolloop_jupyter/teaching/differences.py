"""Say in a few lines how a request differs from a recorded one."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, Protocol

_AROUND = 40
_LOOSE = frozenset({"additionalProperties", "strict", "title", "default", "required", "description", "name"})
"""Keys of a response format that LiteLLM's releases set differently for the same model."""


class Recorded(Protocol):
    """What is compared of a recorded call."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    options: dict[str, Any]


def difference(
    recorded: Recorded, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], wanted: Any
) -> str:
    """Return the first difference in messages, tools or the answer's schema, or "" when there is none.

    Call ids, thinking blocks and options such as the temperature do not count.
    """
    return (
        _in_messages(recorded.messages, messages)
        or _in_tools(recorded.tools, tools)
        or _in_format(recorded.options.get("response_format"), wanted)
    )


def nearest(recorded: Sequence[Recorded], messages: Sequence[Mapping[str, Any]], position: int) -> int:
    """The number of the recorded call that is most like these messages; among equals, the one at `position`."""
    now = [(message.get("role"), _seen(message)) for message in messages]

    def likeness(number: int) -> tuple[int, float]:
        old = [(message.get("role"), _seen(message)) for message in recorded[number].messages]
        same = next(
            (n for n, (a, b) in enumerate(zip(old, now, strict=False)) if a != b), min(len(old), len(now))
        )
        last = SequenceMatcher(None, old[-1][1][:1000], now[-1][1][:1000]).ratio() if old and now else 0.0
        return same - abs(len(old) - len(now)), last + (0.2 if number == position else 0.0)

    return max(range(len(recorded)), key=likeness)


def _in_messages(old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> str:
    names = _call_names(new)
    for number, (was, now) in enumerate(zip(old, new, strict=False), 1):
        before, after = _seen(was), _seen(now)
        if before == after:
            continue
        who = str(now.get("role"))
        if who == "tool" and now.get("tool_call_id") in names:
            who = f"result of {names[now['tool_call_id']]}"
        if was.get("role") != now.get("role"):
            return f"message {number} is from {now.get('role')!r}, recorded was {was.get('role')!r}"
        return f"message {number} ({who}) differs\n{_windows(before, after)}"
    if len(old) == len(new):
        return ""
    longer, which = (new, "now") if len(new) > len(old) else (old, "recorded")
    first = longer[min(len(old), len(new))]
    return (
        f"{len(old)} messages were recorded, now there are {len(new)}; the first that is only {which}: "
        f"{first.get('role')}: {_short(_seen(first))}"
    )


def _in_tools(old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> str:
    was, now = ({str(tool.get("name")): tool for tool in tools} for tools in (old, new))
    if gone := [name for name in was if name not in now]:
        return f"the tool {gone[0]!r} was recorded and is not there now"
    if added := [name for name in now if name not in was]:
        return f"the tool {added[0]!r} is there now and was not recorded"
    for name, tool in was.items():
        for path, before, after in _paths(tool, now[name]):
            return f"the tool {name!r} differs in {path}\n{_windows(before, after)}"
    return ""


def _in_format(old: Any, new: Any) -> str:
    was, now = _shape(old), _shape(new)
    for path, before, after in _paths(was, now):
        return f"the schema of the answer (output=) differs in {path}\n{_windows(before, after)}"
    return ""


def _shape(wanted: Any) -> Any:
    """The schema of a response format, without what the same model may or may not say."""
    if isinstance(wanted, Mapping) and isinstance(wanted.get("json_schema"), Mapping):
        return _shape(wanted["json_schema"].get("schema"))
    if isinstance(wanted, Mapping):
        inside = {k: _shape(v) for k, v in wanted.items() if k not in _LOOSE or isinstance(v, Mapping)}
        return {k: v for k, v in inside.items() if k not in ("additionalProperties", "strict")}
    return [_shape(item) for item in wanted] if isinstance(wanted, list) else wanted


def _seen(message: Mapping[str, Any]) -> str:
    """What a message says, as one text."""
    content = message.get("content")
    said = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False) if content else ""
    calls = []
    for call in message.get("tool_calls") or ():
        arguments = call["function"].get("arguments") or "{}"
        with contextlib.suppress(ValueError, RecursionError):  # broken arguments are compared as they stand
            arguments = json.dumps(json.loads(arguments), ensure_ascii=False, sort_keys=True)
        calls.append(f"{call['function'].get('name')}({arguments})")
    return "\n".join([said, *calls] if said else calls)


def _call_names(messages: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    return {
        call.get("id", ""): call["function"].get("name", "")
        for message in messages
        for call in message.get("tool_calls") or ()
    }


def _paths(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield (where, recorded, now) for what differs in two pieces of JSON."""
    if old == new:
        return
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in [*old, *(k for k in new if k not in old)]:
            yield from _paths(old.get(key), new.get(key), f"{path}.{key}" if path else str(key))
        return
    yield path or "the whole", _text(old), _text(new)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _windows(old: str, new: str) -> str:
    """Show both texts around the first place where they part."""
    at = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    start = max(0, at - _AROUND)
    return f"  recorded: {_window(old, start, at)}\n  now:      {_window(new, start, at)}"


def _window(text: str, start: int, at: int) -> str:
    cut = text[start : at + _AROUND]
    return repr(("…" if start else "") + cut + ("…" if at + _AROUND < len(text) else ""))


def _short(text: str) -> str:
    return repr(text if len(text) <= 2 * _AROUND else text[: 2 * _AROUND] + "…")
