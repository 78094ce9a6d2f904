"""Which conversations are valid, how `repair` makes others valid, and that a stop at any moment leaves a valid conversation."""

from __future__ import annotations

import asyncio
import json
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.servers import answer
from support.stopping import Counted, StopAt, awaited
from toolloop_jupyter import Harness, HistoryInvalid, aagent_session, load
from toolloop_jupyter.core.conversation import history
from toolloop_jupyter.core.models import client
from toolloop_jupyter.core.tools import DescribedTool, make_tools
from toolloop_jupyter.teaching.scripted import ScriptedModel, call

USER = {"role": "user", "content": "Go."}


def asks(*ids, args="{}", **more):
    calls = [{"id": i, "type": "function", "function": {"name": "f", "arguments": args}} for i in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls, **more}


def make_tool_message(call_id, content="ok"):
    return {"role": "tool", "tool_call_id": call_id, "content": content}


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([USER, asks("c1")], "['c1'] at the end have no tool message"),
        ([USER, asks("c1"), USER], "message 2: the calls ['c1'] before it have no tool message"),
        ([USER, make_tool_message("c1")], "but no call before it needs one"),
        (
            [USER, asks("c1", "c2"), make_tool_message("c2"), make_tool_message("c1")],
            "message 2: a tool message for 'c2', expected 'c1'",
        ),
        (
            [USER, asks("c1"), make_tool_message("c1"), make_tool_message("c1")],
            "message 3: a tool message for 'c1', but no call before it",
        ),
        ([USER, asks("c1"), make_tool_message("c1", "")], "message 2: a tool message needs text, got ''"),
        ([USER, asks("c1"), make_tool_message("c1", {"a": 1})], "needs text, got {'a': 1}"),
        (
            [USER, asks("c1", args='{"a":'), make_tool_message("c1")],
            "the arguments of 'c1' are not a JSON object as text",
        ),
        ([USER, asks("c1", args="null"), make_tool_message("c1")], "not a JSON object"),
        ([USER, asks("c1", args={"a": 1}), make_tool_message("c1")], "not a JSON object as text"),
        ([USER, asks("c1", args='{"a":NaN}'), make_tool_message("c1")], "not a JSON object"),
        (
            [USER, asks("c1", "c1"), make_tool_message("c1"), make_tool_message("c1")],
            "two tool calls with the id 'c1'",
        ),
        (
            [USER, asks("c1"), make_tool_message("c1"), asks("c1"), make_tool_message("c1")],
            "message 3: two tool calls with the id 'c1'",
        ),
        ([USER, asks("")], "a tool call without an id"),
        ([USER, {"role": "assistant", "content": ""}], "neither content nor tool_calls"),
        ([USER, {"role": "assistant", "content": None}], "neither content nor tool_calls"),
        ([USER, {"role": "assistant", "content": [{"type": "text", "text": ""}]}], "an empty text block"),
        ([{"role": "user", "content": None}], "user content must be text, got NoneType"),
        ([{"role": "user", "content": " "}], "a user message without content"),
        ([{"role": "bot", "content": "x"}], "role 'bot' is none of"),
        (["text"], "message 0 must be a dict such as"),
        (
            [USER, asks("c1", function_call={"name": "f", "arguments": "{}"}), make_tool_message("c1")],
            "function_call is no longer used",
        ),
        ([{"role": "user", "content": ["Hello"]}], "message 0: a part of its content is not a dict"),
        (
            [USER, asks("c1"), make_tool_message("c1", ["ok"])],
            "message 2: a part of its content is not a dict",
        ),
        ([{"role": "assistant", "content": 5}], "assistant content must be text, got int"),
        ([{"role": "assistant", "tool_calls": 1.5}], "tool_calls must be a list"),
        ([USER, asks("c1", function_call=" "), make_tool_message("c1")], "function_call is no longer used"),
        ([USER, asks(3), make_tool_message(3)], "a tool call without an id"),
        (
            [{"role": "assistant", "tool_calls": [{"id": ["c1"], "function": "f"}]}],
            "a tool call without an id",
        ),
    ],
)
def test_validate_says_what_is_wrong_where(messages, problem):
    """For each fault for which a provider would refuse a history, `validate` has a message that names the place."""
    assert any(problem in found for found in history.validate(messages)), history.validate(messages)
    assert history.validate(history.repair(messages)) == []


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [USER],
        [{"role": "system", "content": ""}, USER, {"role": "assistant", "content": "Hi"}, USER],
        [
            USER,
            asks("c1", "c2", content="Let me."),
            make_tool_message("c1"),
            make_tool_message("c2"),
            {"role": "assistant", "content": "Hi"},
        ],
        [
            {
                "role": "user",
                "content": [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "d"}}],
            }
        ],
    ],
)
def test_valid_histories_are_left_alone(messages):
    """A valid history has no problems, and repair changes nothing about it."""
    assert history.validate(messages) == []
    assert history.repair(messages) == messages


@pytest.mark.parametrize(
    ("messages", "right"),
    [
        ([USER, asks("c1")], [USER, asks("c1"), make_tool_message("c1", history.NOT_RUN)]),
        (
            [USER, asks("c1", "c2"), make_tool_message("c2", "B"), make_tool_message("c1", "A")],
            [USER, asks("c1", "c2"), make_tool_message("c1", "A"), make_tool_message("c2", "B")],
        ),
        (
            [USER, make_tool_message("c9"), {"role": "assistant", "content": "Hi"}],
            [USER, {"role": "assistant", "content": "Hi"}],
        ),
        (
            [USER, asks("c1", args={"a": 1}), make_tool_message("c1")],
            [USER, asks("c1", args='{"a": 1}'), make_tool_message("c1")],
        ),
        (
            [USER, asks("c1", args=""), make_tool_message("c1")],
            [USER, asks("c1", args="{}"), make_tool_message("c1")],
        ),
        (
            [USER, asks("c1", args='{"a":'), make_tool_message("c1")],
            [USER, asks("c1", args="{}"), make_tool_message("c1")],
        ),
        (
            [USER, asks("c1"), make_tool_message("c1", {"a": 1})],
            [USER, asks("c1"), make_tool_message("c1", '{"a": 1}')],
        ),
        ([USER, {"role": "assistant", "content": " "}, USER], [USER, USER]),
        (
            [USER, asks("c1"), USER, make_tool_message("c1", "late")],
            [USER, asks("c1"), make_tool_message("c1", "late"), USER],
        ),
        (
            [{"role": "user", "content": ["Hello", None, 5]}],
            [{"role": "user", "content": [{"type": "text", "text": "Hello"}, {"type": "text", "text": "5"}]}],
        ),
        ([{"role": "assistant", "content": {"a": 1}}], [{"role": "assistant", "content": '{"a": 1}'}]),
    ],
)
def test_repair_changes_as_little_as_possible(messages, right):
    """Results are moved behind their calls, arguments become objects, and empty messages are removed."""
    assert history.repair(messages) == right


def test_repair_gives_ids_where_they_are_missing_or_taken():
    """A call without an id keeps its result; a second use of an id gets another one, with its result."""
    mended = history.repair(
        [
            USER,
            asks(None),
            make_tool_message(None, "A"),
            asks("c1"),
            make_tool_message("c1", "B"),
            asks("c1"),
            make_tool_message("c1", "C"),
        ]
    )
    assert history.validate(mended) == []
    assert [m["content"] for m in mended if m["role"] == "tool"] == ["A", "B", "C"]
    assert mended[3]["tool_calls"][0]["id"] == "c1"


def test_repair_leaves_out_the_old_function_messages():
    """`repair` removes OpenAI's old function_call and its "function" message, also beside a call in the present form."""
    old = [
        USER,
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"a":1}'}},
        {"role": "function", "name": "f", "content": "one"},
        {"role": "assistant", "content": "Done."},
    ]
    assert history.repair(old) == [USER, old[-1]]
    both = [USER, asks("c1", function_call={"name": "f", "arguments": "{}"}), make_tool_message("c1")]
    assert history.repair(both) == [USER, asks("c1"), make_tool_message("c1")]


def test_a_session_refuses_a_broken_history_and_says_how_to_mend_it(tmp_path):
    """An invalid `history=` raises HistoryInvalid, which lists the problems. A saved history is loaded unchanged."""
    with pytest.raises(HistoryInvalid, match="have no tool message"):
        aagent_session(Harness.TOOL_LOOP, model=ScriptedModel(), history=[USER, asks("c1")])
    kept = [
        USER,
        asks("c1", thinking_blocks=[{"type": "thinking", "thinking": "x", "signature": "S"}]),
        make_tool_message("c1"),
    ]
    history.dump(kept, tmp_path / "h.json")
    assert history.load_messages(tmp_path / "h.json") == kept
    (tmp_path / "bad.json").write_text(json.dumps([USER, asks("c1")]))
    with pytest.raises(HistoryInvalid, match="have no tool message") as raised:
        load(tmp_path / "bad.json")
    assert "bad.json', repair=True) makes it valid" in str(raised.value)
    mended = load(tmp_path / "bad.json", repair=True)
    assert mended == history.repair([USER, asks("c1")])
    assert aagent_session(Harness.TOOL_LOOP, model=ScriptedModel(), history=mended).messages() == mended


JUNK = st.one_of(
    st.none(),
    st.just(""),
    st.just(" "),
    st.sampled_from(("x", "{}", '{"a":1}', "null", "c1", "c2")),
    st.integers(0, 1),
)
CALLS = st.one_of(
    st.none(),
    st.lists(
        st.fixed_dictionaries(
            {
                "id": st.sampled_from((None, "", "c1", "c2")),
                "function": st.none()
                | st.fixed_dictionaries({"name": st.sampled_from((None, "f")), "arguments": JUNK}),
            }
        ),
        max_size=3,
    ),
)
MESSAGES = st.lists(
    st.one_of(
        st.fixed_dictionaries({"role": st.sampled_from(("user", "system", "bot")), "content": JUNK}),
        st.fixed_dictionaries({"role": st.just("assistant"), "content": JUNK, "tool_calls": CALLS}),
        st.fixed_dictionaries(
            {
                "role": st.sampled_from(("tool", "function")),
                "tool_call_id": st.sampled_from((None, "c1", "c2")),
                "content": JUNK,
            }
        ),
    ),
    max_size=8,
)


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(MESSAGES)
def test_repair_always_makes_a_valid_history(messages):
    """`repair` returns a valid history for any input. Repairing this history again changes nothing."""
    before = json.dumps(messages)
    mended = history.repair(messages)
    assert history.validate(mended) == []
    assert history.repair(mended) == mended
    assert json.dumps(messages) == before, "the messages given are left as they were"


# --- stops at random, thousands of times, without litellm ---------------------------------------------------------


class Provider:
    """Replaces LiteLLM's `acompletion`: streams the turns of a script, and suspends at each piece."""

    def __init__(self, rng):
        self.rng = rng
        self.made = 0

    async def acompletion(self, *, messages, **_):
        await asyncio.sleep(0)
        if messages[-1]["content"].endswith("And now?"):
            return self.stream([{"content": "Next."}])
        self.made += 1
        deltas = [{"content": piece} for piece in ("", "I ", "look. ")[: self.rng.randint(0, 3)]]
        if self.made < 4:
            names = self.rng.choices(("slow", "fast", "nobody", "bad"), k=self.rng.randint(0, 3))
            for index, name in enumerate(names):
                head = {
                    "index": index,
                    "id": self.rng.choice((f"c{self.made}{index}", "c1", None)),
                    "function": {"name": name},
                }
                deltas += [
                    {"tool_calls": [head]},
                    {"tool_calls": [{"index": index, "function": {"arguments": '{"x"'}}]},
                ]
                deltas += [
                    {
                        "tool_calls": [
                            {"index": index, "function": {"arguments": self.rng.choice((":1}", ":1}", ":"))}}
                        ]
                    }
                ]
        return self.stream(deltas)

    async def stream(self, deltas):
        for delta in deltas:
            if self.rng.random() < 0.02:
                raise ConnectionError("cut")
            await asyncio.sleep(0)
            yield {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        yield {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


async def slow(x: int) -> str:
    """Suspend."""
    await asyncio.sleep(0)
    return f"slow {x}"


async def fast(x: int) -> str:
    """Return."""
    return f"fast {x}"


async def bad(x: int) -> str:
    """Raise."""
    await asyncio.sleep(0)
    raise ValueError


class Described(DescribedTool):
    """A function whose tool is made only once. Otherwise the thousands of sessions below would spend most of their time on
    this.
    """

    def __init__(self, function):
        (self.tool,) = make_tools([function])

    def __call__(self, **arguments):
        return self.tool.function(**arguments)

    def as_tool(self):
        return self.tool


TOOLS = [Described(slow), Described(fast), Described(bad)]


async def stop_at_random(seed, monkeypatch):
    """Run a session with two turns. The first turn is stopped at a random suspension, if it comes so far. The second one is
    not stopped.
    """
    rng = random.Random(seed)
    provider = Provider(rng)
    monkeypatch.setattr(client.load_litellm(), "acompletion", provider.acompletion)
    session = aagent_session(
        Harness.TOOL_LOOP, model="stub/x", tools=TOOLS, **rng.choice(({}, {"max_turns": 2}))
    )
    stream = session.astream("Go.")
    original = session._run
    reason = rng.choice(("cancelled", "timeout"))
    at, again = rng.randint(1, 40), rng.random() < 0.3

    def stop():
        assert history.validate(session.messages()) == []
        stream._channel.stop(reason)
        if again:
            stream.cancel()

    session._run = lambda turn, channel: awaited(Counted(original(turn, channel), StopAt(at, stop)))
    events = [event async for event in stream]
    session._run = original
    assert history.validate(await session.history()) == []
    result = events[-1].result
    assert len(result.calls) == len(result.tool_results)
    following = await session.arun("And now?")
    assert history.validate(await session.history()) == []
    assert following.text == "Next." or "cut" in (following.error or "")
    return result.stop_reason


async def stopped_often(count, first, monkeypatch):
    reasons = [await stop_at_random(seed, monkeypatch) for seed in range(first, first + count)]
    assert {"cancelled", "timeout", "done", "runtime_error"} <= set(reasons)


async def test_random_stops_leave_valid_histories(monkeypatch):
    """1,000 turns of random scripts are stopped at random moments; some have cut connections. Each history stays valid."""
    await stopped_often(1000, 0, monkeypatch)


@pytest.mark.slow
async def test_random_stops_leave_valid_histories_at_length(monkeypatch):
    """The same is tried with 10,000 other turns."""
    await stopped_often(10_000, 10_000, monkeypatch)


def test_the_stand_in_has_what_the_model_call_uses():
    """LiteLLM has the names that `Provider` replaces."""
    assert hasattr(client.load_litellm(), "acompletion")
    assert hasattr(Provider, "acompletion")


async def test_half_a_surrogate_pair_in_a_prompt():
    """In a prompt, half of a surrogate pair becomes a replacement character. Two halves become one character."""
    scripted = ScriptedModel("ok")
    async with aagent_session(Harness.TOOL_LOOP, model=scripted) as session:
        result = await session.run("a\ud800b \ud83d\ude00")
    assert result.prompt == scripted.requests[0].messages[-1]["content"] == "a\ufffdb \U0001f600"


def test_half_a_surrogate_pair_is_a_problem_that_repair_mends():
    """A request cannot contain half of a surrogate pair: `validate` reports it; `repair` and prompts replace it."""
    messages = [{"role": "user", "content": "a\ud83d"}, {"role": "assistant", "content": "😀"}]
    assert history.validate(messages) == [
        "message 0: a text with half of a surrogate pair, which no request can contain"
    ]
    in_a_tuple = {"role": "user", "content": ({"type": "text", "text": "\ud83d"},)}
    assert history.validate(history.repair([*messages, in_a_tuple])) == []
    asked = history.History()
    asked.add_user("\ud83d\ude00\ud83d")
    assert asked.copy() == [{"role": "user", "content": "😀�"}]


def _spoil(messages, how):
    """Change the messages of a request, as LiteLLM's adapters do with what they are given."""
    if how == "key":
        messages[1]["cache_control"] = {"type": "ephemeral"}
    elif how == "call":
        messages[2]["tool_calls"][0]["function"]["arguments"] = "spoilt"
    elif how == "nested":
        messages[2]["thinking_blocks"][0]["signature"] = "spoilt"
    elif how == "answer":
        messages[3]["content"] = "spoilt"
    elif how == "list":
        messages.pop(0)


@pytest.mark.parametrize("how", ["", "key", "call", "nested", "answer", "list"])
def test_what_is_done_to_a_request_stays_in_it(how):
    """If other code changes the messages of a request, the next request still has the messages of the history."""
    thinking = [{"type": "thinking", "thinking": "hm", "signature": "s"}]
    kept = history.History([{"role": "system", "content": "Be brief."}, USER])
    kept.add_assistant(asks("c1", thinking_blocks=thinking))
    _ = kept.for_request()  # this message is sent again when it has an answer
    kept.answer("c1", "ok")
    before = kept.copy()
    _spoil(kept.for_request(), how)
    assert kept.copy() == before
    assert kept.for_request() == before
    kept.add_user("And then?")
    kept.begin_turn("Be long.")
    assert kept.for_request() == kept.copy()
    assert kept.for_request()[0] == {"role": "system", "content": "Be long."}


def user(content, **more):
    return {"role": "user", "content": content, **more}


PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
HI = {"role": "assistant", "content": "Hi"}


@pytest.mark.parametrize(
    ("messages", "sent"),
    [
        ([user("a"), HI, user("b")], [user("a"), HI, user("b")]),
        ([user("a"), user("b"), user("c"), HI], [user("a\n\nb\n\nc"), HI]),
        ([user([PICTURE]), user("b")], [user([PICTURE, {"type": "text", "text": "b"}])]),
        ([user("a", name="Ann"), user("b")], [user("a", name="Ann"), user("b")]),
        ([asks("c1"), make_tool_message("c1"), user("a")], [asks("c1"), make_tool_message("c1"), user("a")]),
        ([], []),
    ],
)
def test_neighbouring_questions_go_out_as_one(messages, sent):
    """In a request, neighbouring user messages are merged into one. Nothing is lost, and other messages do not change."""
    assert history.merge_user_messages(messages) == sent


async def test_after_a_stop_roles_alternate(serve):
    """After a turn that was stopped before its answer, the next request has both questions in one message."""
    server = serve([answer("late", stall=10), answer("Here.")])
    keywords = {"model": "openai/stub", "api_base": server.base_url, "api_key": "sk-test"}
    session = aagent_session(Harness.TOOL_LOOP, **keywords)
    stopped = asyncio.ensure_future(session.arun("One"))
    await asyncio.to_thread(server.wait_for_requests, 1, 60)
    stopped.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopped
    await session.arun("Two")
    assert server.requests[-1].messages == [user("One\n\nTwo")]
    assert await session.history() == [user("One"), user("Two"), {"role": "assistant", "content": "Here."}]


async def test_half_a_surrogate_pair_in_the_words_of_a_person():
    """Half of a surrogate pair in the reason for a denial is replaced, in the event and in the history."""
    scripted = ScriptedModel([call("f")], "ok")

    def f() -> str:
        """Do it."""
        return "done"

    session = aagent_session(
        Harness.TOOL_LOOP,
        model=scripted,
        tools=[f],
        permissions="ask",
        on_approval=lambda approval: approval.deny("a\ud800b"),
    )
    result = await session.arun("Go.")
    assert "a\ufffdb" in result.tool_results[0].output
    assert history.validate(session.messages()) == []


async def test_a_bookmark_is_gone_back_to_more_than_once():
    """A bookmark can be used twice. What happened between the two times does not change the bookmark's messages."""
    session = aagent_session(Harness.TOOL_LOOP, model=ScriptedModel("a", "b"), history=[USER])
    go_back = session.bookmark()
    for _ in range(2):
        await session.arun("More.")
        go_back()
        assert (session.messages(), session.starts, session.results) == ([USER], [], [])
