"""The messages of a conversation, the files that store them, and the prompt that begins a turn."""

from .history import History, find_picture_place
from .prompt import (
    NameCode,
    Named,
    Prompt,
    Template,
    join_text,
    leave_out_parts,
    read_prompt,
    tell_text,
)
from .storage import FORMAT, dump, load_messages, repair
