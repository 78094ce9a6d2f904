"""What a run is made with: checked, once, before anything starts."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, Literal

from . import hiding
from .approvals import ApprovalHandler, check_names, check_policy, mode_of
from .completion_options import MANAGED, check_completion_options
from .errors import CapabilityUnsupported, OptionsMismatch
from .events import Result
from .observer import Observer
from .output import Output
from .provider import is_ours, proxy_in_use
from .sandbox import as_sandbox
from .tools import Tool, make_tools

PROXY = "litellm_proxy/"
TAGS = "harness,tool_loop"
"""What LiteLLM's own Tool Loop tags its gateway requests with."""
_GATEWAY_HEADERS = frozenset(
    {"x-litellm-tags", "x-litellm-spend-logs-metadata", "authorization", "x-litellm-api-key"}
)


class Harness(Enum):
    """The agent runtimes of LiteLLM's API. This package runs TOOL_LOOP."""

    CLAUDE_CODE = "claude_code"
    CODEX = "codex"
    OPENCODE = "opencode"
    PI = "pi"
    DEEPAGENTS = "deepagents"
    TOOL_LOOP = "tool_loop"


@hiding.hide_in_repr
@dataclass(frozen=True)
class ToolLoopOptions:
    """Options of the Tool Loop. LiteLLM's own `ToolLoopOptions` is taken wherever this one is."""

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
    on_limit: Literal["stop", "answer"] = "stop"
    """"answer": after max_turns, max_model_calls or max_cost, one last call without tools for a closing answer."""
    images: Literal["auto", "always", "never"] = "auto"
    """Whether pictures among the tools' results go to the model: "auto" asks LiteLLM whether it sees; "always" is for
    gateway groups and servers that LiteLLM does not know."""

    def __repr__(self) -> str:
        told = {item.name: getattr(self, item.name) for item in fields(self)}
        told["completion_kwargs"] = {
            key: hiding.HIDDEN if hiding.holds_key(key, value) else value
            for key, value in self.completion_kwargs.items()
        }
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in told.items())})"


@dataclass(frozen=True)
class Capabilities:
    """What a harness supports (LiteLLM's fields)."""

    structured_output: bool
    tool_approval: bool
    tool_filtering: bool
    history: bool
    custom_tools: bool
    skills: bool
    resume: bool
    permission_modes: frozenset[str]


TOOL_LOOP_CAPABILITIES = Capabilities(
    structured_output=True,
    tool_approval=True,
    tool_filtering=False,
    history=True,
    custom_tools=True,
    skills=False,
    resume=False,
    permission_modes=frozenset({"ask", "full"}),
)


def require_tool_loop(harness: object) -> None:
    """Take our `Harness.TOOL_LOOP` and LiteLLM's.

    Raises TypeError for what is no Harness, CapabilityUnsupported for another one.
    """
    if type(harness).__name__ != "Harness" or not isinstance(harness, Enum):
        wanted = str(harness).strip().lower().replace("-", "_") if isinstance(harness, str) else ""
        hint = next(
            (f" Did you mean Harness.{m.name}?" for m in Harness if wanted in (m.value, m.name.lower())), ""
        )
        raise TypeError(f"harness must be Harness.TOOL_LOOP, got {type(harness).__name__} {harness!r}.{hint}")
    if harness.name != "TOOL_LOOP":
        raise CapabilityUnsupported(
            f"toolloop_jupyter runs Harness.TOOL_LOOP only; use litellm.aagent(Harness.{harness.name}, …, stream=True) "
            "and show(stream) for this one"
        )


@dataclass(frozen=True)
class Route:
    """Where the model calls go."""

    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, Any] = field(default_factory=dict, repr=False)
    answers: Any = field(default=None, repr=False)
    """The ScriptedModel (or the like) behind the name: it lives as long as somebody holds it."""

    @property
    def title(self) -> str:
        """The model as a person knows it: a recording by the model that was recorded, a script by its variable."""
        return (
            getattr(self.answers, "recorded_model", "") or getattr(self.answers, "shown_as", "") or self.model
        )


def route(model: object, api_key: str | None, api_base: str | None, metadata: Mapping[str, object]) -> Route:
    """Resolve the model's name and, for `litellm_proxy/<group>` (or `litellm.use_litellm_proxy`), the gateway.

    Raises ValueError, naming the variable to set, when there is no model, no gateway address or no gateway key.
    """
    if api_key is not None and not isinstance(api_key, str):
        raise TypeError(f"api_key must be text, got a value of type {type(api_key).__name__}")
    name, api_key = getattr(model, "toolloop_model", model), (api_key or "").strip()
    if isinstance(name, str) and name.strip() == PROXY:
        raise ValueError(
            "litellm_proxy/ needs the name of a model group behind it: model='litellm_proxy/coder'"
        )
    if not isinstance(name, str) or not name.strip():
        raise ValueError(
            "Harness.TOOL_LOOP needs model=, for example model='openai/gpt-4o-mini' or 'toolloop/demo'"
        )
    if not name.startswith(PROXY) and (is_ours(name) or not proxy_in_use()):
        options, secrets = _address(api_base)
        return Route(name, options, {**secrets, **({"api_key": api_key} if api_key else {})}, model)
    base = (api_base or os.environ.get("LITELLM_PROXY_API_BASE") or "").strip().rstrip("/")
    key = api_key or (os.environ.get("LITELLM_PROXY_API_KEY") or "").strip()
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


def _address(base: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """(options, secrets) with the address: among the secrets where it has a password or a key in it."""
    if not base:
        return {}, {}
    return ({}, {"api_base": base}) if hiding.holds_key("api_base", base) else ({"api_base": base}, {})


def _keeps_nothing(result: Result) -> None:
    pass


async def _as_it_is(error: asyncio.CancelledError) -> None:
    pass


@hiding.hide_in_repr
@dataclass(frozen=True)
class Config:
    """A checked run configuration."""

    route: Route
    tools: tuple[Tool, ...] = ()
    instructions: str | None = None
    permissions: Any = "full"
    on_approval: ApprovalHandler | None = None
    cards: ApprovalHandler | None = None
    """Asked when there is no `on_approval` and nobody reads the turn's stream: a notebook's approval card."""
    output: Output | None = None
    max_turns: int | None = None
    timeout: float | None = None
    metadata: Mapping[str, object] = field(default_factory=dict)
    options: ToolLoopOptions = field(default_factory=ToolLoopOptions)
    sandbox: Any = None
    observer: Observer = field(default_factory=Observer)
    attend: Callable[[], AbstractAsyncContextManager[object]] = nullcontext
    """Entered around each turn: a notebook lets clicks and interrupts arrive while a turn waits."""
    on_stopped: Callable[[asyncio.CancelledError], Awaitable[None]] = _as_it_is
    """Awaited with what is about to be raised where a turn was awaited that has been stopped."""
    on_result: Callable[[Result], None] = _keeps_nothing
    """Called with the Result of each turn, however it ended: a notebook keeps the last one."""

    def completion_options(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """(options to show, secrets to hide) of every model call, the managed ones winning."""
        given: dict[str, Any] = dict(self.options.completion_kwargs)
        stream = given.get("stream") is not False
        managed = self._managed()
        kept = {k: self._without_managed(k, v) for k, v in given.items() if k not in managed}
        secrets = {k: kept.pop(k) for k in list(kept) if hiding.holds_key(k, kept[k])}
        headers = {**(secrets.get("extra_headers") or {}), **(self.route.secrets.get("extra_headers") or {})}
        secrets.update(self.route.secrets)
        if headers:
            secrets["extra_headers"] = headers
        options = {**kept, **self.route.options, "stream": stream}
        if stream:
            options.setdefault("stream_options", {"include_usage": True})
        return options, secrets

    def _managed(self) -> frozenset[str]:
        """The options that `completion_kwargs` does not decide here: MANAGED, and whatever this route says itself.

        `base_url` is another name of `api_base`; `custom_llm_provider` would take a gateway's model, or one of our own,
        to another provider.
        """
        managed = set(MANAGED if self.output is not None else MANAGED - {"response_format"})
        managed |= {*self.route.options, *self.route.secrets} - {"extra_headers"}
        if "api_base" in managed:
            managed.add("base_url")
        if self._on_gateway or is_ours(self.route.model):
            managed.add("custom_llm_provider")
        return frozenset(managed)

    def _without_managed(self, name: str, value: Any) -> Any:
        """An option without what would overrule the loop from within: a body's `messages`, a query's `model`, another key."""
        managed: frozenset[str] = frozenset()
        if name == "extra_body":
            managed = self._managed() if self._on_gateway else self._managed() & MANAGED
        elif name == "extra_query" and self._on_gateway:
            managed = self._managed()
        elif name in ("extra_headers", "headers") and self._on_gateway:
            managed = _GATEWAY_HEADERS
        if not managed or not isinstance(value, Mapping):
            return value
        return {key: item for key, item in value.items() if str(key).lower() not in managed}

    @property
    def _on_gateway(self) -> bool:
        return self.route.model.startswith(PROXY)


def may_ask(config: Config) -> bool:
    """Whether a person may have to be asked: by the run's policy or by a tool's own."""
    return mode_of(config.permissions) not in ("full", "deny") or any(
        tool.settings.permissions is not None and mode_of(tool.settings.permissions) != "full"
        for tool in config.tools
    )


def _check_unsupported(skills: Sequence[Any], disable_tools: Sequence[Any], *, install: bool) -> None:
    if install:
        raise CapabilityUnsupported("install=True is not supported: the Tool Loop has nothing to install")
    if skills:
        raise CapabilityUnsupported(
            "Harness.TOOL_LOOP does not support skills=; put the text into instructions="
        )
    if disable_tools:
        raise CapabilityUnsupported(
            "Harness.TOOL_LOOP does not support disable_tools=: it has no built-in tools; leave the function out of tools="
        )


def _check_options(options: Any) -> ToolLoopOptions:
    if options is None:
        return ToolLoopOptions()
    if isinstance(options, ToolLoopOptions):
        if options.images not in ("auto", "always", "never"):
            raise ValueError(f'images must be "auto", "always" or "never", got {options.images!r}')
        if options.max_model_calls < 1:
            raise ValueError(f"max_model_calls must be >= 1, got {options.max_model_calls!r}")
        if options.max_cost is not None and not options.max_cost > 0:
            raise ValueError(f"max_cost must be > 0 US dollars, got {options.max_cost!r}")
        return options
    if type(options).__name__ == "ToolLoopOptions":  # LiteLLM's
        return ToolLoopOptions(completion_kwargs=options.completion_kwargs)
    raise OptionsMismatch(
        f"{type(options).__name__} cannot be used with Harness.TOOL_LOOP; use ToolLoopOptions(completion_kwargs=…)"
    )


_TAKEN: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    "instructions": (str, "text"),
    "api_base": (str, "an address as text"),
    "max_turns": (int, "a whole number"),
    "timeout": ((int, float), "a number of seconds"),
    "metadata": (Mapping, "a mapping of names to values"),
    "on_approval": (Callable, "a function that takes the Approval and returns True or False"),  # type: ignore[dict-item]
}


def _check_types(**given: object) -> None:
    """Raise TypeError for an argument of a type that nothing can be done with."""
    for name, value in given.items():
        kind, wanted = _TAKEN[name]
        if value is not None and (isinstance(value, bool) or not isinstance(value, kind)):
            raise TypeError(f"{name} must be {wanted} or None, got {type(value).__name__} {value!r:.60}")


def _check_retries(tries: object) -> None:
    if tries is not None and (not isinstance(tries, int) or tries < 0):
        raise ValueError(
            f"num_retries must be a whole number >= 0, got {tries!r}; write completion_kwargs={{'num_retries': 2}}"
        )


def build_config(
    *,
    sandbox: Any = None,
    model: Any = None,
    api_key: str | None = None,
    api_base: str | None = None,
    instructions: str | None = None,
    tools: Sequence[Any] = (),
    skills: Sequence[Any] = (),
    disable_tools: Sequence[Any] = (),
    permissions: Any = "full",
    on_approval: ApprovalHandler | None = None,
    output: Any = None,
    max_turns: int | None = None,
    timeout: float | None = None,
    metadata: Mapping[str, object] | None = None,
    options: Any = None,
    install: bool = False,
    observer: Observer | None = None,
) -> Config:
    """Check LiteLLM's keyword arguments and make a Config of them.

    Raises ValueError, TypeError, CapabilityUnsupported, OptionsMismatch or ToolDefinitionError, each naming what to
    write instead, before anything has started.
    """
    check_policy(permissions)
    _check_types(
        instructions=instructions,
        api_base=api_base,
        max_turns=max_turns,
        timeout=timeout,
        metadata=metadata,
        on_approval=on_approval,
    )
    if max_turns is not None and max_turns < 1:
        raise ValueError(f"max_turns must be >= 1, got {max_turns!r}")
    if timeout is not None and not timeout > 0:
        raise ValueError(f"timeout must be > 0 seconds, got {timeout!r}")
    _check_unsupported(skills, disable_tools, install=install)
    checked = _check_options(options)
    _check_retries(checked.completion_kwargs.get("num_retries"))
    facts = dict(metadata or {})
    made = make_tools(tools)
    check_names(permissions, made)
    goes_to = route(model, api_key, api_base, facts)
    check_completion_options(checked.completion_kwargs, gateway=goes_to.model.startswith(PROXY))
    return Config(
        route=goes_to,
        tools=made,
        instructions=instructions,
        permissions=permissions,
        on_approval=on_approval,
        output=None if output is None else Output(output),
        max_turns=max_turns,
        timeout=timeout,
        metadata=facts,
        options=checked,
        sandbox=as_sandbox(sandbox),
        observer=observer or Observer(),
    )
