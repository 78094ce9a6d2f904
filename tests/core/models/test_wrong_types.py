"""A server may send a value of a wrong type in any field. The answer is still read, and none of our code raises an error."""

from __future__ import annotations

import json

import pytest

from toolloop_jupyter import Harness, aagent_session
from toolloop_jupyter.core.conversation import history
from toolloop_jupyter.core.models.assembly import Assembly
from toolloop_jupyter.core.models.client import find_price
from toolloop_jupyter.teaching.scripted import ScriptedModel, deltas

VALUES = {
    "number": 5,
    "true": True,
    "text": "x",
    "list": [1],
    "lists": [[]],
    "object": {"a": 1},
    "null": [None],
}
FIELDS = [
    "content",
    "reasoning_content",
    "thinking_blocks",
    "reasoning_items",
    "provider_specific_fields",
    "images",
    "annotations",
    "audio",
    "refusal",
    "tool_calls",
    "function_call",
    "citations",
    "usage",
    "finish_reason",
]
OF_A_CALL = ["index", "id", "type", "name", "arguments", "provider_specific_fields", "extra_content"]


def look() -> str:
    """Look."""
    return "seen"


def in_a_call(name, value):
    function = {"name": "look", "arguments": "{}"}
    call = {"index": 0, "id": "c1", "function": function}
    (function if name in function else call)[name] = value
    return {"tool_calls": [call]}


WRONG = {f"{name} {kind}": {name: value} for name in FIELDS for kind, value in VALUES.items()}
WRONG |= {
    f"call's {name} {kind}": in_a_call(name, value) for name in OF_A_CALL for kind, value in VALUES.items()
}
WRONG |= {
    f"{name} in a thought {kind}": {"thinking_blocks": [{"type": "thinking", "thinking": "t", name: value}]}
    for name in ("type", "thinking", "signature")
    for kind, value in VALUES.items()
}
WRONG |= {
    f"tokens {kind}": {"usage": {"prompt_tokens": value, "prompt_tokens_details": value}}
    for kind, value in {**VALUES, "NaN": float("nan"), "infinite": float("inf"), "below 0": -5}.items()
}


@pytest.mark.parametrize("delta", WRONG.values(), ids=WRONG)
async def test_a_field_of_another_type_ends_nothing(delta):
    """Whatever a field of a delta contains, the rest of the answer counts. The conversation is valid and can be saved."""
    model = ScriptedModel(deltas([delta, {"content": "Text."}]), "Next.")
    session = aagent_session(Harness.TOOL_LOOP, model=model, tools=[look])
    result = await session.arun("Go.")
    assert (result.stop_reason, result.error) == ("done", None)
    assert result.text.endswith(("Text.", "Next."))
    assert result.usage.input_tokens >= 0
    messages = await session.history()
    assert history.validate(messages) == []
    json.dumps(messages, allow_nan=False)


def test_text_in_another_form_is_read():
    """A thought in parts, a number as text, and a number as an id are read and not dropped."""
    assembly = Assembly({"look"})
    assert assembly.add({"reasoning_content": [{"text": "So "}, {"text": "far."}]}) == ("", "So far.")
    assert assembly.add({"content": 42}) == ("42", "")
    assembly.add(in_a_call("id", 7))
    (call,) = assembly.message()["tool_calls"]
    assert (call["id"], call["function"]["name"]) == ("7", "look")


@pytest.mark.parametrize("cost", [float("nan"), float("inf"), -1.0, True, "x"])
def test_a_cost_that_is_none(cost):
    """If a server sends a cost that is not an amount, the cost is unknown. It neither lowers the sum nor hides that a limit
    is reached.
    """
    assert find_price("toolloop/replay-x", {"cost": cost}) is None


@pytest.mark.parametrize("indexes", [("0", 1), (None, 1), ("x", 1), ([], 1), (0.0, 1)])
def test_the_index_of_a_choice(indexes):
    """The choice with the index 0 counts, whatever types the indexes have."""
    assembly = Assembly()
    choices = [
        {"index": index, "delta": {"content": text}} for index, text in zip(indexes, "ab", strict=True)
    ]
    assembly.add(assembly.read_chunk({"choices": choices}))
    assert assembly.text == "a"


@pytest.mark.parametrize("choices", [5, "text", {"0": {"delta": {"content": "a"}}}, [None], None])
def test_choices_that_are_no_list(choices):
    """A chunk whose choices cannot be read counts as a chunk without choices; its usage counts."""
    assembly = Assembly()
    assembly.add(assembly.read_chunk({"choices": choices, "usage": {"prompt_tokens": 5}}))
    assert assembly.is_empty
    assert assembly.usage == {"prompt_tokens": 5}


@pytest.mark.parametrize(
    ("part", "text", "thought", "refusal"),
    [
        ({"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, "Hi", "hm", ""),
        ({"type": "thinking", "thinking": "hm"}, "Hi", "hm", ""),
        ({"type": "reasoning", "text": "hm"}, "Hi", "hm", ""),
        ({"type": "refusal", "refusal": "No."}, "Hi", "", "No."),
        ({"type": "output_text", "text": "Oh, "}, "Oh, Hi", "", ""),
    ],
)
def test_parts_of_content(part, text, thought, refusal):
    """If the content consists of parts (Mistral's form), thoughts are read as thoughts and refusals as refusals. No part is
    dropped.
    """
    assembly = Assembly()
    assembly.add({"content": [part, {"type": "text", "text": "Hi"}]})
    assert (assembly.text, assembly.words.thought, assembly.refusal) == (text, thought, refusal)
