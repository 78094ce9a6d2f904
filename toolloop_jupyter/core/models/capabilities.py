"""Says what a model supports and what its calls cost, by LiteLLM's tables (no network, and no LiteLLM for models in Python)."""

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
"""The names of models that play a recording begin with this. A recording has the cost of its calls, if it was known."""
UNMAPPED = (ValueError, KeyError, TypeError, AttributeError)
"""Errors of LiteLLM's mappings and price list for an unknown model or option."""
_IN_TOOL = frozenset({"anthropic", "bedrock", "bedrock_converse", "gemini", "vertex_ai", "vertex_ai_beta"})
"""The providers that read pictures in a tool's result."""


def takes_response_format(model: str, tools: Sequence[object], response_format: object) -> bool:
    """Return whether the model really takes `response_format`, and can still call the tools.

    LiteLLM's own parameter mapping tells (`get_optional_params`, 1.110, no network): it raises for groq/llama-3.3 and
    cohere, and forces older Claudes to call a hidden `json_tool_call`, so that they could call no other tool. Two facts come
    from the providers, not from LiteLLM: Gemini before 3 refuses JSON answers together with functions, and Ollama's `format`
    constrains the very first token, so that no tool is ever called.
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
    """Return whether the model takes `tool_choice="none"`; LiteLLM's mapping (1.110) raises for Bedrock and some others."""
    if providers.is_ours(model):
        return True
    place = _find_place(model)
    return place is None or _map_options(*place, tools=tools, tool_choice="none") is not None


def _find_place(model: str) -> tuple[str, str] | None:
    """Return (name, provider) of a model, as LiteLLM reads `model`; None if LiteLLM knows no provider for it."""
    litellm = load_litellm()
    try:
        name, where, _, _ = litellm.get_llm_provider(model)
    except (litellm.BadRequestError, litellm.NotFoundError, *UNMAPPED):
        return None
    return name, where


def _map_options(name: str, where: str, **options: object) -> Fields | None:
    """Convert completion options to the provider's form, with LiteLLM; None if LiteLLM refuses them."""
    litellm = load_litellm()
    try:
        mapped: Fields = litellm.get_optional_params(model=name, custom_llm_provider=where, **options)
    except (litellm.BadRequestError, litellm.UnsupportedParamsError, *UNMAPPED):
        return None
    return mapped


_MARKED = frozenset({"anthropic", "azure_ai", "bedrock", "bedrock_converse", "vertex_ai"})
"""Providers whose requests need marks for a prompt cache, if they serve Claude. OpenAI's and Gemini's caches need none."""
_OWN_MARKS = ("enable_prompt_caching", "cache_control_injection_points", "cache_control")
"""Completion options by which users control the cache themselves."""
_POINTS: tuple[Fields, ...] = (
    {"location": "message", "role": "system"},
    {"location": "message", "index": -1},
)
"""Messages that LiteLLM (1.110) marks for `enable_prompt_caching`: the system message (with the tools before it) and the last one."""


def find_cache_marks(
    model: str, given: Mapping[str, object], list_messages: Callable[[], Iterable[Fields]] = list
) -> dict[str, object]:
    """Return the completion options that let a provider cache the beginning of a request; {} if none are needed.

    LiteLLM (1.110) marks the messages of a direct route if it gets `enable_prompt_caching`. A gateway does not take that option
    from its clients. So a gateway gets the marks themselves, if the name of its group has "claude" in it, or if the user
    has set `enable_prompt_caching`. Its LiteLLM passes the marks to the provider or leaves them out. The user's own marks win.
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
    """Return (read, written): the input tokens that were read from and written to the provider's cache; None if unknown.

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
    """Return whether calls of this model cost nothing, even if they fail. True if Python code answers, except for recordings."""
    return providers.is_ours(model) and not model.startswith(REPLAY)


def find_price(model: str, usage: object) -> float | None:
    """The cost in US dollars, from the usage itself or from LiteLLM's price list; None, not 0, if neither tells it."""
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
    # Checked first: for a model that is not in its price list, LiteLLM (1.110) raises ModelNotMappedError, or says 0.
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
    """Return the message in which the model gets pictures that tools return: "tool" or "user"; None if it gets none.

    `wish` "auto" asks LiteLLM's `supports_vision`, which does not know a gateway's groups and private servers; for these,
    "always" says that the model can see. `answers`: the object that answers, if it is Python code; its `takes_images`
    counts instead of `supports_vision`.
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


_SUPPORTS = {
    "pictures": "supports_vision",
    "PDF files": "supports_pdf_input",
    "sound": "supports_audio_input",
}
"""Kind of content in a prompt -> the function of LiteLLM that says whether a model takes this content."""


def find_untaken(model: str, needs: Iterable[str], wish: ImageMode = "auto") -> list[str]:
    """List the items of `needs` ("pictures", "PDF files", "sound") that the model is not known to take in a prompt.

    `wish` "always" means that the model takes all of them, "never" that it takes none. A model that is Python code takes all
    of them, and reads only the text.
    """
    if wish != "auto":
        return [] if wish == "always" else list(needs)
    if providers.is_ours(model):
        return []
    litellm = load_litellm()
    names = {model, model.removeprefix(PROXY)}  # a gateway's group is often named as the model is
    return [
        need
        for need in needs
        if not any(attempt_call(getattr(litellm, _SUPPORTS[need]), name) is True for name in names)
    ]
