"""What came of a tool's run -> the ToolResult: the model's text and pictures, the person's value and traceback."""

from __future__ import annotations

import json
import re
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import Any

from .. import results as images
from ..events import PrintKeeper, ToolCall, ToolResult
from ..execution import Raised, attempt_call, describe_error, in_thread
from ..results import LIMIT, cut, describe
from ..text import settle_lines
from ..tools import BoundCall

EDITED = "The person edited"
EDITS_TOLD = 4_000
"""Characters of edited arguments that the model is told."""


class ToolTimeout(Exception):
    """A tool took longer than its own `timeout`."""


async def returned(
    call: ToolCall,
    bound: BoundCall,
    value: Any,
    *,
    keeper: PrintKeeper | None,
    seconds: float,
    edited: bool,
    see: Callable[[], bool],
) -> ToolResult:
    """The result of a function that came to its end.

    `keeper` has kept what it printed; `see` says whether the model takes pictures, and is asked only
    when there are some.
    """
    settings = bound.tool.settings
    described = describe(value, settings.max_result)
    before = told_of_edits(bound) if edited else ""
    printed, drawn = _printed(bound, keeper)
    if printed:
        before += f"[printed]\n{printed}\n[returned]\n"
    pictures: tuple[str, ...] = ()
    drawable = [*images.find_pictures(value), *drawn]
    if drawable and see():
        pictures = await in_thread(lambda: images.make_addresses(drawable))
    text = before + described.text
    return ToolResult(
        call.id,
        text,
        value=value,
        seconds=seconds,
        full_length=described.full_length + len(before),
        ran=True,
        pictures=pictures,
        edited=bound.json if edited else None,
        printed=printed,
        returned=described.text if before else None,
        cut=described.full_length - len(described.text),
    )


def told_of_edits(bound: BoundCall) -> str:
    """What the model reads before the result of a call whose arguments a person has edited."""
    now = json.dumps(bound.json, ensure_ascii=False, default=repr)
    return f"{EDITED} the arguments to {now if len(now) <= EDITS_TOLD else cut(now, EDITS_TOLD)}.\n"


def _printed(bound: BoundCall, keeper: PrintKeeper | None) -> tuple[str, list[Any]]:
    """(text, pictures) that the function printed and displayed, if it asked for the model to get them."""
    if keeper is None:
        return "", []
    text = settle_lines(str(keeper)).rstrip("\n")
    return cut(text, bound.tool.settings.max_result or LIMIT), list(keeper.pictures)


def raised(
    call: ToolCall,
    bound: BoundCall,
    error: BaseException,
    *,
    keeper: PrintKeeper | None,
    seconds: float,
    note: str,
    edited: bool = False,
) -> ToolResult:
    """The result of a function that raised: its type and text to the model, the person's part of the traceback.

    `note` is put behind the message: what became of a thread that did not end in time.
    """
    name = "TimeoutError" if isinstance(error, ToolTimeout) else type(error).__name__
    described = describe(error, bound.tool.settings.max_result)  # "Name: message", by code that never raises
    words = described.text
    message = f"{name}: {words.partition(': ')[2]}" if isinstance(error, ToolTimeout) else words
    message += note + _thread_hint(bound, message)
    words = message
    printed, _ = _printed(bound, keeper)
    if printed:
        message += f"\n[printed before it]\n{printed}"
    if edited:
        message += "\n" + told_of_edits(bound).rstrip("\n")
    return ToolResult(
        call.id,
        message,
        is_error=True,
        value=error,
        seconds=seconds,
        traceback="" if isinstance(error, ToolTimeout) else persons_traceback(error),
        full_length=len(message),
        ran=True,
        edited=bound.json if edited else None,
        printed=printed,
        returned=words if printed or edited else None,
        cut=described.full_length - len(described.text),
    )


_WRONG_THREAD = re.compile(
    r"\b(?:same|main|another|different) thread\b|\bevent loop in thread\b|\bmain loop\b", re.IGNORECASE
)


def _thread_hint(bound: BoundCall, message: str) -> str:
    """What to write when something must not be used in a worker thread (sqlite connections, GUI toolkits, signals)."""
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


def persons_traceback(error: BaseException) -> str:
    """The traceback, with its causes, cut to the person's own code: no frames of this package, nor of libraries.

    Where nothing is the person's own (a library's function as a tool), its last frames stay. An error whose own code
    (its notes, its text) fails has only its words. Never raises.
    """
    made = attempt_call(_traceback, error)
    return f"{describe_error(error)}\n" if isinstance(made, Raised) else made


def _traceback(error: BaseException) -> str:
    whole = traceback.TracebackException.from_exception(error)
    for part in _chain(whole):
        frames = [frame for frame in part.stack if not _is_ours(frame.filename)]
        own = [frame for frame in frames if not _is_library(frame.filename)]
        part.stack = traceback.StackSummary.from_list(
            own or [_shortened(frame) for frame in frames[-_MOST_FOREIGN:]]
        )
    return "".join(whole.format())


def _chain(
    part: traceback.TracebackException | None, depth: int = 0
) -> Iterator[traceback.TracebackException]:
    if part is None or depth > 50:
        return
    yield part
    yield from _chain(part.__cause__, depth + 1)
    yield from _chain(part.__context__, depth + 1)
    for inner in getattr(part, "exceptions", None) or ():  # groups, from Python 3.11 on
        yield from _chain(inner, depth + 1)


def _is_ours(filename: str) -> bool:
    return "/toolloop_jupyter/" in filename.replace("\\", "/")


def _is_library(filename: str) -> bool:
    name = filename.replace("\\", "/")
    if name.startswith("<") and not name.startswith(("<ipython-input", "<stdin", "<string")):
        return True  # <frozen importlib._bootstrap>, <__array_function__ internals>
    return name.startswith(_LIBRARIES) or "/site-packages/" in name or "/dist-packages/" in name


def _shortened(frame: traceback.FrameSummary) -> traceback.FrameSummary:
    """The frame with a file name without this machine's folders."""
    name = frame.filename.replace("\\", "/")
    for folder in (*_LIBRARIES, "/site-packages/", "/dist-packages/"):
        if folder in name:
            name = name.rpartition(folder)[2]
            break
    else:
        name = PurePath(name).name
    return traceback.FrameSummary(name, frame.lineno, frame.name, line=frame.line)
