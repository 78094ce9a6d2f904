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
        amap,
        load,
    )
    from .api import map as map  # noqa: A004
    from .core.events import (
        Approval,
        Attachment,
        CapabilityUnsupported,
        Compaction,
        Decision,
        Done,
        Event,
        FileChange,
        HarnessError,
        HarnessInstallFailed,
        HistoryInvalid,
        ModelCallFailed,
        OptionsMismatch,
        OutputInvalid,
        Reasoning,
        Result,
        Retry,
        Row,
        Rows,
        RunFailed,
        SandboxError,
        SessionClosed,
        StateIncompatible,
        Text,
        ToolCall,
        ToolDefinitionError,
        ToolResult,
        Usage,
    )
    from .core.loop import ToolLoopOptions
    from .core.session import (
        AsyncEventStream,
        AsyncSession,
        Capabilities,
        EventStream,
        Harness,
        Session,
    )
    from .core.session import (
        sandbox as sandbox,
    )
    from .core.tools import ToolContext, tool
    from .notebook.live import show

__version__ = "0.1.0"

_HOME = {
    "api": "agent aagent agent_session aagent_session agent_capabilities amap map load",
    "core.events": (
        "Text Reasoning Attachment ToolCall Approval Decision ToolResult FileChange Compaction Retry Done Result Usage Event "
        "HarnessError CapabilityUnsupported OptionsMismatch OutputInvalid SessionClosed SandboxError HistoryInvalid "
        "HarnessInstallFailed StateIncompatible ToolDefinitionError ModelCallFailed RunFailed Row Rows"
    ),
    "core.loop": "ToolLoopOptions",
    "core.session": "Harness Capabilities AsyncSession Session AsyncEventStream EventStream",
    "core.tools": "tool ToolContext",
    "notebook.live": "show",
}
"""Module -> the public names that it defines."""
_OF_OTHERS = frozenset(
    [
        *("State", "ClaudeCodeOptions", "CodexOptions", "DeepAgentsOptions", "OpenCodeOptions", "PiOptions"),
        *("agent_resume", "aagent_resume"),
    ]
)
"""Names of LiteLLM's agent API that this package lacks. They are for other agent runtimes (Claude Code, Codex, …)."""
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
    "Row",
    "Rows",
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
    "amap",
    "load",
    "load_ipython_extension",
    "sandbox",
    "show",
    "tool",
    "unload_ipython_extension",
]


def __getattr__(name: str) -> Any:
    if name == "sandbox":
        return import_module(".core.session.sandbox", __name__)
    if name in _MODULE_OF:
        value = getattr(import_module(f".{_MODULE_OF[name]}", __name__), name)
        globals()[name] = value
        return value
    if name in _OF_OTHERS:
        # `from … import` would replace the message of an AttributeError. It keeps the message of an ImportError.
        raise ImportError(
            f"{name} belongs to another harness of LiteLLM; this package has the Tool Loop only. Import {name} from "
            "litellm.harness. To keep a conversation here, write session.save(path); to continue it, write "
            "agent_session(…, history=load(path))."
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    # "map" is not in `__all__`: with it, `import *` would hide Python's own `map`.
    return sorted([*__all__, "map"])


def load_ipython_extension(shell: InteractiveShell) -> None:
    """`%load_ext toolloop_jupyter`: register `%%toolloop` and `%toolloop` with this shell."""
    from .notebook import magic

    magic.load_extension(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """`%unload_ext toolloop_jupyter`: remove `%%toolloop` and `%toolloop` from this shell."""
    from .notebook import magic

    magic.unload_extension(shell)
