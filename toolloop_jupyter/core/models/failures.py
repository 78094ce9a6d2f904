"""Provider errors in one line that says what to set, without a key in it."""

from __future__ import annotations

import logging
import re
import sys
import traceback
from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING

from ..execution import describe_error, get_message
from ..text import (
    TooManyCalls,
    find_environment_keys,
    find_keys,
    hide,
    hide_suspected,
    plain,
)
from .providers import PlainRefusal, is_ours

if TYPE_CHECKING:
    from ..events import Request


_BY_STATUS = {
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    429: "RateLimitError",
}
MOST = 600
"""Characters of a provider's own error text that are shown."""


def redact(text: str, secrets: Iterable[object] = ()) -> str:
    """A provider's text without keys: those of runs, `secrets`, those of the environment, and whatever looks like one."""
    return hide_suspected(text, (*map(str, secrets), *find_environment_keys()))


def secrets_of(request: Request) -> list[object]:
    """Every text among the request's secrets that must not be seen; the gateway's tags are none."""
    return [text for name, value in request.secrets.items() for text in find_keys(name, value)]


_REFUSED = ("AuthenticationError", "PermissionDeniedError")
_UNREACHED = ("APIConnectionError", "ConnectError")
_BEHIND = re.compile(r"model group '|(?<!Litellm_proxy)Exception - ")
"""What is in a gateway's error (1.106 to 1.110) when it quotes the provider behind it."""
_BAD_KEY = re.compile(r"control character|[Ii]llegal header value|Invalid header value|codec can't encode")


def _behind_gateway(kind: str, text: str) -> str:
    """What to do about an error of the provider behind a gateway, where that is not the same as without one."""
    if kind in _REFUSED:
        return "That is the gateway's own key at the provider behind it: whoever runs the gateway has to renew it."
    if kind == "NotFoundError":
        return "That is the model behind this group: whoever runs the gateway has to correct its name."
    if kind in _UNREACHED or "Connection error" in text:
        return (
            "The gateway lost the provider behind it: run again, or --set num_retries=2 to retry by itself."
        )
    return ""


def _not_sent(text: str, request: Request) -> str:
    """What is wrong with an address or a key with which nothing could be sent, or ""."""
    if "://" not in (base := _base(request) or "://"):
        return f"The address {base!r} has no http:// or https:// in front: set api_base to 'http://{base}' or 'https://{base}'."
    if _BAD_KEY.search(text):
        return "The key, or a header, holds a line break or another character that cannot be sent: copy it again."
    return ""


def _advice(kind: str, text: str, request: Request) -> str:
    """What to set or try, by the class of the error (LiteLLM's names) and its text."""
    model, gateway = request.model, request.model.startswith("litellm_proxy/")
    if is_ours(model):
        return ""  # these models say themselves what to do
    if not_sent := _not_sent(text, request):
        return not_sent
    if gateway and _BEHIND.search(text) and (behind := _behind_gateway(kind, text)):
        return behind
    if gateway and kind == "NotFoundError" and text.endswith(("Error code: 404", "Not Found")):
        return (
            f"There is no gateway at {_host(request)}: api_base is its address without a path, or with /v1."
        )
    if gateway and (kind in _REFUSED or "No connected db" in text):
        return "The gateway refused the key: set LITELLM_PROXY_API_KEY (or api_key=) to a virtual key that may use it."
    if kind == "AuthenticationError":
        return f"Set the provider's key: api_key=, or the environment variable {key_name(model)}."
    if kind == "PermissionDeniedError":
        return f"The key may not use {model!r}: pick another model or key."
    if kind == "BadRequestError" and "/" not in model:
        return f"Write the model as provider/name, for example 'openai/{model}' or 'litellm_proxy/{model}'."
    if kind == "NotFoundError" or "Invalid model name" in text or "model_not_found" in text:
        where = "group on the gateway" if gateway else "model of that provider"
        return f"There is no such {where}: check the name {model!r}" + (
            " and api_base." if not gateway else "."
        )
    if kind in _UNREACHED or "Connection error" in text or "Cannot connect" in text:
        return f"Could not reach {_host(request)}: is it running, is the address right, is there a network?"
    if kind in ("Timeout", "APITimeoutError"):
        return "The provider did not answer in time: try again, or --set timeout=SECONDS for the model call."
    if kind == "RateLimitError":
        return "Rate limit: wait and run again, or --set num_retries=3 to wait and retry by itself."
    if kind == "ContextWindowExceededError":
        return "The conversation is too long for this model: start a new session, or return shorter tool results."
    if (
        kind == "ContentPolicyViolationError"
        or "content management policy" in text
        or "content_filter" in text
    ):
        return "The provider's content filter refused the request: rephrase the prompt."
    if kind in (
        "InternalServerError",
        "ServiceUnavailableError",
        "BadGatewayError",
        "MidStreamFallbackError",
        "StreamCut",
    ):
        return "The provider failed: run again, or --set num_retries=2 to retry by itself."
    return ""


def _base(request: Request) -> str:
    told = (one.get(name) for one in (request.options, request.secrets) for name in ("api_base", "base_url"))
    return next((str(base) for base in told if base), "")


def _host(request: Request) -> str:
    base = _base(request)
    return repr(redact(base, secrets_of(request))) if base else f"the provider of {request.model!r}"


def explain(error: BaseException, request: Request) -> tuple[str, str]:
    """(what happened, what to do) for an error of a model call: each one line, but for what our own models say."""
    if said := _said_by_ours(error):
        return redact(plain(said), secrets_of(request)), ""
    if isinstance(error, TooManyCalls):
        return str(error), "Run again, or ask for less at once."
    original = getattr(error, "original_exception", None)
    kind = type(error).__name__
    text = redact(plain(get_message(error)), secrets_of(request))
    if unset := what_is_not_set(request.model, text):
        return unset
    for prefix in (f"litellm.{kind}: ", f"{kind}: "):
        text = text.replace(prefix, "")
    text = " ".join(text.split("Traceback (most recent call last)")[0].split())
    short = text if len(text) <= MOST else text[:MOST] + " …"
    if kind == "StreamCut" or (kind == "MidStreamFallbackError" and original is not None):
        cause = type(original or error).__name__
        happened = f"the connection broke in the middle of the answer ({cause}): {_said_once(short)}"
        broke = cause in ("StreamCut", "APIConnectionError", "RemoteProtocolError", "ReadError")
        return happened, _advice("MidStreamFallbackError" if broke else cause, "" if broke else text, request)
    status = getattr(error, "status_code", None)
    if kind == "APIError" and status in _BY_STATUS:  # what LiteLLM has no class for, with some providers
        kind = _BY_STATUS[status]
    return f"{kind}: {short}", _advice(kind, text, request)


def log_unexpected(error: BaseException) -> str:
    """One line for an error of a turn that is nobody's to expect; its traceback goes to the log. Both without keys."""
    told = hide("".join(traceback.format_exception(error)))
    logging.getLogger(__name__).error("a turn ended in an error that nobody expected\n%s", told)
    return hide(describe_error(error))


def _said_by_ours(error: BaseException | None) -> str:
    """What a ScriptedModel or a Replay has to say to the person, as it was written, or ""."""
    for _ in range(8):
        if isinstance(error, PlainRefusal):
            return str(error)
        error = getattr(error, "__cause__", None) or getattr(error, "__context__", None)
    return ""


def _said_once(text: str) -> str:
    """LiteLLM's error of a broken stream says everything twice: as itself and as its "Original exception"."""
    return text.split(" Original exception: ", maxsplit=1)[0]


# --- The two first mistakes with a real model, in one line each: no key, and a name that LiteLLM cannot place. ---
#
# LiteLLM (1.110) words them in a paragraph that names six variables, as an `InternalServerError` for one provider and as an
# `APIConnectionError` for another.

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
