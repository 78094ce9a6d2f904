"""Guarantee: reading what a model sends takes work in proportion to its size, and the size is limited. Each text is parsed
only once.

The work is counted, not timed: the function calls of Python, and the comparisons of names.
"""

from __future__ import annotations

import contextlib
import json
import sys

import pytest
from pydantic import BaseModel

from toolloop_jupyter import Harness, aagent_session
from toolloop_jupyter.core import text as text_module
from toolloop_jupyter.core.conversation.history import History, load_messages, repair, validate
from toolloop_jupyter.core.events import Approval
from toolloop_jupyter.core.events.errors import HistoryInvalid
from toolloop_jupyter.core.events.events import ToolCall, ToolResult
from toolloop_jupyter.core.models.assembly import Assembly, split_objects
from toolloop_jupyter.core.tools import arguments
from toolloop_jupyter.core.tools import arguments as arguments_module
from toolloop_jupyter.core.tools.arguments import InvalidArguments, SentArguments, parse_arguments
from toolloop_jupyter.core.tools.tool import make_tools
from toolloop_jupyter.teaching.recording import Recorder, Replay
from toolloop_jupyter.teaching.scripted import ScriptedModel, deltas
from toolloop_jupyter.teaching.tape import RecordingError

WIDE = 16
"""The size of the larger input, divided by that of the smaller one. Linear work grows 16 times, quadratic work 256 times."""


def lines_run(work):
    """Return how many lines and calls of Python `work()` runs. Comprehensions and calls into C count, too."""
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        count += 1
        return trace

    def profile(frame, event, argument):
        nonlocal count
        count += event == "c_call"

    sys.settrace(trace)
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.settrace(None)
        sys.setprofile(None)
    return count


class Item(BaseModel):
    n: int


def take(n: int = 1, items: list[Item] | list[list[int]] | None = None) -> str:
    """Take some.

    Args:
        n: how many.
        items: which.
    """
    return "ok"


def bind(raw):
    (tool,) = make_tools([take])
    with contextlib.suppress(InvalidArguments):
        tool.bind(raw).changed()


def assembled(pieces):
    assembly = Assembly({"take"})
    for delta in pieces:
        assembly.add(delta)
    return assembly.message()


def fragment(number, arguments="{}", **more):
    return {"index": number, "id": f"c{number}", "function": {"name": "take", "arguments": arguments}, **more}


def conversation(calls, order=1):
    ids = [f"c{number}" for number in range(calls)]
    made = [{"id": one, "type": "function", "function": {"name": "take", "arguments": "{}"}} for one in ids]
    answers = [{"role": "tool", "tool_call_id": one, "content": "ok"} for one in ids[::order]]
    return [{"role": "user", "content": "Go."}, {"role": "assistant", "tool_calls": made}, *answers]


def unique(size):
    return {f"k{number}": number for number in range(size)}


def twice(size):
    return "{" + ",".join(f'"k{number // 2}": 1' for number in range(size)) + "}"


GROWS = {
    "keys": lambda size: bind(json.dumps(unique(size))),
    "keys, each twice": lambda size: bind(twice(size)),
    "items that validate": lambda size: bind({"items": [{"n": 1}] * size}),
    "items that do not": lambda size: bind({"items": [{"n": "x"}] * size}),
    "texts with JSON in them": lambda size: bind({"items": ['{"n": 1}'] * size}),
    "texts with broken JSON": lambda size: bind({"items": ['{"n": '] * size}),
    "texts with null": lambda size: bind({"items": ["null"] * size}),
    "objects in a row": lambda size: split_objects("".join(f'{{"n": {number}}}' for number in range(size))),
    "calls": lambda size: assembled([{"tool_calls": [fragment(number)]} for number in range(size)]),
    "pieces of a call": lambda size: assembled([{"tool_calls": [fragment(0, " ")]}] * size),
    "provider's items": lambda size: assembled(
        [{"provider_specific_fields": {"seen": [number]}} for number in range(size)]
    ),
    "provider's fields": lambda size: assembled(
        [
            {"tool_calls": [fragment(0, "", provider_specific_fields={f"f{number}": 1})]}
            for number in range(size)
        ]
    ),
    "a history": lambda size: History(conversation(size)),
    "a history in another order": lambda size: validate(conversation(size, order=-1)),
    "nesting": lambda size: text_module.is_deeper([[[1]] * size]),
}


@pytest.mark.parametrize("read", GROWS.values(), ids=GROWS)
def test_work_grows_with_the_size(read):
    """For sixteen times the size, the number of steps in Python and C is at most about twenty times as large."""
    few = 50
    read(few)  # caches
    assert lines_run(lambda: read(few * WIDE)) < 1.5 * WIDE * lines_run(lambda: read(few))


class _CountedName(str):
    """A text that counts how often it is compared."""

    __slots__ = ()
    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        _CountedName.compared += 1
        return str.__eq__(self, other)


def test_duplicate_names_are_found_without_comparing_each_with_each():
    """Steps inside C code are not counted as lines, so here the comparisons are counted: a few for each name, not one for
    each pair.
    """
    size = 2_000
    pairs = [(_CountedName(f"k{number // 2}"), 1) for number in range(size)]
    _CountedName.compared = 0
    with pytest.raises(InvalidArguments):
        arguments._refuse_repeated(pairs)
    assert _CountedName.compared < 20 * size


def test_results_in_another_order_are_found_without_looking_at_each():
    """The calls that wait for a result are found by their ids."""
    messages = conversation(2_000, order=-1)
    for message in messages[2:]:
        message["tool_call_id"] = _CountedName(message["tool_call_id"])
    _CountedName.compared = 0
    validate(messages)
    assert _CountedName.compared < 20 * len(messages)


# --- one parse, and bounds ------------------------------------------------------------------------------------


async def run(*sent, tools=(take,), **options):
    """Run one turn in which the model sends these deltas, and then "Done.". Return (the session, the events)."""
    model = ScriptedModel(deltas(sent), "Done.", repeat_last=True)
    session = aagent_session(Harness.TOOL_LOOP, model=model, tools=tools, **options)
    events = [event async for event in session.astream("Go.")]
    return session, events


async def test_arguments_are_parsed_once(monkeypatch):
    """The text of the arguments is parsed once: for the conversation, for the person and for the call."""
    text, readers = '{"n": 3, "items": []}', []
    original = json.JSONDecoder.decode

    def counting(self, given, *rest):
        if given == text and "toolloop_jupyter/core" in (reader := sys._getframe(1).f_code.co_filename):
            readers.append(reader)
        return original(self, given, *rest)

    monkeypatch.setattr(json.JSONDecoder, "decode", counting)
    session, events = await run({"tool_calls": [fragment(0, text)]})
    (call,) = [event for event in events if isinstance(event, ToolCall)]
    assert call.input == {"n": 3, "items": []}
    assert events[-1].result.tool_results[0].output == "ok"
    assert session.messages()[1]["tool_calls"][0]["function"]["arguments"] == text
    assert len(readers) == 1


def test_copies_of_one_reading_are_apart():
    """If one copy of the parsed arguments changes, the next copy does not."""
    sent = SentArguments('{"items": [[1]]}')
    parse_arguments(sent)["items"][0].append(2)
    assert parse_arguments(sent) == {"items": [[1]]}


@pytest.mark.parametrize(
    ("raw", "stored"),
    [
        ('{"a": 1}', '{"a": 1}'),
        (' {"a": 1}\n', ' {"a": 1}\n'),
        ('{"a": "x\ny"}', '{"a": "x\\ny"}'),
        ('"{\\"a\\": 1}"', '{"a": 1}'),
        ("", "{}"),
        (None, "{}"),
        ("[1]", "{}"),
        ('{"a": NaN}', "{}"),
        ('{"a": 1e999}', "{}"),
        ('{"a": 1, "a": 2}', "{}"),
        ({"a": 1}, '{"a": 1}'),
        ('"x"', "{}"),
    ],
)
def test_what_a_conversation_keeps(raw, stored):
    """Arguments in strict JSON are kept as written. Otherwise, the parsed object is kept, or {}."""
    assert SentArguments(raw).stored == stored


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ('{"a": "' + "x" * text_module.LONGEST_ARGUMENTS + '"}', "more than 1,000,000 characters"),
        (json.dumps({"a": [0] * text_module.MOST_VALUES}), "more than 10,000 values"),
        (json.dumps(unique(text_module.MOST_VALUES + 1)), "more than 10,000 values"),
        ('{"a": ' + "[" + "{}," * text_module.MOST_VALUES + "{}]}", "more than 10,000 values"),
        (unique(text_module.MOST_VALUES + 1), "more than 10,000 values"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "more than 100 levels"),
    ],
)
def test_what_is_too_much_is_refused(raw, said):
    """Arguments beyond a limit are invalid. The model gets a short message that names the limit."""
    with pytest.raises(InvalidArguments, match=said) as caught:
        parse_arguments(raw)
    assert len(str(caught.value)) < 200


def test_as_much_as_is_taken():
    """Arguments just within the limits are read completely."""
    text = "x" * (text_module.LONGEST_ARGUMENTS - 10)
    assert parse_arguments(json.dumps({"a": text})) == {"a": text}
    text = '","\\' * 100_000  # commas inside a text do not separate values
    assert parse_arguments(json.dumps({"a": text})) == {"a": text}
    assert len(parse_arguments(json.dumps(unique(text_module.MOST_VALUES)))) == text_module.MOST_VALUES


def test_texts_with_json_hold_together_no_more_values_than_are_taken():
    """If several texts contain JSON lists, the values in all of them count together."""
    (tool,) = make_tools([take])
    text = json.dumps([1] * 4_500)
    assert tool.bind({"items": [text] * 2}).json["items"] == [[1] * 4_500] * 2
    with pytest.raises(InvalidArguments, match=r"items\[2\]: expected"):
        tool.bind({"items": [text] * 4})


@pytest.mark.parametrize(
    "raw",
    [
        twice(4_000),
        json.dumps(unique(9_000)),
        json.dumps({"k" * 100_000: 1}),
        json.dumps({"n": "x" * 100_000}),
        json.dumps({"items": [{"n": "x" * 1_000}] * 2_000}),
        json.dumps({"items": {"k" * 1_000: 1}}),
    ],
)
def test_messages_are_short(raw):
    """Even if very much is wrong, or names are very long, the message for the model has a limited length."""
    (tool,) = make_tools([take])
    with pytest.raises(InvalidArguments) as caught:
        tool.bind(raw)
    assert len(str(caught.value)) < 600 * 12


def test_of_a_long_value_only_the_beginning_is_written():
    """An error quotes only the beginning of a value. The rest is not converted to JSON."""

    class Unreadable:
        def __repr__(self):
            raise AssertionError("this is behind what is shown")

    assert arguments_module.shorten_json([1] * 100 + [Unreadable()]).startswith("[1, 1")
    assert arguments_module.shorten_json(Unreadable()) == '"<Unreadable>"'


async def test_arguments_that_are_too_long_go_back_as_an_error():
    """The tool does not run, the conversation stays valid, and does not contain the arguments."""
    session, events = await run({"tool_calls": [fragment(0, '{"items": "' + "x" * 5_000_000 + '"}')]})
    (result,) = [event for event in events if isinstance(event, ToolResult)]
    assert result.is_error
    assert "more than 1,000,000 characters" in result.output
    assert validate(session.messages()) == []
    assert len(json.dumps(session.messages())) < 5_000


# --- many calls, long ids --------------------------------------------------------------------------------------


@pytest.mark.parametrize("apart", [True, False])
async def test_too_many_calls_end_the_turn(apart):
    """None of the calls is run, and the person is told. The conversation does not contain the calls."""
    fragments = [fragment(number) for number in range(text_module.MOST_CALLS + 500)]
    pieces = [{"tool_calls": [one]} for one in fragments] if apart else [{"tool_calls": fragments}]
    session, events = await run({"content": "I look."}, *pieces)
    result = events[-1].result
    assert result.stop_reason == "runtime_error"
    assert "more than 1,000 tool calls" in result.error
    assert not any(isinstance(event, ToolCall) for event in events)
    assert session.messages()[-1] == {"role": "assistant", "content": "I look."}
    assert validate(session.messages()) == []


async def test_as_many_calls_as_are_taken():
    """If the number of calls is just at the limit, each call gets its result."""
    _, events = await run({"tool_calls": [fragment(number) for number in range(text_module.MOST_CALLS)]})
    results = [event for event in events if isinstance(event, ToolResult)]
    assert [result.output for result in results] == ["ok"] * text_module.MOST_CALLS


def test_objects_in_a_row_become_no_more_calls_than_are_taken():
    """A call whose arguments are thousands of objects stays one call, with invalid arguments."""
    objects = "".join(f'{{"n": {number}}}' for number in range(text_module.MOST_CALLS + 1))
    message = assembled([{"tool_calls": [fragment(0, objects)]}])
    assert len(message["tool_calls"]) == 1


@pytest.mark.parametrize("call_id", ["x" * 1_000_000, "", None])
async def test_an_id_that_cannot_be_is_replaced_everywhere(call_id):
    """The call, the approval, the result and the conversation have the same new id."""
    session, events = await run(
        {"tool_calls": [{**fragment(0), "id": call_id}]}, permissions="ask", on_approval=lambda asked: True
    )
    (call,) = [event for event in events if isinstance(event, ToolCall)]
    (asked,) = [event for event in events if isinstance(event, Approval)]
    (result,) = [event for event in events if isinstance(event, ToolResult)]
    answer = next(message for message in session.messages() if message["role"] == "tool")
    assert call.id.startswith("call_")
    assert len(call.id) < 64
    assert call.id == asked.call_id == result.id == answer["tool_call_id"]
    assert validate(session.messages()) == []


def test_a_long_id_with_a_signature_is_kept():
    """With LiteLLM, Gemini's thought signatures are a part of the id, and must be sent back."""
    call_id = "call_1__thought__" + "A" * 20_000
    message = assembled([{"tool_calls": [{**fragment(0), "id": call_id}]}])
    assert message["tool_calls"][0]["id"] == call_id


def test_a_name_in_endless_pieces_is_cut():
    """The pieces of a name are joined up to a limit."""
    piece = {"tool_calls": [{"index": 0, "function": {"name": "xy"}}]}
    call = Assembly()
    for number in range(5_000):
        piece["tool_calls"][0]["function"]["name"] = f"x{number}"
        call.add(piece)
    name = call.calls.calls[0].name
    assert len(name) <= 1_000 + 10


# --- files -----------------------------------------------------------------------------------------------------


def nested(levels):
    return "[" * levels + "]" * levels


@pytest.mark.parametrize("levels", [101, 400, 5_000, 100_000])
def test_a_saved_conversation_that_is_nested_too_deep(tmp_path, levels):
    """Loading it raises HistoryInvalid, however deep it is."""
    path = tmp_path / "deep.json"
    path.write_text(f'[{{"role": "user", "content": {nested(levels)}}}]')
    with pytest.raises(HistoryInvalid, match=r"nested|recursion"):
        load_messages(path)


def test_messages_that_hold_themselves():
    """Messages that contain themselves are too deep, too, for a session and for `repair`."""
    content = []
    content.append(content)
    for read in (History, repair):
        with pytest.raises(HistoryInvalid, match="nested"):
            read([{"role": "user", "content": content}])


@pytest.mark.parametrize("levels", [300, 5_000, 100_000])
def test_a_recording_that_is_nested_too_deep(tmp_path, levels):
    """Loading it raises a RecordingError that names the line."""
    path = tmp_path / "deep.jsonl"
    path.write_text(f'{{"toolloop-recording": 1}}\n{{"call": 1, "options": {nested(levels)}}}\n')
    with pytest.raises(RecordingError, match=r"line 2 .*nested too deep"):
        Replay(path)


def test_a_conversation_with_many_faults_says_the_first():
    """The text of the error is limited. Its `problems` list all faults."""
    with pytest.raises(HistoryInvalid) as caught:
        History([{"role": "nobody", "content": "x"}] * 5_000)
    assert len(caught.value.problems) == 5_000
    assert len(str(caught.value)) < 3_000


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "x" * 1_000_000}],
        [{"role": "tool", "tool_call_id": "x" * 1_000_000, "content": ""}],
        conversation(5_000)[:2],
        [{"role": "assistant", "tool_calls": [{"id": "x" * 1_000_000}]}],
    ],
)
def test_faults_quote_little(messages):
    """Only a part of a name, an id or a list of ids is quoted."""
    with pytest.raises(HistoryInvalid) as caught:
        History(messages)
    assert len(str(caught.value)) < 1_500


SHAPES = {
    "numbers": {"items": [0] * (text_module.MOST_VALUES - 5)},
    "lists": {"items": [[0] for _ in range(text_module.MOST_VALUES // 2 - 5)]},
    "objects": {"items": [{"n": 1} for _ in range(text_module.MOST_VALUES // 3 - 5)]},
    "wrong values": {"items": ["x"] * (text_module.MOST_VALUES - 5)},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_largest_call_is_little_work(shape):
    """In the largest possible call, each value costs at most 200 steps: two million steps take about 50 ms."""
    text = json.dumps(SHAPES[shape])
    assert lines_run(lambda: bind(text)) < 200 * text_module.MOST_VALUES


def nest(levels):
    return [nest(levels - 1)] if levels else "deep"


@pytest.mark.parametrize("levels", [120, 230])
@pytest.mark.parametrize(
    "delta",
    [
        lambda deep: {"tool_calls": [fragment(0) | {"provider_specific_fields": {"signature": deep}}]},
        lambda deep: {"tool_calls": [fragment(0) | {"extra_content": deep}]},
        lambda deep: {"thinking_blocks": [{"type": "thinking", "thinking": "Hm.", "signature": deep}]},
        lambda deep: {"provider_specific_fields": {"own": deep}},
    ],
)
async def test_what_a_provider_adds_too_deep_ends_the_turn(delta, levels, tmp_path):
    """If a provider adds data that is nested too deep, no call runs, and the person is told. The conversation and the
    recording can be read again.
    """
    recorder = Recorder(tmp_path / "r.jsonl", on_stop=lambda why: None)
    session, events = await run({"content": "I look."}, delta(nest(levels)), observer=recorder)
    result = events[-1].result
    assert result.stop_reason == "runtime_error"
    assert "nested more than 100 levels" in result.error
    assert not any(isinstance(event, ToolCall) for event in events)
    assert validate(session.messages()) == []
    session.save(tmp_path / "c.json")
    assert load_messages(tmp_path / "c.json") == session.messages()
    assert recorder.stopped or Replay(tmp_path / "r.jsonl").calls
