"""The two first mistakes with a real model, in one line each: no key, and a name that LiteLLM cannot place.

LiteLLM (1.110) words them in a paragraph that names six variables, as an `InternalServerError` for one provider and as an
`APIConnectionError` for another.
"""

from __future__ import annotations

import re
import sys
from difflib import get_close_matches

_NO_KEY = re.compile(
    r"Missing credentials|Missing \w+ API key|api_key client option must be set|API key (?:is )?(?:missing|required|not (?:set|found|provided))"
    r"|No API key (?:was )?(?:provided|found|set)|must provide an API key",
    re.IGNORECASE,
)
_VARIABLE = re.compile(r"\b[A-Z][A-Z0-9_]*(?:_API_KEY|_TOKEN)\b")
_NO_PROVIDER = "LLM Provider NOT provided"
_COMMON = (
    "openai",
    "anthropic",
    "gemini",
    "azure",
    "mistral",
    "groq",
    "ollama",
    "openrouter",
    "litellm_proxy",
    "toolloop",
)


def what_is_not_set(model: str, text: str) -> tuple[str, str] | None:
    """(what happened, what to do) for an error text that means one of the two; None for any other.

    `text` is the provider's error. No request has been sent in either case.
    """
    if _NO_PROVIDER in text:
        return f"LiteLLM knows no provider for the model {model!r}.", _other_name(model)
    if _NO_KEY.search(text):
        named = _VARIABLE.search(text)
        variable = named[0] if named else key_name(model)
        return f"There is no key for {model!r}.", (
            f'Set the environment variable {variable}, in a cell: import os, getpass; os.environ["{variable}"] = getpass.getpass() '
            "- or run without a key: --model toolloop/demo"
        )
    return None


def key_name(model: str) -> str:
    """The environment variable that holds the key of this model's provider."""
    return f"{_provider(model).upper()}_API_KEY"


def _provider(model: str) -> str:
    """The provider of a model: what LiteLLM says, also for a name without one ("claude-sonnet-4-5")."""
    if "/" in model:
        return model.split("/", 1)[0]
    litellm = sys.modules.get("litellm")
    facts = getattr(litellm, "model_cost", {}).get(model, {})
    return str(facts.get("litellm_provider") or "openai")


def _other_name(model: str) -> str:
    before, slash, rest = model.partition("/")
    if slash:
        known = {
            str(getattr(one, "value", one))
            for one in getattr(sys.modules.get("litellm"), "provider_list", ())
        }
        near = get_close_matches(before, _COMMON, 1) or get_close_matches(before, sorted(known), 1)
        if near:
            return f"Did you mean {f'{near[0]}/{rest}'!r}?"
        return "The part before the slash names the provider, for example openai/gpt-4o-mini."
    return (
        f"Write provider/name, for example 'openai/{model}' or 'litellm_proxy/{model}'. A ScriptedModel goes by the name of "
        "its variable: run the cell that makes it first."
    )
