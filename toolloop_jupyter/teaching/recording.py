"""Record a run's model traffic to a file, and replay it without a network or a key. `tape.py` says what is in the file."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import warnings
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..core.conversation import find_picture_place
from ..core.events import ModelCallFailed, Observer, Reply, Request
from ..core.execution import attempt_call
from ..core.models import Answers, Delta, PlainRefusal, ProviderError, ProviderRequest
from ..core.text import is_deeper, write_whole
from ..core.tools import DescribedTool, JsonArguments, Tool, ToolSettings
from . import registry
from .tape import (
    DEEPEST_LINE,
    VERSION,
    Call,
    JsonObject,
    ReadObject,
    RecordingError,
    as_delta,
    check_target,
    clean,
    clean_deltas,
    difference,
    lines,
    list_results,
    load_tape,
    nearest,
    options_of,
    says_same,
    shown,
    tool_of,
    write_call,
)

_numbers = itertools.count(1)
_LONGEST_RESULT = 10_000_000
"""A recorded result was bounded when it was made."""


class ReplayMismatch(PlainRefusal):
    """The request is none of the recorded ones. `difference` says how it differs from the nearest, in a few lines."""

    def __init__(self, where: str, difference: str, advice: str) -> None:
        super().__init__(f"{where}: {difference}\n{advice}", 400)
        self.difference = difference


class Recorder(Observer):
    """Writes every model call of the runs that it observes to `path`.

    The file is begun with the first call, over a recording that was there; `append` goes on behind it instead. Where a
    call cannot be written (a full disk, another program that writes the file), the recording stops behind the last whole
    one and the run goes on: `on_stop` is told why, and so is `stopped`.

    Raises RecordingError for a place that cannot be written, or for a file that is no recording.
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
        """Why nothing more is recorded; "" while it goes on. It goes on anew when the file is taken away."""
        self._on_stop = on_stop
        self._left = _stamp(self.path) if self.calls else None
        """The file as the last call left it; None before the first."""
        self._request: JsonObject | None = None
        self._started: float | None = None
        self._deltas: list[tuple[float, Delta]] = []

    def record(
        self, request: ReadObject, deltas: Sequence[tuple[float, ReadObject]], final: ReadObject
    ) -> None:
        """Write one call, whole or not at all. Raises OSError, or RecordingError where somebody else has written the file.

        Args:
            request: what was sent: "model", "messages", "tools" and any options; keys and headers are left out.
            deltas: (seconds since the request, delta), as they came.
            final: "finish_reason" and "usage", or, for a call that failed, "error" (text) and "status" (without one,
                the text is what the person was told).
        """
        call = Call(
            model=str(request.get("model", "")),
            messages=clean(list(request.get("messages") or ())),
            tools=clean([tool_of(tool) for tool in request.get("tools") or ()]),
            options=options_of(request),
            deltas=clean_deltas(deltas),
            end=clean({k: v for k, v in final.items() if v is not None}),
        )
        if not self.path.exists():
            self._left, self.calls = None, []  # taken away: begun anew
        written = lines(len(self.calls) + 1, call, self.calls[-1] if self.calls else None)
        if self._left is None:
            written.insert(0, {"toolloop-recording": VERSION})
        if any(is_deeper(line, DEEPEST_LINE) for line in written):
            raise RecordingError("what the model sent is nested too deep to be read again")
        self._write("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in written))
        self.calls.append(call)

    def _write(self, text: str) -> None:
        if self._left is None:
            check_target(self.path)
            write_whole(self.path, text)
        elif _stamp(self.path) != self._left:
            raise RecordingError("another program has written the file meanwhile")
        else:
            try:
                with self.path.open("rb+") as file:
                    file.seek(-1, os.SEEK_END)
                    # An editor, or a copy, may have left the last line's end out.
                    line_end = "" if file.read() == b"\n" else "\n"
                    file.write((line_end + text).encode("utf-8", "backslashreplace"))
            except OSError:
                with contextlib.suppress(OSError):
                    os.truncate(self.path, self._left[1])  # no half of a call stays
                raise
        self._left = _stamp(self.path)

    def _try_to_record(self, deltas: Sequence[tuple[float, ReadObject]], final: ReadObject) -> None:
        """Write the call that has ended. What keeps it from being written stops the recording, not the run."""
        request, self._request, self._started = self._request, None, None
        if request is None or (self.stopped and self.path.exists()):
            return
        self.stopped = ""
        try:
            self.record(request, deltas, final)
        except (OSError, RecordingError) as error:
            whole = f"it has the {len(self.calls)} before" if self.calls else "it has none"
            why = getattr(error, "strerror", None) or error
            self.stopped = f"recording to {shown(self.path)} has stopped at model call {len(self.calls) + 1} ({whole}): {why}"
            attempt_call(
                self._on_stop, self.stopped
            )  # where warnings are errors, the run goes on all the same

    async def before_model(self, request: Request) -> None:
        """Begin a call."""
        self._request, self._deltas = request.shown(), []
        self._started = asyncio.get_running_loop().time()  # the clock of `delta`: both are time.monotonic()

    def delta(self, at: float, delta: ReadObject) -> None:
        """Keep a piece of the answer."""
        if self._started is not None:
            self._deltas.append((max(0.0, at - self._started), dict(delta)))

    async def after_model(self, reply: Reply) -> None:
        """Write the call."""
        if self._request is None:
            return
        usage: dict[str, float] = {
            "prompt_tokens": reply.usage.input_tokens,
            "completion_tokens": reply.usage.output_tokens,
        }
        told = {
            "cost": reply.cost,
            "cache_read_input_tokens": reply.usage.cache_read_tokens,
            "cache_creation_input_tokens": reply.usage.cache_write_tokens,
        }
        usage |= {name: value for name, value in told.items() if value is not None}
        deltas = self._deltas
        if not says_same(deltas, reply.message):  # a broken try came before the one that counts
            deltas = [(deltas[-1][0] if deltas else 0.0, as_delta(reply.message))]
        self._try_to_record(deltas, {"finish_reason": reply.finish_reason, "usage": usage})

    async def model_failed(self, error: ModelCallFailed) -> None:
        """Write a call that failed for good: what had come, and the line that said why."""
        self._try_to_record(self._deltas, {"error": str(error)})


def _title_of(call: Call) -> str:
    """The model of a call as a person reads it: a script without a name has a number of the kernel that recorded it."""
    return "a script" if call.model.startswith(f"{registry.PROVIDER}/scripted-") else call.model


class Replay(Answers):
    """A model that says again what a recording has, at the recorded pace.

    A request gets the answer that was recorded for it: of the next call, or, where cells run again or in another order,
    of the first one behind or before it that was asked the same.

    Args:
        path: the recording.
        loose: go on when a request differs from the recorded one; `differences` then has what was different.
        speed: 2.0 is twice as fast, 0 does not wait.
        plays_tools: answer calls of tools from the recording, too: give the run its `tools`. Nothing runs then.

    Raises RecordingError for a file that is none.
    """

    def __init__(
        self, path: str | Path, *, loose: bool = False, speed: float = 1.0, plays_tools: bool = False
    ) -> None:
        self.path = Path(path)
        self.loose = loose
        self.plays_tools = plays_tools
        self.speed = speed
        self._read = _stamp(self.path)
        self.calls = load_tape(self.path)
        self.takes_images = find_picture_place(message for call in self.calls for message in call.messages)
        self.differences: list[str] = []
        self._next, self._played = 0, 0
        self._given: set[int] = set()
        """Results that were given since the last answer, by their number."""
        self.model = registry.put(f"replay-{next(_numbers)}", self)

    @property
    def title(self) -> str:
        """The model of the call that was played last; before any, that of the first."""
        return _title_of(self.calls[self._played]) if self.calls else ""

    @property
    def next_title(self) -> str:
        """The model of the call that comes next, when requests come in the recorded order."""
        return _title_of(self.calls[self._next % len(self.calls)]) if self.calls else ""

    @property
    def tools(self) -> list[RecordedTool]:
        """All tools of the recording, which answer as they did then; of one that was changed meanwhile the last."""
        described = {str(tool["name"]): tool for call in self.calls for tool in call.tools if "name" in tool}
        return [RecordedTool(self, name, tool) for name, tool in described.items()]

    def find_result(self, name: str, arguments: ReadObject) -> str:
        """What a tool answered to this call of the last answer. Raises RecordingError where the recording does not say."""
        wanted = write_call({"name": name, "arguments": json.dumps(clean(arguments))})
        asked = self.calls[self._played].messages if self.calls else []
        for call in self.calls[self._played + 1 :]:
            if call.messages[: len(asked)] != asked:
                continue
            for number, (made, result) in enumerate(list_results(call.messages[len(asked) :])):
                if made == wanted and number not in self._given:
                    self._given.add(number)
                    return result
        raise RecordingError(f"{self.path.name} has no result of this call of {name}")

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
        tools = None if self.plays_tools else clean([tool_of(tool) for tool in request.tools])
        now = (clean(request.messages), tools)
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
                advice = "Run the notebook as it was recorded, record it again, or go on with loose=True."
                raise ReplayMismatch(where, told, advice)
            self.differences.append(f"{where}: {told}")
        self._next, self._played, self._given = fitting + 1, fitting, set()
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


@dataclass(frozen=True, eq=False)
class RecordedTool(DescribedTool):
    """A tool of a recording: described as it was, and answering as it did. Nothing runs."""

    replay: Replay = field(repr=False)
    name: str
    described: ReadObject = field(repr=False)

    @property
    def __name__(self) -> str:
        return self.name

    def __call__(self, **arguments: object) -> object:
        """What it answered to this call. Raises RecordingError."""
        return self.play(arguments)

    def play(self, arguments: ReadObject) -> str:
        """The same, for a run."""
        return self.replay.find_result(self.name, arguments)

    def as_tool(self) -> Tool:
        """The tool for a run: the text goes to the model as it was, whatever it was."""
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


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """What tells whether a file was written since: (time, size, which file); None when it is not there."""
    try:
        facts = path.stat()
    except (OSError, ValueError):
        return None
    return facts.st_mtime_ns, facts.st_size, facts.st_ino


def _failure(end: ReadObject) -> ProviderError:
    """A recorded failure: with its status, or as the words that the person was told."""
    if "status" in end:
        return ProviderError(str(end["error"]), end["status"])
    return PlainRefusal(str(end["error"]), 400)
