"""Provider errors in one line that says what to set, without a key in it."""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .bounds import TooManyCalls
from .cleaning import plain
from .foreign import message_of, words_of
from .hiding import find_environment_keys, find_keys, hide, hide_suspected
from .provider import PlainRefusal, is_ours
from .unset import key_name, what_is_not_set

if TYPE_CHECKING:
    from .model import Request

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
    text = redact(plain(message_of(error)), secrets_of(request))
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
    return hide(words_of(error))


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
