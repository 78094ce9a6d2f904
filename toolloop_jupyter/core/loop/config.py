"""The configuration of a run, which is checked once, before the run starts."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeAlias

from .. import text as hiding
from ..events import Gate, Host, ImageMode, Observer, OnLimit, check_values, make_plain_number
from ..models import MANAGED, PROXY, Answers, is_of_route, is_ours, proxy_in_use
from ..tools import Tool
from .output import Output
from .permissions import ApprovalHandler, read_mode

TAGS = "harness,tool_loop"
"""The tags that LiteLLM's own Tool Loop puts on its requests to a gateway."""
_GATEWAY_HEADERS = frozenset(
    {"x-litellm-tags", "x-litellm-spend-logs-metadata", "authorization", "x-litellm-api-key"}
)


@hiding.hide_in_repr
@dataclass(frozen=True)
class ToolLoopOptions:
    """Options of the Tool Loop. Every function that takes them also takes LiteLLM's own `ToolLoopOptions`.

    Raises ArgumentInvalid or ArgumentTypeInvalid for a value that is not allowed.
    """

    completion_kwargs: Mapping[str, object] = field(default_factory=dict)
    """Options of every model call. The loop overrules those that it sets itself (model, messages, tools, routing, tags,
    `response_format`). `{"stream": False}` turns streaming off."""
    # The options below are not LiteLLM's.
    output_retries: int = 2
    """How often an answer that does not fit `output=` goes back to the model."""
    max_model_calls: int = 100
    """The most model calls in one turn. LiteLLM has the same limit, and calls it a runtime error."""
    max_cost: float | None = None
    """US dollars in one turn, checked between model calls. An unknown cost (of a gateway without prices, of an answer that
    broke off) does not count; `max_model_calls` limits such calls."""
    on_limit: OnLimit = "stop"
    """"answer": after max_turns, max_model_calls or max_cost, one last call without tools for a closing answer."""
    fallback: Sequence[object] = ()
    """Models (names or ScriptedModels). Each is asked, in this order, if the one before it has failed after its retries. The rest of
    the turn stays with the model that answers; the next turn begins with `model=` again. A fallback of the same provider
    ("openai/…", or a group of the gateway) uses the run's address and key; any other uses its own environment variables."""
    images: ImageMode = "auto"
    """Whether pictures in tool results, and pictures and files in prompts, go to the model. "auto" asks LiteLLM what
    the model takes; "always" is for gateway groups and servers that LiteLLM does not know."""

    def __post_init__(self) -> None:
        check_values(vars(self))
        for name, value in list(vars(self).items()):
            object.__setattr__(self, name, make_plain_number(value))

    def __repr__(self) -> str:
        told = {item.name: getattr(self, item.name) for item in fields(self)}
        told["completion_kwargs"] = {
            key: hiding.HIDDEN if hiding.holds_key(key, value) else value
            for key, value in self.completion_kwargs.items()
        }
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in told.items())})"


@dataclass(frozen=True)
class Route:
    """A model and the way to it: its name, the address and other options, the keys."""

    model: str
    options: Mapping[str, object] = field(default_factory=dict)
    secrets: Mapping[str, Any] = field(default_factory=dict, repr=False)
    answers: Answers | None = field(default=None, repr=False)
    """The object that answers, if it is Python code (a ScriptedModel, a Replay). The route keeps it alive."""
    has_own_options: bool = True
    """True if the run's own address, keys, headers and account are used for this model."""

    @property
    def title(self) -> str:
        """The model's name for a person."""
        return self.model if self.answers is None else self.answers.title or self.model

    @property
    def family(self) -> str:
        """A name for the models that can read each other's reasoning: "claude", "gemini" (wherever they run), or a provider."""
        name = self.model.lower()
        return next((one for one in ("claude", "gemini") if one in name), name.partition("/")[0])

    @property
    def next_title(self) -> str:
        """The title of the model that will answer the next model call."""
        return self.title if self.answers is None else self.answers.next_title or self.title


def find_route(
    model: object, api_key: str | None, api_base: str | None, metadata: Mapping[str, object]
) -> Route:
    """Resolve the model's name and, for `litellm_proxy/<group>` (or `litellm.use_litellm_proxy`), the gateway.

    Raises ValueError, which names the variable to set, if there is no model, no gateway address or no gateway key.
    """
    if api_key is not None and not isinstance(api_key, str):
        raise TypeError(f"api_key must be text, got a value of type {type(api_key).__name__}")
    answers = model if isinstance(model, Answers) else None
    name, api_key = model if answers is None else answers.model, (api_key or "").strip()
    if isinstance(name, str) and name.strip() == PROXY:
        raise ValueError(
            "litellm_proxy/ needs the name of a model group behind it: model='litellm_proxy/coder'"
        )
    if not isinstance(name, str) or not name.strip():
        raise ValueError(
            "Harness.TOOL_LOOP needs model=, for example model='anthropic/claude-sonnet-4-6' or 'toolloop/demo'"
        )
    if not name.startswith(PROXY) and (is_ours(name) or not proxy_in_use()):
        options, secrets = _split_address(api_base)
        return Route(name, options, {**secrets, **({"api_key": api_key} if api_key else {})}, answers)
    base, key = read_gateway(api_base, api_key)
    if not base:
        raise ValueError(
            "litellm_proxy/ models need the gateway URL: pass api_base= or set LITELLM_PROXY_API_BASE"
        )
    if not key:
        raise ValueError(
            "litellm_proxy/ models need a gateway virtual key: pass api_key= or set LITELLM_PROXY_API_KEY"
        )
    headers = {"x-litellm-tags": TAGS}
    if metadata:
        headers["x-litellm-spend-logs-metadata"] = json.dumps(dict(metadata), default=str)
    options, secrets = _split_address(base)
    secrets.update(api_key=key, extra_headers=headers)
    return Route(PROXY + name.removeprefix(PROXY), options, secrets)


def find_fallbacks(
    models: Sequence[object],
    first: object,
    api_key: str | None,
    api_base: str | None,
    metadata: Mapping[str, object],
) -> tuple[Route, ...]:
    """Return the routes of `models`, which are asked if `first` fails. Only models of the same provider get the run's address and key.

    Raises the errors of `find_route`.
    """
    made = []
    for model in models:
        shares = _find_provider(model) == _find_provider(first) != ""
        route = find_route(model, api_key if shares else None, api_base if shares else None, metadata)
        made.append(route if shares else replace(route, has_own_options=False))
    return tuple(made)


def _find_provider(model: object) -> str:
    """The provider in a model's name; "" for a name without a provider, and for a model that is Python code."""
    if not isinstance(model, str) or is_ours(model):
        return ""
    return PROXY if proxy_in_use() else model.strip().partition("/")[0] if "/" in model else ""


def read_gateway(api_base: str | None = None, api_key: str = "") -> tuple[str, str]:
    """Return (address, key) of LiteLLM's gateway. For `api_base` and `api_key` not given, read LITELLM_PROXY_API_BASE and _KEY."""
    base = api_base or os.environ.get("LITELLM_PROXY_API_BASE") or ""
    return base.strip().rstrip("/"), api_key or os.environ.get("LITELLM_PROXY_API_KEY", "").strip()


def _split_address(base: str | None) -> tuple[dict[str, object], dict[str, object]]:
    """Return (options, secrets). The address is in the secrets if it contains a password or a key, else in the options."""
    if not base:
        return {}, {}
    return ({}, {"api_base": base}) if hiding.holds_key("api_base", base) else ({"api_base": base}, {})


@hiding.hide_in_repr
@dataclass(frozen=True)
class Config:
    """A checked run configuration."""

    route: Route
    fallbacks: tuple[Route, ...] = ()
    """The routes that are tried, in this order, if calls of `route` fail."""
    tools: tuple[Tool, ...] = ()
    instructions: str | None = None
    permissions: object = "full"
    on_approval: ApprovalHandler | None = None
    output: Output | None = None
    max_turns: int | None = None
    timeout: float | None = None
    options: ToolLoopOptions = field(default_factory=ToolLoopOptions)
    sandbox: Any = None
    observers: tuple[Observer, ...] = ()
    host: Host = field(default_factory=Host)
    gate: Gate = field(default_factory=Gate)

    def completion_options(self) -> tuple[dict[str, object], dict[str, object]]:
        """Return (options to show, secrets to hide) of every model call. A managed option of `completion_kwargs` is ignored.

        Managed are the names in MANAGED and those that the route sets. If `api_base` is managed, its other name `base_url`
        is, too. For a gateway, or a model that is Python code, `custom_llm_provider` is managed, since it would
        choose another provider. Managed names inside a body, a query or headers are ignored, too (`messages`, a `model`,
        another key).
        """
        route, given = self.route, self.options.completion_kwargs
        if not route.has_own_options:
            given = {k: v for k, v in given.items() if not (is_of_route(k) or hiding.holds_key(k, v))}
        on_gateway, stream = route.model.startswith(PROXY), given.get("stream") is not False
        managed = set(MANAGED if self.output is not None else MANAGED - {"response_format"})
        managed |= {*route.options, *route.secrets} - {"extra_headers"}
        managed |= {"base_url"} if "api_base" in managed else set()
        managed |= {"custom_llm_provider"} if on_gateway or is_ours(route.model) else set()
        within: dict[str, Collection[str]] = {"extra_body": managed if on_gateway else managed & MANAGED}
        if on_gateway:
            within |= {"extra_query": managed, "extra_headers": _GATEWAY_HEADERS, "headers": _GATEWAY_HEADERS}
        kept: dict[str, Any] = {k: _leave_out(v, within.get(k)) for k, v in given.items() if k not in managed}
        secrets = {k: kept.pop(k) for k in list(kept) if hiding.holds_key(k, kept[k])}
        headers = {**(secrets.get("extra_headers") or {}), **(route.secrets.get("extra_headers") or {})}
        secrets |= route.secrets
        if headers:
            secrets["extra_headers"] = headers
        options = {**kept, **route.options, "stream": stream}
        if stream:
            options.setdefault("stream_options", {"include_usage": True})
        return options, secrets


def _leave_out(value: object, managed: Collection[str] | None) -> object:
    """Leave the managed names out of an option's value, if the value is a mapping."""
    if not managed or not isinstance(value, Mapping):
        return value
    return {key: item for key, item in value.items() if str(key).lower() not in managed}


Approver: TypeAlias = Literal["callback", "reader", "host", "nobody"]


def find_approver(config: Config, *, streamed: bool) -> Approver:
    """Return who decides about the tool calls of a turn.

    "callback": `on_approval`, if there is one; "reader": the code that reads the stream of a `streamed` turn; "host": the
    notebook's user, if the host can ask; else "nobody".
    """
    if config.on_approval is not None:
        return "callback"
    if streamed:
        return "reader"
    return "host" if config.host.can_ask() else "nobody"


def asks_nobody(config: Config) -> bool:
    """Return whether no person is ever asked about a tool call: `on_approval` decides, or each rule says "full" or "deny"."""
    policies = [config.permissions, *(tool.settings.permissions for tool in config.tools)]
    rules: list[object] = []
    for policy in policies:
        rules += policy.values() if isinstance(policy, Mapping) else [] if policy is None else [policy]
        if isinstance(policy, Mapping) and "*" not in policy:
            rules += [] if {tool.name for tool in config.tools} <= {*policy} else ["ask"]
    return config.on_approval is not None or all(read_mode(rule) in ("full", "deny") for rule in rules)


def may_ask(config: Config) -> bool:
    """Return whether the policy of the run, or of a tool, may demand that somebody is asked about a tool call."""
    return read_mode(config.permissions) not in ("full", "deny") or any(
        tool.settings.permissions is not None and read_mode(tool.settings.permissions) != "full"
        for tool in config.tools
    )
