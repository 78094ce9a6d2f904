"""Figures, images and bytes in words. No package for them is imported: a value of theirs brings it along."""

from __future__ import annotations

import struct
import sys
from typing import Any

_MOST = 20  # drawn things that are listed of one set of axes
_MAGIC = ((b"\x89PNG\r\n\x1a\n", "PNG"), (b"\xff\xd8\xff", "JPEG"), (b"GIF8", "GIF"), (b"%PDF-", "PDF"))


def picture(value: Any, limit: int) -> tuple[str, int] | None:
    """(text, its length) for a figure, an image or bytes; None for anything else."""
    figure, axes, image = (
        sys.modules.get(name) for name in ("matplotlib.figure", "matplotlib.axes", "PIL.Image")
    )
    text: str | None = None
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _bytes(bytes(value), limit)
    if figure is not None and isinstance(value, figure.FigureBase):
        text = _figure(value)
    elif axes is not None and isinstance(value, axes.Axes):
        text = f"matplotlib axes: {_axes(value)}"
    elif image is not None and isinstance(value, image.Image):
        text = f"image, {value.width} × {value.height} pixels, mode {value.mode}"
    return None if text is None else (text, len(text))


def _bytes(data: bytes, limit: int) -> tuple[str, int]:
    """Readable bytes as their text, said to be bytes; others by their kind, size and beginning."""
    kind = next((name for magic, name in _MAGIC if data.startswith(magic)), "")
    if kind == "PNG" and len(data) >= 24:
        width, height = struct.unpack(">II", data[16:24])
        kind = f"PNG image of {width} × {height} pixels"
    try:
        text = "" if kind else data.decode()
    except UnicodeDecodeError:
        text = ""
    if text and (text.isprintable() or not set(text) & _CONTROLS):
        text = f"{len(data):,} bytes, as UTF-8 text:\n{text}"
        return text, len(text)
    if not data:
        return "0 bytes", 7
    shown = data[: max(8, min(64, limit // 8))]
    more = ", beginning" if len(shown) < len(data) else ""
    text = f"{len(data):,} bytes{f' ({kind})' if kind else ''}{more}: {shown.hex(' ')}"
    return text, len(text) + 3 * (len(data) - len(shown))


_CONTROLS = frozenset(map(chr, range(32))) - set("\t\n\r\f")


def _figure(figure: Any) -> str:
    width, height = (round(side) for side in figure.bbox.size)
    title = figure.get_suptitle() if hasattr(figure, "get_suptitle") else ""  # from matplotlib 3.8 on
    named = f" {title!r}" if title else ""
    lines = [f"matplotlib figure{named}, {width} × {height} pixels, with {len(figure.axes)} axes"]
    lines += [f"- axes {number}: {_axes(axes)}" for number, axes in enumerate(figure.axes[:_MOST], 1)]
    return "\n".join(lines)


def _axes(axes: Any) -> str:
    parts = [f"title {axes.get_title()!r}"] if axes.get_title() else []
    for name, label, bounds in (
        ("x", axes.get_xlabel(), axes.get_xlim()),
        ("y", axes.get_ylabel(), axes.get_ylim()),
    ):
        parts.append(f"{name}{f' {label!r}' if label else ''} from {bounds[0]:.6g} to {bounds[1]:.6g}")
    parts += [_line(line) for line in axes.lines[:_MOST]]
    for count, what in (
        (len(axes.lines) - _MOST, "more lines"),
        (len(axes.patches), "patches (bars, areas)"),
        (len(axes.collections), "collections (points, areas)"),
        (len(axes.images), "images"),
    ):
        if count > 0:
            parts.append(f"{count} {what}")
    return "; ".join(parts)


def _line(line: Any) -> str:
    label = str(line.get_label())
    named = "" if label.startswith("_") else f" {label!r}"
    values = sys.modules["numpy"].asarray(line.get_ydata(orig=False), dtype=float)
    finite = values[values == values]  # noqa: PLR0124 - NaN is the one that is not itself
    spread = f", y {finite.min():.6g} to {finite.max():.6g}" if finite.size else ""
    return f"line{named} of {len(values):,} points{spread}"
