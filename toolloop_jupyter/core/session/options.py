"""What a run is made with: checked, once, before anything starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ..events import CapabilityUnsupported, Observer, OptionsMismatch, check_values
from ..loop import (
    PROXY,
    ApprovalHandler,
    Config,
    Output,
    ToolLoopOptions,
    check_names,
    check_policy,
    find_route,
)
from ..models import check_completion_options
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
        return options
    if type(options).__name__ == "ToolLoopOptions":  # LiteLLM's
        return ToolLoopOptions(completion_kwargs=options.completion_kwargs)
    raise OptionsMismatch(
        f"{type(options).__name__} cannot be used with Harness.TOOL_LOOP; use ToolLoopOptions(completion_kwargs=…)"
    )


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
    given = {"instructions": instructions, "api_base": api_base, "max_turns": max_turns, "timeout": timeout}
    check_values({**given, "metadata": metadata, "on_approval": on_approval})
    _check_unsupported(skills, disable_tools, install=install)
    checked = _check_options(options)
    _check_retries(checked.completion_kwargs.get("num_retries"))
    facts = dict(metadata or {})
    made = make_tools(tools)
    check_names(permissions, made)
    goes_to = find_route(model, api_key, api_base, facts)
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
        sandbox=make_sandbox(sandbox),
        observers=() if observer is None else (observer,),
    )
