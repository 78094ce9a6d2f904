"""A recording of version 1, as people have it in their repositories. Each release must replay it, and must write the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pydantic

from toolloop_jupyter.api import aagent_session
from toolloop_jupyter.core.events.result import Result
from toolloop_jupyter.core.loop.config import ToolLoopOptions
from toolloop_jupyter.core.session.keywords import Harness
from toolloop_jupyter.teaching.recording import Recorder, Replay
from toolloop_jupyter.teaching.scripted import ScriptedModel, call, deltas, error, reasoning, text

GOLDEN = Path(__file__).parent / "golden" / "lesson-1.jsonl"


class Review(pydantic.BaseModel):
    """A verdict with a grade."""

    verdict: str
    grade: int


def look_up(word: str, limit: int = 3) -> list[str]:
    """Find lines that contain a word.

    Args:
        word: what to look for
        limit: how many lines at most
    """
    return [f"{word} in line {n} – grün" for n in range(1, limit + 1)]


def fail(reason: str) -> str:
    """Fail."""
    raise ValueError(reason)


def script() -> ScriptedModel:
    """Return a script with everything that a recording can contain: reasoning, signatures, calls, odd arguments, structured
    answers, a failure.
    """
    return ScriptedModel(
        [reasoning("I have to look.", signature="SIG"), text("Let me look: "), call("look_up", word="x", limit=2)],
        [call("fail", reason="no"), call("look_up", '{"word": ')],
        deltas([{"content": '{"verdict": "gut'}, {"content": ' ✓", "grade": 1}'}, {"finish_reason": "stop"}]),
        {"verdict": "again"},
        Review(verdict="again", grade=2),
        error("overloaded", 503),
        name="golden",
    )  # fmt: skip


async def lesson(model: Any, **options: Any) -> list[Result]:
    """Run three turns of a session: tools and their errors, an answer at the second try, a provider that fails."""
    session = aagent_session(
        Harness.TOOL_LOOP,
        model=model,
        tools=[look_up, fail],
        output=Review,
        instructions="Be brief.",
        options=ToolLoopOptions(completion_kwargs={"temperature": 0}),
        **options,
    )
    return [await session.arun(prompt) for prompt in ("Look up x.", "Again, please.", "Once more.")]


def without_times(path: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [{key: value for key, value in line.items() if key != "at"} for line in lines]


async def test_it_is_still_replayed() -> None:
    """The stored file gives the lesson the same texts, calls, results, outputs, tokens and failure."""
    replay = Replay(GOLDEN, speed=0)
    first, second, third = await lesson(replay)
    assert first.output == Review(verdict="gut ✓", grade=1)
    assert [(c.name, dict(c.input)) for c in first.calls] == [
        ("look_up", {"word": "x", "limit": 2}), ("fail", {"reason": "no"}), ("look_up", {}),
    ]  # fmt: skip
    assert [r.is_error for r in first.tool_results] == [False, True, True]
    assert second.output == Review(verdict="again", grade=2)
    assert second.output_attempts == 2
    assert (third.stop_reason, third.error) == ("runtime_error", "ServiceUnavailableError: overloaded")
    assert [run.usage.calls for run in (first, second, third)] == [3, 2, 0]
    assert first.model == "toolloop/golden"
    assert replay.differences == []


async def test_it_is_still_written(tmp_path: Path) -> None:
    """If the lesson is recorded now, the lines are those of the stored file, except for the seconds."""
    path = tmp_path / GOLDEN.name
    await lesson(script(), observer=Recorder(path))
    assert without_times(path) == without_times(GOLDEN)
    assert path.read_text("utf-8").splitlines()[0] == '{"toolloop-recording": 1}'


def test_a_later_release_may_add_lines_and_keys(tmp_path: Path) -> None:
    """A file with keys that this release does not know is read, as long as its version is 1."""
    lines = [json.loads(line) for line in GOLDEN.read_text("utf-8").splitlines()]
    for line in lines[1:]:
        line["later"] = {"more": [1]}
    path = tmp_path / "later.jsonl"
    text = "\n".join(json.dumps(line) for line in [lines[0], {"note": "new kind of line"}, *lines[1:]])
    path.write_text(text, "utf-8")
    assert Replay(path).calls == Replay(GOLDEN).calls
