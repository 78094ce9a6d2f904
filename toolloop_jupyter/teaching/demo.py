"""The model "toolloop/demo": rules instead of a language model, so that every notebook runs without key or network.

It goes through `litellm.acompletion()` as any model does. It reads the conversation (`conversation.py`), plans the next
tool call by words (`planning.py`), fills arguments and structured answers from schema and text (`filling.py`), and puts
what the tools said into an answer (`answering.py`). The same messages always get the same answer.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from ..core.models import Delta, ProviderRequest
from . import registry
from .answering import answer, story
from .conversation import Conversation, read
from .evidence import Evidence
from .filling import MISSING, Filler
from .material import Material
from .parts import End, Turn, call, parts_of, reasoning, text, words
from .planning import Plan, Planner

PACE = 0.004
"""Seconds a word."""


class DemoModel:
    """The rule-based stand-in. Keeps nothing between calls."""

    def __init__(self, pace: float = PACE) -> None:
        self.pace = pace

    async def respond(self, request: ProviderRequest) -> AsyncIterator[Delta]:
        """Stream a tool call, an answer, or a structured answer."""
        talk = read(request)
        choice = request.options.get("tool_choice")
        tools = [] if choice == "none" or talk.json_now else request.tools
        forced = choice["function"]["name"] if isinstance(choice, Mapping) and not talk.steps else ""
        material = _material(talk, [tool["function"]["name"] for tool in request.tools if "function" in tool])
        plan = Planner(talk, tools, forced).next(material)
        parts, said = _content(
            talk, plan, material, [t["function"]["name"] for t in tools if "function" in t]
        )
        if request.options.get("reasoning_effort") not in (None, "none"):
            parts = [reasoning(_thought(talk, plan)), *parts]
        usage = {"prompt_tokens": registry.count_words(request.messages), "completion_tokens": said}
        turn = Turn(talk.calls + 1, request.messages, self.pace)
        async for delta in turn.play(parts_of([*parts, End(usage=usage)])):
            yield delta
        yield {"finish_reason": "tool_calls" if plan.call else "stop", "usage": usage}


def _content(talk: Conversation, plan: Plan, material: Material, tools: list[str]) -> tuple[list[Any], int]:
    """Return what is said in this model call, and how many words that is."""
    if plan.call:
        arguments = json.dumps(plan.call.arguments, ensure_ascii=False)
        asked = call(plan.call.name, arguments).as_id(f"call_{talk.calls + 1}")
        return [text(plan.call.saying), asked], len(words(plan.call.saying)) + len(words(arguments)) + 1
    if talk.schema is not None:
        said = json.dumps(_structured(talk.schema, material), ensure_ascii=False)
    else:
        said = answer(talk, tools, plan.unfilled)
    return [text(said)], len(words(said))


def _material(talk: Conversation, tools: list[str]) -> Material:
    def evidence(steps: Any) -> tuple[Evidence, ...]:
        return tuple(Evidence(step.result) for step in reversed(steps) if step.kind == "ok")

    earlier = evidence(talk.earlier_steps) + tuple(Evidence(p, tools) for p in reversed(talk.earlier_prompts))
    return Material(
        Evidence(talk.prompt, tools),
        results=evidence(talk.steps),
        earlier=earlier,
        story=story(talk),
        failed=any(step.kind == "error" for step in talk.steps),
    )


def _structured(schema: Mapping[str, Any], material: Material) -> Any:
    filler = Filler(material, schema.get("$defs") or schema.get("definitions") or {}, answering=True)
    value = filler.value(schema, "answer", sure=False)
    return {} if value is MISSING else value


def _thought(talk: Conversation, plan: Plan) -> str:
    if plan.call:
        return f"The words of the prompt fit {plan.call.name}."
    return (
        "There is nothing more to call, so I answer."
        if talk.steps
        else "No tool fits the prompt, so I answer."
    )


_demo = DemoModel()
registry.put("demo", _demo)
