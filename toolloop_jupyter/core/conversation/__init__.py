"""The messages of a conversation: valid at every await, and kept in files."""

from .history import History, alternating, for_request, way_of, with_pictures
from .storage import FORMAT, dump, load, repair

__all__ = [
    "FORMAT",
    "History",
    "alternating",
    "dump",
    "for_request",
    "load",
    "repair",
    "way_of",
    "with_pictures",
]
