"""Scenarios that occur in few runs: odd values, odd answers of callbacks and models, options that would send a run elsewhere."""

from __future__ import annotations

import datetime as dt
import decimal
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from support.servers import answer, calls
from system.parity.functions import END, ONE, add, ask, everywhere, raw_call, refuse
from system.parity.sides import MISSING, Expected, Made, Scenario

RESULTS = "results as text"
ROUTES = "what cannot be rerouted"
DENIED = "denied: denied by on_approval"


class Model(BaseModel):
    a: int = 1


@dataclass
class Plain:
    a: int = 1


VALUES: dict[str, tuple[Any, Any, str]] = {
    "empty": ("", "", "(no output)"),
    "letters": ({"é": 1}, '{"\\u00e9": 1}', '{"é": 1}'),
    "date": (dt.date(2020, 1, 1), '"2020-01-01"', "2020-01-01"),
    "decimal": (decimal.Decimal("1.5"), '"1.5"', "1.5"),
    "set": ({3}, '"{3}"', "[3]"),
    "model": (Model(), '"a=1"', '{"a": 1}'),
    "dataclass": (Plain(), '"Plain(a=1)"', '{"a": 1}'),
    "bytes": (b"ab", "\"b'ab'\"", "2 bytes, as UTF-8 text:\nab"),
}
"""Name -> (the value of a tool, LiteLLM's text for the model, our text)."""


def value(name: str) -> Any:
    """Give a value."""
    return VALUES[name][0]


def items() -> Any:
    """Give items one by one."""
    return (number for number in range(2))


def long() -> str:
    """Give a long text."""
    return "x" * 30_000


def make_folders() -> Any:
    """Return a tool that writes into folders of version control, of editors and of caches, and beside them."""

    def make(run: Any) -> list[Any]:
        def write() -> str:
            """Write files."""
            for name in (".git", ".hg", ".svn", ".ipynb_checkpoints", ".ruff_cache", "mine"):
                Path(run.folder, name).mkdir()
                Path(run.folder, name, "file").write_text("x", "utf-8")
            return "ok"

        return [write]

    return Made(make)


def is_folders_change(change: Any) -> bool:
    return change["event"] == "FileChange" and change["path"].split("/")[0] in (
        ".hg",
        ".svn",
        ".ipynb_checkpoints",
    )


def is_event(name: str) -> Any:
    return lambda event: isinstance(event, dict) and event["event"] == name


def truthy(approval: Any) -> Any:
    return "no"


def only_theirs_ran(difference: str, ours: re.Pattern[str]) -> tuple[Expected, ...]:
    """Return the expected differences for a call that LiteLLM runs, and that we refuse with this text."""
    return (
        *everywhere(difference, "3", ours),
        Expected(difference, "turns.0.events.*.is_error", False, True),
    )


def answered_by_us(difference: str) -> tuple[Expected, ...]:
    """Return the expected differences for a run that reaches the server here, and fails in LiteLLM."""
    return (
        Expected(difference, "turns.0.events.0", MISSING, is_event("Text")),
        Expected(difference, "turns.0.result.text", re.compile("Connection error"), "Done."),
        Expected(difference, "turns.0.result.stop_reason", "runtime_error", "done"),
        Expected(difference, "*usage.*", 0, lambda tokens: tokens > 0),
        Expected(difference, "*cost", 0.0, lambda cost: cost != 0.0),
        Expected(difference, "history.1", MISSING, {"role": "assistant", "content": "Done."}),
        Expected(difference, "requests.0", MISSING, lambda request: request["body"]["top_k"] == 4),
    )


OVERRULED = {"base_url": "http://127.0.0.1:1", "extra_body": {"model": "other", "top_k": 4}}

EDGES = [
    Scenario(
        "values of many types",
        [calls(*[("value", {"name": name}) for name in VALUES]), END],
        keywords={"tools": [value]},
        expected=[
            expected for _, theirs, ours in VALUES.values() for expected in everywhere(RESULTS, theirs, ours)
        ],
    ),
    Scenario(
        "a generator",
        [calls(("items", {})), END],
        keywords={"tools": [items]},
        expected=everywhere(RESULTS, re.compile("^.<generator object"), "[0, 1]"),
    ),
    Scenario(
        "a long result",
        [calls(("long", {})), END],
        keywords={"tools": [long]},
        expected=everywhere("long results", "x" * 30_000, lambda text: len(text) < 20_500),
    ),
    Scenario(
        "a call that was cut off",
        [calls(("add", {"a": 1, "b": 2}), finish="length"), END],
        keywords={"tools": [add]},
        expected=only_theirs_ran("calls cut off", re.compile("was not run: the answer was cut off")),
    ),
    Scenario(
        "an answer that a filter stopped",
        [answer("Partial", finish="content_filter")],
        expected=[
            Expected("filtered answers", "turns.0.result.stop_reason", "done", "runtime_error"),
        ],
    ),
    Scenario(
        "a callback that gives a text",
        [ONE, END],
        keywords=ask(add, on_approval=truthy),
        expected=only_theirs_ran("only True allows", re.compile("a value of type str; only True allows")),
    ),
    Scenario(
        "denied four times",
        [raw_call('{"a": 1, "b": 2}', call_id=f"d{number}") for number in range(4)] + [END],
        keywords=ask(add, on_approval=refuse),
        expected=[
            *everywhere("denials", DENIED, re.compile(f"^{DENIED}. This was a decision")),
            Expected(
                "denied again and again",
                "turns.0.events.*",
                is_event("Approval"),
                lambda event: "denied 3 times already" in event.get("output", ""),
            ),
            Expected(
                "denied again and again",
                "turns.0.events.*",
                is_event("ToolResult"),
                MISSING,
            ),
            *everywhere("denied again and again", DENIED, re.compile("denied 3 times already"))[1:],
        ],
    ),
    Scenario(
        "options that reroute",
        [END],
        completion_kwargs=OVERRULED,
        expected=answered_by_us(ROUTES),
    ),
    Scenario(
        "gateway: options that reroute",
        [END],
        model="litellm_proxy/coder",
        completion_kwargs={**OVERRULED, "custom_llm_provider": "openai"},
        expected=answered_by_us(ROUTES),
    ),
    Scenario(
        "folders that nobody looks into",
        [calls(("write", {})), END],
        keywords={"tools": make_folders()},
        expected=[
            Expected("changed files", "turns.0.events.*", is_folders_change, MISSING),
            Expected("changed files", "turns.0.result.files.*", is_folders_change, MISSING),
        ],
    ),
    Scenario("empty instructions", [END], keywords={"instructions": ""}),
    Scenario(
        "a lambda as a tool",
        [END],
        keywords={"tools": [lambda x: x]},
        streamed=False,
        expected=[
            Expected("lambdas", "raised", MISSING, re.compile("^ValueError: a lambda has no name")),
            *[
                Expected("lambdas", at, lambda there: True, MISSING)
                for at in ("turns.0", "session", "history", "requests.0")
            ],
        ],
    ),
]
