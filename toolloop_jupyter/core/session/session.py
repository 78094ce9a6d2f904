"""A session: the turns of one conversation. Each turn sends its events to a stream, and ends with a Result.

Each turn runs in its own asyncio task. So a turn can be cancelled wherever its code awaits. A turn that the session cancels ends
with a Result, too. When a stream is garbage-collected, its turn is cancelled.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ..conversation import History, Prompt, dump, read_prompt
from ..events import (
    CapabilityUnsupported,
    Event,
    HarnessError,
    Observer,
    Observers,
    OutputInvalid,
    Request,
    Result,
    Retry,
    SessionClosed,
    Text,
    Usage,
    add_costs,
)
from ..loop import (
    Allowed,
    Config,
    Permissions,
    Turn,
    find_approver,
    make_request,
    read_mode,
    wait_for_import,
)
from ..models import find_untaken, must_load, start_loading
from .sandbox import Watch
from .stream import AsyncEventStream, Channel, Ended, EventStream, PromptLike

CLOSED = "session is closed; make a new one with agent_session(…, history=session.history())"
T = TypeVar("T")


def join_shown_text(events: Sequence[Event]) -> str:
    """Return the text that a turn has shown. Text that a retry has discarded is left out."""
    text = ""
    for event in events:
        if isinstance(event, Text):
            text += event.delta
        elif isinstance(event, Retry) and event.discard:
            text = text.removesuffix(event.discard)
    return text


class AsyncSession:
    """A conversation of many turns. You can open a session with `async with` or with `await`, or use it without either."""

    def __init__(
        self,
        config: Config,
        history: Sequence[Mapping[str, object]] = (),
        *,
        streamed: bool = True,
        lasting: bool = True,
        turns: Sequence[int] = (),
        allowed: Allowed | None = None,
    ) -> None:
        """Begin a conversation, or continue the conversation in `history`.

        `streamed`: True if turns may be read as streams. Then the reader of a stream can answer Approvals.
        `lasting`: False if there will be only one turn. Then a person cannot allow tool calls for the whole session.
        `turns`: for each turn, the index of its first message in `history`. `rewind` needs these indexes.
        `allowed`: the tool calls that a person has allowed so far. Several sessions may share this object.

        Raises ValueError if permissions are "ask" and nobody can be asked, HistoryInvalid if `history` is not valid.
        """
        if (
            read_mode(config.approvals.permissions) == "ask"
            and find_approver(config, streamed=streamed) == "nobody"
        ):
            raise ValueError(
                "permissions='ask' needs on_approval=, or use stream() and answer Approval events"
            )
        if must_load(config.route.model):
            start_loading()  # LiteLLM is imported in a thread, while the caller goes on
        self.config = config
        self.results: list[Result] = []
        self.session_id = uuid.uuid4().hex
        self._history = History(history, turns)
        self._lasting = lasting
        self._allowed = Allowed() if allowed is None else allowed
        self._channel: Channel | None = None
        self._closed = False

    def configure(self, config: Config) -> None:
        """Use `config` for the next turns. The conversation stays the same."""
        self.config = config

    def fork(self, config: Config) -> AsyncSession:
        """Return a new session with `config` and a copy of this conversation."""
        made = AsyncSession(config)
        made._history = copy.deepcopy(self._history)
        return made

    async def start(self) -> AsyncSession:
        """Return the session. LiteLLM's sessions have the same method. Raises SessionClosed if the session is closed."""
        if self._closed:
            raise SessionClosed(CLOSED)
        return self

    def __await__(self) -> Generator[object, None, AsyncSession]:
        return self.start().__await__()

    async def __aenter__(self) -> AsyncSession:
        return await self.start()

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    def astream(self, prompt: PromptLike, *, observers: Sequence[Observer] = ()) -> AsyncEventStream:
        """Return one turn as a stream of events. `observers` are called before the observers of the session."""
        return AsyncEventStream(self, prompt, streamed=True, observers=observers)

    async def arun(self, prompt: PromptLike) -> Result:
        """Run one turn to its end and return its Result.

        `prompt` is a text, or a list of texts, pictures, paths and other values. Raises OutputInvalid if the answer does not
        fit `output=` (the error's `result` is the Result), SessionClosed if the session is closed, HarnessError if another turn
        is running.
        """
        return await AsyncEventStream(self, prompt, streamed=False).collect()

    stream = astream
    run = arun

    async def history(self) -> list[dict[str, Any]]:
        """Return a copy of the conversation in OpenAI format. It is valid at every moment, even in the middle of a turn."""
        return self._history.copy()

    def messages(self) -> list[dict[str, Any]]:
        """Return the same as `history`, without `await` and in any thread."""
        return self._history.copy()

    async def prepare(self, given: PromptLike, *, observers: Iterable[Observer] = ()) -> Prompt:
        """Return a prompt in the form in which it is sent: with its figures drawn as pictures and its files read.

        `observers` are the observers of the turn. They may tell the person that LiteLLM is being imported. Raises ArgumentInvalid if a
        figure cannot be drawn or a file cannot be read. Raises CapabilityUnsupported if the prompt has pictures, files or sounds,
        and `images` forbids them or LiteLLM does not say that the model can read them.
        """
        prompt = read_prompt(given, self.config.host.name_code)
        if isinstance(prompt.content, str):
            return prompt
        images = self.config.options.images
        for route in self.config.routes if prompt.needs else ():
            await wait_for_import(route.model, self.config.host, observers)
            if untaken := " and ".join(find_untaken(route.model, prompt.needs, images)):
                raise CapabilityUnsupported(
                    f"the prompt has {untaken}, and images='never' sends none"
                    if images == "never"
                    else f"the prompt has {untaken}, but LiteLLM does not say that {route.title} can read this. If the model can "
                    "read it (for example, a gateway's group or a model on your own server), set images='always'"
                )
        return prompt

    async def preview(self, given: PromptLike) -> Request:
        """Return the first request of a turn with this prompt, exactly as it would be sent. Nothing is sent."""
        history = copy.deepcopy(self._history)
        turn = self._make_turn(await self.prepare(given), Channel(is_read=False), history)
        turn.history.begin_turn(self.config.instructions, self.config.route.family)
        turn.history.add_user(turn.prompt.content)
        await wait_for_import(self.config.route.model, self.config.host, ())
        return make_request(turn)

    @property
    def starts(self) -> list[int]:
        """For each turn, the index of its first message in `messages()`. The turns in the given `history` are included."""
        return self._history.starts.copy()

    def rewind(self, turn: int) -> None:
        """Remove turn number `turn` (0 is the first) and all later turns from the conversation.

        Tool calls that a person allowed for the session in these turns are no longer allowed. Raises HarnessError if a turn is
        running, IndexError if there is no turn with this number.
        """
        if self.busy:
            raise HarnessError("a turn is running on this session; stop it before rewinding")
        resumed = len(self._history.starts) - len(self.results)
        self._history.rewind(turn)
        self._allowed.forget_from(turn)
        del self.results[max(0, turn - resumed) :]

    def bookmark(self) -> Callable[[], None]:
        """Return a function that restores the session's present conversation, results and approvals. Do not call the function
        during a turn.
        """
        history, results, allowed = copy.deepcopy(self._history), self.results.copy(), self._allowed.copy()

        def go_back() -> None:
            self._history, self._allowed = copy.deepcopy(history), allowed.copy()
            self.results[:] = results

        return go_back

    def save(self, path: str | Path) -> None:
        """Write the conversation to a readable JSON file. The file contains no API keys."""
        dump(self._history.copy(), path)

    @property
    def usage(self) -> Usage:
        return sum((result.usage for result in self.results), Usage())

    @property
    def cost(self) -> float | None:
        """The cost of all turns in US dollars; None if the cost of any turn is unknown."""
        return add_costs(*(result.cost for result in self.results))

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def busy(self) -> bool:
        """True while a turn is running."""
        return self._channel is not None and not self._channel.task.done()

    async def aclose(self) -> None:
        """Refuse further turns. This may be called twice."""
        self._closed = True

    close = aclose

    def _make_turn(
        self, prompt: Prompt, channel: Channel, history: History, observers: Sequence[Observer] = ()
    ) -> Turn:
        observing = Observers((*observers, *self.config.observers))
        permissions = Permissions(self._allowed, self._lasting)
        return Turn(self.config, history, prompt, channel, permissions, observing, channel.is_read)

    async def begin(
        self, given: PromptLike, *, streamed: bool, observers: Sequence[Observer] = ()
    ) -> Channel:
        """Start a turn. Only AsyncEventStream calls this. If the present turn was told to stop, wait until it has ended.

        Raises the errors of `prepare`, SessionClosed if the session is closed, HarnessError if another turn is running.
        """
        before = self._channel
        if before is not None and (before.told_to_stop or before.reason is not None):
            await before.wait_for_end()
        prompt = await self.prepare(given, observers=observers)
        if self._closed:
            raise SessionClosed(CLOSED)
        if self.busy:
            raise HarnessError(
                "a turn is already running on this session; wait for its end, or use another session"
            )
        channel = Channel(is_read=streamed)
        channel.start(self._run(self._make_turn(prompt, channel, self._history, observers), channel))
        self._channel = channel  # not before `start`: `busy` asks for the channel's task
        return channel

    async def _run(self, turn: Turn, channel: Channel) -> Ended:
        """Run one turn. The turn has a Result even if it ends with an error."""
        config, number = turn.config, len(turn.history.starts)
        async with config.host.attend(may_ask=config.approvals.may_ask(config.tools)):
            watch = None if config.sandbox is None else Watch(config.sandbox)
            try:
                end = await channel.run_to_end(turn, watch)
            finally:
                if len(turn.history.starts) == number:  # the turn ended before its first message
                    turn.history.begin_turn(None)  # `rewind` needs a turn for each result
            files = [] if watch is None else await watch.changes()
            for change in files:
                channel.record(change)
            failed = end.error or "" if end.reason == "runtime_error" else ""
            answer = turn.answer
            result = Result(
                text=answer.text or join_shown_text(channel.recorded) or failed,
                output=answer.output,
                files=files,
                events=channel.recorded,
                usage=turn.spent.usage,
                cost=turn.spent.cost,
                stop_reason=end.reason,
                session_id=self.session_id,
                error=end.error,
                model=config.route.title,
                prompt=turn.prompt.text,
                spans=tuple(turn.spent.spans),
                output_attempts=answer.attempts,
                presenter=config.host.presenter,
            )
            self.results.append(result)
            config.host.finished(result)
            if config.output is None or answer.problem is None or end.reason != "done":
                return Ended(result, None)
            message = f"Final answer did not match {config.output.name}: {answer.problem}"
            return Ended(result, OutputInvalid(message, raw=answer.text, result=result))


# --- code without `await` ---------------------------------------------------------------------------------------


class Session:
    """A session for code without `await`. It also works in a notebook cell. Use it as a context manager."""

    def __init__(self, inner: AsyncSession) -> None:
        self._inner, self._run_sync = inner, inner.config.host.run_sync

    @property
    def aio(self) -> AsyncSession:
        """The AsyncSession that this session uses."""
        return self._inner

    def start(self) -> Session:
        self._run_sync(self._inner.start)
        return self

    def __enter__(self) -> Session:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def run(self, prompt: PromptLike) -> Result:
        result: Result = self._run_sync(lambda: self._inner.arun(prompt))
        return result

    def stream(self, prompt: PromptLike) -> EventStream:
        return EventStream(self._inner.astream(prompt), self._inner.config.host.one_loop())

    async def arun(self, prompt: PromptLike) -> Result:
        return await self._inner.arun(prompt)

    def astream(self, prompt: PromptLike) -> AsyncEventStream:
        return self._inner.astream(prompt)

    def history(self) -> list[dict[str, Any]]:
        return self._inner.messages()

    def rewind(self, turn: int) -> None:
        self._inner.rewind(turn)

    def save(self, path: str | Path) -> None:
        self._inner.save(path)

    def close(self) -> None:
        self._run_sync(self._inner.aclose)

    @property
    def results(self) -> list[Result]:
        return list(self._inner.results)

    @property
    def usage(self) -> Usage:
        return self._inner.usage

    @property
    def cost(self) -> float | None:
        return self._inner.cost

    @property
    def session_id(self) -> str:
        return self._inner.session_id

    @property
    def closed(self) -> bool:
        return self._inner.closed


class Pending(Coroutine[object, None, T]):
    """A coroutine whose repr and AttributeError say that `await` is missing. `call` is the call in these texts: "aagent(…)"."""

    def __init__(self, coroutine: Coroutine[object, None, T], call: str) -> None:
        self._coroutine, self._call = coroutine, call

    def __await__(self) -> Generator[object, None, T]:
        return self._coroutine.__await__()

    def send(self, value: None) -> object:
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> object:
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    def __repr__(self) -> str:
        return f"<nothing has run yet: write `await {self._call}`>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(f"nothing has run yet, so there is no .{name}: write `await {self._call}`")
