"""What a run is made with: checked, once, before anything starts."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypedDict

from typing_extensions import Unpack

from ..events import ArgumentTypeInvalid, CapabilityUnsupported, Observer, OptionsMismatch, check_values
from ..loop import (
    ApprovalHandler,
    Config,
    Output,
    ToolLoopOptions,
    check_names,
    check_policy,
    find_route,
)
from ..models import PROXY, check_completion_options, explain_switch, is_ours
from ..tools import make_tools
from .files import make_sandbox


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
    """What a harness supports (LiteLLM's fields): by default what the Tool Loop does."""

    structured_output: bool = True
    tool_approval: bool = True
    tool_filtering: bool = False
    history: bool = True
    custom_tools: bool = True
    skills: bool = False
    resume: bool = False
    permission_modes: frozenset[str] = frozenset({"ask", "full"})


def require_tool_loop(harness: object) -> None:
    """Take our `Harness.TOOL_LOOP` and LiteLLM's, which has the same members.

    Raises TypeError for what is no Harness, CapabilityUnsupported for another one.
    """
    if not isinstance(harness, Enum) or harness.name not in Harness.__members__:
        wanted = str(harness).strip().upper().replace("-", "_")
        hint = f" Did you mean Harness.{wanted}?" if wanted in Harness.__members__ else ""
        raise TypeError(f"harness must be Harness.TOOL_LOOP, got {type(harness).__name__} {harness!r}.{hint}")
    if harness.name != "TOOL_LOOP":
        raise CapabilityUnsupported(
            f"toolloop_jupyter runs Harness.TOOL_LOOP only; use litellm.aagent(Harness.{harness.name}, …, stream=True) "
            "and show(stream) for this one"
        )


class Keywords(TypedDict, total=False):
    """The keywords that `agent`, `aagent`, `agent_session` and `aagent_session` share."""

    sandbox: object
    """`sandbox.local(path)`, LiteLLM's own, a path or None: where changed files are looked for. Confines nothing."""
    model: object
    """LiteLLM's model name, `litellm_proxy/<group>`, "toolloop/demo", or a ScriptedModel."""
    api_key: str | None
    api_base: str | None
    instructions: str | None
    """The system message."""
    tools: Sequence[Callable[..., Any]]
    """Python functions; what cannot be described raises ToolDefinitionError."""
    skills: Sequence[object]
    disable_tools: Sequence[object]
    permissions: object
    """"full", "ask", {"tool": mode, "*": mode}, or a callable on the validated call."""
    on_approval: ApprovalHandler | None
    """Called with each Approval; true allows. Sync ones run in a thread."""
    output: object
    """A pydantic model (or dataclass, list, union …) that the final answer must fit."""
    max_turns: int | None
    """Tool calls in one turn."""
    timeout: float | None
    """Seconds for one turn."""
    metadata: Mapping[str, object] | None
    """Goes to the gateway's spend logs."""
    options: object
    """`ToolLoopOptions`."""
    install: bool
    observer: Observer | None
    """Ours: watches the loop's steps."""


DEFAULTS: Keywords = {
    "tools": (),
    "skills": (),
    "disable_tools": (),
    "permissions": "full",
    "install": False,
}
"""What a keyword is when it is not given; None where it is not among these."""


def _check_supported(keywords: Keywords) -> None:
    """Raise for a keyword that there is not, and for what LiteLLM's other harnesses take."""
    for name in keywords:
        if name not in Keywords.__annotations__:
            near = difflib.get_close_matches(name, Keywords.__annotations__, n=1)
            known = f"there are {', '.join(Keywords.__annotations__)}."
            hint = f"did you mean {near[0]}=?" if near else known
            raise ArgumentTypeInvalid(f"unexpected keyword argument {name!r}; {hint}")
    if keywords.get("install"):
        raise CapabilityUnsupported("install=True is not supported: the Tool Loop has nothing to install")
    if keywords.get("skills"):
        raise CapabilityUnsupported(
            "Harness.TOOL_LOOP does not support skills=; put the text into instructions="
        )
    if keywords.get("disable_tools"):
        raise CapabilityUnsupported(
            "Harness.TOOL_LOOP does not support disable_tools=: it has no built-in tools; leave the function out of tools="
        )


def _make_options(options: object) -> ToolLoopOptions:
    """Ours, or what LiteLLM's say. Raises OptionsMismatch for those of another harness."""
    if options is None:
        options = ToolLoopOptions()
    elif not isinstance(options, ToolLoopOptions):
        given = getattr(
            options, "completion_kwargs", None
        )  # of LiteLLM's options only its ToolLoopOptions have it
        if given is None:
            raise OptionsMismatch(
                f"{type(options).__name__} cannot be used with Harness.TOOL_LOOP; use ToolLoopOptions(completion_kwargs=…)"
            )
        options = ToolLoopOptions(completion_kwargs=given)
    tries = options.completion_kwargs.get("num_retries")
    if tries is not None and (not isinstance(tries, int) or tries < 0):
        raise ValueError(
            f"num_retries must be a whole number >= 0, got {tries!r}; write completion_kwargs={{'num_retries': 2}}"
        )
    return options


_PLAIN = ("instructions", "api_base", "max_turns", "timeout", "metadata", "on_approval")
"""Those that `CHECKS` describes."""


def build_config(**keywords: Unpack[Keywords]) -> Config:
    """Check LiteLLM's keyword arguments and make a Config of them.

    Raises ValueError, TypeError, CapabilityUnsupported, OptionsMismatch or ToolDefinitionError, each naming what to
    write instead, before anything has started.
    """
    _check_supported(keywords)
    permissions = keywords.get("permissions", "full")
    check_policy(permissions)
    check_values({name: keywords.get(name) for name in _PLAIN})
    options, facts = _make_options(keywords.get("options")), dict(keywords.get("metadata") or {})
    tools = make_tools(keywords.get("tools", ()))
    check_names(permissions, tools)
    route = find_route(keywords.get("model"), keywords.get("api_key"), keywords.get("api_base"), facts)
    check_completion_options(options.completion_kwargs, gateway=route.model.startswith(PROXY))
    if not is_ours(route.model) and (wrong := explain_switch(route.model, keywords.get("api_base"))):
        raise ValueError(wrong)
    output, observer, sandbox = keywords.get("output"), keywords.get("observer"), keywords.get("sandbox")
    return Config(
        route=route,
        tools=tools,
        instructions=keywords.get("instructions"),
        permissions=permissions,
        on_approval=keywords.get("on_approval"),
        output=None if output is None else Output(output),
        max_turns=keywords.get("max_turns"),
        timeout=keywords.get("timeout"),
        options=options,
        sandbox=None if sandbox is None else make_sandbox(sandbox),
        observers=() if observer is None else (observer,),
    )
