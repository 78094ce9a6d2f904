"""ScriptedModel, called through LiteLLM's real `acompletion()`."""

from __future__ import annotations

import gc
import json
import pickle
import time
from typing import Any

import pytest
from pydantic import BaseModel

from support.asking import ask
from toolloop_jupyter.core.models.client import load_litellm
from toolloop_jupyter.teaching.scripted import (
    ScriptedModel,
    ScriptError,
    call,
    deltas,
    end,
    error,
    expect,
    pause,
    reasoning,
    reply_with,
    text,
)


async def test_turns_are_played_one_for_each_call() -> None:
    """Texts, calls, and several parts in one turn come in the order of the script."""
    model = ScriptedModel(
        "Hello  there\n",
        call("f", x=1, name="ä"),
        [reasoning("I think."), text("Let me look."), call("f"), call("g", y=[1, 2]).as_id("mine")],
    )
    first = await ask(model)
    assert (first["content"], first["finish_reason"]) == ("Hello  there\n", "stop")
    second = await ask(model)
    assert second["content"] is None
    assert json.loads(second["tool_calls"][0]["function"]["arguments"]) == {"x": 1, "name": "ä"}
    assert second["finish_reason"] == "tool_calls"
    third = await ask(model)
    assert (third["reasoning_content"], third["content"]) == ("I think.", "Let me look.")
    assert [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in third["tool_calls"]] == [
        ("call_3_1", "f", "{}"),
        ("mine", "g", '{"y": [1, 2]}'),
    ]
    assert (model.position, model.remaining) == (3, 0)


async def test_wrong_arguments_and_raw_deltas_come_as_written() -> None:
    """Invalid JSON and deltas without ids reach the caller unchanged, each time."""
    given = [{"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{}"}}]}, {"content": "x"}]
    model = ScriptedModel(call("f", '{"x": '), deltas(given), repeat_last=True)
    assert (await ask(model))["tool_calls"][0]["function"]["arguments"] == '{"x": '
    for _ in range(2):
        message = await ask(model)
        assert message["content"] == "x"
        assert message["tool_calls"][0]["function"]["name"] == "f"
        assert message["finish_reason"] == "tool_calls"


async def test_signed_reasoning_is_a_thinking_block() -> None:
    """Reasoning with a signature becomes a thinking block, which providers want back."""
    message = await ask(ScriptedModel([reasoning("Let me see.", signature="SIG"), "Yes"]))
    assert message["thinking_blocks"] == [{"type": "thinking", "thinking": "Let me see.", "signature": "SIG"}]
    assert message["reasoning_content"] == "Let me see."


async def test_a_reply_is_computed_from_the_messages() -> None:
    """A function (alone or in `reply_with`, sync or async) gets the messages, and may return any turn."""

    async def later(messages: list[dict[str, Any]]) -> Any:
        messages.clear()  # the function has its own copy of the messages
        return [text("calling "), call("f", n=2)]

    model = ScriptedModel(
        lambda messages: f"You said {messages[-1]['content']!r}.", [call("g"), reply_with(later)]
    )
    assert (await ask(model, "ping"))["content"] == "You said 'ping'."
    message = await ask(model, "again")
    assert [c["id"] for c in message["tool_calls"]] == ["call_2_1", "call_2_2"]
    assert model.requests[1].messages == [{"role": "user", "content": "again"}]


async def test_a_function_that_fails_is_named() -> None:
    """If a function of the script raises an error, the message names the turn and the function."""

    def broken(messages: list[dict[str, Any]]) -> str:
        return messages[7]["content"]

    with pytest.raises(
        load_litellm().BadRequestError, match=r"turn 1 of toolloop/scripted-\d+: broken raised IndexError"
    ):
        await ask(ScriptedModel(broken))


async def test_a_dict_or_a_model_is_an_answer_in_json() -> None:
    """A dict or a pydantic object in a script becomes an answer in JSON."""

    class Review(BaseModel):
        summary: str

    model = ScriptedModel({"summary": "ü"}, Review(summary="ok"))
    assert json.loads((await ask(model))["content"]) == {"summary": "ü"}
    assert json.loads((await ask(model))["content"]) == {"summary": "ok"}


async def test_the_end_of_the_script_says_what_came() -> None:
    """After the last turn, a further call's error names the model, the number of turns and the message without an answer."""
    model = ScriptedModel("one", name="short")
    await ask(model)
    with pytest.raises(load_litellm().BadRequestError) as caught:
        await ask(model, {"role": "user", "content": "and now?"})
    assert "the script of toolloop/short is over: it has 1 turn, and this is model call 2" in str(
        caught.value
    )
    assert "'user': 'and now?'" in str(caught.value)
    assert ".reset()" in str(caught.value)
    model.reset()
    assert (await ask(model))["content"] == "one"


async def test_a_turn_that_does_not_fit_says_what_it_got() -> None:
    """If the last message is not as `expect()` says, the error quotes it."""
    model = ScriptedModel([expect("denied", role="tool"), "Fine."], repeat_last=True)
    with pytest.raises(load_litellm().BadRequestError) as caught:
        await ask(model, "go on")
    assert (
        "expects a last message with role 'tool' and the text 'denied', but the last message is from 'user': 'go on'"
        in str(caught.value)
    )
    called = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    }
    result = {"role": "tool", "tool_call_id": "c", "content": "denied: no"}
    assert (await ask(model, "go on", called, result))["content"] == "Fine."


async def test_errors_refuse_or_break() -> None:
    """If an error is the first part of a turn, the call is refused with its status. A later error breaks the stream off."""
    litellm = load_litellm()
    model = ScriptedModel(error("slow down", 429), ["par", error("gone", None)], "fine")
    with pytest.raises(litellm.RateLimitError, match="slow down"):
        await ask(model, num_retries=0)
    with pytest.raises(litellm.exceptions.MidStreamFallbackError, match="gone"):
        await ask(model)
    assert (await ask(model))["content"] == "fine"


async def test_pace_and_pause_take_their_time() -> None:
    """The words of a text with a pace come one after another, and a pause waits."""
    started = time.monotonic()
    await ask(ScriptedModel([text("a b c d", pace=0.05), pause(0.1)]))
    assert time.monotonic() - started >= 0.3


async def test_usage_and_finish_reason_can_be_said() -> None:
    """`end()` sets both. Without it, the usage counts words."""
    said = await ask(ScriptedModel(["cut", end("length", {"prompt_tokens": 100, "completion_tokens": 1})]))
    assert (said["finish_reason"], said["usage"].prompt_tokens) == ("length", 100)
    counted = await ask(ScriptedModel("three words here"), "two words")
    assert (counted["usage"].prompt_tokens, counted["usage"].completion_tokens) == (3, 3)


async def test_requests_are_kept_as_they_were() -> None:
    """`.requests` has the messages and options of each call. Later changes of the caller's messages do not change it."""
    model = ScriptedModel("a", "b")
    part = {"type": "text", "text": "one"}
    message = {"role": "user", "content": [part]}
    await ask(model, message, temperature=0.5)
    part["text"] = "changed"
    await ask(model, message, {"role": "user", "content": "two"})
    assert model.requests[0].messages[0]["content"][0]["text"] == "one"
    assert [m["content"] for m in model.requests[1].messages] == [
        [{"type": "text", "text": "changed"}],
        "two",
    ]
    assert model.requests[0].options["temperature"] == 0.5


async def test_a_long_session_keeps_each_message_once() -> None:
    """Requests share their copies of earlier messages. So the memory of a session grows only with its length."""
    model = ScriptedModel("a", repeat_last=True)
    messages = [{"role": "user", "content": "one"}]
    await ask(model, *messages)
    await ask(model, *messages, {"role": "user", "content": "two"})
    assert model.requests[1].messages[0] is model.requests[0].messages[0]


async def test_a_forgotten_model_is_gone() -> None:
    """The registry of names keeps no model alive. The error for a lost model says to keep it in a variable."""
    model = ScriptedModel("x")
    name = model.model
    del model
    gc.collect()
    with pytest.raises(load_litellm().NotFoundError, match="keep the ScriptedModel or Replay in a variable"):
        await ask(name)


async def test_a_name_that_is_not_there_suggests_the_nearest() -> None:
    """For a typo in a name, the error suggests the most similar name."""
    model = ScriptedModel("x", name="lesson-one")
    with pytest.raises(load_litellm().NotFoundError, match="did you mean 'toolloop/lesson-one'"):
        await ask("toolloop/lesson-on")
    assert model.model == "toolloop/lesson-one"


def test_mistakes_in_a_script_are_type_errors() -> None:
    """These are refused at once: a value that is not a turn, an impossible name, arguments in two forms."""
    with pytest.raises(TypeError, match="not 7"):
        ScriptedModel("fine", 7)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not both"):
        call("f", "{}", x=1)
    with pytest.raises(ValueError, match="'a b'"):
        ScriptedModel("x", name="a b")


async def test_a_name_given_again_belongs_to_the_new_model() -> None:
    """If a cell runs again, its new model replaces the one with the same name, even if the old one disappears later."""
    old = ScriptedModel("old", name="again")
    new = ScriptedModel("new", name="again")
    del old
    gc.collect()
    assert (await ask(new))["content"] == "new"


async def test_its_messages_use_the_name_of_the_variable() -> None:
    """If a cell has named the model by a variable, its messages use this name, and say what to type."""
    model = ScriptedModel("one")
    model.name_as("lesson")
    await ask(model)
    with pytest.raises(load_litellm().BadRequestError) as caught:
        await ask(model)
    assert "the script of lesson is over" in str(caught.value)
    assert "lesson.reset()" in str(caught.value)


async def test_going_back_plays_the_same_turns_again() -> None:
    """`position` is how many turns were played; the turns after an earlier position can be played again."""
    model = ScriptedModel("one", "two", "three")
    for _ in range(2):
        await ask(model)
    assert model.position == 2
    model.continue_at(1)
    assert (await ask(model))["content"] == "two"
    assert len(model.requests) == 2
    model.position = 1
    assert (await ask(model))["content"] == "two"


@pytest.mark.parametrize("takes_images", [False, True, "user"])
def test_a_copy_has_the_same_settings(takes_images: Any) -> None:
    """The model for a row of a table, and a model in another process, have the settings of the original."""
    model = ScriptedModel("one", pace=0.5, repeat_last=True, takes_images=takes_images)
    model.name_as("lesson")
    for made in (model.begin_row({}), pickle.loads(pickle.dumps(model))):
        settings = (made.turns, made.pace, made.repeat_last, made.takes_images, made.title)
        assert settings == (model.turns, 0.5, True, takes_images, "lesson")


@pytest.mark.parametrize(
    ("turns", "told"),
    [
        ((["ok"], 5), "turn 2 of the script: a turn is a text, a part such as call('f', x=1)"),
        ((call,), "turn 1 of the script: call is a function; call it: call(…)"),
        (([text("hi"), text],), "turn 1 of the script: a turn is a text, a part such as"),
        ((dict,), "turn 1 of the script: a turn is a text"),
    ],
)
def test_what_is_no_turn_is_refused_with_its_number(turns, told) -> None:
    """A mistake in a script is refused when the script is made, in one line with the number of the turn."""
    with pytest.raises(ScriptError) as caught:
        ScriptedModel(*turns)
    assert str(caught.value).startswith(told)


def test_calls_are_written_by_name_or_by_function() -> None:
    """call() takes the tool's name or the tool itself. For positional and impossible arguments, the error says what to write."""

    def double(x: int) -> int:
        """Double a number."""
        return 2 * x

    assert call(double, x=4) == call("double", x=4)
    for wrong, message in (
        (lambda: call("double", 4), r"by name, as in call\('double', x=1\)"),
        (lambda: call("double", x={4}), "a model sends JSON values"),
        (lambda: call(4), "wants the name of a tool"),
    ):
        with pytest.raises(ScriptError, match=message):
            wrong()
