"""LiteLLM's agent API for the Tool Loop: arguments -> Session.

The names and keywords are those of `litellm.agent` & co. (1.110), so code moves by changing an import. Unlike
LiteLLM's, the sync functions work inside a notebook cell, and `sandbox` may be left out.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from typing_extensions import Unpack

from .core import conversation
from .core.events import (
    ArgumentInvalid,
    ArgumentTypeInvalid,
    HarnessError,
    Observer,
    Result,
)
from .core.loop import ApprovalHandler, Config, may_ask
from .core.session import (
    TOOL_LOOP_CAPABILITIES,
    AsyncEventStream,
    AsyncSession,
    Capabilities,
    EventStream,
    Pending,
    Session,
    build_config,
    collect,
    require_tool_loop,
)
from .notebook import kernel, live
from .notebook.live import results

Result.presenter = results
kernel.watch_cells()

F = TypeVar("F", bound=Callable[..., Any])


class Keywords(TypedDict, total=False):
    """The keywords that `agent`, `aagent`, `agent_session` and `aagent_session` share."""

    sandbox: Any
    """`sandbox.local(path)`, LiteLLM's own, a path or None: where changed files are looked for. Confines nothing."""
    model: Any
    """LiteLLM's model name, `litellm_proxy/<group>`, "toolloop/demo", or a ScriptedModel."""
    api_key: str | None
    api_base: str | None
    instructions: str | None
    """The system message."""
    tools: Sequence[Callable[..., Any]]
    """Python functions; what cannot be described raises ToolDefinitionError."""
    skills: Sequence[Any]
    disable_tools: Sequence[Any]
    permissions: Any
    """"full", "ask", {"tool": mode, "*": mode}, or a callable on the validated call."""
    on_approval: ApprovalHandler | None
    """Called with each Approval; true allows. Sync ones run in a thread."""
    output: Any
    """A pydantic model (or dataclass, list, union …) that the final answer must fit."""
    max_turns: int | None
    """Tool calls in one turn."""
    timeout: float | None
    """Seconds for one turn."""
    metadata: Mapping[str, object] | None
    """Goes to the gateway's spend logs."""
    options: Any
    """`ToolLoopOptions`."""
    install: bool
    observer: Observer | None
    """Ours: watches the loop's steps."""


def _with_keywords(function: F) -> F:
    """Show the shared keywords, with their defaults, in the function's signature (help, Tab)."""
    shared = inspect.signature(build_config).parameters.values()
    own = [p for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
    function.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
    return function


def _config(harness: object, keywords: Keywords, *, cards: bool) -> Config:
    """Check everything; with `cards`, a notebook's approval card answers where nobody else would."""
    from . import teaching  # noqa: F401 - provides the models "toolloop/…"

    for name in keywords:
        if name not in Keywords.__annotations__:
            near = difflib.get_close_matches(name, Keywords.__annotations__, n=1)
            hint = (
                f"did you mean {near[0]}=?" if near else f"there are {', '.join(Keywords.__annotations__)}."
            )
            raise ArgumentTypeInvalid(f"unexpected keyword argument {name!r}; {hint}")
    try:
        require_tool_loop(harness)
        config = build_config(**keywords)
        # The caller's frame stays for the whole run, and `%xmode Verbose` shows its arguments: no key must be among them.
        keywords.clear()  # type: ignore[attr-defined]  # each call has a dict of its own
    except (ValueError, TypeError) as error:
        if isinstance(error, HarnessError):
            raise
        made = ArgumentInvalid if isinstance(error, ValueError) else ArgumentTypeInvalid
        raise made(str(error)) from None
    if type(config.observer) is Observer and any(tool.settings.capture_output for tool in config.tools):
        from .notebook.live import Kept

        config = dataclasses.replace(config, observer=Kept())
    if kernel.shell() is not None:
        config = dataclasses.replace(
            config, attend=kernel.attending_to_cell, on_stopped=kernel.stopped, on_result=live.keep
        )
        if cards and config.on_approval is None and may_ask(config):
            from .notebook.live import card_handler

            kept = functools.partial(kernel.attending_to_cell, may_be_cleared=False)  # the decisions stay
            config = dataclasses.replace(config, cards=card_handler(), attend=kept)
    return config


@_with_keywords
def aagent(
    harness: object, prompt: str, *, stream: bool = False, **keywords: Unpack[Keywords]
) -> Coroutine[Any, Any, Result] | AsyncEventStream:
    """Run one prompt: `await aagent(...)` gives a Result, `async for event in aagent(..., stream=True)` its events.

    Raises before anything starts: ValueError, TypeError, CapabilityUnsupported, OptionsMismatch, ToolDefinitionError.
    Awaiting raises OutputInvalid (with `.raw` and `.result`) for an answer that never fitted `output=`.
    """
    config = _config(harness, keywords, cards=not stream)
    if stream:
        session = AsyncSession(config, lasting=False)
        return AsyncEventStream(session, prompt, interactive=True, close_session=True)
    session = AsyncSession(config, interactive=False, lasting=False)
    run = collect(AsyncEventStream(session, prompt, interactive=False, close_session=True))
    return Pending(run, "aagent(…)")


@_with_keywords
def agent(
    harness: object, prompt: str, *, stream: bool = False, **keywords: Unpack[Keywords]
) -> Result | EventStream:
    """Run one prompt and return its Result, or with `stream=True` an iterator of its events. Works in a notebook cell.

    Raises what `aagent` raises.
    """
    config = _config(harness, keywords, cards=not stream)
    if stream:
        session = AsyncSession(config, lasting=False)
        inner = AsyncEventStream(session, prompt, interactive=True, close_session=True)
        return EventStream(inner, kernel.one_loop())
    session = AsyncSession(config, interactive=False, lasting=False)
    return kernel.run_sync(
        lambda: collect(AsyncEventStream(session, prompt, interactive=False, close_session=True))
    )


@_with_keywords
def aagent_session(
    harness: object, *, history: Sequence[Mapping[str, Any]] = (), **keywords: Unpack[Keywords]
) -> AsyncSession:
    """A conversation of many turns: `async with aagent_session(...) as s: await s.arun("…")`.

    `history` continues a conversation in OpenAI format (ours); HistoryInvalid says what is wrong with one.
    """
    return AsyncSession(_config(harness, keywords, cards=True), history)


@_with_keywords
def agent_session(
    harness: object, *, history: Sequence[Mapping[str, Any]] = (), **keywords: Unpack[Keywords]
) -> Session:
    """A conversation of many turns: `with agent_session(...) as s: s.run("…")`. See `aagent_session`."""
    return Session(aagent_session(harness, history=history, **keywords), kernel.run_sync, kernel.one_loop)


def load(path: str | Path, *, repair: bool = False) -> list[dict[str, Any]]:
    """The conversation in a file written by `session.save(path)`, to give back as `agent_session(history=…)`.

    A bare list of OpenAI messages is taken, too. `repair` makes one valid that is not, changing as little as possible.
    Raises HistoryInvalid for what is no conversation, or none that a provider would take.
    """
    return conversation.load(path, mend=repair)


def agent_capabilities(harness: object) -> Capabilities:
    """What the Tool Loop supports (permission modes, structured output, …)."""
    require_tool_loop(harness)
    return TOOL_LOOP_CAPABILITIES
