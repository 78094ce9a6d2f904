"""The models "toolloop/NAME": name -> the Python object that answers.

An import of this module makes the models available, and does not import LiteLLM. When no variable refers to a ScriptedModel any
more, the model and its name disappear.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import AsyncIterator
from difflib import get_close_matches

from ..core.events import DEMO_MODEL, OWN_MODELS
from ..core.models import Answers, Delta, ProviderError, ProviderRequest, ensure, provide

_named: weakref.WeakValueDictionary[str, Answers] = weakref.WeakValueDictionary()


def put(name: str, answers: Answers) -> str:
    """Register `answers` as the model "toolloop/NAME" for as long as this object exists, and return the full name.

    If the name is taken, the new object replaces the old one, as when a cell runs again. Raises ValueError for a name with
    characters other than letters, digits, "-", "_" and ".", and for the demonstration model's name.
    """
    if not re.fullmatch(r"[\w.-]+", name):
        raise ValueError(
            f"a model's name can only have letters, digits, '-', '_' and '.', not {name!r}; e.g. 'lesson-1'"
        )
    model = f"{OWN_MODELS}{name}"
    if model == DEMO_MODEL and model in _named:
        raise ValueError(f"{model!r} is the demonstration model; choose another name")
    _named[model] = answers
    return model


def respond(request: ProviderRequest) -> AsyncIterator[Delta]:
    """Pass `request` on to the object that is registered for the model. Raises ProviderError (404) if there is none."""
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
    """Make `litellm.acompletion(model="toolloop/…")` work, and return `model`. Imports LiteLLM.

    Only code that calls LiteLLM itself needs this function: a run of this package calls these models directly.
    """
    ensure(model)
    return model


provide(OWN_MODELS.rstrip("/"), respond)
