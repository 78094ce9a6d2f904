"""Guarantee: a card shows everything that the model sent, and editing one argument changes no other argument."""

from __future__ import annotations

import collections.abc
import itertools
from dataclasses import InitVar, dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pytest
from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Json,
    RootModel,
    SecretStr,
    computed_field,
    field_serializer,
    model_serializer,
    model_validator,
)
from pydantic_core import core_schema
from typing_extensions import TypedDict

from support.approving import Desk
from toolloop_jupyter.core.tools.arguments import InvalidArguments
from toolloop_jupyter.core.tools.tool import make_tools
from toolloop_jupyter.teaching.scripted import call

EVIL = "rm -rf /"
count = itertools.count()


class Excluded(BaseModel):
    item: str = "pen"
    note: str = Field("", exclude=True)


class Basket(NamedTuple):
    items: list[str]

    def __len__(self) -> int:
        return 0

    def __iter__(self):
        return iter(())


class Shortened(BaseModel):
    note: str

    @field_serializer("note")
    def _short(self, note: str) -> str:
        return note[:2]


class Lying(BaseModel):
    note: str

    @model_serializer
    def _harmless(self) -> dict[str, str]:
        return {"note": "harmless"}


class Reader(BaseModel):
    """A class with a validator that reads data which is not a field."""

    note: str = ""

    @model_validator(mode="before")
    @classmethod
    def _read(cls, given: Any) -> Any:
        return {"note": given["text"]} if "text" in given else given


class Lines(RootModel[list[Excluded]]):
    pass


@dataclass
class Once:
    item: str
    note: InitVar[str] = ""

    def __post_init__(self, note: str) -> None:
        self.kept = note


class Quiet:
    """A class of a person, whose `__repr__` shows nothing."""

    def __init__(self, note: str) -> None:
        self.note = note

    @classmethod
    def __get_pydantic_core_schema__(cls, source, handler):
        return core_schema.no_info_after_validator_function(cls, core_schema.str_schema())

    def __repr__(self) -> str:
        return "<harmless>"


class Other(BaseModel):
    """A class whose fields have other names in JSON."""

    note: str = Field("b", validation_alias="to", serialization_alias="TO")
    either: str = Field("", validation_alias=AliasChoices("one", "two"))
    deep: str = Field("", validation_alias=AliasPath("below", 0))


class Secrets(BaseModel):
    user: str = "ann"
    password: SecretStr = SecretStr("none")


class Numbered(BaseModel):
    user: str = "ann"
    number: int = Field(default_factory=lambda: next(count))


class Sum(BaseModel):
    model_config = ConfigDict(extra="forbid")
    a: int = 1
    note: str = ""

    @computed_field
    @property
    def twice(self) -> int:
        return 2 * self.a


class Renamed(TypedDict):
    note: Annotated[str, Field(alias="from")]


def define(annotation: Any):
    """Return the tool `f(x: annotation, n: int = 1)`, which returns its arguments."""

    def f(x, n=1):
        return x, n

    f.__annotations__ = {"x": annotation, "n": int}
    return make_tools([f])[0]


# (annotation, what the model sends, what is shown)
SHOWN = {
    "a field left out": (Excluded, {"note": EVIL}, {"item": "pen", "note": EVIL}),
    "a field that is shortened": (Shortened, {"note": EVIL}, {"note": EVIL}),
    "a model that writes something else": (Lying, {"note": EVIL}, {"note": EVIL}),
    "what only a validator reads": (Reader, {"text": EVIL}, {"note": EVIL, "text": EVIL}),
    "in a list": (list[Excluded], [{"note": EVIL}], [{"item": "pen", "note": EVIL}]),
    "in a root model": (Lines, [{"note": EVIL}], [{"item": "pen", "note": EVIL}]),
    "in a dict": (dict[str, Excluded], {"a": {"note": EVIL}}, {"a": {"item": "pen", "note": EVIL}}),
    "in a text of JSON": (Json[Excluded], '{"note": "rm"}', '{"note": "rm"}'),
    "an InitVar": (Once, {"item": "a", "note": EVIL}, {"item": "a", "note": EVIL}),
    "a class with its own repr": (Quiet, EVIL, EVIL),
    "a dict with keys of such a class": (dict[Quiet, int], {EVIL: 1}, {EVIL: 1}),
    "a list of such": (list[Quiet], [EVIL], [EVIL]),
    "a list made of a text": (
        Annotated[list[Quiet], BeforeValidator(lambda text: text.split(","))],
        "a,b",
        "a,b",
    ),
    "other names": (
        Other,
        {"to": "y", "two": "z", "below": ["d"]},
        {"to": "y", "two": "z", "deep": "d", "below": ["d"]},
    ),
    "a secret": (SecretStr, EVIL, "hidden, 8 characters"),
    "secrets in a dict": (dict[str, SecretStr], {"a": "b"}, {"a": "hidden, 1 character"}),
    "a generator": (collections.abc.Generator[str, None, None], ["a", "b"], ["a", "b"]),
    "an iterator of a validator's": (Annotated[Any, BeforeValidator(iter)], ["a", "b"], ["a", "b"]),
    "a named tuple that counts what it holds": (Basket, [["a", "b"]], [["a", "b"]]),
    "a computed field": (Sum, {"a": 2}, {"a": 2, "note": ""}),
}


@pytest.mark.parametrize(("annotation", "sent", "shown"), SHOWN.values(), ids=SHOWN)
def test_all_that_was_sent_is_shown(annotation, sent, shown):
    """A class may leave out or shorten its data. The card still shows what the model sent, or a note that it is hidden."""
    assert define(annotation).bind({"x": sent}).json == {"x": shown, "n": 1}


@pytest.mark.parametrize(("annotation", "sent", "shown"), SHOWN.values(), ids=SHOWN)
def test_editing_one_argument_leaves_the_other_its_value(annotation, sent, shown):
    """An argument that was not edited keeps the same object, and the record names only the edit."""
    bound = define(annotation).bind({"x": sent})
    edited = bound.edited({**bound.json, "n": 5})
    assert edited.json == {**bound.json, "n": 5}
    assert edited.args == ()
    assert edited.kwargs["x"] is bound.kwargs["x"]


def test_looking_does_not_use_up_an_iterator():
    """A generator's items are shown, and the function still gets all of them."""
    bound = define(collections.abc.Generator[str, None, None]).bind({"x": ["a", "b"]})
    assert bound.changed() == []
    assert list(bound.run()[0]) == bound.json["x"] == ["a", "b"]


# (annotation, what the model sends, the edit of what is shown, what runs)
EDITS = {
    "beside a field left out": (Excluded, {"note": EVIL}, {"item": "ink"}, Excluded(item="ink", note=EVIL)),
    "beside an alias": (Other, {"to": "y"}, {"one": "z"}, Other.model_validate({"to": "y", "one": "z"})),
    "an alias": (Other, {"to": "y", "two": "z"}, {"to": "x"}, Other.model_validate({"to": "x", "two": "z"})),
    "beside a computed field": (Sum, {"a": 2}, {"note": "b"}, Sum(a=2, note="b")),
    "in a renamed key's neighbour": (Sum, {}, {"a": 3}, Sum(a=3)),
}


@pytest.mark.parametrize(("annotation", "sent", "edit", "runs"), EDITS.values(), ids=EDITS)
def test_editing_a_part_leaves_the_rest(annotation, sent, edit, runs):
    """In a nested argument, only the edited part changes, and the record names only this part."""
    bound = define(annotation).bind({"x": sent})
    edited = bound.edited({**bound.json, "x": {**bound.json["x"], **edit}})
    assert edited.run() == (runs, 1)
    assert edited.json == {"x": {**bound.json["x"], **edit}, "n": 1}


def test_made_up_numbers_stay_when_their_neighbour_is_edited():
    """If a default factory makes a new value each time, the shown value stays the same when another field is edited."""
    bound = define(Numbered).bind({"x": {}})
    made = bound.edited({"x": {**bound.json["x"], "user": "bob"}, "n": 1})
    assert (made.run()[0].user, made.run()[0].number) == ("bob", bound.run()[0].number)


def test_a_secret_that_is_edited():
    """The new secret runs, even if it is as long as the old one. The note about its length is never used as a value."""
    bound = define(SecretStr).bind({"x": "hunter2"})
    made = bound.edited({"x": "swordfi", "n": 1})
    assert made.json["x"] == "hidden, 7 characters"
    assert made.run()[0].get_secret_value() == "swordfi"
    assert made.changed() == []


@pytest.mark.parametrize(
    ("annotation", "sent", "edit"),
    [
        (list[SecretStr], ["one", "two"], ["hidden, 3 characters", "new"]),
        (list[SecretStr], ["one", "three"], ["hidden, 5 characters", "hidden, 3 characters"]),
        (set[SecretStr], ["one", "three"], ["hidden, 3 characters", "new"]),
        (Secrets, {"user": "ann", "password": "aaaa"}, {"user": "bob", "password": "hidden, 4 characters"}),
    ],
)
def test_a_secret_in_an_edited_argument_is_typed_anew(annotation, sent, edit):
    """If a part of an argument is edited, its hidden value must be typed again."""
    bound = define(annotation).bind({"x": sent})
    with pytest.raises(InvalidArguments, match="type the hidden value again; f was not run"):
        bound.edited({"x": edit, "n": 1})


class Total(BaseModel):
    """A class in which one field is calculated from others."""

    parts: list[int]
    total: int = 0

    @model_validator(mode="after")
    def _add(self) -> Total:
        self.total = sum(self.parts)
        return self


def test_what_was_left_alone_stays_or_the_edit_is_refused():
    """If an edit would change another field, the error names this field. If both are edited, the call runs."""
    bound = define(Total).bind({"x": {"parts": [1, 2]}})
    assert bound.json["x"] == {"parts": [1, 2], "total": 3}
    with pytest.raises(
        InvalidArguments,
        match=r"x\.total: you did not edit this part \(it shows 3\), but your other edits would make it 7; edit this part, too",
    ):
        bound.edited({"x": {"parts": [3, 4], "total": 3}, "n": 1})
    made = bound.edited({"x": {"parts": [3, 4], "total": 7}, "n": 1})
    assert made.json["x"] == {"parts": [3, 4], "total": 7}
    assert made.run()[0].total == 7


async def test_a_new_secret_of_the_same_length_is_an_edit():
    """The secret that a person typed runs, although the note about its length has not changed."""
    ran = []

    def log_in(password: SecretStr) -> str:
        """Log in."""
        ran.append(password.get_secret_value())
        return "in"

    log_in.__annotations__["password"] = SecretStr
    desk = Desk(call("log_in", password="hunter2"), tool=log_in)
    result = await desk.run(lambda approval: approval.allow({"password": "swordfi"}))
    assert ran == ["swordfi"]
    assert result.approvals[0].decision.arguments == {"password": "hidden, 7 characters"}


def test_sets_are_shown_by_value():
    """Numbers are sorted by size, texts by the alphabet, and other values by their JSON."""
    assert define(set[int]).bind({"x": [10, 9, 2]}).json["x"] == [2, 9, 10]
    assert define(set[str]).bind({"x": ["b", "a"]}).json["x"] == ["a", "b"]
    assert define(set[int | str]).bind({"x": ["b", 2, 10]}).json["x"] == ["b", 10, 2]


def test_lists_that_validators_change():
    """If a validator changes the order of a list, the items that were not edited stay the same."""
    bound = define(Annotated[list[str], BeforeValidator(sorted)]).bind({"x": ["b", "a"]})
    assert bound.edited({"x": ["a", "c"], "n": 1}).run() == (["a", "c"], 1)
    several = define(set[str]).bind({"x": ["b", "a"]})
    assert several.json["x"] == ["a", "b"]
    assert several.edited({"x": [*several.json["x"], "c"], "n": 1}).run() == ({"a", "b", "c"}, 1)


def test_an_edit_may_be_of_another_kind():
    """A list may become a number, and a number a list, if the type accepts it."""
    for sent, new in (([1, 2], 5), (5, [1, 2])):
        bound = define(list[int] | int).bind({"x": sent})
        made = bound.edited({"x": new, "n": 2})
        assert (made.run(), made.json) == ((new, 2), {"x": new, "n": 2})


def test_an_edit_without_effect_is_refused():
    """If the class ignores an edit, the error says so, and nothing is decided."""
    bound = define(Renamed).bind({"x": {"from": "a"}})
    with pytest.raises(
        InvalidArguments, match=r'x\.note: "b" would have no effect: the value would stay "a"; f was not run'
    ):
        bound.edited({"x": {"from": "a", "note": "b"}, "n": 1})


# (annotation, what is sent, what is typed for it)
EQUAL = {
    "a number": (int, 1, 1.0),
    "a number as a text": (int, 1, "1"),
    "a number in a list": (list[int], [1, 2], [1.0, 2]),
    "a number in a field": (Sum, {"a": 1, "note": "b"}, {"a": 1.0, "note": "b"}),
    "a path": (Path, "a", "./a"),
    "a set": (set[int], [2, 9], [9, 2]),
}


@pytest.mark.parametrize(("annotation", "sent", "typed"), EQUAL.values(), ids=EQUAL)
def test_an_edit_to_what_it_was_is_none(annotation, sent, typed):
    """An edit that means the same value does not count as an edit, alone or beside a real edit. The record names only the real edit."""
    bound = define(annotation).bind({"x": sent})
    same = bound.edited({"x": typed, "n": 1})
    assert (same.json, same.run()) == (bound.json, bound.run())
    real = bound.edited({"x": typed, "n": 2})
    assert (real.json, real.run()) == ({**bound.json, "n": 2}, (bound.run()[0], 2))


def test_a_default_may_be_left_out():
    """If a person removes an argument or a field, its default applies."""
    bound = define(Excluded).bind({"x": {"item": "ink", "note": EVIL}, "n": 3})
    assert bound.edited({"x": {"item": "ink"}}).run() == (Excluded(item="ink"), 1)


async def test_a_value_that_others_hold_too():
    """If a validator's shared list changes while a person is asked, the call does not run, and the model is told."""
    tables, ran = {"users": ["u1"]}, []

    def drop(rows: Annotated[Any, BeforeValidator(lambda name: tables[name])]) -> str:
        """Drop rows."""
        ran.append(list(rows))
        return "dropped"

    drop.__annotations__["rows"] = Annotated[Any, BeforeValidator(lambda name: tables[name])]
    desk = Desk(call("drop", rows="users"), call("drop", rows="users"), tool=drop)
    seen = []

    def decide(approval):
        seen.append(approval.input["rows"])
        if len(seen) == 1:
            tables["users"].append("u2")
        approval.allow()

    result = await desk.run(decide)
    first, second = result.tool_results
    assert "some arguments were changed by other code after they were checked (rows)" in first.output
    assert (first.ran, first.decision.allowed, second.ran) == (False, False, True)
    assert ran == [seen[1]] == [["u1", "u2"]]


async def test_what_a_policy_sees():
    """A permissions callable also gets everything that was sent."""
    seen = []

    def buy(order: Excluded) -> str:
        """Buy."""
        return "bought"

    buy.__annotations__["order"] = Excluded
    desk = Desk(
        call("buy", order={"note": EVIL}),
        tool=buy,
        permissions=lambda asked: seen.append(asked.input) or True,
    )
    await desk.run(lambda approval: None)
    assert seen == [{"order": {"item": "pen", "note": EVIL}}]
