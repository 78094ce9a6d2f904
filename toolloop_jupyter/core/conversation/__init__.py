"""The messages of a conversation: valid at every await, and kept in files."""

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
