"""Runs a session on a scripted model with tools that count, and notes what can be seen of it."""

from __future__ import annotations

import asyncio
import atexit
import functools
import logging
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

from fuzz.seam import Seen
from toolloop_jupyter import Harness, aagent_session
from toolloop_jupyter.core.events import Approval, Done, HarnessError, Observer, OutputInvalid
from toolloop_jupyter.core.models import Answers, Delta, ProviderError, ProviderRequest, await_litellm, call
from toolloop_jupyter.core.session import AsyncSession
from toolloop_jupyter.core.session import keywords as session_keywords
from toolloop_jupyter.core.tools import make_tools
from toolloop_jupyter.teaching import registry

PROMPT, FOLLOWING = "Go.", "And now?"
DONE, NEXT = "Done.", "Next."


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    atexit.register(_close, loop)
    return loop


def _close(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(loop):  # of LiteLLM's client
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


def run(work: Awaitable[Any]) -> Any:
    """Run a coroutine to its end on the fuzzer's own loop."""
    return _loop().run_until_complete(work)


@functools.cache
def make_ready() -> None:
    """Import LiteLLM, and the modules that its first call needs."""
    run(await_litellm())


class Script(Answers):
    """A model that streams the deltas of `turns`, one after another, then says DONE; to FOLLOWING it says NEXT.

    A turn may break: {"deltas": […], "breaks": status or null}; with a finish reason: {"deltas": […], "finish": "length"}.
    """

    def __init__(self, turns: Sequence[Mapping[str, Any]], seen: Seen) -> None:
        self._turns, self._seen, self._number = turns, seen, 0
        self.takes_images = True
        self.model = registry.put("fuzz", self)

    def respond(self, request: ProviderRequest) -> AsyncIterator[Delta]:
        messages = request.messages
        self._seen.histories.append((f"request {self._number}", [dict(one) for one in messages]))
        if FOLLOWING in str(messages[-1]["content"]):
            return self._play({"deltas": [{"content": NEXT}]})
        self._number += 1
        if self._number > len(self._turns):
            return self._play({"deltas": [{"content": DONE}]})
        turn = self._turns[self._number - 1]
        if "refuses" in turn:
            raise ProviderError("refused", turn["refuses"], {"retry-after": "0"})
        return self._play(turn)

    async def _play(self, turn: Mapping[str, Any]) -> AsyncIterator[Delta]:
        for delta in turn["deltas"]:
            yield dict(delta)
        if "breaks" in turn:
            raise ProviderError("broken off", turn["breaks"], {"retry-after": "0"})
        if turn.get("finish"):
            yield {"finish_reason": turn["finish"]}


_current: list[Seen] = []
"""The counter of the calls for the present input."""


def counting_tools(seen: Seen, *, threads: bool = False) -> list[Callable[..., Any]]:
    """Return four tools. Some of their names have the same beginning. Each tool counts its calls by name and `n`."""
    _current[:] = [seen]
    return _make_counting_tools(threads=threads)


@functools.cache
def _make_counting_tools(*, threads: bool) -> list[Callable[..., Any]]:
    """Return the same functions for all inputs: describing them takes longer than running them."""

    def make(name: str) -> Callable[..., Any]:
        def work(n: int, s: str = "") -> str:
            _current[0].ran[f"{name} {n}"] += 1
            return f"{name} {n} {s}"

        async def work_on_loop(n: int, s: str = "") -> str:
            return work(n, s)

        made = work if threads else work_on_loop
        made.__name__ = made.__qualname__ = name
        made.__doc__ = "Count."
        return made

    return [make(name) for name in NAMES]


_described: dict[tuple[Any, ...], Any] = {}


def _describe_once(functions: Sequence[Any]) -> Any:
    """Do what `make_tools` does, but only once for the same functions."""
    key = tuple(functions)
    if key not in _described or len(_described) > 50:
        _described.clear()
        _described[key] = make_tools(functions)
    return _described[key]


NAMES = ("f", "find", "find_all", "g")


class _Collector(logging.Handler):
    def __init__(self, into: list[str]) -> None:
        super().__init__()
        self._into = into

    def emit(self, record: logging.LogRecord) -> None:
        lines = record.getMessage().strip().splitlines()
        self._into.append(
            f"{lines[-1]} {' '.join(line.strip() for line in lines if 'toolloop_jupyter' in line)[-200:]}"
        )


@contextmanager
def unexpected_in(seen: Seen) -> Iterator[None]:
    """In this context, an unexpected error that the package logs counts as an exception that has left."""
    logger, handler = logging.getLogger("toolloop_jupyter"), _Collector(seen.escaped)
    logger.addHandler(handler)
    propagates, logger.propagate = logger.propagate, False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates


def told(error: BaseException) -> str:
    """Return an error and its place in one line."""
    frames, where = error.__traceback__, ""
    while frames is not None:
        name = frames.tb_frame.f_code.co_filename
        if "toolloop_jupyter" in name:
            where = f"{name.rpartition('toolloop_jupyter/')[2]}:{frames.tb_frame.f_code.co_name}"
        frames = frames.tb_next
    return f"{type(error).__name__}: {error!s:.200} at {where}"


_AT_ONCE = types.SimpleNamespace(sleep=lambda seconds: asyncio.sleep(0))
"""Replaces asyncio in the module of model calls, so that the wait before a retry takes no time."""

Reader = Callable[[Approval], None]


def watch(
    seen: Seen,
    model: Any,
    *,
    stop: int | None = None,
    reader: Reader | None = None,
    follow: bool = True,
    compare: bool = True,
    **keywords: Any,
) -> AsyncSession | None:
    """Run a turn with PROMPT, and one with FOLLOWING. Note in `seen` everything that can be seen of them.

    `stop`: cancel the first turn at this event. `reader` answers the requests in the stream. Returns the session.
    """
    with (
        unexpected_in(seen),
        mock.patch.object(call, "asyncio", _AT_ONCE),
        mock.patch.object(session_keywords, "make_tools", _describe_once),
    ):
        try:
            session = aagent_session(Harness.TOOL_LOOP, model=model, **keywords)
        except HarnessError as error:
            seen.texts.append(("a refusal", str(error)))
            return None
        try:
            run(_two_turns(seen, session, stop, reader, follow=follow, compare=compare))
        except Exception as error:  # the fault that is looked for
            seen.escaped.append(told(error))
    return session


class _Looks(Observer):
    """Notes the history before each step. (A reader may see an event only after the next ones have happened.)"""

    def __init__(self, seen: Seen, session: AsyncSession) -> None:
        self._seen, self._session = seen, session

    async def before_model(self, request: Any) -> None:
        self._look("before a model call")

    async def before_call(self, called: Any, arguments: Any) -> None:
        self._look("before a call")

    async def before_tool(self, called: Any, arguments: Any) -> None:
        self._look("before a tool runs")

    def _look(self, when: str) -> None:
        self._seen.histories.append((when, self._session.messages()))


async def _two_turns(
    seen: Seen, session: AsyncSession, stop: int | None, reader: Reader | None, *, follow: bool, compare: bool
) -> None:
    before = len(session.messages())
    await _one_turn(seen, session, PROMPT, stop, reader)
    if compare:
        seen.kept_turns.append(("the turn", session.messages()[before:]))
    if not follow:
        return
    await _one_turn(seen, session, FOLLOWING, None, reader)
    seen.pairs.append(("the next turn", (seen.results[-1].text, seen.results[-1].error), (NEXT, None)))


async def _one_turn(
    seen: Seen, session: AsyncSession, prompt: str, stop: int | None, reader: Reader | None
) -> None:
    number = 0
    stream = session.astream(prompt, observers=[_Looks(seen, session)])
    try:
        async for event in stream:
            number += 1
            seen.histories.append((f"at event {number}, {type(event).__name__}", session.messages()))
            if isinstance(event, Done):
                seen.results.append(event.result)
            if isinstance(event, Approval) and reader is not None:
                reader(event)
            if number == stop:
                stream.cancel()
    except OutputInvalid as error:
        seen.texts.append(("the error", str(error)))
    seen.histories.append(("after the turn", session.messages()))
