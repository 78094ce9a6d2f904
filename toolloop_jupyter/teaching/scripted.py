"""ScriptedModel: a model whose turns are written down as Python, for lessons and for tests.

    model = ScriptedModel(
        [reasoning("I have to look."), call("search_code", query="TODO")],
        call("read_file", '{"path": '),             # arguments that are no JSON
        lambda messages: f"It said: {messages[-1]['content']}",
    )

    %%toolloop --model model

If each row of a table has its own run (`amap`, `%%toolloop --each`), each run starts with the script's first turn. `ModelOfRow`
makes a different model for each row.

Each model call plays the next turn. LiteLLM is not needed. Code that calls `litellm.acompletion()` itself gets the same answers
after `use_with_litellm(model.model)`.
"""

from __future__ import annotations

import copy
import itertools
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from typing import Any

from ..core.events import OWN_MODELS
from ..core.execution import Raised, attempt_call, describe_error
from ..core.models import Answers, Delta, PlainRefusal, ProviderRequest
from ..core.text import shorten
from . import registry
from .parts import Content, Error, Expect, Messages, Part, ScriptedTurn, ScriptError, count_words, make_parts

_numbers = itertools.count(1)


class ScriptedModel(Answers):
    """A model that answers with the turns of its script.

    Args:
        turns: one turn for each model call. A turn is a text, a part (`call("f", x=1)`, `error("slow down", 429)`, …), a dict or
            a pydantic object (sent as JSON), a function of the messages so far, or a list of these.
        name: NAME in the model's full name "toolloop/NAME" (default: "scripted-1", "scripted-2", …).
        pace: seconds before each streamed piece.
        repeat_last: if true, the last turn answers all further calls. If not, a further call raises an error that says so.
        takes_images: if true, the model also gets the pictures in tool results.

    A new object starts with the first turn. Raises ScriptError for a value that is no turn; the message has the turn's number.
    """

    def __init__(
        self,
        *turns: Content,
        name: str | None = None,
        pace: float = 0.0,
        repeat_last: bool = False,
        takes_images: bool = False,
    ) -> None:
        self.turns = tuple(_read(number, turn) for number, turn in enumerate(turns, 1))
        self.pace = pace
        self.repeat_last = repeat_last
        self.takes_images = takes_images
        self.requests: list[ProviderRequest] = []
        """The requests that the model got, one for each call. Each request is a copy from the time of its call."""
        self._lock = threading.Lock()
        self.places: weakref.WeakValueDictionary[int, ScriptedModel] = weakref.WeakValueDictionary()
        """Number at the end of the model's name -> the model of a row that runs now."""
        self.model = registry.put(name or f"scripted-{next(_numbers)}", self)
        self._title = self.model

    @property
    def title(self) -> str:
        """The model's name in messages to a person: the variable that a cell has named, else "toolloop/NAME"."""
        return self._title

    def name_as(self, variable: str) -> None:
        self._title = variable

    @property
    def remaining(self) -> int:
        """How many turns are left."""
        return max(0, len(self.turns) - len(self.requests))

    @property
    def position(self) -> int:
        """The number of turns that have been played. A cell that runs again sets this number back to play the same turns."""
        return len(self.requests)

    @position.setter
    def position(self, turns: int) -> None:
        del self.requests[turns:]

    def reset(self) -> None:
        """Start the script again with the first turn, and delete the requests."""
        self.requests = []

    def begin_row(self, row: Mapping[str, object]) -> ScriptedModel:
        """Return a model for one row. It starts the same script. Its requests are also added to the `requests` of this model."""
        return _ScriptOfRow(self)

    def respond(self, request: ProviderRequest) -> AsyncIterator[Delta]:
        """Play the next turn.

        Raises PlainRefusal if no turn is left or the turn expects another message; ProviderError if it begins with an Error.
        """
        with self._lock:  # calls may come on several of LiteLLM's threads
            self.requests.append(self._snapshot(request))
            number = len(self.requests)
        messages = self.requests[number - 1].messages
        parts = self._parts(number, messages)
        for part in parts:
            if isinstance(part, Expect) and (complaint := part.complaint(messages)):
                raise PlainRefusal(
                    f"turn {number} of {self.title} does not fit: it expects {complaint}, but the last message is {_describe_last(messages)}.",
                    400,
                )
        first = next((part for part in parts if not isinstance(part, Expect)), None)
        if isinstance(first, Error):
            raise first.made()
        return self._play(ScriptedTurn(number, messages, self.pace, title=self.title), parts)

    def _parts(self, number: int, messages: Messages) -> tuple[Part, ...]:
        if number <= len(self.turns):
            return self.turns[number - 1]
        if self.repeat_last and self.turns:
            return self.turns[-1]
        written = f"{len(self.turns)} turn{'s' if len(self.turns) != 1 else ''}"
        called = self.title if self.title.isidentifier() else "the model"
        raise PlainRefusal(
            f"the script of {self.title} is over: it has {written}, and this is model call {number}; "
            f"the last message is {_describe_last(messages)}.\n"
            f"Add a turn, or start the script again: run the cell that makes the model, or call {called}.reset().",
            400,
        )

    async def _play(self, turn: ScriptedTurn, parts: tuple[Part, ...]) -> AsyncIterator[Delta]:
        spoken = 0
        async for delta in turn.play(parts):
            spoken += count_words(str(delta.get("content") or delta.get("reasoning_content") or "x"))
            yield delta
        usage = turn.usage or {
            "prompt_tokens": registry.count_words(turn.messages),
            "completion_tokens": spoken,
        }
        yield {
            "finish_reason": turn.finish_reason or ("tool_calls" if turn.calls else "stop"),
            "usage": dict(usage),
        }

    def _snapshot(self, request: ProviderRequest) -> ProviderRequest:
        """Return a copy of the request. Messages of the last request are not copied again, so that long runs stay fast."""
        before = self.requests[-1].messages if self.requests else []
        messages: Messages = [
            before[i] if i < len(before) and before[i] == message else copy.deepcopy(message)
            for i, message in enumerate(request.messages)
        ]
        return replace(
            request, messages=messages, tools=copy.deepcopy(request.tools), options=dict(request.options)
        )

    def __reduce__(self) -> tuple[object, ...]:
        """Describe for pickle how another process makes the model: same name and script, at the first turn."""
        name, facts = self.model.rpartition("/")[2], (self.pace, self.repeat_last, self.takes_images)
        return _make_again, (self.turns, name, self.title, facts)

    def __repr__(self) -> str:
        return f"<ScriptedModel {self.model!r}: {len(self.requests)} of {len(self.turns)} turns played>"


def _make_again(turns: Any, name: str, title: str, facts: tuple[float, bool, bool]) -> ScriptedModel:
    """Make the ScriptedModel that `__reduce__` of another process has described."""
    pace, repeat_last, takes_images = facts
    model = ScriptedModel(name=name, pace=pace, repeat_last=repeat_last, takes_images=takes_images)
    model.turns = turns
    model.name_as(title)
    return model


class _ScriptOfRow(ScriptedModel):
    """Plays a ScriptedModel's script for one row."""

    def __init__(self, script: ScriptedModel) -> None:
        place = next(number for number in itertools.count() if number not in script.places)
        name = f"{script.model.rpartition('/')[2]}-row-{place}"  # a later row uses the name again: LiteLLM keeps each name
        super().__init__(
            name=name,
            pace=script.pace,
            repeat_last=script.repeat_last,
            takes_images=bool(script.takes_images),
        )
        self.turns, self._script, self._title = script.turns, script, script.title
        script.places[place] = self

    def respond(self, request: ProviderRequest) -> AsyncIterator[Delta]:
        try:
            return super().respond(request)
        finally:
            self._script.requests.append(self.requests[-1])


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
        """Raise PlainRefusal, since only the models for the rows can answer."""
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
