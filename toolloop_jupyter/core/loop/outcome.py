"""What came of a tool's run -> the ToolResult: the model's text and pictures, the person's value and traceback."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from ..events import PrintKeeper, ToolResult
from ..execution import Outcome, ToolTimeout, in_thread
from ..results import LIMIT, cut, cut_traceback, describe, find_pictures, make_addresses, tell
from ..text import join_surrogates, settle_lines
from ..tools import BoundCall
from .turn import Call

EDITED = "The person edited"
EDITS_TOLD = 4_000
"""Characters of edited arguments that the model is told."""


async def make_result(
    call: Call,
    bound: BoundCall,
    outcome: Outcome,
    keeper: PrintKeeper | None,
    *,
    see: Callable[[], bool],
    name_code: Callable[[str], str],
) -> ToolResult:
    """What came of a function's run, for the model and for the person.

    `keeper` has kept what it printed; `see` says whether the model takes pictures, and is asked only when there are some.
    `name_code` gives a traceback the names that a person knows.
    """
    seconds, error = call.seconds, outcome.error
    settings = bound.tool.settings
    limit = settings.max_result
    described = tell(outcome.value, limit, name_code) if error is None else describe(error, limit)
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
    """What the model reads of a call whose arguments a person has edited."""
    now = json.dumps(bound.json, ensure_ascii=False, default=repr)
    return f"{EDITED} the arguments to {now if len(now) <= EDITS_TOLD else cut(now, EDITS_TOLD)}."


def _tell_error(call: Call, bound: BoundCall, error: BaseException, described: str) -> str:
    """The error's type and text, what became of a thread that did not end in time, and a hint."""
    message = described  # "Name: message", by code that never raises
    if isinstance(error, ToolTimeout):
        message = f"TimeoutError: {described.partition(': ')[2]}"
        message += f"; {call.left_behind}" if call.left_behind else ""
    return message + _thread_hint(bound, message)


_WRONG_THREAD = re.compile(
    r"\b(?:same|main|another|different) thread\b|\bevent loop in thread\b|\bmain loop\b", re.IGNORECASE
)


def _thread_hint(bound: BoundCall, message: str) -> str:
    """What to write when something must not be used in a worker thread (sqlite connections, GUI toolkits, signals)."""
    if bound.tool.kind != "sync" or not bound.tool.settings.thread or not _WRONG_THREAD.search(message):
        return ""
    return f" (Tools run in a worker thread; mark {bound.tool.name} with @tool(thread=False) to run it on the notebook's own.)"
