"""Errors of model calls: whether another try may help, and one line that says what to set. The line contains no API key.

The errors are LiteLLM's, or those of models that are Python code. LiteLLM's are recognised by the names of their classes, so
that LiteLLM need not be loaded.
"""

from __future__ import annotations

import logging
import re
import sys
import traceback
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING

from ..execution import Raised, attempt_call, describe_error, get_message
from ..text import TooManyCalls, find_environment_keys, find_keys, hide, hide_suspected, plain
from .options import PROXY
from .providers import EXCEPTIONS, AnswerBroken, PlainRefusal, ProviderError, is_ours

if TYPE_CHECKING:
    from ..events import Request


CLEAN_END = "Stream ended before a finish_reason was received"
"""How LiteLLM words the end of a stream that sent no finish_reason."""
LONGEST_WAIT = 60.0
"""Seconds. If a provider asks for a longer wait, it is asked again after this time."""
_FINAL = frozenset({400, 401, 402, 403, 404, 405, 413, 422})
"""Statuses of refusals that another try would get again."""
_FINAL_KINDS = frozenset({"BadRequestError", "AuthenticationError", "NotFoundError"})
_NEVER_SENT = re.compile(
    "ConnectError|ConnectTimeout|PoolTimeout|UnsupportedProtocol|ClientConnectorError|ConnectionRefusedError|gaierror"
)
"""Errors of HTTP clients before a request has gone out."""
_WENT_OUT = re.compile(
    "ReadError|ReadTimeout|RemoteProtocolError|WriteError|ServerDisconnectedError|ClientOSError|ClientPayloadError"
)
"""Errors of HTTP clients after a request has gone out."""
_REFUSALS = frozenset({401, 403, 404, 429})
MOST = 600
"""Characters of a provider's own error text that are shown."""
MOST_READ = 20_000
"""Characters of such a text that are read at all, since a server may answer with megabytes."""


_NO_STREAM = (r"\bstream", r"\bnot\b|n't|cannot|unsupported|disable|must be verified")
_BESIDE_TOOLS = re.compile("tool|function")
_AT_ALL = re.compile("support|allow|availab|enabl|implement|disable|must be verified to stream")
"""Words, in lower case, in the errors of servers that do not stream, or not together with tools (llama.cpp, older gateways,
OpenAI for organizations that it has not verified)."""
_BUSY = frozenset({408, 429, 502, 503, 504})
"""Statuses of servers that are busy; they say nothing about what the server supports."""


class StreamCut(Exception):
    """A stream that ended, without an error, in the middle of a tool call."""


def read_retry_after(error: BaseException) -> float | None:
    """Seconds that the provider asks to wait (`Retry-After`, also in ms as OpenAI sends it), at most `LONGEST_WAIT`."""
    if isinstance(error, ProviderError):
        headers: Mapping[str, str] = error.headers
    else:
        headers = getattr(getattr(error, "response", None), "headers", None) or {}
        headers = getattr(error, "litellm_response_headers", None) or headers
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name) or "nan") * unit
        except (TypeError, ValueError):  # a date: nobody sends one
            continue
        if seconds >= 0:
            return min(seconds, LONGEST_WAIT)
    return None


def read_status(error: BaseException) -> int | None:
    """The HTTP status of the answer to a request; None if there was no answer."""
    status = error.status if isinstance(error, ProviderError) else getattr(error, "status_code", None)
    return status if isinstance(status, int) else None


def is_cut(error: BaseException) -> bool:
    """Return whether the server may have worked on a request without an answer: after a timeout, or a broken connection.

    False for a request that was refused, or for which there was no connection at all. LiteLLM (1.110) has one class for both
    kinds of failed connections; the cause (an error of httpx, requests or aiohttp) tells which it is.
    """
    if isinstance(error, ProviderError):
        return error.kind == "Timeout"
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in causes:
        causes.append(cause)
        cause = getattr(cause, "original_exception", None) or cause.__cause__ or cause.__context__
    names = {name for each in causes for name in _list_class_names(each)}
    went_out = "Timeout" in _list_class_names(error) or any(map(_WENT_OUT.fullmatch, names))
    return went_out and not any(map(_NEVER_SENT.fullmatch, names))


def is_final(error: BaseException) -> bool:
    """Return whether another try would fail, too, since the request itself is refused (perhaps in the middle of the stream)."""
    cause = getattr(error, "original_exception", None) or error
    if isinstance(cause, ProviderError):
        return cause.is_final
    return getattr(cause, "status_code", None) in _FINAL or bool(_FINAL_KINDS & _list_class_names(cause))


_STREAM_OPTIONS = re.compile(r"stream[_ -]?options?\b|include_?usage")


def find_refused_option(error: BaseException, sent: Mapping[str, object]) -> str:
    """The key of `call._WITHOUT` for the streaming option that the server has refused; "" for any other error."""
    if isinstance(error, ProviderError) or not isinstance(getattr(error, "status_code", None), int):
        return ""
    text = _read_text(error).lower()
    if "stream_options" in sent and _STREAM_OPTIONS.search(text):
        return "stream_options"
    if not (sent.get("stream") and all(re.search(words, text) for words in _NO_STREAM)):
        return ""
    if _BESIDE_TOOLS.search(text):
        return "stream" if "tools" in sent else ""
    return "any stream" if _AT_ALL.search(text) and error.status_code not in _BUSY else ""  # type: ignore[attr-defined]


def _read_text(error: BaseException) -> str:
    """Return an error's text; if it is long, only its beginning and its end."""
    text, half = get_message(error), MOST_READ // 2
    return text if len(text) <= MOST_READ else f"{text[:half]} … {text[-half:]}"


def _list_class_names(error: BaseException) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__}


def _get_kind(error: BaseException) -> str:
    """The name of the error's class; for a ProviderError, the name of LiteLLM's class for it."""
    return error.kind if isinstance(error, ProviderError) else type(error).__name__


def redact(text: str, secrets: Iterable[object] = ()) -> str:
    """Hide API keys in a provider's text: those of runs, of `secrets`, of the environment, and texts that look like keys."""
    return hide_suspected(text, (*map(str, secrets), *find_environment_keys()))


def list_secrets(request: Request) -> list[object]:
    """The texts in the request's secrets that must not be shown. The gateway's tags, which are in them, may be shown."""
    return [text for name, value in request.secrets.items() for text in find_keys(name, value)]


_REFUSED = ("AuthenticationError", "PermissionDeniedError")
_UNREACHED = ("APIConnectionError", "ConnectError")
_UNREACHED_ADVICE = "Is it running, is the address right, is there a network?"
_RETRY = "let it be tried again: completion_kwargs={'num_retries': 2}"
_SERVER_FAILED = re.compile(
    "InternalServerError|ServiceUnavailableError|BadGatewayError|MidStreamFallbackError|StreamCut"
)
_BEHIND = re.compile(r"model group '|(?<!Litellm_proxy)Exception - ")
"""Words in a gateway's error (1.106 to 1.110) that quotes an error of the provider behind the gateway."""
_BAD_KEY = re.compile(r"control character|[Ii]llegal header value|Invalid header value|codec can't encode")


def _advise_behind_gateway(kind: str, text: str, request: Request) -> str:
    """Advise on an error of the provider behind a gateway, if a gateway makes the advice different; else return ""."""
    if not request.model.startswith(PROXY) or not _BEHIND.search(text):
        return ""
    if kind in _REFUSED:
        return "That is the gateway's own key at the provider behind it: whoever runs the gateway has to renew it."
    if kind == "NotFoundError":
        return "That is the model behind this group: whoever runs the gateway has to correct its name."
    if kind in _UNREACHED or "Connection error" in text:
        return f"The gateway lost the provider behind it: run again, or {_RETRY}."
    return ""


def _explain_unsendable(text: str, request: Request) -> str:
    """Explain the fault in the address or the key that kept the request from being sent; "" if there is none."""
    if "://" not in (base := request.address or "://"):
        return f"The address {base!r} has no http:// or https:// in front: set api_base to 'http://{base}' or 'https://{base}'."
    if _BAD_KEY.search(text):
        return "The key, or a header, holds a line break or another character that cannot be sent: copy it again."
    return ""


def _advise(kind: str, text: str, request: Request) -> str:
    """Say what to set or to try. `kind`: the name of LiteLLM's class for the error; `text`: its message."""
    model, gateway = request.model, request.model.startswith(PROXY)
    if is_ours(model):
        return ""  # these models say themselves what to do
    if not_sent := _explain_unsendable(text, request):
        return not_sent
    if behind := _advise_behind_gateway(kind, text, request):
        return behind
    if gateway and kind == "NotFoundError" and text.endswith(("Error code: 404", "Not Found")):
        return f"There is no gateway at {_name_host(request)}: api_base is its address without a path, or with /v1."
    if gateway and (kind in _REFUSED or "No connected db" in text):
        return "The gateway refused the key: set LITELLM_PROXY_API_KEY (or api_key=) to a virtual key that may use it."
    if kind == "AuthenticationError":
        return f"Set the provider's key: api_key=, or the environment variable {name_key_variable(model)}."
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
        return _UNREACHED_ADVICE
    if kind in ("Timeout", "APITimeoutError"):
        return "The provider did not answer in time: try again, or give it longer: completion_kwargs={'timeout': SECONDS}."
    if kind == "RateLimitError":
        return f"Rate limit: wait and run again, or {_RETRY}."
    if kind == "ContextWindowExceededError":
        return "The conversation is too long for this model: start a new session, or return shorter tool results."
    if kind == "ContentPolicyViolationError" or re.search("content management policy|content_filter", text):
        return "The provider's content filter refused the request: rephrase the prompt."
    if _SERVER_FAILED.fullmatch(kind):
        return f"The provider failed: run again, or {_RETRY}."
    return ""


def _name_host(request: Request) -> str:
    base = request.address
    return repr(redact(base, list_secrets(request))) if base else f"the provider of {request.model!r}"


def explain(error: BaseException, request: Request) -> tuple[str, str]:
    """Return (what happened, what to do) for an error of a model call, each in one line. A PlainRefusal keeps its lines."""
    if said := _find_own_words(error):
        return redact(plain(said), list_secrets(request)), ""
    if isinstance(error, TooManyCalls):
        return str(error), "Run again, or ask for less at once."
    original = getattr(error, "original_exception", None)
    kind = _get_kind(error)
    text = redact(plain(_read_text(error)), list_secrets(request))
    if unset := explain_first_mistake(request.model, text):
        return unset
    for name in (kind, _get_kind(original) if original is not None else kind):
        text = text.replace(f"litellm.{name}: ", "").replace(f"{name}: ", "")
    text = " ".join(text.split("Traceback (most recent call last)")[0].split())
    short = text if len(text) <= MOST else text[:MOST] + " …"
    if isinstance(error, StreamCut | AnswerBroken) or (
        kind == "MidStreamFallbackError" and original is not None
    ):
        cause = _get_kind(original or error)
        once = short.partition(" Original exception: ")[0]  # LiteLLM says everything twice
        happened = f"the connection broke in the middle of the answer ({cause}): {once}"
        broke = cause in ("StreamCut", "APIConnectionError", "RemoteProtocolError", "ReadError")
        if behind := _advise_behind_gateway(cause, text, request):
            return happened, behind
        return happened, _advise("MidStreamFallbackError" if broke else cause, "" if broke else text, request)
    status = getattr(error, "status_code", None)
    if kind == "APIError" and status in _REFUSALS:  # LiteLLM's only class for some providers
        kind = EXCEPTIONS[status]
    advice = _advise(kind, text, request)
    if advice == _UNREACHED_ADVICE:
        return f"Could not reach {_name_host(request)} ({kind}: {short.rstrip('.')}).", advice
    return f"{kind}: {short}", advice


def log_unexpected(error: BaseException) -> str:
    """Log the traceback of a turn's unexpected error; returns one line about the error. Both without keys."""
    lines = attempt_call(traceback.format_exception, error)  # this runs code of the error's class
    told = describe_error(error) if isinstance(lines, Raised) else "".join(lines)
    logging.getLogger(__name__).error("a turn ended in an error that nobody expected\n%s", hide(told))
    return hide(describe_error(error))


def _find_own_words(error: BaseException | None) -> str:
    """Find the message that a ScriptedModel or a Replay has for the person, unchanged; "" if there is none."""
    for _ in range(8):
        if isinstance(error, PlainRefusal):
            return get_message(error)
        error = getattr(error, "__cause__", None) or getattr(error, "__context__", None)
    return ""


_NO_KEY = re.compile(
    r"Missing credentials|Missing \w+ API key|api_key client option must be set|API key (?:is )?(?:missing|required|not (?:set|found|provided))"
    r"|No API key (?:was )?(?:provided|found|set)|must provide an API key",
    re.IGNORECASE,
)
_VARIABLE = re.compile(r"\b[A-Z][A-Z0-9_]*(?:_API_KEY|_TOKEN)\b")
_NO_PROVIDER = "LLM Provider NOT provided"
_COMMON = "openai anthropic gemini azure mistral groq ollama openrouter litellm_proxy toolloop"


def explain_first_mistake(model: str, text: str) -> tuple[str, str] | None:
    """Return (what happened, what to do) for two beginners' mistakes: no API key, or a model's name without a known provider.

    Returns None for any other error. `text` is the provider's error. No request has been sent in either case. LiteLLM (1.110) explains
    these mistakes in a paragraph that names six variables, as an `InternalServerError` or as an `APIConnectionError`,
    depending on the provider.
    """
    if _NO_PROVIDER in text:
        return f"LiteLLM knows no provider for the model {model!r}.", _suggest_name(model)
    if _NO_KEY.search(text):
        named = _VARIABLE.search(text)
        variable = named[0] if named else name_key_variable(model)
        return f"There is no key for {model!r}.", (
            f'Set the environment variable {variable}, in a cell: import os, getpass; os.environ["{variable}"] = getpass.getpass() '
            "- or run without a key: model='toolloop/demo'"
        )
    return None


def name_key_variable(model: str) -> str:
    """The environment variable that holds the key of this model's provider."""
    return f"{_name_provider(model).upper()}_API_KEY"


def _name_provider(model: str) -> str:
    """The provider of a model. If the name has none ("claude-sonnet-4-6"), LiteLLM's price list says it."""
    if "/" in model:
        return model.split("/", 1)[0]
    litellm = sys.modules.get("litellm")
    facts = getattr(litellm, "model_cost", {}).get(model, {})
    return str(facts.get("litellm_provider") or "openai")


def _suggest_name(model: str) -> str:
    before, slash, rest = model.partition("/")
    if slash:
        providers = getattr(sys.modules.get("litellm"), "provider_list", ())
        known = {str(getattr(one, "value", one)) for one in providers}
        near = get_close_matches(before, _COMMON.split(), 1) or get_close_matches(before, sorted(known), 1)
        if near:
            return f"Did you mean {f'{near[0]}/{rest}'!r}?"
        return "The part before the slash names the provider, for example anthropic/claude-sonnet-4-6."
    if full := _find_full_name(model):
        return f"Did you mean {full!r}?"
    return (
        f"Write provider/name, for example 'openai/{model}' or 'litellm_proxy/{model}'. A ScriptedModel goes by the name of "
        "its variable: run the cell that makes it first."
    )


def _find_full_name(begun: str) -> str:
    """The newest model of a common provider whose name begins with `begun` ("claude-sonnet"), as provider/name; or ""."""
    known = getattr(sys.modules.get("litellm"), "model_cost", {})
    names = [
        f"{facts['litellm_provider']}/{name}"
        for name, facts in known.items()
        if name.startswith(f"{begun}-")
        and facts.get("litellm_provider") in _COMMON
        and facts.get("mode") == "chat"
    ]
    return max(names, default="")
