"""Our own models answer without LiteLLM. Here, each is also called through LiteLLM ("through the door"), and the result is
the same.
"""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pydantic
import pytest

from core.models.streams.corpus import CASES
from support.asking import PASSED
from toolloop_jupyter import Harness, aagent_session
from toolloop_jupyter.core.loop.config import ToolLoopOptions
from toolloop_jupyter.core.models import client, providers
from toolloop_jupyter.teaching import (
    Recorder,
    Replay,
    ScriptedModel,
    call,
    deltas,
    end,
    error,
    expect,
    reasoning,
)

PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
SOURCE = {"type": "url_citation", "url_citation": {"url": "http://a.example", "title": "A"}}


def look_up(word: str, limit: int = 1) -> str:
    """Look a word up.

    Args:
        word: what to look for
        limit: how many lines
    """
    if word == "bad":
        raise ValueError("no such word")
    return f"{word} stands in {limit} lines"


class Part(pydantic.BaseModel):
    """A part of a verdict."""

    note: str | None = None


class Verdict(pydantic.BaseModel):
    """A verdict with a grade."""

    text: str
    grade: int = 3
    parts: list[Part] = []


def raising(messages: Any) -> str:
    """A turn that fails."""
    raise IndexError("nothing there")


SCRIPTS: dict[str, tuple[Any, ...]] = {
    "text": ("Hello, world.",),
    "reasoning with a signature": ([reasoning("Hm, hm.", signature="SIG"), "Yes."],),
    "a call": (["I look. ", call("look_up", word="x")], "Found."),
    "calls beside one another": ([call("look_up", word="x"), call("look_up", word="bad")], "Found."),
    "broken arguments": (call("look_up", '{"word": '), "Sorry."),
    "an unknown tool": (call("nobody", a=1), "Sorry."),
    "a function of the messages": (lambda messages: f"It said {messages[-1]['content']}",),
    "a function that fails": (raising,),
    "a turn that does not fit": (["a", expect("nothing like it")],),
    "a script that is over": (call("look_up", word="x"),),
    "a refusal": (deltas([{"refusal": "I "}, {"refusal": "won't."}]),),
    "a refusal and text": (deltas([{"refusal": "I "}, {"content": "text"}]),),
    "pictures": (deltas([{"images": [PICTURE]}, {"content": "Look."}]),),
    "sources": (deltas([{"content": "See."}, {"annotations": [SOURCE]}]),),  # called through LiteLLM, a recording has the source twice
    "content in parts": (deltas([{"content": [{"type": "text", "text": "yes"}]}]),),
    "the old field": (deltas([{"function_call": {"name": "look_up", "arguments": '{"word": "x"}'}}]), "Found."),
    "fragments without index, type and id": (
        deltas([{"tool_calls": [{"function": {"name": "look_up", "arguments": '{"word":'}}]},
                {"tool_calls": [{"function": {"arguments": '"x"}'}}]}]),
        "Found.",
    ),
    "two calls without an index": (
        deltas([{"tool_calls": [
            {"id": "a", "function": {"name": "look_up", "arguments": '{"word": "x"}'}},
            {"id": "b", "function": {"name": "look_up", "arguments": '{"word": "y"}'}}]}]),
        "Found.",
    ),
    "fields of one provider": (
        deltas([{"content": "x", "provider_specific_fields": {"citations": ["here"]}},
                {"tool_calls": [{"index": 0, "id": "a", "provider_specific_fields": {"thought_signature": "T"},
                                 "function": {"name": "look_up", "arguments": '{"word": "x"}'}}]}]),
        "Found.",
    ),
    "nothing": (deltas([]),),
    "blanks": ("  ",),
    "usage in the middle": ([deltas([{"usage": {"prompt_tokens": 7, "completion_tokens": 3}}]), "x"],),
    "usage of its own": (["x", end(usage={"prompt_tokens": 70, "completion_tokens": 30, "cost": 0.5})],),
    "calls that end with stop": ([call("look_up", word="x"), end("stop")], "Found."),
    "cut off by its length": (["par", end("length")],),
    "a call cut off by its length": ([call("look_up", '{"word": "x"'), end("length")], "Found."),
    "filtered": (["par", end("content_filter")],),
}  # fmt: skip
STATUSES = (400, 401, 403, 404, 408, 418, 429, 500, 503, 529, None)
SCRIPTS |= {f"refused with {status}": (error("not today", status, {"x": "y"}),) for status in STATUSES}
SCRIPTS |= {f"broken off with {status}": (["par ", error("gone", status)],) for status in STATUSES}
OPTIONS: dict[str, dict[str, Any]] = {
    "usual": {},
    "retried": {"num_retries": 1},
}
SENT = {
    "temperature": 0.1, "max_tokens": 9, "seed": 1, "n": 1, "stop": ["a"], "user": "u", "top_p": 0.5, "reasoning_effort": "low",
    "thinking": {"type": "enabled", "budget_tokens": 3}, "verbosity": "low", "tool_choice": "auto", "parallel_tool_calls": True,
    "extra_body": {"z": 1}, "custom": 3, "context_management": [{"type": "compaction"}], "response_format": Verdict,
    "caching": True, "tags": ["a"], "metadata": {"run": "1"}, "drop_params": True, "ttl": 3, "timeout": 4, "verbose": True,
    "headers": {"a": "b"}, "extra_headers": {"c": "d"}, "api_version": "1", "max_budget": 3, "stream_timeout": 9, "order": 1,
    "no-log": True, "max_retries": 2, "cache": {"ttl": 1}, "base_model": "m",
}  # fmt: skip
"""Options of all kinds: options of models, of one provider, and of LiteLLM itself."""


TAKEN = ("ids that are numbers", "arguments that are a number")
"""Cases that LiteLLM accepts from a server, but refuses from a model of ours."""


async def call_through_litellm(keywords: dict[str, Any]) -> Any:
    """Call the model through LiteLLM. This replaces `providers.ask`."""
    model = keywords["model"]
    client.ensure(model)
    return await client.load_litellm().acompletion(**{**PASSED, **keywords})


@pytest.fixture
def door(monkeypatch):
    """After `door()`, our own models are called through LiteLLM."""
    return lambda: monkeypatch.setattr(providers, "ask", call_through_litellm)


async def run_two_turns(
    model: Any, recording: Path | None = None, prompts=("Go.", "And now?"), **keywords: Any
) -> Any:
    """Run two turns. Return everything that can be seen of them: events, results, history, the requests to the model, and the
    recording.
    """
    observer = {"observer": Recorder(recording)} if recording else {}
    session = aagent_session(
        Harness.TOOL_LOOP, model=model, tools=[look_up], permissions="full", **observer, **keywords
    )
    all_seen: list[Any] = []
    for prompt in prompts:
        events = [event async for event in session.astream(prompt)]
        result = events[-1].result
        all_seen += [(type(event).__name__, event) for event in events[:-1]]
        all_seen.append(
            (result.stop_reason, result.error, result.text, result.output, result.usage, result.cost)
        )
        all_seen.append([(span.kind, span.name, span.is_error) for span in result.spans])
    all_seen.append(await session.history())
    all_seen += [normalize_request(request) for request in getattr(model, "requests", ())]
    if recording:
        all_seen += lines_of(recording)
    return write_without_chance(all_seen)


def lines_of(recording: Path) -> list[Any]:
    return [json.loads(line) for line in recording.read_text("utf-8").splitlines()]


def normalize_request(request: Any) -> Any:
    """Return a request without the fields that LiteLLM removes (those that are None) or adds (`max_retries`)."""
    messages = [{k: v for k, v in message.items() if v is not None} for message in request.messages]
    options = {k: v for k, v in request.options.items() if k != "max_retries"}
    return dataclasses.replace(request, messages=messages, options=options)


def write_without_chance(value: Any) -> str:
    """Return a value as text, without the parts that differ in each run: ids that we made, seconds, numbers of scripts."""
    text = json.dumps(value, sort_keys=True, default=plain, ensure_ascii=False, indent=1)
    text = re.sub(r"(scripted|replay)-\d+", r"\1-N", text)
    text = re.sub(r'("at"|"seconds"): [\d.e-]+', r"\1", text)
    made = dict.fromkeys(re.findall(r"call_[0-9a-f]{24}", text))
    for number, call_id in enumerate(made):
        text = text.replace(call_id, f"made-{number}")
    return text


def plain(value: Any) -> Any:
    """Return any value as JSON: the fields of events and results; `repr` for other objects."""
    return dict(vars(value)) if dataclasses.is_dataclass(value) else repr(value)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", SCRIPTS)
async def test_both_ways(name, options, door, tmp_path):
    """A script gives the same events, results, history, requests and recording without LiteLLM and through it."""
    config = {"options": ToolLoopOptions(completion_kwargs=OPTIONS[options])}
    recordings = (None, None) if name == "sources" else (tmp_path / "straight.jsonl", tmp_path / "door.jsonl")
    straight = await run_two_turns(ScriptedModel(*SCRIPTS[name]), recordings[0], **config)
    door()
    assert straight == await run_two_turns(ScriptedModel(*SCRIPTS[name]), recordings[1], **config)


@pytest.mark.parametrize("name", ["sources", "content in parts", "the old field"])
async def test_a_whole_answer_says_what_its_stream_says(name):
    """Without `stream`, our own models give the same answer."""
    turns = []
    for stream in (True, False):
        session = aagent_session(
            Harness.TOOL_LOOP,
            model=ScriptedModel(*SCRIPTS[name]),
            tools=[look_up],
            options=ToolLoopOptions(completion_kwargs={"stream": stream}),
        )
        result = await session.arun("Go.")
        turns.append(write_without_chance([result.text, result.error, await session.history()]))
    assert turns[0] == turns[1]


async def test_the_demo_model_both_ways(door):
    """The demonstration model plans, calls and answers in the same way, even in JSON."""
    runs: dict[str, Any] = {
        "words": {"prompts": ("Look up the word 'tree'.", "Look up 'bad', please.")},
        "json": {"output": Verdict, "prompts": ("Look up the word 'tree' and judge.", "Once more.")},
    }
    # Only the first answer explains that this is a demonstration.
    await run_two_turns("toolloop/demo", prompts=("Hi",))
    straight = [await run_two_turns("toolloop/demo", **run) for run in runs.values()]
    door()
    assert straight == [await run_two_turns("toolloop/demo", **run) for run in runs.values()]


async def test_a_replay_both_ways(door, tmp_path):
    """A recording with calls, a failure and a cost gives the same answers."""
    script = (
        [call("look_up", word="x")],
        ["Found.", end(usage={"prompt_tokens": 3, "completion_tokens": 4})],
        error("no", 503),
    )
    await run_two_turns(ScriptedModel(*script), tmp_path / "lesson.jsonl")
    lines = (
        (tmp_path / "lesson.jsonl")
        .read_text("utf-8")
        .replace('"completion_tokens": 4', '"completion_tokens": 4, "cost": 0.25')
    )
    (tmp_path / "lesson.jsonl").write_text(lines, "utf-8")
    straight = await run_two_turns(Replay(tmp_path / "lesson.jsonl", speed=0))
    door()
    assert straight == await run_two_turns(Replay(tmp_path / "lesson.jsonl", speed=0))


async def test_options_both_ways(door):
    """Our own models get the same options both ways: the options for a model, and none of LiteLLM's own options."""
    config = {"options": ToolLoopOptions(completion_kwargs=SENT)}
    one, other = ScriptedModel("x", repeat_last=True), ScriptedModel("x", repeat_last=True)
    await run_two_turns(one, **config)
    door()
    await run_two_turns(other, **config)
    straight, through = (normalize_request(model.requests[0]).options for model in (one, other))
    assert straight.pop("response_format")["json_schema"]["name"] == "Verdict"
    assert through.pop("response_format")["json_schema"]["name"] == "Verdict"
    assert straight == through
    assert one.requests[0].metadata == other.requests[0].metadata == {"run": "1"}


async def test_finish_reasons_both_ways(door):
    """OpenAI's finish reasons do not change in LiteLLM either."""
    from litellm.litellm_core_utils.core_helpers import _FINISH_REASON_MAP

    for reason in providers._FINISH_REASONS:
        assert _FINISH_REASON_MAP.get(reason, reason) == reason


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_the_corpus_both_ways(case, door):
    """If one of our own models sends the deltas of a stream of the corpus, the result is the same both ways."""
    script = [entry["chunks"] for entry in case.script if isinstance(entry, dict) and entry.get("chunks")]
    turns = [
        deltas(chunks) for chunks in script if not any(isinstance(c, str) or "choices" in c for c in chunks)
    ]
    if not turns:
        pytest.skip("no plain deltas")
    straight = await run_two_turns(ScriptedModel(*turns, "Done.", "Next."))
    door()
    through = await run_two_turns(ScriptedModel(*turns, "Done.", "Next."))
    assert straight == through or (case.name in TAKEN and "validation error" in through)


def test_a_run_of_ours_imports_no_litellm():
    """Scripted, demo and replayed runs do not import LiteLLM, even with output, approvals, a recording and retries."""
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_LITELLM], capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["done", "done", "done", "runtime_error", "False"]


WITHOUT_LITELLM = """
import sys, tempfile, pydantic
from toolloop_jupyter import Harness, agent, agent_session
from toolloop_jupyter.core.loop.config import ToolLoopOptions
from toolloop_jupyter.teaching import Recorder, Replay, ScriptedModel, call, error

class Answer(pydantic.BaseModel):
    value: int

def f(a: int) -> int:
    "F."
    return a

path = tempfile.mkdtemp() + "/lesson.jsonl"
options = ToolLoopOptions(completion_kwargs={"num_retries": 1}, max_cost=1.0)
model = ScriptedModel(call("f", a=1), error("slow", 429, {"retry-after": "0"}), Answer(value=1))
run = dict(tools=[f], options=options, output=Answer, permissions={"*": "full"}, max_turns=3, timeout=60)
print(agent(Harness.TOOL_LOOP, "Go.", model=model, observer=Recorder(path), **run).stop_reason)
run["options"] = ToolLoopOptions()
print(agent(Harness.TOOL_LOOP, "Go.", model=Replay(path, loose=True, speed=0), **run).stop_reason)
print(agent(Harness.TOOL_LOOP, "Call f with 3.", model="toolloop/demo", tools=[f]).stop_reason)
with agent_session(Harness.TOOL_LOOP, model=ScriptedModel(error("no", 500))) as session:
    print(session.run("Go.").stop_reason)
print("litellm" in sys.modules)
"""
