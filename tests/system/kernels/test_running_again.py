"""A cell that runs again replaces its turn. A conversation can be resumed. Nothing in it changes without a note to the
person.
"""

from __future__ import annotations

import json
import threading

import pytest

from support.kernels import LiveKernel
from toolloop_jupyter.notebook.magic.sessions import MIME, find_conversation

pytestmark = pytest.mark.kernel


@pytest.fixture(scope="module")
def kernel():
    with LiveKernel() as live:
        begin(live)
        yield live


def begin(live):
    live.execute(
        "%load_ext toolloop_jupyter\nfrom toolloop_jupyter.teaching.scripted import ScriptedModel, call, error\n"
        "echo = ScriptedModel(lambda messages: 'You said: ' + messages[-1]['content'], repeat_last=True)\n"
        "broken = ScriptedModel(error('no such thing', 400), repeat_last=True)\n"
        "def f(x: int = 1) -> str:\n    'Do f.'\n    return 'f'\n"
        "def g(x: int = 1) -> str:\n    'Do g.'\n    return 'g'",
        timeout=120,
    )
    live.execute("%%toolloop\nWarm up.", timeout=120)


def run(live, code, cell_id=None, stdin=True):
    """Run a cell as a front-end does that sends cell ids; without `cell_id`, as one that sends none."""
    content = {
        "code": code,
        "silent": False,
        "store_history": True,
        "user_expressions": {},
        "allow_stdin": stdin,
        "stop_on_error": True,
    }
    message = live._message("execute_request", content)
    message["metadata"] = {"cellId": cell_id} if cell_id else {}
    from support.kernels import Execution

    execution = Execution(code, message["header"]["msg_id"])
    live.executions[execution.msg_id] = execution
    live.client.shell_channel.send(message)
    live.wait(execution)
    return execution


def conversation(live, name):
    """Return the user messages of a session."""
    done = run(
        live,
        f"h = %toolloop history {name}\nimport json\nprint(json.dumps([m['content'] for m in h if m['role'] == 'user']))",
    )
    return json.loads(done.stdout.strip().splitlines()[-1])


def say(name, text, options=""):
    return f"%%toolloop -s {name} -m echo {options}\n{text}"


def test_a_prompt_with_a_picture(kernel):
    """A turn whose prompt has a picture is replaced like any other, and stays in the conversation. Notes name it by its
    words.
    """
    run(
        kernel,
        "import base64\nm = ScriptedModel('ok', repeat_last=True)\n"
        "dot = base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==')",
    )
    run(kernel, "%%toolloop -s seen -m m\n{{dot}} What is it?", "p1")
    run(kernel, "%%toolloop -s seen -m m\nThank you.", "p2")
    again = run(kernel, "%%toolloop -s seen -m m\n{{dot}} And {{dot}}?", "p1")
    assert "the later turn is dropped: “Thank you.”" in again.text
    run(kernel, "%%toolloop -s seen -m m\nNow?", "p2")
    first, last = conversation(kernel, "seen")
    assert [part["type"] for part in first] == ["image_url", "text", "image_url", "text"]
    assert last == "Now?"
    before = run(kernel, "%%toolloop -s seen -m m\n{{dot}} Last.", "p0")
    assert "replaced" not in before.text
    dropping = run(kernel, "%%toolloop -s seen -m m\nAnew.", "p2")
    assert "the later turn is dropped: “Last.”" in dropping.text


def test_an_edited_prompt(kernel):
    """If a prompt is edited and its cell runs again, its turn is replaced, and the cell says so."""
    run(kernel, say("edit", "One."), "e1")
    again = run(kernel, say("edit", "Uno."), "e1")
    assert conversation(kernel, "edit") == ["Uno."]
    assert "its turn is replaced; write --append to add a turn instead" in again.text


def test_later_turns_are_dropped_and_named(kernel):
    """If an earlier cell runs again, the later turns are removed, and the cell names them."""
    for number, text in enumerate(["One.", "Two.", "Three."]):
        run(kernel, say("drop", text), f"d{number}")
    again = run(kernel, say("drop", "Uno."), "d0")
    assert conversation(kernel, "drop") == ["Uno."]
    assert "the 2 later turns are dropped: “Two.”, “Three.”" in again.text


def test_run_all_twice(kernel):
    """Run All twice gives the same conversation, even if a later cell has set options for the session."""
    cells = {
        "r1": say("all", "One."),
        "r2": say("all", "Two.", "-t f -p full"),
        "r3": "%%toolloop -s all\nThree.",
    }
    seen = []
    for _ in range(2):
        texts = [run(kernel, code, cell_id).text for cell_id, code in cells.items()]
        seen.append((conversation(kernel, "all"), ["tools f" in text for text in texts]))
    assert seen[0] == seen[1] == (["One.", "Two.", "Three."], [False, True, True])


def test_append(kernel):
    """--append adds a turn instead."""
    for _ in range(2):
        run(kernel, say("add", "One.", "--append"), "a1")
    assert conversation(kernel, "add") == ["One.", "One."]


def test_without_cell_ids(kernel):
    """If the front-end sends no cell ids, the turn is added, and the cell says so once."""
    said = [run(kernel, say("plain", "One.")).text for _ in range(3)]
    assert conversation(kernel, "plain") == ["One."] * 3
    assert ["sends no cell ids" in text for text in said] == [False, True, False]


def test_a_loop_in_one_cell(kernel):
    """Several turns of one execution do not replace each other. If the cell runs again, all of them are replaced."""
    code = (
        "for word in ('One.', 'Two.'):\n    get_ipython().run_cell_magic('toolloop', '-s loop -m echo', word)"
    )
    for _ in range(2):
        run(kernel, code, "l1")
        assert conversation(kernel, "loop") == ["One.", "Two."]


def test_a_failed_turn_is_replaced(kernel):
    """If a cell has failed and runs again, its question is in the conversation once. The earlier turns stay."""
    run(kernel, say("fail", "One."), "f1")
    failed = run(kernel, "%%toolloop -s fail -m broken\nTwo.", "f2")
    assert failed.status == "error"
    run(kernel, say("fail", "Two."), "f2")
    assert conversation(kernel, "fail") == ["One.", "Two."]
    run(kernel, say("fail", "Uno."), "f1")
    assert conversation(kernel, "fail") == ["Uno."]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("-m opnai/gpt-4o", "its turn stays as it was, and so do the 2 later ones"),
        ("-m broken", "its turn stays as it was, and so do the 2 later ones"),
        ("-m echo --record nowhere/lesson.jsonl", ""),
        ("-m echo --replay nowhere.jsonl", ""),
        ("-m echo --tools nope", ""),
    ],
)
def test_a_mistake_costs_no_conversation(kernel, line, told):
    """If a cell runs again and has a mistake or gets no answer, its session stays as it was, and the cell says so."""
    for number, text in enumerate(["One.", "Two.", "Three."]):
        run(kernel, say("safe", text), f"m{number}")
    failed = run(kernel, f"%%toolloop -s safe --keep-history {line}\nUno.", "m0")
    assert failed.status == "error"
    assert conversation(kernel, "safe") == ["One.", "Two.", "Three."]
    assert told in failed.text
    assert "replaced" not in failed.text
    kept = [output.data[MIME]["messages"] for output in failed.outputs if MIME in output.data]
    assert all(len(messages) == 6 for messages in kept)  # what the notebook keeps for `resume`
    assert "You said: Three." in run(kernel, "%toolloop show safe").text
    run(kernel, say("safe", "Dos."), "m1")
    assert conversation(kernel, "safe") == ["One.", "Dos."]


def test_a_stop_before_the_answer_costs_no_conversation(kernel):
    """If a cell that runs again is stopped before its answer, the old turns are put back."""
    run(
        kernel,
        "from toolloop_jupyter.teaching.scripted import pause\nlate = ScriptedModel([pause(30), 'late'])",
    )
    for number, text in enumerate(["One.", "Two."]):
        run(kernel, say("stopped", text), f"p{number}")
    threading.Timer(2.0, kernel.interrupt).start()
    stopped = run(kernel, "%%toolloop -s stopped -m late\nUno.", "p0")
    assert conversation(kernel, "stopped") == ["One.", "Two."]
    assert "its turn stays as it was, and so does the later one" in stopped.text


def test_a_cancelled_turn_is_replaced(kernel):
    """If an interrupted cell runs again, there is one turn."""
    run(kernel, "slow = ScriptedModel('a b c d e f g h', pace=2.0, repeat_last=True)")
    content = say("stop", "One.").replace("-m echo", "-m slow")
    threading.Timer(1.5, kernel.interrupt).start()
    run(kernel, content, "s1")
    run(kernel, say("stop", "One."), "s1")
    assert conversation(kernel, "stop") == ["One."]


def test_a_dry_run_of_a_cell_that_ran(kernel):
    """--dry-run in a cell that ran before shows the request of its turn, and changes nothing."""
    run(kernel, say("dry", "One."), "y1")
    run(kernel, say("dry", "Two."), "y2")
    shown = run(kernel, say("dry", "Uno.", "--dry-run"), "y1")
    assert shown.status == "ok", shown.text
    assert "Uno." in shown.text + shown.html
    assert conversation(kernel, "dry") == ["One.", "Two."]


@pytest.mark.parametrize("way", ["resume", "load"])
def test_a_conversation_that_came_back_knows_its_cells(kernel, start_kernel, tmp_path, way):
    """After a restart, `resume` (from the notebook) or `load` (from a file) restores the conversation. If its cells run
    again, they replace their turns.
    """
    outputs = []
    for number, text in enumerate(["One.", "Two."]):
        done = run(kernel, say(f"back{way}", text, "--keep-history"), f"/home/me/b{number}")
        outputs.append({"outputs": [{"data": output.data} for output in done.outputs]})
    notebook, saved = tmp_path / "n.ipynb", tmp_path / "s.json"
    # The newest conversation counts, not the last one in the file.
    notebook.write_text(json.dumps({"cells": outputs[::-1]}))
    run(kernel, f"%toolloop save back{way} {saved.as_posix()}")
    assert "/home/me" not in notebook.read_text() + saved.read_text(), "ids are hashed: VS Code's hold a path"
    fresh = start_kernel()
    begin(fresh)
    resumed = run(fresh, f"%toolloop {way} back{way} {(notebook if way == 'resume' else saved).as_posix()}")
    assert "continues with 4 messages" in resumed.stdout, resumed.text
    again = run(fresh, say(f"back{way}", "Two again."), "/home/me/b1")
    assert "its turn is replaced" in again.text
    assert conversation(fresh, f"back{way}") == ["One.", "Two again."], again.text
    run(fresh, say(f"back{way}", "Uno."), "/home/me/b0")
    assert conversation(fresh, f"back{way}") == ["Uno."]


@pytest.mark.parametrize(
    "line",
    [
        "%%toolloop -s lost --dry-run\nOne.",
        "%%toolloop -s lost -t nope\nOne.",
        "%%toolloop --tols f\nOne.",
        "2 + 2",
    ],
)
def test_what_a_cell_no_longer_shows_is_kept_by_a_later_one(kernel, tmp_path, line):
    """A cell runs again as a dry run, with a mistake or with Python code, and loses its outputs. `resume` still finds its
    turn, in the output of the next cell.
    """
    run(kernel, "%toolloop reset lost")
    cells = [
        run(kernel, say("lost", text, "--keep-history"), f"l{number}")
        for number, text in enumerate(["One.", "Two."])
    ]
    cells[0] = run(kernel, line, "l0")
    cells.append(run(kernel, say("lost", "Three.", "--keep-history"), "l2"))
    assert kept_in(tmp_path, cells, "lost") == ["One.", "Two.", "Three."]
    assert conversation(kernel, "lost") == ["One.", "Two.", "Three."]


def test_the_cell_that_resumes_may_have_kept_a_turn(kernel, tmp_path):
    """If `%toolloop resume` is typed into the cell of a turn, the cell loses its outputs. The output of the next cell has the
    turn.
    """
    cells = [
        run(kernel, say("place", text, "--keep-history"), f"p{number}")
        for number, text in enumerate(["One.", "Two."])
    ]
    kept_in(tmp_path, cells, "place")
    cells[1] = run(kernel, f"%toolloop resume place {tmp_path.as_posix()}/n.ipynb", "p1")
    cells.append(run(kernel, say("place", "Three.", "--keep-history"), "p2"))
    assert kept_in(tmp_path, cells, "place") == ["One.", "Two.", "Three."]


def kept_in(folder, cells, session):
    """Return the user messages of the conversation that a notebook with these cells keeps."""
    notebook = folder / "n.ipynb"
    shown = [{"outputs": [{"data": output.data} for output in done.outputs]} for done in cells]
    notebook.write_text(json.dumps({"cells": shown}))
    kept = find_conversation(session, str(notebook), {})
    return [message["content"] for message in kept.messages if message["role"] == "user"]


def test_a_result_shown_again_is_the_same(kernel):
    """If a later cell shows a Result, its transcript is the same as that of the run."""
    run(kernel, "%%toolloop -m echo --as kept\nOne.", "k1")
    later = run(kernel, "kept", "k2")
    assert "You said: One." in later.text
    assert run(kernel, "print(sorted(kept._repr_mimebundle_()))").stdout == "['text/html', 'text/plain']\n"
