"""Values that no run can have are refused where they come in, in one line that names each, and what is allowed."""

from __future__ import annotations

import re

import pytest

from toolloop_jupyter import Harness, HarnessError, ToolLoopOptions, aagent
from toolloop_jupyter.core.events import CHECKS

CHOICE = r'on_limit must be "stop" or "answer", got '


@pytest.mark.parametrize(
    ("fields", "error", "line"),
    [
        ({"on_limit": "anwser"}, ValueError, CHOICE + "'anwser'"),
        ({"on_limit": None}, ValueError, CHOICE + "None"),
        ({"images": "on"}, ValueError, 'images must be "auto", "always" or "never", got \'on\''),
        ({"output_retries": -5}, ValueError, "output_retries must be >= 0, got -5"),
        ({"output_retries": None}, TypeError, "output_retries must be a whole number, got NoneType None"),
        ({"max_model_calls": 0}, ValueError, "max_model_calls must be >= 1, got 0"),
        ({"max_model_calls": True}, TypeError, "max_model_calls must be a whole number, got bool True"),
        ({"max_cost": 0}, ValueError, "max_cost must be > 0 US dollars, got 0"),
        ({"max_cost": float("nan")}, ValueError, "max_cost must be > 0 US dollars, got nan"),
        (
            {"completion_kwargs": ["a"]},
            TypeError,
            "completion_kwargs must be a mapping of names to values, got list ['a']",
        ),
        (
            {"on_limit": "anwser", "output_retries": -5, "max_model_calls": "x"},
            ValueError,
            "output_retries must be >= 0, got -5; max_model_calls must be a whole number, got str 'x'; "
            + CHOICE
            + "'anwser'",
        ),
    ],
)
def test_options_that_no_run_can_have(fields, error, line):
    """ToolLoopOptions says what is wrong with its fields, all at once, when it is made."""
    with pytest.raises(error, match=f"^{re.escape(line)}$") as caught:
        ToolLoopOptions(**fields)
    assert isinstance(caught.value, HarnessError)


def test_the_options_of_litellm_are_checked_too():
    """An object of LiteLLM's own class is taken, and refused with the same line."""

    class ToolLoopOptions:
        completion_kwargs = 5

    with pytest.raises(TypeError, match="completion_kwargs must be a mapping of names to values, got int 5"):
        aagent(Harness.TOOL_LOOP, "Go", model="toolloop/demo", options=ToolLoopOptions())


def test_every_field_has_its_check():
    """A new field of ToolLoopOptions cannot be forgotten: making one would fail."""
    assert set(vars(ToolLoopOptions())) <= set(CHECKS)
