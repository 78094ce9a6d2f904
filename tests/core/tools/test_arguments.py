"""Arguments as models really send them."""

from __future__ import annotations

import copy
import datetime as dt
import enum
import json
import math
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import BaseModel, ConfigDict, Field, Strict

from support.tool_kinds import Color
from toolloop_jupyter.core.tools.arguments import InvalidArguments, parse_arguments
from toolloop_jupyter.core.tools.preview import snapshot
from toolloop_jupyter.core.tools.tool import make_tools


def refusal(raw):
    """The message that the arguments are refused with."""
    with pytest.raises(InvalidArguments) as caught:
        parse_arguments(raw)
    return str(caught.value)


def bind(function, raw):
    """The call of a function for the arguments."""
    (tool,) = make_tools([function])
    return tool.bind(raw)


class TestParse:
    @pytest.mark.parametrize(
        "raw", ["", "  ", "\n", None, "null", " null ", '""', '"null"', "{}", '"{}"', {}]
    )
    def test_no_arguments(self, raw):
        """An empty text, blanks and null mean {} (C29, C30)."""
        assert parse_arguments(raw) == {}

    @pytest.mark.parametrize(
        ("raw", "got"),
        [
            ('["oops"]', 'list: ["oops"]'),
            ("42", "number: 42"),
            ("true", "boolean: true"),
            ('"x"', 'string: "x"'),
            ("1.5", "number: 1.5"),
            ([1], "list: [1]"),
        ],
    )
    def test_no_object(self, raw, got):
        """A list or a single value is refused, and the message shows it (C31)."""
        assert refusal(raw) == f"arguments must be a JSON object, got {got}"

    def test_encoded_twice(self):
        """An object inside a JSON string, also inside two strings, is decoded (C32)."""
        text = json.dumps({"items": [], "note": "n"})
        assert parse_arguments(json.dumps(text)) == {"items": [], "note": "n"}
        assert parse_arguments(json.dumps(json.dumps(text))) == {"items": [], "note": "n"}

    @pytest.mark.parametrize("raw", ['{"d":1}{"d":2}', '{"d":1} {"d":2}', '{"d":1} and so on', '{"d":1},'])
    def test_more_than_one_object(self, raw):
        """Two objects, or text after the object, are refused, so that no call runs with half of its arguments (C34)."""
        assert refusal(raw).startswith("arguments are not a single JSON object: after its end comes ")

    def test_braces_inside_strings_are_text(self):
        """A brace inside a string does not end the object."""
        assert parse_arguments('{"q":"}{"}') == {"q": "}{"}

    def test_cut_off(self):
        """A text that was cut off is never completed (C36)."""
        text = '{"path":"a","content":"line1'
        assert refusal(text).startswith(
            "arguments are not valid JSON: Unterminated string starting at at character "
        )

    @pytest.mark.parametrize(
        "raw", ["{'a': 1}", "{a: 1}", '{"a": 1,}', "{", "f(a=1)", "```json\n{}\n```", '{"a": True}']
    )
    def test_no_json(self, raw):
        """A text that only looks like JSON is refused, and the message names the place."""
        assert "at character" in refusal(raw)

    @pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400"])
    def test_numbers_that_json_has_not(self, number):
        """For NaN, infinities and too large floats, the message names the place (C37)."""
        assert refusal(f'{{"a": [0, {number}]}}').startswith("a[1]: expected a finite number, got ")
        assert refusal({"a": [0, float(number)]}).startswith("a[1]: expected a finite number, got ")

    def test_huge_integers(self):
        """An integer with more digits than Python converts is an error result (C43)."""
        assert refusal('{"n":' + "9" * 4301 + "}") == "arguments have an integer with more than 4300 digits"
        assert parse_arguments('{"n":' + "9" * 4300 + "}")["n"] > 10**4299

    @pytest.mark.parametrize("depth", [101, 5_000, 100_000])
    def test_deep_nesting(self, depth):
        """Deep nesting is an error result (C43)."""
        text = '{"a":' + "[" * depth + "]" * depth + "}"
        assert refusal(text) == "arguments are nested more than 100 levels deep"

    @pytest.mark.parametrize("raw", ['{"a":1,"a":1}', '{"b":{"a":1,"a":2}}'])
    def test_duplicate_keys(self, raw):
        """A repeated key is refused at any depth, because nobody knows which value was meant."""
        assert refusal(raw) == 'arguments have "a" more than once'

    def test_line_breaks_inside_strings(self):
        """Raw line breaks in a string are accepted, because many models send them and they have one meaning."""
        assert parse_arguments('{"code":"a\n\tb"}') == {"code": "a\n\tb"}

    def test_half_a_surrogate_pair(self):
        """Half of a surrogate pair is refused; a whole pair is one character."""
        assert refusal('{"a":"\\ud83d"}') == 'a: half of a surrogate pair is not a character, got "\\ud83d"'
        assert parse_arguments('{"a":"\\ud83d\\ude00"}') == {"a": "😀"}

    def test_a_mapping_is_copied(self):
        """The sender's dict is copied."""
        sent = {"a": [{"b": (1, 2)}]}
        before = copy.deepcopy(sent)
        got = parse_arguments(sent)
        got["a"][0]["b"].append(3)
        assert sent == before

    def test_messages_are_short(self):
        """The message repeats only a few characters of a long text."""
        for raw in (
            "[" + '"x",' * 300_000 + '"x"]',
            '{"a":1}' + "x" * 1_000_000,
            '"' + "y" * 1_000_000 + '"',
        ):
            assert len(refusal(raw)) < 250


class TestBind:
    def test_one_message_for_all(self):
        """One message lists each wrong argument with the expected and the given value (C42)."""

        def find(limit: int, deep: bool, path: str, color: Color = Color.RED): ...

        with pytest.raises(InvalidArguments) as caught:
            bind(find, '{"limit":"12.5","deep":"maybe","pth":"x","color":"RED"}')
        assert str(caught.value).splitlines() == [
            "invalid arguments, find was not run:",
            '- limit: expected an integer, got "12.5"',
            '- deep: expected true or false, got "maybe"',
            "- path: missing, and required",
            "- color: expected 'red' or 2, got \"RED\"",
            "- pth: no such argument; did you mean path?",
        ]

    def test_text_for_a_text_parameter_stays_text(self):
        """A text stays a text, even if it looks like JSON or a number (C33, C39, C40)."""

        def save(text: str):
            return text

        for text in (
            "[1, 2]",
            '{"a":1}',
            "42",
            "020",
            "1e5",
            "null",
            "true",
            '"quoted"',
            "58aa9efd-faad-4901",
        ):
            assert bind(save, json.dumps({"text": text})).run() == text

    def test_text_for_any_value_stays_text(self):
        """If the type accepts a text, the text is not decoded."""

        def save(a, b: str | list[int], c: int | str | dict):
            return a, b, c

        text = '{"a":"[1]","b":"[1]","c":"{}"}'
        assert bind(save, text).run() == ("[1]", "[1]", "{}")

    def test_many_problems_are_counted(self):
        """Ten problems are listed, and a number says how many more there are."""

        def work(x: list[int]): ...

        with pytest.raises(InvalidArguments) as caught:
            bind(work, {"x": ["a"] * 25})
        lines = str(caught.value).splitlines()
        assert len(lines) == 12
        assert lines[-1] == "- and 15 more"

    def test_long_inputs_are_shortened(self):
        """The message has 80 characters of a long value."""

        def work(x: int): ...

        with pytest.raises(InvalidArguments) as caught:
            bind(work, {"x": "y" * 1_000_000})
        assert len(str(caught.value)) < 200

    def test_the_word_nan_is_a_word(self):
        """For a text parameter, "NaN" is a text."""

        def work(x: str):
            return x

        assert bind(work, '{"x":"NaN"}').run() == "NaN"

    def test_the_snapshot_is_strict_json(self):
        """The shown JSON can be written as strict JSON, and cannot be changed."""

        def work(x: float = Field(allow_inf_nan=True), y: bytes = b"\xff", z: set[int] = frozenset()):
            return x, z

        bound = bind(work, '{"x":"Infinity","y":"é","z":[3]}')
        assert json.loads(json.dumps(bound.json, allow_nan=False)) == {"x": "Infinity", "y": "é", "z": [3]}
        with pytest.raises(TypeError, match="cannot be changed"):
            bound.json["z"].append(4)
        assert bound.run() == (math.inf, {3})


class Shade(enum.Enum):
    RED = "red"


class Strictly(BaseModel):
    model_config = ConfigDict(strict=True)
    day: dt.date
    shade: Shade
    key: uuid.UUID
    price: Decimal
    pair: tuple[int, int]
    numbers: set[int]
    path: Path
    count: int = 0


class TestJson:
    def test_strict_types_take_json(self):
        """A strict model accepts a text for a date and an array for a tuple, because JSON has no other form for them."""

        def work(x: Strictly, shade: Annotated[Shade, Strict()], day: dt.date | None = None):
            return x, shade, day

        key = uuid.uuid4()
        sent = {
            "day": "2026-01-02",
            "shade": "red",
            "key": str(key),
            "price": "1.50",
            "pair": [1, 2],
            "numbers": [3],
        }
        x, shade, day = bind(work, {"x": {**sent, "path": "a/b"}, "shade": "red", "day": "2026-03-04"}).run()
        assert x == Strictly(
            day=dt.date(2026, 1, 2),
            shade=Shade.RED,
            key=key,
            price=Decimal("1.50"),
            pair=(1, 2),
            numbers={3},
            path=Path("a/b"),
        )
        assert (shade, day) == (Shade.RED, dt.date(2026, 3, 4))

    def test_strict_types_stay_strict(self):
        """A strict model does not accept "1" for an integer."""

        def work(x: Strictly): ...

        with pytest.raises(InvalidArguments, match=r'x\.count: expected an integer, got "1"'):
            bind(work, {"x": {"count": "1"}})

    def test_a_call_with_values_of_python(self):
        """Code that calls a tool, and an edit, may give a date in place of its text."""

        def work(day: dt.date):
            return day

        bound = bind(work, {"day": dt.date(2026, 1, 2)})
        assert bound.run() == bound.edited({"day": dt.date(2026, 1, 2)}).run() == dt.date(2026, 1, 2)


class TestSnapshot:
    def test_never_raises(self):
        """If an object cannot be shown, its type is shown."""

        class Bad:
            def __repr__(self):
                raise RuntimeError

        loop = []
        loop.append(loop)
        assert snapshot(Bad()) == "<Bad>"
        assert snapshot(loop) == "<list>"
        assert snapshot({1: object}) == {"1": "<class 'object'>"}
