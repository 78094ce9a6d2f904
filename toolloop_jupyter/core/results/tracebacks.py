"""Shorten a traceback to the frames in the person's own code."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from ..execution import Raised, attempt_call, describe_error, get_message, list_inner
from ..text import join_surrogates

_PATHS = sysconfig.get_paths()
_LIBRARIES = tuple(
    path.replace("\\", "/").rstrip("/") + "/"
    for path in {_PATHS[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
_MOST_FOREIGN = 3
"""If a traceback has no frame in the person's own code, this many of its last frames are kept."""
_MOST_TEXT = 10_000
"""The most characters that are shown of an error's text, and of each of its notes."""
_MOST_NOTES = 10
"""The most notes of an error that are shown."""
_MOST_ERRORS = 200
"""The most errors in a group or in a chain of causes. If there are more, only the outermost error gets a traceback."""


def cut_traceback(error: BaseException) -> str:
    """Return the traceback of an error and its causes, without the frames of this package and of libraries. Never raises.

    If all frames are in a library, the last frames stay; this happens if the tool is a function of a library. If code
    of the error raises while the traceback is written, return one line about the error.
    """
    made = attempt_call(_write_traceback, error)
    return join_surrogates(f"{describe_error(error)}\n" if isinstance(made, Raised) else made)


def _write_traceback(error: BaseException) -> str:
    # `traceback` would read all of these errors, and would read an error once for each of its groups.
    if _has_many(error):
        error = _stand_alone(error)
    whole = traceback.TracebackException.from_exception(error)
    for part in _walk_parts(whole):
        frames = [frame for frame in part.stack if not _is_ours(frame.filename)]
        own = [frame for frame in frames if not _is_library(frame.filename)]
        part.stack = traceback.StackSummary.from_list(
            own or [_shorten(frame) for frame in frames[-_MOST_FOREIGN:]]
        )
        _cut_texts(part)
    return "".join(whole.format())


def _has_many(error: BaseException) -> bool:
    """Return True if the groups, causes and contexts of an error contain more than `_MOST_ERRORS` errors."""
    waiting, seen = [error], {id(error)}
    for _ in range(_MOST_ERRORS):
        if not waiting:
            return False
        one = waiting.pop()
        waiting += list_inner(one)
        for linked in (one.__cause__, one.__context__):
            if linked is not None and id(linked) not in seen:
                seen.add(id(linked))
                waiting.append(linked)
    return bool(waiting)


def _stand_alone(error: BaseException) -> BaseException:
    """Return a new error with the same name, text and traceback, but without a group and without causes."""
    text = f"{get_message(error, _MOST_TEXT)} (with more than {_MOST_ERRORS} other errors)"
    made: BaseException = type(type(error).__name__, (Exception,), {"__module__": "builtins"})(text)
    return made.with_traceback(error.__traceback__)


def _cut_texts(part: Any) -> None:
    """Shorten the text and the notes of one error, in place. Otherwise `traceback` would write megabytes, line by line.

    The attribute `_str` is private (seen in CPython 3.10 to 3.14). If a version of Python lacks this attribute, the text is
    not shortened.
    """
    if isinstance(text := getattr(part, "_str", None), str):
        part._str = _cut(text)  # noqa: SLF001 - see above
    if isinstance(notes := getattr(part, "__notes__", None), list):
        part.__notes__ = [_cut(note) if type(note) is str else note for note in notes[:_MOST_NOTES]]


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]} …"


def _walk_parts(
    part: traceback.TracebackException | None, depth: int = 0
) -> Iterator[traceback.TracebackException]:
    if part is None or depth > 50:
        return
    yield part
    yield from _walk_parts(part.__cause__, depth + 1)
    yield from _walk_parts(part.__context__, depth + 1)
    for inner in getattr(part, "exceptions", None) or ():  # groups, from Python 3.11 on
        yield from _walk_parts(inner, depth + 1)


def _is_ours(filename: str) -> bool:
    return "/toolloop_jupyter/" in filename.replace("\\", "/")


def _is_library(filename: str) -> bool:
    name = filename.replace("\\", "/")
    if name.startswith("<") and not name.startswith(("<ipython-input", "<stdin", "<string")):
        return True  # <frozen importlib._bootstrap>, <__array_function__ internals>
    return name.startswith(_LIBRARIES) or "/site-packages/" in name or "/dist-packages/" in name


def _shorten(frame: traceback.FrameSummary) -> traceback.FrameSummary:
    """Return the frame with a short file name, without the folders of this machine."""
    name = frame.filename.replace("\\", "/")
    for folder in (*_LIBRARIES, "/site-packages/", "/dist-packages/"):
        if folder in name:
            name = name.rpartition(folder)[2]
            break
    else:
        name = PurePath(name).name
    return traceback.FrameSummary(name, frame.lineno, frame.name, line=frame.line)
