"""Which cell gets what a run shows that began in the callback of a widget, and how an interrupted run ends its cell.

What is shown in answer to a widget's own message (a `comm_msg`), front-ends show nowhere, except in an Output widget
that has been entered. So the cell that ran last gets it: JupyterLab, Notebook and VS Code take in what comes after a
cell's end.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from .kernel_loop import let_a_second_one_pass
from .kernel_output import shell

_last: list[Mapping[str, Any]] = []
"""The request of the cell that ran last, once one was seen."""
_watching: list[Callable[..., None]] = []


def watch(kernel: Any, events: Any) -> None:
    """Take note of the present cell and of each that runs from now on. Doing it again changes nothing."""
    if _watching:
        return

    def note(*_: object) -> None:
        parent = kernel.get_parent("shell")
        if _header(parent).get("msg_type") == "execute_request":
            _last[:] = [parent]

    note()
    _watching.append(note)
    events.register("pre_run_cell", note)


def unwatch(events: Any) -> None:
    """Undo `watch`."""
    if _watching:
        events.unregister("pre_run_cell", _watching.pop())
        _last.clear()


def parent_of_output(kernel: Any) -> Mapping[str, Any]:
    """The message in answer to which something is to be shown that is shown now."""
    parent: Mapping[str, Any] = kernel.get_parent("shell")
    header = _header(parent)
    if _is_of_a_widget(header) and _last and not taken_by_a_widget(str(header.get("msg_id"))):
        return _last[0]
    return parent


def in_callback(kernel: Any) -> bool:
    """Whether a widget's message is being handled."""
    return _is_of_a_widget(_header(kernel.get_parent("shell")))


def _header(message: Mapping[str, Any]) -> Mapping[str, Any]:
    return message.get("header") or {}


def _is_of_a_widget(header: Mapping[str, Any]) -> bool:
    return str(header.get("msg_type", "")).startswith("comm_")


def taken_by_a_widget(msg_id: str) -> bool:
    """Whether an Output widget takes what is shown in answer to the message of this id."""
    if sys.modules.get("ipywidgets") is None:
        return False
    from .widgets import output_for

    return output_for(msg_id)


async def stopped(error: asyncio.CancelledError) -> None:
    """Prepare what an interrupted run of the API is about to raise in its cell."""
    ends_its_cell(error)
    await let_a_second_one_pass(time.monotonic())


def ends_its_cell(error: BaseException) -> None:
    """Let a cell that ends with this `error`, by an interrupt, say so in one line and be no failure.

    A front-end drops all cells that are queued behind a failed one; ■ ends a run, as it does in a `%%toolloop` cell.
    IPython (7 to 9) asks an exception for its `_render_traceback_`, and tells `post_run_cell` what came of the cell
    before ipykernel (6.17 to 7.4) answers the front-end.
    """
    if shell() is None:
        return
    events, name = shell().events, type(error).__name__
    if not hasattr(error, "_render_traceback_"):
        error._render_traceback_ = lambda: [f"{name}: {error}"]  # type: ignore[attr-defined]

    def ended(result: Any) -> None:
        events.unregister("post_run_cell", ended)
        if getattr(result, "error_in_exec", None) is error:
            result.error_in_exec = None

    events.register("post_run_cell", ended)
