"""Properties of the assembly: the message does not depend on how it is cut into deltas.

Hypothesis makes the messages. The cuts and the order come from a seed that hypothesis draws: this is many times faster than
drawing each cut.
"""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from toolloop_jupyter.core.models.assembly import Assembly, split_objects

NAMES = ("f", "read", "read_file", "search_code", "a")
ALPHABET = 'ab{}[]":,\\ \nü😀'
TEXTS = st.text(ALPHABET, max_size=25)
VALUES = st.one_of(TEXTS, st.integers(-3, 3), st.none(), st.just({"x": [{}, "}{"]}))
ARGUMENTS = st.tuples(st.dictionaries(TEXTS, VALUES, max_size=3), st.booleans()).map(
    lambda drawn: json.dumps(drawn[0], ensure_ascii=drawn[1])
)
CALLS = st.lists(st.tuples(st.sampled_from(NAMES), ARGUMENTS), max_size=4)
SEEDS = st.integers(0, 2**48)
RELAXED = [HealthCheck.too_slow, HealthCheck.data_too_large]


def cut(rng, text, most=6):
    """Return `text` in at least one piece. Some pieces are empty."""
    places = sorted(rng.randint(0, len(text)) for _ in range(rng.randint(0, most)))
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


def heads(rng, name):
    """Return the name in one piece, or in two pieces that are not empty."""
    at = rng.randint(0, len(name) - 1)
    return [name] if at == 0 or rng.random() < 0.5 else [name[:at], name[at:]]


def fragments(rng, index, call_id, name, arguments):
    """Return one call's fragments. The name may be cut or repeated. The id is sent once, in each fragment, or never ("")."""
    names = heads(rng, name)
    repeated = {"name": name} if len(names) == 1 and rng.random() < 0.3 else {}
    made = [{"index": index, "function": {"name": part}} for part in names]
    made += [{"index": index, "function": {"arguments": part, **repeated}} for part in cut(rng, arguments)]
    always = rng.random() < 0.5
    for number, fragment in enumerate(made):
        if call_id and (number == 0 or always):
            fragment["id"] = call_id
    return made


def interleaved(rng, streams):
    """Return all items of all streams in one list. The items of each stream keep their order."""
    waiting = [list(stream) for stream in streams if stream]
    while waiting:
        stream = rng.choice(waiting)
        yield stream.pop(0)
        waiting = [stream for stream in waiting if stream]


def deltas(rng, text, reasoning, calls):
    """The message in deltas. The first fragments of its calls come in the order of the calls, because that *is* their order."""
    made = [fragments(rng, n, *call) for n, call in enumerate(calls)]
    opening = [{"tool_calls": [fragment.pop(0)]} for fragment in made]
    words = [{"content": part} for part in cut(rng, text)]
    thoughts = [{"reasoning_content": part} for part in cut(rng, reasoning)]
    first = list(interleaved(rng, [words, thoughts, opening]))
    rest = interleaved(rng, [[{"tool_calls": [f]} for f in fragment] for fragment in made])
    out = []
    for delta in [*first, *rest]:
        if out and rng.random() < 0.3 and not set(out[-1]) & set(delta):
            out[-1] = {**out[-1], **delta}
        elif out and "tool_calls" in delta and "tool_calls" in out[-1] and rng.random() < 0.3:
            out[-1]["tool_calls"] += delta["tool_calls"]
        else:
            out.append(delta)
    return out


def check(text, reasoning, calls, seed):
    rng = random.Random(seed)
    ids = rng.random() < 0.7
    named = [(f"c{n}" if ids else "", *call) for n, call in enumerate(calls)]
    assembly = Assembly(NAMES)
    shown = [assembly.add(delta) for delta in deltas(rng, text, reasoning, named)]
    message = assembly.message()
    assert "".join(t for t, _ in shown) == text
    assert "".join(r for _, r in shown) == reasoning
    assert (message["content"] or "") == (text if text.strip() or not calls else "")
    assert message.get("reasoning_content", "") == reasoning
    made = message.get("tool_calls", [])
    assert [(c["function"]["name"], c["function"]["arguments"]) for c in made] == calls
    assert not ids or [c["id"] for c in made] == [c[0] for c in named]
    assert len({c["id"] for c in made}) == len(made)


@settings(max_examples=1000, deadline=None, suppress_health_check=RELAXED)
@given(TEXTS, TEXTS, CALLS, SEEDS)
def test_cutting_and_interleaving_change_nothing(text, reasoning, calls, seed):
    """However a message is cut and its calls are mixed, its text, reasoning, names, arguments and ids are the same at the
    end.
    """
    check(text, reasoning, calls, seed)


def make_text(rng):
    return "".join(rng.choices(ALPHABET, k=rng.choice((0, rng.randint(0, 3), rng.randint(0, 25)))))


def make_arguments(rng):
    values = (make_text(rng), rng.randint(-3, 3), None, {"x": [{}, "}{"]})
    made = {make_text(rng): rng.choice(values) for _ in range(rng.randint(0, 3))}
    return json.dumps(made, ensure_ascii=rng.random() < 0.5)


@pytest.mark.slow
def test_cutting_and_interleaving_change_nothing_at_length():
    """The same is tried with thirty times the examples. They are made from seeds, which takes a twelfth of the time of
    drawing them.
    """
    for seed in range(30_000):
        rng = random.Random(seed)
        calls = [(rng.choice(NAMES), make_arguments(rng)) for _ in range(rng.randint(0, 4))]
        check(make_text(rng), make_text(rng), calls, seed)


@settings(max_examples=300, deadline=None, suppress_health_check=RELAXED)
@given(
    st.lists(ARGUMENTS.filter(lambda a: a != "{}"), min_size=2, max_size=4), st.sampled_from(("", " ", "\n"))
)
def test_whole_objects_in_a_row_are_taken_apart(objects, between):
    """JSON objects without a separator are split at their ends, even if their texts contain braces. Equal objects count once."""
    assert split_objects(between.join(objects)) == list(dict.fromkeys(objects))


@settings(max_examples=300, deadline=None, suppress_health_check=RELAXED)
@given(
    st.lists(
        st.tuples(st.sampled_from((None, "", "c1", "c2")), st.sampled_from((None, "", "f", "g")), VALUES)
    )
)
def test_any_deltas_make_a_message(junk):
    """Whatever fragments a provider sends, the assembly makes a message from them and never raises an error."""
    assembly = Assembly()
    for number, (call_id, name, arguments) in enumerate(junk):
        function = {"name": name, "arguments": arguments}
        assembly.add({"tool_calls": [{"index": number % 2 or None, "id": call_id, "function": function}]})
    calls = assembly.message().get("tool_calls", [])
    assert len({call["id"] for call in calls}) == len(calls)
    assert all(call["id"] and call["function"]["name"] for call in calls)


def test_a_refusal_is_text_only_where_no_other_text_came():
    """A provider's refusal is shown and kept as text only if the message has no other text."""
    for pieces, text in (
        ([{"refusal": "I "}, {"content": "Hi"}, {"refusal": "no"}], "Hi"),
        ([{"refusal": "I "}, {"refusal": "no"}], "I no"),
    ):
        assembly = Assembly()
        shown = "".join([assembly.add(piece)[0] for piece in pieces]) + assembly.end()[0]
        assert shown == assembly.message()["content"] == text


def test_calls_of_a_whole_message_are_no_fragments():
    """In a complete message, equal calls without ids are different calls, and so are different calls with the same id. An
    equal call with the same id counts once.
    """

    def whole(*calls):
        assembly = Assembly(NAMES)
        assembly.add(
            {"tool_calls": [{"id": i, "function": {"name": "f", "arguments": a}} for i, a in calls]},
            whole=True,
        )
        return [call["function"]["arguments"] for call in assembly.message()["tool_calls"]]

    assert whole((None, "{}"), (None, "{}")) == ["{}", "{}"]
    assert whole(("", '{"a":1}'), ("", '{"a":1}')) == ['{"a":1}', '{"a":1}']
    assert whole(("c1", "null"), ("c1", '{"a":1}')) == ["null", '{"a":1}']
    assert whole(("c1", "{}"), ("c1", "{}")) == ["{}"]
