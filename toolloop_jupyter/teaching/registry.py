"""The models "toolloop/NAME": a map from names to the Python objects that answer.

Importing this module makes the models available (`core/models/providers.py`); it does not import LiteLLM. The map has weak
references to its objects: when no variable refers to a ScriptedModel any more, the model and its name are gone.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import AsyncIterator, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from ..core.models import Answers, Delta, ProviderError, ProviderRequest, ensure, provide

PROVIDER = "toolloop"
DEMO_MODEL = f"{PROVIDER}/demo"


_named: weakref.WeakValueDictionary[str, Answers] = weakref.WeakValueDictionary()


def put(name: str, answers: Answers) -> str:
    """Let the object `answers` answer the calls of "toolloop/`name`" as long as the object exists. Returns that whole name.

    If another object has the name already, the new object gets it: the cell that makes the object may run again.
    """
    if not re.fullmatch(r"[\w.-]+", name):
        raise ValueError(
            f"a model's name can only have letters, digits, '-', '_' and '.', not {name!r}; e.g. 'lesson-1'"
        )
    model = f"{PROVIDER}/{name}"
    if model == DEMO_MODEL and model in _named:
        raise ValueError(f"{model!r} is the demonstration model; choose another name")
    _named[model] = answers
    return model


def respond(request: ProviderRequest) -> AsyncIterator[Delta]:
    """Let the object that has the model's name answer `request`. Raises ProviderError (404) if no object has it."""
    answers = _named.get(request.model)
    if answers is None:
        names = sorted(_named)
        near = get_close_matches(request.model, names, 1)
        advice = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}."
        if "/scripted-" in request.model or "/replay-" in request.model:
            advice = "it is gone: keep the ScriptedModel or Replay in a variable while it is used."
        raise ProviderError(f"no model {request.model!r} in this process; {advice}", 404)
    return answers.respond(request)


def use_with_litellm(model: str = DEMO_MODEL) -> str:
    """Let plain `litellm.acompletion(model="toolloop/…")` work too, and return `model`. Imports LiteLLM.

    A run of this package does not need this: it asks our models directly. If LiteLLM is loaded, the run does this itself.
    """
    ensure(model)
    return model


def count_words(messages: Iterable[Mapping[str, Any]]) -> int:
    """Count the words in messages' texts and arguments, and one for each message. Our models report the sum as their tokens."""
    total = 0
    for message in messages:
        content = message.get("content")
        texts = (
            [content] if isinstance(content, str) else [str(part.get("text", "")) for part in content or ()]
        )
        texts += [str(call["function"].get("arguments") or "") for call in message.get("tool_calls") or ()]
        total += 1 + sum(len(text.split()) for text in texts)
    return total


provide(PROVIDER, respond)
