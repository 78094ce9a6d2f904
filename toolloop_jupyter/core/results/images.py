"""Find figures and images in a tool's result, describe them in words, and convert them to PNG or JPEG for the model.

To recognise a figure, this module imports no plotting package: the code that made the figure has already imported its package.
"""

from __future__ import annotations

import base64
import importlib.util
import io
import itertools
import struct
import sys
from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

from ..execution import attempt_call

_MOST = 10  # at most this many axes of a figure are listed, and at most this many lines of each of these axes
_MOST_PARTS = 100  # at most this many items of a list or a dict are searched for pictures
_MAGIC = ((b"\x89PNG\r\n\x1a\n", "png"), (b"\xff\xd8\xff", "jpeg"), (b"GIF8", "gif"))
_NEVER_PICTURES = (str, int, float, bool, type(None))
_METHODS = ("_repr_png_", "_repr_jpeg_")
_CONTROLS = frozenset(map(chr, range(32))) - set("\t\n\r\f")

PicturePlace: TypeAlias = Literal["tool", "user"]
"""The message in which a provider reads a tool's pictures: the tool message, or a user message after the tool message."""

MOST_SIDE = 1_200
"""The largest number of pixels on the longer side of a picture that is sent. With more pixels, models would see little more
detail."""
MOST_BYTES = 1_500_000
"""The largest number of bytes of one picture, before it is encoded as base64. Anthropic takes 5 MB of base64."""
MOST_EACH = 4
"""The largest number of pictures that are sent for one result."""
MOST_THUMBNAIL = 100_000
"""The largest number of characters in the data address of a thumbnail. A thumbnail shows a person which picture the model got."""


def detect_format(data: bytes | bytearray) -> str:
    """Return the format of a picture from its first bytes: "png", "jpeg", "gif" or "webp"; "" if `data` is not a picture."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "webp"
    return next((kind for magic, kind in _MAGIC if data.startswith(magic)), "")


def find_figure(value: Any) -> Any:
    """Return the matplotlib figure that contains `value` (axes, a subfigure), or `value` if it is a figure itself; else None."""
    figure, axes = sys.modules.get("matplotlib.figure"), sys.modules.get("matplotlib.axes")
    if figure is None or axes is None or not isinstance(value, (figure.FigureBase, axes.Axes)):
        return None
    while value is not None and not isinstance(value, figure.Figure):
        value = value.figure  # None if the axes were removed from their figure
    return value


def _is_plotly(value: object) -> bool:
    """Return True if `value` is a plotly figure, and plotly can draw it: kaleido is installed."""
    plotly = sys.modules.get("plotly.basedatatypes")
    is_figure = plotly is not None and isinstance(value, plotly.BaseFigure)
    return is_figure and importlib.util.find_spec("kaleido") is not None


def is_drawable(value: object) -> bool:
    """Return True if `value` is a figure, the bytes of a picture, or an object that draws itself, such as an image of Pillow."""
    if isinstance(value, (bytes, bytearray)):
        return detect_format(value[:16]) != ""
    if find_figure(value) is not None or _is_plotly(value):
        return True
    # Methods are looked up on the type, because instances of proxies and mocks seem to have every attribute.
    kind = type(value)
    return not isinstance(value, type) and any(callable(getattr(kind, name, None)) for name in _METHODS)


def read_picture(value: object) -> bytes:
    """Draw `value` (see `is_drawable`), and return the bytes of the picture; b"" if drawing fails. Never raises."""
    data = attempt_call(_draw, value)
    return data if isinstance(data, bytes) else b""


def _draw(value: Any) -> object:
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if (figure := find_figure(value)) is not None:
        buffer = io.BytesIO()
        dpi = min(96.0, MOST_SIDE / max(*figure.get_size_inches(), 0.1))
        figure.savefig(buffer, format="png", dpi=dpi, bbox_inches="tight")
        return buffer.getvalue()
    if _is_plotly(value):
        return value.to_image("png")
    methods = (getattr(type(value), name, None) for name in _METHODS)
    drawn = (decode_picture(attempt_call(method, value)) for method in methods if callable(method))
    return next(filter(None, drawn), b"")


def decode_picture(data: object) -> bytes:
    """Return the bytes of a picture from a display method: bytes, base64 text, or (data, metadata). For other data: b""."""
    if isinstance(data, tuple) and data:
        data = data[0]
    if isinstance(data, str):
        data = attempt_call(base64.b64decode, data + "==")  # some programs leave out the padding
    return bytes(data) if isinstance(data, (bytes, bytearray)) and detect_format(bytes(data)) else b""


def find_pictures(value: object) -> list[object]:
    """Return the parts of `value` that can be drawn: `value` itself, or the items of its lists and dicts, two levels deep. Draws
    none of them. Never raises.
    """
    drawables: dict[int, object] = {}
    if type(value) not in _NEVER_PICTURES:
        attempt_call(_collect, value, drawables, 2)
    return list(drawables.values())


def _collect(value: Any, found: dict[int, object], depth: int) -> None:
    parts: Iterable[object] = ()
    if isinstance(value, dict):
        parts = value.values()
    elif isinstance(value, (list, tuple)):
        parts = value
    elif type(value).__name__ == "ndarray" and value.dtype.hasobject:
        parts = value.flat
    elif is_drawable(value):
        figure = find_figure(value)
        value = value if figure is None else figure
        found.setdefault(id(value), value)
    for part in itertools.islice(parts, _MOST_PARTS if depth else 0):
        _collect(part, found, depth - 1)


def make_addresses(drawables: Iterable[object]) -> tuple[str, ...]:
    """Draw `drawables`, and return the data addresses of at most MOST_EACH pictures. Never raises.

    Drawing takes time. A value that cannot be drawn, or whose picture cannot be made small enough, is left out.
    """
    addresses: dict[str, None] = {}
    for drawable in drawables:
        if len(addresses) == MOST_EACH:
            break
        if data := draw_picture(drawable):
            addresses[make_address(data)] = None
    return tuple(addresses)


def make_address(picture: bytes) -> str:
    """Return the data address of a picture: `data:image/png;base64,…`."""
    return f"data:image/{detect_format(picture)};base64,{base64.b64encode(picture).decode()}"


def draw_picture(drawable: object) -> bytes:
    """Draw `drawable` for the model, as PNG or JPEG within MOST_SIDE and MOST_BYTES; return b"" if this fails. Never raises."""
    data = attempt_call(_fit, read_picture(drawable))
    return data if isinstance(data, bytes) else b""


def _fit(data: bytes) -> bytes:
    is_sent_so = detect_format(data) in ("png", "jpeg") and len(data) <= MOST_BYTES  # Gemini takes no GIF
    try:
        from PIL import Image  # matplotlib installs Pillow; without Pillow, no picture can be made smaller
    except ImportError:
        return data if is_sent_so else b""
    if is_sent_so and max(Image.open(io.BytesIO(data)).size) <= MOST_SIDE:
        return data
    return _shrink(data, MOST_BYTES, ((MOST_SIDE, "PNG", 0), (MOST_SIDE, "JPEG", 75)))


def make_thumbnail(picture: bytes) -> str:
    """Return the data address of a small copy of `picture`, at most MOST_THUMBNAIL characters; "" if this fails. Never raises."""
    most = (MOST_THUMBNAIL - 40) * 3 // 4
    if len(picture) <= most and detect_format(picture) in ("png", "jpeg"):
        return make_address(picture)
    made = attempt_call(_shrink, picture, most, ((800, "JPEG", 85), (480, "JPEG", 80), (240, "JPEG", 60)))
    return make_address(made) if isinstance(made, bytes) and made else ""


def _shrink(picture: bytes, most: int, tries: Iterable[tuple[int, str, int]]) -> bytes:
    """Try each form (side, format, quality) of `tries`. Return the first result within `most` bytes; b"" if there is none."""
    from PIL import Image

    image: Any = Image.open(io.BytesIO(picture))
    image.draft("RGB", (MOST_SIDE, MOST_SIDE))  # a large JPEG is decoded at a smaller size, to save memory
    image = image.convert("RGBA")
    for side, form, quality in tries:
        image.thumbnail((side, side))
        page = image
        if form == "JPEG":
            page = Image.new("RGB", image.size, "white")
            page.paste(image, mask=image.getchannel("A"))
        buffer = io.BytesIO()
        page.save(buffer, form, quality=quality)
        if buffer.tell() <= most:
            return buffer.getvalue()
    return b""


def measure_picture(picture: bytes) -> str:
    """Describe a picture: "PNG picture, 640 × 480, 24 kB". Without Pillow, the width and height are known only for a PNG."""
    size = attempt_call(_read_size, picture)
    pixels = f", {size}" if isinstance(size, str) else ""
    return f"{detect_format(picture).upper()} picture{pixels}, {len(picture) / 1000:,.0f} kB".strip()


def _read_size(picture: bytes) -> str:
    if detect_format(picture) == "png":
        width, height = struct.unpack(">II", picture[16:24])
    else:
        from PIL import Image

        width, height = Image.open(io.BytesIO(picture)).size
    return f"{width} × {height}"


def describe_picture(value: object, limit: int) -> tuple[str, int] | None:
    """Return (the description, the length of the full description) for a figure, an image or bytes; None for other values."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _describe_bytes(bytes(value), limit)
    figure, axes = sys.modules.get("matplotlib.figure"), sys.modules.get("matplotlib.axes")
    image = sys.modules.get("PIL.Image")
    if figure is not None and isinstance(value, figure.FigureBase):
        width, height = (round(side) for side in value.bbox.size)
        title = value.get_suptitle() if hasattr(value, "get_suptitle") else ""  # from matplotlib 3.8 on
        text = f"matplotlib figure{f' {title!r}' if title else ''}, {width} × {height} pixels, with {len(value.axes)} axes"
        text = "\n- ".join([text, *map(_describe_axes, value.axes[:_MOST])])
    elif axes is not None and isinstance(value, axes.Axes):
        text = f"matplotlib axes: {_describe_axes(value)}"
    elif image is not None and isinstance(value, image.Image):
        text = f"image, {value.width} × {value.height} pixels, mode {value.mode}"
    else:
        return None
    return text, len(text)


def _describe_bytes(data: bytes, limit: int) -> tuple[str, int]:
    """Describe `data`: a picture by its format, a UTF-8 text by its whole content, other data by its first bytes."""
    text = f"{len(data):,} bytes"
    if kind := detect_format(data):
        size = attempt_call(_read_size, data) if kind == "png" else None
        text = f"{kind.upper()} image{f' of {size} pixels' if isinstance(size, str) else ''}, {text}"
    if kind or not data:
        return text, len(text)
    decoded = attempt_call(data.decode)
    if isinstance(decoded, str) and not set(decoded) & _CONTROLS:
        text = f"{text}, as UTF-8 text:\n{decoded}"
        return text, len(text)
    shown = data[: max(8, min(64, limit // 8))]
    text += f"{', beginning' if len(shown) < len(data) else ''}: {shown.hex(' ')}"
    return text, len(text) + 3 * (len(data) - len(shown))


def _describe_axes(axes: Any) -> str:
    """Describe axes: matplotlib's `repr`, the ranges of x and y, the first lines, and the number of other elements."""
    ranges = zip("xy", (axes.get_xlim(), axes.get_ylim()), strict=True)
    parts = [repr(axes), *(f"{name} from {least:.6g} to {most:.6g}" for name, (least, most) in ranges)]
    parts += map(str, axes.lines[:_MOST])
    others = {"more lines": axes.lines[_MOST:], "patches (bars, areas)": axes.patches}
    others |= {"collections (points, areas)": axes.collections, "images": axes.images}
    return "; ".join([*parts, *(f"{len(drawn)} {what}" for what, drawn in others.items() if len(drawn))])
