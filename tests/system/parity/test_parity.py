"""LiteLLM's Tool Loop and ours, run with the same scripted server."""

from __future__ import annotations

from importlib.metadata import version

import pytest

pytest.importorskip("litellm.harness", reason="this LiteLLM has no agent API to compare with")

from system.parity.scenarios import SCENARIOS
from system.parity.sides import MODEL, OURS, OURS_STREAMED, THEIRS, differences, observe, set_prices


@pytest.fixture(autouse=True, scope="module")
def prices():
    set_prices()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
async def test_same_or_better(scenario, tmp_path):
    """Requests, events, results and history are the same, except for the differences that the scenario names."""
    theirs, ours, streamed = (tmp_path / name for name in ("theirs", "ours", "streamed"))
    sides = [(THEIRS, theirs), (OURS, ours)] + ([(OURS_STREAMED, streamed)] if scenario.streamed else [])
    seen = []
    for side, folder in sides:
        folder.mkdir()
        seen.append(await observe(side, scenario, folder))
    used = set()
    for (side, _), observation in zip(sides[1:], seen[1:], strict=True):
        different = differences(seen[0], observation)
        fitting = {
            path: [number for number, expected in enumerate(scenario.expected) if expected.fits(path, values)]
            for path, values in different.items()
        }
        unexpected = {path: different[path] for path, numbers in fitting.items() if not numbers}
        assert not unexpected, f"{side.name}: {unexpected}"
        used.update(number for numbers in fitting.values() for number in numbers)
    unseen = [expected for number, expected in enumerate(scenario.expected) if number not in used]
    rows = sorted({expected.difference for expected in unseen})
    assert not unseen, (
        f"with LiteLLM {version('litellm')} these rows of docs/differences.md hold no more: {rows} ({unseen})"
    )


def test_scenarios_are_told_apart_by_name():
    """No two scenarios have the same name."""
    names = [scenario.name for scenario in SCENARIOS]
    assert len(names) == len(set(names))


def test_the_comparison_sees_differences():
    """The comparison finds a changed value, an additional item, and an inserted item, each at its place."""
    assert differences({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}) == {"a.1.b": (2, 3)}
    assert differences([1, 2], [1, 2, 3]) == {"2": ("(nothing)", 3)}
    assert differences([1, 3], [1, 2, 3]) == {"1": ("(nothing)", 2)}
    assert differences({"a": None}, {}) == {"a": (None, "(nothing)")}


async def test_the_runs_are_what_they_seem(tmp_path):
    """What was seen of a run contains its requests, events, result and history."""
    scenario = next(s for s in SCENARIOS if s.name == "text beside two calls in one message")
    seen = await observe(THEIRS, scenario, tmp_path)
    assert [event["event"] for event in seen["turns"][0]["events"]] == [
        "Text", "ToolCall", "ToolResult", "ToolCall", "ToolResult", "Text"
    ]  # fmt: skip
    assert seen["requests"][0]["body"]["model"] == MODEL.removeprefix("openai/")
    assert seen["requests"][0]["headers"] == {"authorization": "Bearer sk-test"}
    assert seen["turns"][0]["result"]["cost"] > 0
    assert [message["role"] for message in seen["history"]] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
    ]
