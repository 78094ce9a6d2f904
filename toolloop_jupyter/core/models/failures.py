"""Explain errors of model calls: say whether a retry may help, and what the user can change. No text contains an API key.

The errors come from LiteLLM, or from models that are Python code. This module recognises LiteLLM's errors by the names of
their classes, so it does not import LiteLLM.
"""

from __future__ import annotations

import logging
import re
import sys
import traceback
from collections.abc import Mapping
from difflib import get_close_matches

from ..events import Request
from ..execution import Raised, attempt_call, describe_error, get_message
from ..text import hide, hide_suspected, make_text_plain, remember_secrets
from .options import PROXY
from .providers import EXCEPTIONS, AnswerBroken, PlainRefusal, ProviderError, is_ours

CLEAN_END = "Stream ended before a finish_reason was received"
"""LiteLLM's message for a stream that ended without a finish_reason."""
LONGEST_WAIT = 60.0
"""The longest wait before a retry, in seconds. If the provider asks for a longer wait, the retry waits only this long."""
_LONGEST_SHOWN = 600
"""The largest number of characters of a provider's error text that are shown."""
MOST_READ = 20_000
"""The largest number of characters of a provider's error text that are read. A server may answer with megabytes."""
_FINAL = frozenset({400, 401, 402, 403, 404, 405, 413, 422})
"""HTTP statuses of refusals that a retry cannot change."""
_FINAL_KINDS = frozenset({"BadRequestError", "AuthenticationError", "NotFoundError"})
_REFUSALS = frozenset({401, 403, 404, 429})
_BUSY = frozenset({408, 429, 502, 503, 504})
"""HTTP statuses of busy servers. Such an error does not show which options the server supports."""
_NEVER_SENT = re.compile(
    "ConnectError|ConnectTimeout|PoolTimeout|UnsupportedProtocol|ClientConnectorError|ConnectionRefusedError|gaierror"
)
"""Names of errors that HTTP clients raise before a request is sent."""
_WENT_OUT = re.compile(
    "ReadError|ReadTimeout|RemoteProtocolError|WriteError|ServerDisconnectedError|ClientOSError|ClientPayloadError"
)
"""Names of errors that HTTP clients raise after a request was sent."""
_STREAM_OPTIONS = re.compile(r"stream[_ -]?options?\b|include_?usage")
_NO_STREAM = (r"\bstream", r"\bnot\b|n't|cannot|unsupported|disable|must be verified")
_BESIDE_TOOLS = re.compile("tool|function")
_AT_ALL = re.compile("support|allow|availab|enabl|implement|disable|must be verified to stream")
"""Words in the errors of servers that cannot stream, or cannot stream if there are tools. All words are in lower case.

Examples are llama.cpp, older gateways, and OpenAI for organizations that OpenAI has not verified."""


class StreamCut(Exception):
    """Raised if a stream ends in the middle of a tool call, and the stream itself has raised no error."""


def read_retry_after(error: BaseException) -> float | None:
    """Return the seconds that the provider asks to wait, at most `LONGEST_WAIT`; None if the provider names no time.

    Reads the header `retry-after-ms`, which OpenAI sends, or the header `retry-after`.
    """
    headers = getattr(error, "litellm_response_headers", None)
    headers = headers or getattr(getattr(error, "response", None), "headers", None) or {}
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name) or "nan") * unit
        except (TypeError, ValueError):  # HTTP also allows a date, but no provider sends one
            continue
        if seconds >= 0:
            return min(seconds, LONGEST_WAIT)
    return None


def read_status(error: BaseException) -> int | None:
    """Return the HTTP status of the server's answer; None if there was no answer."""
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) else None


def is_cut(error: BaseException) -> bool:
    """Return True if the server may have worked on the request, but gave no answer: a timeout, or a broken connection.

    Returns False if the server refused the request, or if no connection was made. LiteLLM (1.110) has one class for broken
    and for missing connections. So this function also looks at the causes, which are errors of httpx, requests or aiohttp.
    """
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in causes:
        causes.append(cause)
        cause = getattr(cause, "original_exception", None) or cause.__cause__ or cause.__context__
    names = {name for each in causes for name in _list_kinds(each)}
    went_out = "Timeout" in _list_kinds(error) or any(map(_WENT_OUT.fullmatch, names))
    return went_out and not any(map(_NEVER_SENT.fullmatch, names))


def is_final(error: BaseException) -> bool:
    """Return True if a retry would fail, too, because the provider refuses the request itself."""
    cause = getattr(error, "original_exception", None) or error
    return read_status(cause) in _FINAL or not _FINAL_KINDS.isdisjoint(_list_kinds(cause))


def find_refused_option(error: BaseException, sent: Mapping[str, object]) -> str:
    """Return what the server has refused; "" if `error` is about something else. `sent`: the keywords of the request.

    "stream_options": this option. "stream": a stream when there are tools. "any stream": every stream.
    """
    status = read_status(error)
    if isinstance(error, ProviderError) or status is None:
        return ""
    text = get_message(error, MOST_READ).lower()
    if "stream_options" in sent and _STREAM_OPTIONS.search(text):
        return "stream_options"
    if not (sent.get("stream") and all(re.search(words, text) for words in _NO_STREAM)):
        return ""
    if _BESIDE_TOOLS.search(text):
        return "stream" if "tools" in sent else ""
    return "any stream" if _AT_ALL.search(text) and status not in _BUSY else ""


def _list_kinds(error: BaseException) -> list[str]:
    """Return the names of the error's class and its base classes. For a ProviderError, LiteLLM's class comes first."""
    names = [kind.__name__ for kind in type(error).__mro__]
    return [error.kind, *names] if isinstance(error, ProviderError) else names


def redact(text: str, secrets: Mapping[str, object] | None = None) -> str:
    """Return `text`, which comes from a provider, without API keys. These are the keys of all runs, of `secrets` (options of a
    request) and of environment variables, and every text that looks like a key.
    """
    remember_secrets(secrets)
    return hide_suspected(text)


def clean(text: str, request: Request) -> str:
    """Return a provider's text without control characters and API keys."""
    return redact(make_text_plain(text), request.secrets)


_REFUSED = ("AuthenticationError", "PermissionDeniedError")
_RETRY = "set retries: completion_kwargs={'num_retries': 2}"
_BEHIND = re.compile(r"model group '|(?<!Litellm_proxy)Exception - ")
"""Words of a gateway's error that quotes the error of a provider (LiteLLM 1.106 to 1.110)."""
_BAD_KEY = re.compile(r"control character|[Ii]llegal header value|Invalid header value|codec can't encode")
_NOT_REACHED = "APIConnectionError|ConnectError"
_UNREACHED_ADVICE = "Is the server running, is the address right, is there a network?"
_ADVICE = (
    ("AuthenticationError", "", "Set the provider's key: api_key=, or the environment variable {variable}."),
    ("PermissionDeniedError", "", "The key may not use {model!r}: pick another model or key."),
    (
        "NotFoundError",
        "Invalid model name|model_not_found",
        "There is no such model of that provider: check the name {model!r} and api_base.",
    ),
    (_NOT_REACHED, "Connection error|Cannot connect", _UNREACHED_ADVICE),
    (
        "Timeout|APITimeoutError",
        "",
        "The provider did not answer in time: try again, or give it longer: completion_kwargs={{'timeout': SECONDS}}.",
    ),
    ("RateLimitError", "", "Rate limit: wait and run again, or {retry}."),
    (
        "ContextWindowExceededError",
        "",
        "The conversation is too long for this model: start a new session, or return shorter tool results.",
    ),
    (
        "ContentPolicyViolationError",
        "content management policy|content_filter",
        "The provider's content filter refused the request: rephrase the prompt.",
    ),
    (
        "InternalServerError|ServiceUnavailableError|BadGatewayError|MidStreamFallbackError|StreamCut",
        "",
        "The provider failed: run again, or {retry}.",
    ),
)
"""Rows of (names of LiteLLM's errors, words in the error's text, what the user can set or try). The first fitting row counts."""


def _advise_on_gateway(kind: str, text: str, request: Request) -> str:
    """Return advice for an error of a gateway, or of the provider behind it; "" if the usual advice fits."""
    if _BEHIND.search(text):
        if kind in _REFUSED:
            return "The provider refused the gateway's own key: the operator of the gateway has to renew this key."
        if kind == "NotFoundError":
            return "The provider does not know the model behind this group: the operator of the gateway has to correct the name."
        if re.fullmatch(_NOT_REACHED, kind) or "Connection error" in text:
            return f"The gateway lost its connection to the provider: run again, or {_RETRY}."
    if kind == "NotFoundError" and text.endswith(("Error code: 404", "Not Found")):
        return f"There is no gateway at {_name_host(request)}: set api_base to its address without a path, or with /v1."
    if kind in _REFUSED or "No connected db" in text:
        return "The gateway refused the key: set LITELLM_PROXY_API_KEY (or api_key=) to a virtual key that may use this model group."
    if kind == "NotFoundError" or re.search("Invalid model name|model_not_found", text):
        return f"There is no such group on the gateway: check the name {request.model!r}."
    return ""


def _advise(kind: str, text: str, request: Request) -> str:
    """Return what the user can set or try; "" if nothing is known. `kind`: the name of the error's class. `text`: its message."""
    model = request.model
    if is_ours(model):
        return ""  # the error of this model already says what to do
    if "://" not in (base := request.address or "://"):
        return f"The address {base!r} has no http:// or https:// in front: set api_base to 'http://{base}' or 'https://{base}'."
    if _BAD_KEY.search(text):
        return "The key, or a header, contains a line break or another character that cannot be sent: copy it again."
    if model.startswith(PROXY) and (advice := _advise_on_gateway(kind, text, request)):
        return advice
    if kind == "BadRequestError" and "/" not in model:
        return f"Write the model as provider/name, for example 'openai/{model}' or 'litellm_proxy/{model}'."
    for kinds, words, advice in _ADVICE:
        if re.fullmatch(kinds, kind) or (words and re.search(words, text)):
            return advice.format(model=model, variable=name_key_variable(model), retry=_RETRY)
    return ""


def _name_host(request: Request) -> str:
    base = request.address
    return repr(clean(base, request)) if base else f"the provider of {request.model!r}"


def explain(error: BaseException, request: Request) -> tuple[str, str]:
    """Return (what happened, what to do) for an error of a model call. Each is one line; only a PlainRefusal may have more."""
    if own_words := _find_own_words(error):
        return clean(own_words, request), ""
    original = getattr(error, "original_exception", None) or error
    kind, original_kind = _list_kinds(error)[0], _list_kinds(original)[0]
    text = clean(get_message(error, MOST_READ), request)
    if explained := explain_first_mistake(request.model, text):
        return explained
    for name in (kind, original_kind):
        text = text.replace(f"litellm.{name}: ", "").replace(f"{name}: ", "")
    text = " ".join(text.split("Traceback (most recent call last)")[0].split())
    short = text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + " …"
    if isinstance(error, StreamCut | AnswerBroken) or (
        kind == "MidStreamFallbackError" and original is not error
    ):
        once = short.partition(" Original exception: ")[0]  # the rest repeats the text before it
        happened = f"the connection broke in the middle of the answer ({original_kind}): {once}"
        broke = original_kind in ("StreamCut", "APIConnectionError", "RemoteProtocolError", "ReadError")
        is_behind = request.model.startswith(PROXY) and _BEHIND.search(text)
        advice = "" if broke and not is_behind else _advise(original_kind, text, request)
        return happened, advice or (_advise("MidStreamFallbackError", "", request) if broke else "")
    status = read_status(error)
    if kind == "APIError" and status in _REFUSALS:  # for some providers, LiteLLM raises only this class
        kind = EXCEPTIONS[status]
    advice = _advise(kind, text, request)
    if advice == _UNREACHED_ADVICE:
        return f"Could not reach {_name_host(request)} ({kind}: {short.rstrip('.')}).", advice
    return f"{kind}: {short}", advice


def log_unexpected(error: BaseException) -> str:
    """Log the traceback of an unexpected error of a turn, and return one line about the error. API keys are hidden in both."""
    lines = attempt_call(traceback.format_exception, error)  # may raise: it runs code of the error's class
    text = describe_error(error) if isinstance(lines, Raised) else "".join(lines)
    logging.getLogger(__name__).error("a turn ended with an unexpected error\n%s", hide(text))
    return hide(describe_error(error))


def _find_own_words(error: BaseException | None) -> str:
    """Return the message of the PlainRefusal that is `error` or one of its causes; "" if there is none."""
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
    """Return (what happened, what to do) for two mistakes of beginners; None for any other error.

    The mistakes are a missing API key, and a model name without a known provider. `text`: the text of the error. Both
    mistakes are found before a request is sent. LiteLLM (1.110) explains a missing key in a paragraph that names six
    variables. The error is an `InternalServerError` or an `APIConnectionError`, depending on the provider.
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
    """Return the name of the environment variable for the API key of the model's provider.

    The provider of a name without a slash ("claude-sonnet-4-6") is read from LiteLLM's price list.
    """
    provider, slash, _ = model.partition("/")
    if not slash:
        facts = getattr(sys.modules.get("litellm"), "model_cost", {}).get(model, {})
        provider = str(facts.get("litellm_provider") or "openai")
    return f"{provider.upper()}_API_KEY"


def _suggest_name(model: str) -> str:
    litellm = sys.modules.get("litellm")
    before, slash, rest = model.partition("/")
    if slash:
        providers = {str(getattr(one, "value", one)) for one in getattr(litellm, "provider_list", ())}
        near = get_close_matches(before, _COMMON.split(), 1) or get_close_matches(
            before, sorted(providers), 1
        )
        if near:
            return f"Did you mean {f'{near[0]}/{rest}'!r}?"
        return "The part before the slash names the provider, for example anthropic/claude-sonnet-4-6."
    begun = [
        f"{facts['litellm_provider']}/{name}"
        for name, facts in getattr(litellm, "model_cost", {}).items()
        if name.startswith(f"{model}-")
        and facts.get("litellm_provider") in _COMMON.split()
        and facts.get("mode") == "chat"
    ]
    if begun:
        return f"Did you mean {max(begun)!r}?"
    return (
        f"Write provider/name, for example 'openai/{model}' or 'litellm_proxy/{model}'. To use a ScriptedModel, first run the "
        "cell that makes it, then write the name of its variable."
    )
