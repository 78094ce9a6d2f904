"""Writes each row that has ended to a file, as one line of JSON. Reads the rows of earlier runs from this file.

The first line of the file says that the file is a store of rows. Each other line is a row that has ended. A row counts as ended
only when its line is on the disk. A row's line is found by the row's key (a hash, see `job.py`), not by the row's number. So
between two runs, a person may add rows to the table, remove rows or sort the table.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import functools
import itertools
import json
import os
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import FiniteFloat, TypeAdapter
from typing_extensions import TypedDict

from ..events import (
    ArgumentInvalid,
    ArgumentTypeInvalid,
    Event,
    Presenter,
    Reasoning,
    Result,
    Retry,
    Row,
    StopReason,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)
from ..execution import Raised, attempt_call, shorten_repr
from ..loop import Output
from ..text import hide_in, hide_suspected, names_key

VERSION = 1
HEAD = "toolloop-rows"
_HEAD_LINE = json.dumps({HEAD: VERSION}).encode() + b"\n"
JsonObject = dict[str, Any]

_EVENTS: Mapping[str, type[Text | Reasoning | ToolCall | ToolResult | Retry]] = {
    "text": Text,
    "reasoning": Reasoning,
    "call": ToolCall,
    "result": ToolResult,
    "retry": Retry,
}
"""Name of an event in a line of the file -> the event's class. Events of other classes are not stored. The decision about a tool
call is stored with the call's result.
"""
_LIVE = frozenset({"value", "traceback", "pictures"})
"""Fields of a tool's result that are not stored: the returned object, and fields that are only shown to people."""


class _RowLine(TypedDict):
    key: str
    done: bool
    error: str | None
    seconds: FiniteFloat


class _RunLine(_RowLine):
    text: str
    stop_reason: StopReason
    cost: FiniteFloat | None
    usage: tuple[int, int, int, int | None, int | None]
    model: str
    prompt: str
    note: str | None
    attempts: int
    session: str
    events: list[JsonObject]


def encode_row(row: Row) -> JsonObject:
    """Return a row as JSON data, without its `input` and without Python objects such as values that tools returned."""
    result = row.result
    made: JsonObject = {
        "row": row.number,
        "key": row.key,
        "done": row.error is None,
        "error": row.error,
        "seconds": round(row.seconds, 3),
    }
    if result is None:
        return made
    return {
        **made,
        "text": result.text,
        "stop_reason": result.stop_reason,
        "cost": result.cost,
        "usage": dataclasses.astuple(result.usage),
        "model": result.model,
        "prompt": result.prompt,
        "note": result.error,
        "attempts": result.output_attempts,
        "session": result.session_id,
        "events": list(_encode_events(result.events)),
    }


def _encode_events(events: Iterable[Event]) -> Iterator[JsonObject]:
    """Yield the data of each event that is stored. Neighbouring pieces of text, or of reasoning, are joined. Otherwise, an API
    key that is split between two pieces would not be hidden.
    """
    names = {kind: name for name, kind in _EVENTS.items()}
    for kind, group in itertools.groupby(events, type):
        if kind is Text or kind is Reasoning:
            delta = "".join(event.delta for event in group if isinstance(event, (Text, Reasoning)))
            yield {"event": names[kind], "delta": delta}
        for event in group if kind in names else ():
            stored = [field for field in dataclasses.fields(event) if field.name not in _LIVE]
            given = {field.name: getattr(event, field.name) for field in stored}
            fields = {field.name: given[field.name] for field in stored if given[field.name] != field.default}
            if isinstance(event, ToolResult) and event.decision is not None:
                fields["decision"] = vars(event.decision)
            yield {"event": names[kind], **fields}


def decode_row(
    line: Mapping[str, Any], number: int, row: Mapping[str, Any], output: Output | None, presenter: Presenter
) -> Row:
    """Make a Row from a line of the store. `number` and `row` are the row's number and cells in this run.

    Raises ValueError, KeyError or TypeError if the line is not a row, or if the row's answer does not fit `output`.
    """
    result = None
    line = _read_as(_RunLine if "stop_reason" in line else _RowLine).validate_python(line)
    if "stop_reason" in line:
        done = line["done"] and output is not None
        result = Result(
            text=line["text"],
            output=output.read(line["text"]) if done and output is not None else None,
            files=[],
            events=[
                _read_as(_EVENTS[fields["event"]]).validate_python(  # type: ignore[arg-type]
                    {name: value for name, value in fields.items() if name != "event"}
                )
                for fields in line["events"]
            ],
            usage=Usage(*line["usage"]),
            cost=line["cost"],
            stop_reason=line["stop_reason"],
            session_id=line["session"],
            error=line["note"],
            model=line["model"],
            prompt=line["prompt"],
            output_attempts=line["attempts"],
            presenter=presenter,
        )
    return Row(number, line["key"], row, result, line["error"], line["seconds"])


@functools.cache
def _read_as(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


class Store:
    """The file in which a run stores its rows. Between `open` and `close`, no other run can open the file."""

    def __init__(self, path: str | Path) -> None:
        """Raises ArgumentTypeInvalid if `path` is not a path."""
        # Imported here, so that the import of this module stays fast. Few runs have a store.
        from filelock import FileLock

        real = attempt_call(os.path.realpath, path)  # a file with several paths (links) gets one lock
        if isinstance(real, Raised) or not isinstance(real, str):
            raise ArgumentTypeInvalid(f"store must be the path of a file, got {shorten_repr(path)}")
        self.path = Path(path)
        self._real = Path(real)
        self.note = ""
        """A message for the person about the opened file: one sentence, or ""."""
        self._lock = FileLock(self._real.with_name(f".{self._real.name}.lock"), timeout=0, thread_local=False)
        self._done: defaultdict[str, deque[bytes]] = defaultdict(deque)
        """Key of a row -> lines of finished rows with this key. `take` removes a line. Two equal rows have two lines."""
        self._failed: Counter[str] = Counter()
        self._file: BinaryIO | None = None
        self._pending: list[bytes] = []
        self._writing = asyncio.Lock()

    def open(self) -> None:
        """Lock the file, read it, and prepare it for new lines. Raises ArgumentInvalid, with the name of the file."""
        from filelock import Timeout

        try:
            self._real.parent.stat()  # raises if the folder is missing: `acquire` would make the folder
            if self._real.exists() and not (self._real.is_file() or self._real.is_dir()):
                raise OSError(errno.EINVAL, "It is not a file")  # reading a pipe or a device may never end
            self._lock.acquire()
            self._file = self._real.open("r+b" if self._real.exists() else "x+b")
            end = self._read(self._file)
            self._file.truncate(end)
            self._file.seek(max(0, end - 1))
            if self._file.read(1) != b"\n":  # the file is new, or an editor has removed its last line break
                self._write([b"\n" if end else _HEAD_LINE])
        except Timeout:
            raise ArgumentInvalid(
                f"store {self.path.name!r} is in use by another run (a notebook's kernel, perhaps); name another file"
            ) from None
        except (OSError, ValueError) as error:  # ValueError: the path contains a null character
            self.close()
            if isinstance(error, ArgumentInvalid):
                raise
            raise ArgumentInvalid(
                f"cannot keep rows in {self.path.name!r}: {getattr(error, 'strerror', None) or error}"
            ) from None

    def _read(self, file: BinaryIO) -> int:
        """Read all lines. Return the size of the complete lines in bytes. Raises ArgumentInvalid if the file is not a store of rows."""
        end = 0
        for number, line in enumerate(file, 1):
            is_half = not line.endswith(b"\n")
            entry = _parse(line)
            is_head = entry.get(HEAD) == VERSION or (is_half and _HEAD_LINE.startswith(line))
            if number == 1 and not is_head:
                raise ArgumentInvalid(
                    f"{self.path.name!r} is not a store of rows, and would be overwritten; name another file"
                )
            if is_half and not isinstance(entry.get("key"), str):
                self.note = "the last line of the store is incomplete, and is removed"
                break
            if number > 1 and not isinstance(entry.get("key"), str):
                raise ArgumentInvalid(
                    f"{self.path.name!r}, line {number} is not a row; correct the line, or name another file"
                )
            if number > 1 and entry.get("done"):
                self._done[entry["key"]].append(line)
            elif number > 1:
                self._failed[entry["key"]] += 1
            end += len(line)
        return end

    def take(self, key: str) -> JsonObject | None:
        """Remove a line of a finished row with this key, and return it; None if none is left. Equal rows have the same key."""
        lines = self._done.get(key)
        return _parse(lines.popleft()) if lines else None

    def has_failed(self, key: str) -> bool:
        """Return True if a row with this key failed in an earlier run. If two such rows failed, two calls return True."""
        self._failed[key] -= 1
        return self._failed[key] >= 0

    async def append(self, line: JsonObject) -> None:
        """Write a row's line. When this returns, the line is on the disk. Raises OSError, or ValueError if the file is closed."""
        text = json.dumps(
            {**hide_in(line, hide_suspected, names_key), "key": line["key"]}, ensure_ascii=False, default=str
        )
        self._pending.append(text.encode("utf-8", "backslashreplace") + b"\n")
        async with self._writing:  # lines that came while the disk was busy are written together
            if batch := self._pending:
                self._pending = []
                await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, self._write, batch))

    def _write(self, lines: list[bytes]) -> None:
        assert self._file is not None
        self._file.write(b"".join(lines))
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close and unlock the file."""
        if self._file is not None:
            with contextlib.suppress(OSError):  # `append` has raised this error already
                self._file.close()
        self._lock.release()


def _parse(line: bytes) -> JsonObject:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return entry if isinstance(entry, dict) else {}
