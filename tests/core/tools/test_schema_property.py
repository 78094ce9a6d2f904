"""For generated signatures and values: the function receives exactly what the schema allows."""

from __future__ import annotations

import json
import math
import time
from typing import Any, Literal, Optional, Union

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.tool_kinds import Edit, Node, Point
from toolloop_jupyter.core.results.text import describe
from toolloop_jupyter.core.tools.arguments import InvalidArguments
from toolloop_jupyter.core.tools.schema import resolve_reference
from toolloop_jupyter.core.tools.tool import make_tools

NAMES = [
    "x",
    "self",
    "cls",
    "args",
    "kwargs",
    "model_config",
    "_x",
    "__x",
    "schema",
    "json",
    "copy",
    "größe",
    "dict",
    "p1",
]
ROOMY = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["null", "[1]", "{}", "1", "NaN"]
)
NUMBERS = st.integers(-(2**70), 2**70)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
ANYTHING = st.recursive(
    st.none() | st.booleans() | NUMBERS | FLOATS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
POINTS = st.fixed_dictionaries({"x": NUMBERS}, optional={"y": FLOATS})
NODES = st.recursive(
    st.fixed_dictionaries({"v": NUMBERS}),
    lambda inner: st.fixed_dictionaries({"v": NUMBERS, "kids": st.lists(inner, max_size=2)}),
    max_leaves=4,
)
LEAVES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, NUMBERS),
    (float, FLOATS),
    (bool, st.booleans()),
    (str, TEXTS),
    (Any, ANYTHING),
    (list, st.lists(ANYTHING, max_size=2)),
    (Literal["a", "b"], st.sampled_from(["a", "b"])),
    (Point, POINTS),
    (Node, NODES),
    (Edit, st.fixed_dictionaries({"path": TEXTS}, optional={"line": NUMBERS})),
]


def _wider(inner):
    """Return types that are made of other types, each with the JSON values that it accepts."""
    return st.one_of(
        inner.map(lambda one: (list[one[0]], st.lists(one[1], max_size=3))),
        inner.map(lambda one: (dict[str, one[0]], st.dictionaries(TEXTS, one[1], max_size=3))),
        inner.map(lambda one: (Optional[one[0]], st.none() | one[1])),  # noqa: UP045 - `|` fails for Any
        st.tuples(inner, inner).map(
            lambda two: (tuple[two[0][0], two[1][0]], st.tuples(two[0][1], two[1][1]).map(list))
        ),
        st.tuples(inner, inner).map(lambda two: (Union[two[0][0], two[1][0]], two[0][1] | two[1][1])),  # noqa: UP007 - the same
    )


TYPES = st.recursive(st.sampled_from(LEAVES), _wider, max_leaves=3)


@st.composite
def calls(draw):
    """Draw a function, the types of its parameters, and arguments that these types accept."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    drawn = [draw(TYPES) for _ in names]
    # Parameters before this index are positional-only, those after it are keyword-only.
    first = draw(st.integers(0, len(names)))
    second = draw(st.integers(first, len(names)))
    optional = draw(st.integers(0, len(names)))
    parts = []
    for index, name in enumerate(names):
        if index == first and first:
            parts.append("/")
        if index == second:
            parts.append("*")
        parts.append(f"{name}: T{index}" + (" = DEFAULT" if index >= optional else ""))
    if first == len(names):
        parts.append("/")
    namespace = {f"T{index}": kind for index, (kind, _) in enumerate(drawn)} | {"DEFAULT": ["the default"]}
    exec(f"def call({', '.join(parts)}):\n    return locals()", namespace)
    sent = {
        name: draw(values)
        for index, (name, (_, values)) in enumerate(zip(names, drawn, strict=True))
        if index < optional or draw(st.booleans())
    }
    return namespace["call"], sent


def plain(value):
    """Return a received value as the JSON that was sent for it, if it has a JSON form."""
    if isinstance(value, (Point, Node)):
        return {name: plain(getattr(value, name)) for name in value.model_fields_set}
    if isinstance(value, Edit):
        return {"path": value.path, "line": value.line}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return {key: plain(item) for key, item in value.items()} if isinstance(value, dict) else value


def same(received, sent):
    """Return True if two values are equal. A default line of an Edit is ignored, because it looks like a sent one."""
    if isinstance(received, dict) and isinstance(sent, dict):
        keys = set(received) - ({"line"} - set(sent))
        return keys == set(sent) and all(same(received[key], sent[key]) for key in keys)
    if isinstance(received, list) and isinstance(sent, list):
        return len(received) == len(sent) and all(map(same, received, sent))
    return received == sent or (isinstance(sent, float) and math.isclose(received, sent))


def outcome(tool, raw):
    """Run the call. Return the message if the arguments are refused; else ""."""
    try:
        tool.bind(raw).run()
    except InvalidArguments as error:
        return str(error)
    return ""


@ROOMY
@given(calls())
def test_what_fits_the_types_is_admitted_and_received(call):
    """The schema allows a value that fits the types, the function gets this value, and the card shows it."""
    function, sent = call
    (tool,) = make_tools([function])
    keys = dict(zip(NAMES, NAMES, strict=True)) | {"größe": "grosse"}
    arguments = {keys[name]: value for name, value in sent.items()}
    jsonschema.Draft202012Validator(tool.parameters).validate(arguments)
    bound = tool.bind(json.dumps(arguments))
    received = bound.run()
    for name, value in received.items():
        assert same(plain(value), sent[name]) if name in sent else value == ["the default"], name
    assert set(bound.json) == {keys[name] for name in received}
    json.dumps(bound.json, allow_nan=False)


@ROOMY
@given(calls(), st.dictionaries(st.sampled_from([*NAMES, "grosse", "other"]), ANYTHING, max_size=4))
def test_what_the_schema_admits_is_taken(call, arguments):
    """Arguments that are valid by the schema run. All other arguments run or are refused with a message."""
    (tool,) = make_tools([call[0]])
    refusal = outcome(tool, json.dumps(arguments))
    valid = jsonschema.Draft202012Validator(tool.parameters).is_valid(arguments)
    assert not refusal or (not valid and refusal.startswith("invalid arguments, call was not run:\n- "))


@ROOMY
@given(st.text(max_size=60) | st.binary(max_size=60) | ANYTHING.map(json.dumps))
def test_any_text_is_read_or_refused(text):
    """Any text of a model leads to a call or to InvalidArguments."""

    def work(x: int, y: list[str] = []):  # noqa: B006
        return x, y

    (tool,) = make_tools([work])
    refusal = outcome(tool, text)
    assert not refusal or "work was not run" in refusal
    refusal.encode()


@ROOMY
@given(ANYTHING, st.integers(1, 400))
def test_any_result_has_a_text_within_the_limit(value, limit):
    """The text of a result is never empty or too long, and can be encoded. The whole text of a JSON value is JSON."""
    described = describe(value, limit)
    assert described.text
    assert len(described.text) <= limit
    described.text.encode()
    if isinstance(value, (list, dict)) and described.full_length <= limit:
        assert json.loads(described.text) == value


def test_the_check_can_fail():
    """The schema refuses a value of a wrong type, so the tests above can fail."""

    def work(x: int): ...

    (tool,) = make_tools([work])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(tool.parameters).validate({"x": "a"})


def test_many_references_take_linear_time():
    """A server may send thousands of definitions, each a reference to the next one: none of them takes long to read."""
    known = {f"D{n}": {"$ref": f"#/$defs/D{n + 1}", f"k{n}": 1} for n in range(5_000)}
    started = time.thread_time()
    for name in known:
        resolve_reference({"$ref": f"#/$defs/{name}"}, known)
    assert time.thread_time() - started < 1
