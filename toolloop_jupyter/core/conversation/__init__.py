"""The messages of a conversation: valid at every await; saved to files and loaded."""

from .history import History, add_pictures, find_picture_place
from .storage import FORMAT, dump, load_messages, repair

__all__ = [
    "FORMAT",
    "History",
    "add_pictures",
    "dump",
    "find_picture_place",
    "load_messages",
    "repair",
]
