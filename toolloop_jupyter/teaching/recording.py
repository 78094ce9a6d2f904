"""Record a run's model traffic to a file, and replay it without a network or a key.

A recording is JSON lines, made to be read and compared:

    {"toolloop-recording": 1}
    {"call": 1, "model": "openai/gpt-4o-mini", "messages": 1, "options": {"temperature": 0}}
    {"tool": {"name": "search_code", "description": …, "parameters": …}}
    {"sent": {"role": "user", "content": "Where are retries handled?"}}
    {"at": 0.412, "delta": {"content": "I'll "}}
    {"end": {"finish_reason": "stop", "usage": {"prompt_tokens": 80, "completion_tokens": 12}}}

Each call lists only what is new since the call before: "kept" messages went out again as they were, and tools are
written again when one of them changed. "at" is seconds since the request. Keys, headers and addresses are not in it.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolloop_jupyter.core.assembly import Assembly
from toolloop_jupyter.core.errors import HarnessError, ModelCallFailed
from toolloop_jupyter.core.failures import redact
from toolloop_jupyter.core.images import Way, way_of
from toolloop_jupyter.core.model import Reply, Request
from toolloop_jupyter.core.observer import Observer
from toolloop_jupyter.core.provider import Delta, PlainRefusal, ProviderError, ProviderRequest

from . import offline
from .differences import difference, nearest

VERSION = 1
_SECRET = re.compile(
    r"key|token$|secret|password|authori[sz]ation|headers?$|credential|^api_base$|^base_url$", re.IGNORECASE
)
_NO_OPTIONS = frozenset(
    {"model", "messages", "tools", "stream", "stream_options", "metadata", "allowed_openai_params"}
)
_numbers = itertools.count(1)


class RecordingError(HarnessError, ValueError):
    """A file that is no recording, or one of a newer version."""


class ReplayMismatch(PlainRefusal):
    """The request is none of the recorded ones. `difference` says how it differs from the nearest, in a few lines."""

    def __init__(self, where: str, difference: str, advice: str) -> None:
        super().__init__(f"{where}: {difference}\n{advice}", 400)
        self.difference = difference


@dataclass
class Call:
    """One model call of a recording."""

    model: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    """{"name", "description", "parameters"} of each."""
    options: dict[str, Any] = field(default_factory=dict)
    deltas: list[tuple[float, Delta]] = field(default_factory=list)
    end: dict[str, Any] = field(default_factory=dict)
    """"finish_reason" and "usage", or "error" and "status"."""


class Recorder(Observer):
    """Writes every model call of the runs that it observes to `path`.

    The file is begun with the first call, over what was there; `append` goes on behind it instead.
    """

    def __init__(self, path: str | Path, *, append: bool = False) -> None:
        self.path = Path(path)
        if not self.path.parent.is_dir():
            raise RecordingError(
                f"cannot record to {_shown(self.path)!r}: there is no folder {_shown(self.path.parent)!r}"
            )
        self.calls = load(self.path) if append and self.path.exists() else []
        self.tap = self._take
        self._begun = bool(self.calls)
        self._request: dict[str, Any] | None = None
        self._started: float | None = None
        self._deltas: list[tuple[float, Delta]] = []

    def record(
        self,
        request: Mapping[str, Any],
        deltas: Sequence[tuple[float, Mapping[str, Any]]],
        final: Mapping[str, Any],
    ) -> None:
        """Write one call.

        Args:
            request: what was sent: "model", "messages", "tools" and any options; keys and headers are left out.
            deltas: (seconds since the request, delta), as they came.
            final: "finish_reason" and "usage", or, for a call that failed, "error" (text) and "status" (without one,
                the text is what the person was told).
        """
        call = Call(
            model=str(request.get("model", "")),
            messages=_clean(list(request.get("messages") or ())),
            tools=_clean([_tool(tool) for tool in request.get("tools") or ()]),
            options=_options(request),
            deltas=_clean_deltas(deltas),
            end=_clean({k: v for k, v in final.items() if v is not None}),
        )
        before = self.calls[-1] if self.calls else None
        lines = _lines(len(self.calls) + 1, call, before)
        if not self._begun:
            lines.insert(0, {"toolloop-recording": VERSION})
        with self.path.open("a" if self._begun else "w", encoding="utf-8", newline="\n") as file:
            file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        self._begun = True
        self.calls.append(call)

    async def before_model(self, request: Request) -> None:
        """Begin a call."""
        self._request, self._deltas = request.shown(), []
        self._started = asyncio.get_running_loop().time()  # the clock of `tap`: both are time.monotonic()

    def _take(self, seconds: float, delta: Mapping[str, Any]) -> None:
        if self._started is not None:
            self._deltas.append((max(0.0, seconds - self._started), dict(delta)))

    async def after_model(self, reply: Reply) -> None:
        """Write the call."""
        if self._request is None:
            return
        usage: dict[str, float] = {
            "prompt_tokens": reply.usage.input_tokens,
            "completion_tokens": reply.usage.output_tokens,
        }
        if reply.cost is not None:
            usage["cost"] = reply.cost
        deltas = self._deltas
        if not _says_same(deltas, reply.message):  # a broken try came before the one that counts
            deltas = [(deltas[-1][0] if deltas else 0.0, _as_delta(reply.message))]
        self.record(self._request, deltas, {"finish_reason": reply.finish_reason, "usage": usage})
        self._request, self._started = None, None

    async def model_failed(self, error: ModelCallFailed) -> None:
        """Write a call that failed for good: what had come, and the line that said why."""
        if self._request is not None:
            self.record(self._request, self._deltas, {"error": str(error)})
        self._request, self._started = None, None


class Replay:
    """A model that says again what a recording has, at the recorded pace.

    A request gets the answer that was recorded for it: of the next call, or, where cells run again or in another order,
    of the first one behind or before it that was asked the same.

    Args:
        path: the recording.
        loose: go on when a request differs from the recorded one; `differences` then has what was different.
        speed: 2.0 is twice as fast, 0 does not wait.

    Raises RecordingError for a file that is none.
    """

    def __init__(self, path: str | Path, *, loose: bool = False, speed: float = 1.0) -> None:
        self.path = Path(path)
        self.loose = loose
        self.speed = speed
        self._read = _stamp(self.path)
        self.calls = load(self.path)
        self.differences: list[str] = []
        self._next = 0
        self.model = offline.put(f"replay-{next(_numbers)}", self)

    @property
    def toolloop_model(self) -> str:
        """The model's name, under the attribute that the magic and the API look for."""
        return self.model

    @property
    def recorded_model(self) -> str:
        """The model that was recorded."""
        return self.calls[0].model if self.calls else ""

    @property
    def takes_images(self) -> Way | None:
        """Where the recorded model was sent pictures."""
        return way_of(message for call in self.calls for message in call.messages)

    def is_current(self) -> bool:
        """Whether the file is still as it was read."""
        return _stamp(self.path) == self._read

    @property
    def position(self) -> int:
        """How many calls have been played; set it to play from another one on."""
        return self._next

    @position.setter
    def position(self, calls: int) -> None:
        self._next = calls

    def reset(self) -> None:
        """Start again with the first call."""
        self._next, self.differences = 0, []

    def respond(self, request: ProviderRequest) -> AsyncIterator[Delta]:
        """Answer with the next recorded call. Raises ReplayMismatch when the request is another one."""
        now = (_clean(request.messages), _clean([_tool(tool) for tool in request.tools]))
        wanted = request.options.get("response_format")
        if not self.calls:
            raise ReplayMismatch(self.path.name, "there is no call in this recording", "Record it again.")
        order = [(self._next + n) % len(self.calls) for n in range(len(self.calls))]
        fitting = next((n for n in order if not difference(self.calls[n], *now, wanted)), None)
        if fitting is None:
            fitting = nearest(self.calls, now[0], self._next)
            where = f"{self.path.name}, model call {fitting + 1}"
            told = difference(self.calls[fitting], *now, wanted)
            if not self.loose:
                advice = "Run the notebook as it was recorded, record it again, or go on with --replay-loose."
                raise ReplayMismatch(where, told, advice)
            self.differences.append(f"{where}: {told}")
        self._next = fitting + 1
        call = self.calls[fitting]
        if "error" in call.end and not call.deltas:
            raise _failure(call.end)
        return self._play(call)

    async def _play(self, call: Call) -> AsyncIterator[Delta]:
        loop = asyncio.get_running_loop()
        started = loop.time()
        for seconds, delta in call.deltas:
            wait = started + seconds / self.speed - loop.time() if self.speed > 0 else 0.0
            if wait > 0:
                await asyncio.sleep(wait)
            yield delta
        if "error" in call.end:
            raise _failure(call.end)
        yield {key: call.end[key] for key in ("finish_reason", "usage") if key in call.end}


def load(path: Path) -> list[Call]:
    """Read a recording. Raises RecordingError with the line that is wrong."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise RecordingError(f"cannot read the recording {_shown(path)!r}: {why}") from None
    calls: list[Call] = []
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            _take_line(entry, calls, first=number == 1)
        except RecordingError:
            raise
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            said = f"{type(error).__name__}: {error}"
            raise RecordingError(f"{path.name}, line {number} is no line of a recording ({said})") from None
    if not lines:
        raise RecordingError(
            f"{path.name} is empty; a recording begins with {{'toolloop-recording': {VERSION}}}"
        )
    return calls


def _stamp(path: Path) -> tuple[int, int] | None:
    """What tells whether a file was written since; None when it is not there."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_mtime_ns, facts.st_size


def _shown(path: Path) -> str:
    """A path as short as it can be said from here: messages are saved with notebooks, folders of a machine are not."""
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _failure(end: Mapping[str, Any]) -> ProviderError:
    """A recorded failure: with its status, or as the words that the person was told."""
    if "status" in end:
        return ProviderError(str(end["error"]), end["status"])
    return PlainRefusal(str(end["error"]), 400)


def _take_line(entry: dict[str, Any], calls: list[Call], *, first: bool) -> None:
    if first:
        version = entry["toolloop-recording"]
        if version != VERSION:
            raise RecordingError(
                f"the recording has version {version!r}; this toolloop_jupyter reads {VERSION}"
            )
    elif "call" in entry:
        before = calls[-1] if calls else Call("", [], [])
        tools = before.tools if entry.get("tools") == "kept" else []
        kept = before.messages[: entry.get("kept", 0)]
        calls.append(Call(entry.get("model", before.model), kept, list(tools), entry.get("options", {})))
    elif "tool" in entry:
        calls[-1].tools.append(dict(entry["tool"]))
    elif "sent" in entry:
        calls[-1].messages.append(dict(entry["sent"]))
    elif "delta" in entry:
        calls[-1].deltas.append((float(entry["at"]), dict(entry["delta"])))
    elif "end" in entry:
        calls[-1].end = dict(entry["end"])
    # Another key is of a later release that still writes this version: it may be left out.


def _lines(number: int, call: Call, before: Call | None) -> list[dict[str, Any]]:
    kept = 0
    for old, new in zip(before.messages if before else (), call.messages, strict=False):
        if old != new:
            break
        kept += 1
    same_tools = before is not None and bool(call.tools) and before.tools == call.tools
    head: dict[str, Any] = {"call": number, "model": call.model}
    head |= {"kept": kept} if kept else {}
    head |= {"tools": "kept"} if same_tools else {}
    head |= {"options": call.options} if call.options else {}
    return [
        head,
        *({"tool": tool} for tool in call.tools if not same_tools),
        *({"sent": message} for message in call.messages[kept:]),
        *({"at": seconds, "delta": delta} for seconds, delta in call.deltas),
        {"end": call.end},
    ]


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = tool.get("function") or tool
    return {key: function[key] for key in ("name", "description", "parameters") if key in function}


def _options(request: Mapping[str, Any]) -> dict[str, Any]:
    """The completion options, without keys, headers and addresses at any depth. A schema's names are no secrets."""
    kept = {k: v for k, v in request.items() if k not in _NO_OPTIONS and v is not None}
    schema = kept.pop("response_format", None)
    return {**_without_secrets(kept), **({"response_format": _clean(schema)} if schema is not None else {})}


def _without_secrets(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _without_secrets(v) for k, v in value.items() if not _SECRET.search(str(k))}
    if isinstance(value, (list, tuple)):
        return [_without_secrets(item) for item in value]
    return _clean(value)


def _clean(value: Any) -> Any:
    """Copy plain data; in texts, what looks like a key is replaced."""
    if isinstance(value, Mapping):
        return {str(k): _clean(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(item) for item in value]
    if isinstance(value, str):
        return f"{value[:22].partition(',')[0]},…" if value.startswith("data:image/") else redact(value)
    return value if value is None or isinstance(value, (int, float, bool)) else str(value)


def _clean_deltas(deltas: Sequence[tuple[float, Mapping[str, Any]]]) -> list[tuple[float, Delta]]:
    """Leave out what says nothing. A key may come in pieces: then all becomes one delta without it."""
    kept = [
        (round(seconds, 3), {k: v for k, v in delta.items() if k != "role" and v not in (None, [], {}, "")})
        for seconds, delta in deltas
    ]
    message = _assembled(kept)
    cleaned = _clean(message)
    if cleaned != message:
        return [(kept[-1][0], _as_delta(cleaned))]
    return [(seconds, delta) for seconds, delta in kept if delta]


def _assembled(deltas: Sequence[tuple[float, Mapping[str, Any]]]) -> dict[str, Any]:
    assembly = Assembly()
    for _, delta in deltas:
        assembly.add(delta)
    return assembly.message()


def _says_same(deltas: Sequence[tuple[float, Delta]], message: Mapping[str, Any]) -> bool:
    made = _assembled(deltas)
    calls = [[call["function"] for call in one.get("tool_calls") or ()] for one in (made, message)]
    return (made["content"] or "") == (message.get("content") or "") and calls[0] == calls[1]


def _as_delta(message: Mapping[str, Any]) -> Delta:
    calls = [{"index": i, **call} for i, call in enumerate(message.get("tool_calls") or ())]
    return {
        **{k: v for k, v in message.items() if k != "tool_calls"},
        **({"tool_calls": calls} if calls else {}),
    }
