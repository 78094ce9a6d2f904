"""Recordings: they are written by a run of this package's own loop, and replayed through LiteLLM's real `acompletion()`."""

from __future__ import annotations

import json
import os
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from support.asking import ask
from support.disks import full_disk
from support.pace import Pace
from support.servers import ScriptedServer
from toolloop_jupyter.api import aagent, aagent_session
from toolloop_jupyter.core.events.result import Result
from toolloop_jupyter.core.loop.config import ToolLoopOptions
from toolloop_jupyter.core.models.client import load_litellm
from toolloop_jupyter.core.session.keywords import Harness
from toolloop_jupyter.core.text import remember
from toolloop_jupyter.teaching.recording import Recorder, Replay, ReplayMismatch
from toolloop_jupyter.teaching.scripted import ScriptedModel, call, deltas, error, reasoning, text
from toolloop_jupyter.teaching.tape import RecordingError


def double(n: int) -> int:
    """Double a number."""
    return 2 * n


def script() -> ScriptedModel:
    return ScriptedModel(
        [reasoning("Let me see.", signature="SIG"), text("I'll ask. ", pace=0.02), call("double", n=4)],
        lambda messages: f"It is {messages[-1]['content']}.",
    )


async def run(model: Any, tool: Any = double, prompt: str = "Double 4", **options: Any) -> Result:
    result: Result = await aagent(Harness.TOOL_LOOP, prompt, model=model, **{"tools": [tool], **options})
    return result


async def recorded(path: Path, **options: Any) -> Result:
    return await run(script(), observer=Recorder(path), **options)


def said(result: Result) -> list[Any]:
    return [event for event in result.events if type(event).__name__ != "Done"]


async def test_a_replay_gives_the_same_events(tmp_path: Path) -> None:
    """The replay of a run has the same events, answer and usage. The tool is called again."""
    path = tmp_path / "lesson.jsonl"
    first = await recorded(path)
    calls: list[int] = []

    def double(n: int) -> int:
        """Double a number."""
        calls.append(n)
        return 2 * n

    replay = Replay(path)
    again = await run(replay, double)
    assert (again.text, again.stop_reason, again.usage) == ("It is 8.", "done", first.usage)
    assert said(again) == said(first)
    assert calls == [4]
    assert replay.title == replay.next_title == "a script"


async def test_a_server_is_not_needed_any_more(tmp_path: Path) -> None:
    """A run that was recorded with a server and a key is replayed without both."""
    path = tmp_path / "lesson.jsonl"
    entries = [
        {"tool_calls": [{"id": "c1", "name": "double", "arguments": '{"n": 4}'}]},
        {"content": "It is 8, that is sure."},
    ]
    with ScriptedServer(entries) as server:
        first = await run(
            "openai/stub", api_base=server.base_url, api_key="sk-verysecret123", observer=Recorder(path)
        )
    assert first.text == "It is 8, that is sure."
    again = await run(Replay(path))
    assert said(again) == said(first)
    assert again.usage == first.usage
    content = path.read_text(encoding="utf-8")
    assert "verysecret" not in content
    assert "127.0.0.1" not in content


async def test_the_file_is_readable_and_each_call_lists_only_what_is_new(tmp_path: Path) -> None:
    """Each line is a JSON object: the version, then for each call its head, new tools and messages, deltas and end."""
    path = tmp_path / "lesson.jsonl"
    await recorded(path, options=ToolLoopOptions(completion_kwargs={"temperature": 0.5}))
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert lines[0] == {"toolloop-recording": 1}
    heads = [line for line in lines if "call" in line]
    assert [(head["call"], head.get("kept", 0)) for head in heads] == [(1, 0), (2, 1)]
    assert heads[0]["options"]["temperature"] == 0.5
    assert [line["tool"]["name"] for line in lines if "tool" in line] == ["double"]
    assert [line["sent"]["role"] for line in lines if "sent" in line] == ["user", "assistant", "tool"]
    assert (
        "".join(line["delta"].get("content", "") for line in lines if "delta" in line) == "I'll ask. It is 8."
    )
    assert lines[-1]["end"]["finish_reason"] == "stop"


async def test_two_recordings_of_the_same_run_differ_in_times_only(tmp_path: Path) -> None:
    """A second recording of the same run gives the same file, except for the times and the scripted model's number."""
    texts = []
    for name in ("a", "b"):
        await recorded(tmp_path / name)
        lines = [json.loads(line) for line in (tmp_path / name).read_text(encoding="utf-8").splitlines()]
        texts.append([{k: v for k, v in line.items() if k not in ("at", "model")} for line in lines])
    assert texts[0] == texts[1]


async def test_the_pace_is_kept(tmp_path: Path) -> None:
    """A replay takes as long as the recorded stream took, and no time with speed 0."""
    path = tmp_path / "lesson.jsonl"
    recorder = Recorder(path)
    request = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    recorder.record(request, [(0.1, {"content": "a"}), (0.3, {"content": "b"})], {"finish_reason": "stop"})
    for speed, least, most in ((1.0, 0.3, 5.0), (0, 0.0, 0.25)):
        replay = Replay(path, speed=speed)
        await ask(Replay(path, speed=0), "Hi")  # LiteLLM's first call of a kind is slow
        with Pace() as pace:
            started = time.monotonic()
            assert (await ask(replay, "Hi"))["content"] == "ab"
            took = time.monotonic() - started
        assert least <= took < most * pace.slowdown


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"prompt": "Double 5"},
            ["message 1 (user) differs", "recorded: 'Double 4'", "now:      'Double 5'"],
        ),
        (
            {"instructions": "Be brief."},
            [
                "message 1 (system) differs from the recorded one (user)",
                "recorded: 'Double 4'",
                "now:      'Be brief.'",
            ],
        ),
    ],
)
async def test_a_changed_request_stops_with_a_short_difference(
    tmp_path: Path, change: dict[str, Any], told: list[str]
) -> None:
    """A changed prompt ends the run. The error names the place, quotes both texts, and says what to do."""
    path = tmp_path / "lesson.jsonl"
    await recorded(path)
    result = await run(Replay(path), **change)
    assert result.stop_reason == "runtime_error"
    for piece in [*told, "lesson.jsonl, model call 1", "loose=True"]:
        assert " ".join(piece.split()) in " ".join((result.error or "").split())


async def test_changed_tools_and_results_are_told_apart(tmp_path: Path) -> None:
    """If a schema or a result has changed, the error has the tool's name."""
    path = tmp_path / "lesson.jsonl"
    await recorded(path)

    def double(n: float) -> int:
        """Double a number."""
        return 8

    def other(n: int) -> int:
        """Double a number."""
        return 8

    assert "the tool 'double' differs\n  recorded: " in str((await run(Replay(path), double)).error)
    assert "the tool 'double' was recorded and is not there now\n" in str(
        (await run(Replay(path), other)).error
    )
    double_again = run.__globals__["double"]

    def wrong(n: int) -> int:
        """Double a number."""
        return 9

    wrong.__name__ = double_again.__name__
    result = await run(Replay(path), wrong)
    assert "model call 2: message 3 (result of double) differs" in str(result.error)
    assert "recorded: '8' now: '9'" in " ".join(str(result.error).split())


@pytest.mark.parametrize("ids", [("c2", "c2"), ("c2", "nobody")])
async def test_the_ids_of_calls_are_not_compared(tmp_path: Path, ids: tuple[str, str]) -> None:
    """A request with other call ids gets the recorded answer, even if a result does not belong to a call of the request."""

    def ask_again(call_id: str, answered: str) -> list[dict[str, Any]]:
        function = {"name": "double", "arguments": "{}"}
        call = {"id": call_id, "type": "function", "function": function}
        return [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": answered, "content": "8"},
        ]

    path = tmp_path / "lesson.jsonl"
    request = {"model": "m", "messages": ask_again("c1", "c1")}
    Recorder(path).record(request, [(0.0, {"content": "ok"})], {"finish_reason": "stop"})
    assert (await ask(Replay(path), *ask_again(*ids)))["content"] == "ok"


async def test_loose_goes_on_and_keeps_the_differences(tmp_path: Path) -> None:
    """With loose=True, the recorded answers come although the requests differ. `differences` lists how they differ."""
    path = tmp_path / "lesson.jsonl"
    await recorded(path)
    replay = Replay(path, loose=True)
    result = await run(replay, prompt="Double 5")
    assert result.text == "It is 8."
    assert len(replay.differences) == 2
    assert "model call 1: message 1 (user) differs" in replay.differences[0]


async def test_a_mismatch_is_the_cause_of_litellms_error(tmp_path: Path) -> None:
    """Code that calls LiteLLM itself gets a BadRequestError. Its cause has the difference."""
    path = tmp_path / "lesson.jsonl"
    await recorded(path)
    replay = Replay(path)
    with pytest.raises(load_litellm().BadRequestError) as caught:
        await ask(replay, "Something else")
    assert isinstance(caught.value.__cause__, ReplayMismatch)
    assert caught.value.__cause__.difference.startswith("message 1 (user) differs")


async def test_what_was_asked_is_answered_again_in_any_order(tmp_path: Path) -> None:
    """Cells that run again, or in another order, get the answers that were recorded for their requests."""
    path = tmp_path / "lesson.jsonl"
    recorder, model = Recorder(path), ScriptedModel("one", "two", "one again")
    for prompt in ("first", "second", "first"):
        await run(model, prompt=prompt, observer=recorder)
    replay = Replay(path)
    order = ["second", "first", "first", "second", "first"]
    answers = [(await run(replay, prompt=prompt)).text for prompt in order]
    assert answers == ["two", "one again", "one", "two", "one again"]


async def test_the_nearest_recorded_call_is_what_a_request_is_compared_with(tmp_path: Path) -> None:
    """A changed prompt is compared with the call that it came from, whatever the replay's position; also in loose mode."""
    path = tmp_path / "lesson.jsonl"
    recorder, model = Recorder(path), ScriptedModel("four", "rain")
    for prompt in ("Double two", "How is the weather in Oslo?"):
        await run(model, prompt=prompt, observer=recorder)
    replay = Replay(path)
    for _ in range(3):
        error = str((await run(replay, prompt="How is the weather in Bergen?")).error)
        assert error.startswith("lesson.jsonl, model call 2: message 1 (user) differs\n  recorded: ")
        assert error.endswith(
            "\nRun the notebook as it was recorded, record it again, or go on with loose=True."
        )
    loose = Replay(path, loose=True)
    assert (await run(loose, prompt="How is the weather in Bergen?")).text == "rain"
    assert (await run(loose, prompt="Double three")).text == "four"


async def test_a_recording_without_calls_says_so(tmp_path: Path) -> None:
    """A recording without a call can be read. A run on it ends with the reason."""
    path = tmp_path / "lesson.jsonl"
    path.write_text('{"toolloop-recording": 1}\n', encoding="utf-8")
    assert "there is no call in this recording" in str((await run(Replay(path))).error)


@pytest.mark.parametrize("parts", [[error("overloaded", 503)], [text("I was about to "), error("gone", 503)]])
async def test_a_call_that_failed_is_recorded_and_fails_again(tmp_path: Path, parts: list[Any]) -> None:
    """If a provider fails, at once or in the middle of an answer, the replay ends with the same words."""
    path = tmp_path / "lesson.jsonl"
    first = await run(ScriptedModel(parts), observer=Recorder(path))
    again = await run(Replay(path))
    assert first.stop_reason == "runtime_error"
    assert (again.error, again.text, said(again)) == (first.error, first.text, said(first))


async def test_a_session_and_a_structured_answer_replay(tmp_path: Path) -> None:
    """Two turns of a session with `output=` are recorded and replayed."""

    class Answer(BaseModel):
        value: int

    path = tmp_path / "lesson.jsonl"
    model = ScriptedModel(Answer(value=1), Answer(value=2))
    for which in (model, None):
        observed = {"observer": Recorder(path)} if which else {}
        session = await aagent_session(
            Harness.TOOL_LOOP, model=which or Replay(path), output=Answer, **observed
        )
        values = [(await session.run(prompt)).output.value for prompt in ("one", "two")]
        assert values == [1, 2]
        await session.close()


async def test_appending_goes_on_behind_what_is_there(tmp_path: Path) -> None:
    """append=True keeps the calls of an earlier recording; without it they are replaced."""
    path = tmp_path / "lesson.jsonl"
    await recorded(path)
    await run(script(), observer=Recorder(path, append=True))
    assert len(Replay(path).calls) == 4
    await recorded(path)
    assert len(Replay(path).calls) == 2


async def test_a_failed_call_is_replayed_as_a_failure(tmp_path: Path) -> None:
    """A replayed call breaks off where the recorded one did, with the recorded status."""
    path = tmp_path / "lesson.jsonl"
    request = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    Recorder(path).record(request, [(0.0, {"content": "par"})], {"error": "overloaded", "status": 503})
    with pytest.raises(load_litellm().exceptions.MidStreamFallbackError, match="overloaded"):
        await ask(Replay(path), "Hi")


def test_keys_and_headers_are_left_out(tmp_path: Path) -> None:
    """Options with keys, headers or addresses are not written, nor texts and names of fields that are keys."""
    path = tmp_path / "lesson.jsonl"
    remember(["name-hidden-5"])
    schema = {"type": "object", "properties": {"api_key": {"type": "string"}, "name-hidden-5": {}}}
    request = {
        "model": "m",
        "messages": [{"role": "user", "content": "My key is sk-abcdef123456789"}],
        "tools": [{"type": "function", "function": {"name": "login", "parameters": schema}}],
        "api_key": "hidden-1",
        "api_base": "http://hidden-2/",
        "extra_headers": {"x": "hidden-3"},
        "extra_body": {"auth": {"token": "hidden-4"}, "top_k": 5},
        "timeout": Path("sk-abcdef123456789"),  # an object whose text has a key
    }
    deltas = [(0.1, {"content": "It is sk-abc"}), (0.2, {"content": "def123456789, see?"})]
    Recorder(path).record(request, deltas, {"finish_reason": "stop"})
    content = path.read_text(encoding="utf-8")
    assert "hidden" not in content
    assert "123456789" not in content
    assert '"api_key": {"type": "string"}' in content
    assert '"top_k": 5' in content
    assert '"content": "It is [key], see?"' in content


def test_a_key_in_any_field_of_an_answer_is_left_out(tmp_path: Path) -> None:
    """A server may repeat the request's headers in a field that is not of the message. The recording has only the message."""
    path = tmp_path / "lesson.jsonl"
    echo = {"content": "b", "echo": {"Authorization": "Bearer sk-abcdef123456789"}}
    Recorder(path).record({"model": "m"}, [(0.1, {"content": "a"}), (0.2, echo)], {"finish_reason": "stop"})
    assert "123456789" not in path.read_text(encoding="utf-8")
    assert [delta["content"] for _, delta in Replay(path).calls[0].deltas] == ["ab"]


@pytest.mark.parametrize("levels", [300, 5000])
def test_an_answer_that_is_nested_too_deeply(tmp_path: Path, levels: int) -> None:
    """An answer that could not be read again is not recorded, however deep it is."""
    deep: list[Any] = []
    for _ in range(levels):
        deep = [deep]
    with pytest.raises(RecordingError, match="nested too deeply"):
        Recorder(tmp_path / "lesson.jsonl").record({"model": "m"}, [(0.1, {"odd": deep})], {})


HEADER = '{"toolloop-recording": 1}\n'


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "is empty"),
        ('{"toolloop-recording": 99}\n', "version 99; this toolloop_jupyter reads 1"),
        ('{"toolloop-recording": 1}\n{"call": 1}\nnot json\n', "line 3 is not a line of a recording"),
        ('{"toolloop-recording": 1}\n{"sent": {"role": "user"}}\n', "line 2"),
        ("[1]\n", "line 1"),
        (HEADER + '{"call": 1}\n{"at": 0.1, "delta": {"content": "Hal"}}\n', "model call 1 is not complete"),
        (
            HEADER + '{"call": 1}\n{"end": {}}\n{"call": 2}\n{"call": 3}\n{"end": {}}\n',
            "model call 2 is not complete",
        ),
    ],
)
def test_a_broken_file_names_the_line(tmp_path: Path, content: str, told: str) -> None:
    """A file that is not a recording is refused, with the line and the reason."""
    path = tmp_path / "broken.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(RecordingError, match=told):
        Replay(path)


ODD_LINES = {
    "a delta behind the end": (
        5,
        '{"at": 0.1, "delta": {"content": "and more"}}',
        "after the end of its call",
    ),
    "a second end": (5, '{"end": {"finish_reason": "stop"}}', "after the end of its call"),
    "an end that is a list": (4, '{"end": []}', "should be a valid dictionary"),
    "usage in words": (4, '{"end": {"usage": {"prompt_tokens": "many"}}}', "many"),
    "endless usage": (4, '{"end": {"usage": {"completion_tokens": 1e999}}}', "finite number, got inf"),
    "a cost that gives money back": (
        4,
        '{"end": {"usage": {"cost": -5}}}',
        "greater than or equal to 0, got -5",
    ),
    "a status in words": (4, '{"end": {"error": "no", "status": "bad"}}', "bad"),
    "a delta that never comes": (3, '{"at": Infinity, "delta": {"content": "x"}}', "finite number, got inf"),
    "a delta at no time": (3, '{"at": NaN, "delta": {"content": "x"}}', "finite number, got nan"),
    "fewer messages than kept": (
        1,
        '{"call": 1, "model": "m", "kept": -1}',
        "kept: Input should be greater than or equal to 0, got -1",
    ),
    "a message that is a list": (
        2,
        '{"sent": [["role", "user"]]}',
        r"\(sent: Input should be a valid dictionary, got",
    ),
    "a line that is a number": (2, "5", r"\(the whole line: Input should be a valid dictionary, got 5\)"),
    "a text that is a number": (
        2,
        '{"sent": {"content": 5}}',
        r"\(sent.content: Input should be .*, got 5\)",
    ),
}


@pytest.mark.parametrize(("number", "line", "told"), ODD_LINES.values(), ids=ODD_LINES)
async def test_a_line_that_says_something_impossible(
    tmp_path: Path, number: int, line: str, told: str
) -> None:
    """If an edited recording is wrong, it is refused, with the line. It is not played as something else."""
    path = tmp_path / "lesson.jsonl"
    await run(ScriptedModel(["Hi."]), tools=[], observer=Recorder(path))
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 5
    lines[number : number + 1] = [line]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(RecordingError, match=rf"lesson\.jsonl, line {number + 1} .*{told}"):
        Replay(path)


def test_files_that_cannot_be_used_are_refused_at_once(tmp_path: Path) -> None:
    """A missing file to replay and a missing folder to record to are named before anything runs."""
    with pytest.raises(RecordingError, match="cannot read the recording"):
        Replay(tmp_path / "none.jsonl")
    with pytest.raises(RecordingError, match="there is no folder"):
        Recorder(tmp_path / "none" / "lesson.jsonl")
    with pytest.raises(RecordingError, match="it is a folder"):
        Recorder(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize("open_it", [Recorder, Replay])
@pytest.mark.parametrize(
    ("name", "told"),
    [("pipe", "not a file"), ("n" * 300, "too long"), ("circle", "symbolic links"), ("a\0b", "null")],
)
def test_a_place_that_is_no_file_is_refused_at_once(
    tmp_path: Path, name: str, told: str, open_it: type[Recorder | Replay]
) -> None:
    """A pipe, which would block everything, and an impossible file name are named before anything runs."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    with pytest.raises(RecordingError, match=told):
        open_it(tmp_path / name)


@pytest.mark.parametrize(
    "content",
    [
        "print('lesson')\n",
        '{"format": "x"}\n',
        "[]\n",
        "\x00\x01",
        " \n",
        '["toolloop-recording"]\n',
        '"on a toolloop-recording"\n',
        '{"toolloop-recording": "notes on it"}\n',
    ],
)
async def test_what_is_no_recording_is_not_written_over(tmp_path: Path, content: str) -> None:
    """Another file is refused before the run. A file that appears later is refused before the first call."""
    path = tmp_path / "lesson.py"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(RecordingError, match=r"lesson\.py.*not a recording, and would be overwritten"):
        Recorder(path)
    path.unlink()
    recorder = Recorder(path, on_stop=lambda why: None)
    path.write_text(content, encoding="utf-8")
    assert (await run(script(), observer=recorder)).text == "It is 8."
    assert path.read_text(encoding="utf-8") == content
    assert "would be overwritten" in recorder.stopped


async def test_a_recording_is_read_whatever_wrote_it(tmp_path: Path) -> None:
    """A recording may have a byte order mark, Windows' line ends, and texts with Unicode's own line ends."""
    path = tmp_path / "lesson.jsonl"
    await run(ScriptedModel(["One\u2028two\x85three"]), observer=Recorder(path))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert (await run(Replay(path))).text == "One\u2028two\x85three"
    assert Recorder(path).path == path


async def test_a_write_error_stops_the_recording_and_not_the_run(tmp_path: Path) -> None:
    """The run goes on to its end. The recording has the earlier calls, complete, and one warning names the reason."""
    path = tmp_path / "lesson.jsonl"
    messages: list[str] = []
    recorder = Recorder(path, on_stop=messages.append)
    await run(script(), observer=recorder)
    before = path.read_bytes()
    with full_disk(len(before) + 20):
        assert (await run(script(), observer=recorder)).text == "It is 8."
    assert path.read_bytes() == before
    assert len(messages) == 1
    assert "has stopped at model call 3 (calls in the file: 2)" in messages[0]
    assert "too large" in messages[0]
    assert (await run(Replay(path))).text == "It is 8."
    assert (await run(script(), observer=recorder)).text == "It is 8."
    assert path.read_bytes() == before, "it goes on with a gap"
    path.unlink()
    await run(script(), observer=recorder)
    assert (await run(Replay(path))).text == "It is 8.", "begun anew when the file was taken away"


async def test_a_first_call_that_cannot_be_written_leaves_the_old_recording(tmp_path: Path) -> None:
    """If the disk is full, the earlier recording is not lost, and a Python warning says so."""
    path = tmp_path / "lesson.jsonl"
    await recorded(path)
    before = path.read_bytes()
    with (
        full_disk(100),
        pytest.warns(UserWarning, match=r"has stopped at model call 1 \(calls in the file: 0\)"),
    ):
        assert (await recorded(path)).text == "It is 8."
    assert path.read_bytes() == before


async def test_a_first_call_that_cannot_be_written_stops_the_recording(tmp_path: Path) -> None:
    """The recording stops with one message. It does not go on with a later call, because such a file could not be replayed."""
    messages: list[str] = []
    path = tmp_path / "lesson.jsonl"
    recorder = Recorder(path, on_stop=messages.append)
    with full_disk(100):
        assert (await run(script(), observer=recorder)).text == "It is 8."
    assert (await run(script(), observer=recorder)).text == "It is 8."
    assert len(messages) == 1
    assert not path.exists()


@pytest.mark.parametrize("field", ["provider_specific_fields", "a field of its own"])
async def test_values_that_are_no_json(tmp_path: Path, field: str) -> None:
    """If a provider adds values that are not JSON, they are recorded as text, and the run goes on."""
    path = tmp_path / "lesson.jsonl"
    model = ScriptedModel(deltas([{"content": "x", field: {"signature": b"SIG"}}]))
    assert (await run(model, observer=Recorder(path))).stop_reason == "done"
    assert "b'SIG'" in path.read_text(encoding="utf-8")


async def test_a_warning_that_is_an_error_does_not_end_the_run(tmp_path: Path) -> None:
    """`on_stop` is code of the user. If it raises an error, the answer is not lost."""
    path = tmp_path / "lesson.jsonl"
    recorder = Recorder(path)
    await run(script(), observer=recorder)
    path.write_bytes(path.read_bytes() + b"\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = await run(script(), observer=recorder)
    assert (result.stop_reason, result.text) == ("done", "It is 8.")
    assert "another program" in recorder.stopped


@pytest.mark.parametrize(("cut", "calls"), [("", 2), ("\n", 4)])
async def test_appending_to_a_file_without_its_last_line_end(tmp_path: Path, cut: str, calls: int) -> None:
    """An appended call begins a new line, even if the file is empty or does not end with a line break."""
    path = tmp_path / "lesson.jsonl"
    await recorded(path)
    path.write_text(path.read_text(encoding="utf-8").removesuffix(cut) if cut else "", encoding="utf-8")
    await run(script(), observer=Recorder(path, append=True))
    assert len(Replay(path).calls) == calls


async def test_two_kernels_do_not_mix_their_calls_in_one_file(tmp_path: Path) -> None:
    """If two recorders write one file, the later one has it, complete. The earlier one stops at its next call, and says why."""
    path = tmp_path / "lesson.jsonl"
    messages: list[str] = []
    first, second = Recorder(path, on_stop=messages.append), Recorder(path)
    await run(script(), observer=first)
    await run(script(), observer=second)
    await run(script(), observer=first)
    assert len(Replay(path).calls) == 2
    assert ["another program has written the file" in text for text in messages] == [True]


async def test_half_a_character_in_a_delta(tmp_path: Path) -> None:
    """Halves of a surrogate pair, alone or in two deltas, are recorded unchanged, and replayed."""
    path = tmp_path / "halves.jsonl"
    model = ScriptedModel(deltas([{"content": "a\ud83d"}, {"content": "\ude00 b\ud83d"}, {"content": " c"}]))
    first = await run(model, observer=Recorder(path))
    assert first.text == "a\U0001f600 b\ufffd c"
    assert (await run(Replay(path, speed=0))).text == first.text


# --- tools that answer from the recording ---


async def record_all_kinds(path: Path) -> Result:
    """Record a run with a result, another result of the same call, an error, wrong arguments and a denial."""
    numbers = iter([4, 5])

    def count(of: str = "all") -> int:
        """Count."""
        return next(numbers)

    def fail(why: str) -> str:
        raise OSError(why)

    calls = [
        call("count"),
        call("count"),
        call("fail", why="no disk"),
        call("count", of=[1]),
        call("count", of="b"),
    ]
    model = ScriptedModel([text("I count."), *calls[:4]], [calls[4]], "I have counted.")
    options: Any = {"permissions": lambda called: called.input.get("of") != "b", "observer": Recorder(path)}
    return await run(model, tools=[count, fail], **options)


async def test_tools_answer_from_the_recording(tmp_path: Path) -> None:
    """With the recording's own tools, a replay needs no functions. Each call gets its recorded result, in order."""
    path = tmp_path / "lesson.jsonl"
    first = await record_all_kinds(path)
    assert [one.output for one in first.tool_results][:3] == ["4", "5", "OSError: no disk"]
    assert [one.status for one in first.tool_results][3:] == ["invalid", "denied"]
    assert [one.is_error for one in first.tool_results] == [False, False, True, True, True]
    replay = Replay(path, plays_tools=True)
    assert [tool.name for tool in replay.tools] == ["count", "fail"]
    assert replay.tools[0].as_tool().description == "Count."
    for _ in range(2):  # the replay starts again from the beginning
        again = await run(replay, tools=replay.tools)
        assert (again.text, again.stop_reason) == ("I have counted.", "done")
        assert [one.output for one in again.tool_results] == [one.output for one in first.tool_results]
        assert [one.is_error for one in again.tool_results] == [one.is_error for one in first.tool_results]


async def test_the_tools_of_one_question(tmp_path: Path) -> None:
    """A recording of several runs has the tools of each run, in their form at that time, whichever is played first."""
    path = tmp_path / "lesson.jsonl"
    recorder = Recorder(path)

    def look(name: str) -> str:
        """Look."""
        return name

    def look_again(name: str, deep: bool = False) -> str:
        """Look again."""
        raise OSError(name)

    look_again.__name__ = "look"
    model = ScriptedModel(call("find"), "There is no find.", call("look", name="a"), "Found.", "Nothing.")
    first = await run(model, prompt="One?", tools=[look], observer=recorder)
    await run(model, prompt="Two?", tools=[look_again], observer=recorder)
    await run(model, prompt="Three?", tools=[], observer=recorder)
    replay = Replay(path, plays_tools=True)
    shown = [
        [tool.as_tool().description for tool in replay.find_tools(asked)] for asked in ("Two?", "Three?\n")
    ]
    assert shown == [["Look again."], []]
    again = await run(replay, prompt="One?", tools=replay.find_tools("One?"))
    assert again.tool_results[0].output == first.tool_results[0].output
    again = await run(replay, prompt="Two?", tools=replay.find_tools("Two?"))
    assert (again.tool_results[0].output, again.tool_results[0].is_error) == ("OSError: a", True)
    assert len(replay.find_tools("Something else")) == 1


async def test_a_call_that_the_recording_does_not_have(tmp_path: Path) -> None:
    """If a person edits a call, there is no recorded result: the call gets an error that says so, and nothing runs."""
    path = tmp_path / "lesson.jsonl"
    await recorded(path)
    replay = Replay(path, plays_tools=True, loose=True)
    asked: list[Any] = []

    def edit(approval: Any) -> bool:
        asked.append(approval.origin)
        approval.allow({"n": 5})
        return True

    result = await run(replay, tools=replay.tools, permissions="ask", on_approval=edit)
    assert result.tool_results[0].output.startswith(
        "RecordingError: lesson.jsonl has no recorded result for this call of double"
    )
    assert asked == ["Answered from lesson.jsonl; nothing runs."]


OF_OTHER_TYPES = {
    "a text for calls": {"role": "assistant", "tool_calls": "f()"},
    "a number among the calls": {"role": "assistant", "tool_calls": [5]},
    "a call without a function": {"role": "assistant", "tool_calls": [{"id": "c1"}]},
    "arguments as an object": {
        "role": "assistant",
        "tool_calls": [{"function": {"name": "f", "arguments": {}}}],
    },
    "a number for a name": {
        "role": "assistant",
        "tool_calls": [{"function": {"name": 5, "arguments": "{}"}}],
    },
    "a number for a text": {"role": "user", "content": 5},
    "a text among the parts": {"role": "user", "content": ["x"]},
    "a list for a role": {"role": ["user"], "content": "x"},
}


@pytest.mark.parametrize(
    "line",
    [*({"sent": message} for message in OF_OTHER_TYPES.values()), {"end": {"finish_reason": ["stop"]}}],
)
def test_a_message_of_other_types(tmp_path: Path, line: dict[str, Any]):
    """If a message or an end has values of other types than in a run, it is refused with its line, before anything is played."""
    lines = [{"toolloop-recording": 1}, {"call": 1}, line, {"end": {"finish_reason": "stop"}}]
    path = tmp_path / "r.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    with pytest.raises(RecordingError, match="line 3 is not a line of a recording"):
        Replay(path)
