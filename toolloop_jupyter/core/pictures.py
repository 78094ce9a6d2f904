"""Figures, images and bytes in words. No package for them is imported: a value of theirs brings it along."""

from __future__ import annotations

import base64
import struct
import sys
from typing import Any

from .foreign import attempt

_MOST = 20  # drawn things that are listed of one set of axes
_MAGIC = ((b"\x89PNG\r\n\x1a\n", "png"), (b"\xff\xd8\xff", "jpeg"), (b"GIF8", "gif"))
_METHODS = ("_repr_png_", "_repr_jpeg_")


def kind_of(data: bytes) -> str:
    """The format of a picture by its first bytes: "png", "jpeg", "gif" or "webp"; "" for bytes that are none."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "webp"
    return next((kind for magic, kind in _MAGIC if data.startswith(magic)), "")


def figure_of(value: Any) -> Any:
    """The whole matplotlib figure that a figure, a part of one or a set of axes belongs to, or None."""
    figure, axes = sys.modules.get("matplotlib.figure"), sys.modules.get("matplotlib.axes")
    if figure is None or axes is None or not isinstance(value, (figure.FigureBase, axes.Axes)):
        return None
    while value is not None and not isinstance(value, figure.Figure):
        value = value.figure  # None for axes that were taken out of their figure
    return value


def draws_itself(value: Any) -> bool:
    """Whether a value is a picture's bytes, or has a method that gives a notebook its picture (Pillow's images have)."""
    if isinstance(value, (bytes, bytearray)):
        return kind_of(bytes(value[:16])) != ""
    # Looked up on the type, since proxies and mocks answer to any attribute.
    return not isinstance(value, type) and any(
        callable(getattr(type(value), name, None)) for name in _METHODS
    )


def bytes_of(value: Any) -> bytes:
    """The bytes of a picture that `draws_itself`; b"" when its method fails or gives none. Never raises."""
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    for name in _METHODS:
        method = getattr(type(value), name, None)
        data: Any = attempt(method, value) if callable(method) else None
        if isinstance(data, tuple) and data:  # (data, metadata)
            data = data[0]
        if isinstance(data, str):
            data = attempt(base64.b64decode, data)
        if isinstance(data, bytes) and kind_of(data):
            return data
    return b""


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
    picture = kind_of(data)
    kind = f"{picture.upper()} image" if picture else "PDF" if data.startswith(b"%PDF-") else ""
    if picture == "png" and len(data) >= 24:
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
    if kind_of(data):  # the beginning of a picture says nothing
        text = f"{kind}, {len(data):,} bytes"
        return text, len(text)
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
