"""The option line: what is understood, and what a mistake says."""

from __future__ import annotations

import pytest

from toolloop_jupyter import Harness, ToolLoopOptions, aagent
from toolloop_jupyter.core.events.errors import ArgumentInvalid, Mistake
from toolloop_jupyter.notebook.magic.options import OPTIONS, help_text, parse, read_pairs


def test_all_options_are_read() -> None:
    """Each option fills its field."""
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
    """JSON, or what Python writes and JSON can hold; else text, as NaN is."""
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
    """An empty line leaves every default alone."""
    assert parse("") == {}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--tool x", "unknown option --tool; did you mean --tools?"),
        ("--permision ask", "unknown option --permision; did you mean --permissions?"),
        (
            "--set model=other",
            "--set model=… has no effect, the run sets it itself; use --model",
        ),
        ("--set x", "--set wants key=value, got 'x'"),
        (
            "--max-turns many",
            "max_turns must be a whole number or None, got str 'many'",
        ),
        ("--model", "argument -m/--model: expected one argument. %%toolloop? shows the options."),
        ('--instructions "open', 'a quote is not closed in: --instructions "open'),
        ("--as r # a note", "'#' is not an option; the prompt goes below this line, options begin with --"),
        ("--", "'--' is not an option; the prompt goes below this line, options begin with --"),
        ("--instructions be brief", 'a text of several words needs quotes: --instructions "be brief"'),
        ("--as r \\", "the options are one line: it cannot go on behind a \\ at its end"),
        ("Review this", "'Review' is not an option; the prompt goes below this line, options begin with --"),
    ],
)
def test_a_mistake_is_one_line(line: str, message: str) -> None:
    """A mistake names what was wrong and what to type."""
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
    """A message that repeats what was typed leaves out what looks like a key, and all behind --api-key."""
    with pytest.raises(Mistake) as caught:
        parse(line.format("sk-abc123def456ghi789"))
    assert "abc123" not in str(caught.value)


def test_blanks_of_a_web_page_separate_words() -> None:
    """An example copied from a page may have no-break spaces between its words."""
    assert parse("--as\u00a0r --model m")["as"] == "r"


def test_help_has_every_option() -> None:
    """`%%toolloop?` documents every field."""
    text = help_text()
    for option in OPTIONS:
        assert all(flag in text for flag in option.typed)
        assert not option.typed or option.explanation in text


def test_set_cannot_take_a_run_elsewhere() -> None:
    """`--set fallbacks=…` ends in one line that names it and what to do instead, before anything starts."""
    kwargs = read_pairs(parse("--set 'fallbacks=[\"openai/other\"]'")["set"], "--set")
    with pytest.raises(ArgumentInvalid) as caught:
        aagent(Harness.TOOL_LOOP, "Go.", model="toolloop/demo", options=ToolLoopOptions(kwargs))
    (line,) = caught.value._render_traceback_()
    assert line.startswith(
        "ValueError: fallbacks in completion_kwargs (--set) is refused: it would take the conversation"
    )
    assert line.endswith("; run again with another model=, or try the same one again with num_retries")
