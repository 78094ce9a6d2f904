"""`%%toolloop` and the API in IPython in a terminal, with a person (pexpect) at the keyboard. IPython itself depends on
pexpect.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

import pytest

from support import stacks
from support.terminals import end_terminal

pexpect = pytest.importorskip("pexpect", reason="IPython brings it where there are terminals")

pytestmark = [pytest.mark.kernel, pytest.mark.terminal]

SET_UP = [
    "%load_ext toolloop_jupyter",
    "import asyncio, time",
    "from toolloop_jupyter import Harness, aagent, agent, agent_session",
    "def double(x: int) -> int: 'Double a number.'; return 2*x",
    "def slow(x: int) -> int: 'Slow.'; time.sleep(300); return x",
    "async def step(x: int) -> int: 'Step.'; ran.append(x); print('stepping'); await asyncio.sleep(0.3); return x",
    "from toolloop_jupyter.teaching.scripted import ScriptedModel, call",
    "twice = ScriptedModel(call('double', x=1), call('double', x=2), 'end')",
    "late = ScriptedModel(call('slow', x=1), 'end')",
    "def steps(): return {'model': ScriptedModel(*[call('step', x=n) for n in range(30)], 'end'), 'tools': [step]}",
    "def asks(): return {'model': twice, 'tools': [double], 'permissions': 'ask'}",
    "evil = ScriptedModel('a\\x1b]0;title\\x07b\\x1b[2Jc')",
]


class Terminal:
    """IPython with its simple prompt. Cells are typed one at a time."""

    def __init__(self, python, home, **options) -> None:
        self.number = 1
        self.child = pexpect.spawn(
            python,
            ["-m", "IPython", "--simple-prompt", "--no-banner", "--colors=NoColor", "--no-confirm-exit"],
            env={**os.environ, "IPYTHONDIR": str(home), "TERM": "dumb"},
            encoding="utf-8",
            timeout=120,
            dimensions=(50, 120),
            **options,
        )
        self.prompt()

    def prompt(self, timeout: float = 120) -> str:
        """Wait for the next prompt. Return what was printed before it."""
        self.child.expect_exact(f"In [{self.number}]: ", timeout=timeout)
        self.number += 1
        return self.child.before

    def press_ctrl_c_at(self, question: str) -> str:
        """Press Ctrl-C at a question. Return what is printed from there to the next prompt.

        Python's own `input()` misses a signal between its prompt and its read. A person then presses again, and so does this
        method.
        """
        self.child.expect_exact(question)
        for _ in range(5):
            time.sleep(1.0)
            self.child.sendintr()
            with contextlib.suppress(pexpect.TIMEOUT):
                return self.prompt(timeout=20)
        return self.prompt()

    def run(self, line: str) -> str:
        self.child.sendline(line)
        return self.prompt()

    def type_cell(self, *lines: str) -> None:
        """Type a cell. In the simple prompt, two blank lines end it."""
        self.child.sendline(lines[0])
        for line in (*lines[1:], "", ""):
            self.child.expect_exact("...: ")
            self.child.sendline(line)

    def answer(self, text: str) -> None:
        """Answer the open request for approval."""
        self.child.expect_exact("[a]ll of this tool in this run")
        self.child.expect_exact("[?]: ")
        self.child.sendline(text)


@pytest.fixture(scope="module", params=["here", pytest.param("py310", marks=pytest.mark.stacks)])
def terminal(request, tmp_path_factory):
    """IPython with the extension and some tools, in two versions: that of the tests (9), and the IPython 8 of a stack."""
    older = {stack.name: stack for stack in stacks.STACKS}.get(request.param)
    python = stacks.build(older).python if older else sys.executable
    started = Terminal(python, tmp_path_factory.mktemp("ipython"))
    for line in SET_UP:
        assert "Error" not in started.run(line)
    yield started
    end_terminal(started.child)


def test_a_run_reads_well_as_text(terminal):
    """The run is shown as text. The Result is the cell's value, in one short line."""
    terminal.type_cell("%%toolloop -t double --as r", "Double 21")
    shown = terminal.prompt()
    assert "double(x=21)" in shown
    assert "42" in shown
    assert "done · 2 model calls · 1 tool call" in shown
    assert "<Result: done, 1 tool call>" in shown
    assert "\x1b" not in shown.replace("\x1b[?2004", "")


@pytest.mark.parametrize(
    ("answers", "values"),
    [
        (["y", "y"], "[2, 4]"),
        (["a"], "[2, 4]"),
        (["n wrong number", "y"], "[None, 4]"),
        (["what?", "y", "yes"], "[2, 4]"),
    ],
)
def test_approvals_at_the_prompt(terminal, answers, values):
    """The key y allows, a allows all calls, n with a reason denies. For any other answer, the question is asked again."""
    terminal.run("twice.reset()")
    terminal.type_cell("%%toolloop --model twice -t double -p ask --as r", "go")
    for word in answers:
        terminal.answer(word)
    terminal.prompt()
    assert values in terminal.run("print([t.value for t in r.tool_results])")
    if answers[0].startswith("n"):
        assert "denied by the user: wrong number" in terminal.run("print(r.tool_results[0].output)")


def test_edit_at_the_prompt(terminal):
    """After e, the prompt asks for each argument, and validates the typed values."""
    terminal.run("twice.reset()")
    terminal.type_cell("%%toolloop --model twice -t double -p ask --as r", "go")
    terminal.answer("e")
    terminal.child.expect_exact("x [1]: ")
    terminal.child.sendline('"no number"')
    terminal.child.expect_exact("not valid:")
    terminal.answer("e")
    terminal.child.expect_exact("x [1]: ")
    terminal.child.sendline("50")
    terminal.answer("y")
    terminal.prompt()
    assert "[100, 4]" in terminal.run("print([t.value for t in r.tool_results])")


@pytest.mark.parametrize("where", ["tool", "prompt"])
def test_ctrl_c_ends_the_turn_and_not_ipython(terminal, where):
    """Ctrl-C cancels the turn, with one line. The next run answers."""
    terminal.run("late.reset()")
    terminal.type_cell(
        f"%%toolloop --model late -t slow --as r {'-p ask' if where == 'prompt' else ''}", "go"
    )
    shown = terminal.press_ctrl_c_at("[?]: " if where == "prompt" else "tools slow")
    assert "Traceback" not in shown
    assert "cancelled" in terminal.run("print(r.stop_reason)")
    terminal.type_cell("%%toolloop -t double --as r", "Double 3")
    assert "done ·" in terminal.prompt()


def test_ctrl_c_at_a_step(terminal):
    """Ctrl-C at a step's prompt stops the run before anything is sent, as s does."""
    terminal.type_cell("%%toolloop --step -t double --as r", "go")
    assert "stopped · " in terminal.press_ctrl_c_at("s to stop: ")
    assert "cancelled 0" in terminal.run("print(r.stop_reason, r.usage.calls)")


WAYS = {
    "sync": "r = agent(Harness.TOOL_LOOP, 'go', **{})",
    "awaited": "r = await aagent(Harness.TOOL_LOOP, 'go', **{})",
    "session": "r = await agent_session(Harness.TOOL_LOOP, **{}).arun('go')",
    "task": "r = await asyncio.create_task(agent_session(Harness.TOOL_LOOP, **{}).arun('go'))",
}


@pytest.mark.parametrize("way", ["sync", "awaited"])
def test_the_api_asks_at_the_prompt(terminal, way):
    """`permissions="ask"` asks in the same way as a cell: y, e, and n with a reason."""
    terminal.run("twice.reset()")
    terminal.child.sendline(WAYS[way].format("asks()"))
    terminal.answer("e")
    terminal.child.expect_exact("x [1]: ")
    terminal.child.sendline("50")
    terminal.answer("n wrong number")
    assert "denied at the prompt" in terminal.prompt()
    assert "[100, None]" in terminal.run("print([t.value for t in r.tool_results])")


@pytest.mark.parametrize("way", list(WAYS))
def test_ctrl_c_ends_a_run_of_the_api(terminal, way):
    """Ctrl-C ends the cell with one line, and the run, too: its tools do not continue during a later cell."""
    terminal.run("ran = []")
    terminal.child.sendline(WAYS[way].format("steps()"))
    terminal.child.expect_exact("stepping\r\n")
    terminal.child.sendintr()
    shown = terminal.prompt()
    assert shown.count("the run was stopped") == 1, shown
    # If an error comes from a task, Python 3.10 raises another error, with a traceback.
    if way != "task" or "True" in terminal.run("import sys; print(sys.version_info >= (3, 11))"):
        assert len([line for line in shown.splitlines() if line.strip()]) <= 2, shown
    begun = terminal.run("print('begun', len(ran))").split("begun ")[-1].split()[0]
    terminal.run("await asyncio.sleep(1)")
    assert f"begun {begun}\r" in terminal.run("print('begun', len(ran))")
    assert "done" in terminal.run(
        "print(agent(Harness.TOOL_LOOP, 'go', model=ScriptedModel('again')).stop_reason)"
    )


def test_ctrl_c_at_the_question_of_the_api(terminal):
    """Ctrl-C at the prompt ends the run, and no further question comes."""
    terminal.run("twice.reset()")
    terminal.child.sendline(WAYS["awaited"].format("asks()"))
    shown = terminal.press_ctrl_c_at("[?]: ")
    assert "denied by Stop" in shown
    assert "CancelledError: the run was stopped" in shown
    assert "Run double" not in shown


def test_no_control_sequence_gets_through(terminal):
    """A model's text can neither set the terminal's title nor clear its screen."""
    terminal.type_cell("%%toolloop --model evil", "go")
    shown = terminal.prompt()
    assert "\x1b]0;" not in shown
    assert "\x1b[2J" not in shown
    assert "a" in shown


def test_a_process_that_ignores_ctrl_c_says_so(tmp_path):
    """IPython was started by nohup, or in a script's background. Each awaited run says in a line that Ctrl-C has no effect.

    The doctor says what to type, and this helps. A sync call has its own handler: Ctrl-C ends it, and there is no such line.
    """
    deaf = Terminal(sys.executable, tmp_path, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    try:
        for line in SET_UP:
            assert "Error" not in deaf.run(line)
        warning = "this process ignores Ctrl-C: %toolloop doctor"
        deaf.type_cell("%%toolloop -t double", "Double 3")
        assert deaf.prompt().count(warning) == 1
        deaf.run(
            "from toolloop_jupyter import aagent_session, show; rows = ['a', 'b']; echo = ScriptedModel('hi', repeat_last=True)"
        )
        deaf.run("session = aagent_session(Harness.TOOL_LOOP, model=echo)")
        deaf.type_cell("%%toolloop --each rows --model echo", "{{row}}")
        assert deaf.prompt().count(warning) == 1
        hi = "aagent(Harness.TOOL_LOOP, 'Hi', model=echo{})"
        for run in (hi.format(""), f"show({hi.format(', stream=True')})", "session.arun('Hi')"):
            assert deaf.run(f"x = await {run}").count(warning) == 1
        deaf.run("def loud(x: int) -> int: 'Loud.'; print('has', 'begun'); time.sleep(300); return x")
        deaf.child.sendline(
            "x = agent(Harness.TOOL_LOOP, 'Hi', model=ScriptedModel(call('loud', x=1)), tools=[loud])"
        )
        deaf.child.expect_exact("has begun")
        assert warning not in deaf.child.before
        deaf.child.sendintr()
        shown = deaf.prompt()
        assert "KeyboardInterrupt" in shown
        assert warning not in shown
        examined = "".join(deaf.run("%toolloop doctor").split())
        assert "✗Ctrl-C" in examined
        remedy = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
        assert "".join(remedy.split()) in examined
        deaf.run(remedy)
        deaf.type_cell("%%toolloop --model late -t slow --as r", "go")
        deaf.child.expect_exact("tools slow")
        deaf.child.sendintr()
        assert warning not in deaf.prompt()
        assert "cancelled" in deaf.run("print(r.stop_reason)")
    finally:
        end_terminal(deaf.child)


def test_rows_in_one_line_that_renews_itself(terminal):
    """Many rows are one line while they run. A question is below this line, and the record follows. The value is a short
    line.
    """
    terminal.run("rows = [{'x': n} for n in range(12)]")
    terminal.run(
        "once = lambda m: call('double', x=int(m[-1]['content'])) if m[-1]['content'].strip() == '7' else 'fine'"
    )
    terminal.run("each = ScriptedModel(once, 'told', pace=0.1)")
    terminal.type_cell("%%toolloop --each rows --model each -t double -p ask --as r", "{{x}}")
    terminal.child.expect_exact("? Run double?")
    before = terminal.child.before
    terminal.child.expect_exact("[s]: in all rows, [?]: ")
    terminal.child.sendline("y")
    shown = terminal.prompt()
    assert "\r0 of 12 rows" in before
    assert before.endswith("\r\n\r\n"), "the question begins a line of its own"
    assert "… 2 more rows: r.frame" in shown
    assert "done · 12 of 12 rows" in shown
    assert shown.count("done · 12 of 12 rows") == 1
    assert "<Rows: 12 ended>" in shown
    assert "[14]" in terminal.run("print([t.value for t in r[7].result.tool_results])")


def test_ctrl_c_keeps_the_rows_that_have_ended(terminal):
    """Ctrl-C ends the line and the run. The variable has the ended rows, and the next cell runs."""
    terminal.run("many = [{'x': n} for n in range(500)]")
    terminal.run("from toolloop_jupyter.teaching.scripted import pause")
    terminal.run(
        "each = ScriptedModel(lambda m: [pause(300), 'late'] if int(m[-1]['content']) >= 40 else 'fine', pace=0.1)"
    )
    terminal.type_cell("%%toolloop --each many --model each --as r", "{{x}}")
    terminal.child.expect(r"\r(?:[1-9]\d) of 500 rows")
    terminal.child.sendintr()
    shown = terminal.prompt()
    assert "the run was stopped · " in shown
    assert "Traceback" not in shown
    assert "True" in terminal.run("print(8 <= len(r) < 500 and r.message == 'the run was stopped')")
