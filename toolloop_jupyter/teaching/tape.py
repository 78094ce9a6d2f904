"""The file of a recording: how its lines are read, written and compared, and which data are left out.

Each line of a recording is a JSON object, so that people can read and compare recordings:

    {"toolloop-recording": 1}
    {"call": 1, "model": "openai/gpt-5.4-mini", "options": {"temperature": 0}}
    {"tool": {"name": "search_code", "description": …, "parameters": …}}
    {"sent": {"role": "user", "content": "Where are retries handled?"}}
    {"at": 0.412, "delta": {"content": "I'll "}}
    {"end": {"finish_reason": "stop", "usage": {"prompt_tokens": 80, "completion_tokens": 12}}}

A call has a "sent" line only for each message that the previous call did not have. "kept" is the number of earlier messages
that were sent again unchanged. If a tool's result was an error, the line of its message also has "failed": true. If one of the
tools has changed, all tools are written again. "at" is the number of seconds since the request. The file has no API keys, no
headers and no addresses of servers.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, TypeAlias

from ..core.events import HarnessError, read_content
from ..core.models import Assembly, Delta
from ..core.text import count_same, hide_suspected, is_deeper, list_some, names_key

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object: a message, a tool, options, or a line of the file."""
ReadObject: TypeAlias = Mapping[str, Any]
"""A JsonObject that is read and never changed."""

VERSION = 1
_ADDRESSES = frozenset({"api_base", "base_url"})
DEEPEST_LINE = 200
"""A line has at most this many levels of nesting. The line's outer JSON object is the first level."""
_NO_OPTIONS = frozenset(
    {"model", "messages", "tools", "stream", "stream_options", "metadata", "allowed_openai_params"}
)


class RecordingError(HarnessError, ValueError):
    """Raised for a file that is no recording or has an unknown version, and for a path to which no recording can be written."""

    def __str__(self) -> str:
        return hide_suspected(super().__str__())  # the message may quote a path, which a person has typed


@dataclass
class RecordedCall:
    """One model call of a recording."""

    model: str
    messages: list[JsonObject]
    tools: list[JsonObject]
    """The "name", "description" and "parameters" of each tool."""
    options: JsonObject = field(default_factory=dict)
    failed: set[tuple[str, str]] = field(default_factory=set)
    """(call id, text) of each tool result in `messages` that was an error."""
    deltas: list[tuple[float, Delta]] = field(default_factory=list)
    end: JsonObject = field(default_factory=dict)
    """The "finish_reason" and the "usage" of the answer; if the call failed, its "error" and "status"."""
    is_whole: bool = False
    """True if the file has the "end" of the call. The "end" is missing if the kernel died or the disk was full."""


def load_tape(path: Path) -> list[RecordedCall]:
    """Read a recording.

    Raises RecordingError if the file cannot be read, or if a line is wrong. The error's message has the number of this line.
    """
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise OSError(errno.EINVAL, "It is no file")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a null character in the path
        why = getattr(error, "strerror", None) or error
        raise RecordingError(f"cannot read the recording {shown(path)!r}: {why}") from None
    lines = (
        text.removesuffix("\n").split("\n") if text else []
    )  # not `splitlines`: JSON texts may contain U+2028
    calls: list[RecordedCall] = []
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            if is_deeper(entry, DEEPEST_LINE):
                raise RecursionError
            _take_line(entry, calls, first=number == 1)
        except RecordingError:
            raise
        except RecursionError:
            why = "is nested too deep to be one of a recording"
            raise RecordingError(f"{path.name}, line {number} {why}") from None
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            why = f"is no line of a recording ({type(error).__name__}: {error})"
            raise RecordingError(f"{path.name}, line {number} {why}") from None
    if not lines:
        begin = f"{{'toolloop-recording': {VERSION}}}"
        raise RecordingError(f"{path.name} is empty; a recording begins with {begin}")
    if cut := [str(number) for number, call in enumerate(calls, 1) if not call.is_whole]:
        raise RecordingError(
            f"{path.name}: model call {list_some(cut)} is not complete (the line with its end is missing); record it again"
        )
    return calls


def check_target(path: Path) -> None:
    """Raise RecordingError if no recording can be written to `path`, or if the recording would overwrite another kind of
    file.
    """
    place = f"cannot record to {shown(path)!r}"
    try:
        path.stat()
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:  # a name that is too long, a circle of links, a null character
        raise RecordingError(f"{place}: {getattr(error, 'strerror', None) or error}") from None
    if path.is_fifo() or path.is_socket():
        raise RecordingError(f"{place}: it is no file")
    if path.is_dir():
        raise RecordingError(f"{place}: it is a folder")
    if not path.parent.is_dir():
        raise RecordingError(f"{place}: there is no folder {shown(path.parent)!r}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise RecordingError(f"{place}: no permission to write there")
    if path.is_file() and not _is_tape(path):
        raise RecordingError(
            f"{place}: the file is no recording, and would be overwritten; choose another file"
        )


def _is_tape(path: Path) -> bool:
    """Return whether a file is empty, or begins like a recording."""
    try:
        with path.open("rb") as file:
            first = file.readline(1000).decode("utf-8-sig")
        head = json.loads(first) if first else {"toolloop-recording": VERSION}
        return isinstance(head, dict) and isinstance(head.get("toolloop-recording"), int)
    except (OSError, ValueError, TypeError, RecursionError):
        return False


def shown(path: Path) -> str:
    """Return the path, relative to the current folder if possible.

    The reason is that notebooks save messages, and a saved notebook should not contain the folders of a machine.
    """
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _take_line(entry: JsonObject, calls: list[RecordedCall], *, first: bool) -> None:
    if first:
        version = entry["toolloop-recording"]
        if version != VERSION:
            raise RecordingError(
                f"the recording has version {version!r}; this toolloop_jupyter reads {VERSION}"
            )
    elif "call" in entry:
        before = calls[-1] if calls else RecordedCall("", [], [])
        tools = before.tools if entry.get("tools") == "kept" else []
        kept, model = entry.get("kept", 0), entry.get("model", before.model)
        if not (type(kept) is int and 0 <= kept <= len(before.messages)):
            raise ValueError(f"{kept!r} messages are kept of {len(before.messages)}")
        options = _read_object(entry.get("options", {}))
        made = RecordedCall(str(model), before.messages[:kept], list(tools), options, set(before.failed))
        calls.append(made)
    elif not _OF_A_CALL.isdisjoint(entry):
        if calls[-1].is_whole:
            raise ValueError("it comes after the end of its call")
        _take_line_of(calls[-1], entry)
    # A line with another key is ignored. Such lines come from a later release that has not changed the version number.


_COUNTED = ("prompt_tokens", "completion_tokens", "cost")
_OF_A_CALL = frozenset({"tool", "sent", "delta", "end"})


def _take_line_of(call: RecordedCall, entry: JsonObject) -> None:
    if "tool" in entry:
        call.tools.append(_read_object(entry["tool"]))
    elif "sent" in entry:
        call.messages.append(_read_message(entry["sent"]))
        if entry.get("failed") is True:
            call.failed.add(name_result(call.messages[-1]))
    elif "delta" in entry:
        call.deltas.append((_read_number(entry["at"]), _read_object(entry["delta"])))
    else:
        call.end, call.is_whole = _read_object(entry["end"]), True
        _check_type(call.end, "finish_reason", str)
        usage = _read_object(call.end.get("usage", {}))
        for number in (call.end.get("status", 0), *map(usage.get, _COUNTED, (0, 0, 0))):
            _read_number(number)


def _read_message(value: object) -> JsonObject:
    """Return the message in `value`.

    The types of its text, parts and calls are checked here, so that later code need not check them. Raises TypeError for a
    wrong type.
    """
    message = _read_object(value)
    _check_type(message, "role", str)
    _check_type(message, "content", str, list)
    _check_type(message, "tool_calls", list)
    _check_type(message, "tool_call_id", str)
    for part in message["content"] if isinstance(message.get("content"), list) else ():
        _read_object(part)
    for one in message.get("tool_calls") or ():
        function = _read_object(_read_object(one)["function"])
        _check_type(function, "name", str)
        _check_type(function, "arguments", str)
    return message


def _check_type(holder: ReadObject, name: str, *types: type) -> None:
    value = holder.get(name)
    if value is not None and type(value) not in types:
        raise TypeError(f"{name} is {value!r:.60}")


def _read_object(value: object) -> JsonObject:
    if not isinstance(value, dict):
        raise TypeError(f"expected an object, got {value!r:.60}")
    return dict(value)


def _read_number(value: Any) -> float:
    if isinstance(value, bool) or not 0 <= (number := float(value)) < math.inf or isinstance(value, str):
        raise ValueError(f"expected a number that is not below 0, got {value!r:.60}")
    return number


def lines(number: int, call: RecordedCall, before: RecordedCall | None) -> list[JsonObject]:
    kept = count_same(before.messages, call.messages) if before else 0
    same_tools = before is not None and bool(call.tools) and before.tools == call.tools
    head: JsonObject = {"call": number, "model": call.model}
    head |= {"kept": kept} if kept else {}
    head |= {"tools": "kept"} if same_tools else {}
    head |= {"options": call.options} if call.options else {}
    return [
        head,
        *({"tool": tool} for tool in call.tools if not same_tools),
        *(
            {"sent": message, **({"failed": True} if name_result(message) in call.failed else {})}
            for message in call.messages[kept:]
        ),
        *({"at": seconds, "delta": delta} for seconds, delta in call.deltas),
        {"end": call.end},
    ]


def describe_tool(tool: ReadObject) -> JsonObject:
    function = tool.get("function") or tool
    return {key: function[key] for key in ("name", "description", "parameters") if key in function}


def list_options(request: ReadObject) -> JsonObject:
    """Return the completion options without API keys, headers and server addresses, at any depth.

    The schema of the response format keeps all its fields, including fields with a name such as "api_key".
    """
    kept = {k: v for k, v in request.items() if k not in _NO_OPTIONS and v is not None}
    schema = kept.pop("response_format", None)
    options: JsonObject = clean(kept, without=lambda name: names_key(name) or name.lower() in _ADDRESSES)
    return {**options, **({"response_format": clean(schema)} if schema is not None else {})}


def clean(value: Any, without: Callable[[str], bool] = lambda _: False) -> Any:
    """Copy plain data. Texts that look like API keys are hidden. Fields for whose name `without(name)` is true are left out.

    A picture is replaced by its kind, since a figure that is drawn again may differ in a few bytes. Any other file is
    replaced by a digest.
    """
    if isinstance(value, Mapping):
        if value.get("type") == "input_audio" and isinstance(sound := value.get("input_audio"), Mapping):
            value = {**value, "input_audio": {**sound, "data": _hash(str(sound.get("data")))}}
        return {str(k): clean(v, without) for k, v in value.items() if not without(str(k))}
    if isinstance(value, (list, tuple)):
        return [clean(item, without) for item in value]
    if isinstance(value, str) and value.startswith("data:image/"):
        return f"{value[:22].partition(',')[0]},…"
    if isinstance(value, str) and (file := _FILE.match(value)):
        return f"{file[0]}{_hash(value[file.end() :])}"
    if isinstance(value, str):
        return hide_suspected(value)
    return value if value is None or isinstance(value, (int, float, bool)) else str(value)


_FILE = re.compile(r"data:[\w.+/-]{1,100};base64,")


def _hash(encoded: str) -> str:
    """Return the digest that a recording has in the place of a file's data.

    A text that is already a digest is returned unchanged.
    """
    return (
        encoded if encoded.startswith("sha256 ") else f"sha256 {hashlib.sha256(encoded.encode()).hexdigest()}"
    )


def clean_deltas(deltas: Sequence[tuple[float, ReadObject]]) -> list[tuple[float, Delta]]:
    """Return the deltas without empty fields.

    If the message of these deltas contains an API key, return one delta with the whole message, but without the key.
    """
    kept = [
        (round(seconds, 3), {k: v for k, v in delta.items() if k != "role" and v not in (None, [], {}, "")})
        for seconds, delta in deltas
    ]
    message = _assemble(kept)
    if (cleaned := clean(message)) != message:
        return [(kept[-1][0], make_delta(cleaned))]
    return [(seconds, delta) for seconds, delta in kept if delta]


def _assemble(deltas: Sequence[tuple[float, ReadObject]]) -> JsonObject:
    assembly = Assembly()
    for _, delta in deltas:
        assembly.add(delta)
    return assembly.message()


def is_same_message(deltas: Sequence[tuple[float, Delta]], message: ReadObject) -> bool:
    made = _assemble(deltas)
    calls = [[call["function"] for call in one.get("tool_calls") or ()] for one in (made, message)]
    return (made["content"] or "") == (message.get("content") or "") and calls[0] == calls[1]


def make_delta(message: ReadObject) -> Delta:
    calls = [{"index": i, **call} for i, call in enumerate(message.get("tool_calls") or ())]
    return {
        **{k: v for k, v in message.items() if k != "tool_calls"},
        **({"tool_calls": calls} if calls else {}),
    }


# --- how a request differs from a recorded one -----------------------------------------------------------------

_AROUND = 40
_LOOSE = frozenset({"additionalProperties", "strict", "title", "default", "required", "description", "name"})
"""Keywords that are ignored when schemas of response formats are compared.

LiteLLM's releases set these keywords differently for the same output model.
"""


def find_difference(
    recorded: RecordedCall, messages: Sequence[ReadObject], tools: Sequence[ReadObject] | None, wanted: object
) -> str:
    """Return the first difference between a recorded call and a request; "" if there is none.

    The messages, the tools and the schema of the answer are compared. If `tools` is None, the tools are not compared. Call
    ids, thinking blocks and options such as the temperature are never compared.
    """
    if told := _compare_messages(recorded.messages, messages):
        return told
    both = (recorded.tools, recorded.tools if tools is None else tools)
    was, now = ({str(tool.get("name")): tool for tool in those} for those in both)
    for name in [*was, *now]:
        if name not in now:
            return f"the tool {name!r} was recorded and is not there now"
        if name not in was:
            return f"the tool {name!r} is there now and was not recorded"
        if was[name] != now[name]:
            return f"the tool {name!r} differs\n{_show_both(_write_text(was[name]), _write_text(now[name]))}"
    before, after = (
        _write_text(_reduce_schema(one)) for one in (recorded.options.get("response_format"), wanted)
    )
    return (
        "" if before == after else f"the schema of the answer (output=) differs\n{_show_both(before, after)}"
    )


def find_nearest(recorded: Sequence[RecordedCall], messages: Sequence[ReadObject], position: int) -> int:
    """Return the index of the recorded call whose messages are most like `messages`.

    The call at `position` is preferred if several calls are equally similar.
    """
    now = [_write_message(message) for message in messages]

    def likeness(number: int) -> tuple[int, float]:
        old = [_write_message(message) for message in recorded[number].messages]
        last = SequenceMatcher(None, old[-1][1][:1000], now[-1][1][:1000]).ratio() if old and now else 0.0
        same = count_same(old, now) - abs(len(old) - len(now))
        return same, last + (0.2 if number == position else 0.0)

    return max(range(len(recorded)), key=likeness)


def _compare_messages(old: Sequence[ReadObject], new: Sequence[ReadObject]) -> str:
    calls = {
        call.get("id"): call["function"].get("name") for now in new for call in now.get("tool_calls") or ()
    }
    for number, (was, now) in enumerate(zip(old, new, strict=False), 1):
        (before, said), (role, says) = _write_message(was), _write_message(now)
        if before != role:
            return f"message {number} is from {role!r}, but the recorded message is from {before!r}"
        if said != says:
            who = f"result of {calls[now['tool_call_id']]}" if now.get("tool_call_id") in calls else role
            return f"message {number} ({who}) differs\n{_show_both(said, says)}"
    if len(old) == len(new):
        return ""
    longer, where = (new, "request") if len(new) > len(old) else (old, "recording")
    role, says = _write_message(longer[min(len(old), len(new))])
    return (
        f"{len(old)} messages were recorded, now there are {len(new)}; the first message that is only in the "
        f"{where} is from {role}: {_show_part(says, 0)}"
    )


def _reduce_schema(wanted: object) -> object:
    """Return the schema of a response format, without the keywords in _LOOSE."""
    if isinstance(wanted, Mapping) and isinstance(wanted.get("json_schema"), Mapping):
        return _reduce_schema(wanted["json_schema"].get("schema"))
    if isinstance(wanted, Mapping):
        return {k: _reduce_schema(v) for k, v in wanted.items() if k not in _LOOSE or isinstance(v, Mapping)}
    return [_reduce_schema(item) for item in wanted] if isinstance(wanted, list) else wanted


def _write_message(message: ReadObject) -> tuple[str, str]:
    """Return (the role of a message, a text with the message's content and its tool calls)."""
    content = message.get("content") or ""
    said = [content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)]
    said += [write_call(call["function"]) for call in message.get("tool_calls") or ()]
    return str(message.get("role")), "\n".join(text for text in said if text)


def write_call(function: ReadObject) -> str:
    """Return a tool call as one text, such as `double({"n": 4})`, with sorted arguments.

    `function` has the arguments as JSON text.
    """
    arguments = function.get("arguments") or "{}"
    with contextlib.suppress(ValueError, RecursionError):  # broken arguments are compared as text
        arguments = json.dumps(json.loads(arguments), ensure_ascii=False, sort_keys=True)
    return f"{function.get('name')}({arguments})"


def name_result(message: ReadObject) -> tuple[str, str]:
    """Return (call id, text) of a message with a tool's result. Pictures in the message are left out."""
    return str(message.get("tool_call_id")), read_content(message.get("content"))


def list_results(
    messages: Sequence[ReadObject], failed: Collection[tuple[str, str]]
) -> list[tuple[str, str, bool]]:
    """Return a list of (call as text, result as text, True if the result was an error), in the order of the results."""
    calls: dict[object, str] = {}
    found = []
    for message in messages:
        calls |= {call.get("id"): write_call(call["function"]) for call in message.get("tool_calls") or ()}
        if message.get("role") == "tool":
            name = name_result(message)
            found.append((calls.get(message.get("tool_call_id"), ""), name[1], name in failed))
    return found


def _write_text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _show_both(old: str, new: str) -> str:
    """Return two lines that show both texts around the first place where the texts differ."""
    start = max(0, count_same(old, new) - _AROUND)
    return f"  recorded: {_show_part(old, start)}\n  now:      {_show_part(new, start)}"


def _show_part(text: str, start: int) -> str:
    end = start + 2 * _AROUND
    return repr(("…" if start else "") + text[start:end] + ("…" if len(text) > end else ""))
