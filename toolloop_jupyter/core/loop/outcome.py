"""Make a ToolResult from a function's outcome: text and pictures for the model, value and traceback for the person."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from ..events import PrintKeeper, ToolFailed, ToolResult
from ..execution import Outcome, ToolTimeout, in_thread
from ..results import LIMIT, cut, cut_traceback, describe, find_pictures, make_addresses
from ..text import join_surrogates, settle_lines
from ..tools import BoundCall
from .turn import Call

EDITED = "The person edited"
EDITS_TOLD = 4_000
"""If a person has edited the arguments, the model gets at most this many characters of the new arguments."""


async def make_result(
    call: Call,
    bound: BoundCall,
    outcome: Outcome,
    keeper: PrintKeeper | None,
    *,
    see: Callable[[], bool],
    name_code: Callable[[str], str],
) -> ToolResult:
    """Make the result of a call from the `outcome` of its function.

    `keeper` has the text that the function printed. `see()` returns True if the model takes pictures; it is called only if
    the result has pictures. `name_code` replaces the kernel's file names in a traceback by the names of cells.
    """
    seconds, error = call.seconds, outcome.error
    settings = bound.tool.settings
    limit = settings.max_result
    told = str(error) if isinstance(error, ToolFailed) else error
    described = describe(outcome.value, limit, name_code) if error is None else describe(told, limit)
    text = described.text if error is None else _tell_error(call, bound, error, described.text)
    is_edited = call.decision is not None and call.decision.arguments is not None
    edits = _tell_edits(bound) if is_edited else ""
    printed, pictures = "", ()
    if keeper is not None:
        printed = join_surrogates(settle_lines(str(keeper)).rstrip("\n"))
        printed = cut(printed, settings.max_result or LIMIT)
    if error is None:
        before, behind = f"{edits}\n" if edits else "", ""
        before += f"[printed]\n{printed}\n[returned]\n" if printed else ""
        drawable = [*find_pictures(outcome.value), *(keeper.pictures if keeper is not None else ())]
        if drawable and see():
            pictures = await in_thread(lambda: make_addresses(drawable))
    else:
        before = ""
        behind = f"\n[printed before it]\n{printed}" if printed else ""
        behind += f"\n{edits}" if edits else ""
    output = before + text + behind
    return ToolResult(
        call.asked.id,
        output,
        is_error=error is not None,
        value=outcome.value if error is None else error,
        seconds=seconds,
        traceback="" if error is None or isinstance(error, ToolTimeout) else name_code(cut_traceback(error)),
        full_length=len(output) + described.full_length - len(described.text),
        ran=True,
        pictures=pictures,
        decision=call.decision,
        printed=printed,
        returned=text if before or behind else None,
    )


def _tell_edits(bound: BoundCall) -> str:
    """Return a sentence for the model: a person has edited the arguments, and these are the new ones."""
    now = json.dumps(bound.json, ensure_ascii=False, default=repr)
    return f"{EDITED} the arguments to {now if len(now) <= EDITS_TOLD else cut(now, EDITS_TOLD)}."


def _tell_error(call: Call, bound: BoundCall, error: BaseException, described: str) -> str:
    """Return the error's type and text. After a timeout, the text also says whether the tool was stopped. A hint may follow."""
    message = described  # "Name: message", by code that never raises
    if isinstance(error, ToolTimeout):
        message = f"TimeoutError: {described.partition(': ')[2]}"
        message += f"; {call.left_behind}" if call.left_behind else ""
    return message + _hint_at_thread(bound, message)


_WRONG_THREAD = re.compile(
    r"\b(?:same|main|another|different) thread\b|\bevent loop in thread\b|\bmain loop\b", re.IGNORECASE
)


def _hint_at_thread(bound: BoundCall, message: str) -> str:
    """If the error is about threads (sqlite, GUI toolkits, signals), return the advice to use `thread=False`; else ""."""
    if bound.tool.kind != "sync" or not bound.tool.settings.thread or not _WRONG_THREAD.search(message):
        return ""
    return f" (Tools run in a worker thread; mark {bound.tool.name} with @tool(thread=False) to run it on the notebook's own thread.)"
