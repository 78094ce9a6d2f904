"""ScriptedModel: a model whose turns are written down as Python, for lessons and for tests.

    model = ScriptedModel(
        [reasoning("I have to look."), call("search_code", query="TODO")],
        call("read_file", '{"path": '),             # arguments that are not JSON
        lambda messages: f"It said: {messages[-1]['content']}",
    )

    %%toolloop --model model

Each model call plays the next turn. LiteLLM is not needed. Code that calls `litellm.acompletion()` itself gets the same answers
after `use_with_litellm(model.model)`.

If each row of a table has its own run (`amap`, `%%toolloop --each`), each run starts with the first turn. `ModelOfRow` makes a
different model for each row.
"""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import functools
import inspect
import itertools
import json
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel

from ..core.events import OWN_MODELS, HarnessError, read_content, read_list
from ..core.execution import Raised, attempt, attempt_call, describe_error, shorten_repr
from ..core.models import Answers, Delta, PlainRefusal, ProviderError, ProviderRequest
from ..core.text import shorten
from . import registry

Messages: TypeAlias = list[dict[str, Any]]


# --- the parts of a turn: a `ScriptedTurn` plays them ------------------------------------------------------------


class ScriptError(HarnessError, TypeError):
    """Raised if a value cannot be part of a script. The message is one line that says what to write instead."""


@dataclass(frozen=True)
class TextPart:
    """Stream `content` word by word. Before each word, wait `pace` seconds (default: the model's pace)."""

    content: str
    pace: float | None = None

    async def play(self, turn: ScriptedTurn) -> AsyncIterator[Delta]:
        async for piece in turn.send_slowly(split_words(self.content), self.pace):
            yield {"content": piece}


@dataclass(frozen=True)
class ReasoningPart:
    """Stream `content` as reasoning. With a `signature`, also stream thinking blocks: providers want these back later."""

    content: str
    pace: float | None = None
    signature: str = ""

    async def play(self, turn: ScriptedTurn) -> AsyncIterator[Delta]:
        async for piece in turn.send_slowly(split_words(self.content), self.pace):
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
        """Return the same call with the id `call_id`. A call without an id gets one: "call_3_2" for the second call of turn 3."""
        return dataclasses.replace(self, id=call_id)

    async def play(self, turn: ScriptedTurn) -> AsyncIterator[Delta]:
        index = turn.calls
        turn.calls += 1
        call_id = self.id or f"call_{turn.number}_{turn.calls}"
        head = {"name": self.name, "arguments": ""}
        yield {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": head}]}
        async for piece in turn.send_slowly(re.findall(r".{1,12}", self.arguments, re.DOTALL), None):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


@dataclass(frozen=True)
class Error:
    """Fail like a provider. As the first part of a turn, an Error refuses the request. After other parts, the answer breaks off.

    `status` is the HTTP status (429: too many requests, 401: wrong key, …). None means that the connection is lost.
    """

    message: str
    status: int | None = 500
    headers: Mapping[str, str] | None = None

    def make_error(self) -> ProviderError:
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

    def find_fault(self, messages: Messages) -> str:
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
            message = f"turn {turn.number} of {turn.title}: {name} raised {describe_error(error)}"
            raise PlainRefusal(message, 400) from error
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

    async def answer(self, parts: Iterable[Part]) -> AsyncIterator[Delta]:
        """Stream the parts, and then the finish reason and the usage. Raises ProviderError if one of the parts is an Error."""
        words = 0
        async for delta in self.play(parts):
            words += count_words(str(delta.get("content") or delta.get("reasoning_content") or "x"))
            yield delta
        finish_reason = self.finish_reason or ("tool_calls" if self.calls else "stop")
        yield {"finish_reason": finish_reason, "usage": dict(self.usage or make_usage(self.messages, words))}

    async def play(self, parts: Iterable[Part]) -> AsyncIterator[Delta]:
        """Stream the parts alone. `answer` and `ReplyWith.play` use this method."""
        for part in parts:
            if isinstance(part, Error):
                raise part.make_error()
            if isinstance(part, Pause):
                await asyncio.sleep(part.seconds)
            elif isinstance(part, End):
                self.finish_reason = part.finish_reason or self.finish_reason
                self.usage = part.usage or self.usage
            elif not isinstance(part, Expect):  # `ScriptedModel.respond` has checked an Expect
                async for delta in part.play(self):
                    yield delta

    async def send_slowly(self, pieces: Iterable[str], pace: float | None) -> AsyncIterator[str]:
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


def split_words(text: str) -> Iterator[str]:
    """Split a text into words, each with the blanks after it. If the words are joined again, they are the original text."""
    return (match.group() for match in re.finditer(r"\S+\s*|\s+", text))


def count_words(text: str) -> int:
    """Return the number of words that `split_words` yields."""
    return len(text.split()) + text[:1].isspace()


def make_usage(messages: Messages, output_tokens: int) -> dict[str, int]:
    """Return the usage of our models. The input tokens are the words in the messages' texts and arguments, plus one for each
    message; `output_tokens` is the number of output tokens.
    """
    total = len(messages)
    for message in messages:
        texts = [read_content(message.get("content"), " ")]
        texts += [str(call["function"].get("arguments") or "") for call in message.get("tool_calls") or ()]
        total += sum(len(text.split()) for text in texts)
    return {"prompt_tokens": total, "completion_tokens": output_tokens}


def call(name: str | Callable[..., Any], raw_arguments: str | None = None, /, **arguments: object) -> Call:
    """Return the part that calls a tool with these keyword arguments. `name` is the tool's name or its function.

    A text in `raw_arguments` is sent unchanged instead of arguments. It may be invalid JSON.
    Raises ScriptError if an argument is not a JSON value.
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


# --- the model ---------------------------------------------------------------------------------------------------

_numbers = itertools.count(1)


class ScriptedModel(Answers):
    """A model that answers with the turns of its script.

    Args:
        turns: one turn for each model call. A turn is a text, a part (`call("f", x=1)`, `error("slow down", 429)`, …), a dict or
            a pydantic object (sent as JSON), a function of the messages so far, or a list of these.
        name: the model's full name is "toolloop/" and this name (default: "scripted-1", "scripted-2", …).
        pace: seconds before each streamed piece.
        repeat_last: if true, the last turn answers all further calls. If not, a further call raises an error that says so.
        takes_images: if true, the model also gets the pictures in tool results.

    Raises ScriptError for a value that is not a turn; the message has the turn's number.
    """

    title: str = ""
    """The model's name in messages to a person: the name of the variable in a cell's options, else the full name."""

    def __init__(
        self,
        *turns: Content,
        name: str | None = None,
        pace: float = 0.0,
        repeat_last: bool = False,
        takes_images: bool | Literal["tool", "user"] | None = False,
    ) -> None:
        self.turns = tuple(_read(number, turn) for number, turn in enumerate(turns, 1))
        self.pace = pace
        self.repeat_last = repeat_last
        self.takes_images = takes_images
        self.requests: list[ProviderRequest] = []
        """The requests that the model got, one for each call. Each request is a copy from the time of its call."""
        self._lock = threading.Lock()
        self._row_numbers = itertools.count()
        self.of_table: ScriptedModel | None = None
        """The model from which `begin_row` has made this one; None if this model is not for a row of a table."""
        self.model = self.title = registry.put(name or f"scripted-{next(_numbers)}", self)

    def name_as(self, variable: str) -> None:
        self.title = variable

    @property
    def remaining(self) -> int:
        """How many turns are left."""
        return max(0, len(self.turns) - len(self.requests))

    @property
    def position(self) -> int:
        """The number of turns that have been played. Set this number back to play the same turns again."""
        return len(self.requests)

    @position.setter
    def position(self, turns: int) -> None:
        del self.requests[turns:]

    def reset(self) -> None:
        """Start the script again with the first turn, and delete the requests."""
        self.requests = []

    def begin_row(self, row: Mapping[str, object]) -> ScriptedModel:
        """Return a model for one row. It starts the same script. Its requests are also added to the `requests` of this model."""
        made = self._prepare_copy(f"-row-{next(self._row_numbers)}")(*self.turns)
        made.name_as(self.title)
        made.of_table = self
        return made

    def respond(self, request: ProviderRequest) -> AsyncIterator[Delta]:
        """Play the next turn.

        Raises PlainRefusal if no turn is left or the turn expects another message; ProviderError if it begins with an Error.
        """
        with self._lock:  # calls may come on several of LiteLLM's threads
            self.requests.append(self._snapshot(request))
            number = len(self.requests)
        if self.of_table is not None:
            self.of_table.requests.append(self.requests[number - 1])
        messages = self.requests[number - 1].messages
        parts = self._parts(number, messages)
        for part in parts:
            if isinstance(part, Expect) and (expected := part.find_fault(messages)):
                raise PlainRefusal(
                    f"turn {number} of {self.title} does not fit: it expects {expected}, but the last message is {_describe_last(messages)}.",
                    400,
                )
        first = next((part for part in parts if not isinstance(part, Expect)), None)
        if isinstance(first, Error):
            raise first.make_error()
        return ScriptedTurn(number, messages, self.pace, self.title).answer(parts)

    def _parts(self, number: int, messages: Messages) -> tuple[Part, ...]:
        if number <= len(self.turns):
            return self.turns[number - 1]
        if self.repeat_last and self.turns:
            return self.turns[-1]
        written = f"{len(self.turns)} turn{'s' if len(self.turns) != 1 else ''}"
        variable = self.title if self.title.isidentifier() else "model"
        raise PlainRefusal(
            f"the script of {self.title} is over: it has {written}, and this is model call {number}; "
            f"the last message is {_describe_last(messages)}.\n"
            f"Add a turn, or start the script again: run the cell that makes the model, or call {variable}.reset().",
            400,
        )

    def _snapshot(self, request: ProviderRequest) -> ProviderRequest:
        """Return a copy of the request. Messages of the last request are not copied again, so that long runs stay fast."""
        before = self.requests[-1].messages if self.requests else []
        messages: Messages = [
            before[i] if i < len(before) and before[i] == message else copy.deepcopy(message)
            for i, message in enumerate(request.messages)
        ]
        return dataclasses.replace(
            request, messages=messages, tools=copy.deepcopy(request.tools), options=dict(request.options)
        )

    def __reduce__(self) -> tuple[object, ...]:
        """Describe for pickle how another process makes the model: same name and script, at the first turn."""
        return self._prepare_copy(), self.turns, {"title": self.title}

    def _prepare_copy(self, suffix: str = "") -> Callable[..., ScriptedModel]:
        """Return a function that takes this model's turns and makes a model like this one. `suffix` is added to the name."""
        return functools.partial(
            ScriptedModel,
            name=self.model.rpartition("/")[2] + suffix,
            pace=self.pace,
            repeat_last=self.repeat_last,
            takes_images=self.takes_images,
        )

    def __repr__(self) -> str:
        return f"<ScriptedModel {self.model!r}: {len(self.requests)} of {len(self.turns)} turns played>"


class ModelOfRow(Answers):
    """Makes a model for each row of a table. `make` gets the row as a mapping (column -> value), and returns a ScriptedModel."""

    def __init__(self, make: Callable[[Mapping[str, object]], Answers]) -> None:
        self.model, self._make = f"{OWN_MODELS}model-of-row", make

    def begin_row(self, row: Mapping[str, object]) -> Answers:
        """Return the model for a row. Raises ScriptError if `make` raises an exception, or returns no model."""
        made: object = attempt_call(self._make, row)
        if isinstance(made, Raised):
            raise ScriptError(f"the function for the rows' models raised {describe_error(made.error, 500)}")
        if not isinstance(made, Answers):
            raise ScriptError(
                f"the function for the rows' models returned {type(made).__name__}, not a ScriptedModel"
            )
        return made.begin_row(row)

    def respond(self, request: ProviderRequest) -> AsyncIterator[Delta]:
        """Raise PlainRefusal, because only the models for the rows can answer."""
        raise PlainRefusal("this model is made for each row of a table; use it with amap or --each", 400)


def _read(number: int, turn: Content) -> tuple[Part, ...]:
    try:
        return make_parts(turn)
    except ScriptError as error:
        raise ScriptError(f"turn {number} of the script: {error}") from None


def _describe_last(messages: Messages) -> str:
    last: dict[str, Any] = messages[-1] if messages else {"role": "nobody", "content": ""}
    shown = shorten(str(last.get("content") or ""), 120)
    return f"from {last.get('role')!r}: {shown!r}"
