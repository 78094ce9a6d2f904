"""The Result of a turn, the ways to show a Result to people, and checks of a Result for exercises.

The names, fields and meanings are those of `litellm.harness` 1.110 (see `events`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from ..execution import shorten_repr
from ..text import hide, hide_in_repr, make_wire_name, shorten
from .events import (
    Approval,
    Attachment,
    Decision,
    FileChange,
    Reasoning,
    Retry,
    Span,
    StopReason,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)

if TYPE_CHECKING:
    from collections.abc import Callable


class Presenter:
    """Shows a Result or Rows to people. This class writes plain text; a notebook's subclass shows transcripts."""

    def display(self, value: object) -> None:
        """Show `value`, a Result or Rows, as the output of a cell."""
        print(repr(value))  # noqa: T201 - IPython would print the `repr`, too

    def bundle(self, value: object) -> Mapping[str, str]:
        """Return the MIME bundle of `value`, a Result or Rows."""
        return {"text/plain": repr(value)}

    def markdown(self, result: Result) -> str:
        """Return `result` as Markdown that is safe to show anywhere."""
        return hide(result.text)

    def diagram(self, result: Result) -> object:
        """Return a picture of the run's time line. Only a notebook's presenter can do this; this class raises RuntimeError."""
        where = "run agent() or %%toolloop of toolloop_jupyter there"
        raise RuntimeError(f"diagram() needs a notebook: {where}")


@dataclass(frozen=True)
class Result:
    """The result of a turn. `text` is the final or partial answer; without an answer, it is the error."""

    text: str
    output: Any
    """The answer as a value of the type that `output=` names; None if there is no valid answer."""
    files: list[FileChange]
    events: list[Event]
    usage: Usage
    cost: float | None
    """US dollars; None if the cost is not known (0.0 never means "unknown")."""
    stop_reason: StopReason
    session_id: str
    # ours
    error: str | None = None
    """One line that says what failed and what to set; None if nothing failed."""
    model: str = ""
    prompt: str = ""
    spans: tuple[Span, ...] = field(default=(), compare=False, repr=False)
    output_attempts: int = 0
    """How many answers were validated against `output=`, including the valid answer; 0 if `output=` was not given."""

    presenter: Presenter = field(default=Presenter(), compare=False, repr=False)
    """Shows this Result: in a notebook as a transcript, else as text."""

    @property
    def calls(self) -> list[ToolCall]:
        """The tool calls, in order."""
        return [event for event in self.events if isinstance(event, ToolCall)]

    @property
    def tool_results(self) -> list[ToolResult]:
        """The tool results, one for each of `calls`. The `.value` of each is the object that the function returned."""
        return [event for event in self.events if isinstance(event, ToolResult)]

    @property
    def approvals(self) -> list[Approval]:
        return [event for event in self.events if isinstance(event, Approval)]

    def assert_called(
        self,
        tool: Tool,
        arguments: Mapping[str, object] | None = None,
        /,
        *,
        times: int | None = None,
        **more: object,
    ) -> None:
        """Check that the model called `tool`. `tool` is the name of a tool, or its function.

        The expected arguments are given by name, or as the dict `arguments`. A call may have other arguments, too. If `times`
        is given, exactly this number of calls must match. A call that failed counts, too (see `tool_results[i].is_error`).
        Raises AssertionError, whose message lists the calls that match; if there are none, the calls of `tool`; if there are
        none of these, all calls. Raises TypeError if `arguments` is not a dict.
        """
        __tracebackhide__ = True  # pytest then shows the line of the test, and no line of this file
        if arguments is not None and not isinstance(arguments, Mapping):
            raise TypeError(f"write assert_called(tool, name=value, times=count), not {_show(arguments)}")
        wanted, name = {**(arguments or {}), **more}, find_name(tool)
        named = [call for call in self.calls if call.name == name]
        matching = [call for call in named if _fits(call, wanted)]
        if len(matching) == times or (matching and times is None):
            return
        expected = {None: "a call", 0: "no call", 1: "1 call"}.get(times, f"{times} calls")
        what = f"{expected} of {name}{' with ' if wanted else ''}{_write_arguments(wanted)}"
        raise _CheckFailed(f"expected {what}; {_list_calls(matching or named or self.calls)}")

    def assert_not_called(
        self, tool: Tool, arguments: Mapping[str, object] | None = None, /, **more: object
    ) -> None:
        """Check that the model did not call `tool`. If arguments are given, only calls with these arguments are forbidden.

        Raises AssertionError, whose message lists the forbidden calls.
        """
        __tracebackhide__ = True
        self.assert_called(tool, {**(arguments or {}), **more}, times=0)

    def assert_order(self, *tools: Tool) -> None:
        """Check that these tools were called in this order. There may be other calls between these calls."""
        __tracebackhide__ = True
        names = [find_name(tool) for tool in tools]
        left = list(names)
        for call in self.calls:
            if left and call.name == left[0]:
                left.pop(0)
        if left:
            called = " → ".join(call.name for call in self.calls) or "no tool"
            raise _CheckFailed(f"expected the order {' → '.join(names)}; the model called: {called}")

    def diagram(self) -> object:
        """Return a picture of the run, for a notebook: when each call began, and how long it took."""
        return self.presenter.diagram(self)

    def _repr_model_(self) -> str:
        """Return the answer. If a Result is a part of a prompt, or is the result of a tool, the model gets this text."""
        return self.text

    def _ipython_display_(self) -> None:
        self.presenter.display(self)

    def _repr_html_(self) -> str:
        """Return the run's transcript as safe, self-contained HTML."""
        return self.presenter.bundle(self).get("text/html", "")

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Mapping[str, str]:
        """Return the run's transcript as "text/html" and "text/plain"."""
        return self.presenter.bundle(self)

    def to_markdown(self) -> str:
        """Return the run's transcript as Markdown that is safe to show anywhere."""
        return self.presenter.markdown(self)


@dataclass(frozen=True)
class Done:
    """The last event of every turn."""

    result: Result

    @property
    def usage(self) -> Usage:
        return self.result.usage

    @property
    def cost(self) -> float | None:
        return self.result.cost

    @property
    def stop_reason(self) -> StopReason:
        return self.result.stop_reason


for _made in (Text, Reasoning, ToolCall, Decision, Approval, ToolResult, FileChange, Retry, Span, Result):
    hide_in_repr(_made)

_Part: TypeAlias = Text | Reasoning | Attachment
Event: TypeAlias = _Part | ToolCall | Approval | ToolResult | FileChange | Retry | Done


# --- Checks of a run for exercises: plain AssertionErrors with messages that a student understands. -----------

Tool: TypeAlias = "str | Callable[..., object]"
"""The name of a tool, or its function."""
ANY: Any = object()
"""Matches any value: `assert_called("search", query=ANY)` only checks that the call has the argument `query`."""


class _CheckFailed(AssertionError):
    """A check has failed: the exercise is not done yet. A notebook shows one line; a traceback would not help a student."""

    def __init__(self, message: str) -> None:
        super().__init__(hide(message))

    def _render_traceback_(self) -> list[str]:
        return [f"AssertionError: {self}"]


def find_name(tool: Tool) -> str:
    """Return the name of `tool`, as in `ToolCall.name`. Raises TypeError if `tool` is neither a name nor a function."""
    if isinstance(tool, str):
        return tool
    mark = getattr(tool, "__toolloop_tool__", None)
    name = getattr(mark, "name", None) or getattr(tool, "__name__", None)
    if not isinstance(name, str):
        raise TypeError(
            f"name the tool, or give its function: assert_called('search_code'), not {_show(tool)}"
        )
    return name


def _show(given: object) -> str:
    return hide(shorten_repr(given, 500))


def _fits(call: ToolCall, wanted: Mapping[str, object]) -> bool:
    # The model sees the argument `größe` as `grosse`, and may send either of the two names.
    given = {make_wire_name(key): value for key, value in call.input.items()}
    expected = {make_wire_name(key): value for key, value in wanted.items()}
    return all(key in given and (value is ANY or given[key] == value) for key, value in expected.items())


def _list_calls(calls: Sequence[ToolCall]) -> str:
    listed = "; ".join(f"{call.name}({_write_arguments(call.input)})" for call in calls[:5])
    more = f"; and {len(calls) - 5} more" if len(calls) > 5 else ""
    return f"the model called: {listed or 'no tool'}{more}"


def _write_arguments(arguments: Mapping[str, object]) -> str:
    return ", ".join(f"{key}={_shorten(value)}" for key, value in arguments.items())


def _shorten(value: object) -> str:
    if value is ANY:
        return "anything"
    return shorten(json.dumps(value, ensure_ascii=False, default=repr), 60)
