"""Models for lessons and tests: scripted models, recordings, and the demonstration model.

An import of this package makes the models "toolloop/…" available. These models work without LiteLLM. Only `use_with_litellm`
imports LiteLLM.
"""

from ..core.events import ANY, DEMO_MODEL
from .demo import DemoModel
from .recording import Recorder, Replay, ReplayMismatch
from .registry import use_with_litellm
from .scripted import (
    ModelOfRow,
    ScriptedModel,
    ScriptError,
    call,
    deltas,
    end,
    error,
    expect,
    pause,
    reasoning,
    reply_with,
    text,
)
from .tape import RecordingError

__all__ = [
    "ANY",
    "DEMO_MODEL",
    "DemoModel",
    "ModelOfRow",
    "Recorder",
    "RecordingError",
    "Replay",
    "ReplayMismatch",
    "ScriptError",
    "ScriptedModel",
    "call",
    "deltas",
    "end",
    "error",
    "expect",
    "pause",
    "reasoning",
    "reply_with",
    "text",
    "use_with_litellm",
]
