"""Scenarios: structured output, how turns end, and what is refused before anything starts."""

from __future__ import annotations

import re

from litellm import harness as theirs

from support.servers import answer, calls, failure
from system.parity.functions import (
    END,
    ONE,
    REVIEW,
    TOOLS,
    Review,
    add,
    add_again,
    aslow,
    cancelling,
    fetch,
    raw_call,
    slow,
    variadic,
)
from system.parity.sides import MISSING, Expected, Scenario

BAD = '{"summary": "fine"}'
REPAIR = "repair of structured output"


def more_calls(times):
    """Return the expected differences for a repaired answer: more requests, messages and tokens."""
    return [
        Expected(REPAIR, "*usage.calls", 1, times),
        Expected(REPAIR, "*usage.input", 10, 10 * times),
        Expected(REPAIR, "*usage.output", 5, 5 * times),
        Expected(REPAIR, "*cost", 0.00002, round(0.00002 * times, 9)),
        Expected(REPAIR, "history.*", MISSING, lambda message: message["role"] in ("user", "assistant")),
        Expected(REPAIR, "turns.0.events.*", MISSING, lambda event: event["event"] in ("Retry", "Text")),
        Expected(REPAIR, "requests.*", MISSING, lambda request: "Answer again" in str(request["body"])),
    ]


OUTPUTS = [
    Scenario("output", [REVIEW], keywords={"output": Review}),
    Scenario("output after a tool", [ONE, REVIEW], keywords={"output": Review, "tools": TOOLS}),
    Scenario(
        "output in a fence",
        [answer('Here:\n```json\n{"summary": "fine", "score": 4}\n```')],
        keywords={"output": Review},
        expected=[
            Expected(
                "JSON in prose", "turns.0.invalid", lambda invalid: invalid["raw"].startswith("Here"), MISSING
            ),
            Expected("JSON in prose", "turns.0.result.output", None, {"summary": "fine", "score": 4}),
        ],
    ),
    Scenario(
        "output: bad, then good",
        [answer(BAD), REVIEW],
        keywords={"output": Review},
        expected=[
            *more_calls(2),
            Expected(REPAIR, "turns.0.invalid", lambda invalid: invalid["raw"] == BAD, MISSING),
            Expected(REPAIR, "turns.0.result.text", BAD, '{"summary": "fine", "score": 4}'),
            Expected(REPAIR, "turns.0.result.output", None, {"summary": "fine", "score": 4}),
        ],
    ),
    Scenario(
        "output: never good",
        [answer(BAD)],
        keywords={"output": Review},
        expected=[
            *more_calls(3),
            Expected(
                "clearer messages",
                "turns.0.invalid.problem",
                re.compile("1 validation error"),
                re.compile("score"),
            ),
        ],
    ),
    Scenario(
        "output: no JSON at all",
        [answer("It is fine.")],
        keywords={"output": Review},
        expected=[
            *more_calls(3),
            Expected(
                "clearer messages",
                "turns.0.invalid.problem",
                re.compile("1 validation error"),
                re.compile("no JSON"),
            ),
        ],
    ),
]

VALID = "valid history"
NOT_RUN = re.compile("did not run")
CUT = re.compile("was cancelled while it ran")


def answered(pattern):
    """Return the expected differences for a call that was cut off: only ours has a result for it, in the history, and as an
    event if it had begun.
    """

    def message(value):
        return value["role"] == "tool" and pattern.search(value["content"])

    def event(value):
        return value["event"] == "ToolResult" and value["is_error"] and pattern.search(value["output"])

    expected = [Expected(VALID, "history.*", MISSING, message)]
    return (
        expected if pattern is NOT_RUN else [*expected, Expected(VALID, "turns.0.events.*", MISSING, event)]
    )


ENDS = [
    Scenario("max_turns", [add_again], keywords={"tools": TOOLS, "max_turns": 2}, expected=answered(NOT_RUN)),
    Scenario(
        "max_turns in one message",
        [calls(*[("add", {"a": n, "b": 0}) for n in range(3)], content="Three.")],
        keywords={"tools": TOOLS, "max_turns": 2},
        expected=answered(NOT_RUN),
    ),
    Scenario(
        "timeout in an async tool",
        [calls(("aslow", {}))],
        keywords={"tools": [aslow], "timeout": 3.0},
        expected=answered(CUT),
    ),
    Scenario(
        "timeout in a sync tool",
        [calls(("slow", {}))],
        keywords={"tools": [slow], "timeout": 3.0},
        expected=answered(CUT),
    ),
    Scenario(
        "timeout in a model call",
        [answer("late", stall=20)],
        keywords={"timeout": 1.0},
        expected=[
            Expected("cost of cut calls", "*cost", 0.0, None),
            Expected("cost of cut calls", "*usage.calls", 0, 1),
        ],
    ),
    Scenario(
        "cancel at a call",
        [calls(("aslow", {}), content="Wait.")],
        keywords={"tools": [aslow]},
        reader=cancelling("ToolCall"),
        expected=answered(CUT),
    ),
    Scenario(
        "cancel, then another turn",
        [calls(("aslow", {})), END],
        ("Go", "Again"),
        keywords={"tools": [aslow]},
        reader=cancelling("ToolCall"),
        expected=[
            *answered(CUT),
            Expected(VALID, "requests.1.body.messages.*", MISSING, lambda message: message["role"] == "tool"),
        ],
    ),
    Scenario(
        "cancel when the answer is there",
        [answer("All")],
        reader=cancelling("Text"),
        expected=[Expected("late cancel", "turns.0.result.stop_reason", "cancelled", "done")],
        streamed=False,  # the answer is not complete at this moment, and is cut off: see test_differences.py
    ),
    Scenario(
        "a hundred model calls",
        [add_again],
        keywords={"tools": [add]},
        expected=[
            Expected(
                "the limit of model calls", "turns.0.result.stop_reason", "runtime_error", "max_model_calls"
            ),
            Expected(
                "the limit of model calls", "turns.0.result.text", re.compile("exceeded 100 model calls"), ""
            ),
        ],
    ),
    Scenario(
        "a provider's error",
        [failure(500, "broken")],
        completion_kwargs={"num_retries": 0, "max_retries": 0},
        expected=[
            Expected(
                "clearer messages",
                "turns.0.result.text",
                re.compile("^InternalServerError: litellm.InternalServerError: InternalServerError"),
                re.compile("^InternalServerError: OpenAIException - broken. The provider failed"),
            ),
            Expected("unanswered prompts", "history.0", {"role": "user", "content": "Go"}, MISSING),
        ],
    ),
    Scenario(
        "a provider's error that goes away",
        [failure(500, "broken"), END],
        completion_kwargs={"num_retries": 2},
        expected=[Expected("shown retries", "turns.0.events.0", MISSING, {"event": "Retry", "attempt": 1})],
    ),
    Scenario(
        "a provider's error behind a tool",
        [ONE, failure(400, "no")],
        keywords={"tools": TOOLS},
        expected=[
            Expected(
                "clearer messages", "turns.0.result.text", re.compile("BadRequest"), re.compile("BadRequest")
            )
        ],
    ),
    Scenario(
        "an empty answer",
        [answer("")],
        expected=[
            Expected(
                "empty answers", "turns.0.result.text", "", re.compile("^the model sent an empty answer")
            ),
            Expected("empty answers", "turns.0.result.stop_reason", "done", "runtime_error"),
            Expected("empty answers", "history.*", {"role": "assistant", "content": None}, MISSING),
            Expected("unanswered prompts", "history.0", {"role": "user", "content": "Go"}, MISSING),
        ],
    ),
    Scenario(
        "reasoning",
        [answer("Hello.", reasoning="They greet."), END],
        ("Go", "And?"),
        expected=[
            Expected("reasoning in the history", "history.*.reasoning_content", MISSING, "They greet."),
            Expected("reasoning in the history", "requests.1.*.reasoning_content", MISSING, "They greet."),
        ],
    ),
    Scenario(
        "a thought in tags",
        [answer("<think>\nplan\n</think>\n\nThe answer is 3."), END],
        ("Go", "And?"),
        expected=[
            Expected("reasoning in the history", "history.*.reasoning_content", MISSING, "\nplan\n"),
            Expected("reasoning in the history", "requests.1.*.reasoning_content", MISSING, "\nplan\n"),
        ],
    ),
    Scenario(
        "call ids that come again",
        [ONE, ONE, END],
        keywords={"tools": [add]},
        expected=[
            Expected("unique call ids", at, "c1", re.compile("^call_"))
            for at in ("turns.0.events.*.id", "history.*id", "requests.*id")
        ],
    ),
    Scenario(
        "history over three turns",
        [ONE, END, answer("Second."), raw_call('{"path": "z"}', "fetch", "c9"), answer("Third.")],
        ("Go", "And?", "Fetch"),
        keywords={"tools": [add, fetch], "instructions": "Be brief."},
    ),
]


def same_error(name, theirs_text, ours_text, **keywords):
    """Return the expected difference: both raise the same kind of error, and our text says more."""
    found = Expected("clearer messages", "raised", re.compile(theirs_text), re.compile(ours_text))
    return Scenario(name, [END], keywords=keywords, expected=[found])


REFUSED = [
    Scenario(
        "an empty prompt",
        [END],
        ("",),
        expected=[
            Expected("empty prompts", "raised", MISSING, re.compile("^ValueError: the prompt is empty")),
            Expected("empty prompts", "*", lambda _: True, MISSING),
        ],
    ),
    same_error("unknown permissions", "^ValueError: .*'all'$", "^ValueError: .*'all'$", permissions="all"),
    Scenario("permissions of other harnesses", [END], keywords={"permissions": "edit"}),
    same_error(
        "max_turns=0", "^ValueError: max_turns must be >= 1$", "^ValueError: .*>= 1, got 0$", max_turns=0
    ),
    same_error(
        "timeout=0", "^ValueError: timeout must be > 0$", "^ValueError: .*> 0 seconds, got 0$", timeout=0
    ),
    same_error(
        "disable_tools",
        "^CapabilityUnsupported: .*disable_tools=$",
        "^CapabilityUnsupported: .*disable_tools=: it has",
        disable_tools=["bash"],
    ),
    same_error("install", "^CapabilityUnsupported: install", "^CapabilityUnsupported: install", install=True),
    same_error(
        "options of another harness",
        "^OptionsMismatch: CodexOptions .*; use ToolLoopOptions$",
        "^OptionsMismatch: CodexOptions .*; use ToolLoopOptions",
        options=theirs.CodexOptions(),
    ),
    Scenario(
        "no model",
        [END],
        model="",
        expected=[
            Expected(
                "clearer messages",
                "raised",
                "ValueError: Harness.TOOL_LOOP needs model=",
                re.compile("^ValueError: Harness.TOOL_LOOP needs model=, for example"),
            )
        ],
    ),
    Scenario(
        "a variadic tool",
        [END],
        keywords={"tools": [variadic]},
        expected=[
            Expected(
                "clearer messages",
                "raised",
                re.compile("^ValueError: Tool variadic cannot use variadic"),
                re.compile("^ValueError: .*variadic"),
            )
        ],
    ),
    Scenario(
        "one tool twice",
        [END],
        keywords={"tools": [add, add]},
        expected=[
            Expected(
                "one tool twice", "raised", "ValueError: Harness.TOOL_LOOP tool names must be unique", MISSING
            ),
            Expected("one tool twice", "*", lambda _: True, lambda _: True),
        ],
    ),
]
