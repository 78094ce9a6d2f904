"""What a model call has cost: as the provider tells it, or by LiteLLM's price list. What nobody knows is None, not $0."""

from __future__ import annotations

from typing import Any

from . import provider
from .deltas import get

REPLAY = "toolloop/replay"
"""Recordings say themselves what their calls have cost, if that was known."""
UNMAPPED = (ValueError, KeyError, TypeError, AttributeError)
"""What LiteLLM's mappings and price list raise for a model or an option that they do not know."""


def is_free(model: str) -> bool:
    """Whether a model costs nothing, whatever comes of its calls: those of ours."""
    return provider.is_ours(model) and not model.startswith(REPLAY)


def told_in_header(hidden: Any) -> float | None:
    """The cost that a gateway tells in `x-litellm-response-cost`, or that LiteLLM has worked out."""
    headers = get(hidden or {}, "additional_headers") or {}
    for value in (headers.get("llm_provider-x-litellm-response-cost"), get(hidden or {}, "response_cost")):
        try:
            cost = float(value or "nan")
        except (TypeError, ValueError):
            continue
        if cost >= 0 and cost != float("inf"):
            return cost
    return None


def priced(litellm: Any, model: str, usage: Any) -> float | None:
    """The cost in US dollars by what the usage itself tells, or by LiteLLM's price list; None where neither knows."""
    told = get(usage, "cost")
    if isinstance(told, int | float) and not isinstance(told, bool):
        return float(told)
    if is_free(model):
        return 0.0
    if usage is None or provider.is_ours(model) or model.startswith("litellm_proxy/"):
        return None
    try:
        name, where, _, _ = litellm.get_llm_provider(model)
    except (litellm.BadRequestError, litellm.NotFoundError, *UNMAPPED):
        return None
    # Asked first: what is not in the price list raises ModelNotMappedError, or comes back as free (1.110).
    if name not in litellm.model_cost and f"{where}/{name}" not in litellm.model_cost:
        return None
    try:
        parts = litellm.cost_per_token(model=name, custom_llm_provider=where, usage_object=usage)
    except (litellm.BadRequestError, litellm.NotFoundError, *UNMAPPED):
        return None
    return float(sum(parts))
