"""The first mistakes of a beginner, in a live kernel without a key: for each, one line says what to type next."""

from __future__ import annotations

import pytest

from support.kernels import LiveKernel

pytestmark = pytest.mark.kernel

SET_UP = '''
%load_ext toolloop_jupyter
import pydantic
from toolloop_jupyter import Harness, aagent, agent, show
from toolloop_jupyter.teaching.scripted import ScriptedModel
from toolloop_jupyter.teaching.scripted import call, error, expect, text

def double(x: int) -> int:
    """Double a number."""
    return 2 * x

class Book(pydantic.BaseModel):
    title: str

number = 5
momo = Book(title="Momo")
MODEL = "toolloop/demo"
weather = ScriptedModel([expect("weather"), "Sunny."])
broken = ScriptedModel(lambda messages: messages[5]["content"])
'''
NO_KEY = dict.fromkeys(
    ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "TOOLLOOP_MODEL")
)


@pytest.fixture(scope="module")
def kernel():
    """A kernel without keys, in which the first cells have run."""
    with LiveKernel(env=NO_KEY) as live:
        assert live.execute(SET_UP).status == "ok"
        live.execute("%%toolloop --model MODEL\nhi", timeout=120)  # imports litellm
        yield live


def last_line(kernel, cell):
    """Return the error of a cell. It must be one line (a difference may have a few), and nothing else may be shown."""
    done = kernel.execute(cell)
    assert done.status == "error", done.text
    assert "Traceback" not in done.text
    assert done.stdout == ""
    assert done.stderr == "", "no noise of other libraries"
    return done.outputs[-1].text


A_KEY = (
    "There is no key for '{}'. Set the environment variable {}, in a cell: import os, getpass; os.environ["
)
MISTAKES = [
    # cells in the wrong order
    ("%%toolloop -t search_code\nhi", "toolloop: there is no tool 'search_code' in this notebook; run the cell that defines it first"),
    ("%%toolloop --output Revue\nhi", "toolloop: there is no output model 'Revue' in this notebook; run the cell"),
    ("%%toolloop --model lesson\nhi", "RunFailed: LiteLLM knows no provider for the model 'lesson'. Write provider/name"),
    # keys and names of models
    ("%%toolloop --model openai/gpt-4o\nhi", "RunFailed: " + A_KEY.format("openai/gpt-4o", "OPENAI_API_KEY")),
    ("%%toolloop --model gpt-4o\nhi", "RunFailed: " + A_KEY.format("gpt-4o", "OPENAI_API_KEY")),
    ("%%toolloop --model anthropic/claude-sonnet-4-5\nhi", "RunFailed: " + A_KEY.format("anthropic/claude-sonnet-4-5", "ANTHROPIC_API_KEY")),
    ("%%toolloop --model claude-sonnet-4-5\nhi", "RunFailed: " + A_KEY.format("claude-sonnet-4-5", "ANTHROPIC_API_KEY")),
    ("%%toolloop --model gemini/gemini-2.5-flash\nhi", "RunFailed: " + A_KEY.format("gemini/gemini-2.5-flash", "GEMINI_API_KEY")),
    ("%%toolloop --model opnai/gpt-4o\nhi", "RunFailed: LiteLLM knows no provider for the model 'opnai/gpt-4o'. Did you mean 'openai/gpt-4o'?"),
    ("%%toolloop --model litellm_proxy/coder\nhi", "toolloop: litellm_proxy/ models need the gateway URL"),
    ("%%toolloop --model double\nhi", "toolloop: 'double' is a function, not a model"),
    ("%%toolloop --model toolloop/dmo\nhi", "RunFailed: NotFoundError: no model 'toolloop/dmo' in this process; did you mean 'toolloop/demo'?"),
    # objects that are not tools, and objects that are not output models
    ("%%toolloop -t Book\nhi", "toolloop: 'Book' is a class, and a tool is a function; for answers of this type: --output Book"),
    ("%%toolloop -t double()\nhi", "toolloop: there is no tool 'double()' in this notebook; did you mean 'double'?"),
    ("%%toolloop -t number\nhi", "toolloop: 'number' is an int, not a tool"),
    ("%%toolloop --output double\nhi", "toolloop: 'double' is a function, not an output model"),
    ("%%toolloop --output momo\nhi", "toolloop: 'momo' is a Book, not an output model"),
    ("agent(Harness.TOOL_LOOP, 'hi', model=MODEL, tools=double)", "ToolDefinitionError: tools= takes a list of functions, for example tools=[double]"),
    ("agent(Harness.TOOL_LOOP, 'hi', model=MODEL, tools=['double'])", "ToolDefinitionError: a tool is a function: the function itself, without quotes"),
    # where the prompt goes
    ("%toolloop -t double\nDouble 3", "toolloop: %toolloop takes no prompt; with two percent signs, %%toolloop"),
    ("%toolloop Please double 3", "toolloop: %toolloop takes no prompt; begin a cell with %%toolloop"),
    ("%%toolloop Please double 3", "toolloop: 'Please' is not an option; the prompt goes below this line"),
    ("%%toolloop -t double Please double 3", "toolloop: the prompt is empty; write below the %%toolloop line"),
    ("# the lesson\n%%toolloop -t double\nDouble 3", "toolloop: %%toolloop must be the first line of its cell"),
    ("x = 1\n%%toolloop -t double\nDouble 3", "toolloop: %%toolloop must be the first line of its cell"),
    # the option line
    ("%%toolloop -i You are kind -t double\nhi", 'toolloop: a text of several words needs quotes: -i "You are kind"'),
    ('%%toolloop -i "You are kind -t double\nhi', "toolloop: a quote is not closed in:"),
    ("%%toolloop -p Ask -t double\nhi", "toolloop: --permissions takes full, ask or the variable of a policy, not 'Ask'; did you mean ask?"),
    ("%%toolloop --system hello\nhi", "toolloop: there is no --system; write --instructions"),
    ("%%toolloop --on-limit anwser\nhi", """toolloop: on_limit must be "stop" or "answer", got 'anwser'"""),
    ("%%toolloop --temperature\nhi", "toolloop: --temperature wants a value; write --temperature VALUE"),
    ("%%toolloop --set stop=[END]\nhi", "toolloop: --set stop: [END] is neither JSON nor the name of a variable with such a value; write a text"),
    ("%toolloop --timeout 0", "toolloop: timeout must be > 0 seconds, got 0"),
    ("%%toolloop --help\nhi", "toolloop: %%toolloop? in a separate cell shows the options"),
    # scripts
    ("%%toolloop --model weather\nDouble 3", "RunFailed: turn 1 of weather does not fit: it expects a last message with the text 'weather', but the last message is from 'user': 'Double 3'."),
    ("%%toolloop --model broken\nhi", "RunFailed: turn 1 of broken: <lambda> raised IndexError: list index out of range"),
    ("ScriptedModel('ok', 5)", "ScriptError: turn 2 of the script: a turn is a text, a part such as call('f', x=1)"),
    ("ScriptedModel(call)", "ScriptError: turn 1 of the script: call is a function; call it: call(…)"),
    # await
    ("show(aagent(Harness.TOOL_LOOP, 'hi', model=MODEL))", "toolloop: show() takes a stream, not a run without stream=True"),
]  # fmt: skip


@pytest.mark.parametrize(("cell", "told"), MISTAKES, ids=[cell[:40] for cell, _ in MISTAKES])
def test_one_line_that_helps(kernel, cell, told):
    """The cell fails with this line. Beside it, only the first and the last line of the run are shown."""
    assert last_line(kernel, cell).startswith(told)


def test_a_failed_run_says_why_once(kernel):
    """The reason is the cell's error. The transcript does not repeat it."""
    done = kernel.execute("%%toolloop --model openai/gpt-4o --as failed\nhi")
    assert done.text.count("There is no key") == 1
    assert "There is no key" in kernel.execute("print(failed.error)").stdout


def test_a_forgotten_await_says_so(kernel):
    """Without await, `aagent()` says what to write, both as a cell's value and when its answer is read."""
    said = kernel.execute("later = aagent(Harness.TOOL_LOOP, 'hi', model=MODEL)\nlater")
    assert said.value == "<nothing has run yet: write `await aagent(…)`>"
    assert "so there is no .text: write `await aagent(…)`" in kernel.execute("later.text").outputs[-1].text
    assert kernel.execute("print((await later).stop_reason)").stdout == "done\n"


def test_asyncio_run_says_what_to_write_instead(kernel):
    """`asyncio.run(aagent(…))` fails with Python's error, and a line of ours. For other code, there is only Python's error."""
    hint = "toolloop: a notebook's event loop is running already: write `await aagent(…)`, or call agent(…), which waits by itself.\n"
    kernel.execute("import asyncio\nasync def other():\n    pass")
    assert kernel.execute("asyncio.run(aagent(Harness.TOOL_LOOP, 'hi', model=MODEL))").stderr == hint
    assert hint not in kernel.execute("asyncio.run(other())").stderr


def test_a_check_prints_nothing_or_one_line(kernel):
    """A check that passes shows nothing at the end of a cell. A check that fails shows its line, and no code of the package."""
    assert kernel.execute("%%toolloop -t double --as checked\nDouble 4").status == "ok"
    assert kernel.execute("checked.assert_called(double, x=4)").outputs == []
    line = last_line(kernel, "checked.assert_called(double, x=5)")
    assert line == "AssertionError: expected a call of double with x=5; the model called: double(x=4)"


def test_cells_that_only_look_like_ours_are_left_alone(kernel):
    """These run unchanged: Python code with our magic in a text or a comment, a line magic inside code, and other cell
    magics.
    """
    for cell, printed in (
        ('t = """\n%%toolloop\nhi\n"""\nprint(len(t))', "15\n"),
        ("%toolloop --tools double\nx = 3\nprint(x)", "3\n"),
        ("# %%toolloop\nprint(1)", "1\n"),
        ("%%capture c\n%toolloop\nx = 1", ""),
    ):
        done = kernel.execute(cell)
        assert done.status == "ok", done.text
        assert done.stdout.endswith(printed)
    kernel.execute("%toolloop reset")


def test_a_script_that_is_over_says_how_to_go_on(kernel):
    """At the end of a script, the error names its variable and says what to do. If the model is made again, it starts again,
    also in a session.
    """
    make = "lesson = ScriptedModel([text('I look. '), call(double, x=4)], 'It is 8.', 'As I said.')"
    kernel.execute(make)
    assert "It is 8." in kernel.execute("%%toolloop --model lesson -t double -s class\nDouble 4").text
    assert "As I said." in kernel.execute("%%toolloop -s class\nAgain?").text
    assert last_line(kernel, "%%toolloop -s class\nAnd now?") == (
        "RunFailed: the script of lesson is over: it has 3 turns, and this is model call 4; the last message is from "
        "'user': 'And now?'.\nAdd a turn, or start the script again: run the cell that makes the model, or call lesson.reset()."
    )
    kernel.execute(make)
    assert "It is 8." in kernel.execute("%%toolloop -s class\nDouble 4").text


def test_the_head_names_the_script_by_its_variable(kernel):
    """The transcript is the same each time the model is made again: it has no numbers of this kernel."""
    kernel.execute("story = ScriptedModel('Once.')")
    shown = kernel.execute("%%toolloop --model story --as told\nGo")
    assert shown.text.startswith("story\n")
    assert "scripted-" not in shown.text + shown.html
    assert "scripted-" not in kernel.execute("told").html


def test_a_session_keeps_what_its_first_cell_said(kernel):
    """Tools, model and permissions of the first cell hold for the session. If a later cell names others, a line says which
    are new and which are gone.
    """
    kernel.execute("def half(x: float) -> float:\n    'Halve.'\n    return x / 2")
    kernel.execute("%%toolloop -s talk -t double -p ask\nDouble 2")
    again = kernel.execute("%%toolloop -s talk\nDouble 3")
    assert "tools double · ask · session talk" in again.text
    other = kernel.execute("%%toolloop -s talk -t half -p full\nHalf 3")
    assert "session 'talk' had other tools before; it no longer has: double" in other.text
    assert "half(x=3)" in kernel.execute("%%toolloop -s talk\nHalf 3").text
