"""The messages of a conversation, the files that store them, and the prompt that begins a turn."""

from .history import FORMAT, History, dump, find_picture_place, load_messages, repair
from .prompt import NameCode, Named, Prompt, Template, join_text, leave_out_parts, read_prompt, tell_text
