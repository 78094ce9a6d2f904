"""What a server asks a person in the middle of a call (the protocol's elicitation): a form, sent only when somebody sends it.

Whatever else a server may ask of its client is refused: words of a model (sampling), a visit to an address.
"""

from __future__ import annotations

import contextlib
import contextvars
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..core.events import Approval, Decision
from ..core.text import plain
from ..core.tools import InvalidArguments, JsonSchema, ToolContext
from .schema import UnusableSchema, check_schema, find_problem

_MESSAGE = 2_000
"""Characters of a server's question."""
_EMPTY = {"string": "", "integer": 0, "number": 0, "boolean": False, "array": []}

_current: contextvars.ContextVar[Asker | None] = contextvars.ContextVar("toolloop_mcp_asker", default=None)


class Asker:
    """Asks the person of one call's run."""

    def __init__(self, tool: str, server: str, context: ToolContext) -> None:
        self._tool, self._server, self._context = tool, server, context
        self._numbers = itertools.count(1)

    async def ask(self, message: str, schema: JsonSchema) -> tuple[str, dict[str, Any] | None]:
        """(the protocol's action, what was sent): "decline" also where nobody is there, or what was sent does not fit."""
        try:
            check_schema(schema)
        except UnusableSchema:
            return "decline", None
        question = plain(message).strip()[:_MESSAGE]
        approval = Approval(
            tool=self._tool,
            input=_fill_in(schema),
            call_id=f"{self._context.call_id}.{next(self._numbers)}",
            schema=schema,
            origin=f"Asked by {self._server}, for {self._tool}. What you send goes there; no model sees it before.",
            question=question or "The server asks for this",
            check=lambda edited: _Checked(_check(schema, edited)),
            scopes=("call",),
        )
        decision = await self._context.ask(approval)
        return _read(decision, approval, schema)


@dataclass(frozen=True)
class _Checked:
    """What a person has filled in, as it is sent."""

    json: dict[str, Any]


def _check(schema: JsonSchema, edited: Mapping[str, object]) -> dict[str, Any]:
    """What was filled in. Raises InvalidArguments for what the server's form does not take."""
    if problem := find_problem(schema, filled := dict(edited)):
        raise InvalidArguments(problem)
    return filled


def _read(decision: Decision, approval: Approval, schema: JsonSchema) -> tuple[str, dict[str, Any] | None]:
    if not decision.allowed:
        return ("cancel" if decision.by == "stop" else "decline"), None
    content = dict(approval.input if decision.arguments is None else decision.arguments)
    return ("decline", None) if find_problem(schema, content) else ("accept", content)


def _fill_in(schema: JsonSchema) -> dict[str, object]:
    """The form as it comes up: the defaults, else what is empty."""
    filled: dict[str, object] = {}
    for name, part in (schema.get("properties") or {}).items():
        if not isinstance(part, Mapping):
            continue
        choices = part.get("enum")
        if "default" in part:
            filled[name] = part["default"]
        elif isinstance(choices, list) and choices:
            filled[name] = choices[0]
        elif part.get("type") in _EMPTY:
            filled[name] = part.get("minimum", _EMPTY[part["type"]])
    return filled


class Askers:
    """The calls that run over one connection, each with whom it may ask."""

    def __init__(self) -> None:
        self._running: list[Asker] = []

    @contextlib.contextmanager
    def running(self, asker: Asker) -> Iterator[None]:
        """While entered, questions of this task, and all where no other call runs, go to `asker`."""
        self._running.append(asker)
        token = _current.set(asker)
        try:
            yield
        finally:
            _current.reset(token)
            self._running.remove(asker)

    def find(self) -> Asker | None:
        """Whom the question that comes now is for; None where that is not certain: then it is declined."""
        if (mine := _current.get()) is not None:
            return mine
        return self._running[0] if len(self._running) == 1 else None
