"""A run as JSON: the value of `output=` becomes data."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
from pathlib import Path
from typing import Any

import pytest

from toolloop_jupyter import Harness, agent
from toolloop_jupyter.notebook.transcript.steps import write_run_as_json
from toolloop_jupyter.teaching.scripted import ScriptedModel


class Color(enum.Enum):
    RED = "r"


@dataclasses.dataclass
class Visit:
    when: dt.date
    color: Color
    rooms: set[int]
    file: Path


VISIT = {"when": "2024-01-02", "color": "r", "rooms": [1], "file": "a"}
OUTPUTS = {
    "dates as keys": (dict[dt.date, int], {"2024-01-02": 1}),
    "enums as keys": (dict[Color, int], {"r": 1}),
    "a dataclass": (Visit, VISIT),
    "dataclasses in a list": (list[Visit], [VISIT]),
    "a set": (set[str], ["a"]),
    "a date": (dt.date, "2024-01-02"),
}


@pytest.mark.parametrize(("output", "answer"), OUTPUTS.values(), ids=OUTPUTS)
def test_an_output_is_exported_as_data(output: Any, answer: Any) -> None:
    """Keys and parts of any type become JSON in the form that the model wrote, not in the form that Python prints."""
    result = agent(Harness.TOOL_LOOP, "Go.", model=ScriptedModel(json.dumps(answer)), output=output)
    assert json.loads(write_run_as_json(result))["output"] == answer


def test_what_is_no_data_is_exported_as_it_prints() -> None:
    """A live object in an output is exported as its `repr`."""
    result = agent(Harness.TOOL_LOOP, "Go.", model=ScriptedModel("1"), output=int)
    told = json.loads(write_run_as_json(dataclasses.replace(result, output={"a": 1 + 2j, ("b", 1): object})))[
        "output"
    ]
    assert str(1 + 2j).strip("()") in str(told["a"])


def test_what_hides_is_an_escape():
    """In the JSON file, no character is hidden or changes the order of others. A program that reads the file gets the
    original text.
    """
    made = agent(Harness.TOOL_LOOP, "Go\u202e", model=ScriptedModel("a\u202eb\u200b"))
    text = write_run_as_json(made)
    assert not set("\u202e\u200b") & set(text)
    assert json.loads(text)["prompt"] == "Go\u202e"
    assert json.loads(text)["text"] == "a\u202eb\u200b"
