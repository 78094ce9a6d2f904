"""Show the value that a tool returned, in the best form that is safe in a notebook.

A value's own display code (`_repr_html_`, a registered formatter, matplotlib) makes a MIME bundle. The best form in the
bundle is shown: a picture as embedded data, else HTML that is reduced to nh3's allowlist, else text. A tool may have fetched
hostile data, so scripts, styles, remote pictures, and MIME types that only one front-end knows are never shown.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import functools
import itertools
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from ...core.events import Attachment
from ...core.execution import Raised, attempt_call
from ...core.results import (
    decode_picture,
    describe,
    detect_format,
    draw_picture,
    find_figure,
    find_pictures,
    is_drawable,
)
from ...core.text import remove_ansi, shorten
from ..html import (
    BLOCK,
    CELL,
    MOST_IMAGE,
    TABLE,
    WIDE,
    block,
    clean_html,
    dim,
    esc,
    fold,
    highlight,
    inline,
    mark_hidden,
    mark_hidden_in_prose,
    pre,
    put_in_a_line,
    read_words,
    render_markdown,
    table,
    tell_count,
)
from .blocks import MOST_CHARACTERS, MOST_LINES, Block, draw_notice, take_beginning

if TYPE_CHECKING:
    from IPython.core.formatters import BaseFormatter

_Several: TypeAlias = dict[object, object] | list[object] | tuple[object, ...]

MOST_HTML = 200_000  # a display with more characters of HTML is shown as text
_SHORT = 40  # a result with at most this many characters is shown in place of its size
MOST_PARTS = 10  # of one list or dict, at most this many tables and pictures are shown
MOST_OF_PARTS = 3_500_000  # the most characters of HTML in these parts; the first part is always shown


@dataclass(frozen=True)
class Shown:
    """A value as a person sees it. The last line of `text` says how many lines are left out, if any are."""

    html: str
    text: str
    size: str = ""  # in words, such as "14 lines"
    visual: bool = False  # True if the value is shown as more than plain text
    lines_left_out: int = 0


def show_value(value: object, model_text: str = "", expression: str = "") -> Shown:
    """Show the value that a tool returned.

    `model_text` is the text that the model got. This text is shown if the value has no better form, or if its display code
    fails. `expression` is the Python expression for the whole value. It is shown if a part of the value is left out.
    """
    shown = attempt_call(_show_value, value, model_text, expression)
    return show_text(model_text, expression) if isinstance(shown, Raised) else shown


def _show_value(value: object, model_text: str, expression: str) -> Shown:
    if value is None:
        is_empty = model_text in ("", "None", "null")
        return Shown("", "", "nothing") if is_empty else show_text(model_text, expression)
    if isinstance(value, (str, bool, int, float)):
        return show_text(str(value), expression)
    if isinstance(value, (dict, list, tuple)):
        return _show_several(value, expression) or _show_plain_data(value, model_text, expression)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray) and value.dtype.hasobject:
        # For example the array of axes that `plt.subplots` returns.
        several = _show_several(list(itertools.islice(value.flat, _MOST_ITEMS + 1)), expression)
        if several is not None:
            return several
    shown = show_bundle({"text/plain": model_text, **find_bundle(value)}, expression)
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape and all(isinstance(size, int) for size in shape):
        return dataclasses.replace(shown, size=" × ".join(f"{size:,}" for size in shape))
    return shown


def show_text(text: str, expression: str = "", language: str = "") -> Shown:
    """Show a text. A text that is too long for a saved notebook is shortened."""
    text = remove_ansi(text)
    lines = text.count("\n") + 1 if text else 0
    size = tell_count(lines, "line") if lines > 1 else tell_count(len(text), "character")
    if lines == 1 and len(text) <= _SHORT and text.strip() == text:
        size = text
    shown, more = take_beginning(text, expression)
    note = f'<span style="opacity:.72">{esc(more)}</span>' if more else ""
    html = pre(highlight(shown, language) + note) if text else ""
    left = lines - shown.count("\n") if more else 0
    return Shown(html, mark_hidden(shown + more), size if text else "nothing", lines_left_out=left)


def write_json(value: object, indent: int | None = None) -> str | None:
    """Return a value as JSON text; None if that fails. Parts that JSON cannot represent are converted with `str`."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str, indent=indent)
    except (TypeError, ValueError, RecursionError):
        return None


def _show_plain_data(value: _Several, model_text: str, expression: str) -> Shown:
    """Show a list or dict as JSON; a list of texts as lines. If its JSON is short, this JSON is shown in place of its size."""
    short = write_json(value) if 0 < len(value) <= _SHORT else None
    size = short if short is not None and len(short) <= _SHORT else _count(value)
    if isinstance(value, (list, tuple)) and value and all(isinstance(item, str) for item in value[:1000]):
        shown = show_text("\n".join(map(str, value[: MOST_LINES + 1])), expression)
        return dataclasses.replace(shown, size=size)
    text = write_json(value, 2) if len(model_text) <= MOST_CHARACTERS else model_text
    shown = show_text(model_text if text is None else text, expression, "json" if text else "")
    return dataclasses.replace(shown, size=size)


def _count(value: _Several) -> str:
    return tell_count(len(value), *(("entry", "entries") if isinstance(value, dict) else ("item",)))


def _show_several(value: _Several, expression: str) -> Shown | None:
    """Show a list or dict item by item. Return None if `value` has no table and no picture, or more than `_MOST_ITEMS` items."""
    pairs = list(value.items() if isinstance(value, dict) else enumerate(value))
    if len(pairs) > _MOST_ITEMS or not any(_is_rich(item) for _, item in pairs):
        return None
    parts: list[Shown] = []
    rich_count, room = 0, MOST_OF_PARTS
    seen: set[int] = set()
    for name, item in pairs:
        drawn = {id(picture) for picture in find_pictures(item)}
        if drawn and drawn <= seen:
            continue  # in `(figure, axes)`, both are the same picture
        seen |= drawn
        rich_count += _is_rich(item)
        shown = Shown("", "") if rich_count > MOST_PARTS else show_value(item, describe(item, 2_000).text)
        room -= len(shown.html)
        if rich_count > MOST_PARTS or (room < 0 and parts):
            more = "… more in the whole result" + (f": {expression}" if expression else "")
            parts.append(show_text(more))
            break
        if isinstance(value, dict):
            label = shorten(str(name), 80)
            shown = Shown(dim(esc(label)) + shown.html, f"{put_in_a_line(label)}: {shown.text}")
        parts.append(shown)
    html, text = "".join(part.html for part in parts), "\n".join(part.text for part in parts)
    return Shown(html, text, _count(value), visual=True)


def _is_rich(value: object) -> bool:
    """Return whether a notebook can show `value` as more than text. This test does not run the value's display code."""
    if value is None or isinstance(value, (str, int, float, dict, list, tuple, set, type)):
        return False
    displays = (getattr(type(value), name, None) for name in ("_repr_html_", "_repr_svg_"))
    return find_figure(value) is not None or is_drawable(value) or any(map(callable, displays))


_PICTURES = ("image/png", "image/jpeg", "image/svg+xml", "image/gif", "image/webp")
_WANTED = (*_PICTURES, "text/html", "text/markdown", "text/latex", "text/plain")


def find_bundle(value: object) -> Mapping[str, object]:
    """Return the MIME bundle that an object's display methods and the registered formatters make; {} if there is none."""
    figure = find_figure(value)
    value = value if figure is None else figure  # axes are shown as their figure
    if isinstance(value, (bytes, bytearray)):
        return {f"image/{detect_format(bytes(value))}": bytes(value)} if is_drawable(value) else {}
    bundle: dict[str, object] = {}
    given = _call(getattr(value, "_repr_mimebundle_", None))
    given = given[0] if isinstance(given, tuple) and given else given
    if isinstance(given, Mapping):
        bundle.update({kind: given[kind] for kind in _WANTED if kind in given})
    for kind, formatter in _list_formatters().items():
        # `formatter(value)` is not called, because IPython prints a traceback into the cell when an object's method fails.
        try:
            display: object = functools.partial(formatter.lookup(value), value)  # type: ignore[no-untyped-call]
        except KeyError:
            display = getattr(value, str(formatter.print_method), None)
        if kind not in bundle and (data := _call(display)) is not None:
            bundle[kind] = data[0] if isinstance(data, tuple) and data else data  # (data, metadata)
    if figure is not None and not any(kind in bundle for kind in _PICTURES):
        data = draw_picture(figure)
        bundle[f"image/{detect_format(data)}"] = data  # JPEG if the PNG would be too large
    return bundle


def _call(function: object) -> object:
    """Call the display code of an object. Return None if it raises an exception or cannot be called."""
    outcome = attempt_call(function) if callable(function) else None
    return None if isinstance(outcome, Raised) else outcome


def _list_formatters() -> dict[str, BaseFormatter]:
    """Return the notebook's formatters by MIME type: pandas, matplotlib and users register formatters there."""
    from IPython.core.formatters import DisplayFormatter
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    display = DisplayFormatter() if shell is None else shell.display_formatter
    formatters: Mapping[str, BaseFormatter] = getattr(display, "formatters", {})
    return {kind: formatters[kind] for kind in _WANTED[:-1] if kind in formatters}


def show_bundle(bundle: Mapping[str, object], expression: str = "") -> Shown:
    """Show the best form of a MIME bundle from a display or an object; an empty Shown if no form can be shown."""
    words = str(bundle.get("text/plain", ""))
    for kind in _PICTURES:
        if kind in bundle and (picture := _draw_picture(kind, bundle[kind], words)) is not None:
            return picture
    raw = bundle.get("text/html")
    if isinstance(raw, str) and len(raw) <= MOST_HTML:
        clean = clean_html(raw)
        if " src=" in clean or read_words(clean):
            return Shown(
                f'<div style="{WIDE}">{clean}</div>', mark_hidden(words) or read_words(clean), "", True
            )
    for kind in ("text/markdown", "text/latex"):
        if isinstance(text := bundle.get(kind), str):
            return Shown(
                f"<div>{render_markdown(text[:MOST_HTML])}</div>", mark_hidden_in_prose(text), "", True
            )
    shown = show_text(words, expression) if words else Shown("", "")
    if isinstance(raw, str) and "<script" in raw:
        where = f"; to see it: {expression}" if expression else ""
        note = f"its interactive display is left out here{where}"
        text = f"{shown.text}\n… {put_in_a_line(note)}".lstrip("\n")
        return Shown(shown.html + dim(inline(note)), text, shown.size)
    return shown


def _draw_picture(kind: str, data: object, words: str) -> Shown | None:
    """Show a picture as an `<img>`: an SVG in it can neither run scripts nor load anything. Return None for invalid data."""
    is_svg = kind == "image/svg+xml"
    raw = str(data).encode("utf-8", "replace") if is_svg else decode_picture(data)
    if not raw or not (is_svg or f"image/{detect_format(raw)}" == kind):
        return None
    encoded = base64.b64encode(raw).decode()
    name = kind.removeprefix("image/").removesuffix("+xml").upper()
    size = f"{name} picture, {len(raw) / 1000:,.0f} kB"
    if len(encoded) > MOST_IMAGE:
        return Shown(f"<p>{size}: too large to keep in the notebook</p>", size, size)
    alt = esc(words[:200] or size)
    html = f'<img src="data:{kind};base64,{encoded}" alt="{alt}" style="max-width:100%">'
    return Shown(html, f"[{size}]", size, True)


# --- a validated output as a table of its fields, nested models and lists included ---

_DEEPEST = 5
_MOST_ITEMS = 100
_MOST_COLUMNS = 6


def draw_answer(text: str, output: object) -> Block:
    """Return the block of a validated `output`, as a table. The model's raw text is folded below the table."""
    raw = ""
    if text.strip():
        shown, more = take_beginning(text)
        raw = fold("as the model wrote it", f'<pre style="white-space:pre-wrap">{esc(shown)}{more}</pre>')
    rendering, name = _tell(output), dim(f"<code>{esc(type(output).__name__)}</code>")
    return Block(
        block("tlj-answer", f"{name}{rendering.html}{raw}", f"{BLOCK};{WIDE}"), "\n".join(rendering.lines)
    )


@dataclass(frozen=True)
class _Rendering:
    """A value in a run's `output`, as HTML and as lines in the style of YAML."""

    html: str
    lines: list[str]
    parts: Mapping[str, _Rendering] = field(default_factory=dict)  # the values of its fields, by name
    is_nested: bool = False


def _tell(value: object, depth: int = 0) -> _Rendering:
    """Return a value as HTML and lines: fields as a table, a sequence as a table or a list, any other value as text."""
    fields = list_fields(value)
    items = list(value) if isinstance(value, (list, tuple, set, frozenset)) else None
    if fields is None and items is None:
        return _tell_scalar(value)
    if depth >= _DEEPEST:
        text = shorten(repr(value)[:2_000], 500)
        return _Rendering(f"<code>{esc(text)}</code>", mark_hidden(text).split("\n"), is_nested=True)
    return _tell_items(items or [], depth) if fields is None else _tell_fields(fields, depth)


def _tell_fields(fields: Mapping[str, object], depth: int) -> _Rendering:
    renderings = {
        name: _tell(item, depth + 1) for name, item in itertools.islice(fields.items(), _MOST_ITEMS)
    }
    if not renderings:
        return _Rendering(dim("empty", "span"), ["none"], is_nested=True)
    html = table(((inline(name), one.html) for name, one in renderings.items()), head="th")
    lines = []
    for name, one in renderings.items():
        is_beside = len(one.lines) == 1 and not one.is_nested
        lines += [f"{put_in_a_line(name)}: {one.lines[0]}"] if is_beside else [f"{put_in_a_line(name)}:"]
        lines += [] if is_beside else ["  " + line for line in one.lines]
    return _Rendering(html + _tell_more(len(fields)), lines, renderings, is_nested=True)


def _tell_items(items: list[object], depth: int) -> _Rendering:
    if not items:
        return _Rendering(dim("none", "span"), ["none"], is_nested=True)
    renderings = [_tell(item, depth + 1) for item in items[:_MOST_ITEMS]]
    lines = [
        line for one in renderings for line in (f"- {one.lines[0]}", *("  " + rest for rest in one.lines[1:]))
    ]
    columns = list(renderings[0].parts)
    has_columns = 0 < len(columns) <= _MOST_COLUMNS and all(list(one.parts) == columns for one in renderings)
    if len(renderings) > 1 and has_columns:
        header = _draw_row("th", map(inline, columns), ' scope="col"')
        rows = (_draw_row("td", (part.html for part in one.parts.values())) for one in renderings)
        html = f'<table style="{TABLE}">{header}{"".join(rows)}</table>'
    else:
        listed = "".join(f"<li>{one.html}</li>" for one in renderings)
        html = f'<ul style="margin:0;padding-left:1.2em">{listed}</ul>'
    return _Rendering(html + _tell_more(len(items)), lines, is_nested=True)


def _draw_row(tag: str, cells: Iterable[str], more: str = "") -> str:
    return "<tr>" + "".join(f'<{tag} style="{CELL}"{more}>{cell}</{tag}>' for cell in cells) + "</tr>"


def _tell_scalar(value: object) -> _Rendering:
    """Return a single value as HTML and lines. An enum becomes its value; True and False are written as in JSON."""
    if value is None:
        return _Rendering(dim("—", "span"), ["—"])
    value = value.value if isinstance(value, enum.Enum) else value
    text = json.dumps(value) if isinstance(value, bool) else str(value)
    lines = mark_hidden(text).split("\n")
    if "\n" not in text and len(text) <= 500:
        return _Rendering(f"<span>{inline(text)}</span>", lines)
    shown, more = take_beginning(text)
    return _Rendering(f'<div style="white-space:pre-wrap">{inline(shown)}{more}</div>', lines)


def list_fields(value: object) -> Mapping[str, object] | None:
    """Return the fields of a pydantic model, a dataclass or a mapping by name. Return None for other values."""
    if isinstance(value, Mapping):
        return {str(key): item for key, item in value.items()}
    names = getattr(type(value), "model_fields", None)  # pydantic's
    if isinstance(names, Mapping):
        return {str(name): getattr(value, name) for name in names}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
    return None


def _tell_more(count: int) -> str:
    return dim(f"… {count - _MOST_ITEMS:,} more", "span") if count > _MOST_ITEMS else ""


def draw_attachment(attachment: Attachment) -> Block:
    """Return the block of a picture or a file. If it was sent in the prompt, the block also shows its name.

    A file, or a picture that cannot be drawn from its `data:` URL, is only a line with its name.
    """
    media, _, data = attachment.address.removeprefix("data:").partition(";base64,")
    shown = show_bundle({media.lower(): data}) if data and media.lower().startswith("image/") else None
    named = draw_notice(f"sent {attachment.name}" if attachment.is_sent else attachment.name)
    if shown is None or not shown.html:
        return named
    drawn = block("tlj-text", shown.html)
    return Block(named.html + drawn, named.text) if attachment.is_sent else Block(drawn, shown.text)


def get_picture_bytes(bundle: Mapping[str, object]) -> bytes:
    """Return the bytes of the PNG or JPEG picture in a MIME bundle; b"" if the bundle has none."""
    return decode_picture(bundle.get("image/png")) or decode_picture(bundle.get("image/jpeg"))
