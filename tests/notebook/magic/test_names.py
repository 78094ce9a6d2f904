"""What the words of an option line name, and what a mistake says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from toolloop_jupyter.core.conversation import Named
from toolloop_jupyter.core.events.errors import Mistake
from toolloop_jupyter.core.events.events import Usage
from toolloop_jupyter.core.events.result import Result
from toolloop_jupyter.core.results.text import describe
from toolloop_jupyter.notebook.magic import names as naming
from toolloop_jupyter.notebook.magic.names import fill_in
from toolloop_jupyter.notebook.magic.options import find_option

KEYS = [
    "sk-abc123def456",
    "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "hf_AbCdEfGhIjKlMnOpQrStUvWxYz",
    "sk_live_abcdefghijklmnop",
    "abcdefghijklmnopqrstuvwxyzABCDEF",
    "AKIAIOSFODNNEXAMPLE",
    "d41d8cd98f00b204e9800998ecf8427e",
    "correcthorsebatterystaple",
    "Passw0rd",
    "Bearer x.y",
]


class Shelf:
    @property
    def broken(self) -> str:
        raise RuntimeError("no shelf")

    def find(self, title: str) -> str:
        return title


@pytest.mark.parametrize("typed", KEYS)
def test_a_literal_key_of_any_shape_is_refused_and_not_repeated(typed: str) -> None:
    """What is not surely the name of a variable is not repeated, and the message says why it is refused."""
    with pytest.raises(Mistake, match="takes the NAME of a variable, not the key") as caught:
        naming.find_key({}, typed)
    assert typed not in str(caught.value)


@pytest.mark.parametrize("typed", ["OPENAI_API_KEY_NOT_SET", "my_key", "K"])
def test_a_name_that_is_not_there_is_repeated(typed: str) -> None:
    """A name that is surely one is in the message, so that its slip can be seen."""
    with pytest.raises(Mistake, match=f"--api-key {typed}: no such environment or notebook variable"):
        naming.find_key({}, typed)


def test_a_key_is_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable of any name may hold the key, the environment's first; another value than a text is none."""
    monkeypatch.setenv("hf_AbCdEfGhIj", "from the environment")
    assert naming.find_key({"hf_AbCdEfGhIj": "from the notebook"}, "hf_AbCdEfGhIj") == "from the environment"
    assert naming.find_key({"key2of3": "abc"}, "key2of3") == "abc"
    for value in (["abc"], ""):
        with pytest.raises(Mistake, match=r"--api-key keys: no such .* variable, or it holds no text"):
            naming.find_key({"keys": value}, "keys")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("shelf.broken", "there is no tool 'shelf.broken': shelf.broken raised RuntimeError"),
        ("shelf.fnd", "there is no tool 'shelf.fnd': Shelf has no 'fnd'"),
        ("FINE", "there is no tool 'FINE' in this notebook; did you mean 'find'?"),
        ("opne", "there is no tool 'opne' in this notebook; run the cell that defines it first"),
    ],
)
def test_a_tool_that_is_not_there(name: str, message: str) -> None:
    """A property that raises, a slip in the name or its case: one line; what IPython put there is not suggested."""
    shelf = Shelf()
    with pytest.raises(Mistake) as caught:
        naming.find_tools({"shelf": shelf, "find": shelf.find, "open": open}, [name])
    assert str(caught.value) == message


def test_a_proxy_hides_no_other_variable() -> None:
    """An object that raises when it is looked at, as Flask's `request`, is no value for any option, and Tab offers the others."""

    class Proxy:
        @property
        def __class__(self) -> type:
            raise RuntimeError("working outside of request context")

    names = {"request": Proxy(), "shelf": Shelf().find}
    for flag in ("-t", "-m", "-p", "-o", "--each", "--executor", "--attach"):
        assert "request" not in naming.find_candidates(f"%%toolloop {flag} ", "", names)
    assert naming.find_candidates("%%toolloop -t ", "", names) == {"shelf": "function"}
    for name, message in (
        ("shelv", "did you mean 'shelf'?"),
        ("request", "'request' is a Proxy, not a tool"),
    ):
        with pytest.raises(Mistake, match=message):
            naming.find_tools(names, [name])


def test_a_model_is_not_expanded() -> None:
    """$name and {name} are told what to write instead."""
    with pytest.raises(Mistake, match="write --model fast"):
        naming.find_model({"fast": "openai/stub"}, "{fast}")
    assert naming.find_model({"fast": "openai/stub"}, "fast") == "openai/stub"


def test_an_output_may_be_a_type_of_python() -> None:
    """Types of Python, int and list, need no cell; a type with brackets is told to get a name."""
    assert naming.find_output({}, "int") is int
    with pytest.raises(Mistake, match=r"write Answer = list\[int\] in a cell, then --output Answer"):
        naming.find_output({}, "list[int]")
    with pytest.raises(Mistake, match="there is no output model 'print'"):
        naming.find_output({}, "print")


def test_an_empty_policy_is_none() -> None:
    """`--permissions=` without a value is a mistake, and does not let every call run."""
    option = find_option("--permissions")
    assert option is not None
    with pytest.raises(Mistake, match="takes full, ask or the variable of a policy"):
        naming.resolve(option, "", {})


def test_a_key_in_the_place_of_a_name_is_not_repeated() -> None:
    """What was typed for a tool, a type or a policy may be a key."""
    key = "sk-live-0123456789abcdef0123"
    for find in (naming.find_tools, naming.find_output, naming.find_policy):
        with pytest.raises(Mistake) as caught:
            find({}, [key] if find is naming.find_tools else key)  # type: ignore[operator]
        assert key not in str(caught.value)


def test_a_function_of_pythons_own_is_no_tool() -> None:
    """`len` is told what to write instead, and a variable of its name is looked up as any other."""
    with pytest.raises(
        Mistake, match=r"'len' is Python's own function, .* write a function of your own that calls it"
    ):
        naming.find_tools({}, ["len"])
    assert naming.find_tools({"len": Shelf().find}, ["len"])


def test_tools_in_lists() -> None:
    """A list or tuple of functions stands for what is in it, beside other names and with them."""
    first, second = Shelf().find, Shelf().find
    names = {"TOOLS": [first], "PAIR": (first, second), "second": second}
    assert naming.find_tools(names, ["TOOLS", "second"]) == [first, second]
    assert naming.find_tools(names, ["PAIR,second"]) == [first, second, second]


def test_names_in_braces_that_stay_are_told() -> None:
    """A near variable is asked about; other names are told in one note; what is no bare name is nobody's slip."""
    names = {"title": "x", "_titel": 1}
    assert naming.note_unknown_names("{{title}} {{ title }} {{a b}} {{1}}", names) == []
    assert naming.note_unknown_names("{{titel}}, {{nosuch}}, {{titel}}, {{other}}", names) == [
        ("{{titel}} is not a variable, and is sent as typed; did you mean {{title}}?", "warning"),
        ("there is no such variable, so this is sent as typed: {{nosuch}}, {{other}}", "info"),
    ]


class Broken(Exception):
    """An error with a cause."""


def _table():
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame({"n": range(100), "word": [f"w{n}" for n in range(100)]})


def test_a_value_in_a_prompt_is_told_as_a_tools_result():
    """A table, an error, data and a Result are what a tool's result would tell the model; a text is whole, however long."""
    error = Broken("outer")
    error.__cause__ = KeyError("inner")
    result = Result("The answer.", None, [], [], Usage(), 0.0, "done", "s")
    names = {
        "df": _table(),
        "err": error,
        "r": result,
        "data": {"a": [1, None, True]},
        "long": "x" * 100_000,
        "n": 7,
    }
    told = {name: fill_in(f"{{{{{name}}}}}", names) for name in names}
    assert told["r"] == "The answer."
    assert told["long"] == names["long"]
    assert (told["n"], told["data"]) == ("7", '{"a": [1, null, true]}')
    assert "Broken: outer" in told["err"]
    assert "caused by KeyError" in told["err"]
    assert "100 rows" in told["df"]
    assert told["df"] == describe(names["df"]).text


def test_err_is_the_last_error_unless_it_is_a_variable(monkeypatch) -> None:
    """`{{Err}}` is what the shell has shown last; a variable of that name wins, and without an error it is said to be none."""
    monkeypatch.setattr(sys, "last_value", ValueError("shown"), raising=False)
    assert fill_in("{{Err}}", {}) == "ValueError: shown"
    assert naming.note_unknown_names("{{Err}}", {}) == []
    assert fill_in("{{Err}}", {"Err": "mine"}) == "mine"
    monkeypatch.delattr(sys, "last_value")
    assert fill_in("{{Err}}", {}) == "{{Err}}"
    assert "no such variable" in naming.note_unknown_names("{{Err}}", {})[0][0]


def test_a_values_whole_text_is_made_only_where_it_cannot_be_described() -> None:
    """A value that is described without its `str` is not asked for it: that may be long, or take long."""

    class Rows(list):
        def __str__(self) -> str:
            raise AssertionError("asked")

    assert fill_in("{{rows}}", {"rows": Rows([1, 2])}) == "[1, 2]"


def test_what_attach_names(tmp_path: Path) -> None:
    """A variable before a file; a text in a variable is a path; an address, and a text that is no file's name, are mistakes."""
    file = tmp_path / "notes.txt"
    file.write_text("x")
    names = {"data": [1], "where": str(file), "path": file, "note": "some words"}
    assert naming.find_attached("data", names) == Named("data", [1])
    assert naming.find_attached("where", names) == Named("notes.txt", file)
    assert naming.find_attached("path", names) == Named("notes.txt", file)
    assert naming.find_attached(str(file), names) == Named("notes.txt", file)
    for wrong, told in (("note", "no file has that name"), ("https://a.example/x.png", "nothing is fetched")):
        with pytest.raises(Mistake, match=told):
            naming.find_attached(wrong, names)
