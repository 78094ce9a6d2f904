"""Tools, callbacks and readers that the scenarios use."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from support.servers import answer, calls
from system.parity.sides import END_OF_WORK, Expected, Made


class Review(BaseModel):
    summary: str
    score: int


class Point(BaseModel):
    x: int
    y: int


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def fetch(path: str) -> str:
    """Fetch a text."""
    await asyncio.sleep(0)
    return f"text of {path}"


def look(path: str) -> dict[str, Any]:
    """Look at a file."""
    return {"path": path, "size": 3, "parts": [1, None, True], "where": Path("a/b")}


def fail(path: str) -> str:
    """Fail."""
    raise FileNotFoundError(f"no file {path}")


async def afail() -> str:
    """Fail later."""
    raise RuntimeError("not today")


def nothing() -> None:
    """Return nothing."""


async def aslow() -> str:
    """Wait long."""
    await asyncio.sleep(30)
    return "waited"


def slow() -> str:
    """Work long."""
    for _ in range(2000):
        if END_OF_WORK.wait(0.01):
            break
    return "worked"


def mixed(first: str, /, second: int = 2, *, third: bool = True) -> str:
    """Take every kind of parameter."""
    return f"{first} {second} {third}"


def corner(point: Point) -> str:
    """Name the type of a corner."""
    return type(point).__name__


def described(query: str, limit: int | None = None) -> str:
    """Search.

    Args:
        query: What to look for.
        limit: How many at most.
    """
    return query


def variadic(*words: str) -> str:
    """Join words."""
    return " ".join(words)


TOOLS = [add, fetch, look, fail, afail, nothing, mixed]
ONE = calls(("add", {"a": 1, "b": 2}))
END = answer("Done.")
REVIEW = answer('{"summary": "fine", "score": 4}')


def raw_call(arguments: str, name: str = "add", call_id: str = "c1") -> Any:
    """Return a call whose arguments are this text."""
    return {"tool_calls": [{"id": call_id, "name": name, "arguments": arguments}]}


def add_again(received: Any) -> Any:
    """Return a call that always has the same id."""
    call = {"id": f"c{len(received.messages)}", "name": "add", "arguments": '{"a": 1, "b": 2}'}
    return {"tool_calls": [call]}


def ask(*tools: Any, **more: Any) -> dict[str, Any]:
    return {"tools": tools, "permissions": "ask", **more}


async def agree_later(approval: Any) -> bool:
    await asyncio.sleep(0.01)
    return approval.tool == "add" and approval.input == {"a": 1, "b": 2}


def agree(approval: Any) -> bool:
    return approval.tool == "add" and approval.input == {"a": 1, "b": 2}


def refuse(approval: Any) -> bool:
    return False


def stumble(approval: Any) -> bool:
    raise KeyError("callback")


def answering(reply: Any) -> Any:
    """Return a reader that answers approvals with `reply(approval)`."""

    def make():
        def read(stream, event):
            if type(event).__name__ == "Approval":
                reply(event)

        return read

    return make


def cancelling(kind: str) -> Any:
    """Return a reader that cancels the turn at the first event of this kind."""

    def make():
        def read(stream, event):
            if type(event).__name__ == kind:
                stream.cancel()

        return read

    return make


def writer() -> Made:
    """Return tools that work in the run's folder."""

    def make(run):
        def write(name: str, text: str) -> str:
            """Write a file."""
            (run.folder / name).write_text(text)
            return "written"

        def delete(name: str) -> str:
            """Delete a file."""
            (run.folder / name).unlink()
            return "deleted"

        return [write, delete]

    return Made(make)


def everywhere(difference: str, theirs: Any, ours: Any) -> tuple[Expected, ...]:
    """Return the expected differences for a tool's result with another text: in the event, in the history and in the next
    request.
    """
    places = ("turns.*.events.*.output", "history.*.content", "requests.*.body.messages.*.content")
    return tuple(Expected(difference, at, theirs, ours) for at in places)
