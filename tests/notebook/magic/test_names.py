"""The variables that an option line names, and the messages about mistakes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from toolloop_jupyter.core.conversation import Named
from toolloop_jupyter.core.events.errors import Mistake
from toolloop_jupyter.core.events.events import Usage
from toolloop_jupyter.core.events.result import Result
from toolloop_jupyter.core.results.text import describe
from toolloop_jupyter.notebook.magic import names as names_module
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
    """If a word may not be the name of a variable, the message does not repeat it, and says why it is refused."""
    with pytest.raises(Mistake, match="takes the NAME of a variable, not the key") as caught:
        names_module.find_key({}, typed)
    assert typed not in str(caught.value)


@pytest.mark.parametrize("typed", ["OPENAI_API_KEY_NOT_SET", "my_key", "K"])
def test_a_name_that_is_not_there_is_repeated(typed: str) -> None:
    """If a word can only be a name, the message repeats it, so that the person can see a typo."""
    with pytest.raises(Mistake, match=f"--api-key {typed}: no such environment or notebook variable"):
        names_module.find_key({}, typed)


def test_a_key_is_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable with any name may contain the key. The environment's variable wins. A value that is not a text is refused."""
    monkeypatch.setenv("hf_AbCdEfGhIj", "from the environment")
    assert (
        names_module.find_key({"hf_AbCdEfGhIj": "from the notebook"}, "hf_AbCdEfGhIj")
        == "from the environment"
    )
    assert names_module.find_key({"key2of3": "abc"}, "key2of3") == "abc"
    for value in (["abc"], ""):
        with pytest.raises(Mistake, match=r"--api-key keys: no such .* variable, or it contains no text"):
            names_module.find_key({"keys": value}, "keys")


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
    """A property that raises an error, and a typo in a name or its case: each is an error of one line. IPython's own
    variables are not suggested.
    """
    shelf = Shelf()
    with pytest.raises(Mistake) as caught:
        names_module.find_tools({"shelf": shelf, "find": shelf.find, "open": open}, [name])
    assert str(caught.value) == message


def test_a_proxy_hides_no_other_variable() -> None:
    """An object that raises an error when it is read, such as Flask's `request`, is not accepted for any option. Tab still
    offers the other variables.
    """

    class Proxy:
        @property
        def __class__(self) -> type:
            raise RuntimeError("working outside of request context")

    names = {"request": Proxy(), "shelf": Shelf().find}
    for flag in ("-t", "-m", "-p", "-o", "--each", "--executor", "--attach"):
        assert "request" not in names_module.find_candidates(f"%%toolloop {flag} ", "", names)
    assert names_module.find_candidates("%%toolloop -t ", "", names) == {"shelf": "function"}
    for name, message in (
        ("shelv", "did you mean 'shelf'?"),
        ("request", "'request' is a Proxy, not a tool"),
    ):
        with pytest.raises(Mistake, match=message):
            names_module.find_tools(names, [name])


def test_a_model_is_not_expanded() -> None:
    """$name and {name} are not replaced on the option line. The error says what to write instead."""
    with pytest.raises(Mistake, match="write --model fast"):
        names_module.find_model({"fast": "openai/stub"}, "{fast}")
    assert names_module.find_model({"fast": "openai/stub"}, "fast") == "openai/stub"


def test_an_output_may_be_a_type_of_python() -> None:
    """Python's own types, such as int and list, can be named directly. A type with brackets must get a name first."""
    assert names_module.find_output({}, "int") is int
    with pytest.raises(Mistake, match=r"write Answer = list\[int\] in a cell, then --output Answer"):
        names_module.find_output({}, "list[int]")
    with pytest.raises(Mistake, match="there is no output model 'print'"):
        names_module.find_output({}, "print")


def test_an_empty_policy_is_none() -> None:
    """`--permissions=` without a value is a mistake. It does not let every call run."""
    option = find_option("--permissions")
    assert option is not None
    with pytest.raises(Mistake, match="takes full, ask or the variable of a policy"):
        names_module.resolve(option, "", {})


def test_a_key_in_the_place_of_a_name_is_not_repeated() -> None:
    """The word for a tool, a type or a policy may be a key. The message does not repeat it."""
    key = "sk-live-0123456789abcdef0123"
    for find in (names_module.find_tools, names_module.find_output, names_module.find_policy):
        with pytest.raises(Mistake) as caught:
            find({}, [key] if find is names_module.find_tools else key)  # type: ignore[operator]
        assert key not in str(caught.value)


def test_a_function_of_pythons_own_is_no_tool() -> None:
    """For `len`, the error says what to write instead. A variable with the name of a Python function is found like any other."""
    with pytest.raises(
        Mistake, match=r"'len' is Python's own function, .* write a function of your own that calls it"
    ):
        names_module.find_tools({}, ["len"])
    assert names_module.find_tools({"len": Shelf().find}, ["len"])


def test_tools_in_lists() -> None:
    """A list or tuple of functions means the functions in it, alone and together with other names."""
    first, second = Shelf().find, Shelf().find
    names = {"TOOLS": [first], "PAIR": (first, second), "second": second}
    assert names_module.find_tools(names, ["TOOLS", "second"]) == [first, second]
    assert names_module.find_tools(names, ["PAIR,second"]) == [first, second, second]


def test_names_in_braces_that_stay_are_told() -> None:
    """If a name in braces is similar to a variable, a note asks about it. Other unknown names are listed in one note. A text
    that cannot be a name causes no note.
    """
    names = {"title": "x", "_titel": 1}
    assert names_module.note_unknown_names("{{title}} {{ title }} {{a b}} {{1}}", names) == []
    assert names_module.note_unknown_names("{{titel}}, {{nosuch}}, {{titel}}, {{other}}", names) == [
        ("{{titel}} is not a variable, and is sent as typed; did you mean {{title}}?", "warning"),
        ("there is no such variable, so this is sent as typed: {{nosuch}}, {{other}}", "info"),
    ]


class Broken(Exception):
    """An error with a cause."""


def _table():
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame({"n": range(100), "word": [f"w{n}" for n in range(100)]})


def test_a_value_in_a_prompt_is_told_as_a_tools_result():
    """A table, an error, data and a Result become the same text as a tool's result. A text is never shortened."""
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
    texts = {name: fill_in(f"{{{{{name}}}}}", names) for name in names}
    assert texts["r"] == "The answer."
    assert texts["long"] == names["long"]
    assert (texts["n"], texts["data"]) == ("7", '{"a": [1, null, true]}')
    assert "Broken: outer" in texts["err"]
    assert "caused by KeyError" in texts["err"]
    assert "100 rows" in texts["df"]
    assert texts["df"] == describe(names["df"]).text


def test_err_is_the_last_error_unless_it_is_a_variable(monkeypatch) -> None:
    """`{{Err}}` is the error that the shell has shown last. A variable of this name wins. Without an error, a note says that
    there is none.
    """
    monkeypatch.setattr(sys, "last_value", ValueError("shown"), raising=False)
    assert fill_in("{{Err}}", {}) == "ValueError: shown"
    assert names_module.note_unknown_names("{{Err}}", {}) == []
    assert fill_in("{{Err}}", {"Err": "mine"}) == "mine"
    monkeypatch.delattr(sys, "last_value")
    assert fill_in("{{Err}}", {}) == "{{Err}}"
    assert "no such variable" in names_module.note_unknown_names("{{Err}}", {})[0][0]


def test_a_values_whole_text_is_made_only_where_it_cannot_be_described() -> None:
    """If a value can be described without its `str`, `str` is not called: it may be long, or take long."""

    class Rows(list):
        def __str__(self) -> str:
            raise AssertionError("asked")

    assert fill_in("{{rows}}", {"rows": Rows([1, 2])}) == "[1, 2]"


def test_what_attach_names(tmp_path: Path) -> None:
    """A variable comes before a file. A text in a variable is a path. A URL, and a text that is not the name of a file, are
    mistakes.
    """
    file = tmp_path / "notes.txt"
    file.write_text("x")
    names = {"data": [1], "where": str(file), "path": file, "note": "some words"}
    assert names_module.find_attached("data", names) == Named("data", [1])
    assert names_module.find_attached("where", names) == Named("notes.txt", file)
    assert names_module.find_attached("path", names) == Named("notes.txt", file)
    assert names_module.find_attached(str(file), names) == Named("notes.txt", file)
    for wrong, message in (
        ("note", "no file has that name"),
        ("https://a.example/x.png", "nothing is fetched"),
    ):
        with pytest.raises(Mistake, match=message):
            names_module.find_attached(wrong, names)
