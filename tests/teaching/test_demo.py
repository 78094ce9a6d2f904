"""The demonstration model, called through LiteLLM's real `acompletion()`, with a plain loop around it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from support.asking import Talk, ask, tool
from toolloop_jupyter.teaching import DEMO_MODEL, DemoModel, ScriptedModel, registry
from toolloop_jupyter.teaching.demo import PATTERNS, Step, find

TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
SEARCH = tool(
    "search_code", "Find matching lines in the repository.", {"query": TEXT, "path": {**TEXT, "default": "."}}
)
READ = tool("read_file", "Read a file of the repository.", {"path": TEXT})
POST = tool("post_comment", "Post a review comment on the open change.", {"line": NUMBER, "body": TEXT})
WEATHER = tool("weather", "The current weather.", {"city": TEXT})
HITS = [
    "src/client.py:41: for attempt in range(retries):",
    "src/client.py:57: if attempt == retries:",
    "tests/test_client.py:9: retries=3",
]
SOURCE = "def send(self, request, retries=3):\n    for attempt in range(retries):\n        ...\n"


def read_file(path: str) -> str:
    return (
        SOURCE
        if path in ("src/client.py", "tests/test_client.py")
        else f"FileNotFoundError: no file {path!r}"
    )


FUNCTIONS: dict[str, Callable[..., str]] = {
    "search_code": lambda query, path=".": json.dumps(HITS),
    "read_file": read_file,
    "post_comment": lambda line, body: "comment 118",
    "weather": lambda city: json.dumps({"city": city, "temperature": 3.5}),
}


def talk(*tools: dict[str, Any], **functions: Callable[..., str]) -> Talk:
    return Talk(tools or (SEARCH, READ, POST), {**FUNCTIONS, **functions})


class Finding(BaseModel):
    path: str
    line: int
    message: str


class Review(BaseModel):
    summary: str
    verdict: Literal["approve", "request_changes"]
    findings: list[Finding]


FORMAT = {"type": "json_schema", "json_schema": {"name": "Review", "schema": Review.model_json_schema()}}


async def test_it_searches_and_then_reads_a_file_that_was_found() -> None:
    """Two tools are called one after the other: the second gets its path from the result of the first. The answer quotes both
    results.
    """
    run = talk(SEARCH, READ)
    answer = await run.say("Search the code for `retries`, then read the file with the first match.")
    assert run.calls == [("search_code", {"query": "retries"}), ("read_file", {"path": "src/client.py"})]
    assert "`search_code` returned 3 items" in answer
    assert "def send(self, request, retries=3):" in answer


@pytest.mark.parametrize(
    ("prompt", "calls"),
    [
        ("Which lines mention TODO?", [("search_code", {"query": "TODO"})]),
        ("grep for 'max_turns' in src", [("search_code", {"query": "max_turns", "path": "src"})]),
        ("Show me src/client.py", [("read_file", {"path": "src/client.py"})]),
        ("Use read_file on tests/test_client.py", [("read_file", {"path": "tests/test_client.py"})]),
        ('Comment on line 57: "never true"', [("post_comment", {"line": 57, "body": "never true"})]),
        (
            "Post a comment on line 3 saying it looks fine",
            [("post_comment", {"line": 3, "body": "it looks fine"})],
        ),
        ("Do not post anything; look for `x1`.", [("search_code", {"query": "x1"})]),
        ("Hello!", []),
        ("Thanks a lot", []),
    ],
)
async def test_tools_and_arguments_come_from_the_words_of_the_prompt(prompt: str, calls: list[Any]) -> None:
    """Verbs and names select the tool. Quotations, files, folders, numbers and quoted speech become its arguments."""
    run = talk()
    await run.say(prompt)
    assert run.calls == calls


NEWCOMERS = [
    tool("calculator", "Evaluate an arithmetic expression.", {"expression": TEXT}),
    tool("get_weather", "Get the weather of a city.", {"city": TEXT}),
    tool("sort_words", "Sort words.", {"words": {"type": "array", "items": TEXT}}),
    tool("count", "Count a user's mails.", {"user": TEXT}),
    tool("delete", "Delete a user's mails.", {"user": TEXT}),
    tool("get_forecast", "Get the forecast.", {"city": TEXT, "days": {**NUMBER, "default": 3}}),
    tool("send_email", "Send an email.", {"to": TEXT, "subject": TEXT, "body": TEXT}),
    tool("translate", "Translate a text.", {"text": TEXT, "language": TEXT}),
    tool("price", "Return the price of an item.", {"item": TEXT}),
    tool("total", "Add up a list.", {"numbers": {"type": "array", "items": {"type": "number"}}}),
    tool("find_user", "Find a user by name.", {"name": TEXT}),
    tool("ban", "Ban a user.", {"user_id": NUMBER}),
    tool(
        "lend", "Lend a book.", {"title": {"enum": ["novel", "atlas"]}, "until": {**TEXT, "format": "date"}}
    ),
]


@pytest.mark.parametrize(
    ("prompt", "calls"),
    [
        ("Evaluate 12 * (7 + 3)", [("calculator", {"expression": "12 * (7 + 3)"})]),
        ("Give me the forecast for Bergen for 5 days", [("get_forecast", {"city": "Bergen", "days": 5})]),
        (
            'Send an email to ada@example.org with subject "Hi" saying "see you"',
            [("send_email", {"to": "ada@example.org", "subject": "Hi", "body": "see you"})],
        ),
        (
            'Translate "good morning" into German',
            [("translate", {"text": "good morning", "language": "German"})],
        ),
        ("How much is tea?", [("price", {"item": "tea"})]),
        ("What is the total of 3, 4 and 5.5?", [("total", {"numbers": [3, 4, 5.5]})]),
        (
            "Find the user Eve and ban her.",
            [("find_user", {"name": "Eve"}), ("ban", {"user_id": 7})],
        ),
        ("Lend me the atlas until 2026-12-24.", [("lend", {"title": "atlas", "until": "2026-12-24"})]),
        ("How is the weather in Oslo?", [("get_weather", {"city": "Oslo"})]),
        ('Sort "pear" and "fig" for Ada', [("sort_words", {"words": ["pear", "fig"]})]),
        ("Delete the mails of ben after a count", [("count", {"user": "ben"}), ("delete", {"user": "ben"})]),
        ("Tell me a joke", []),
    ],
)
async def test_tools_of_a_first_notebook_are_played_well(prompt: str, calls: list[Any]) -> None:
    """Of a dozen small tools, the meant one is called. A later tool gets what an earlier one has returned."""
    names = [tool["function"]["name"] for tool in NEWCOMERS]
    run = Talk(NEWCOMERS, {name: lambda **_: '[{"user_id": 7, "name": "Eve"}]' for name in names})
    await run.say(prompt)
    assert run.calls == calls


async def test_the_only_tool_is_called_for_something_concrete() -> None:
    """If no word of the prompt fits the only tool, a number, a name or a quotation is a reason to call it. Small talk is not."""
    run = Talk(NEWCOMERS[:1], {"calculator": lambda expression: "120"})
    assert "`calculator` says: `120`" in await run.say("What is 12 * (7 + 3)?")
    await run.say("Who are you?")
    assert run.calls == []


async def test_arguments_follow_the_schema() -> None:
    """Arguments fit their schema: enums, booleans (also after "not"), numbers beside their names, lists, versions, defaults."""
    deploy = tool(
        "deploy",
        "Deploy the site.",
        {
            "stage": {"enum": ["staging", "production"]},
            "version": TEXT,
            "dry_run": {"type": "boolean", "default": False},
            "notify": {"type": "boolean", "default": True},
            "retries": {**NUMBER, "default": 0, "maximum": 5},
            "hosts": {"type": "array", "items": TEXT, "default": []},
            "region": {"anyOf": [TEXT, {"type": "null"}], "default": None},
        },
    )
    run = talk(deploy, deploy=lambda **_: "done")
    await run.say(
        "Deploy version 1.20.3 to production as a dry run with 4 retries, but do not notify anybody"
    )
    wanted = {"stage": "production", "version": "1.20.3", "dry_run": True, "notify": False, "retries": 4}
    assert run.calls == [("deploy", wanted)]


async def test_an_error_is_answered_with_one_other_try() -> None:
    """If a file does not exist, one from the search result is tried, once. The answer mentions both."""
    run = talk(SEARCH, READ)
    answer = await run.say("Search for retries and read src/cilent.py")
    assert run.calls == [
        ("search_code", {"query": "retries"}),
        ("read_file", {"path": "src/cilent.py"}),
        ("read_file", {"path": "src/client.py"}),
    ]
    assert "FileNotFoundError" in answer
    assert answer.index("FileNotFoundError") < answer.index("def send(self")
    assert "I know no other way" not in answer


async def test_a_suggestion_in_an_error_is_taken() -> None:
    """If a tool's error says "did you mean", the suggestion is tried."""
    known = "LookupError: no city 'Oslø'; did you mean 'Oslo'?"
    run = talk(WEATHER, weather=lambda city: "3 degrees" if city == "Oslo" else known)
    await run.say("What is the weather in Oslø?")
    assert [arguments["city"] for _, arguments in run.calls] == ["Oslø", "Oslo"]


async def test_an_error_without_a_way_round_is_told() -> None:
    """A tool that always fails is called once, and the answer quotes its error."""
    release = tool("release", "Release a version of the package.", {"version": TEXT})
    run = talk(release, release=lambda version: "RuntimeError: nobody may release on a Friday")
    answer = await run.say("Release version 1.2.0")
    assert run.calls == [("release", {"version": "1.2.0"})]
    assert "RuntimeError: nobody may release on a Friday" in answer
    assert "I know no other way" in answer


async def test_a_failure_that_may_pass_is_tried_again() -> None:
    """An error that says "try again later" gets the same call once more."""
    tries: list[str] = []

    def flaky(city: str) -> str:
        tries.append(city)
        return "TimeoutError: try again later" if len(tries) == 1 else "4 degrees"

    answer = await talk(WEATHER, weather=flaky).say("What is the weather in Oslo?")
    assert tries == ["Oslo", "Oslo"]
    assert "4 degrees" in answer


async def test_a_denial_is_accepted_and_its_reason_quoted() -> None:
    """A denied call is not repeated. The answer has the reason."""
    denied = "denied by the user: the change is closed. This was a decision, not a failure: do not repeat the same call."
    run = talk(post_comment=lambda line, body: denied)
    answer = await run.say("Find `retries`, and post a comment on the first line found.")
    assert [name for name, _ in run.calls] == ["search_code", "post_comment"]
    assert run.calls[1][1]["line"] == 41
    assert "not allowed to run `post_comment`" in answer
    assert "the change is closed" in answer


async def test_a_later_turn_refers_to_an_earlier_one() -> None:
    """The words "these" and "and in …?" refer to earlier results and calls. A question about them calls no tool."""
    run = talk(SEARCH, READ, WEATHER)
    await run.say("Search for `retries`.")
    await run.say("Now read the test file of these.")
    assert run.calls == [("read_file", {"path": "tests/test_client.py"})]
    answer = await run.say("And what did you find in that file?")
    assert run.calls == []
    assert "Now read the test file of these." in answer
    assert "def send" in answer
    await run.say("What is the weather in Oslo?")
    await run.say("And in Bergen?")
    assert run.calls == [("weather", {"city": "Bergen"})]


@pytest.mark.parametrize("wanted", [FORMAT, Review])
async def test_a_structured_answer_comes_after_the_tools(wanted: Any) -> None:
    """With `response_format` (a schema or a class), the tools are called first. Then comes only valid JSON."""
    run = talk(SEARCH, READ)
    run.options = {"response_format": wanted}
    answer = await run.say("Review the retry code: search for `retries` and read the file.")
    assert [name for name, _ in run.calls] == ["search_code", "read_file"]
    review = Review.model_validate_json(answer)
    assert [finding.line for finding in review.findings] == [41, 57, 9]


async def test_a_correction_is_answered_in_the_same_shape() -> None:
    """After a message that its answer did not validate, the model calls no tool, and answers with the earlier results."""
    run = talk(SEARCH, READ)
    run.options = {"response_format": FORMAT}
    review = await run.say("Review the retry code: search for `retries` and read the file.")
    problem = "Your answer did not validate: summary: too dull\nAnswer again, with the corrected JSON only."
    corrected = await run.say(problem)
    assert run.calls == []
    assert Review.model_validate_json(corrected).findings == Review.model_validate_json(review).findings


async def test_without_tools_it_says_what_it_is() -> None:
    """If there is no tool, or none fits, the answer repeats the prompt and says that this is a demonstration."""
    for tools in ([], [WEATHER]):
        fresh = DemoModel(pace=0)
        answer = await Talk(tools, FUNCTIONS, model=registry.put("demo-alone", fresh)).say("Who are you?")
        assert "Who are you?" in answer
        assert "demonstration, not a language model" in answer


async def test_what_it_is_is_said_once() -> None:
    """Only the first answer says that this is a demonstration. If the prompt asks for an explanation, the answer says that it
    cannot give one.
    """
    fresh = DemoModel(pace=0)
    run = Talk([SEARCH, READ], FUNCTIONS, model=registry.put("demo-once", fresh))
    answers = [await run.say(f"Search for `{word}`.") for word in ("retries", "send")]
    answers.append(await run.say("Read src/client.py and explain it."))
    assert ["demonstration, not a language model" in answer for answer in answers] == [True, False, False]
    assert "I cannot explain that." in answers[-1]
    assert [answer.count("`search_code` returned 3 items") for answer in answers] == [1, 1, 0]


async def test_what_was_returned_is_counted_and_quoted_as_it_is() -> None:
    """All lines of a result count, also blank ones. The first eight lines are quoted, including blank ones."""
    source = "def f():\n    x = 1\n\n\n    return x\n" + "\n# end" * 7
    answer = await talk(READ, read_file=lambda path: source).say("Read src/client.py")
    assert f"`read_file` returned {len(source.splitlines())} lines and begins:" in answer
    assert "```py\ndef f():\n    x = 1\n\n\n    return x\n\n# end\n# end\n```" in answer


async def test_the_same_messages_get_the_same_answer_in_pieces() -> None:
    """Two calls give the same message. It is streamed word by word, and has a usage."""
    messages = [{"role": "user", "content": "Search for `retries`."}]
    first, second = [await ask(DEMO_MODEL, *messages, tools=[SEARCH]) for _ in range(2)]
    assert first["tool_calls"] == second["tool_calls"]
    assert (first["content"], first["finish_reason"]) == (second["content"], "tool_calls")
    assert first["usage"].prompt_tokens == 4
    assert first["usage"].completion_tokens > 3


async def test_tool_choice_is_kept() -> None:
    """With "none", no tool is called. A named tool is called, whatever the prompt says."""
    message = await ask(DEMO_MODEL, "Search for `x1`", tools=[SEARCH, WEATHER], tool_choice="none")
    assert "tool_calls" not in message
    chosen = {"type": "function", "function": {"name": "weather"}}
    message = await ask(DEMO_MODEL, "Search for `x1`", tools=[SEARCH, WEATHER], tool_choice=chosen)
    assert message["tool_calls"][0]["function"]["name"] == "weather"


async def test_reasoning_is_shown_when_asked_for() -> None:
    """With `reasoning_effort`, the model says which rule it follows."""
    message = await ask(DEMO_MODEL, "Search for `x1`", tools=[SEARCH], reasoning_effort="low")
    assert "search_code" in message["reasoning_content"]


async def test_call_ids_are_new_in_every_turn() -> None:
    """Each id occurs once in a conversation."""
    run = talk(SEARCH, READ)
    await run.say("Search for `a1` and read the file.")
    await run.say("Search for `b2` and read the file.")
    ids = [call["id"] for message in run.messages for call in message.get("tool_calls") or ()]
    assert len(ids) == len(set(ids)) == 4


async def test_odd_messages_do_not_break_it() -> None:
    """The model answers even with pictures, empty prompts, unknown tools in the history, and invalid arguments."""
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    broken = {"id": "c", "type": "function", "function": {"name": "gone", "arguments": '{"x": '}}
    for messages in (
        [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, picture]}],
        [{"role": "user", "content": ""}],
        [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": None, "tool_calls": [broken]},
            {"role": "tool", "tool_call_id": "c", "content": ""},
        ],
    ):
        assert (await ask(DEMO_MODEL, *messages, tools=[SEARCH]))["content"]


def test_its_name_is_taken() -> None:
    """No scripted model can have the demonstration model's name."""
    with pytest.raises(ValueError, match="demonstration"):
        ScriptedModel("x", name="demo")


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        ("FileNotFoundError: x", "error"),
        ("json.decoder.JSONDecodeError: x", "error"),
        ("invalid arguments, f was not run:\n- x: expected an integer", "error"),
        ("unknown tool 'x'", "error"),
        ("This call was cancelled while it ran; whether it had an effect is not known.", "error"),
        ("denied by the user", "denied"),
        ("Errors are listed below", "ok"),
        ("42", "ok"),
        ("", "ok"),
    ],
)
def test_what_became_of_a_call_is_read_from_its_text(result: str, kind: str) -> None:
    """Errors and denials are recognised by the words with which the loop begins them."""
    assert Step("f", {}, result).kind == kind


@pytest.mark.parametrize(
    "text", ["a." * 50_000, "/" * 100_000, "'" * 100_000, "[" * 100_000, "1" * 100_000, "a-" * 50_000]
)
def test_hostile_results_do_not_hold_the_loop(text: str) -> None:
    """Long texts that could slow the patterns down are read so fast that a person does not notice."""
    started = time.thread_time()
    for kind in PATTERNS:
        find(kind, text)
    assert time.thread_time() - started < 1.5
