"""Checks of a run for exercises: plain AssertionErrors with messages that a student understands."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .events import ToolCall

ANY: Any = object()
"""Stands for any value: `assert_called("search", query=ANY)` wants the argument to be there."""


def assert_called(
    calls: Sequence[ToolCall], name: str, times: int | None, wanted: Mapping[str, Any]
) -> ToolCall:
    """The first call of `name` whose arguments include `wanted`. Raises AssertionError when there is none.

    With `times`, so many such calls there must be, no more and no fewer.
    """
    named = [call for call in calls if call.name == name]
    if not named:
        raise AssertionError(f"the model never called {name}. {_what_it_did(calls)}")
    fitting = [call for call in named if _fits(call, wanted)]
    if not fitting:
        expected = ", ".join(f"{key}={_short(value)}" for key, value in wanted.items())
        raise AssertionError(
            f"{name} was called, but never with {expected}. It was called as: {_shown(named)}"
        )
    if times is not None and len(fitting) != times:
        raise AssertionError(
            f"{name} was called {_times(len(fitting))}, expected {_times(times)}: {_shown(fitting)}"
        )
    return fitting[0]


def assert_not_called(calls: Sequence[ToolCall], name: str) -> None:
    """Raise AssertionError when `name` was called."""
    named = [call for call in calls if call.name == name]
    if named:
        raise AssertionError(f"{name} should not have been called, but it was: {_shown(named)}")


def assert_order(calls: Sequence[ToolCall], names: Sequence[str]) -> None:
    """Raise AssertionError unless these tools were called in this order (others may come between)."""
    left = list(names)
    for call in calls:
        if left and call.name == left[0]:
            left.pop(0)
    if left:
        order = ", ".join(call.name for call in calls) or "nothing"
        raise AssertionError(
            f"expected {' → '.join(names)}; {left[0]} is missing at its place. The order was: {order}"
        )


def _fits(call: ToolCall, wanted: Mapping[str, Any]) -> bool:
    return all(
        key in call.input and (value is ANY or call.input[key] == value) for key, value in wanted.items()
    )


def _what_it_did(calls: Sequence[ToolCall]) -> str:
    return f"It called: {', '.join(call.name for call in calls)}." if calls else "It called no tool at all."


def _shown(calls: Sequence[ToolCall]) -> str:
    return "; ".join(
        f"{call.name}({', '.join(f'{key}={_short(value)}' for key, value in call.input.items())})"
        for call in calls[:5]
    )


def _short(value: object) -> str:
    if value is ANY:
        return "anything"
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= 60 else text[:57] + "…"  # noqa: PLR2004 - a line of a message


def _times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")
