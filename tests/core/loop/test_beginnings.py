"""Each request of a turn begins with the same bytes as the request before it. A provider's prompt cache needs this."""

from __future__ import annotations

import asyncio
import itertools
import json

import pytest
from pydantic import BaseModel

from support.pictures import PNG, Picture
from toolloop_jupyter import Approval, Harness, ToolLoopOptions, aagent_session, tool
from toolloop_jupyter.core.conversation.history import MOST_SENT
from toolloop_jupyter.core.events import Observer
from toolloop_jupyter.teaching import ScriptedModel, call, deltas, end, error, pause, reasoning, text

LOOP = Harness.TOOL_LOOP


class Sum(BaseModel):
    total: int


def add(a: int, b: int = 0) -> int:
    """Add."""
    return a + b


def fails(a: int) -> int:
    """Fail."""
    raise ValueError("no")


def shot(n: int = 0) -> Picture:
    """Take a picture."""
    return Picture()


@tool(capture_output=True)
def prints(a: int) -> str:
    """Print."""
    print("printed", a)
    return "x" * 30_000


class Requests(Observer):
    """Keeps the bytes of each request at the time of the call."""

    def __init__(self):
        self.sent = []

    async def before_model(self, request):
        told = {**request.options, "messages": request.messages, "tools": request.tools}
        self.sent.append({name: json.dumps(value, default=repr) for name, value in told.items()})


def differences(first, second):
    """Return the parts of the second request that do not begin with the same part of the first request."""
    begins = second["messages"].startswith(first["messages"].removesuffix("]"))
    others = {name for name in first.keys() | second.keys() if first.get(name) != second.get(name)} - {
        "messages"
    }
    return others | (set() if begins else {"messages"})


def deny(approval: Approval):
    return False


async def edit(approval: Approval):
    approval.allow({"a": 5, "b": 5})


ADD = call("add", a=1, b=2)
JSON = '{"total": 3}'
STRICT = {"tool_choice": "required"}
TURNS = {
    "steps": ([ADD, call("add", a=3), "Done."], {}),
    "text and parallel calls": ([[text("Let me see."), ADD, call("add", a=9)], "Done."], {}),
    "thoughts": ([[reasoning("Hm."), ADD], [reasoning("Ah."), text("Done.")]], {}),
    "fields of the provider": (
        [
            [
                deltas([{"thinking_blocks": [{"type": "thinking", "thinking": "Hm.", "signature": "S"}]}]),
                deltas([{"provider_specific_fields": {"own": [1, {"z": 1, "a": 2}]}}]),
                ADD,
            ],
            "Done.",
        ],
        {},
    ),
    "blank text beside a call": ([[text("\n"), ADD], "Done."], {}),
    "broken arguments": ([call("add", '{"a": '), call("add", a="x"), call("no_such_tool"), "Done."], {}),
    "errors, prints, long results": ([call("fails", a=1), call("prints", a=1), "Done."], {}),
    "denied": ([ADD, ADD, "Done."], {"permissions": "ask", "on_approval": deny}),
    "edited": ([ADD, ADD, "Done."], {"permissions": "ask", "on_approval": edit}),
    "nobody there": ([ADD, "Done."], {"permissions": "ask"}),
    "tried again": ([ADD, error("busy", 503), ADD, "Done."], {"num_retries": 2}),
    "pictures in the tools' messages": (
        [call("shot", n=1), call("shot", n=2), "Seen."],
        {"takes_images": "tool"},
    ),
    "pictures in messages of their own": (
        [[call("shot", n=1), ADD], call("shot", n=2), ADD, "Seen."],
        {"takes_images": "user"},
    ),
    "a prompt with pictures and a file": (
        [call("shot", n=1), ADD, "Seen."],
        {"takes_images": "tool", "prompt": ["See", PNG, b"%PDF-1.4", PNG, "here."]},
    ),
    "pictures for a model that sees none": ([call("shot"), ADD, "Seen."], {}),
    "a prompt with a picture": (
        [call("shot", n=1), ADD, "Seen."],
        {"takes_images": "user", "prompt": ["Look.", Picture(), "What is it?"]},
    ),
    "repair": ([ADD, "It is 3.", '{"total": "x"}', JSON], {"output": Sum}),
    "repair of the first answer": (["It is 3.", JSON], {"output": Sum}),
    "an answer that a limit has cut": ([ADD, [text('{"tot'), end("length")], JSON], {"output": Sum}),
    # The exceptions (see EXCEPTIONS).
    "closing answer": ([ADD, ADD, "Done."], {"on_limit": "answer", "max_turns": 1}),
    "closing answer with output": ([ADD, ADD, JSON], {"on_limit": "answer", "max_turns": 1, "output": Sum}),
    "closing answer of a forced choice": (
        [ADD, ADD, "Done."],
        {"on_limit": "answer", "max_turns": 1, "completion_kwargs": STRICT},
    ),
    "an empty answer to the question": ([[end("stop")], JSON], {"output": Sum}),
    "more pictures than are sent": (
        [[call("shot", n=n) for n in range(MOST_SENT)], call("shot", n=99), ADD, "Seen."],
        {"takes_images": "tool"},
    ),
}
EXCEPTIONS = {
    "closing answer": (
        {"tool_choice"},
        "after a limit no tool may be called; the tools themselves stay in the request. It is the last one",
    ),
    "closing answer with output": (
        {"tool_choice", "response_format"},
        "the answer is asked for in words, because not every model takes both. It is the last request",
    ),
    "closing answer of a forced choice": ({"tool_choice"}, "the same, where the user forces a call"),
    "an empty answer to the question": (
        {"messages"},
        "there is nothing to keep of it, so what was wrong joins the question: strict templates refuse two neighbours",
    ),
    "more pictures than are sent": (
        {"messages"},
        f"providers take so many pictures: of those before the newest {MOST_SENT} the text alone is sent",
    ),
}
"""Name of a case in which a request does not begin with the request before it -> (the parts that differ, the reason)."""


def session_of(script, observer, **more):
    takes, keywords = more.pop("takes_images", False), {}
    own = {name: more.pop(name) for name in ("on_limit", "completion_kwargs") if name in more}
    if "num_retries" in more:
        own["completion_kwargs"] = {"num_retries": more.pop("num_retries")}
    keywords |= {"options": ToolLoopOptions(**own), "tools": [add, fails, shot, prints], **more}
    model = ScriptedModel(*script, takes_images=takes)
    return aagent_session(LOOP, model=model, instructions="Be brief.", observer=observer, **keywords)


@pytest.mark.parametrize("name", list(TURNS))
async def test_each_request_begins_with_the_one_before(name, monkeypatch):
    """Each request has the messages, tools and options of the request before it, and only adds messages. The exceptions are
    in a list.
    """
    monkeypatch.setattr("asyncio.sleep", _no_wait(asyncio.sleep))
    script, more = TURNS[name]
    seen, more = Requests(), dict(more)
    prompt = more.pop("prompt", "Go.")
    await session_of(script, seen, **more).arun(prompt)
    sent = seen.sent
    assert len(sent) > 1
    differ = set().union(*(differences(*pair) for pair in itertools.pairwise(sent)))
    assert differ == (EXCEPTIONS[name][0] if name in EXCEPTIONS else set())


def _no_wait(sleep):
    """Return a `sleep` that does not wait: this test does not need the seconds before a retry."""

    async def at_once(seconds, result=None):
        return await sleep(min(seconds, 0.01), result)

    return at_once


async def test_the_next_turn_goes_on_from_the_last():
    """The first request of a session's next turn also begins with the request before it."""
    seen = Requests()
    session = session_of([ADD, "Done.", ADD, "Done.", "Done."], seen)
    for _ in range(3):
        await session.arun("Go.")
    pairs = list(itertools.pairwise(seen.sent))
    assert [differences(*pair) for pair in pairs] == [set()] * 4


async def test_a_turn_behind_a_stopped_one():
    """There is one exception between turns: a question without an answer and the next question become one message."""
    seen, asked = Requests(), asyncio.Event()

    def answer_late(messages):
        asked.set()
        return pause(60)

    session = session_of([answer_late, "Done."], seen)
    stream = session.astream("Go.")
    reading = asyncio.ensure_future(anext(stream, None))
    await asked.wait()  # if the turn were stopped earlier, the model would not have played its pause yet
    stream.cancel()
    await reading
    assert (await session.arun("And now?")).text == "Done."
    assert [differences(*pair) for pair in itertools.pairwise(seen.sent)] == [{"messages"}]


def test_each_exception_has_a_reason():
    """Each exception in the list is tried above. The list says what differs, and why."""
    assert set(EXCEPTIONS) <= set(TURNS)
    assert all(parts and len(reason) > 20 for parts, reason in EXCEPTIONS.values())
