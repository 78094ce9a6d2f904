"""The parts of a ScriptedModel's turn: `text`, `reasoning`, `call`, `error` and others. A ScriptedTurn plays them."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import inspect
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pydantic import BaseModel

from ..core.events import HarnessError, read_list
from ..core.execution import attempt, describe_error, shorten_repr
from ..core.models import Delta, PlainRefusal, ProviderError

Messages: TypeAlias = list[dict[str, Any]]


class ScriptError(HarnessError, TypeError):
    """Raised if a value cannot be part of a script. The message is one line that says what to write instead."""


@dataclass(frozen=True)
class TextPart:
    """Stream `content` word by word. Before each word, wait `pace` seconds (default: the model's pace)."""

    content: str
    pace: float | None = None

    async def play(self, turn: ScriptedTurn) -> AsyncIterator[Delta]:
        async for piece in turn.paced(words(self.content), self.pace):
            yield {"content": piece}


@dataclass(frozen=True)
class ReasoningPart:
    """Stream `content` as reasoning. With a `signature`, also stream thinking blocks: providers want these back later."""

    content: str
    pace: float | None = None
    signature: str = ""

    async def play(self, turn: ScriptedTurn) -> AsyncIterator[Delta]:
        async for piece in turn.paced(words(self.content), self.pace):
            block = {"type": "thinking", "thinking": piece}
            yield {"reasoning_content": piece, **({"thinking_blocks": [block]} if self.signature else {})}
        if self.signature:
            yield {"thinking_blocks": [{"type": "thinking", "thinking": "", "signature": self.signature}]}


@dataclass(frozen=True)
class Call:
    """A tool call. `arguments` is the text that the model sends. It may be invalid JSON."""

    name: str
    arguments: str
    id: str = ""

    def as_id(self, call_id: str) -> Call:
        """Return the same call with the id `call_id`. Without this, call number N of turn TURN has the id "call_TURN_N"."""
        return dataclasses.replace(self, id=call_id)

    async def play(self, turn: ScriptedTurn) -> AsyncIterator[Delta]:
        index = turn.calls
        turn.calls += 1
        call_id = self.id or f"call_{turn.number}_{turn.calls}"
        head = {"name": self.name, "arguments": ""}
        yield {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": head}]}
        async for piece in turn.paced(re.findall(r".{1,12}", self.arguments, re.DOTALL), None):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


@dataclass(frozen=True)
class Error:
    """Fail like a provider. If an Error is the first part of a turn, the request is refused; if not, the answer breaks off.

    `status` is the HTTP status (429: too many requests, 401: wrong key, …). None means that the connection is lost.
    """

    message: str
    status: int | None = 500
    headers: Mapping[str, str] | None = None

    def made(self) -> ProviderError:
        return ProviderError(self.message, self.status, self.headers or {})


@dataclass(frozen=True)
class Pause:
    """Send nothing for `seconds` seconds."""

    seconds: float


@dataclass(frozen=True)
class Deltas:
    """Stream raw deltas in OpenAI's format, also invalid ones. A delta may have "finish_reason" and "usage"."""

    given: Sequence[Delta]

    async def play(self, turn: ScriptedTurn) -> AsyncIterator[Delta]:
        for delta in self.given:
            turn.calls += len(read_list(delta.get("tool_calls")))
            yield dict(delta)


@dataclass(frozen=True)
class End:
    """End the turn with OpenAI's `finish_reason` ("length", …) and `usage`, {"prompt_tokens": …, "completion_tokens": …}."""

    finish_reason: str | None = None
    usage: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Expect:
    """Play this turn only if the last message has `text` and the role `role` ("tool", "user"); else the model call fails."""

    text: str = ""
    role: str = ""

    def complaint(self, messages: Messages) -> str:
        """Return a description of the expected message; "" if the last message is as expected."""
        last = messages[-1] if messages else {}
        wanted = [f"role {self.role!r}"] if self.role and last.get("role") != self.role else []
        if self.text and self.text not in str(last.get("content")):
            wanted.append(f"the text {self.text!r}")
        return f"a last message with {' and '.join(wanted)}" if wanted else ""


@dataclass(frozen=True)
class ReplyWith:
    """Call `function(messages)`, which may be async, and play the text, part or list that it returns."""

    function: Callable[[Messages], Any]

    async def play(self, turn: ScriptedTurn) -> AsyncIterator[Delta]:
        # The function is a person's own code. Like a tool's function, it may raise anything.
        outcome = await attempt(self._parts(turn))
        error = outcome.error
        if isinstance(error, ProviderError):
            raise error
        if error is not None:
            name = getattr(self.function, "__name__", "the function")
            told = f"turn {turn.number} of {turn.title}: {name} raised {describe_error(error)}"
            raise PlainRefusal(told, 400) from error
        async for delta in turn.play(outcome.value):
            yield delta

    async def _parts(self, turn: ScriptedTurn) -> tuple[Part, ...]:
        made = self.function(copy.deepcopy(turn.messages))
        return make_parts(await made if inspect.isawaitable(made) else made)


text, reasoning, error, pause = TextPart, ReasoningPart, Error, Pause
deltas, end, expect, reply_with = Deltas, End, Expect, ReplyWith

Part: TypeAlias = TextPart | ReasoningPart | Call | Error | Pause | Deltas | End | Expect | ReplyWith
One: TypeAlias = str | Part | Mapping[str, Any] | BaseModel | Callable[[Messages], Any]
Content: TypeAlias = One | Sequence[One]


@dataclass
class ScriptedTurn:
    """The state of one turn while its parts are played."""

    number: int
    messages: Messages
    pace: float
    title: str = "the script"
    calls: int = 0
    finish_reason: str = ""
    usage: Mapping[str, Any] | None = None

    async def play(self, parts: Iterable[Part]) -> AsyncIterator[Delta]:
        """Stream the parts. Raises ProviderError if one of the parts is an Error."""
        for part in parts:
            if isinstance(part, Error):
                raise part.made()
            if isinstance(part, Pause):
                await asyncio.sleep(part.seconds)
            elif isinstance(part, End):
                self.finish_reason = part.finish_reason or self.finish_reason
                self.usage = part.usage or self.usage
            elif not isinstance(part, Expect):  # `ScriptedModel.respond` has checked an Expect
                async for delta in part.play(self):
                    yield delta

    async def paced(self, pieces: Iterable[str], pace: float | None) -> AsyncIterator[str]:
        """Yield the pieces. Wait `pace` seconds before each piece; None means the model's pace."""
        seconds = self.pace if pace is None else pace
        for piece in pieces:
            if seconds > 0:
                await asyncio.sleep(seconds)
            yield piece


def make_parts(content: Content) -> tuple[Part, ...]:
    """Turn the content of a turn, such as a text or a list, into parts. Raises ScriptError for a value that cannot be a part."""
    if isinstance(content, (list, tuple)):
        return tuple(part for one in content for part in make_parts(one))
    if isinstance(content, str):
        return (TextPart(content),)
    if isinstance(content, Part):
        return (content,)
    if isinstance(content, BaseModel):
        return (TextPart(content.model_dump_json()),)
    if isinstance(content, Mapping):
        return (TextPart(json.dumps(content, ensure_ascii=False)),)
    given: object = content
    if given is call:
        raise ScriptError("call is a function; call it: call(…)")
    if callable(content) and not isinstance(content, type):
        return (ReplyWith(content),)
    raise ScriptError(
        f"a turn is a text, a part such as call('f', x=1), a function of the messages, or a list of these, "
        f"not {shorten_repr(content, 500)}"
    )


def words(text: str) -> Iterator[str]:
    """Split a text into words, each with the blanks behind it. The pieces, joined again, are the original text."""
    return (found.group() for found in re.finditer(r"\S+\s*|\s+", text))


def count_words(text: str) -> int:
    """Return the number of pieces into which `words` splits a text."""
    return len(text.split()) + text[:1].isspace()


def call(name: str | Callable[..., Any], raw_arguments: str | None = None, /, **arguments: object) -> Call:
    """Return the part that calls a tool with these keyword arguments. `name` is the tool's name or its function.

    A text in `raw_arguments` is sent unchanged instead of arguments. It may be invalid JSON.
    Raises ScriptError if an argument is no JSON value.
    """
    called = name if isinstance(name, str) else getattr(name, "__name__", None)
    if called is None:
        raise ScriptError(f"call() wants the name of a tool, as in call('search', query='x'), not {name!r}")
    if raw_arguments is not None and (arguments or not isinstance(raw_arguments, str)):
        raise ScriptError(
            f"give call({called!r}) arguments by name, as in call({called!r}, x=1), or one raw text, not both"
        )
    if raw_arguments is not None:
        return Call(called, raw_arguments)
    try:
        return Call(called, json.dumps(arguments, ensure_ascii=False))
    except (TypeError, ValueError) as problem:
        raise ScriptError(f"call({called!r}): {problem}; a model sends JSON values") from None
