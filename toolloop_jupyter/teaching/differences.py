"""Say in a few lines how a request differs from a recorded one."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher

from .tape import Call, ReadObject

_AROUND = 40
_LOOSE = frozenset({"additionalProperties", "strict", "title", "default", "required", "description", "name"})
"""Keys of a response format that LiteLLM's releases set differently for the same model."""


def difference(
    recorded: Call, messages: Sequence[ReadObject], tools: Sequence[ReadObject], wanted: object
) -> str:
    """Return the first difference in messages, tools or the answer's schema, or "" when there is none.

    Call ids, thinking blocks and options such as the temperature do not count.
    """
    if told := _in_messages(recorded.messages, messages):
        return told
    was, now = ({str(tool.get("name")): tool for tool in those} for those in (recorded.tools, tools))
    for name in [*was, *now]:
        if name not in now:
            return f"the tool {name!r} was recorded and is not there now"
        if name not in was:
            return f"the tool {name!r} is there now and was not recorded"
        if was[name] != now[name]:
            return f"the tool {name!r} differs\n{_windows(_as_text(was[name]), _as_text(now[name]))}"
    before, after = (_as_text(_shape(one)) for one in (recorded.options.get("response_format"), wanted))
    return "" if before == after else f"the schema of the answer (output=) differs\n{_windows(before, after)}"


def nearest(recorded: Sequence[Call], messages: Sequence[ReadObject], position: int) -> int:
    """The number of the recorded call that is most like these messages; among equals, the one at `position`."""
    now = [_seen(message) for message in messages]

    def likeness(number: int) -> tuple[int, float]:
        old = [_seen(message) for message in recorded[number].messages]
        last = SequenceMatcher(None, old[-1][1][:1000], now[-1][1][:1000]).ratio() if old and now else 0.0
        same = _same(old, now) - abs(len(old) - len(now))
        return same, last + (0.2 if number == position else 0.0)

    return max(range(len(recorded)), key=likeness)


def _in_messages(old: Sequence[ReadObject], new: Sequence[ReadObject]) -> str:
    calls = {
        call.get("id"): call["function"].get("name") for now in new for call in now.get("tool_calls") or ()
    }
    for number, (was, now) in enumerate(zip(old, new, strict=False), 1):
        (before, said), (role, says) = _seen(was), _seen(now)
        if before != role:
            return f"message {number} is from {role!r}, recorded was {before!r}"
        if said != says:
            who = f"result of {calls[now['tool_call_id']]}" if now.get("tool_call_id") in calls else role
            return f"message {number} ({who}) differs\n{_windows(said, says)}"
    if len(old) == len(new):
        return ""
    longer, which = (new, "now") if len(new) > len(old) else (old, "recorded")
    role, says = _seen(longer[min(len(old), len(new))])
    return (
        f"{len(old)} messages were recorded, now there are {len(new)}; the first that is only {which}: "
        f"{role}: {_window(says, 0)}"
    )


def _shape(wanted: object) -> object:
    """The schema of a response format, without what the same model may or may not say."""
    if isinstance(wanted, Mapping) and isinstance(wanted.get("json_schema"), Mapping):
        return _shape(wanted["json_schema"].get("schema"))
    if isinstance(wanted, Mapping):
        return {k: _shape(v) for k, v in wanted.items() if k not in _LOOSE or isinstance(v, Mapping)}
    return [_shape(item) for item in wanted] if isinstance(wanted, list) else wanted


def _seen(message: ReadObject) -> tuple[str, str]:
    """Who says a message, and what it says as one text."""
    content = message.get("content") or ""
    said = [content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)]
    for call in message.get("tool_calls") or ():
        arguments = call["function"].get("arguments") or "{}"
        with contextlib.suppress(ValueError, RecursionError):  # broken arguments are compared as they stand
            arguments = json.dumps(json.loads(arguments), ensure_ascii=False, sort_keys=True)
        said.append(f"{call['function'].get('name')}({arguments})")
    return str(message.get("role")), "\n".join(text for text in said if text)


def _as_text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _same(old: Sequence[object], new: Sequence[object]) -> int:
    """How many items from the beginning on are the same."""
    differing = (n for n, (was, now) in enumerate(zip(old, new, strict=False)) if was != now)
    return next(differing, min(len(old), len(new)))


def _windows(old: str, new: str) -> str:
    """Show both texts around the first place where they part."""
    start = max(0, _same(old, new) - _AROUND)
    return f"  recorded: {_window(old, start)}\n  now:      {_window(new, start)}"


def _window(text: str, start: int) -> str:
    end = start + 2 * _AROUND
    return repr(("…" if start else "") + text[start:end] + ("…" if len(text) > end else ""))
