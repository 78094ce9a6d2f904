"""The file of a recording: how its lines are read and written, what is left out, and how a request differs from a recorded one.

Each line of a recording is a JSON object, so that people can read and compare recordings:

    {"toolloop-recording": 1}
    {"call": 1, "model": "openai/gpt-5.4-mini", "options": {"temperature": 0}}
    {"tool": {"name": "search_code", "description": …, "parameters": …}}
    {"sent": {"role": "user", "content": "Where are retries handled?"}}
    {"at": 0.412, "delta": {"content": "I'll "}}
    {"end": {"finish_reason": "stop", "usage": {"prompt_tokens": 80, "completion_tokens": 12}}}

A call has "sent" lines only for the messages that the previous call did not have. "kept" is the number of earlier messages
that were sent again unchanged. If a tool's result was an error, the line of its message also has "failed": true. If one of the
tools has changed, all tools are written; if not, "tools" is "kept". "at" is the number of seconds since the request. The file
has no API keys, no headers and no addresses of servers.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import Field, InstanceOf, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from ..core.events import HarnessError, read_content, read_list
from ..core.execution import attempt_call
from ..core.models import Assembly, Delta
from ..core.text import count_same, hide_in, hide_suspected, is_deeper, list_some, names_key, shorten

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
    """Raised if a file is not a recording or has an unknown version, or if a recording cannot be written."""

    def __str__(self) -> str:
        return hide_suspected(super().__str__())  # a path in the message may contain an API key


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


# --- reading: the types that later code relies on ---------------------------------------------------------------

_Text: TypeAlias = InstanceOf[str] | None  # pydantic's `str` refuses half of a surrogate pair
_Object: TypeAlias = dict[Any, Any]
_Number: TypeAlias = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Function(TypedDict, total=False):
    name: _Text
    arguments: _Text


class _ToolCall(TypedDict):
    function: _Function


class _Message(TypedDict, total=False):
    role: _Text
    content: _Text | list[_Object]
    tool_calls: list[_ToolCall] | None
    tool_call_id: _Text


class _Usage(TypedDict, total=False):
    prompt_tokens: _Number
    completion_tokens: _Number
    cost: _Number


class _End(TypedDict, total=False):
    finish_reason: _Text
    usage: _Usage
    status: _Number


class _Line(TypedDict, total=False):
    """Any line but the first. Fields that are not named here come from a later release, and are ignored."""

    kept: Annotated[int, Field(ge=0)]
    options: _Object
    tool: _Object
    sent: _Message
    at: _Number
    delta: _Object
    end: _End


_LINE = TypeAdapter(_Line)


def load_tape(path: Path) -> list[RecordedCall]:
    """Read a recording. Raises RecordingError if the file cannot be read or a line is wrong (with the line's number)."""
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            raise OSError(errno.EINVAL, "It is not a file")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a null character in the path
        why = getattr(error, "strerror", None) or error
        raise RecordingError(f"cannot read the recording {shorten_path(path)!r}: {why}") from None
    if not text:
        begin = json.dumps({"toolloop-recording": VERSION})
        raise RecordingError(f"{path.name} is empty; a recording begins with {begin}")
    calls: list[RecordedCall] = []
    # Not `splitlines()`: JSON texts may contain U+2028.
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
        try:
            entry = json.loads(line)
            if is_deeper(entry, DEEPEST_LINE):
                raise RecursionError
            _take_line(entry, calls, first=number == 1)
        except RecordingError:
            raise
        except RecursionError:
            raise RecordingError(f"{path.name}, line {number} is nested too deeply for a recording") from None
        except (ValueError, KeyError, IndexError, TypeError) as error:
            why = f"{type(error).__name__}: {error}"
            if isinstance(error, ValidationError):
                first = error.errors()[0]
                place = ".".join(str(one) for one in first["loc"] if re.fullmatch(r"\w+", str(one)))
                why = f"{place or 'the whole line'}: {first['msg']}, got {first['input']!r:.60}"
            raise RecordingError(f"{path.name}, line {number} is not a line of a recording ({why})") from None
    if cut := [str(number) for number, call in enumerate(calls, 1) if not call.is_whole]:
        raise RecordingError(
            f"{path.name}: model call {list_some(cut)} is not complete (the line with its end is missing); record it again"
        )
    return calls


def _take_line(entry: JsonObject, calls: list[RecordedCall], *, first: bool) -> None:
    if first:
        if (version := entry["toolloop-recording"]) != VERSION:
            raise RecordingError(
                f"the recording has version {version!r}; this toolloop_jupyter reads {VERSION}"
            )
        return
    _LINE.validate_python(entry, strict=True)
    if "call" in entry:
        before = calls[-1] if calls else RecordedCall("", [], [])
        kept, tools = entry.get("kept", 0), before.tools if entry.get("tools") == "kept" else []
        if kept > len(before.messages):
            raise ValueError(
                f'"kept" is {kept}, but the call before it has only {len(before.messages)} messages'
            )
        model, options = str(entry.get("model", before.model)), entry.get("options", {})
        calls.append(RecordedCall(model, before.messages[:kept], list(tools), options, set(before.failed)))
    elif entry.keys() & {"tool", "sent", "delta", "end"}:
        call = calls[-1]
        if call.is_whole:
            raise ValueError("the line comes after the end of its call")
        if "tool" in entry:
            call.tools.append(entry["tool"])
        elif "sent" in entry:
            call.messages.append(entry["sent"])
            call.failed |= {name_result(entry["sent"])} if entry.get("failed") is True else set()
        elif "delta" in entry:
            call.deltas.append((entry["at"], entry["delta"]))
        else:
            call.end, call.is_whole = entry["end"], True


# --- writing ---------------------------------------------------------------------------------------------------


def check_target(path: Path) -> None:
    """Raise RecordingError if no recording can be written to `path`, or if another kind of file would be overwritten."""
    try:
        fault = _find_fault(path, exists=bool(path.stat()))
    except FileNotFoundError:
        fault = _find_fault(path, exists=False)
    except (OSError, ValueError) as error:  # a name that is too long, a circle of links, a null character
        fault = getattr(error, "strerror", None) or str(error)
    if fault:
        raise RecordingError(f"cannot record to {shorten_path(path)!r}: {fault}")


def _find_fault(path: Path, *, exists: bool) -> str:
    if path.is_dir():
        return "it is a folder"
    if path.is_fifo() or path.is_socket():  # opening it may wait for ever
        return "it is not a file"
    if not path.parent.is_dir():
        return f"there is no folder {shorten_path(path.parent)!r}"
    if not os.access(path if exists else path.parent, os.W_OK):
        return "no permission to write there"
    is_other = path.is_file() and not _is_tape(path)
    return "the file is not a recording, and would be overwritten; choose another file" if is_other else ""


def _is_tape(path: Path) -> bool:
    """Return whether a file is empty, or begins like a recording."""
    try:
        with path.open("rb") as file:
            first = file.readline(1000).decode("utf-8-sig")
        head = json.loads(first) if first else {"toolloop-recording": VERSION}
        return isinstance(head, dict) and isinstance(head.get("toolloop-recording"), int)
    except (OSError, ValueError, RecursionError):
        return False


def shorten_path(path: Path) -> str:
    """Return the path, relative to the current folder if possible. So a saved notebook does not show the machine's folders."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def make_lines(number: int, call: RecordedCall, before: RecordedCall | None) -> list[JsonObject]:
    """Return the lines of a call. Messages and tools that the earlier call `before` has, too, are left out."""
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


def write_line(line: JsonObject) -> str:
    return json.dumps(line, ensure_ascii=False, default=_write_object) + "\n"


def _write_object(value: object) -> str:
    """Return a value that is not JSON as text: an option such as a timeout, or a field that a provider has added."""
    text = attempt_call(str, value)
    return hide_suspected(text) if isinstance(text, str) else type(value).__name__


# --- what is left out ------------------------------------------------------------------------------------------


def clean(value: Any) -> Any:
    """Return a copy of plain data. Keys in it are hidden, and pictures and files are replaced (see `_clean_text`)."""
    return hide_in(value, _clean_text)


def clean_messages(messages: Iterable[ReadObject]) -> list[JsonObject]:
    """Return a copy of messages, as `clean` makes it. A sound is replaced, too: unlike other files, it has no `data:` address."""
    cleaned: list[JsonObject] = clean(list(messages))
    for part in [part for message in cleaned for part in read_list(message.get("content"))]:
        if isinstance(part, dict) and isinstance(sound := part.get("input_audio"), dict):
            sound["data"] = _hash(str(sound.get("data")))
    return cleaned


def clean_tools(tools: Iterable[ReadObject]) -> list[JsonObject]:
    """Return the name, the description and the parameters of each tool, as `clean` makes them."""
    functions = [tool.get("function") or tool for tool in tools]
    kept = ("name", "description", "parameters")
    return [clean({key: function[key] for key in kept if key in function}) for function in functions]


def list_options(request: ReadObject) -> JsonObject:
    """Return the completion options without API keys, headers and addresses. A schema's field "api_key" stays."""
    kept = {k: v for k, v in request.items() if not (v is None or k in _NO_OPTIONS or _is_private(k))}
    schema = {name: clean(kept.pop(name)) for name in ("response_format",) if name in kept}
    return {**hide_in(kept, _clean_text, _is_private), **schema}


def _is_private(name: str) -> bool:
    return names_key(name) or name.lower() in _ADDRESSES


def _clean_text(text: str) -> str:
    """Hide what looks like an API key. A text that is the data of a file is replaced.

    A picture is replaced by its kind, because a figure that is drawn again may differ in a few bytes. Any other file is replaced
    by a digest.
    """
    if text.startswith("data:image/"):
        return f"{text[:22].partition(',')[0]},…"
    if file := _FILE.match(text):
        return f"{file[0]}{_hash(text[file.end() :])}"
    return hide_suspected(text)


_FILE = re.compile(r"data:[\w.+/-]{1,100};base64,")


def _hash(encoded: str) -> str:
    """Return a digest of a file's data. If `encoded` is a digest already, return it: a replay sends recorded texts again."""
    is_digest = encoded.startswith("sha256 ")
    return encoded if is_digest else f"sha256 {hashlib.sha256(encoded.encode()).hexdigest()}"


def clean_deltas(deltas: Sequence[tuple[float, ReadObject]]) -> list[tuple[float, Delta]]:
    """Return the deltas without empty fields. If they have an API key, return one delta: their message, without the key.

    The key may be in any field of a delta: some servers repeat the request's headers in fields that are not of the message.
    """
    kept = [
        (round(seconds, 3), {k: v for k, v in delta.items() if k != "role" and v not in (None, [], {}, "")})
        for seconds, delta in deltas
    ]
    message = _assemble(kept)
    cleaned = clean(message)
    # The deltas are searched as one text: a search in each of many thousand deltas would take seconds.
    written = json.dumps([delta for _, delta in kept], default=_write_object)
    if cleaned != message or hide_suspected(written) != written:
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
"""JSON Schema keywords that are not compared: LiteLLM's releases set them differently for the same output model."""


def find_difference(
    recorded: RecordedCall, messages: Sequence[ReadObject], tools: Sequence[ReadObject] | None, wanted: object
) -> str:
    """Return the first difference between a recorded call and a request; "" if there is none.

    The messages, the tools and the schema of the answer (`wanted`) are compared; if `tools` is None, no tools. Call
    ids, thinking blocks and options such as the temperature are never compared.
    """
    old = _list_parts(recorded.messages, recorded.tools, recorded.options.get("response_format"))
    new = _list_parts(messages, recorded.tools if tools is None else tools, wanted)
    # The last part on both sides is the schema, so `zip` drops no difference. For a tool (`who` is ""), the tool's name says enough.
    for (place, who, *was), (place_now, who_now, *now) in zip(old, new, strict=False):
        if place == place_now and was != now:
            start = max(0, count_same(was[1], now[1]) - _AROUND)
            texts = f"  recorded: {_show(was[1], start)}\n  now:      {_show(now[1], start)}"
            by_other = "" if who == who_now else f" from the recorded one{who}"
            return f"{place}{who_now} differs{by_other}\n{texts}"
        if place != place_now and any(place == later for later, *_ in new):
            return f"{place_now}{who_now} is there now and was not recorded{who_now and f': {_show(now[1])}'}"
        if place != place_now:
            return f"{place}{who} was recorded and is not there now{who and f': {_show(was[1])}'}"
    return ""


def _list_parts(
    messages: Sequence[ReadObject], tools: Sequence[ReadObject], wanted: object
) -> Iterator[tuple[str, str, str, str]]:
    """Yield the parts of a request that are compared, each as (its place, who wrote it, the message's role, its text).

    Only the role and the text are compared. The place and the writer are words for a person.
    """
    names: dict[object, object] = {}  # call id -> name of the tool
    for number, message in enumerate(messages, 1):
        names |= {call.get("id"): call["function"].get("name") for call in message.get("tool_calls") or ()}
        role, text = _write_message(message)
        name = names.get(message.get("tool_call_id")) if role == "tool" else None
        yield f"message {number}", f" (result of {name})" if name else f" ({role})", role, text
    for tool in sorted(tools, key=lambda tool: str(tool.get("name"))):
        yield f"the tool {tool.get('name')!r}", "", "", _write_text(tool)
    yield "the schema of the answer (output=)", "", "", _write_text(_reduce_schema(wanted))


def _show(text: str, start: int = 0) -> str:
    return repr(("…" if start else "") + shorten(text[start:], 2 * _AROUND))


def find_nearest(recorded: Sequence[RecordedCall], messages: Sequence[ReadObject], position: int) -> int:
    """Return the index of the recorded call whose messages are most similar to `messages`. If several calls are equally
    similar, prefer the call at `position`.
    """
    now = [_write_message(message) for message in messages]

    def likeness(number: int) -> tuple[int, float]:
        old = [_write_message(message) for message in recorded[number].messages]
        last = SequenceMatcher(None, old[-1][1][:1000], now[-1][1][:1000]).ratio() if old and now else 0.0
        same = count_same(old, now) - abs(len(old) - len(now))
        return same, last + (0.2 if number == position else 0.0)

    return max(range(len(recorded)), key=likeness)


def _reduce_schema(wanted: object) -> object:
    """Return the schema of a response format, without the keywords in _LOOSE."""
    if isinstance(wanted, Mapping) and isinstance(wanted.get("json_schema"), Mapping):
        return _reduce_schema(wanted["json_schema"].get("schema"))
    if isinstance(wanted, Mapping):
        return {k: _reduce_schema(v) for k, v in wanted.items() if k not in _LOOSE or isinstance(v, Mapping)}
    return [_reduce_schema(item) for item in wanted] if isinstance(wanted, list) else wanted


def _write_message(message: ReadObject) -> tuple[str, str]:
    """Return (role, text) of a message. The text has the message's content and its tool calls."""
    content = message.get("content") or ""
    texts = [content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)]
    texts += [write_call(call["function"]) for call in message.get("tool_calls") or ()]
    return str(message.get("role")), "\n".join(text for text in texts if text)


def write_call(function: ReadObject) -> str:
    """Return a tool call as one text with sorted arguments: `double({"n": 4})`. `function` has the arguments as JSON text."""
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
    results = []
    for message in messages:
        calls |= {call.get("id"): write_call(call["function"]) for call in message.get("tool_calls") or ()}
        if message.get("role") == "tool":
            name = name_result(message)
            results.append((calls.get(message.get("tool_call_id"), ""), name[1], name in failed))
    return results


def _write_text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
