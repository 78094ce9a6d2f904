"""Talk to a model through LiteLLM's real `acompletion()`, without this package's loop."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toolloop_jupyter.core.models import ensure, load_litellm
from toolloop_jupyter.core.models.assembly import Assembly

PASSED = {
    "allowed_openai_params": ["context_management", "reasoning_effort", "thinking", "user", "verbosity"]
}
"""LiteLLM 1.110 refuses these for a custom provider unless a call allows them by name."""


async def ask(model: Any, *messages: Any, **options: Any) -> dict[str, Any]:
    """Make one streamed model call. Return the complete message, with "finish_reason" and "usage" in it."""
    name = getattr(model, "model", model)
    ensure(name)
    sent = [
        message if isinstance(message, dict) else {"role": "user", "content": message} for message in messages
    ]
    stream = await load_litellm().acompletion(
        model=name,
        messages=sent or [{"role": "user", "content": "Hi"}],
        stream=True,
        stream_options={"include_usage": True},
        **{**PASSED, **options},
    )
    assembly, usage, finish = Assembly(), None, None
    async for chunk in stream:
        usage = getattr(chunk, "usage", None) or usage
        for choice in chunk.choices:
            assembly.add(choice.delta)
            finish = choice.finish_reason or finish
    return {**assembly.message(), "finish_reason": finish, "usage": usage}


def tool(name: str, description: str, properties: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Return the schema of a tool. A property without a "default" is required."""
    required = [key for key, value in properties.items() if "default" not in value]
    parameters = {"type": "object", "properties": dict(properties), "required": required, **more}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


@dataclass
class Talk:
    """A conversation with a plain loop: calls the functions, sends their texts back, until there is an answer."""

    tools: Sequence[dict[str, Any]]
    functions: Mapping[str, Callable[..., str]]
    model: Any = "toolloop/demo"
    options: dict[str, Any] = field(default_factory=dict)
    messages: list[dict[str, Any]] = field(default_factory=list)
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    async def say(self, prompt: str) -> str:
        """Run a turn, and return the answer. Afterwards, `calls` has the turn's calls."""
        self.messages.append({"role": "user", "content": prompt})
        self.calls = []
        for _ in range(12):
            message = await ask(self.model, *self.messages, tools=list(self.tools) or None, **self.options)
            self.messages.append({k: v for k, v in message.items() if k not in ("finish_reason", "usage")})
            if not message.get("tool_calls"):
                return str(message["content"])
            for call in message["tool_calls"]:
                name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
                self.calls.append((name, arguments))
                result = self.functions[name](**arguments)
                self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        raise AssertionError(f"no answer after 12 model calls: {self.calls}")


def replace_config(session: Any, **changes: Any) -> None:
    """Change the configuration of a session for its next turns."""
    session.config = dataclasses.replace(session.config, **changes)
