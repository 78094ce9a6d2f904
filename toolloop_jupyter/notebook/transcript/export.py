"""Write a run to a file: Markdown or HTML for people, or JSON with the run's events and totals for programs."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from ...core.events import Mistake
from ...core.execution import Raised, attempt_call
from ...core.text import hide, hide_in, write_whole
from ..html import DARK_PAGE, as_source, escaped_json, prose
from .steps import draw_steps, make_bundle, make_head, render

if TYPE_CHECKING:
    from ...core.events import Event, FileChange, Result


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>toolloop run</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<style>:root{{color-scheme:light dark}}body{{background:Canvas;color:CanvasText;font:14px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em}}</style>
</head><body>
<main>{body}</main>
{dark}
</body></html>
"""


def write(result: Result, path: str) -> Path:
    """Write `result` to the file `path`. The ending of the path selects the format: .md, .html or .json.

    Raises Mistake for another ending, and OSError if the file cannot be written.
    """
    target = Path(path)
    makers = {".md": to_markdown, ".html": _html, ".json": as_json}
    maker = makers.get(target.suffix.lower())
    if maker is None:
        raise Mistake(f"{path!r} must end in .md, .html or .json")
    write_whole(target, maker(result))
    return target


def to_markdown(result: Result, name: str | None = None) -> str:
    """Return the run as Markdown.

    Each part is plain text in a fenced code block, so the Markdown is harmless in every viewer.
    """
    parts = [write_fence(make_head(result).text)]
    if result.prompt:
        parts.append("\n".join(f"> {line}" for line in write_fence(prose(result.prompt).strip()).split("\n")))
    parts += [write_fence(block.text) for block in draw_steps(result, name)]
    return hide("\n\n".join(parts)) + "\n"


def write_fence(text: str) -> str:
    """Return `text` as a fenced code block. The fence is longer than every series of backticks in the text."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"


def _html(result: Result) -> str:
    # The page has no scripts, so formulas are not typeset. The page has no Jupyter theme, so the reader's system selects
    # light or dark colours.
    return _PAGE.format(body=as_source(make_bundle(render(result))["text/html"]), dark=DARK_PAGE)


def as_json(result: Result) -> str:
    """Return the run as JSON text: its events, files and totals.

    Pydantic models and dataclasses become JSON objects. Other Python objects become their `repr`. Hidden characters are
    written as JSON escapes.
    """
    facts = {
        f.name: getattr(result, f.name)
        for f in dataclasses.fields(result)
        if f.name not in ("events", "files", "output")
    }
    facts["output"] = _output_json(result.output)
    facts["events"] = [_event(event) for event in result.events]
    facts["files"] = [_event(change) for change in result.files]
    data = json.loads(
        json.dumps(facts, default=_plain)
    )  # JSON data first, so that `hide_in` finds an API key in a live object
    return escaped_json(json.dumps(hide_in(data), ensure_ascii=False, indent=1)) + "\n"


def _event(event: Event | FileChange) -> dict[str, object]:
    shown: dict[str, object] = {
        f.name: getattr(event, f.name)
        for f in dataclasses.fields(event)
        if f.repr and not f.name.startswith("_")
    }
    decision = getattr(event, "decision", None)
    if decision is not None:
        shown["decision"] = dataclasses.asdict(decision)
    return {"event": type(event).__name__, **shown}


def _output_json(output: object) -> object:
    """Return `output` as JSON data.

    Pydantic converts models, dates, enums, sets and so on. Other objects become their `repr`.
    """
    data = attempt_call(functools.partial(to_jsonable_python, by_alias=False, fallback=repr), output)
    return repr(output) if isinstance(data, Raised) else data


def _plain(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    return repr(value)
