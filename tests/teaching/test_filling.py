"""Structured answers of the demonstration model are valid, whatever the schema."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import ipaddress
import json
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import AnyUrl, BaseModel, ConfigDict, Field, TypeAdapter

from toolloop_jupyter.teaching.demo import MISSING, Filler

HITS = '["src/client.py:41: for attempt in range(retries):", "src/client.py:57: if attempt == retries:"]'


def fill(schema: dict[str, Any], prompt: str = "Review 3 changes", *results: str) -> Any:
    filler = Filler(
        prompt, schema.get("$defs") or {}, results, answering=True, story="Demonstration: two lines found."
    )
    return filler.find_value(schema, "answer")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Finding(BaseModel):
    path: str
    line: int = Field(ge=1)
    message: str = Field(max_length=60)
    severity: Literal["info", "warning", "error"] = "info"


class Review(BaseModel):
    summary: str = Field(min_length=5, max_length=40)
    verdict: Literal["approve", "request_changes"]
    findings: list[Finding]


class Node(BaseModel):
    value: int
    left: Node | None = None
    right: Node | None = None
    kids: list[Node]


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = Field(gt=0, lt=10)


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")
    code: str = Field(pattern=r"^[A-Z]{3}-\d{4}$", examples=["ABC-1234"])
    colour: Colour
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]
    when: dt.datetime
    day: dt.date
    clock: dt.time
    wait: dt.timedelta
    price: decimal.Decimal = Field(gt=0, max_digits=6, decimal_places=2)
    ident: uuid.UUID
    link: AnyUrl
    address: ipaddress.IPv4Address
    place: tuple[float, float]
    tags: set[str] = Field(min_length=2, max_length=3)
    ratio: float = Field(gt=0, lt=1)
    step: int = Field(multiple_of=5, ge=12)
    extra: dict[str, int]
    either: int | str
    maybe: str | None
    path: Path


@dataclass
class Point:
    x: float
    y: float
    label: str = "here"


KINDS = [
    Review,
    Node,
    Strict,
    Point,
    list[Finding],
    Finding | None,
    int | str,
    dict[str, list[int]],
    bool,
    Colour,
]


@pytest.mark.parametrize(
    "kind", [*KINDS, list[Colour], tuple[int, str], Annotated[list[int], Field(min_length=4)]]
)
@pytest.mark.parametrize(
    "results", [(), (HITS,), ('{"value": 7, "x": 1.5, "line": "no number"}', "plain\ntext")]
)
def test_an_answer_validates(kind: Any, results: tuple[str, ...]) -> None:
    """Answers fit models, unions, recursion, formats, patterns and limits, with and without tool results."""
    adapter = TypeAdapter(kind)
    adapter.validate_json(json.dumps(fill(adapter.json_schema(), "Review 3 changes", *results)))


def test_hits_become_the_records_of_a_list() -> None:
    """Each `path:line: text` of a search becomes one finding, with its path, line and text."""
    review = Review.model_validate(fill(Review.model_json_schema(), "Review the retry code", HITS))
    assert [(f.path, f.line, f.message) for f in review.findings] == [
        ("src/client.py", 41, "for attempt in range(retries):"),
        ("src/client.py", 57, "if attempt == retries:"),
    ]
    assert review.summary.startswith("Demonstration")
    assert review.verdict == "request_changes"


def test_keys_of_json_results_fill_fields_of_the_same_name() -> None:
    """If a result is a record, fields get the values of its keys with the same names."""

    class Weather(BaseModel):
        city: str
        temperature: float
        conditions: str

    got = fill(
        Weather.model_json_schema(),
        "How is it?",
        '{"city": "Oslo", "temperature": 3.5, "conditions": "rain"}',
    )
    assert got == {"city": "Oslo", "temperature": 3.5, "conditions": "rain"}


def test_records_of_a_json_list_become_items() -> None:
    """A list of records in a result becomes a list of the wanted objects."""

    class Item(BaseModel):
        name: str
        price: float

    class Basket(BaseModel):
        items: list[Item]

    got = fill(
        Basket.model_json_schema(),
        "What costs what?",
        '[{"name": "tea", "price": 2.5}, {"name": "milk", "price": 1}]',
    )
    assert got == {"items": [{"name": "tea", "price": 2.5}, {"name": "milk", "price": 1}]}


def test_a_text_of_the_prompt_that_fits_a_pattern_is_taken() -> None:
    """A ticket number in the prompt is found by the field's pattern."""
    schema = {"type": "string", "pattern": r"^[A-Z]{3}-\d+$"}
    assert fill(schema, "Close ticket ABC-12, please.") == "ABC-12"


def test_a_schema_that_refers_to_itself_many_times_ends_soon() -> None:
    """A schema that refers to itself twelve times at each level takes no exponential time."""
    properties = {f"p{i}": {"anyOf": [{"$ref": "#/$defs/N"}, {"type": "null"}]} for i in range(12)}
    schema = {"$ref": "#/$defs/N", "$defs": {"N": {"type": "object", "properties": properties}}}
    started = time.monotonic()
    jsonschema.validate(fill(schema), schema)
    assert time.monotonic() - started < 5


def test_for_a_pattern_the_example_is_taken() -> None:
    """No text is made up for a pattern. If neither the prompt nor the schema has one that fits, there is no value."""
    schema = {"type": "string", "pattern": r"^[A-Z]{3}-\d+$"}
    assert fill({**schema, "examples": ["XYZ-1"]}) == "XYZ-1"
    assert fill(schema) is MISSING


class Delivery(BaseModel):
    on: dt.date
    to: Literal["home", "office"]
    boxes: int = Field(ge=1, le=20)
    finding: Finding
    notes: list[str] = Field(min_length=1)
    point: Point
    either: int | str
    back: Node | None


def test_arguments_are_filled_from_the_prompt() -> None:
    """A tool's dates, options, numbers, nested objects and lists come from the words of the prompt, and validate."""
    prompt = 'Deliver 3 boxes to the office on 2026-12-24 for src/x.py, line 12: "fragile"'
    schema = Delivery.model_json_schema()
    got = Delivery.model_validate(Filler(prompt, schema["$defs"]).find_value(schema))
    assert (got.on, got.to, got.boxes) == (dt.date(2026, 12, 24), "office", 3)
    assert (got.finding.path, got.finding.line, got.finding.message) == ("src/x.py", 12, "fragile")
    assert got.back is None


def test_a_file_or_an_address_is_not_made_up() -> None:
    """A path or an address is taken from the prompt and from results. If they have none, there are no arguments."""
    schema = {
        "type": "object",
        "properties": {"path": {"type": "string", "format": "path"}, "url": {"type": "string"}},
        "required": ["path", "url"],
    }
    assert Filler("Read it.", {}).find_value(schema) is MISSING
    got = Filler("Compare it with https://example.org/a.", {}, [HITS]).find_value(schema)
    assert got == {"path": "src/client.py", "url": "https://example.org/a"}


def test_a_definition_that_refers_to_another_one() -> None:
    """A chain of references leads to its last definition; a circle of references comes to an end."""
    known = {"A": {"$ref": "#/$defs/B", "minimum": 7}, "B": {"type": "integer"}, "C": {"$ref": "#/$defs/C"}}
    assert fill({"$ref": "#/$defs/A", "$defs": known}, "Go.") == 7
    assert isinstance(fill({"$ref": "#/$defs/C", "$defs": known}, "Go."), str)


def _limits(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    bounds = {
        "minimum": st.integers(-5, 5),
        "maximum": st.integers(6, 40),
        "multipleOf": st.sampled_from([1, 2, 5]),
    }
    return st.fixed_dictionaries({"type": st.just(kind)}, optional=bounds)


_TEXTS = st.fixed_dictionaries(
    {"type": st.just("string")}, optional={"minLength": st.integers(0, 20), "maxLength": st.integers(20, 60)}
)
_LEAVES = st.one_of(
    _limits("integer"),
    _limits("number"),
    _TEXTS,
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.just({"enum": ["a", 2, None]}),
    st.just({"const": "fixed"}),
)


def _containers(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    names = st.sampled_from(["path", "line", "query", "summary", "count", "is_ok", "items", "value"])
    objects = st.dictionaries(names, inner, max_size=4).flatmap(
        lambda properties: st.fixed_dictionaries(
            {
                "type": st.just("object"),
                "properties": st.just(properties),
                "required": st.lists(st.sampled_from(sorted(properties)), unique=True)
                if properties
                else st.just([]),
                "additionalProperties": st.booleans(),
            }
        )
    )
    arrays = st.fixed_dictionaries(
        {"type": st.just("array"), "items": inner},
        optional={"minItems": st.integers(0, 2), "maxItems": st.integers(2, 4)},
    )
    return st.one_of(
        objects, arrays, st.lists(inner, min_size=1, max_size=3).map(lambda options: {"anyOf": options})
    )


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    schema=st.recursive(_LEAVES, _containers, max_leaves=8),
    prompt=st.sampled_from(["Review line 12 of `src/x.py`", "", "3 x 5, \"quoted\" and 'this'", "ä ö 🙂"]),
    results=st.sampled_from([(), (HITS,), ('{"line": -3, "path": null, "items": [1, "two"]}',)]),
)
def test_any_schema_is_met(schema: dict[str, Any], prompt: str, results: tuple[str, ...]) -> None:
    """An independent validator accepts the values, for random schemas."""
    value = fill(schema, prompt, *results)
    assert value is not MISSING
    jsonschema.validate(value, schema)
