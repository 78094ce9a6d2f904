"""Show a server's questions to a person during a tool call. The protocol calls this "elicitation". A question is a form. The
server gets the filled form only if the person sends it. Other requests of a server (for an answer of the model, for a web page)
are refused.
"""

from __future__ import annotations

import contextlib
import contextvars
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..core.events import Approval
from ..core.text import plain
from ..core.tools import InvalidArguments, JsonSchema, ToolContext
from .schema import UnusableSchema, check_schema, find_problem

_MESSAGE = 2_000
"""How many characters of a server's question are shown at most."""
_EMPTY = {"string": "", "integer": 0, "number": 0, "boolean": False, "array": []}

_current: contextvars.ContextVar[Asker | None] = contextvars.ContextVar("toolloop_mcp_asker", default=None)


class Asker:
    """Asks the server's questions during one tool call. The person who started the run answers."""

    def __init__(self, tool: str, server: str, context: ToolContext) -> None:
        self._tool, self._server, self._context = tool, server, context
        self._numbers = itertools.count(1)

    async def ask(self, message: str, schema: JsonSchema) -> tuple[str, dict[str, Any] | None]:
        """Ask the person. Return ("accept", the filled form), ("decline", None) or ("cancel", None).

        The question is also declined if no person can be asked, or if the schema or the filled form is not valid.
        """
        try:
            check_schema(schema)
        except UnusableSchema:
            return "decline", None
        shown = _show_choices(schema)
        question = plain(message).strip()[:_MESSAGE]
        approval = Approval(
            tool=self._tool,
            input=_fill_in(shown),
            call_id=f"{self._context.call_id}.{next(self._numbers)}",
            schema=shown,
            origin=f"Asked by {self._server}, for {self._tool}. What you send goes to the server; no model sees it first.",
            question=question or "The server asks for this",
            check=lambda edited: FilledForm.read(schema, edited),
            scopes=("call",),
            number=self._context.number,
        )
        decision = await self._context.ask(approval)
        if not decision.allowed:
            return ("cancel" if decision.by == "stop" else "decline"), None
        content = dict(approval.input if decision.arguments is None else decision.arguments)
        return ("decline", None) if find_problem(schema, content) else ("accept", content)


@dataclass(frozen=True)
class FilledForm:
    """The form as a person has filled it in."""

    json: dict[str, Any]

    @classmethod
    def read(cls, schema: JsonSchema, edited: Mapping[str, object]) -> FilledForm:
        """Check `edited`, the person's values. Raises InvalidArguments if they do not fit `schema`, the server's schema."""
        if problem := find_problem(schema, filled := dict(edited)):
            raise InvalidArguments(problem)
        return cls(filled)


def _show_choices(schema: JsonSchema) -> JsonSchema:
    """Return the schema for the form. Choices with titles (`oneOf` of constants) become an `enum`, described by the titles."""
    properties = dict(schema.get("properties") or {})
    for name, part in properties.items():
        options = part.get("oneOf", part.get("anyOf")) if isinstance(part, Mapping) else None
        if isinstance(options, list) and all(isinstance(one, Mapping) and "const" in one for one in options):
            titles = ", ".join(f"{one['const']}: {one['title']}" for one in options if "title" in one)
            described = " · ".join(plain(str(words)) for words in (part.get("description"), titles) if words)
            rest = {key: value for key, value in part.items() if key not in ("oneOf", "anyOf")}
            properties[name] = {**rest, "description": described, "enum": [one["const"] for one in options]}
    return {**schema, "properties": properties}


def _fill_in(schema: JsonSchema) -> dict[str, object]:
    """Return the values that the form shows first: for each field its default, its first choice, or an empty value.

    An optional field for which an empty value is not valid is left out, for example a text with a `format` or a `minLength`.
    """
    required = schema.get("required") or ()
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
            empty = part.get("minimum", _EMPTY[part["type"]])
            is_wrong = "format" in part or find_problem({"properties": {"it": part}}, {"it": empty})
            if name in required or not is_wrong:
                filled[name] = empty
    return filled


class Askers:
    """The Askers of all calls that are running over one connection."""

    def __init__(self) -> None:
        self._running: list[Asker] = []

    @contextlib.contextmanager
    def running(self, asker: Asker) -> Iterator[None]:
        """Until the block ends, `asker` gets the questions of the present task, or all questions if no other call is running."""
        self._running.append(asker)
        token = _current.set(asker)
        try:
            yield
        finally:
            _current.reset(token)
            self._running.remove(asker)

    def find(self) -> Asker | None:
        """Return the Asker for a question that has just arrived; None if it is not known to which call the question belongs."""
        return _current.get() or (self._running[0] if len(self._running) == 1 else None)
