"""Record the model calls of a run in a file, and replay the file without a network or a key. `tape` describes the file."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import warnings
import weakref
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from ..core.conversation import find_picture_place
from ..core.events import (
    OWN_MODELS,
    ModelCallFailed,
    Observer,
    Reply,
    Request,
    ToolCall,
    ToolFailed,
    ToolResult,
)
from ..core.execution import attempt_call
from ..core.models import Answers, Delta, PlainRefusal, ProviderError, ProviderRequest
from ..core.text import is_deeper, write_whole
from ..core.tools import DescribedTool, JsonArguments, Tool, ToolSettings
from . import registry
from .tape import (
    DEEPEST_LINE,
    VERSION,
    JsonObject,
    ReadObject,
    RecordedCall,
    RecordingError,
    check_target,
    clean,
    clean_deltas,
    clean_messages,
    clean_tools,
    find_difference,
    find_nearest,
    is_same_message,
    list_options,
    list_results,
    load_tape,
    make_delta,
    make_lines,
    shorten_path,
    write_call,
    write_line,
)

_numbers = itertools.count(1)
_TOO_DEEP = "what the model sent is nested too deeply to be read again"
_LONGEST_RESULT = 10_000_000
"""The largest number of characters of a recorded result that the model gets. They are many, because the recorded run has cut a
long result."""


class ReplayMismatch(PlainRefusal):
    """Raised if a request was not recorded. `difference` says how it differs from the most similar recorded request."""

    def __init__(self, where: str, difference: str, advice: str) -> None:
        super().__init__(f"{where}: {difference}\n{advice}", 400)
        self.difference = difference


class Recorder(Observer):
    """Observes runs, and writes each of their model calls to the file `path`.

    The first call overwrites an existing recording. With `append`, the existing calls stay, and new calls follow them. If a
    call cannot be written (the disk is full, another program has written the file), the recording stops, `on_stop` is called
    with the reason, and the run continues. The file then ends with the last complete call.

    Raises RecordingError if `path` cannot be written, or if the file there is not a recording.
    """

    wants_deltas = True

    def __init__(
        self, path: str | Path, *, append: bool = False, on_stop: Callable[[str], object] = warnings.warn
    ) -> None:
        self.path = Path(path)
        check_target(self.path)
        self.calls = (
            load_tape(self.path) if append and self.path.exists() and self.path.stat().st_size else []
        )
        self.stopped = ""
        """Why the recording has stopped; "" if it has not. If a person deletes the file, the next call begins a new recording."""
        self._on_stop = on_stop
        self._left = _read_stamp(self.path) if self.calls else None
        """The file's `_read_stamp` after the last call was written; None before the first call."""
        self._under_way: weakref.WeakKeyDictionary[object, _CallUnderWay] = weakref.WeakKeyDictionary()
        """The asyncio task of a run -> its unfinished model call. Rows of a table run at the same time."""
        self._failed: set[tuple[str, str]] = set()
        """(call id, text) of each tool result that was an error."""

    def record(
        self, request: ReadObject, deltas: Sequence[tuple[float, ReadObject]], final: ReadObject
    ) -> None:
        """Write one complete call, or nothing.

        Raises OSError if the file cannot be written; RecordingError if another program has written the file, or if the call is
        nested too deeply to be read again.

        Args:
            request: "model", "messages", "tools" and any options; API keys and headers are left out.
            deltas: (seconds since the request, delta) for each delta, in the order of the answer.
            final: "finish_reason" and "usage"; for a call that failed, "error" (text) and "status". Without a status,
                the text is the message that the person saw.
        """
        if is_deeper([delta for _, delta in deltas], DEEPEST_LINE):
            raise RecordingError(_TOO_DEEP)
        call = RecordedCall(
            model=str(request.get("model", "")),
            messages=clean_messages(request.get("messages") or ()),
            tools=clean_tools(request.get("tools") or ()),
            options=list_options(request),
            failed={(call, clean(text)) for call, text in self._failed},
            deltas=clean_deltas(deltas),
            end=clean({k: v for k, v in final.items() if v is not None}),
        )
        if not self.path.exists():
            self._left, self.calls = None, []  # the file was deleted: begin a new one
        written = make_lines(len(self.calls) + 1, call, self.calls[-1] if self.calls else None)
        if self._left is None:
            written.insert(0, {"toolloop-recording": VERSION})
        if any(is_deeper(line, DEEPEST_LINE) for line in written):
            raise RecordingError(_TOO_DEEP)
        self._write("".join(map(write_line, written)))
        self.calls.append(call)

    def _write(self, text: str) -> None:
        if self._left is None:
            check_target(self.path)
            write_whole(self.path, text)
        elif _read_stamp(self.path) != self._left:
            raise RecordingError("another program has written the file meanwhile")
        else:
            try:
                with self.path.open("rb+") as file:
                    file.seek(-1, os.SEEK_END)
                    # An editor or a copy program may have removed the last line break.
                    line_end = "" if file.read() == b"\n" else "\n"
                    file.write((line_end + text).encode("utf-8", "backslashreplace"))
            except OSError:
                with contextlib.suppress(OSError):
                    os.truncate(self.path, self._left[1])  # remove the part of the call that was written
                raise
        self._left = _read_stamp(self.path)

    def _try_to_record(
        self, request: JsonObject, deltas: Sequence[tuple[float, ReadObject]], final: ReadObject
    ) -> None:
        """Write a call that has ended. If the call cannot be written, the recording stops, but the run continues."""
        # If `_left` is None, no call was written. If the file is gone, a new recording begins.
        if self.stopped and (self._left is None or self.path.exists()):
            return
        self.stopped = ""
        try:
            self.record(request, deltas, final)
        except (OSError, RecordingError) as error:
            whole = f"calls in the file: {len(self.calls)}"
            why = getattr(error, "strerror", None) or error
            self.stopped = f"recording to {shorten_path(self.path)} has stopped at model call {len(self.calls) + 1} ({whole}): {why}"
            # `attempt_call` is used so that the run continues, even if Python turns warnings into errors.
            attempt_call(self._on_stop, self.stopped)

    async def before_model(self, request: Request) -> None:
        """Begin to record a model call."""
        started = asyncio.get_running_loop().time()  # the same clock as `at` in `delta`: time.monotonic()
        self._under_way[asyncio.current_task()] = _CallUnderWay(request.shown(), started)

    def delta(self, at: float, delta: ReadObject) -> None:
        """Store a piece of the answer."""
        if call := self._under_way.get(asyncio.current_task()):
            call.deltas.append((max(0.0, at - call.started), dict(delta)))

    async def after_model(self, reply: Reply) -> None:
        """Write the model call that has ended."""
        call = self._under_way.pop(asyncio.current_task(), None)
        if call is None:
            return
        used = reply.usage
        usage = {
            "prompt_tokens": used.input_tokens,
            "completion_tokens": used.output_tokens,
            "cost": reply.cost,
            "cache_read_input_tokens": used.cache_read_tokens,
            "cache_creation_input_tokens": used.cache_write_tokens,
        }
        usage = {name: value for name, value in usage.items() if value is not None}
        deltas = call.deltas
        # The deltas of a failed try stand before the deltas of the answer.
        if not is_same_message(deltas, reply.message):
            deltas = [(deltas[-1][0] if deltas else 0.0, make_delta(reply.message))]
        self._try_to_record(call.request, deltas, {"finish_reason": reply.finish_reason, "usage": usage})

    def after_call(self, call: ToolCall, result: ToolResult) -> None:
        """Remember whether the result was an error. The message that the model gets does not say this."""
        (self._failed.add if result.is_error else self._failed.discard)((result.id, result.output))

    async def model_failed(self, error: ModelCallFailed) -> None:
        """Write a model call that failed after all retries: the deltas before the failure, and the error's message."""
        if call := self._under_way.pop(asyncio.current_task(), None):
            self._try_to_record(call.request, call.deltas, {"error": str(error)})


@dataclass
class _CallUnderWay:
    """A model call that has not ended: its request, and the pieces of its answer that have arrived."""

    request: JsonObject
    started: float
    deltas: list[tuple[float, Delta]] = field(default_factory=list)


class Replay(Answers):
    """A model that repeats the answers of a recording, at the recorded pace.

    A request gets the answer of a recorded call that has the same request. The search begins after the call that was played
    last; after the recording's end, it goes on at its beginning. So cells may run again or in another order.

    Args:
        path: the recording.
        loose: if true, a request that was not recorded gets the answer of the most similar recorded request, and `differences`
            says how the two differ.
        speed: 2.0 replays twice as fast; 0 replays without waiting.
        plays_tools: if true, the tools of a request are not compared. Give the run `tools=replay.tools`: these tools return
            recorded results, so no function runs.

    Raises RecordingError for a file that is not a recording.
    """

    def __init__(
        self, path: str | Path, *, loose: bool = False, speed: float = 1.0, plays_tools: bool = False
    ) -> None:
        self.path = Path(path)
        self.loose = loose
        self.plays_tools = plays_tools
        self.speed = speed
        self._read = _read_stamp(self.path)
        self.calls = load_tape(self.path)
        self.takes_images = find_picture_place(message for call in self.calls for message in call.messages)
        self.differences: list[str] = []
        self.position: int = 0
        """The number of the next recorded call, from 0. Set this number to continue with another call."""
        self._played = 0
        self._given: set[int] = set()
        """The numbers of the results that `find_result` has returned since the model's last answer."""
        self.model = registry.put(f"replay-{next(_numbers)}", self)

    def play_as(self, *, loose: bool, plays_tools: bool) -> None:
        """Set `loose` and `plays_tools` for the next run: the cells that name the same file share one Replay."""
        self.loose, self.plays_tools = loose, plays_tools

    @property
    def title(self) -> str:
        """The model of the call that was played last; if none was, of the first call. "" if the recording has no call."""
        return self._name_model(self._played)

    @property
    def next_title(self) -> str:
        """The model of the next call, if the requests come in the recorded order. "" if the recording has no call."""
        return self._name_model(self.position)

    def _name_model(self, number: int) -> str:
        """Return "a script" for "toolloop/scripted-3" (this number means nothing in another kernel), else the model's name."""
        model = self.calls[number % len(self.calls)].model if self.calls else ""
        return "a script" if model.startswith(f"{OWN_MODELS}scripted-") else model

    @property
    def tools(self) -> list[RecordedTool]:
        """All tools of the recording, each in its last version. They return the recorded results."""
        return self._make_tools(self.calls)

    def find_tools(self, question: str) -> list[RecordedTool]:
        """Return the tools of the recorded call whose last message is `question`; all recorded tools if no call has this message."""
        for call in (*self.calls[self.position :], *self.calls[: self.position]):
            last = call.messages[-1] if call.messages else {}
            if last.get("role") == "user" and str(last.get("content")).strip() == question.strip():
                return self._make_tools([call])
        return self.tools

    def _make_tools(self, calls: Sequence[RecordedCall]) -> list[RecordedTool]:
        described = {str(tool["name"]): tool for call in calls for tool in call.tools if "name" in tool}
        return [RecordedTool(self, name, tool) for name, tool in described.items()]

    def find_result(self, name: str, arguments: ReadObject) -> str:
        """Return the recorded result of a tool call that the model's last answer asked for. Each result is returned once.

        Raises ToolFailed with the recorded text if the recorded call failed; RecordingError if no such result is left.
        """
        wanted = write_call({"name": name, "arguments": json.dumps(clean(arguments))})
        asked = self.calls[self._played].messages if self.calls else []
        for call in self.calls[self._played + 1 :]:
            if call.messages[: len(asked)] != asked:
                continue
            results = list_results(call.messages[len(asked) :], call.failed)
            for number, (made, result, is_error) in enumerate(results):
                if made == wanted and number not in self._given:
                    self._given.add(number)
                    if is_error:
                        raise ToolFailed(result)
                    return result
        raise RecordingError(f"{self.path.name} has no recorded result for this call of {name}")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Replay works only in the process that has read the recording: leave executor out")

    def is_current(self) -> bool:
        """Return whether the file is unchanged since it was read."""
        return _read_stamp(self.path) == self._read

    def reset(self) -> None:
        """Start again with the first recorded call."""
        self.position, self.differences = 0, []

    def respond(self, request: ProviderRequest) -> AsyncIterator[Delta]:
        """Answer with the recorded call that fits the request. Raises ReplayMismatch if no call fits and `loose` is false."""
        now = clean_messages(request.messages), None if self.plays_tools else clean_tools(request.tools)
        wanted = request.options.get("response_format")
        if not self.calls:
            raise ReplayMismatch(self.path.name, "there is no call in this recording", "Record it again.")
        order = [(self.position + n) % len(self.calls) for n in range(len(self.calls))]
        fitting = next((n for n in order if not find_difference(self.calls[n], *now, wanted)), None)
        if fitting is None:
            fitting = find_nearest(self.calls, now[0], self.position)
            where = f"{self.path.name}, model call {fitting + 1}"
            difference = find_difference(self.calls[fitting], *now, wanted)
            if not self.loose:
                advice = "Run the notebook as it was recorded, record it again, or go on with loose=True."
                raise ReplayMismatch(where, difference, advice)
            self.differences.append(f"{where}: {difference}")
        self.position, self._played, self._given = fitting + 1, fitting, set()
        call = self.calls[fitting]
        if "error" in call.end and not call.deltas:
            raise _make_failure(call.end)
        return self._play(call)

    async def _play(self, call: RecordedCall) -> AsyncIterator[Delta]:
        loop = asyncio.get_running_loop()
        started = loop.time()
        for seconds, delta in call.deltas:
            wait = started + seconds / self.speed - loop.time() if self.speed > 0 else 0.0
            if wait > 0:
                await asyncio.sleep(wait)
            yield delta
        if "error" in call.end:
            raise _make_failure(call.end)
        yield {key: call.end[key] for key in ("finish_reason", "usage") if key in call.end}


@dataclass(frozen=True, eq=False)
class RecordedTool(DescribedTool):
    """A tool of a recording. It has the recorded description and returns the recorded results. No function runs."""

    replay: Replay = field(repr=False)
    name: str
    described: ReadObject = field(repr=False)

    @property
    def __name__(self) -> str:
        return self.name

    def __call__(self, **arguments: object) -> object:
        """Return the recorded result for these arguments. Raises ToolFailed or RecordingError, like `Replay.find_result`."""
        return self.play(arguments)

    def play(self, arguments: ReadObject) -> str:
        """Return the recorded result for these arguments. A run calls this method. Raises ToolFailed or RecordingError."""
        return self.replay.find_result(self.name, arguments)

    def as_tool(self) -> Tool:
        """Return the Tool for a run. The model gets the recorded text unchanged."""
        return Tool(
            name=self.name,
            wire_name=self.name,
            description=str(self.described.get("description") or ""),
            parameters=self.described.get("parameters") or {"type": "object", "properties": {}},
            arguments=JsonArguments(self.name),
            function=self.play,
            settings=ToolSettings(thread=False, max_result=_LONGEST_RESULT),
            origin=f"Answered from {self.replay.path.name}; nothing runs.",
        )


def _read_stamp(path: Path) -> tuple[int, int, int] | None:
    """Return (time of change, size, inode) of a file; None if there is none. A program that writes the file changes them."""
    try:
        facts = path.stat()
    except (OSError, ValueError):
        return None
    return facts.st_mtime_ns, facts.st_size, facts.st_ino


def _make_failure(end: ReadObject) -> ProviderError:
    """Return the error of a recorded failure. If no status was recorded, the error has only the recorded message."""
    if "status" in end:
        return ProviderError(str(end["error"]), end["status"])
    return PlainRefusal(str(end["error"]), 400)
