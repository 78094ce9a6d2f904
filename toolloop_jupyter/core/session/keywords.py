"""The keywords of a run, which are those of LiteLLM's agent API. They are checked and become a Config before the run starts."""

from __future__ import annotations

import difflib
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypedDict

from typing_extensions import Unpack

from ..events import (
    ArgumentTypeInvalid,
    CapabilityUnsupported,
    Host,
    Observer,
    OptionsMismatch,
    check_values,
)
from ..execution import shorten_repr
from ..loop import (
    ApprovalHandler,
    Approvals,
    Config,
    Limits,
    Output,
    ToolLoopOptions,
    check_names,
    check_policy,
    find_routes,
)
from ..models import ENVELOPE, PROXY, check_completion_options, explain_switch, is_ours
from ..tools import make_tools
from .sandbox import make_sandbox


class Harness(Enum):
    """The agent runtimes of LiteLLM's API. This package runs TOOL_LOOP."""

    CLAUDE_CODE = "claude_code"
    CODEX = "codex"
    OPENCODE = "opencode"
    PI = "pi"
    DEEPAGENTS = "deepagents"
    TOOL_LOOP = "tool_loop"


@dataclass(frozen=True)
class Capabilities:
    """The capabilities of a harness. The fields are LiteLLM's. Their defaults are the capabilities of the Tool Loop."""

    structured_output: bool = True
    tool_approval: bool = True
    tool_filtering: bool = False
    history: bool = True
    custom_tools: bool = True
    skills: bool = False
    resume: bool = False
    permission_modes: frozenset[str] = frozenset({"ask", "full"})


def require_tool_loop(harness: object) -> None:
    """Check that `harness` is TOOL_LOOP. It may be a member of our Harness or of LiteLLM's Harness.

    Raises ArgumentTypeInvalid if the value is not a Harness, CapabilityUnsupported if it is another Harness.
    """
    if not isinstance(harness, Enum) or harness.name not in Harness.__members__:
        wanted = harness.strip().upper().replace("-", "_") if isinstance(harness, str) else ""
        hint = f" Did you mean Harness.{wanted}?" if wanted in Harness.__members__ else ""
        raise ArgumentTypeInvalid(
            f"harness must be Harness.TOOL_LOOP, got {type(harness).__name__} {shorten_repr(harness, 500)}.{hint}"
        )
    if harness.name != "TOOL_LOOP":
        raise CapabilityUnsupported(
            f"toolloop_jupyter runs Harness.TOOL_LOOP only; use litellm.aagent(Harness.{harness.name}, …, stream=True) "
            "and show(stream) for this one"
        )


class Keywords(TypedDict, total=False):
    """The keywords that `agent`, `aagent`, `agent_session` and `aagent_session` share."""

    sandbox: object
    """The folder whose changed files are reported: a path, `sandbox.local(path)` or a sandbox object of LiteLLM. A sandbox does
    not confine the tools.
    """
    model: object
    """A model's name in LiteLLM, `litellm_proxy/<group>`, "toolloop/demo", or a ScriptedModel."""
    api_key: str | None
    api_base: str | None
    instructions: str | None
    """The system message."""
    tools: Sequence[Callable[..., Any]]
    """Python functions. ToolDefinitionError is raised if a function cannot be described to a model."""
    skills: Sequence[object]
    disable_tools: Sequence[object]
    permissions: object
    """"full", "ask", {"tool": mode, "*": mode}, or a function that gets each validated tool call and returns a mode or a bool."""
    on_approval: ApprovalHandler | None
    """Called with each Approval. Only True allows the call. A sync handler runs in a thread."""
    output: object
    """The type of the final answer: a pydantic model, a dataclass, a list, a union or another type that pydantic validates."""
    max_turns: int | None
    """The largest number of tool calls in one turn."""
    timeout: float | None
    """The largest number of seconds for one turn."""
    metadata: Mapping[str, object] | None
    """Data for the gateway's spend logs."""
    options: object
    """A `ToolLoopOptions` object, ours or LiteLLM's."""
    install: bool
    observer: Observer | None
    """An observer of the loop's steps. LiteLLM does not have this keyword."""


DEFAULTS: Keywords = {
    "tools": (),
    "skills": (),
    "disable_tools": (),
    "permissions": "full",
    "install": False,
}
"""Keyword -> default value. Keywords that are not in this dict have the default None."""


_UNSUPPORTED = {
    "install": "install=True is not supported: the Tool Loop has nothing to install",
    "skills": "Harness.TOOL_LOOP does not support skills=; put the text into instructions=",
    "disable_tools": "Harness.TOOL_LOOP does not support disable_tools=: it has no built-in tools; leave the function out of tools=",
}


def _check_supported(keywords: Keywords) -> None:
    """Raise an error for a keyword that is unknown, or that only LiteLLM's other harnesses support."""
    for name in keywords:
        if name not in Keywords.__annotations__:
            near = difflib.get_close_matches(name, Keywords.__annotations__, n=1)
            names = f"there are {', '.join(Keywords.__annotations__)}."
            hint = f"did you mean {near[0]}=?" if near else names
            raise ArgumentTypeInvalid(f"unexpected keyword argument {name!r}; {hint}")
    for name, why in _UNSUPPORTED.items():
        if keywords.get(name):
            raise CapabilityUnsupported(why)


def _make_options(options: object) -> ToolLoopOptions:
    """Check the options, ours or LiteLLM's. Return them with a copy of `completion_kwargs`: the caller may change its dict."""
    if options is None:
        return ToolLoopOptions()
    if not isinstance(options, ToolLoopOptions):
        # LiteLLM has one options class for each harness. Only its ToolLoopOptions has this field.
        given = getattr(options, "completion_kwargs", None)
        if given is None:
            raise OptionsMismatch(
                f"{type(options).__name__} cannot be used with Harness.TOOL_LOOP; use ToolLoopOptions(completion_kwargs=…)"
            )
        options = ToolLoopOptions(completion_kwargs=given)
    copied = dict(options.completion_kwargs)
    for name, value in copied.items():
        if name in ENVELOPE and value is not None:
            if not isinstance(value, Mapping):
                raise ArgumentTypeInvalid(
                    f"{name} in completion_kwargs must be a mapping of names to values, got {type(value).__name__}; "
                    f"write completion_kwargs={{{name!r}: {{'NAME': 'VALUE'}}}}"
                )
            copied[name] = dict(value)
    tries = copied.get("num_retries")
    if tries is not None and (not isinstance(tries, numbers.Integral) or tries < 0):
        raise ValueError(
            f"num_retries must be a whole number >= 0, got {shorten_repr(tries, 500)}; write completion_kwargs={{'num_retries': 2}}"
        )
    return replace(options, completion_kwargs=copied)


_PLAIN = ("instructions", "api_base", "max_turns", "timeout", "metadata", "on_approval")
"""The keywords that `check_values` checks."""


def build_config(host: Host = Config.host, /, **keywords: Unpack[Keywords]) -> Config:
    """Check LiteLLM's keyword arguments and make a Config of them, for a run in `host`. Nothing has started when an error is raised.

    Raises ValueError, TypeError, CapabilityUnsupported, OptionsMismatch or ToolDefinitionError. The message says what to write
    instead.
    """
    _check_supported(keywords)
    permissions = keywords.get("permissions", "full")
    check_policy(permissions)
    plain = check_values({name: keywords.get(name) for name in _PLAIN})
    options, metadata = _make_options(keywords.get("options")), dict(keywords.get("metadata") or {})
    tools = make_tools(() if (tools := keywords.get("tools")) is None else tools)
    if isinstance(permissions, Mapping):
        check_names(permissions, tools)
    where = keywords.get("api_key"), keywords.get("api_base"), metadata
    routes = find_routes((keywords.get("model"), *options.fallback), *where)
    if given := options.completion_kwargs:
        check_completion_options(given, gateway=routes[0].model.startswith(PROXY))
    for one in routes:
        base = keywords.get("api_base") if one.uses_run_options else None
        if not is_ours(one.model) and (wrong := explain_switch(one.model, base)):
            raise ValueError(wrong)
    output, observer, sandbox = keywords.get("output"), keywords.get("observer"), keywords.get("sandbox")
    if observer is not None and not isinstance(observer, Observer):
        raise ArgumentTypeInvalid(f"observer must be an Observer or None, got {type(observer).__name__}")
    return Config(
        routes=routes,
        tools=tools,
        instructions=keywords.get("instructions"),
        approvals=Approvals(permissions, keywords.get("on_approval")),
        output=None if output is None else Output(output),
        limits=Limits(plain["max_turns"], plain["timeout"]),
        options=options,
        sandbox=None if sandbox is None else make_sandbox(sandbox),
        observers=() if observer is None else (observer,),
        host=host,
    )
