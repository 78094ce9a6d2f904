"""A value that no run can have is refused where it is passed in. One line names each such value, and what is allowed."""

from __future__ import annotations

import re
from decimal import Decimal

import numpy as np
import pytest

from toolloop_jupyter import Harness, HarnessError, ToolLoopOptions, aagent
from toolloop_jupyter.core.events import CHECKS
from toolloop_jupyter.core.session import build_config

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
            {"completion_kwargs": {1: 2}},
            TypeError,
            "a name in completion_kwargs must be plain text, got 1 of type int",
        ),
        (
            {"fallback": ["a/b", 1]},
            TypeError,
            "fallback must be a list of models, got 1 in it; write fallback=['PROVIDER/MODEL']",
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
    """When a ToolLoopOptions is made, its error lists all wrong fields together."""
    with pytest.raises(error, match=f"^{re.escape(line)}$") as caught:
        ToolLoopOptions(**fields)
    assert isinstance(caught.value, HarnessError)


def test_the_options_of_litellm_are_checked_too():
    """An object of LiteLLM's own class is accepted. A wrong value in it is refused with the same line."""

    class ToolLoopOptions:
        completion_kwargs = 5

    with pytest.raises(TypeError, match="completion_kwargs must be a mapping of names to values, got int 5"):
        aagent(Harness.TOOL_LOOP, "Go", model="toolloop/demo", options=ToolLoopOptions())


def test_every_field_has_its_check():
    """Each field of ToolLoopOptions has a check: without one, no object could be made."""
    assert set(vars(ToolLoopOptions())) <= set(CHECKS)


def test_numbers_of_other_classes():
    """A number may come from NumPy, pandas, or a Decimal. The configuration has it as int or float."""
    options = ToolLoopOptions(
        {"num_retries": np.int64(2)}, max_model_calls=np.int32(5), max_cost=Decimal("0.5")
    )
    keywords = {"max_turns": np.int64(3), "timeout": np.float32(1.5), "tools": None, "options": options}
    config = build_config(model="toolloop/demo", **keywords)
    values = [
        config.limits.max_turns,
        config.limits.timeout,
        config.options.max_model_calls,
        config.options.max_cost,
    ]
    assert values == [3, 1.5, 5, 0.5]
    assert {type(number) for number in values} == {int, float}


@pytest.mark.parametrize("number", [np.True_, np.float64(2.5), np.nan, "3"])
def test_what_is_no_whole_number(number):
    """A bool, a fraction and a text are still not whole numbers."""
    with pytest.raises(TypeError, match="max_turns must be a whole number or None, got"):
        build_config(model="toolloop/demo", max_turns=number)
