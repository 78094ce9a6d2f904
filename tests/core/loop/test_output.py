"""Structured output: how a model is asked for it, how the answer is read, when the model is asked again, and what is an
error.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
import time
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field, RootModel
from typing_extensions import TypedDict

from support.servers import answer, calls
from toolloop_jupyter import Harness, OutputInvalid, aagent, aagent_session
from toolloop_jupyter.core.conversation import history
from toolloop_jupyter.core.events.events import Retry
from toolloop_jupyter.core.loop.config import ToolLoopOptions
from toolloop_jupyter.core.loop.output import Output, OutputProblem
from toolloop_jupyter.core.models.client import takes_response_format, takes_tool_choice_none
from toolloop_jupyter.teaching.scripted import ScriptedModel, call, end


class Place(BaseModel):
    city: str
    n: int


class Pair(TypedDict):
    x: int
    y: str


OSLO = '{"city":"Oslo","n":1}'


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Color(enum.Enum):
    RED = "red"


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]
    home: Cat | None = Field(None, description="Where it lives")


class Node(BaseModel):
    name: str
    children: list[Node]


class Loose(BaseModel):
    name: str
    extra: dict[str, int] = {}


class Defaults(BaseModel):
    n: int = 2
    default: str = "x"


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]


# --- reading ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        OSLO,
        f"```json\n{OSLO}\n```",
        f"```json\n{OSLO}",
        f"```\n{OSLO}\n```",
        f"Here it is:\n```json\n{OSLO}\n```\nAnything else?",
        f"Here it is: {OSLO}. Anything else?",
        f'<think>maybe {{"city":"Bergen","n":2}}</think>\n{OSLO}',
        f'maybe {{"city":"Bergen","n":2}}</think>{OSLO}',
        f'First I thought {{"city":"Bergen","n":2}}, but it is {OSLO}',
        f'```json\n{{"city":"Bergen","n":2}}\n```\nNo:\n```json\n{OSLO}\n```',
        f'{{"name":"Place","arguments":{OSLO}}}',
        json.dumps({"name": "Place", "arguments": OSLO}),
        f'{{"type":"function","function":{{"name":"Place","arguments":{json.dumps(OSLO)}}}}}',
        f'{{"name":"Place","parameters":{OSLO}}}',
        f'{{"Place":{OSLO}}}',
        json.dumps(OSLO),
        '{"city":"Oslo","n":"1"}',
    ],
)
def test_json_is_read_wherever_it_stands(text):
    """C112: JSON is read in a fence, in half a fence, in prose, after thinking, in the form of a tool call, or encoded twice."""
    assert Output(Place).read(text) == Place(city="Oslo", n=1)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Point, '{"x":1}', Point(1)),
        (list[Place], f"[{OSLO}]", [Place(city="Oslo", n=1)]),
        (list[Place], f'{{"value":[{OSLO}]}}', [Place(city="Oslo", n=1)]),
        (list[int], "The numbers are [1, 2].", [1, 2]),
        (Place | Point, '{"x":3,"y":4}', Point(3, 4)),
        (Pet, '{"value":{"kind":"dog"}}', Dog(kind="dog")),
        (dict[str, int], '{"a":1}', {"a": 1}),
        (int, "42", 42),
        (int, '{"value":42}', 42),
        (bool, "true", True),
        (str, "just words", "just words"),
        (str, '{"value":"words"}', "words"),
        (Literal["yes", "no"], "yes", "yes"),
        (Literal["yes", "no"], '{"value":"no"}', "no"),
        (Color, "red", Color.RED),
        (dt.date, '{"value":"2026-01-02"}', dt.date(2026, 1, 2)),
        (Place | None, "null", None),
        (tuple[int, str], '[1,"a"]', (1, "a")),
        (Pair, '{"x":1,"y":"a"}', {"x": 1, "y": "a"}),
        (list[Pair], '[{"x":1,"y":"a"}]', [{"x": 1, "y": "a"}]),
        (RootModel[list[int]], "[1]", RootModel[list[int]]([1])),
        (
            Node,
            '{"name":"a","children":[{"name":"b","children":[]}]}',
            Node(name="a", children=[Node(name="b", children=[])]),
        ),
        (Defaults, '{"name":"Defaults","arguments":{"n":5}}', Defaults(n=5)),
        (Place, '{"city":"</think>","n":1}', Place(city="</think>", n=1)),
    ],
)
def test_other_kinds_than_models(kind, text, value):
    """Dataclasses, lists, unions, plain values and texts can be outputs, too, with or without a wrapping object."""
    assert Output(kind).read(text) == value


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("no idea", "no JSON was found"),
        ("", "no JSON was found"),
        ('{"city":1}', r"city: .*string.*; n: Field required"),
        ('{"city":"Oslo","n":NaN}', "no JSON was found"),
        ("[" * 100_000, "no JSON was found"),
        ('{"a":' * 50_000, "no JSON was found"),
    ],
)
def test_a_wrong_answer_is_a_problem_in_words(text, problem):
    """If an answer does not validate, the error says why. Even for a hostile answer, this takes little time."""
    began = time.thread_time()
    with pytest.raises(OutputProblem, match=problem):
        Output(Place).read(text)
    assert time.thread_time() - began < 2


def test_an_answer_without_any_of_the_fields_is_no_default_object():
    """C120: an object without any field of the schema is not accepted, even if all fields have defaults."""
    with pytest.raises(OutputProblem, match="none of the fields default, n"):
        Output(Defaults).read('{"error":"I could not do it"}')
    assert Output(Defaults).read("{}") == Defaults()


# --- the schema that is sent --------------------------------------------------------------------------------------


def nodes(schema):
    if isinstance(schema, dict):
        yield schema
        for value in schema.values():
            yield from nodes(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from nodes(value)


@pytest.mark.parametrize(
    "kind",
    [
        Place,
        Point,
        list[Place],
        Pet,
        Dog,
        Node,
        Loose,
        Defaults,
        int,
        Color,
        tuple[int, str],
        set[int],
        dict[str, int],
        Place | Point,
    ],
)
def test_what_is_sent_is_what_strict_mode_takes(kind):
    """C116, C117: the top of the schema is an object. With strict, every object is closed and complete, without `default` or
    `oneOf`.
    """
    from toolloop_jupyter.core.models.client import load_litellm

    load_litellm()
    from litellm.llms.base_llm.base_utils import type_to_response_format_param

    sent = type_to_response_format_param(Output(kind).response_format())["json_schema"]
    schema, strict = sent["schema"], sent["strict"]
    assert schema["type"] == "object"
    assert strict == (kind not in (Loose, dict[str, int], set[int]) and kind != tuple[int, str])
    if not strict:
        return
    for node in nodes(schema):
        if node.get("type") == "object":
            assert node["additionalProperties"] is False
            assert sorted(node["required"]) == sorted(node["properties"])
        assert "oneOf" not in node
        assert "$ref" not in node or set(node) == {"$ref"}
    assert "default" not in schema
    assert all("default" not in p for node in nodes(schema) for p in node.get("properties", {}).values())


FORMAT = Output(Place).response_format()
SPEC = [
    {
        "type": "function",
        "function": {"name": "f", "description": "x", "parameters": {"type": "object", "properties": {}}},
    }
]


@pytest.mark.parametrize(
    ("model", "with_tools", "without"),
    [
        ("openai/gpt-4o", True, True),
        ("openai/o3", True, True),
        ("azure/gpt-4o", True, True),
        ("anthropic/claude-sonnet-4-5", True, True),
        ("anthropic/claude-3-5-sonnet-20240620", False, True),
        ("gemini/gemini-2.5-pro", False, True),
        ("vertex_ai/gemini-2.0-flash", False, True),
        ("gemini/gemini-3-pro-preview", True, True),
        ("groq/llama-3.3-70b-versatile", False, True),
        ("ollama_chat/llama3", False, True),
        ("ollama/llama3", False, True),
        ("mistral/mistral-large-latest", True, True),
        ("litellm_proxy/coder", True, True),
        ("hosted_vllm/qwen", True, True),
        ("toolloop/demo", True, True),
    ],
)
def test_which_models_take_response_format(model, with_tools, without):
    """C114, C115: this is known without a network, from LiteLLM's own mapping and from what providers are known to refuse."""
    import toolloop_jupyter.teaching.registry

    assert toolloop_jupyter.teaching.registry
    assert takes_response_format(model, SPEC, FORMAT) is with_tools
    assert takes_response_format(model, [], FORMAT) is without


@pytest.mark.parametrize(
    ("model", "takes"),
    [("openai/gpt-4o", True), ("anthropic/claude-sonnet-4-5", True), ("bedrock/amazon.nova-pro-v1:0", False)],
)
def test_which_models_take_no_tool_choice(model, takes):
    """`tool_choice="none"` is left out if LiteLLM would raise an error for it."""
    assert takes_tool_choice_none(model, SPEC) is takes


# --- in a turn ----------------------------------------------------------------------------------------------------


def f(a: int = 0) -> str:
    """Return a."""
    return f"f({a})"


async def run(*turns, output=Place, **more):
    model = ScriptedModel(*turns)
    return model, await aagent(Harness.TOOL_LOOP, "Go.", model=model, output=output, tools=[f], **more)


async def test_the_output_is_an_instance_and_counts_its_answers():
    """C120: `Result.output` is an instance of the model, and `output_attempts` says how many answers were needed."""
    model, result = await run(call("f", a=1), '{"city":1}', "no", OSLO)
    assert (result.output, result.output_attempts, result.stop_reason) == (Place(city="Oslo", n=1), 3, "done")
    assert "city: " in model.requests[2].messages[-1]["content"]
    assert "no JSON" in model.requests[3].messages[-1]["content"]
    assert model.requests[0].options["response_format"]


@pytest.mark.parametrize("retries", [0, 1, 2])
async def test_an_answer_that_never_fits_is_an_error_with_everything(retries):
    """C119: after `output_retries` more answers, OutputInvalid has the raw text, and the Result with the calls that were
    made.
    """
    model = ScriptedModel('{"city":1}', repeat_last=True)
    session = aagent_session(
        Harness.TOOL_LOOP, model=model, output=Place, options=ToolLoopOptions(output_retries=retries)
    )
    with pytest.raises(OutputInvalid, match="did not match Place: city") as raised:
        await session.arun("Go.")
    assert raised.value.raw == '{"city":1}'
    assert raised.value.result.output is None
    assert raised.value.result.output_attempts == retries + 1 == len(model.requests)
    tries = [event for event in raised.value.result.events if isinstance(event, Retry) and event.of_answer]
    assert len(tries) == retries, "a reader can tell the answers apart"
    assert history.validate(await session.history()) == []


async def test_a_refusal_is_not_tried_again(serve):
    """A refusal by the model ends the run at once. OutputInvalid quotes the refusal."""
    server = serve([{"chunks": [{"refusal": "I will "}, {"refusal": "not."}]}], repeat_last=False)
    with pytest.raises(OutputInvalid, match=r"the model refused: I will not\."):
        await aagent(
            Harness.TOOL_LOOP,
            "Go.",
            model="openai/x",
            api_base=server.base_url,
            api_key="sk-none",
            output=Place,
        )


async def test_an_answer_cut_off_says_so():
    """If the token limit cut the answer off, the message to the model says so."""
    model, result = await run(['{"city":"Os', end("length")], OSLO)
    assert "cut off by the token limit" in model.requests[1].messages[-1]["content"]
    assert result.output == Place(city="Oslo", n=1)


async def test_a_call_of_no_tool_that_is_the_output():
    """If a model sends its answer as a call of an unknown tool, this is the answer. Nothing runs, and the history is valid."""
    model = ScriptedModel(call("f", a=1), call("Place", city="Oslo", n=1), "Next.")
    session = aagent_session(Harness.TOOL_LOOP, model=model, output=Place, tools=[f])
    result = await session.arun("Go.")
    assert result.output == Place(city="Oslo", n=1)
    assert [c.name for c in result.calls] == ["f"]
    messages = await session.history()
    assert history.validate(messages) == []
    assert messages[-1]["content"] == "Taken as the final answer."


async def test_a_model_that_takes_no_response_format_is_asked_in_words(serve):
    """C115: with groq's models, tools can be called freely. At the end, a message asks for the schema, and no provider error
    occurs.
    """
    script = [calls(("f", {"a": 1})), answer("It is Oslo."), answer(OSLO)]
    server = serve(script, repeat_last=False)
    result = await aagent(
        Harness.TOOL_LOOP,
        "Go.",
        model="groq/gemma2-9b-it",
        api_base=server.base_url,
        api_key="gsk-none",
        output=Place,
        tools=[f],
    )
    assert (result.output, result.output_attempts) == (Place(city="Oslo", n=1), 1)
    assert [c.name for c in result.calls] == ["f"]
    assert all("response_format" not in request.body for request in server.requests)
    assert "JSON schema" in server.requests[2].messages[-1]["content"]
    assert server.requests[2].body["tool_choice"] == "none"
    assert server.requests[2].tools


async def test_an_answer_that_fits_at_once_is_not_asked_for_again(serve):
    """C112: if the first answer is JSON already, there is no second call, whether a message would ask for it or not."""
    server = serve([answer(f"```json\n{OSLO}\n```")], repeat_last=False)
    result = await aagent(
        Harness.TOOL_LOOP,
        "Go.",
        model="groq/gemma2-9b-it",
        api_base=server.base_url,
        api_key="gsk-none",
        output=Place,
        tools=[f],
    )
    assert (result.output, len(server.requests)) == (Place(city="Oslo", n=1), 1)


async def test_a_tool_called_instead_of_the_answer_is_not_run(serve):
    """After the model was asked for the JSON, a tool call is refused. It counts as an attempt, and may be the last one."""
    server = serve([answer("It is Oslo."), calls(("f", {"a": 1}))])
    with pytest.raises(OutputInvalid) as raised:
        await aagent(
            Harness.TOOL_LOOP,
            "Go.",
            model="groq/gemma2-9b-it",
            api_base=server.base_url,
            api_key="gsk-none",
            output=Place,
            tools=[f],
        )
    assert len(server.requests) == 4
    assert all(r.is_error and "No more tool calls" in r.output for r in raised.value.result.tool_results)


def test_an_output_that_cannot_be_described():
    """A class that pydantic cannot describe is refused before anything starts."""
    with pytest.raises(ValueError, match="cannot be described"):
        Output(object())


class Endless(BaseModel):
    other: Endless


class HookRaises:
    @classmethod
    def __get_pydantic_core_schema__(cls, source, handler):
        raise SystemExit(2)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (Endless, "no value can satisfy Endless: each Endless needs another Endless inside."),
        (Literal[()], "cannot be empty"),
        (HookRaises, "SystemExit: 2."),
    ],
)
def test_a_type_that_cannot_be_described(kind, why):
    """A type is refused before the run if no value is valid for it, or if its own code raises an error. The message has the
    reason.
    """
    with pytest.raises(ValueError, match="cannot be described") as caught:
        Output(kind)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "tries"),
    [
        ("[" * 150 + "1," * 500_000, 3),
        ('{"a": ' * 150 + '"' + "x" * 1_000_000, 3),
        ("```\n{}\n```\n" * 2_000, 402),
        ("see [1] and [2 " * 500, 201),
    ],
    ids=["numbers", "an endless text", "fences", "prose"],
)
def test_a_long_answer_is_not_read_again_and_again(answer, tries, monkeypatch):
    """All tries to find JSON in an answer together read a limited number of characters."""
    begun = []
    read = json.JSONDecoder.raw_decode

    def count(self, text, idx=0):
        begun.append(idx)
        return read(self, text, idx)

    monkeypatch.setattr(json.JSONDecoder, "raw_decode", count)
    with pytest.raises(OutputProblem):
        Output(Place).read(answer)
    assert len(begun) <= tries + 2  # this includes the whole answer
