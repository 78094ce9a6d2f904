"""What a run is made with: checked, once, before anything starts."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias

from .. import text as hiding
from ..events import Host, ImageMode, Observer, OnLimit, check_values
from ..models import MANAGED, PROXY, Answers, is_ours, proxy_in_use
from ..tools import Tool
from .output import Output
from .permissions import ApprovalHandler, read_mode

TAGS = "harness,tool_loop"
"""What LiteLLM's own Tool Loop tags its gateway requests with."""
_GATEWAY_HEADERS = frozenset(
    {"x-litellm-tags", "x-litellm-spend-logs-metadata", "authorization", "x-litellm-api-key"}
)


@hiding.hide_in_repr
@dataclass(frozen=True)
class ToolLoopOptions:
    """Options of the Tool Loop. LiteLLM's own `ToolLoopOptions` is taken wherever this one is.

    Raises ArgumentInvalid or ArgumentTypeInvalid for values that no run can have.
    """

    completion_kwargs: Mapping[str, object] = field(default_factory=dict)
    """Sent with every model call; overruled by what the loop manages (model, messages, tools, routing, tags,
    `response_format`). `{"stream": False}` turns streaming off."""
    # ours
    output_retries: int = 2
    """How often an answer that does not fit `output=` goes back to the model."""
    max_model_calls: int = 100
    """Model calls in one turn (LiteLLM's limit, there a runtime error)."""
    max_cost: float | None = None
    """US dollars in one turn; checked between model calls. What is not told (a gateway without prices, an answer that broke
    off) does not count: `max_model_calls` limits that."""
    on_limit: OnLimit = "stop"
    """"answer": after max_turns, max_model_calls or max_cost, one last call without tools for a closing answer."""
    images: ImageMode = "auto"
    """Whether pictures among the tools' results go to the model, and those of prompts with their files: "auto" asks LiteLLM
    what it takes; "always" is for gateway groups and servers that LiteLLM does not know."""

    def __post_init__(self) -> None:
        check_values(vars(self))

    def __repr__(self) -> str:
        told = {item.name: getattr(self, item.name) for item in fields(self)}
        told["completion_kwargs"] = {
            key: hiding.HIDDEN if hiding.holds_key(key, value) else value
            for key, value in self.completion_kwargs.items()
        }
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in told.items())})"


@dataclass(frozen=True)
class Route:
    """Where the model calls go."""

    model: str
    options: Mapping[str, object] = field(default_factory=dict)
    secrets: Mapping[str, Any] = field(default_factory=dict, repr=False)
    answers: Answers | None = field(default=None, repr=False)
    """The ScriptedModel (or the like) behind the name: it lives as long as somebody holds it."""

    @property
    def title(self) -> str:
        """The model as a person knows it."""
        return self.model if self.answers is None else self.answers.title or self.model


def find_route(
    model: object, api_key: str | None, api_base: str | None, metadata: Mapping[str, object]
) -> Route:
    """Resolve the model's name and, for `litellm_proxy/<group>` (or `litellm.use_litellm_proxy`), the gateway.

    Raises ValueError, naming the variable to set, when there is no model, no gateway address or no gateway key.
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
        options, secrets = _address(api_base)
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
    options, secrets = _address(base)
    secrets.update(api_key=key, extra_headers=headers)
    return Route(PROXY + name.removeprefix(PROXY), options, secrets)


def read_gateway(api_base: str | None = None, api_key: str = "") -> tuple[str, str]:
    """(address, key) of LiteLLM's gateway: what is given, else what LITELLM_PROXY_API_BASE and _KEY say; "" for neither."""
    base = api_base or os.environ.get("LITELLM_PROXY_API_BASE") or ""
    return base.strip().rstrip("/"), api_key or os.environ.get("LITELLM_PROXY_API_KEY", "").strip()


def _address(base: str | None) -> tuple[dict[str, object], dict[str, object]]:
    """(options, secrets) with the address: among the secrets where it has a password or a key in it."""
    if not base:
        return {}, {}
    return ({}, {"api_base": base}) if hiding.holds_key("api_base", base) else ({"api_base": base}, {})


@hiding.hide_in_repr
@dataclass(frozen=True)
class Config:
    """A checked run configuration."""

    route: Route
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

    def completion_options(self) -> tuple[dict[str, object], dict[str, object]]:
        """(options to show, secrets to hide) of every model call. A managed option is not taken from `completion_kwargs`.

        Managed are the names in MANAGED and those that the route sets. With `api_base`, so is its other name `base_url`;
        for a gateway or a model of ours, so is `custom_llm_provider`, which would choose another provider. Names inside a
        body, a query or headers may not overrule the loop, either (`messages`, a `model`, another key).
        """
        route, given = self.route, self.options.completion_kwargs
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
    """An option's value without the names that are managed."""
    if not managed or not isinstance(value, Mapping):
        return value
    return {key: item for key, item in value.items() if str(key).lower() not in managed}


Approver: TypeAlias = Literal["callback", "reader", "host", "nobody"]


def find_approver(config: Config, *, streamed: bool) -> Approver:
    """Who is asked about a call: `on_approval`, else the reader of the turn's stream, else a person where the run lives."""
    if config.on_approval is not None:
        return "callback"
    if streamed:
        return "reader"
    return "host" if config.host.can_ask() else "nobody"


def may_ask(config: Config) -> bool:
    """Whether a person may have to be asked: by the run's policy or by a tool's own."""
    return read_mode(config.permissions) not in ("full", "deny") or any(
        tool.settings.permissions is not None and read_mode(tool.settings.permissions) != "full"
        for tool in config.tools
    )
