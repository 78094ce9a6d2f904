"""What a function returned, for the model: a bounded text, and pictures."""

from .images import Way, Wish, addresses, draws_itself, figure_of, kind_of, pictures_in
from .text import LIMIT, cut, describe

__all__ = [
    "LIMIT",
    "Way",
    "Wish",
    "addresses",
    "cut",
    "describe",
    "draws_itself",
    "figure_of",
    "kind_of",
    "pictures_in",
]
