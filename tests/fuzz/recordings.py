"""Recordings: files that were cut, changed or written by other programs; and runs that are recorded and replayed."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from fuzz.running import Script, counting_tools, told, unexpected_in, watch
from fuzz.seam import Seam, Seen
from fuzz.streams import spoilt
from toolloop_jupyter.teaching import Recorder, Replay
from toolloop_jupyter.teaching.tape import RecordingError

JUNK = st.sampled_from(
    (
        None,
        "",
        "x",
        "kept",
        0,
        -1,
        10**6,
        1.5,
        True,
        [],
        {},
        ["x"],
        [None],
        {"a": 1},
        "\ud83d",
        {"role": "user"},
        {"role": "user", "content": "Go."},
        [{"role": 5}],
    )
)
KEYS = st.sampled_from(
    (
        "call",
        "model",
        "kept",
        "tools",
        "options",
        "tool",
        "sent",
        "at",
        "delta",
        "end",
        "name",
        "role",
        "content",
        "tool_calls",
        "function",
        "error",
        "status",
        "usage",
        "finish_reason",
        "toolloop-recording",
        "other",
    )
)
CHANGE = st.tuples(
    st.sampled_from(("set", "set", "drop", "cut", "swap", "double", "junk", "letters")),
    st.integers(0, 30),
    KEYS,
    JUNK,
    st.integers(0, 200),
)
LETTERS = ("", "{", "}", "null", "NaN", "1e999", '"\\ud83d"', "[" * 300, "\x00", "\ufeff", "\u2028", "\x85")
INPUTS = st.one_of(
    st.fixed_dictionaries({"changes": st.lists(CHANGE, max_size=3), "loose": st.booleans()}),
    st.fixed_dictionaries(
        {"turns": st.lists(spoilt(), min_size=1, max_size=1), "stop": st.none() | st.integers(1, 5)}
    ),
)
FOLDER = tempfile.TemporaryDirectory(prefix="toolloop-fuzz-")


@functools.cache
def _whole() -> str:
    """Return a recording of two model calls. One of them has a tool call."""
    path, seen = Path(FOLDER.name, "whole.jsonl"), Seen()
    call = {"index": 0, "id": "c0", "function": {"name": "f", "arguments": '{"n": 1}'}}
    script = Script([{"deltas": [{"content": "I "}, {"content": "look."}, {"tool_calls": [call]}]}], seen)
    watch(seen, script, tools=counting_tools(seen), observer=Recorder(path))
    return path.read_text("utf-8")


def _change(lines: list[str], change: Any) -> None:
    what, one, key, junk, at = change
    if not lines:
        return
    number = one % len(lines)
    if what == "drop":
        del lines[number]
    elif what == "cut":
        lines[number] = lines[number][:at]
    elif what == "swap":
        lines.insert(at % len(lines), lines.pop(number))
    elif what == "double":
        lines.insert(number, lines[number])
    elif what == "letters":
        lines[number] = lines[number][:at] + LETTERS[at % len(LETTERS)] + lines[number][at:]
    elif what == "junk":
        lines.insert(number, json.dumps(junk))
    else:
        _set(lines, number, key, junk, at)


def _set(lines: list[str], number: int, key: str, junk: Any, at: int) -> None:
    """Put `junk` at a key of an object somewhere in the line."""
    try:
        entry = json.loads(lines[number])
    except ValueError:
        return
    objects = list(_objects(entry))
    if objects:
        objects[at % len(objects)][key] = junk
        lines[number] = json.dumps(entry)


def _objects(value: Any) -> Any:
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(item)


def run_recording(given: dict[str, Any]) -> Seen:
    """Replay a recording. A changed recording may be refused. The recording of a run must give the same run again."""
    return _replay_changed(given) if "changes" in given else _record_and_replay(given)


def _replay_changed(given: dict[str, Any]) -> Seen:
    seen, path = Seen(), Path(FOLDER.name, "changed.jsonl")
    lines = _whole().splitlines()
    for change in given["changes"]:
        _change(lines, change)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    with unexpected_in(seen):
        try:
            replay = Replay(path, loose=given["loose"], speed=0)
        except RecordingError as error:
            seen.texts.append(("a refusal", str(error)))
            return seen
        except Exception as error:  # the fault that is looked for
            seen.escaped.append(told(error))
            return seen
    watch(seen, replay, tools=counting_tools(seen), follow=False)
    for result in seen.results:
        seen.texts.append(("the end", str(result.error)))
    seen.ran.clear()  # the recording contains the number of tries
    if not given["changes"] and seen.results:
        seen.pairs.append(("the end", (seen.results[0].stop_reason, seen.results[0].text), ("done", "Done.")))
    return seen


def _record_and_replay(given: dict[str, Any]) -> Seen:
    seen, again, path = Seen(), Seen(), Path(FOLDER.name, "run.jsonl")
    watch(
        seen,
        Script(given["turns"], seen),
        stop=given["stop"],
        tools=counting_tools(seen),
        observer=Recorder(path),
    )
    if given["stop"] is not None or not path.exists() or not seen.results:
        return seen
    try:
        replay = Replay(path, speed=0)
    except Exception as error:  # the fault that is looked for
        seen.escaped.append(told(error))
        return seen
    watch(again, replay, tools=counting_tools(again))
    path.unlink()
    both = [[_facts(result) for result in one.results] for one in (again, seen)]
    seen.pairs.append(("the run again", *both))
    seen.escaped += again.escaped
    return seen


def _facts(result: Any) -> Any:
    outputs = [(one.output, one.is_error) for one in result.tool_results]
    return result.text, result.stop_reason, [(call.name, dict(call.input)) for call in result.calls], outputs


RECORDINGS = Seam("recordings", "recordings, read and replayed", INPUTS, run_recording, share=8, quick=80)
