"""Scenarios: tool calls, their arguments and their approvals."""

from __future__ import annotations

import re

from support.servers import answer, calls
from system.parity.functions import (
    END,
    ONE,
    TOOLS,
    add,
    agree,
    agree_later,
    answering,
    ask,
    corner,
    described,
    everywhere,
    raw_call,
    refuse,
    stumble,
)
from system.parity.sides import MISSING, Expected, Scenario

WITH_TOOLS = {"tools": TOOLS}
PYDANTIC = re.compile("^ValidationError: 1 validation error for add_args")
SHORT = re.compile("^invalid arguments, add was not run:")
REPLAYED = ("history.*.arguments", "requests.*.arguments")


def bad_json(arguments, theirs, ours):
    """Return the expected differences for arguments that are not a JSON object: the model is told, and the history has `{}`."""
    replayed = [Expected("valid arguments in the history", at, arguments, "{}") for at in REPLAYED]
    return (*everywhere("argument errors", re.compile(theirs), re.compile(ours)), *replayed)


TOOL_CALLS = [
    Scenario("an answer without tools", [answer("Hello there, you.")]),
    Scenario("a sync tool", [ONE, END], keywords=WITH_TOOLS),
    Scenario("an async tool", [calls(("fetch", {"path": "a"})), END], keywords=WITH_TOOLS),
    Scenario(
        "text beside two calls in one message",
        [calls(("add", {"a": 1, "b": 2}), ("fetch", {"path": "b"}), content="Let me see."), END],
        keywords=WITH_TOOLS,
    ),
    Scenario("a tool that returns a dict", [calls(("look", {"path": "a"})), END], keywords=WITH_TOOLS),
    Scenario("a tool that returns None", [calls(("nothing", {})), END], keywords=WITH_TOOLS),
    Scenario(
        "every kind of parameter",
        [calls(("mixed", {"first": "a", "third": False})), END],
        keywords=WITH_TOOLS,
    ),
    Scenario(
        "arguments that are converted", [calls(("add", {"a": "1", "b": 2.0})), END], keywords=WITH_TOOLS
    ),
    Scenario("a tool that raises", [calls(("fail", {"path": "x"})), END], keywords=WITH_TOOLS),
    Scenario("an async tool that raises", [calls(("afail", {})), END], keywords=WITH_TOOLS),
    Scenario(
        "a nested model",
        [calls(("corner", {"point": {"x": 1, "y": 2}})), END],
        keywords={"tools": [corner]},
        expected=[
            *everywhere("typed arguments", "dict", "Point"),
            Expected("tool schemas", "requests.*.parameters.*", lambda _: True, lambda _: True),
        ],
    ),
    Scenario(
        "parameters that the docstring describes",
        [calls(("described", {"query": "a"})), END],
        keywords={"tools": [described]},
        expected=[
            Expected("tool schemas", "requests.*.function.description", re.compile("Args:"), "Search."),
            Expected("tool schemas", "requests.*.query.description", MISSING, "What to look for."),
            Expected("tool schemas", "requests.*.limit.description", MISSING, "How many at most."),
            Expected("tool schemas", "requests.*.limit.default", None, MISSING),
        ],
    ),
    Scenario(
        "a tool that does not exist",
        [calls(("delete_all", {"x": 1})), END],
        keywords=WITH_TOOLS,
        expected=everywhere(
            "unknown tools",
            "ValueError: unknown tool 'delete_all'",
            "unknown tool 'delete_all'; available: add, afail, fail, fetch, look, mixed, nothing",
        ),
    ),
    Scenario(
        "a call whose name no provider admits",
        [calls(("functions.delete", {})), END],
        keywords=WITH_TOOLS,
        expected=[
            *(
                Expected("names of calls", place, "functions.delete", "functions_delete")
                for place in ("history.*.name", "requests.1.*.name", "turns.*.name", "turns.*.native_name")
            ),
            *everywhere("unknown tools", re.compile("unknown tool"), re.compile("unknown tool")),
        ],
    ),
    Scenario(
        "a wrong argument",
        [calls(("add", {"a": "one", "b": 2})), END],
        keywords=WITH_TOOLS,
        expected=everywhere("argument errors", PYDANTIC, SHORT),
    ),
    Scenario(
        "a missing argument",
        [calls(("add", {"a": 1})), END],
        keywords=WITH_TOOLS,
        expected=everywhere("argument errors", PYDANTIC, SHORT),
    ),
    Scenario(
        "an argument too many",
        [calls(("add", {"a": 1, "b": 2, "c": 3})), END],
        keywords=WITH_TOOLS,
        expected=everywhere("argument errors", PYDANTIC, SHORT),
    ),
    Scenario(
        "arguments that are cut off",
        [raw_call('{"a": 1,'), END],
        keywords=WITH_TOOLS,
        expected=bad_json(
            '{"a": 1,', "^JSONDecodeError: ", "^arguments are not valid JSON: .*add was not run$"
        ),
    ),
    Scenario(
        "arguments with something behind them",
        [raw_call('{"a": 1, "b": 2} x'), END],
        keywords=WITH_TOOLS,
        expected=bad_json('{"a": 1, "b": 2} x', "Extra data", "not a single JSON object.*add was not run$"),
    ),
    Scenario(
        "arguments that are a list",
        [raw_call("[1, 2]"), END],
        keywords=WITH_TOOLS,
        expected=bad_json(
            "[1, 2]", "must be a JSON object$", "must be a JSON object, got list.*add was not run$"
        ),
    ),
    Scenario(
        "no arguments, as an empty text",
        [raw_call("", "nothing"), END],
        keywords=WITH_TOOLS,
        expected=[
            *everywhere("empty arguments", re.compile("^JSONDecodeError"), "null"),
            Expected("empty arguments", "turns.0.events.*.is_error", True, False),
            *(Expected("empty arguments", at, "", "{}") for at in REPLAYED),
        ],
    ),
]

DENIAL = ". This was a decision, not a failure: do not repeat the same call."


NOBODY = ". Nobody could be asked about it: do not repeat the same call."


def denied(reason, added=DENIAL):
    return everywhere("denials", f"denied: {reason}", f"denied: {reason}{added}")


def is_error(event):
    return event["event"] == "ToolResult" and event["is_error"]


def nobody_asked(approval):
    """Return the expected difference: LiteLLM sends an approval event, and we do not."""
    name = "nobody is asked in vain"
    return Expected(name, "turns.0.events.1", approval, is_error), Expected(
        name, "turns.0.events.2", is_error, MISSING
    )


APPROVALS = [
    Scenario("ask: allowed by a sync callback", [ONE, END], keywords=ask(add, on_approval=agree)),
    Scenario("ask: allowed by an async callback", [ONE, END], keywords=ask(add, on_approval=agree_later)),
    Scenario(
        "ask: denied",
        [ONE, END],
        keywords=ask(add, on_approval=refuse),
        expected=denied("denied by on_approval"),
    ),
    Scenario(
        "ask: the callback raises",
        [ONE, END],
        keywords=ask(add, on_approval=stumble),
        expected=denied("on_approval raised: 'callback'"),
    ),
    Scenario(
        "ask: the stream's reader allows",
        [ONE, END],
        keywords=ask(add),
        reader=answering(lambda approval: approval.allow()),
    ),
    Scenario(
        "ask: the stream's reader denies",
        [ONE, END],
        keywords=ask(add),
        reader=answering(lambda approval: approval.deny("too early")),
        expected=everywhere("denials", "denied: too early", f"denied by the user: too early{DENIAL}"),
    ),
    Scenario(
        "ask: the stream's reader does not answer",
        [ONE, END],
        keywords=ask(add),
        reader=answering(lambda approval: None),
        expected=denied("approval not answered", NOBODY),
    ),
    Scenario(
        "ask: a run that nobody reads",
        [ONE, END],
        keywords=ask(add),
        expected=denied("no approval handler", NOBODY),
    ),
    Scenario(
        "ask: a tool that does not exist",
        [calls(("delete_all", {})), END],
        keywords=ask(add, on_approval=agree),
        expected=[
            *nobody_asked({"event": "Approval", "tool": "delete_all", "input": {}}),
            *everywhere("unknown tools", re.compile("denied"), re.compile("unknown tool"))[1:],
        ],
    ),
    Scenario(
        "ask: a wrong argument",
        [calls(("add", {"a": "one", "b": 2})), END],
        keywords=ask(add, on_approval=lambda approval: True),
        expected=[
            *nobody_asked({"event": "Approval", "tool": "add", "input": {"a": "one", "b": 2}}),
            *everywhere("argument errors", PYDANTIC, SHORT)[1:],
        ],
    ),
]
