"""`%%toolloop --each` in a live kernel: the run, its mistakes, Stop and ■, its approvals, and the number of its messages."""

from __future__ import annotations

import re
import time

import pytest

from support.kernels import LiveKernel
from support.pace import Pace

pytestmark = pytest.mark.kernel

SET_UP = '''
%load_ext toolloop_jupyter
from dataclasses import dataclass
from toolloop_jupyter.teaching import ScriptedModel, call, error, pause

def last(messages):
    return str(messages[-1]["content"])

def say(messages):
    """The answer to a row; those with "broke" in them fail."""
    said.append(last(messages))
    return error("it cannot be read", 400) if "broke" in said[-1] else said[-1]

def double(x: int) -> int:
    """Double a number."""
    runs.append(x)
    return 2 * x

said, runs = [], []
reviews = [{"product": f"lamp {n}", "text": "it broke" if n == 3 else f"fine {n}"} for n in range(12)]
thousand = [{"text": str(n)} for n in range(1000)]
model, quick, slow = ScriptedModel(say), ScriptedModel([pause(0.05), last]), ScriptedModel([pause(0.4), say])
asking = ScriptedModel(lambda messages: call("double", x=int(last(messages))), last)
'''
EACH = "%%toolloop --each reviews --model model --as got"


@pytest.fixture(scope="module")
def kernel():
    """One kernel for this module, with rows, models and a tool."""
    with LiveKernel() as live:
        done = live.execute(SET_UP)
        assert (done.status, done.stderr) == ("ok", "")
        yield live


@pytest.fixture(autouse=True)
def fresh(kernel):
    """Before the test, nothing of another test's run is left."""
    assert kernel.execute("said.clear(); runs.clear(); got = None").status == "ok"
    yield
    assert kernel.open_widgets() == [], "a finished run leaves no widget"


def test_a_run_for_each_row(kernel):
    """A column comes before a variable, and a variable is replaced. A row that fails is in the value. The value is not shown
    twice.
    """
    kernel.execute("tone, text = 'short', 'not this'")
    done = kernel.execute(f"{EACH}\nIn a {{{{tone}}}} way: {{{{product}}}}, {{{{text}}}}", allow_stdin=True)
    assert done.status == "ok", done.text
    assert done.value is None
    lines = done.text.splitlines()
    assert lines[0] == "model"
    assert lines[1].startswith('✓ 0  product="lamp 0", text="fine 0"  → In a short way: lamp 0, fine 0')
    assert lines[4].startswith("✗ 3 ")
    assert "it cannot be read" in lines[4]
    assert lines[6] == "… 2 more rows: got.frame"
    assert lines[-1].startswith("done · 12 of 12 rows · 1 failed · ")
    assert len(done.outputs) == 1, "one block"
    facts = "print(len(got), [row.number for row in got.failed], got.frame.shape, _ is got, type(got[3]).__name__)"
    assert kernel.execute(facts).stdout == "12 [3] (12, 6) True Row\n"
    again = kernel.execute("got")
    assert "✗ 3 " in again.text
    assert "got.frame" not in again.text, "a value does not know its variable"
    assert "In a short way" in kernel.execute("got[0].result").text, "the whole transcript of a row"


def test_a_dry_run_sends_nothing(kernel, tmp_path):
    """A dry run shows the request of the first row, the number of rows, and an estimate of the tokens. Nothing is run,
    recorded or stored, and no variable is set.
    """
    files = f"--record {tmp_path.as_posix()}/tape.jsonl --store {tmp_path.as_posix()}/rows.jsonl"
    done = kernel.execute(f"{EACH} --tools double --dry-run {files}\nSay {{{{product}}}}.")
    assert list(tmp_path.iterdir()) == []
    assert "would be sent to model: 1 message, 1 tool" in done.text
    assert "Say lamp 0." in done.text
    assert "12 rows; the first request has about" in done.text
    assert kernel.execute("print(said, got)").stdout == "[] None\n"
    none = kernel.execute("empty = []\n").status
    assert (
        none,
        "there is no row" in kernel.execute("%%toolloop --each empty --model model --dry-run\nhi").text,
    ) == ("ok", True)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--each revews", "there is no table 'revews' in this notebook; did you mean 'reviews'?"),
        ("--each model", "'model' is a ScriptedModel, not a table"),
        ("--each reviews --concurrency 0", "concurrency must be >= 1, got 0"),
        ("--each reviews --on-error ignore", 'on_error must be "continue" or "stop", got \'ignore\''),
        (
            "--each reviews --session s",
            "--session does not go with --each: each row is a conversation of its own",
        ),
        ("--each reviews --step", "--step does not go with --each"),
        ("--each reviews --attach x.png", "--attach does not go with --each: a row sends only the text"),
        ("--each reviews --executor model", "'model' is a ScriptedModel, not an executor"),
        ("--each reviews --max-cost 0", "max_cost must be > 0 US dollars, got 0"),
        ("--each reviews --as 1x", "--as '1x' is not a variable name"),
        ("--store rows.jsonl", "--store needs --each TABLE (a run for each row of a table)"),
        ("--rows reviews", "there is no --rows; write --each"),
    ],
)
def test_mistakes_are_one_line(kernel, line, message):
    """The message of a mistake says what to type instead, and nothing is sent."""
    done = kernel.execute(f"%%toolloop --model model {line}\nSay {{{{text}}}}.")
    assert (done.status, done.text.startswith(f"toolloop: {message}")) == ("error", True), done.text
    assert "\n" not in done.text
    assert kernel.execute("print(said)").stdout == "[]\n"


def test_an_unknown_name_is_a_mistake(kernel):
    """If a name in the prompt is neither a column nor a variable, nothing is sent."""
    done = kernel.execute(f"{EACH}\nSay {{{{prodct}}}}.")
    assert done.text == "toolloop: {{prodct}} is neither a column nor a variable; did you mean {{product}}?"
    assert kernel.execute("print(said, got)").stdout == "[] None\n"


def test_the_store_is_taken_up(kernel, tmp_path):
    """The next run takes finished rows from the store, and runs failed ones again. It says how many rows of each kind there
    are.
    """
    cell = f"{EACH} --store {tmp_path.as_posix()}/rows.jsonl\nSay {{{{text}}}}."
    assert "from the store" not in kernel.execute(cell).text
    again = kernel.execute(cell)
    assert "done · 12 of 12 rows · 1 failed · 11 from the store · 1 tried again · " in again.text
    assert kernel.execute("print(len(said))").stdout == "13\n"


def test_a_limit_assigns_what_there_is(kernel):
    """With `--on-error stop`, no more rows begin. The variable gets the ended rows, and the block has the reason."""
    done = kernel.execute(f"{EACH} --concurrency 1 --on-error stop\nSay {{{{text}}}}.")
    assert done.status == "ok"
    assert "because row 3 failed" in done.text.splitlines()[-1]
    assert "4 of 12 rows · 1 failed · 8 not run" in done.text
    assert kernel.execute("print(len(got))").stdout == "4\n"


def test_an_end_without_an_answer_is_an_error(kernel):
    """If the first row shows that no row can be answered, the cell fails with one line. The variable is still set."""
    kernel.execute("refused = ScriptedModel(error('no such key', 401))")
    done = kernel.execute("%%toolloop --each thousand --model refused --as got\n{{text}}")
    assert done.status == "error"
    assert "no such key" in done.error
    assert kernel.execute("print(len(got) < 50, 'no such key' in got.message)").stdout == "True True\n"


def test_a_thousand_rows_are_few_messages(kernel):
    """With 32 rows at the same time, the page gets at most twenty messages a second, with and without widgets."""
    for stdin in (True, False):
        before = len(kernel.messages)
        done = kernel.execute(
            "%%toolloop --each thousand --model quick --concurrency 32 --as got\n{{text}}", allow_stdin=stdin
        )
        kinds = ("display_data", "update_display_data", "comm_msg", "stream", "clear_output")
        sent = [one["msg_type"] for one in kernel.messages[before:] if one["msg_type"] in kinds]
        assert done.text.splitlines()[-1].startswith("done · 1,000 of 1,000 rows · ")
        assert len(sent) <= 20 * max(1.0, done.seconds), (len(sent), done.seconds)
        assert len(sent) >= 5 * done.seconds / 2, "and it is not still"


def count_ended(kernel):
    """Return how many of a thousand rows have ended, according to the page."""
    shown = " ".join(str(one.state.get("value")) for one in kernel.open_widgets("HTMLModel"))
    said = re.search(r"([\d,]+) of 1,000 rows", shown)
    return int(said[1].replace(",", "")) if said else 0


@pytest.mark.parametrize("by", ["Stop", "interrupt"])
def test_a_stop_keeps_every_row_that_has_ended(kernel, by):
    """Within half a second after a click on Stop, the cell ends, and the value has each answer that came. ■ does the same."""
    with Pace() as pace:
        cell = kernel.submit(
            "%%toolloop --each thousand --model slow --concurrency 32 --as got\n{{text}}", allow_stdin=True
        )
        button = kernel.button("Stop")
        kernel.wait_until(lambda: count_ended(kernel) >= 32, what="32 rows that have ended")
        began = time.monotonic()
        kernel.click_widget(button) if by == "Stop" else kernel.interrupt()
        kernel.wait(cell)
        # An interrupted cell does not end for half a second. A second interrupt in this time is ignored.
        assert cell.ended - began < (0.5 + 0.6 * (by == "interrupt")) * pace.slowdown
    assert cell.status == "ok", cell.text
    assert "the run was stopped" in cell.text.splitlines()[-1]
    facts = "ended = {row.number for row in got}\nprint(len(ended), ended <= set(map(int, said)), len(got) + len(got.cut) >= len(said), got.message)"
    count, *rest = kernel.execute(facts).stdout.split(" ", 3)
    assert int(count) >= 32
    assert rest == ["True", "True", "the run was stopped\n"]


def test_one_card_at_a_time(kernel):
    """The card names its row. An approved call runs, a denied one does not. After "all rows", nobody is asked any more."""
    kernel.execute("numbers = [{'x': 100 + n} for n in range(20)]")
    cell = kernel.submit(
        "%%toolloop --each numbers --model asking -t double -p ask --concurrency 4 --as got\n{{x}}",
        allow_stdin=True,
    )
    rows = []
    for act in ("Approve", "Deny", "all"):
        kernel.button("Approve")
        (card,) = [w for w in kernel.open_widgets("HTMLModel") if 'class="tlj-title"' in w.state["value"]]
        rows.append(int(re.search(r">row (\d+) of 20<", card.state["value"])[1]))
        if act == "all":
            (scope,) = kernel.open_widgets("DropdownModel")
            assert scope.state["_options_labels"][1:] == [
                "all calls of double in this row",
                "all calls of double in all rows",
            ]
            kernel.set_state(scope, index=2)
        kernel.click("Deny" if act == "Deny" else "Approve")
        kernel.wait_until(lambda card=card: not card.open)
    kernel.wait(cell)
    assert len(set(rows)) == 3
    denied = 100 + rows[1]
    ran = [x for x in range(100, 120) if x != denied]
    assert kernel.execute("print(sorted(runs))").stdout == f"{ran}\n"
    assert "done · 20 of 20 rows" in cell.text
    assert len(cell.outputs) == 2, "the block, and the card's place, which is empty"


def test_other_rows_go_on_while_a_card_waits(kernel):
    """Only the row of the card waits. The block names this row. Meanwhile, the other rows end."""
    kernel.execute(
        "mixed = ScriptedModel(lambda m: call('double', x=1) if last(m) == 'ask' else 'fine', last)"
    )
    kernel.execute("some = [{'text': 'ask' if n == 1 else 'go'} for n in range(30)]")
    cell = kernel.submit(
        "%%toolloop --each some --model mixed -t double -p ask --concurrency 2 --as got\n{{text}}",
        allow_stdin=True,
    )
    kernel.button("Approve")

    def shown():
        return [
            w.state["value"] for w in kernel.open_widgets("HTMLModel") if "tlj-status" in w.state["value"]
        ]

    kernel.wait_until(
        lambda: any("waiting for you: row 1 of 30" in one and "29 of 30 rows" in one for one in shown())
    )
    kernel.click("Approve")
    kernel.wait(cell)
    assert "done · 30 of 30 rows" in cell.text


def test_rows_are_recorded_and_replayed(kernel, tmp_path):
    """`--record` and `--replay` work for each row. The line above the run says so, and a replay asks no model."""
    tape = tmp_path / "rows.jsonl"
    recorded = kernel.execute(f"{EACH} --record {tape}\nSay {{{{product}}}}.")
    assert f"recording to {tape.name}" in recorded.text
    assert kernel.execute("first = [row.answer for row in got]; print(len(said))").stdout == "12\n"
    replayed = kernel.execute(f"%%toolloop --each reviews --replay {tape} --as got\nSay {{{{product}}}}.")
    assert f"replayed from {tape.name}" in replayed.text
    assert kernel.execute("print([row.answer for row in got] == first, len(said))").stdout == "True 12\n"


def test_rows_in_the_workers_of_an_executor(kernel):
    """`--executor` names a variable. The tool runs in its workers, and the rows come back here. A policy that asks is a
    mistake.
    """
    pytest.importorskip("loky")
    assert kernel.execute("import loky\npool = loky.get_reusable_executor(1)").status == "ok"
    cell = "%%toolloop --each reviews --executor pool --model toolloop/demo -t double --as got{}\nDouble 21 for {{{{product}}}}."
    done = kernel.execute(cell.format(""), timeout=240)
    assert "done · 12 of 12 rows · " in done.text
    facts = "print({row.result.tool_results[0].output for row in got}, runs)"
    assert kernel.execute(facts).stdout == "{'42'} []\n"
    assert kernel.execute(cell.format(" -p ask")).text.startswith(
        "toolloop: executor: nobody can be asked in a worker"
    )
    kernel.execute("pool.shutdown()")
