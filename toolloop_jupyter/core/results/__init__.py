"""What a function returned, for the model: a bounded text, and pictures."""

from .images import (
    ImageMode,
    PicturePlace,
    detect_format,
    find_figure,
    find_pictures,
    is_drawable,
    make_addresses,
)
from .text import LIMIT, cut, describe

__all__ = [
    "LIMIT",
    "ImageMode",
    "PicturePlace",
    "cut",
    "describe",
    "detect_format",
    "find_figure",
    "find_pictures",
    "is_drawable",
    "make_addresses",
]
