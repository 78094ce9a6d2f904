"""The outcome of a tool's function -> its ToolResult: text and pictures for the model, value and traceback for the person."""

from __future__ import annotations

import json
import re
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from pathlib import PurePath

from ..events import PrintKeeper, ToolResult
from ..execution import Outcome, Raised, ToolTimeout, attempt_call, describe_error, in_thread
from ..results import LIMIT, cut, describe, find_pictures, make_addresses
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
    """Make the result of a call from the `outcome` of its function.

    `keeper` has kept the function's prints. `see` says whether the model takes pictures; it is called only if there are some.
    `name_code` gives a traceback the names that a person knows.
    """
    seconds, error = call.seconds, outcome.error
    settings = bound.tool.settings
    described = describe(outcome.value if error is None else error, settings.max_result)
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
    """The sentence that tells the model how a person has edited the arguments."""
    now = json.dumps(bound.json, ensure_ascii=False, default=repr)
    return f"{EDITED} the arguments to {now if len(now) <= EDITS_TOLD else cut(now, EDITS_TOLD)}."


def _tell_error(call: Call, bound: BoundCall, error: BaseException, described: str) -> str:
    """The error's type and text, with the fate of a thread that did not end in time, and a hint."""
    message = described  # "Name: message", by code that never raises
    if isinstance(error, ToolTimeout):
        message = f"TimeoutError: {described.partition(': ')[2]}"
        message += f"; {call.left_behind}" if call.left_behind else ""
    return message + _hint_at_thread(bound, message)


_WRONG_THREAD = re.compile(
    r"\b(?:same|main|another|different) thread\b|\bevent loop in thread\b|\bmain loop\b", re.IGNORECASE
)


def _hint_at_thread(bound: BoundCall, message: str) -> str:
    """How to run a tool on the main thread, if the error is about threads (sqlite connections, GUI toolkits, signals); else ""."""
    if bound.tool.kind != "sync" or not bound.tool.settings.thread or not _WRONG_THREAD.search(message):
        return ""
    return f" (Tools run in a worker thread; mark {bound.tool.name} with @tool(thread=False) to run it on the notebook's own.)"


# --- tracebacks -----------------------------------------------------------------------------------------------

_PATHS = sysconfig.get_paths()
_LIBRARIES = tuple(
    path.replace("\\", "/").rstrip("/") + "/"
    for path in {_PATHS[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
_MOST_FOREIGN = 3
"""Frames that are kept of a traceback without a line of the person's own."""


def cut_traceback(error: BaseException) -> str:
    """The traceback, with its causes, cut to the person's own code: no frames of this package, nor of libraries.

    If no frame is the person's own (a library's function is the tool), the last frames stay. If the error's own code (its
    notes, its text) fails, only its type and message are returned. Never raises.
    """
    made = attempt_call(_write_traceback, error)
    return join_surrogates(f"{describe_error(error)}\n" if isinstance(made, Raised) else made)


def _write_traceback(error: BaseException) -> str:
    whole = traceback.TracebackException.from_exception(error)
    for part in _walk_chain(whole):
        frames = [frame for frame in part.stack if not _is_ours(frame.filename)]
        own = [frame for frame in frames if not _is_library(frame.filename)]
        part.stack = traceback.StackSummary.from_list(
            own or [_shorten_path(frame) for frame in frames[-_MOST_FOREIGN:]]
        )
    return "".join(whole.format())


def _walk_chain(
    part: traceback.TracebackException | None, depth: int = 0
) -> Iterator[traceback.TracebackException]:
    if part is None or depth > 50:
        return
    yield part
    yield from _walk_chain(part.__cause__, depth + 1)
    yield from _walk_chain(part.__context__, depth + 1)
    for inner in getattr(part, "exceptions", None) or ():  # groups, from Python 3.11 on
        yield from _walk_chain(inner, depth + 1)


def _is_ours(filename: str) -> bool:
    return "/toolloop_jupyter/" in filename.replace("\\", "/")


def _is_library(filename: str) -> bool:
    name = filename.replace("\\", "/")
    if name.startswith("<") and not name.startswith(("<ipython-input", "<stdin", "<string")):
        return True  # <frozen importlib._bootstrap>, <__array_function__ internals>
    return name.startswith(_LIBRARIES) or "/site-packages/" in name or "/dist-packages/" in name


def _shorten_path(frame: traceback.FrameSummary) -> traceback.FrameSummary:
    """The frame with its file name, without the folders of this machine."""
    name = frame.filename.replace("\\", "/")
    for folder in (*_LIBRARIES, "/site-packages/", "/dist-packages/"):
        if folder in name:
            name = name.rpartition(folder)[2]
            break
    else:
        name = PurePath(name).name
    return traceback.FrameSummary(name, frame.lineno, frame.name, line=frame.line)
