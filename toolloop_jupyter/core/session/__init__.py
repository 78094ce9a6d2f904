"""Many turns of one conversation and their streams, from async and from sync code."""

from .options import (
    TOOL_LOOP_CAPABILITIES,
    Capabilities,
    Harness,
    build_config,
    require_tool_loop,
)
from .session import AsyncSession
from .stream import AsyncEventStream, collect
from .sync import EventStream, Pending, Session

__all__ = [
    "TOOL_LOOP_CAPABILITIES",
    "AsyncEventStream",
    "AsyncSession",
    "Capabilities",
    "EventStream",
    "Harness",
    "Pending",
    "Session",
    "build_config",
    "collect",
    "require_tool_loop",
]
