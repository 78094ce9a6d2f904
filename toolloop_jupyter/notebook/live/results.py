"""How a Result looks when a notebook shows it: its transcript, but not a second time right under its own run."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .. import kernel

if TYPE_CHECKING:
    from ...core.events import Result


_last: list[Result] = []
"""The Result of the last run, of a `%%toolloop` cell or of the API, once there is one. Only where there is a shell."""
_just_shown: list[tuple[weakref.ref[Result], str]] = []
"""The Result whose run has just been shown, and in which execution of a cell: as that cell's value it is not shown again."""


def keep(result: Result) -> None:
    """Take note of the last run, for `%toolloop show` and `export`; the one before it is let go."""
    _last[:] = [result]


def last() -> Result | None:
    """The Result of the last run, however it ended."""
    return _last[0] if _last else None


def mark_shown(result: Result) -> None:
    """Say that the run of `result` was shown while it went on."""
    _just_shown[:] = [(weakref.ref(result), kernel.Cell.here().execution)]


def display(result: Result) -> None:
    """Show the transcript of `result` in the current cell, unless that is where its run was just shown."""
    here = kernel.Cell.here()
    shown = any(one() is result and where == here.execution for one, where in _just_shown)
    _just_shown.clear()
    if not shown:
        here.display(bundle(result))
    elif not kernel.in_kernel():
        from ..html import counted

        print(f"<Result: {result.stop_reason}, {counted(len(result.calls), 'tool call')}>")  # noqa: T201 - after "Out[n]:"


def bundle(result: Result) -> Mapping[str, str]:
    """The transcript as a MIME bundle with "text/html" and "text/plain"."""
    from ..transcript import mimebundle, render

    return mimebundle(render(result))


def markdown(result: Result) -> str:
    """The transcript as safe Markdown."""
    from ..transcript import to_markdown

    return to_markdown(result)


class Diagram:
    """A picture that shows itself in a notebook, and is text elsewhere."""

    def __init__(self, bundle: Mapping[str, str]) -> None:
        self._bundle = bundle

    def _repr_mimebundle_(self, **_: object) -> Mapping[str, str]:
        return self._bundle

    def __repr__(self) -> str:
        return self._bundle["text/plain"]


def diagram(result: Result) -> Diagram:
    """When each model call, approval and tool call of the run took place."""
    from ..transcript import mimebundle, timeline

    return Diagram(mimebundle([timeline(result)]))
