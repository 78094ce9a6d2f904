"""Reports from users of other tools, each as one call: C01 to C43 where they are about tools and arguments.

Those that need more than one call are in the tests of the modules, under their numbers.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import uuid
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Literal, Optional

import pytest
from pydantic import BaseModel

from support.tool_kinds import Node
from toolloop_jupyter.core.events.errors import ToolDefinitionError
from toolloop_jupyter.core.results.text import describe
from toolloop_jupyter.core.tools.arguments import InvalidArguments
from toolloop_jupyter.core.tools.tool import make_tools


class E(Enum):
    A = 1
    B = "b"


class Currency(BaseModel):
    code: str


@dataclass
class D:
    x: int
    y: str = "q"


def c01(model_config: str):
    return model_config


def c02(_path: str, n: int = 1):
    return _path, n


def c04(schema: str, json: int, copy: bool):
    return schema, json, copy


def c07(a: int, /, b: int, *, c: int = 1):
    return a, b, c


def c08(amount: int, c: Currency, m: Literal["a", "b"] = "a"):
    return amount, c, m


def c15(e: D, more: list[D]):
    return e, more


def c19(p: Path, d: Decimal, u: uuid.UUID, t: dt.datetime, b: bytes):
    return p, d, u, t, b


def c20(e: E):
    return e


def c23(n: Node):
    return n


def c24(name: Optional[str] = None):  # noqa: UP045 - as it was reported
    return name


def c29():
    return "now"


def c32(items: list[dict], note: str):
    return items, note


def c33(text: str):
    return text


def c37(t: float):
    return t


def c39(task_id: str | None = None):
    return task_id


def c40(zip: str):  # noqa: A002
    return zip


def c42(limit: int, deep: bool):
    return limit, deep


UUID = "58aa9efd-faad-4901-89e8-99e807a1a2d6"
CALLS = [
    (c01, {"model_config": "x"}, "x"),
    (c02, {"_path": "a"}, ("a", 1)),
    (c04, {"schema": "s", "json": "3", "copy": False}, ("s", 3, False)),
    (c07, {"a": 1, "b": 2}, (1, 2, 1)),
    (c08, {"amount": "2", "c": {"code": "NOK"}}, (2, Currency(code="NOK"), "a")),
    (c15, {"e": {"x": "3"}, "more": [{"x": 1, "y": "z"}]}, (D(3), [D(1, "z")])),
    (
        c19,
        {"p": "x.md", "d": "0.1", "u": UUID, "t": "2026-01-02", "b": "abc"},
        (Path("x.md"), Decimal("0.1"), uuid.UUID(UUID), dt.datetime(2026, 1, 2), b"abc"),
    ),
    (
        c19,
        {"p": "x.md", "d": 0.1, "u": UUID, "t": "2026-01-02", "b": "abc"},
        (Path("x.md"), Decimal("0.1"), uuid.UUID(UUID), dt.datetime(2026, 1, 2), b"abc"),
    ),
    (c20, {"e": "b"}, E.B),
    (c23, {"n": {"v": 1, "kids": [{"v": 2}]}}, Node(v=1, kids=[Node(v=2)])),
    (c24, {}, None),
    (c24, {"name": None}, None),
    (c29, "", "now"),
    (c29, "  ", "now"),
    (c29, None, "now"),
    (c29, "null", "now"),
    (c32, {"items": '[{"t":"a"}]', "note": "n"}, ([{"t": "a"}], "n")),
    (c32, json.dumps(json.dumps({"items": [], "note": "n"})), ([], "n")),
    (c33, {"text": "[1, 2]"}, "[1, 2]"),
    (c33, {"text": '{"a":1}'}, '{"a":1}'),
    (c33, {"text": "42"}, "42"),
    (c39, {"task_id": UUID}, UUID),
    (c39, {"task_id": "1e5"}, "1e5"),
    (c40, {"zip": "020"}, "020"),
    (c42, {"limit": "500", "deep": "false"}, (500, False)),
]
REFUSED = [
    (c20, {"e": "B"}, "- e: expected 1 or 'b', got \"B\""),
    (c29, '["oops"]', 'arguments must be a JSON object, got list: ["oops"]; c29 was not run'),
    (c29, "42", "arguments must be a JSON object, got number: 42; c29 was not run"),
    (c29, "true", "arguments must be a JSON object, got boolean: true; c29 was not run"),
    (c29, '"x"', 'arguments must be a JSON object, got string: "x"; c29 was not run'),
    (c32, {"items": "[{]", "note": "n"}, '- items: expected an array, got "[{]"'),
    (
        c37,
        '{"t":NaN}',
        "t: expected a finite number, got nan (or a number that is too large); c37 was not run",
    ),
    (
        c37,
        '{"t":1e400}',
        "t: expected a finite number, got inf (or a number that is too large); c37 was not run",
    ),
    (c37, '{"t":"NaN"}', '- t: expected a finite number, got "NaN"'),
    (c40, {"zip": 20}, "- zip: expected a string, got 20"),
    (
        c42,
        {"limit": "12.5", "deep": "maybe"},
        '- limit: expected an integer, got "12.5"\n- deep: expected true or false, got "maybe"',
    ),
    (c42, '{"limit":1,"deep":true}{"limit":2}', "arguments are not a single JSON object"),
    (
        c37,
        '{"t":' + "9" * 4301 + "}",
        "arguments have an integer with more than 4300 digits; c37 was not run",
    ),
]


@pytest.mark.parametrize(("function", "sent", "expected"), CALLS)
def test_the_call_is_right(function, sent, expected):
    """The function gets the values that were meant, with their types."""
    (tool,) = make_tools([function])
    got = tool.bind(sent).run()
    assert got == expected
    assert type(got) is type(expected)


@pytest.mark.parametrize(("function", "sent", "message"), REFUSED)
def test_the_refusal_says_why(function, sent, message):
    """The function does not run, and the model gets the reason."""
    (tool,) = make_tools([function])
    with pytest.raises(InvalidArguments) as caught:
        tool.bind(sent)
    assert message in str(caught.value)


def test_c05_star_arguments_are_refused():
    """`*args` and `**kwargs` are refused. A wrapper that has them keeps the signature with functools.wraps."""

    def f(x: int, *args: int, **kw: str): ...

    with pytest.raises(
        ToolDefinitionError, match=r"f: parameter \*args cannot be described[^\n]*\n.*\*\*kw cannot"
    ):
        make_tools([f])


def test_c08_in_a_notebook():
    """In a cell, postponed annotations can use a model of the same notebook."""
    namespace = {"__name__": "__main__"}
    cell = """
from __future__ import annotations
from typing import Literal
from pydantic import BaseModel

def conv(amount: int, c: Currency, m: Literal["a", "b"] = "a"):
    return amount, c, m

class Currency(BaseModel):
    code: str
    parts: list[Part] = []

class Part(BaseModel):
    n: int

Currency.model_rebuild(_types_namespace=globals())
"""
    exec(compile(cell, "<cell>", "exec"), namespace)
    (tool,) = make_tools([namespace["conv"]])
    assert tool.parameters["properties"]["m"] == {"enum": ["a", "b"], "type": "string", "default": "a"}
    amount, currency, m = tool.bind('{"amount": "2", "c": {"code": "NOK", "parts": [{"n": "1"}]}}').run()
    assert (amount, m) == (2, "a")
    assert currency == namespace["Currency"](code="NOK", parts=[{"n": 1}])


def test_c22_every_array_has_items():
    """Every array in a schema has `items`, at any depth."""

    def f(l: list, s: set, t: tuple, d: dict[str, list[list]], p: tuple[int, list]): ...

    (tool,) = make_tools([f])

    def arrays(node):
        if isinstance(node, dict):
            if node.get("type") == "array":
                yield node
            for child in node.values():
                yield from arrays(child)
        elif isinstance(node, list):
            for child in node:
                yield from arrays(child)

    found_arrays = list(arrays(tool.parameters))
    assert len(found_arrays) > 6
    assert all("items" in array for array in found_arrays)


def test_c23_a_recursive_schema_is_small():
    """A recursive schema uses references."""
    (tool,) = make_tools([c23])
    assert len(json.dumps(tool.parameters)) < 400
    assert tool.parameters["properties"]["n"] == {"$ref": "#/$defs/Node"}


def test_c24_there_is_no_null_default():
    """A parameter with the default None is not required, and its schema has no `default`."""
    (tool,) = make_tools([c24])
    assert tool.parameters["properties"]["name"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert "required" not in tool.parameters


def test_an_infinite_default_is_no_json():
    """An infinite default is shown on the card, but is not a part of the schema."""

    def f(limit: float = math.inf):
        return limit

    (tool,) = make_tools([f])
    json.dumps(tool.parameters, allow_nan=False)
    assert tool.bind({}).json == {"limit": "Infinity"}
    assert tool.bind({}).edited(tool.bind({}).json).run() == math.inf


@pytest.mark.parametrize(
    ("value", "text"), [(None, "null"), ("", "(no output)"), ([], "[]"), (Exception(""), "Exception")]
)
def test_c66_c67_results_are_never_empty(value, text):
    """Anthropic refuses an empty result."""
    assert describe(value).text == text
