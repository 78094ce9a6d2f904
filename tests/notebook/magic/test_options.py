"""The option line: how it is read, and the messages about mistakes."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support import options_page
from support.options_page import make_page
from toolloop_jupyter import Harness, ToolLoopOptions, aagent, amap, tool
from toolloop_jupyter.core.events.errors import ArgumentInvalid, Mistake
from toolloop_jupyter.notebook.magic import cell, options
from toolloop_jupyter.notebook.magic import names as names_module
from toolloop_jupyter.notebook.magic.options import (
    OPTIONS,
    Kind,
    Option,
    ToolLoop,
    list_options,
    parse,
    read_pairs,
)


class Shell:
    """The parts of a shell that the state of the magic needs."""

    def __init__(self, **names: object) -> None:
        self.user_ns = {"__name__": "notebook", **names}


def len_of(text: str) -> int:
    """Count the characters."""
    return len(text)


def config_of(line: str, **names: object) -> Any:
    """Return the configuration of a cell with this option line, in a notebook with these variables."""
    shell = Shell(**names)
    book = cell.Notebook(shell, ToolLoop())
    return book.new_session(parse(line, book.names)).config


def test_all_options_are_read() -> None:
    """The value of each option gets into its field."""
    options = parse(
        '--model m --tools a b.c --permissions ask --output Review --session s --instructions "use {KEY} and $KEY" '
        "--as r --max-turns 3 --timeout 1.5 --sandbox . --set temperature=0.1 --set stop=END --metadata team=a "
        "--api-base http://x/v1 --api-key OPENAI_API_KEY --on-unattended error --append"
    )
    assert options["model"] == "m"
    assert options["tools"] == ["a", "b.c"]
    assert options["instructions"] == "use {KEY} and $KEY"
    assert (options["as"], options["max_turns"], options["timeout"]) == ("r", 3, 1.5)
    assert read_pairs(options["set"], "--set") == {"temperature": 0.1, "stop": "END"}
    assert read_pairs(options["metadata"], "--metadata") == {"team": "a"}
    assert options["append"]
    assert options["on_unattended"] == "error"


def test_values_of_set() -> None:
    """A value of --set is read as JSON, or as a Python literal that JSON can hold. Any other value (NaN, for example) is
    text.
    """
    line = """--set stop='["a", "b"]' --set seed=null --set 'x={"a": {"b": "c d"}}' --set n=NaN --set y= --set z=a=b"""
    assert read_pairs(parse(line).get("set", ()), "--set") == {
        "stop": ["a", "b"],
        "seed": None,
        "x": {"a": {"b": "c d"}},
        "n": "NaN",
        "y": "",
        "z": "a=b",
    }


def test_nothing_said_is_nothing_set() -> None:
    """With an empty line, every option has its default."""
    assert parse("") == {}


A_KEY = (
    "would save a key with the notebook. For a key, use --api-key NAME (of a variable). Put headers and other "
    "credentials into a variable, aagent(…, options=ToolLoopOptions(…)), or the environment"
)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "--replay-loose t.jsonl",
            "--replay-loose takes no value, got 't.jsonl'; write --replay t.jsonl --replay-loose",
        ),
        ("--as r --step yes", "--step takes no value, got 'yes'"),
        ("--tool x", "unknown option --tool; did you mean --tools?"),
        ("--permision ask", "unknown option --permision; did you mean --permissions?"),
        ("--temp 0", "unknown option --temp; did you mean --set temperature=…?"),
        ("--Temperature 0", "unknown option --Temperature; did you mean --set temperature=…?"),
        ("--temperature:0", "unknown option --temperature:0; did you mean --set temperature=…?"),
        ("--max-token 5", "unknown option --max-token; did you mean --set max_tokens=…?"),
        ("--mod m", "unknown option --mod; did you mean --model?"),
        ("--set temperature 0.5", "--set takes one word without blanks: --set temperature=0.5"),
        ("--set temperature = 0.5", "--set takes one word without blanks: --set temperature=0.5"),
        ("--set temperature= 0.5", "--set takes one word without blanks: --set temperature=0.5"),
        (
            "--set model=other",
            "--set model=… has no effect, because the run sets model itself; use --model",
        ),
        ("--set x", "--set wants key=value, got 'x'"),
        (
            """--set extra_body={"api_key": "sk-abcdef"}""",
            f"--set extra_body=… {A_KEY}",
        ),
        (
            "--max-turns many",
            "max_turns must be a whole number or None, got str 'many'",
        ),
        ("--model", "--model wants a value; write --model MODEL"),
        ('--instructions "open', 'a quote is not closed in: --instructions "open'),
        ("--as r # a note", "'#' is not an option; the prompt goes below this line, options begin with --"),
        ("--", "'--' is not an option; the prompt goes below this line, options begin with --"),
        ("--instructions be brief", 'a text of several words needs quotes: --instructions "be brief"'),
        ("--as r \\", "the options must be on one line; a \\ at the end does not continue the line"),
        ("Review this", "'Review' is not an option; the prompt goes below this line, options begin with --"),
    ],
)
def test_a_mistake_is_one_line(line: str, message: str) -> None:
    """The message names what was wrong, and says what to type."""
    with pytest.raises(Mistake) as caught:
        read_pairs(parse(line).get("set", ()), "--set")
    assert str(caught.value) == message
    assert caught.value._render_traceback_() == [f"toolloop: {message}"]


@pytest.mark.parametrize(
    "line",
    [
        "--api-key {} more words",
        "--api-key Bearer {}",
        '--api-key "{}',
        "--apikey={}",
        "--api_key {}",
        "{}",
        "-m openai/stub {}",
        "--instructions {} and more",
    ],
)
def test_a_key_in_the_wrong_place_is_not_repeated(line: str) -> None:
    """A message may repeat typed text, but without anything that looks like a key, and without the words after --api-key."""
    with pytest.raises(Mistake) as caught:
        parse(line.format("sk-abc123def456ghi789"))
    assert "abc123" not in str(caught.value)


def test_blanks_of_a_web_page_separate_words() -> None:
    """An example that was copied from a web page may have no-break spaces between its words."""
    assert parse("--as\u00a0r --model m")["as"] == "r"


def test_a_long_line_of_brackets_is_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line with many brackets, such as broken JSON, is split quickly. (If each bracket was tried with each later one, this
    would take minutes.)
    """
    tried = []
    monkeypatch.setattr(options, "_read_literal", lambda text: tried.append(text) or [])
    options.split_words("--set a=[" + "[ x ] " * 100)
    assert len(tried) <= 101


def test_help_has_every_option() -> None:
    """`%%toolloop?` describes every option."""
    text = list_options()
    for option in OPTIONS:
        assert all(flag in text for flag in option.typed)
        assert not option.typed or option.explanation in text


def test_set_cannot_take_a_run_elsewhere() -> None:
    """`--set fallbacks=…` is refused before anything starts. One line names the option and says what to do instead."""
    kwargs = read_pairs(parse("--set 'fallbacks=[\"openai/other\"]'")["set"], "--set")
    with pytest.raises(ArgumentInvalid) as caught:
        aagent(Harness.TOOL_LOOP, "Go.", model="toolloop/demo", options=ToolLoopOptions(kwargs))
    (line,) = caught.value._render_traceback_()
    assert line.startswith(
        "ValueError: fallbacks in completion_kwargs (--set) is refused: it would take the conversation"
    )
    assert (
        "; write the models to ask after a failure as --fallback MODEL (in Python ToolLoopOptions(fallback=[MODEL]))"
        in line
    )


@pytest.mark.parametrize(
    ("line", "sent"),
    [
        ("--temperature 0", {"temperature": 0}),
        ("--max-tokens 100 --top-p .9 --as r --seed=1", {"max_tokens": 100, "top_p": 0.9, "seed": 1}),
        ("--presence-penalty -1.5", {"presence_penalty": -1.5}),
        ("--stop ['a b', 'c']", {"stop": ["a b", "c"]}),
        ('--set logit_bias={"50256":-100}', {"logit_bias": {"50256": -100}}),
        ('--set stop=["a b","c"] --as r', {"stop": ["a b", "c"]}),
        ("--set temperature=.5 --set max_tokens=10_000", {"temperature": 0.5, "max_tokens": 10_000}),
        ("""--set stop=("a b",'c') --set seed=1""", {"stop": ("a b", "c"), "seed": 1}),
        ("--set x=NONE_YET --set stop=$1,000", {"x": "NONE_YET", "stop": "$1,000"}),
        ("--set stream_options=None --set store=True", {"stream_options": None, "store": True}),
        ("--set temperature=TEMP --top-p {{TEMP}}", {"temperature": 0.25, "top_p": 0.25}),
        ("--set seed=N --set stop=STOPS", {"seed": 7, "stop": ["x"]}),
        ("--set user=MY_KEY", {"user": "MY_KEY"}),
        ("--set user=NO_NUMBER", {"user": "NO_NUMBER"}),
        ("""--set 'stop="[END]"' --set user=alice""", {"stop": "[END]", "user": "alice"}),
    ],
)
def test_completion_options_as_people_type_them(line: str, sent: dict[str, object]) -> None:
    """A LiteLLM option can be typed with its own name. Its value is read as JSON, a Python literal or a variable."""
    names = {"TEMP": 0.25, "N": np.int64(7), "STOPS": ["x"], "MY_KEY": "sk-abcdefgh", "NO_NUMBER": np.nan}
    assert config_of(line, **names).options.completion_kwargs == sent


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--system hello", "there is no --system; write --instructions"),
        ("-temperature 0", "-temperature wants two dashes; write --temperature"),
        ("-max_turns=3", "-max_turns wants two dashes; write --max-turns"),
        ("-model x", "-model wants two dashes; write --model"),
        ("--max_iterations 3", "there is no --max_iterations; write --max-turns"),
        (
            "--temperature",
            "--temperature wants a value; write --temperature VALUE, or --set temperature=VALUE",
        ),
        ("--temperature --as r", "--temperature wants a value; write --temperature VALUE, or"),
        (
            "--set stop=[END]",
            "--set stop: [END] is neither JSON nor the name of a variable with such a value; write a text in two",
        ),
        (
            "--set temperature={{nope}}",
            "--set temperature: {{nope}} is neither JSON nor the name of a variable with such a value;",
        ),
        (
            "--set temperature={{thing}}",
            "--set temperature: {{thing}} is neither JSON nor the name of a variable",
        ),
        ("--on-limit anwser", 'on_limit must be "stop" or "answer", got \'anwser\''),
        ("--images x", 'images must be "auto", "always" or "never", got \'x\''),
        ("--on-unattended never", 'on_unattended must be "deny", "allow" or "error", got \'never\''),
        ("--timeout 0", "timeout must be > 0 seconds, got 0"),
        ("--max-model-calls x", "max_model_calls must be a whole number, got str 'x'"),
        ("--max-turns 2.5", "max_turns must be a whole number or None, got float 2.5"),
        ("--max-cost thing", "max_cost must be an amount of US dollars or None, got str 'thing'"),
        ("--append=1", "--append takes no value; write --append"),
        (
            "--set max_tokens=10,000",
            "--set max_tokens: 10,000 is not a number: write a number without a comma, such as 10000 or 0.5",
        ),
        (
            "--temperature 0,5",
            "--set temperature: 0,5 is not a number: write a number without a comma, such as 10000 or 0.5",
        ),
        (
            "--set temperature=$thing",
            "--set temperature: $thing is not a variable: write thing, or {{thing}}",
        ),
        (
            "--set temperature={thing}",
            "--set temperature: {thing} is not a variable: write thing, or {{thing}}",
        ),
        ("--fallbacks x", "there is no --fallbacks; write --fallback"),
        ("--fallback", "--fallback wants a value; write --fallback MODEL"),
        ("--budget 0", "budget must be > 0 US dollars, got 0"),
    ],
)
def test_a_value_that_is_none_is_said_at_once(line: str, message: str) -> None:
    """Each value is checked when it is typed. The message names the value, and says what is allowed or what to write."""
    with pytest.raises(Mistake) as caught:
        config_of(line, thing=object())
    assert str(caught.value).startswith(message)


def test_numbers_and_texts_of_the_notebook() -> None:
    """A variable can hold a number or a list of tools. `{{name}}` is replaced in --instructions."""
    config = config_of(
        "--max-turns LIMIT --timeout 1_0 --max-cost .5 -i 'Be {{how}}. {{x}}' -t TOOLS",
        LIMIT=3,
        how="kind",
        TOOLS=[len_of],
    )
    assert (config.limits.max_turns, config.limits.timeout, config.options.max_cost) == (3, 10.0, 0.5)
    assert config.instructions == "Be kind. {{x}}"
    assert [tool.name for tool in config.tools] == ["len_of"]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("images", "x", 'images must be "auto", "always" or "never", got \'x\''),
        ("ask", "x", 'ask must be "auto", "card" or "input", got \'x\''),
        ("max_turns", 0, "max_turns must be >= 1, got 0"),
        ("concurrency", 0, "concurrency must be >= 1, got 0"),
        ("timeout", "soon", "timeout must be a number of seconds or None, got str 'soon'"),
        ("tools", 5, "tools must be a list of words or None, got int 5"),
        ("keep_history", "yes", "keep_history must be True or False, got str 'yes'"),
        ("model", 5, "model must be text or None, got int 5"),
    ],
)
def test_a_setting_that_is_none_is_refused(name: str, value: object, message: str) -> None:
    """`%config ToolLoop.x = …` accepts the same values as the option. A wrong value is an error of one line, and nothing is
    set.
    """
    settings = ToolLoop()
    with pytest.raises(Mistake) as caught:
        setattr(settings, name, value)
    assert (str(caught.value), settings.list_changed()) == (message, {})


def test_settings_are_read_as_options_are() -> None:
    """A configuration file or a command line may give a number, a list, True or False as text. None and "" restore the
    default. `reset` keeps only `ask`, which has no flag.
    """
    settings: Any = ToolLoop()
    settings.max_turns, settings.tools, settings.timeout, settings.ask = "3", "a,b", 5, "input"
    settings.times = "False"
    assert settings.list_changed() == {
        "max_turns": 3,
        "tools": ["a", "b"],
        "timeout": 5.0,
        "ask": "input",
        "times": False,
    }
    settings.max_turns, settings.tools, settings.times = None, "", True
    assert settings.list_changed() == {"timeout": 5.0, "ask": "input"}
    settings.reset()
    assert settings.list_changed() == {"ask": "input"}


@pytest.mark.parametrize("place", [0, len(OPTIONS)], ids=["first row", "last row"])
def test_an_option_is_one_row(monkeypatch: pytest.MonkeyPatch, place: int) -> None:
    """One row for `--dice` is enough: there is a flag, a help text, a line of the page, a completion for Tab, and an argument
    of the API.
    """
    row = Option(
        "--dice", Kind.NUMBER, "N", keyword="options.completion_kwargs.seed", help="the same luck again"
    )
    for module in (options, cell, names_module, options_page):
        monkeypatch.setattr(module, "OPTIONS", (*OPTIONS[:place], row, *OPTIONS[place:]))
    test_every_row_fits_the_api()
    assert "  --dice N                             the same luck again" in list_options()
    assert (
        "| `--dice N` | the same luck again | | | | `options=ToolLoopOptions(completion_kwargs={'seed': …})` |"
        in make_page().replace("  ", " ")
    )
    assert "--dice" in names_module.find_candidates("%%toolloop --d", "--d", {})
    given = config_of("--dice 3 --set top_p=.5").options.completion_kwargs
    assert (repr(given["seed"]), given["top_p"]) == ("3", 0.5)
    with pytest.raises(Mistake, match="dice must be a whole number or None, got float"):
        parse("--dice 2.5")


def test_set_in_a_cell_wins_over_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting for a completion option is sent, unless the cell has `--set` for the same option."""
    row = Option("--dice", Kind.NUMBER, "N", keyword="options.completion_kwargs.seed", scope="notebook")
    monkeypatch.setattr(cell, "OPTIONS", (*OPTIONS, row))
    settings: Any = ToolLoop()
    shell = Shell()  # `Notebook` has only a weak reference to it
    book = cell.Notebook(shell, settings)
    complete = ToolLoop.complete
    monkeypatch.setattr(ToolLoop, "complete", lambda self, typed: {**complete(self, typed), "dice": 7})

    def sent(line: str) -> Any:
        return book.new_session(parse(line)).config.options.completion_kwargs

    assert sent("") == {"seed": 7}
    assert sent("--set seed=9 --set top_p=1") == {"seed": 9, "top_p": 1}


def test_every_row_fits_the_api() -> None:
    """Each `keyword` exists in the API, and the defaults are those of ToolLoopOptions."""
    shared, of_rows = inspect.signature(aagent).parameters, inspect.signature(amap).parameters
    fields = vars(ToolLoopOptions())
    for option in options.OPTIONS:
        keyword, *path = option.keyword.split(".")
        assert not keyword or keyword in (of_rows if option.is_of_rows else shared)
        assert not option.is_of_rows or not keyword or option.default == of_rows[keyword].default
        assert not path or path[0] in fields
        assert len(path) != 1 or option.default == fields[path[0]] or option.kind in (Kind.PAIRS, Kind.MODELS)


def test_the_page_of_options_is_made_from_the_table(repository: Path) -> None:
    """docs/options.md is equal to the page that `./dev docs` writes."""
    page = repository / "docs" / "options.md"
    assert page.read_text("utf-8") == make_page(), "run ./dev docs"


def test_tab_knows_the_kind_of_a_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tab offers files, folders, words to choose from, or variables with a key, depending on the option."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOME_API_KEY", "x")
    (tmp_path / "tapes").mkdir()
    (tmp_path / "take.jsonl").touch()
    shell = Shell(MY_TOKEN="x", n=1)

    def offered(typed: str) -> list[str]:
        return list(
            names_module.find_candidates(f"%%toolloop {typed}", typed.rpartition(" ")[2], shell.user_ns)
        )

    assert offered("--record ta") == ["take.jsonl", "tapes"]
    assert offered("--sandbox ta") == ["tapes"]
    assert offered("--attach ta") == ["take.jsonl", "tapes"]
    assert "n" in offered("--attach ")
    assert offered("--on-limit ") == ["answer", "stop"]
    assert {"MY_TOKEN", "SOME_API_KEY"} <= set(offered("--api-key "))
    assert "n" not in offered("--api-key ")
    assert offered("--timeout ") == []


def test_tab_offers_what_can_be_a_policy_and_what_can_be_a_tool() -> None:
    """For --permissions, Tab offers the modes, mappings of tools to modes, and functions that are not tools. For --tools, it
    also offers lists of functions.
    """

    def rule(call: Any) -> str:
        return "ask"

    shell = Shell(
        add=tool(len_of),
        rule=rule,
        some={"add": "ask"},
        facts={"a": 1},
        n=1,
        open=open,
        Out={},
        TOOLS=[len_of],
    )

    def offered(typed: str) -> dict[str, str]:
        return names_module.find_candidates(f"%%toolloop {typed}", typed.rpartition(" ")[2], shell.user_ns)

    assert list(offered("--permissions ")) == ["ask", "full", "rule", "some"]
    assert offered("-t ") == dict.fromkeys(["TOOLS", "add", "rule"], "function")
    assert set(offered("--").values()) == {"option"}


def test_commands_come_before_options() -> None:
    """After `%toolloop `, Tab offers the commands first, with the type "command". After a command that takes a session, it
    offers sessions.
    """
    offered = names_module.find_candidates("%toolloop ", "", {})
    assert list(offered)[:3] == ["doctor", "export", "history"]
    assert (offered["show"], offered["--api-base"]) == ("command", "option")
    assert names_module.find_candidates("%toolloop show ", "", {}, ["talk"]) == {"talk": "value"}
    assert names_module.find_candidates("%toolloop nest ", "", {}, ["talk"]) == {}


@pytest.mark.parametrize(
    ("message", "typed"),
    [
        ("Set the key: api_key=, or else.", "Set the key: --api-key NAME, or else."),
        ("run without: model='toolloop/demo'", "run without: --model toolloop/demo"),
        ("completion_kwargs={'num_retries': 2}.", "--set num_retries=2."),
        ("no such thing: x=, api_key=abc", "no such thing: x=, api_key=abc"),
    ],
)
def test_advice_names_the_option_as_it_is_typed(message: str, typed: str) -> None:
    """A keyword of the API in a message becomes the option of the table. Other words do not change."""
    assert options.replace_keywords(message) == typed


def test_the_extension_is_light() -> None:
    """Loading the extension imports neither pydantic nor litellm: these imports take seconds."""
    code = "import sys, toolloop_jupyter.notebook.magic; print([m for m in ('pydantic', 'litellm') if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "[]\n"
    )
