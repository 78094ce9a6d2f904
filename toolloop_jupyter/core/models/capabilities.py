"""Find out what a model supports and what its calls cost.

The facts come from LiteLLM's tables, without access to the network. For a model that is Python code, LiteLLM is not needed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
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
"""The beginning of the name of each model that replays a recording. A replayed call has the recorded cost, if any."""
UNMAPPED = (ValueError, KeyError, TypeError, AttributeError)
"""Errors that LiteLLM raises for a model or an option that is not in LiteLLM's tables."""
_IN_TOOL = frozenset({"anthropic", "bedrock", "bedrock_converse", "gemini", "vertex_ai", "vertex_ai_beta"})
"""The providers that accept pictures in tool messages."""


def takes_response_format(model: str, tools: Sequence[object], response_format: object) -> bool:
    """Return True if the model really supports `response_format`, and can call the tools at the same time.

    LiteLLM's function `get_optional_params` (1.110) shows this, without access to the network. It raises an error for
    groq/llama-3.3 and cohere. For older Claude models, it forces a call of a hidden tool, `json_tool_call`, so these models
    could call no other tool. Two more facts are not in LiteLLM: Gemini before version 3 refuses JSON answers together with
    tools, and Ollama's `format` makes even the first token JSON, so the model never calls a tool.
    """
    if providers.is_ours(model):
        return True
    place = _find_place(model)
    if place is None:
        return True  # the model call will fail, and its error will say what is wrong with the name
    name, where = place
    if tools and (
        where.startswith("ollama") or ("gemini" in name and not re.search(r"gemini-(?:[3-9]|\d\d)", name))
    ):
        return False
    extra = {"tools": tools} if tools else {}
    mapped = _map_options(name, where, response_format=response_format, **extra)
    return mapped is not None and not (tools and "json_tool_call" in str(mapped.get("tool_choice")))


def takes_tool_choice_none(model: str, tools: Sequence[object]) -> bool:
    """Return True if the model supports `tool_choice="none"`. LiteLLM (1.110) raises for Bedrock and some other providers."""
    if providers.is_ours(model):
        return True
    place = _find_place(model)
    return place is None or _map_options(*place, tools=tools, tool_choice="none") is not None


def _find_place(model: str) -> tuple[str, str] | None:
    """Return (the name, the provider) that LiteLLM reads from `model`; None if LiteLLM finds no provider."""
    litellm = load_litellm()
    try:
        name, where, _, _ = litellm.get_llm_provider(model)
    except (litellm.BadRequestError, litellm.NotFoundError, *UNMAPPED):
        return None
    return name, where


def _map_options(name: str, where: str, **options: object) -> Fields | None:
    """Return the completion options in the provider's form, as LiteLLM converts them; None if LiteLLM refuses an option."""
    litellm = load_litellm()
    try:
        mapped: Fields = litellm.get_optional_params(model=name, custom_llm_provider=where, **options)
    except (litellm.BadRequestError, litellm.UnsupportedParamsError, *UNMAPPED):
        return None
    return mapped


_MARKED = frozenset({"anthropic", "azure_ai", "bedrock", "bedrock_converse", "vertex_ai"})
"""Providers that cache prompts for Claude only if the request has cache marks. OpenAI and Gemini cache without marks."""
_OWN_MARKS = ("enable_prompt_caching", "cache_control_injection_points", "cache_control")
"""Completion options with which users control the prompt cache themselves."""
_POINTS: tuple[Fields, ...] = (
    {"location": "message", "role": "system"},
    {"location": "message", "index": -1},
)
"""The messages that LiteLLM (1.110) marks if `enable_prompt_caching` is set: the system message and the last message.

The mark at the system message also covers the tools, which come before it in the request.
"""


def find_cache_marks(
    model: str, given: Mapping[str, object], list_messages: Callable[[], Iterable[Fields]] = list
) -> dict[str, object]:
    """Return the completion options that let a provider cache the beginning of a request; {} if no options are needed.

    Without a gateway, the option is `enable_prompt_caching`: if it is set, LiteLLM (1.110) marks the messages. A gateway
    ignores this option of its clients. So a request to a gateway gets the marks themselves, if the name of the model group
    contains "claude", or if the user has set `enable_prompt_caching`. The gateway passes the marks to the provider or
    removes the marks. If the user has set other cache options or marks, this function returns {}.
    """
    if providers.is_ours(model):
        return {}
    own = [name for name in _OWN_MARKS if given.get(name) is not None]
    if model.startswith(PROXY):
        asked = own == ["enable_prompt_caching"] and given["enable_prompt_caching"] is True
        if not (asked or (not own and "claude" in model.lower())) or any(map(_is_marked, list_messages())):
            return {}
        return {"cache_control_injection_points": [dict(point) for point in _POINTS]}
    place = _find_place(model)
    if own or place is None or place[1] not in _MARKED or "claude" not in place[0].lower():
        return {}
    knows = attempt_call(load_litellm().utils.supports_prompt_caching, place[0], place[1])
    return {"enable_prompt_caching": True} if knows is True else {}


def _is_marked(message: Fields) -> bool:
    content = message.get("content")
    parts = content if isinstance(content, list) else ()
    return any("cache_control" in read_fields(one) for one in (message, *parts))


def read_cached(usage: object) -> tuple[int | None, int | None]:
    """Return (the input tokens read from the provider's cache, the input tokens written to it). None means unknown.

    `usage` has the fields of Anthropic, OpenAI, DeepSeek, or Gemini (in LiteLLM 1.110's form).
    """
    fields = read_fields(usage)
    details = read_fields(fields.get("prompt_tokens_details"))
    read = (
        fields.get("cache_read_input_tokens"),
        details.get("cached_tokens"),
        fields.get("prompt_cache_hit_tokens"),
    )
    written = (
        fields.get("cache_creation_input_tokens"),
        details.get("cache_creation_tokens"),
        details.get("cache_write_tokens"),
    )
    return _first_count(read), _first_count(written)


def _first_count(values: Sequence[object]) -> int | None:
    for value in values:
        if isinstance(value, int) and not isinstance(value, bool):
            return max(0, value)
    return None


def is_free(model: str) -> bool:
    """Return True if no call of this model costs anything, whether it succeeds or fails.

    This is true for a model that is Python code. It is false for a recording: a replayed call has the recorded cost.
    """
    return providers.is_ours(model) and not model.startswith(REPLAY)


def find_price(model: str, usage: object) -> float | None:
    """Return the cost in US dollars, from `usage` itself or from LiteLLM's price list. Unknown costs are None, not 0."""
    told = read_fields(usage).get("cost")
    if isinstance(told, int | float) and not isinstance(told, bool) and 0 <= told < math.inf:
        return float(told)
    if is_free(model):
        return 0.0
    if usage is None or providers.is_ours(model) or model.startswith(PROXY):
        return None
    place = _find_place(model)
    if place is None:
        return None
    (name, where), litellm = place, load_litellm()
    # LiteLLM (1.110) would raise ModelNotMappedError, or return 0, for a model that is not in its price list.
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
    """Return the role of the message with which the model gets a tool's pictures: "tool" or "user"; None for no pictures.

    If `wish` is "auto", LiteLLM's `supports_vision` decides whether the model takes pictures. LiteLLM does not know the
    groups of a gateway and the models of private servers. For these models, `wish` "always" means that the model takes pictures.
    `answers`: the object that answers if the model is Python code. Its `takes_images` decides in place of LiteLLM.
    """
    if wish == "never":
        return None
    if providers.is_ours(model):
        takes = answers.takes_images if answers is not None else False
        return takes if takes in ("tool", "user") else "tool" if takes or wish == "always" else None
    litellm = load_litellm()
    found = attempt_call(litellm.get_llm_provider, model)
    where = "" if isinstance(found, Raised) else str(found[1])
    # A gateway's model group often has the same name as its model.
    known = (attempt_call(litellm.supports_vision, name) for name in {model, model.removeprefix(PROXY)})
    if wish == "auto" and not any(sees is True for sees in known):
        return None
    return "tool" if where in _IN_TOOL else "user"


_SUPPORTS = {
    "pictures": "supports_vision",
    "PDF files": "supports_pdf_input",
    "sound": "supports_audio_input",
}
"""For each kind of content in a prompt: the name of LiteLLM's function that says whether a model takes this content."""


def find_untaken(model: str, needs: Iterable[str], wish: ImageMode = "auto") -> list[str]:
    """Return the items of `needs` ("pictures", "PDF files", "sound") that the model is not known to take in a prompt.

    If `wish` is "always", the model takes all items. If `wish` is "never", the model takes no item. A model that is Python
    code takes all items, but reads only the text of a prompt.
    """
    if wish != "auto":
        return [] if wish == "always" else list(needs)
    if providers.is_ours(model):
        return []
    litellm = load_litellm()
    names = {model, model.removeprefix(PROXY)}  # a gateway's model group often has the same name as its model
    return [
        need
        for need in needs
        if not any(attempt_call(getattr(litellm, _SUPPORTS[need]), name) is True for name in names)
    ]
