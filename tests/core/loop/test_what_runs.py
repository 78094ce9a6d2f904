"""Guarantee: a tool runs exactly as it was shown, whatever changes while a person is asked."""

from __future__ import annotations

import copy
import json
import uuid

import pytest
from pydantic import BaseModel, Field

from support.approving import Desk
from toolloop_jupyter.core.events import Approval
from toolloop_jupyter.teaching.scripted import call


class Order(BaseModel):
    name: str
    number: str = Field(default_factory=lambda: uuid.uuid4().hex)


SENT = call("send", item={"name": "box", "tags": ["a"]}, count="2")
SHOWN = {"item": {"name": "box", "tags": ["a"]}, "count": 2, "note": "as usual", "to": ["home"]}
RAN = ({"name": "box", "tags": ["a"]}, 2, "as usual", ["home"])


async def test_the_validated_values_with_their_defaults_are_shown_and_run():
    """A request shows the typed values ("2" becomes 2) and the defaults that apply. The function gets the same values."""
    desk = Desk(SENT)
    result = await desk.run(lambda approval: approval.allow())
    assert result.approvals[0].input == SHOWN
    assert desk.ran == [RAN]


WRITES = {
    "a value": lambda shown: shown.__setitem__("count", 99),
    "a nested list": lambda shown: shown["item"]["tags"].append("b"),
    "a nested dict": lambda shown: shown["item"].update(name="bomb"),
    "in place": lambda shown: shown.__ior__({"count": 99}),
    "by pop": lambda shown: shown.pop("count"),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_the_request_cannot_be_changed(write):
    """Writing into `approval.input`, at any depth, raises an error that says how to edit. The call runs and is recorded as it
    was shown.
    """
    desk = Desk(SENT)

    def decide(approval):
        with pytest.raises(TypeError, match=r"approval\.allow\(\{\*\*approval\.input"):
            write(approval.input)
        approval.allow()

    result = await desk.run(decide)
    assert (desk.ran, dict(result.approvals[0].input)) == ([RAN], SHOWN)


async def test_a_copy_of_the_request_is_free():
    """A person can change `copy.deepcopy(approval.input)` and `dict(approval.input)`. JSON and equality work as with any
    dict.
    """
    desk = Desk(SENT)

    def decide(approval):
        mine = copy.deepcopy(approval.input)
        mine["item"]["tags"].append("mine")
        assert json.loads(json.dumps(approval.input)) == SHOWN
        approval.allow()

    await desk.run(decide)
    assert desk.ran == [RAN]


async def test_the_history_and_the_models_message_may_change():
    """Changes of the session's messages, or of the model's own dict, do not change a call that was shown."""
    desk = Desk(SENT)

    def decide(approval):
        for messages in (desk.session.messages(), desk.session._history._messages):
            for message in messages:
                for made in message.get("tool_calls") or ():
                    made["function"]["arguments"] = '{"item": {"name": "bomb"}, "count": 99}'
        approval.allow()

    await desk.run(decide)
    assert desk.ran == [RAN]


async def test_the_event_of_the_call_may_change():
    """The `input` of a ToolCall event has the arguments that the model sent. If a reader writes into it, the call does not
    change.
    """
    desk = Desk(SENT)

    def decide(approval):
        desk.events[-2].input["count"] = 99
        approval.allow()

    await desk.run(decide)
    assert desk.ran == [RAN]


CHANGES = {
    "its code (as %autoreload does)": lambda f: setattr(f, "__code__", f.__code__.replace(co_name="sent")),
    "its defaults": lambda f: setattr(f, "__defaults__", (1, "express", ["home"])),
    "what is in a default": lambda f: f.__defaults__[2].append("elsewhere"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_a_function_that_changes_in_place_does_not_run(change):
    """If the code or the defaults of a function change while a person is asked about it, the function does not run."""
    ran = []

    def send(count: int = 1, note: str = "as usual", to: list[str] = ["home"]) -> str:  # noqa: B006
        """Send something."""
        ran.append((count, note, to))
        return "sent"

    desk = Desk(call("send", count=2), tool=send)

    def decide(approval):
        change(send)
        approval.allow()

    result = await desk.run(decide)
    assert ran == []
    assert "changed while a person was asked about it" in result.tool_results[0].output
    assert not result.tool_results[0].decision.allowed


async def test_a_global_of_the_same_name_may_change():
    """If the tool's name gets a new function while the card is open, the function that was shown runs."""
    names = {}
    exec("def f(x: int) -> str:\n    '''Old.'''\n    return 'old'", names)
    desk = Desk(call("f", x=1), tool=names["f"])

    def decide(approval):
        exec("def f(x: int) -> str:\n    '''New.'''\n    return 'new'", names)
        approval.allow()

    result = await desk.run(decide)
    assert result.tool_results[0].value == "old"


async def test_a_policy_cannot_change_the_call():
    """If a policy callable writes into the arguments, this raises an error, and so a person is asked. The call runs as it was
    shown.
    """

    def policy(asked):
        asked.input["count"] = 99
        return "full"

    desk = Desk(SENT, permissions=policy)
    result = await desk.run(lambda approval: approval.allow())
    assert dict(result.approvals[0].input) == SHOWN
    assert desk.ran == [RAN]
    assert "raised TypeError" in result.approvals[0].why


async def test_edits_are_validated_once_and_run_as_validated():
    """An edit is validated once. The validated value is recorded and runs: a default factory is called once, and later
    changes of the edit have no effect.
    """
    ran = []

    def place(order: Order, tags: list[str]) -> str:
        """Place an order."""
        ran.append((order.name, order.number, tags))
        return "placed"

    desk = Desk(call("place", order={"name": "ink"}, tags=[]), tool=place)

    def decide(approval):
        edited = {"order": {"name": "pens"}, "tags": ["a"]}
        approval.allow(edited)
        edited["tags"].append("late")
        edited["order"]["name"] = "bomb"

    result = await desk.run(decide)
    recorded = result.approvals[0].decision.arguments
    assert ran == [("pens", recorded["order"]["number"], ["a"])]
    assert recorded["tags"] == ["a"]
    assert result.tool_results[0].output.startswith("The person edited the arguments to")


async def test_invalid_edits_decide_nothing():
    """If edited arguments do not validate, `allow` raises an error with the message that a model would get. The request stays
    open.
    """
    desk = Desk(SENT)

    def decide(approval):
        with pytest.raises(ValueError, match="count"):
            approval.allow({**approval.input, "count": "many"})
        assert not approval.answered
        approval.allow({**approval.input, "count": "3"})

    await desk.run(decide)
    assert desk.ran == [(RAN[0], 3, *RAN[2:])]


async def test_edits_that_change_nothing_are_none():
    """If a person allows the arguments as shown, this is a plain approval. But true in place of 1 is an edit."""
    approval = Approval("f", {"x": 1})
    approval.allow({"x": 1})
    assert approval.decision.arguments is None
    approval = Approval("f", {"x": 1})
    approval.allow({"x": True})
    assert approval.decision.arguments == {"x": True}


async def test_the_model_is_told_of_edits_also_when_the_tool_fails():
    """If an edited call fails, the message of the error has the person's arguments. Very long arguments are shortened."""

    def write(text: str) -> str:
        """Write."""
        raise OSError("disk full")

    desk = Desk(call("write", text="a"), tool=write)
    result = await desk.run(lambda approval: approval.allow({"text": "b" * 100_000}))
    output = result.tool_results[0].output
    assert output.startswith("OSError: disk full\nThe person edited the arguments to")
    assert len(output) < 6_000


async def test_what_was_approved_runs_once_and_not_again_in_the_next_turn():
    """An approval lets a call run once. A later turn does not repeat the call. (Users of other loops have reported this.)"""
    desk = Desk(SENT, "Sent.", "Hello.")
    await desk.run(lambda approval: approval.allow())
    await desk.session.arun("Something else.")
    assert desk.ran == [RAN]
    answers = [m for m in desk.session.messages() if m["role"] == "tool"]
    assert len(answers) == 1
