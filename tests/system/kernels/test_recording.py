"""A notebook was recorded with a server and runs again without it: the events and answers are the same, and so is the
transcript, except for times.
"""

from __future__ import annotations

import json
import os
import re

import pytest

from support.kernels import LiveKernel
from support.servers import ScriptedServer, answer, calls, failure

pytestmark = pytest.mark.kernel

SET_UP = '''
%load_ext toolloop_jupyter
import pydantic
log = []

def stock(title: str) -> int:
    """Count the copies of a book."""
    log.append(title)
    return {"Momo": 3}[title]

def sell(title: str, copies: int = 1) -> str:
    """Sell copies of a book."""
    log.append((title, copies))
    return f"sold {copies}"

class Order(pydantic.BaseModel):
    title: str
    copies: int
'''
SCRIPT = [
    # one tool works, and one fails
    calls(("stock", {"title": "Momo"}), content="Let me look. "),
    calls(("stock", {"title": "Emil"})),
    answer("There are 3 of Momo.\n\n- *Emil* is not known."),
    # two requests for approval in a session: one is allowed, one is denied
    calls(("sell", {"title": "Momo", "copies": 2}), ("sell", {"title": "Momo", "copies": 9})),
    answer("Two were sold, nine were too many."),
    # the session goes on
    answer("Momo, as I said."),
    # structured output that fits at the second try
    answer('{"title": "Momo"}'),
    answer('{"title": "Momo", "copies": 1}'),
    # the provider refuses
    failure(400, "no more today"),
]
for number, entry in enumerate(SCRIPT):  # each id occurs once, as with real providers
    for call in entry.get("tool_calls", ()):
        call["id"] = f"{call['id']}-{number}"
CELLS = [
    ("%%toolloop -t stock --as a\nHow many of Momo and of Emil?", []),
    (
        "%%toolloop -t sell -p ask -s desk --as b\nSell two of Momo, then nine.",
        [("copies=2", "Approve"), ("copies=9", "Deny")],
    ),
    ("%%toolloop -s desk --as c\nWhich book was it?", []),
    ("%%toolloop --output Order --as d\nOrder one of Momo.", []),
    ("%%toolloop --as e\nAnything else?", []),
]
EVENTS = (
    "print('\\n'.join(repr(e) for r in (a, b, c, d) for e in r.events if type(e).__name__ != 'Done'))\n"
    "print([(r.text, r.output, r.usage, r.cost, r.stop_reason, r.model) for r in (a, b, c, d)], log)"
)
TIMES = (
    (r"data:image/svg\+xml;base64,[A-Za-z0-9+/=]+", "PICTURE"),
    (r"\d+\.\d\d s|\d+:\d\d:\d\d|\d+:\d\d", "TIME"),
    (r"(seconds|at)=[\d.e-]+", "SECONDS"),
    (r"0x[0-9a-f]{6,}", "ADDRESS"),
    (r"[█·]{32}", "BAR"),
)
"""The parts that may differ: durations, times of day, the picture that is drawn from these, addresses in a repr."""


def without_times(text: str) -> str:
    """Return the text without the parts that differ: the times, and the word about the recording in the line above a run."""
    text = re.sub(r"(recording to|replayed from) lesson\.jsonl", "TAPE", text)
    for pattern, name in TIMES:
        text = re.sub(pattern, name, text)
    return text


def run_notebook(kernel: LiveKernel) -> tuple[list[str], str]:
    """Run the cells as a person does, with the clicks. Return their outputs in both forms, and the events."""
    shown = []
    for cell, clicks in CELLS:
        running = kernel.submit(cell, allow_stdin=True, stop_on_error=False)
        for call, label in clicks:
            kernel.wait_until(lambda text=call: f"{text})  waiting" in running.text, 90, call)  # noqa: B023 - waited for here
            kernel.click(label)
        kernel.wait(running, timeout=120)
        assert not kernel.open_widgets()
        shown.append(
            json.dumps([running.status, [output.data for output in running.outputs]], ensure_ascii=False)
        )
    done = kernel.execute(EVENTS)
    assert done.status == "ok", done.text
    return [without_times(one) for one in shown], without_times(done.stdout)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Run the notebook with a server, which is gone afterwards. Return (the recording, what was shown, the events)."""
    tape = tmp_path_factory.mktemp("tapes") / "lesson.jsonl"
    with ScriptedServer(SCRIPT) as server, LiveKernel(env={"STUB_KEY": "sk-not-to-be-seen-1234"}) as kernel:
        kernel.execute(SET_UP)
        kernel.execute(f"%toolloop record on {tape}")
        kernel.execute(f"%toolloop --model openai/stub --api-base {server.base_url} --api-key STUB_KEY")
        shown, events = run_notebook(kernel)
        assert len(server.requests) == len(SCRIPT)
    return tape, shown, events


@pytest.fixture(scope="module")
def student():
    """A kernel of a person without a key and without a server."""
    with LiveKernel(env={"STUB_KEY": None, "OPENAI_API_KEY": None}) as kernel:
        kernel.execute(SET_UP)
        yield kernel


def test_the_same_without_the_server(recorded, student):
    """After `%toolloop replay on FILE`, the unchanged cells run with real tools and real approvals. Everything is the same,
    except for times.
    """
    tape, shown, events = recorded
    started = student.execute(f"%toolloop replay on {tape}")
    assert (
        started.stdout
        == f"every run is answered from {tape}, which has 9 model calls; no model and no key is needed\n"
    )
    # The recorded notebook may have settings of its own, with a key that does not exist in this kernel.
    student.execute("%toolloop --model openai/stub")
    again, events_again = run_notebook(student)
    assert events_again == events
    assert again == shown
    assert all("TAPE" in one for one in shown)
    assert "no more today" in shown[4]
    assert "KeyError" in shown[0]
    assert "denied" in shown[1]


def test_running_it_twice_and_backwards(recorded, student):
    """Cells that run again, or in another order, get their own answers, whatever the replay has played before."""
    _, shown, _ = recorded
    student.execute("%toolloop reset\nlog.clear()")
    for number in (3, 0, 3):
        done = student.execute(CELLS[number][0])
        assert (
            without_times(json.dumps([done.status, [o.data for o in done.outputs]], ensure_ascii=False))
            == shown[number]
        )


def test_the_recording_has_no_key_and_no_address(recorded):
    """The recording can be given to a class: it has no key and no address."""
    content = recorded[0].read_text("utf-8")
    assert "not-to-be-seen" not in content
    assert "127.0.0.1" not in content
    assert "headers" not in content


def test_a_changed_prompt_is_one_short_difference(recorded, student):
    """A request that was not recorded ends the run with an error that says what differs. With --replay-loose, the run goes
    on, and a line says so once.
    """
    changed = "%%toolloop {} -t stock --as a\nHow many of Momo and of Ronja?"
    done = student.execute(changed.format(""))
    assert done.status == "error"
    assert done.outputs[-1].text == (
        "RunFailed: lesson.jsonl, model call 1: message 1 (user) differs\n"
        "  recorded: 'How many of Momo and of Emil?'\n"
        "  now:      'How many of Momo and of Ronja?'\n"
        "Run the notebook as it was recorded, record it again, or go on with --replay-loose."
    )
    loose = student.execute(changed.format("--replay-loose"))
    assert loose.status == "ok", loose.text
    assert (
        loose.text.count(
            "a request differs from the recorded one; the run continues (--replay-loose): lesson.jsonl, model call 1"
        )
        == 1
    )
    assert loose.text.count("differs from the recorded one") == 1
    assert "There are 3 of Momo" in loose.text


def test_off_asks_the_model_again(recorded, student):
    """After `%toolloop replay off`, a cell asks its model. Without a key, the error is one line."""
    assert student.execute("%toolloop replay off").stdout == "not replaying\n"
    done = student.execute("%%toolloop --model openai/stub\nAnything else?")
    assert "There is no key for 'openai/stub'. Set the environment variable OPENAI_API_KEY" in done.text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "%toolloop replay on nothing.jsonl",
            "RecordingError: cannot read the recording 'nothing.jsonl': No such file",
        ),
        (
            "%toolloop replay nothing.jsonl",
            "toolloop: write: %toolloop replay on FILE | off",
        ),
        (
            "%%toolloop --record no/such/x.jsonl\nhi",
            "RecordingError: cannot record to 'no/such/x.jsonl': there is no folder",
        ),
    ],
)
def test_files_that_cannot_be_used(student, line, message):
    """If a file does not exist, the error is one line with the typed name."""
    done = student.execute(line)
    assert done.status == "error"
    assert done.text.startswith(message)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux has a device that is a full disk")  # noqa: PTH110
def test_a_full_disk_stops_the_recording_and_not_the_run(recorded, student):
    """The answer comes, and one warning in the transcript has the reason. The error of `save` has the reason, too."""
    student.execute("%toolloop replay off")
    done = student.execute("%%toolloop -m toolloop/demo -s full --record /dev/full\nhi")
    assert done.status == "ok", done.text
    assert (
        done.text.count(
            "recording to /dev/full has stopped at model call 1 (calls in the file: 0): No space left"
        )
        == 1
    )
    saving = student.execute("%toolloop save full /dev/full")
    assert saving.text.strip() == "toolloop: No space left on device: /dev/full"


def test_without_times_the_same_cells_leave_the_same_bytes(recorded, student):
    """With `%config ToolLoop.times = False`, a replayed cell, its run shown again and its export have the same bytes each
    time.
    """
    tape, _, _ = recorded
    student.execute(f"%toolloop replay on {tape}\n%config ToolLoop.times = False")

    def run_once() -> list[object]:
        done = [
            student.execute(CELLS[0][0]),
            student.execute("%toolloop show"),
            student.execute("a.diagram()"),
        ]
        student.execute("%toolloop export run.html")
        done.append(student.execute("print(open('run.html').read())\nimport os; os.remove('run.html')"))
        assert [one.status for one in done] == ["ok"] * 4
        return [output.data for one in done for output in one.outputs if output.kind != "execute_result"]

    first, second = run_once(), run_once()
    assert first == second
    assert not re.search(r"\d\.\d\d s\b", str(first))
    student.execute("%config ToolLoop.times = True")
    assert re.search(r"\d\.\d\d s\b", str(run_once()))
