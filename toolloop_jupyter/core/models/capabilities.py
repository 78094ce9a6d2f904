"""What a model supports, and what its calls cost, by LiteLLM's own tables (no network). Models of ours need no LiteLLM."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..events import Fields, read_fields
from ..execution import Raised, attempt_call
from . import providers
from .client import load_litellm
from .options import PROXY

if TYPE_CHECKING:
    from ..events import ImageMode
    from ..results import PicturePlace

REPLAY = "toolloop/replay"
"""The beginning of the names of recordings. A recording tells the cost of its calls, if that was known."""
UNMAPPED = (ValueError, KeyError, TypeError, AttributeError)
"""Errors of LiteLLM's mappings and price list for an unknown model or option."""
_IN_TOOL = frozenset({"anthropic", "bedrock", "bedrock_converse", "gemini", "vertex_ai", "vertex_ai_beta"})
"""The providers that read pictures in a tool's result."""


def takes_response_format(model: str, tools: Sequence[object], response_format: object) -> bool:
    """Whether the model really takes `response_format`, and can still call the tools.

    LiteLLM's own parameter mapping tells (`get_optional_params`, 1.110, no network): it raises for groq/llama-3.3 and
    cohere, and forces older Claudes to call a hidden `json_tool_call`, so that they could call no other tool. Two facts come
    from the providers, not from LiteLLM: Gemini before 3 refuses JSON answers together with functions, and Ollama's `format`
    constrains the very first token, so that no tool is ever called.
    """
    if providers.is_ours(model):
        return True
    place = _find_place(model)
    if place is None:
        return True  # the call itself will say what is wrong with the name
    name, where = place
    if tools and (
        where.startswith("ollama") or ("gemini" in name and not re.search(r"gemini-(?:[3-9]|\d\d)", name))
    ):
        return False
    extra = {"tools": tools} if tools else {}
    mapped = _map_options(name, where, response_format=response_format, **extra)
    return mapped is not None and not (tools and "json_tool_call" in str(mapped.get("tool_choice")))


def takes_tool_choice_none(model: str, tools: Sequence[object]) -> bool:
    """Whether the model takes `tool_choice="none"`; LiteLLM's mapping (1.110) raises for Bedrock and some others."""
    if providers.is_ours(model):
        return True
    place = _find_place(model)
    return place is None or _map_options(*place, tools=tools, tool_choice="none") is not None


def _find_place(model: str) -> tuple[str, str] | None:
    """(name, provider) of a model, as LiteLLM reads its name; None if LiteLLM knows no provider for it."""
    litellm = load_litellm()
    try:
        name, where, _, _ = litellm.get_llm_provider(model)
    except (litellm.BadRequestError, litellm.NotFoundError, *UNMAPPED):
        return None
    return name, where


def _map_options(name: str, where: str, **options: object) -> Fields | None:
    """What LiteLLM makes of completion options for a provider; None when it refuses them."""
    litellm = load_litellm()
    try:
        mapped: Fields = litellm.get_optional_params(model=name, custom_llm_provider=where, **options)
    except (litellm.BadRequestError, litellm.UnsupportedParamsError, *UNMAPPED):
        return None
    return mapped


def is_free(model: str) -> bool:
    """Whether calls of this model cost nothing, even failed ones. True for our models, except recordings."""
    return providers.is_ours(model) and not model.startswith(REPLAY)


def find_price(model: str, usage: object) -> float | None:
    """The cost in US dollars, from the usage itself or from LiteLLM's price list; None, not 0, if neither tells it."""
    told = read_fields(usage).get("cost")
    if isinstance(told, int | float) and not isinstance(told, bool):
        return float(told)
    if is_free(model):
        return 0.0
    if usage is None or providers.is_ours(model) or model.startswith(PROXY):
        return None
    place = _find_place(model)
    if place is None:
        return None
    (name, where), litellm = place, load_litellm()
    # Checked first: a model that is not in the price list raises ModelNotMappedError, or counts as free (1.110).
    if name not in litellm.model_cost and f"{where}/{name}" not in litellm.model_cost:
        return None
    try:
        parts = litellm.cost_per_token(model=name, custom_llm_provider=where, usage_object=usage)
    except (litellm.BadRequestError, litellm.NotFoundError, *UNMAPPED):
        return None
    return float(sum(parts))


def choose_picture_place(
    model: str, wish: ImageMode = "auto", answers: providers.Answers | None = None
) -> PicturePlace | None:
    """Where this model's provider reads pictures of results; None if the model gets none.

    `wish` "auto" asks LiteLLM's `supports_vision`, which does not know gateway groups and servers of one's own; for these,
    "always" says that the model can see. `answers` is the object behind a model of ours: its `takes_images` is True, False
    or the place.
    """
    if wish == "never":
        return None
    if providers.is_ours(model):
        takes = answers.takes_images if answers is not None else False
        return takes if takes in ("tool", "user") else "tool" if takes or wish == "always" else None
    litellm = load_litellm()
    found = attempt_call(litellm.get_llm_provider, model)
    where = "" if isinstance(found, Raised) else str(found[1])
    # A gateway's group is often named as the model is.
    known = (attempt_call(litellm.supports_vision, name) for name in {model, model.removeprefix(PROXY)})
    if wish == "auto" and not any(sees is True for sees in known):
        return None
    return "tool" if where in _IN_TOOL else "user"
