"""A tool's value as the model gets it: a bounded text, and pictures."""

from .images import (
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
    "PicturePlace",
    "cut",
    "describe",
    "detect_format",
    "find_figure",
    "find_pictures",
    "is_drawable",
    "make_addresses",
]
