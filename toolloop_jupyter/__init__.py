"""LiteLLM's Tool Loop for notebooks: `%load_ext toolloop_jupyter`, then `%%toolloop`.

The public names below are loaded when they are first used; importing this package imports neither litellm nor
pydantic, and patches nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from .api import (
        aagent,
        aagent_session,
        agent,
        agent_capabilities,
        agent_session,
        load,
    )
    from .core import sandbox
    from .core.attachments import Attachment
    from .core.config import Capabilities, Harness, ToolLoopOptions
    from .core.context import ToolContext
    from .core.errors import (
        CapabilityUnsupported,
        HarnessError,
        HarnessInstallFailed,
        HistoryInvalid,
        ModelCallFailed,
        OptionsMismatch,
        OutputInvalid,
        RunFailed,
        SandboxError,
        SessionClosed,
        StateIncompatible,
        ToolDefinitionError,
    )
    from .core.events import (
        Approval,
        Compaction,
        Decision,
        Done,
        Event,
        FileChange,
        Reasoning,
        Result,
        Retry,
        Text,
        ToolCall,
        ToolResult,
        Usage,
    )
    from .core.session import AsyncSession, Session
    from .core.stream import AsyncEventStream, EventStream
    from .core.tools import tool
    from .notebook.showing import show

__version__ = "0.1.0"

_HOME = {
    "api": "agent aagent agent_session aagent_session agent_capabilities load",
    "core.attachments": "Attachment",
    "core.config": "Harness ToolLoopOptions Capabilities",
    "core.context": "ToolContext",
    "core.errors": (
        "HarnessError CapabilityUnsupported OptionsMismatch OutputInvalid SessionClosed SandboxError HistoryInvalid "
        "HarnessInstallFailed StateIncompatible ToolDefinitionError ModelCallFailed RunFailed"
    ),
    "core.events": (
        "Text Reasoning ToolCall Approval Decision ToolResult FileChange Compaction Retry Done Result Usage Event"
    ),
    "core.session": "AsyncSession Session",
    "core.stream": "AsyncEventStream EventStream",
    "core.tools": "tool",
    "notebook.showing": "show",
}
_OF_OTHERS = frozenset(
    [
        *("State", "ClaudeCodeOptions", "CodexOptions", "DeepAgentsOptions", "OpenCodeOptions", "PiOptions"),
        *("agent_resume", "aagent_resume"),
    ]
)
"""What LiteLLM's agent API has for its other harnesses."""
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names.split()}

__all__ = [
    "Approval",
    "AsyncEventStream",
    "AsyncSession",
    "Attachment",
    "Capabilities",
    "CapabilityUnsupported",
    "Compaction",
    "Decision",
    "Done",
    "Event",
    "EventStream",
    "FileChange",
    "Harness",
    "HarnessError",
    "HarnessInstallFailed",
    "HistoryInvalid",
    "ModelCallFailed",
    "OptionsMismatch",
    "OutputInvalid",
    "Reasoning",
    "Result",
    "Retry",
    "RunFailed",
    "SandboxError",
    "Session",
    "SessionClosed",
    "StateIncompatible",
    "Text",
    "ToolCall",
    "ToolContext",
    "ToolDefinitionError",
    "ToolLoopOptions",
    "ToolResult",
    "Usage",
    "aagent",
    "aagent_session",
    "agent",
    "agent_capabilities",
    "agent_session",
    "load",
    "load_ipython_extension",
    "sandbox",
    "show",
    "tool",
    "unload_ipython_extension",
]


def __getattr__(name: str) -> Any:
    if name == "sandbox":
        return import_module(".core.sandbox", __name__)
    if name in _MODULE_OF:
        value = getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
        globals()[name] = value
        return value
    if name in _OF_OTHERS:
        # ImportError: of an AttributeError, `from … import` would not show the words.
        raise ImportError(
            f"{name} belongs to another harness than the Tool Loop, the one that is here: import it from litellm.harness; "
            "a conversation here is kept by session.save(path) and gone on with by agent_session(…, history=load(path))"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


def load_ipython_extension(shell: InteractiveShell) -> None:
    """`%load_ext toolloop_jupyter`: register `%%toolloop` and `%toolloop` with this shell."""
    from .notebook import magic

    magic.load(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """`%unload_ext toolloop_jupyter`: take everything back out."""
    from .notebook import magic

    magic.unload(shell)
