"""The store: each finished row is paid once, however the kernel ends. Failed rows are tried again. The file has no key."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections import Counter
from datetime import date
from pathlib import Path

import pandas as pd
import pytest
from pydantic import BaseModel

import toolloop_jupyter as tl
from toolloop_jupyter import amap
from toolloop_jupyter.core.loop import Output
from toolloop_jupyter.core.rows.store import Store, decode_row, encode_row
from toolloop_jupyter.core.text import remember
from toolloop_jupyter.teaching import Recorder, Replay, ScriptedModel, call, error, reasoning, text


def last(messages: list[dict[str, object]]) -> str:
    return str(messages[-1]["content"])


def read(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def saying(name: str = "m") -> ScriptedModel:
    """A model that repeats the prompt, and notes what it was asked."""
    return ScriptedModel(last, name=name)


class Event(BaseModel):
    what: str
    on: date


async def test_finished_rows_are_taken_from_the_store(tmp_path):
    """The second run runs only new rows. Its frame is the same as if all rows had been run."""
    store, first, second = tmp_path / "rows.jsonl", saying(), saying()
    await amap("Say {{row}}", ["a", "b"], model=first, store=store)
    rows = await amap("Say {{row}}", ["c", "b", "a"], model=second, store=store)
    assert [last(request.messages) for request in second.requests] == ["Say c"]
    assert list(rows.frame["answer"]) == ["Say c", "Say b", "Say a"]
    assert [row.from_store for row in rows] == [False, True, True]
    assert (rows.usage.calls, rows.progress.from_store) == (1, 2)
    assert repr(rows) == "<Rows: 3 ended, 2 from the store>"


async def test_failed_rows_are_tried_again(tmp_path):
    """Failed rows are in the store, too. The next run says how many it runs again, and the run after it takes their answers."""
    store = tmp_path / "rows.jsonl"
    failing = ScriptedModel(error("busy", 400), name="m")
    await amap("{{row}}", ["a", "b"], model=failing, store=store, on_error="stop", concurrency=1)
    assert [line["done"] for line in read(store)[1:]] == [False]
    again = await amap("{{row}}", ["a", "b"], model=saying(), store=store)
    assert (again.progress.again, again.progress.from_store, again.failed) == (1, 0, [])
    last_one = await amap("{{row}}", ["a", "b"], model=(unasked := saying()), store=store)
    assert (last_one.progress.again, last_one.progress.from_store) == (0, 2)
    assert unasked.requests == []


@pytest.mark.parametrize(
    "changed",
    [
        {"prompt": "Tell {{row}}"},
        {"instructions": "Be brief."},
        {"output": str},
        {"tools": ["look"]},
        {"options": tl.ToolLoopOptions(completion_kwargs={"temperature": 0.5})},
        {"options": tl.ToolLoopOptions(fallback=[saying("second")])},
        {"model": "other"},
    ],
)
async def test_what_decides_the_answer_is_in_the_key(tmp_path, changed):
    """With another prompt, system message, model, fallback, tool, output or option, a row is run again; with another limit it
    is not.
    """

    def look(word: str) -> str:
        """Look."""
        return word

    store, changed = tmp_path / "rows.jsonl", dict(changed)
    await amap("Say {{row}}", ["a"], model=saying(), store=store)
    same = saying()
    limits = tl.ToolLoopOptions(completion_kwargs={"stream": True}, max_model_calls=3)
    await amap("Say {{row}}", ["a"], model=same, store=store, options=limits, timeout=5, max_turns=2)
    assert same.requests == []
    other = saying(changed.pop("model", "m"))
    if "tools" in changed:
        changed["tools"] = [look]
    await amap(changed.pop("prompt", "Say {{row}}"), ["a"], model=other, store=store, **changed)
    assert len(other.requests) == 1


async def test_rows_that_are_the_same(tmp_path):
    """Two equal rows have two lines in the store. A third equal row is run."""
    store = tmp_path / "rows.jsonl"
    await amap("{{row}}", ["a", "a"], model=saying(), store=store)
    rows = await amap("{{row}}", ["a", "a", "a"], model=saying(), store=store)
    assert [row.from_store for row in rows] == [True, True, False]


async def test_a_row_comes_back_whole(tmp_path):
    """A row from the store has the answer, transcript, usage and time of its run."""

    def look(word: str) -> str:
        """Look."""
        return word * 2

    script = [reasoning("Hm."), call("look", word="x")], Event(what="rain", on=date(2026, 1, 2))
    store, options = (
        tmp_path / "rows.jsonl",
        {"output": Event, "tools": [look], "permissions": {"look": "full"}},
    )
    ran = (await amap("{{row}}", ["a"], model=ScriptedModel(*script, name="m"), store=store, **options))[0]
    kept = (await amap("{{row}}", ["a"], model=ScriptedModel(*script, name="m"), store=store, **options))[0]
    assert kept.from_store
    assert kept.answer == ran.answer == Event(what="rain", on=date(2026, 1, 2))
    assert kept.result.events == ran.result.events
    assert kept.result.tool_results[0].decision.by == "policy"
    for field in ("text", "usage", "cost", "stop_reason", "prompt", "model", "session_id", "error"):
        assert getattr(kept.result, field) == getattr(ran.result, field), field
    assert kept.key == ran.key
    assert "what" in json.dumps(read(store)[1])


def test_a_row_without_a_run_can_be_written():
    """A row without a result, because its prompt cannot be filled in, can be written and read."""
    row = tl.Row(3, "k", {"a": 1}, None, "the row has no 'b'", 0.5)
    assert decode_row(encode_row(row), 3, {"a": 1}, Output(str), tl.core.events.Presenter()) == row


async def test_half_a_line_is_dropped(tmp_path):
    """If a kernel dies while it writes, half a line is left. It is removed with a note, and its row is run again."""
    store, long = tmp_path / "rows.jsonl", "b" * 500
    await amap("{{row}}", ["a", long], model=saying(), store=store, concurrency=1)
    store.write_bytes(store.read_bytes()[:-20])
    rows = await amap("{{row}}", ["a", "c"], model=(model := saying()), store=store)
    assert [last(request.messages) for request in model.requests] == ["c"]
    assert "incomplete, and is removed" in rows.progress.message
    assert [line.get("prompt") for line in read(store)] == [None, "a", "c"]
    await amap("{{row}}", [long], model=(again := saying()), store=store)
    assert len(again.requests) == 1


async def test_a_missing_line_break_is_no_half_line(tmp_path):
    """If an editor has removed the last line break, the row counts, and the next row gets a new line."""
    store = tmp_path / "rows.jsonl"
    await amap("{{row}}", ["a", "b"], model=saying(), store=store, concurrency=1)
    store.write_bytes(store.read_bytes()[:-1])
    await amap("{{row}}", ["a", "b", "c"], model=(model := saying()), store=store)
    assert [last(request.messages) for request in model.requests] == ["c"]
    assert [line.get("row") for line in read(store)] == [None, 0, 1, 2]


NONSENSE = [5, "x", None, [], [5], {}, [[1]], -1.5, [{"event": []}], [{"event": "text", "delta": 5}],
            [{"event": "result", "id": "c", "output": "o", "decision": 5}]]  # fmt: skip


@pytest.mark.parametrize("field", ["text", "stop_reason", "cost", "usage", "model", "prompt", "note", "events", "seconds", "error", "attempts", "session"])  # fmt: skip
async def test_a_line_with_a_value_of_another_type(tmp_path, field):
    """A line that another program has written is used only if its types are right. If not, its row is run again."""
    store, kept = tmp_path / "rows.jsonl", tmp_path / "kept.jsonl"
    await amap("{{row}}", ["a"], model=saying(), store=kept)
    head, line = read(kept)
    for value in NONSENSE:
        store.write_text(f"{json.dumps(head)}\n{json.dumps({**line, field: value})}\n")
        (row,) = rows = await amap("{{row}}", ["a"], model=saying(), store=store)
        assert isinstance(row.answer, str) or row.error == "x"
        assert isinstance(rows.frame, pd.DataFrame)
        assert repr(rows), repr(row)
        assert row.result._repr_mimebundle_()
        assert row.cost is None or row.cost + row.tokens + row.seconds is not None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"name": "x"}\n', "is not a store of rows"),
        ("text,label\n", "is not a store of rows"),
        ('{"toolloop-rows": 2}\n', "is not a store of rows"),
        ('{"cells": []}', "is not a store of rows"),
        ("text", "is not a store of rows"),
        ('{"toolloop-rows": 1}\nnonsense\n{}\n', "line 2 is not a row"),
    ],
)
async def test_another_file_is_left_alone(tmp_path, text, words):
    """A file that is not a store is neither read nor written."""
    path = tmp_path / "data.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match=words):
        await amap("{{row}}", ["a"], model=(model := saying()), store=path)
    assert path.read_text() == text
    assert model.requests == []


async def test_a_place_that_cannot_be_written(tmp_path):
    """If the folder of the store does not exist, this is a mistake before anything is sent."""
    with pytest.raises(ValueError, match=r"cannot keep rows in 'rows.jsonl': No such file"):
        await amap("{{row}}", ["a"], model=(model := saying()), store=tmp_path / "nowhere" / "rows.jsonl")
    assert model.requests == []


ON_UNIX = pytest.mark.skipif(os.name == "nt", reason="Windows has no such file")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("", "Permission denied" if os.name == "nt" else "Is a directory"),
        ("a\0b", "path of a file"),
        (5, "path of a file, got 5"),
        pytest.param("/dev/zero", "It is not a file", marks=ON_UNIX),
        pytest.param("/dev/null", "It is not a file", marks=ON_UNIX),
    ],
)
async def test_what_is_no_file(given, words):
    """A store that is not a path, or a device without an end, is a mistake before anything is sent."""
    with pytest.raises((ValueError, TypeError), match=words):
        await amap("{{row}}", ["a"], model=(model := saying()), store=given)
    assert model.requests == []


def test_one_lock_for_all_names_of_a_file(tmp_path):
    """A link to a store is the same store: two runs cannot write to it at the same time."""
    store = Store(tmp_path / "rows.jsonl")
    store.open()
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "rows.jsonl")
    with pytest.raises(ValueError, match="in use by another run"):
        Store(tmp_path / "link.jsonl").open()
    store.close()


FULL_DISK = """
import asyncio, pathlib, resource, sys
from toolloop_jupyter import amap
from toolloop_jupyter.teaching import ScriptedModel

store, texts = pathlib.Path(sys.argv[1]), ["x" * 300 + str(number) for number in range(20)]

def run():
    return asyncio.run(amap("{{row}}", texts, model=ScriptedModel("ok", name="m"), store=store, concurrency=4))

whole = resource.RLIM_INFINITY
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, whole))
rows = run()
print(rows.message)
resource.setrlimit(resource.RLIMIT_FSIZE, (whole, whole))
again = run()
print(again.progress.from_store > 0, len(again), again.failed)
"""


@pytest.mark.skipif(os.name == "nt", reason="limits of a process are POSIX")
def test_a_disk_that_is_really_full(tmp_path):
    """If the disk is full, the run ends with one line and the ended rows. The file stays valid, and a later run goes on with it."""
    ran = subprocess.run(
        [sys.executable, "-c", FULL_DISK, tmp_path / "rows.jsonl"], capture_output=True, text=True, check=True
    )
    assert ran.stdout.splitlines() == [
        "rows.jsonl cannot be written: File too large",
        "True 20 []",
    ]


async def test_a_full_disk_ends_the_run(tmp_path, monkeypatch):
    """If the store cannot be written, no other row begins, because the rows would be paid again. The value has the ended rows."""

    def full(self, lines):
        raise OSError(28, "No space left on device")

    store = tmp_path / "rows.jsonl"
    await amap("{{row}}", ["z"], model=saying(), store=store)
    monkeypatch.setattr(Store, "_write", full)
    rows = await amap("{{row}}", list("abcdef"), model=saying(), store=store, concurrency=1)
    assert rows.message == "rows.jsonl cannot be written: No space left on device"
    assert [row.answer for row in rows] == ["a"]


async def test_keys_are_kept_out(tmp_path):
    """The file has no key of the run, even if a prompt, an answer or a tool's arguments have it, and no text that looks like a key."""
    remember(["quite-a-secret-key-1234"])

    def send(token: str, text: str) -> str:
        """Send."""
        return "sent"

    script = call("send", token="hunter2hunter2", text="quite-a-secret-key-1234"), "it is sk-abcdefgh12345678"
    store = tmp_path / "rows.jsonl"
    await amap(
        "{{row}} quite-a-secret-key-1234", ["a"], model=ScriptedModel(*script), tools=[send], store=store
    )
    written = store.read_text()
    for secret in ("quite-a-secret", "hunter2hunter2", "sk-abcdefgh"):
        assert secret not in written, secret


async def test_a_key_in_pieces(tmp_path):
    """If a key comes in several pieces of an answer, it is not in the file either. The pieces are one event there."""
    store = tmp_path / "rows.jsonl"
    pieces = [
        reasoning("it is sk-abcd"),
        reasoning("efgh12345678"),
        text("say sk-abcd"),
        text("efgh12345678."),
    ]
    options = tl.ToolLoopOptions(completion_kwargs={"stream": True})
    await amap("{{row}}", ["a"], model=ScriptedModel(pieces), store=store, options=options)
    assert "efgh1234" not in store.read_text()
    assert [event["event"] for event in read(store)[1]["events"]] == ["reasoning", "text"]


async def test_rows_are_recorded_and_replayed(tmp_path):
    """Rows that run at the same time are recorded, each with its own calls. The replay answers the rows in any order."""
    texts, tape = [f"t{n}" for n in range(12)], tmp_path / "rows.toolloop"

    async def look(word: str) -> str:
        """Look."""
        await asyncio.sleep(0.001 * (len(word) + int(word[1:]) % 5))
        return word.upper()

    def ask(messages):
        return call("look", word=last(messages))

    tool = tl.tool(parallel=True)(look)
    live = ScriptedModel(ask, last, pace=0.001)
    ran = await amap("{{row}}", texts, model=live, tools=[tool], concurrency=5, observer=Recorder(tape))
    replay = Replay(tape, speed=0)
    assert len(replay.calls) == 24
    again = await amap("{{row}}", texts[::-1], model=replay, tools=[tool], concurrency=3)
    assert (
        [row.answer for row in again]
        == [row.answer for row in ran][::-1]
        == [text.upper() for text in texts[::-1]]
    )
    other = await amap("{{row}}", ["t99"], model=replay, tools=[tool])
    assert "was" in other[0].error or "recorded" in other[0].error


# --- two processes ------------------------------------------------------------------------------------------------

SCRIPT = """
import sys, time, toolloop_jupyter as tl
from pydantic import BaseModel
from toolloop_jupyter.teaching import ScriptedModel, call
class Label(BaseModel):
    label: str
def look(word: str) -> str:
    "Look a word up."
    return word
def ask(turn):
    def answer(messages):
        prompt = next(m["content"] for m in messages if m["role"] == "user")
        with open(sys.argv[1], "a") as log:
            log.write(prompt + "\\n")
        return call("look", word="x") if turn == 0 else Label(label=prompt.upper())
    return answer
rows = tl.map("Label {{text}}", [{"text": f"t{n}"} for n in range(40)], model=ScriptedModel(ask(0), ask(1), name="m",
    pace=float(sys.argv[3])), tools=[look], output=Label, concurrency=3, store=sys.argv[2])
print(rows.frame.drop(columns=["seconds"]).to_csv())
print(repr(rows), file=sys.stderr)
"""


def start(asked: Path, store: Path, pace: float = 0.03) -> subprocess.Popen[str]:
    """A process that runs forty rows with two model calls each, and notes each call in the file `asked`."""
    command = [sys.executable, "-c", SCRIPT, str(asked), str(store), str(pace)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_lines(path: Path, count: int, running: subprocess.Popen[str]) -> None:
    while not path.exists() or len(path.read_bytes().splitlines()) < count:
        assert running.poll() is None, running.stderr.read()
        time.sleep(0.01)


@pytest.mark.timeout(120)
def test_a_process_that_is_killed_twice(tmp_path):
    """Each row that had ended was paid once, and the last frame is the same as without the interruption."""
    undisturbed, _ = start(tmp_path / "quiet", tmp_path / "whole.jsonl").communicate(timeout=60)
    asked, store, paid = tmp_path / "asked", tmp_path / "rows.jsonl", {}
    for after in (8, 20):
        running = start(asked, store)
        wait_for_lines(store, after + 1, running)
        running.kill()
        running.communicate()
        counts = Counter(asked.read_text().splitlines())
        lines = [line for line in store.read_bytes().splitlines(keepends=True)[1:] if line.endswith(b"\n")]
        paid |= {prompt: counts[prompt] for prompt in (json.loads(line)["prompt"] for line in lines)}
    frame, errors = start(asked, store).communicate(timeout=60)
    counts = Counter(asked.read_text().splitlines())
    assert frame == undisturbed
    assert "from the store" in errors
    assert len(paid) >= 20
    assert {prompt: counts[prompt] for prompt in paid} == paid  # no row was asked again
    assert counts.total() <= 2 * 40 + 2 * 2 * 3  # the other rows were under way when the process was killed


@pytest.mark.timeout(60)
def test_two_processes_on_one_file(tmp_path):
    """While one run uses the store, a second run is refused in one line. When the first process is dead, another run may use it."""
    store = tmp_path / "rows.jsonl"
    first = start(tmp_path / "asked", store, 60)
    wait_for_lines(store, 1, first)
    _, errors = start(tmp_path / "asked", store).communicate(timeout=30)
    assert "'rows.jsonl' is in use by another run" in errors
    first.kill()
    first.communicate()
    opened = Store(store)
    opened.open()
    opened.close()


async def test_the_frame_of_both_kinds(tmp_path):
    """Rows that were run and rows from the store give the same frame."""
    store = tmp_path / "rows.jsonl"
    given = pd.DataFrame({"text": ["x", "y"]}, index=["i", "i"])
    frames = [
        (
            await amap(
                "{{text}}",
                given,
                model=ScriptedModel({"what": "a", "on": "2026-01-01"}, name="m"),
                output=Event,
                store=store,
            )
        ).frame
        for _ in range(2)
    ]
    pd.testing.assert_frame_equal(*[frame.drop(columns="seconds") for frame in frames])
