"""The configuration of a run, which is checked once, before the run starts."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from ..events import ArgumentTypeInvalid, Gate, Host, ImageMode, Observer, OnLimit, check_values
from ..execution import shorten_repr
from ..models import MANAGED, PROXY, Answers, is_of_route, is_ours, uses_proxy
from ..text import HIDDEN, hide_in_repr, holds_key
from ..tools import Tool
from .output import Output
from .permissions import Approvals

TAGS = "harness,tool_loop"
"""The tags of each request to a gateway. LiteLLM's own Tool Loop sends the same tags."""
_GATEWAY_HEADERS = frozenset(
    {"x-litellm-tags", "x-litellm-spend-logs-metadata", "authorization", "x-litellm-api-key"}
)


@hide_in_repr
@dataclass(frozen=True)
class ToolLoopOptions:
    """Options of the Tool Loop. Every function that takes these options also takes LiteLLM's own `ToolLoopOptions`.

    Raises ArgumentInvalid or ArgumentTypeInvalid for a value that is not allowed.
    """

    completion_kwargs: Mapping[str, object] = field(default_factory=dict)
    """Options for every model call. Options that the loop sets itself are ignored (model, messages, tools, routing, tags, and
    `response_format` if `output=` is given). `{"stream": False}` turns streaming off."""
    # LiteLLM's `ToolLoopOptions` does not have the options below.
    output_retries: int = 2
    """How many times the model may be asked again in one turn, if its answer does not fit `output=`."""
    max_model_calls: int = 100
    """The largest number of model calls in one turn. In LiteLLM, a turn that reaches the same limit ends in a runtime error."""
    max_cost: float | None = None
    """The largest number of US dollars that one turn may cost. The limit is checked before each model call. An unknown cost does
    not count, for example the cost of an answer that broke off; `max_model_calls` also limits the calls of unknown cost."""
    on_limit: OnLimit = "stop"
    """"stop": a turn that reaches max_turns, max_model_calls or max_cost ends at once. "answer": before the turn ends, the model
    is called once more, without tools, and gives a closing answer."""
    fallback: Sequence[object] = ()
    """Models (names or ScriptedModels). If a model still fails after its retries, the next model of this list is asked. The
    model that answers is used until the turn ends; the next turn begins with `model=` again. A fallback model uses the run's
    address and key if it has the same provider as `model=`, or if both are model groups of the gateway. Any other fallback
    model uses the environment variables of its own provider."""
    images: ImageMode = "auto"
    """Which of these are sent: pictures from tools; pictures, files and sounds in prompts. "auto": the ones that the model
    accepts, according to LiteLLM. "always": all; use it for model groups of a gateway and servers that LiteLLM does not know.
    "never": none. A prompt with a picture, file or sound that may not be sent raises CapabilityUnsupported."""

    def __post_init__(self) -> None:
        vars(self).update(check_values(vars(self)))
        for name in self.completion_kwargs:
            if type(name) is not str:
                raise ArgumentTypeInvalid(
                    f"a name in completion_kwargs must be plain text, got {shorten_repr(name)} of type {type(name).__name__}"
                )
        for model in self.fallback:
            if not isinstance(model, (str, Answers)):
                raise ArgumentTypeInvalid(
                    f"fallback must be a list of models, got {shorten_repr(model)} in it; write fallback=['PROVIDER/MODEL']"
                )

    def __repr__(self) -> str:
        shown = {k: HIDDEN if holds_key(k, v) else v for k, v in self.completion_kwargs.items()}
        fields = {**vars(self), "completion_kwargs": shown}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in fields.items())})"


@dataclass(frozen=True)
class Route:
    """A model, and what is needed to call it: its name, the address and other options, and the API keys."""

    model: str
    options: Mapping[str, object] = field(default_factory=dict)
    secrets: Mapping[str, Any] = field(default_factory=dict, repr=False)
    answers: Answers | None = field(default=None, repr=False)
    """If the model is Python code, the object that answers (a ScriptedModel, a Replay). The route keeps this object alive."""
    uses_run_options: bool = True
    """True if this model is called with the run's address, API keys, headers and account. False for some fallback models."""

    @property
    def title(self) -> str:
        """The name of the model as a person sees it."""
        return self.model if self.answers is None else self.answers.title or self.model

    @property
    def family(self) -> str:
        """The family of the model: "claude", "gemini" or the provider. Models of one family can read each other's reasoning."""
        name = self.model.lower()
        return "claude" if "claude" in name else "gemini" if "gemini" in name else name.partition("/")[0]

    @property
    def next_title(self) -> str:
        """The title of the model that will answer the next model call."""
        return self.title if self.answers is None else self.answers.next_title or self.title


def _find_route(
    model: object, api_key: str | None, api_base: str | None, metadata: Mapping[str, object]
) -> Route:
    """Return the route to `model`.

    The route of `litellm_proxy/<group>` leads to LiteLLM's gateway. If `litellm.use_litellm_proxy` is set, all routes lead
    there, except the routes to models that are Python code. Raises ValueError if the model, the gateway's address or its key
    is missing. The message says what to set.
    """
    if api_key is not None and not isinstance(api_key, str):
        raise TypeError(
            f"api_key must be text, got a value of type {type(api_key).__name__}; write api_key=os.environ['NAME']"
        )
    answers = model if isinstance(model, Answers) else None
    name, base, key = model if answers is None else answers.model, api_base, (api_key or "").strip()
    if isinstance(name, str) and name.strip() == PROXY:
        raise ValueError(
            "litellm_proxy/ needs the name of a model group after the slash: model='litellm_proxy/coder'"
        )
    if not isinstance(name, str) or not name.strip():
        example = "model='anthropic/claude-sonnet-4-6' or 'toolloop/demo'"
        raise ValueError(f"Harness.TOOL_LOOP needs model=, for example {example}")
    secrets: dict[str, object] = {}
    if name.startswith(PROXY) or (not is_ours(name) and uses_proxy()):
        base, key = read_gateway(base, key)
        name = PROXY + name.removeprefix(PROXY)
        needs = "litellm_proxy/ models need"
        if not base:
            raise ValueError(f"{needs} the gateway URL: pass api_base= or set LITELLM_PROXY_API_BASE")
        if not key:
            raise ValueError(f"{needs} a gateway virtual key: pass api_key= or set LITELLM_PROXY_API_KEY")
        headers = {"x-litellm-tags": TAGS}
        secrets = {"api_key": key, "extra_headers": headers}
        if metadata:
            headers["x-litellm-spend-logs-metadata"] = json.dumps(dict(metadata), default=str)
    if key:
        secrets["api_key"] = key
    options = {"api_base": base} if base else {}
    if base and holds_key("api_base", base):  # the address contains a password or an API key
        secrets, options = {**options, **secrets}, {}
    return Route(name, options, secrets, answers)


def find_routes(
    models: Sequence[object], api_key: str | None, api_base: str | None, metadata: Mapping[str, object]
) -> tuple[Route, ...]:
    """Return the routes to `models`: the model, then its fallbacks. Only fallbacks of the model's provider get `api_key` and
    `api_base`.
    """
    model, *fallbacks = models
    routes = [_find_route(model, api_key, api_base, metadata)]
    for one in fallbacks:
        if _find_provider(one) == _find_provider(model) != "":
            routes.append(_find_route(one, api_key, api_base, metadata))
        else:
            routes.append(replace(_find_route(one, None, None, metadata), uses_run_options=False))
    return tuple(routes)


def _find_provider(model: object) -> str:
    """Return the provider that `model` names; "" if it names none or is Python code; PROXY if all calls go to the gateway."""
    if not isinstance(model, str) or is_ours(model):
        return ""
    return PROXY if uses_proxy() else model.strip().partition("/")[0] if "/" in model else ""


def read_gateway(api_base: str | None = None, api_key: str = "") -> tuple[str, str]:
    """Return (address, API key) of LiteLLM's gateway; "" for a value that is not set.

    A parameter that is not given is read from its environment variable: LITELLM_PROXY_API_BASE or LITELLM_PROXY_API_KEY.
    """
    base = api_base or os.environ.get("LITELLM_PROXY_API_BASE") or ""
    return base.strip().rstrip("/"), api_key or os.environ.get("LITELLM_PROXY_API_KEY", "").strip()


@dataclass(frozen=True)
class Limits:
    """The limits of a turn that are keywords of LiteLLM's agent API. `ToolLoopOptions` has more limits."""

    max_turns: int | None = None
    """The largest number of tool calls in one turn."""
    timeout: float | None = None
    """The largest number of seconds for one turn."""


@hide_in_repr
@dataclass(frozen=True)
class Config:
    """The configuration of a run. All values were checked."""

    routes: tuple[Route, ...]
    """The route to the model, then the routes to the `fallback` models, in the order in which they are tried after a failure."""
    tools: tuple[Tool, ...] = ()
    instructions: str | None = None
    approvals: Approvals = field(default_factory=Approvals)
    output: Output | None = None
    limits: Limits = field(default_factory=Limits)
    options: ToolLoopOptions = field(default_factory=ToolLoopOptions)
    sandbox: Any = None
    observers: tuple[Observer, ...] = ()
    host: Host = Host()  # noqa: RUF009 - a Host has no state
    gate: Gate = Gate()  # noqa: RUF009 - this Gate has no state
    """Limits the pace and the cost of runs that happen at the same time, such as those for the rows of a table."""
    row: str = ""
    """The row of a table that the run is for, such as "row 17 of 1,000"; "" if it is for no row."""

    @property
    def route(self) -> Route:
        """The route to the model that is asked now."""
        return self.routes[0]

    @property
    def fallbacks(self) -> tuple[Route, ...]:
        """The routes to the `fallback` models that were not asked yet."""
        return self.routes[1:]

    def completion_options(self) -> tuple[dict[str, object], dict[str, object]]:
        """Return (options, secrets) for every model call. The options may be shown to people; the secrets may not.

        An option is *managed* if the loop or the route sets it. A managed option in `completion_kwargs` is ignored, except
        `stream`. These are managed: the options in MANAGED, the options of the route, and two others: `base_url`, if the route sets
        `api_base` (both mean the address), and, for a gateway or a model that is Python code, `custom_llm_provider` (it would
        choose another provider). Managed options are also ignored inside `extra_body` and, for a gateway, inside
        `extra_query`. Inside headers for a gateway, _GATEWAY_HEADERS are ignored.
        """
        route, given = self.route, self.options.completion_kwargs
        if not route.uses_run_options:
            given = {k: v for k, v in given.items() if not (is_of_route(k) or holds_key(k, v))}
        on_gateway, stream = route.model.startswith(PROXY), given.get("stream") is not False
        managed = set(MANAGED if self.output is not None else MANAGED - {"response_format"})
        managed |= {*route.options, *route.secrets} - {"extra_headers"}
        managed |= {"base_url"} if "api_base" in managed else set()
        managed |= {"custom_llm_provider"} if on_gateway or is_ours(route.model) else set()
        within: dict[str, Collection[str]] = {"extra_body": managed if on_gateway else managed & MANAGED}
        if on_gateway:
            within |= {"extra_query": managed, "extra_headers": _GATEWAY_HEADERS, "headers": _GATEWAY_HEADERS}
        options: dict[str, Any] = {}
        secrets: dict[str, Any] = {}
        for name, value in given.items():
            if name not in managed:
                kept = _leave_out(value, within.get(name))
                (secrets if holds_key(name, kept) else options)[name] = kept
        headers = {**(secrets.get("extra_headers") or {}), **(route.secrets.get("extra_headers") or {})}
        secrets |= route.secrets
        if headers:
            secrets["extra_headers"] = headers
        options |= {**route.options, "stream": stream}
        if stream:
            options.setdefault("stream_options", {"include_usage": True})
        return options, secrets


def _leave_out(value: object, managed: Collection[str] | None) -> object:
    """Return `value`, the value of an option. If it is a mapping, leave out its keys that are in `managed`."""
    if not managed or not isinstance(value, Mapping):
        return value
    return {key: item for key, item in value.items() if str(key).lower() not in managed}


Approver: TypeAlias = Literal["callback", "reader", "host", "nobody"]


def find_approver(config: Config, *, streamed: bool) -> Approver:
    """Return who decides about the tool calls of a turn: the first of these that exists.

    "callback": `on_approval`. "reader": the reader of a `streamed` turn. "host": a person, if the host can ask one. "nobody".
    """
    if config.approvals.on_approval is not None:
        return "callback"
    return "reader" if streamed else "nobody" if config.host.ask is None else "host"
