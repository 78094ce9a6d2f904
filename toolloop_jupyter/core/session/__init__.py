"""Sessions and the streams of their turns. A session is one conversation, and a stream has the events of one turn.

`AsyncSession` and `AsyncEventStream` are for code with `await`. `Session` and `EventStream` are for code without `await`.
"""

from .keywords import DEFAULTS, Capabilities, Harness, Keywords, build_config, require_tool_loop
from .session import AsyncSession, Pending, Session
from .stream import AsyncEventStream, EventStream, PromptLike
