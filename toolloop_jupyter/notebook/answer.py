"""A validated output as a table of its fields, nested models and lists included."""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.cleaning import plain
from .blocks import Block, text_block
from .inert import esc, inline, shorten
from .rich import cut
from .style import BLOCK, CELL, DIM, SUMMARY, TABLE, WIDE

_DEEPEST = 5
_MOST_ITEMS = 100
_MOST_COLUMNS = 6


def answer_block(text: str, output: Any = None) -> Block:
    """The answer of a run: `output` (the validated instance) as a table, or without one the text itself.

    With an output, the text is the model's raw answer: kept, folded.
    """
    if output is None:
        return text_block(text, final=True)
    raw = ""
    if text.strip():
        shown, left_out = cut(text)
        more = f"… {left_out}" if left_out else ""
        raw = (
            f'<details style="{BLOCK};{DIM}"><summary style="{SUMMARY}">as the model wrote it</summary>'
            f'<pre style="white-space:pre-wrap">{esc(shown)}{more}</pre></details>'
        )
    name = f'<div style="{DIM}"><code>{esc(type(output).__name__)}</code></div>'
    html = f'<div class="tlj tlj-answer" style="{BLOCK};{WIDE}">{name}{value_html(output)}{raw}</div>'
    return Block(html, "\n".join(value_lines(output)))


def fields_of(value: Any) -> Mapping[str, Any] | None:
    """The fields of a model, dataclass or mapping by name, or None for anything else."""
    if isinstance(value, Mapping):
        return {str(key): item for key, item in value.items()}
    names = getattr(type(value), "model_fields", None)  # pydantic's
    if isinstance(names, Mapping):
        return {str(name): getattr(value, name) for name in names}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def value_html(value: Any, depth: int = 0) -> str:
    """One value: a table for fields, a table or list for a sequence, text for the rest."""
    fields = fields_of(value)
    items = list(value) if isinstance(value, (list, tuple, set, frozenset)) else None
    if depth >= _DEEPEST and (fields is not None or items is not None):
        return f"<code>{esc(shorten(repr(value)[:2_000], 500))}</code>"
    if fields is not None:
        return _fields_html(fields, depth)
    if items is not None:
        return _items_html(items, depth)
    return _scalar_html(value)


def _fields_html(fields: Mapping[str, Any], depth: int) -> str:
    rows = [
        f'<tr><th style="{CELL}" scope="row">{inline(name)}</th><td style="{CELL}">{value_html(item, depth + 1)}</td></tr>'
        for name, item in list(fields.items())[:_MOST_ITEMS]
    ]
    return f'<table style="{TABLE}">{"".join(rows)}</table>{_more(len(fields))}' if rows else _dim("empty")


def _items_html(items: Sequence[Any], depth: int) -> str:
    if not items:
        return _dim("none")
    rows = [fields_of(item) for item in items[:_MOST_ITEMS]]
    columns = list(rows[0] or {})
    if (
        len(items) > 1
        and columns
        and len(columns) <= _MOST_COLUMNS
        and all(row and list(row) == columns for row in rows)
    ):
        header = "".join(f'<th style="{CELL}" scope="col">{inline(name)}</th>' for name in columns)
        body = "".join(
            "<tr>"
            + "".join(f'<td style="{CELL}">{value_html(item, depth + 1)}</td>' for item in row.values())
            + "</tr>"
            for row in rows
            if row
        )
        return f'<table style="{TABLE}"><tr>{header}</tr>{body}</table>{_more(len(items))}'
    entries = "".join(f"<li>{value_html(item, depth + 1)}</li>" for item in items[:_MOST_ITEMS])
    return f'<ul style="margin:0;padding-left:1.2em">{entries}</ul>{_more(len(items))}'


def _scalar_html(value: Any) -> str:
    if value is None:
        return _dim(scalar_text(value))
    text = scalar_text(value)
    if "\n" not in text and len(text) <= 500:
        return f"<span>{inline(text)}</span>"
    shown, left_out = cut(text)
    more = f"… {left_out}" if left_out else ""
    return f'<div style="white-space:pre-wrap">{inline(shown)}{more}</div>'


def scalar_text(value: Any) -> str:
    """A single value in words: an enum's value, True and False as JSON has them, else its text."""
    if value is None:
        return "—"
    if isinstance(value, enum.Enum):
        return str(value.value)
    return json.dumps(value) if isinstance(value, bool) else str(value)


def _dim(word: str) -> str:
    return f'<span style="{DIM}">{word}</span>'


def _more(count: int) -> str:
    return _dim(f"… {count - _MOST_ITEMS:,} more") if count > _MOST_ITEMS else ""


def value_lines(value: Any, depth: int = 0) -> list[str]:
    """The same as `value_html` for plain text: indented lines, as in YAML."""
    fields = fields_of(value)
    items = list(value) if isinstance(value, (list, tuple, set, frozenset)) else None
    if depth >= _DEEPEST or (fields is None and items is None):
        return plain(
            scalar_text(value) if fields is None and items is None else shorten(repr(value)[:2_000], 500)
        ).split("\n")
    lines: list[str] = []
    for name, item in list((fields or {}).items())[:_MOST_ITEMS]:
        below = value_lines(item, depth + 1) or ["none"]
        nested = fields_of(item) is not None or isinstance(item, (list, tuple, set, frozenset))
        if len(below) == 1 and not nested:
            lines.append(f"{plain(name)}: {below[0]}")
        else:
            lines += [f"{plain(name)}:", *("  " + line for line in below)]
    for item in (items or [])[:_MOST_ITEMS]:
        below = value_lines(item, depth + 1) or ["none"]
        lines += [f"- {below[0]}", *("  " + line for line in below[1:])]
    return lines
