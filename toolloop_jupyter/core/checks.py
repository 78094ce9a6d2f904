"""Checks of a run for exercises: plain AssertionErrors with messages that a student understands."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from .hiding import hide

if TYPE_CHECKING:
    from .events import ToolCall

Tool: TypeAlias = "str | Callable[..., Any]"
"""A tool by its name or its function."""
ANY: Any = object()
"""Stands for any value: `assert_called("search", query=ANY)` wants the argument to be there."""


def assert_called(
    calls: Sequence[ToolCall], tool: Tool, times: int | None, wanted: Mapping[str, Any]
) -> ToolCall | None:
    """The first call of `tool` whose arguments include `wanted`. Raises AssertionError when there is none.

    With `times`, so many such calls there must be, no more and no fewer; None for no call where none must be.
    """
    name = name_of(tool)
    named = [call for call in calls if call.name == name]
    fitting = [call for call in named if _fits(call, wanted)]
    if times is not None and len(fitting) != times and (fitting or not times):
        raise _fault(
            f"{name} was called {_times(len(fitting))}{_with(wanted)}, expected {_times(times)}: {_shown(fitting)}"
        )
    if fitting or times == 0:
        return fitting[0] if fitting else None
    often = f" (expected {_times(times)})" if times is not None else ""
    if not named:
        raise _fault(f"the model never called {name}{often}. {_what_it_did(calls)}")
    raise _fault(f"{name} was called, but never{_with(wanted)}{often}. It was called as: {_shown(named)}")


def assert_not_called(calls: Sequence[ToolCall], tool: Tool, unwanted: Mapping[str, Any]) -> None:
    """Raise AssertionError when `tool` was called with these arguments, or at all when there are none."""
    name = name_of(tool)
    found = [call for call in calls if call.name == name and _fits(call, unwanted)]
    if found:
        raise _fault(f"{name} should not have been called{_with(unwanted)}, but it was: {_shown(found)}")


def assert_order(calls: Sequence[ToolCall], tools: Sequence[Tool]) -> None:
    """Raise AssertionError unless these tools were called in this order (others may come between)."""
    names = [name_of(tool) for tool in tools]
    left = list(names)
    for call in calls:
        if left and call.name == left[0]:
            left.pop(0)
    if left:
        order = ", ".join(call.name for call in calls) or "nothing"
        raise _fault(
            f"expected {' → '.join(names)}; {left[0]} is missing at its place. The order was: {order}"
        )


def _fault(message: str) -> AssertionError:
    return AssertionError(hide(message))


def name_of(tool: Tool) -> str:
    """The name that the model calls a tool by. Raises TypeError for what is neither a name nor a function."""
    if isinstance(tool, str):
        return tool
    mark = getattr(tool, "__toolloop_tool__", None)
    name = getattr(mark, "name", None) or getattr(tool, "__name__", None)
    if not isinstance(name, str):
        raise TypeError(
            hide(f"name the tool, or give its function: assert_called('search_code'), not {tool!r}")
        )
    return name


def _fits(call: ToolCall, wanted: Mapping[str, Any]) -> bool:
    return all(
        key in call.input and (value is ANY or call.input[key] == value) for key, value in wanted.items()
    )


def _with(wanted: Mapping[str, Any]) -> str:
    return " with " + ", ".join(f"{key}={_short(value)}" for key, value in wanted.items()) if wanted else ""


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
    return text if len(text) <= 60 else text[:57] + "…"


def _times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")
