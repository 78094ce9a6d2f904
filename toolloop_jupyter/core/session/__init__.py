"""Sessions and the streams of their turns, for code with `await` and for code without. A session has the turns of one
conversation.
"""

from .options import (
    DEFAULTS,
    Capabilities,
    Harness,
    Keywords,
    build_config,
    require_tool_loop,
)
from .session import AsyncEventStream, AsyncSession, Given
from .sync import EventStream, Pending, Session

__all__ = [
    "DEFAULTS",
    "AsyncEventStream",
    "AsyncSession",
    "Capabilities",
    "EventStream",
    "Given",
    "Harness",
    "Keywords",
    "Pending",
    "Session",
    "build_config",
    "require_tool_loop",
]
