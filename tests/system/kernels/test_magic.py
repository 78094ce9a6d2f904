"""`%%toolloop` in a live kernel, which the tests use as a front-end does: the main job, its mistakes and its settings."""

from __future__ import annotations

import json
import re

import pytest

from support.kernels import LiveKernel
from support.servers import answer, calls

pytestmark = pytest.mark.kernel

SET_UP = '''
import time
from pydantic import BaseModel
from toolloop_jupyter import Harness, aagent, agent, agent_session, show, tool
from toolloop_jupyter.teaching import ScriptedModel, call
runs = []
KEY = 'k' * 8
M = 'toolloop/demo'

def double(x: int) -> int:
    """Double a number."""
    runs.append(x)
    return 2 * x

class Shelf:
    def find(self, title: str) -> str:
        """Find a book."""
        return f"{title} is on shelf 3"

shelf = Shelf()

class Book(BaseModel):
    title: str
    pages: int
'''


@pytest.fixture(scope="module")
def kernel():
    """One kernel for this module, with the extension loaded and some tools."""
    with LiveKernel() as live:
        loaded = live.execute(
            "%load_ext toolloop_jupyter\nimport sys\nprint([m for m in ('litellm', 'pydantic') if m in sys.modules])"
        )
        assert (loaded.status, loaded.stdout.strip(), loaded.stderr) == ("ok", "[]", "")
        assert live.execute(SET_UP).status == "ok"
        yield live


def run(kernel, cell, **options):
    """Run one cell to its end. The first cell also waits for litellm's import."""
    return kernel.execute(cell, timeout=120, **options)


def test_demo_run(kernel):
    """A cell without a model uses the demonstration model. It shows a call, its result, an answer and a last line."""
    done = run(kernel, "%%toolloop --tools double --as r\nPlease double 21")
    assert done.status == "ok"
    assert "double(x=21)" in done.text
    assert "`double` says: `42`" in done.text
    assert "demonstration, not a language model" in done.text
    assert "done · 2 model calls · 1 tool call" in done.text
    assert done.value is None, "the Result is shown by its transcript and not a second time"
    assert run(kernel, "print(r.stop_reason, r.tool_results[0].value, _ is r)").stdout == "done 42 True\n"


@pytest.mark.parametrize(("click", "ran"), [("Approve", "[7]"), ("Deny", "[]")])
def test_click_while_the_cell_runs(kernel, click, ran):
    """A click reaches the waiting cell. The queued cell runs after it."""
    run(kernel, "runs.clear()")
    cell = kernel.submit("%%toolloop -p ask -t double --as r\nDouble 7", allow_stdin=True)
    after = kernel.submit("print(runs, r.approvals[0].decision.by, r.stop_reason)")
    kernel.click(click)
    kernel.wait(cell, after)
    assert (cell.status, after.stdout) == ("ok", f"{ran} click done\n")
    assert kernel.open_widgets() == [], "a finished run leaves no widget"


def test_prompt_and_requests_through_the_real_client(kernel, serve):
    """With litellm's real client, the requests have the prompt byte for byte, the schema, the streamed call and the result,
    and nothing more.
    """
    server = serve([calls(("double", {"x": 4})), answer("It is 8.")])
    prompt = 'f-string {x}, {{nope}}, $HOME, 100%, !ls, "q"'
    done = run(
        kernel,
        f"%%toolloop --model openai/stub --api-base {server.base_url} --api-key STUB_KEY -t double\n{prompt}",
    )
    assert "no such environment or notebook variable" in done.text
    run(kernel, "STUB_KEY = 'sk-not-a-real-key-000'")
    done = run(
        kernel,
        f"%%toolloop --model openai/stub --api-base {server.base_url} --api-key STUB_KEY -t double --set temperature=0.5\n"
        f"  {prompt}\n\n  {{{{STUB_NAME}}}}",
    )
    assert "It is 8." in done.text
    first, second = (request.body for request in server.requests)
    assert first["messages"] == [{"role": "user", "content": f"  {prompt}\n\n  {{{{STUB_NAME}}}}"}]
    assert first["tools"][0]["function"]["name"] == "double"
    assert first["tools"][0]["function"]["parameters"]["properties"] == {"x": {"type": "integer"}}
    assert (first["stream"], first["temperature"]) == (True, 0.5)
    assert [m["role"] for m in second["messages"]] == ["user", "assistant", "tool"]
    assert second["messages"][2]["content"] == "8"
    everything = json.dumps([m["content"] for m in kernel.messages], default=str)
    assert "sk-not-a-real-key-000" not in everything.replace("STUB_KEY = 'sk-not-a-real-key-000'", "")


def test_output_model_and_bound_method(kernel):
    """`--output` gives an instance of the model. A bound method can be a tool."""
    done = run(kernel, '%%toolloop -t shelf.find --output Book --as b\nFind the book "Momo"')
    assert done.status == "ok", done.text
    assert run(kernel, "print(type(b.output).__name__, b.calls[0].name)").stdout == "Book find\n"


def test_one_mapping_for_all_cells_of_a_session(kernel):
    """The permissions of a session may have rules for tools that a later cell lacks. In a single cell, a misspelt name in a
    rule is a mistake.
    """
    run(
        kernel,
        "class Door:\n"
        "    def lock(self) -> str:\n        'Lock.'\n        return 'l'\n"
        "    def unlock(self) -> str:\n        'Unlock.'\n        return 'u'\n"
        "door = Door()\nrules = {'unlock': 'ask', 'not_defined_yet': 'ask', '*': 'full'}",
    )
    for tools in ("door.lock,door.unlock -p rules", "double", "door.lock"):
        done = run(kernel, f"%%toolloop -s doors -t {tools}\nHello {tools[-4:]}")
        assert done.status == "ok", done.text
    assert "did you mean 'lock'?" in run(kernel, "%%toolloop -t door.lock -p rules\nHello").text
    run(kernel, "%toolloop reset doors")


def test_session_goes_on_and_is_listed(kernel):
    """Two cells of one session share the conversation, and `%toolloop` lists the session."""
    run(kernel, "%%toolloop -s talk -t double\nDouble 2", silent=False)
    run(kernel, "%%toolloop -s talk --append -t double\nDouble 3")
    history = run(kernel, "h = %toolloop history talk\nprint([m['role'] for m in h])")
    assert history.stdout.count("'user'") == 2
    assert "talk: 2 turns" in run(kernel, "%toolloop").stdout
    assert run(kernel, "%toolloop reset talk").status == "ok"
    assert "there is no session 'talk'" in run(kernel, "%toolloop history talk").text


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("%%toolloop --tool double\nhi", "toolloop: unknown option --tool; did you mean --tools?"),
        (
            "%%toolloop -t doubel\nhi",
            "toolloop: there is no tool 'doubel' in this notebook; did you mean 'double'?",
        ),
        ("%%toolloop -t shelf.fnd\nhi", "toolloop: there is no tool 'shelf.fnd': Shelf has no 'fnd'"),
        (
            "%%toolloop -t double\n  \n",
            "toolloop: the prompt is empty; write below the %%toolloop line what the model should do",
        ),
        (
            "%%toolloop -t double",
            "toolloop: the prompt is empty; write below the %%toolloop line what the model should do",
        ),
        ("%%toolloop --as 2x\nhi", "toolloop: --as '2x' is not a variable name"),
        ("%%toolloop --timeout -1\nhi", "toolloop: timeout must be > 0 seconds, got -1"),
        (
            "%%toolloop --sandbox /no/such/folder\nhi",
            "SandboxError: sandbox path does not exist or is not a directory",
        ),
        (
            "%%toolloop --model litellm_proxy/coder\nhi",
            "toolloop: litellm_proxy/ models need the gateway URL: pass --api-base URL",
        ),
        ("%%toolloop --output runs\nhi", "toolloop: 'runs' is a list, not an output model"),
        (
            "%%toolloop -t Book\nhi",
            "toolloop: 'Book' is a class, and a tool is a function; for answers of this type: --output Book",
        ),
        ("%%toolloop --replay nothing.jsonl\nhi", "RecordingError: "),
        ("%toolloop save nobody x.json", "toolloop: there is no session 'nobody'; there are: "),
        (
            "%toolloop --permissions maybe",
            "toolloop: --permissions takes full, ask or the variable of a policy",
        ),
        ("%toolloop --timeout -3", "toolloop: timeout must be > 0 seconds, got -3"),
        ("%toolloop --output Nope", "toolloop: there is no output model 'Nope' in this notebook"),
        ("%toolloop --sandbox /nope", "SandboxError: sandbox path does not exist or is not a directory"),
        ("%%toolloop --max-turns 0\nhi", "toolloop: max_turns must be >= 1, got 0"),
        ("%%toolloop --max-cost -1\nhi", "toolloop: max_cost must be > 0 US dollars, got -1"),
        ("%%toolloop --max-model-calls 0\nhi", "toolloop: max_model_calls must be >= 1, got 0"),
        ("%toolloop reviev", "toolloop: %toolloop reviev is not a command"),
    ],
)
def test_a_mistake_is_one_line_and_an_error(kernel, cell, message):
    """A mistake gives one clear line without a traceback. The cell counts as failed."""
    done = run(kernel, cell)
    assert done.status == "error"
    assert done.text.startswith(message)
    assert "\n" not in done.text.strip()
    assert "Traceback" not in done.text


def test_a_literal_key_is_refused_and_not_repeated(kernel):
    """A key that is typed into the cell is refused, and the message has the reason, but not the key."""
    done = run(kernel, "%%toolloop --api-key sk-abc123def456ghi789jkl0\nhi")
    assert done.status == "error"
    assert "takes the NAME of a variable" in done.text
    assert "sk-abc123" not in done.text


def test_redefined_tool_is_the_new_one(kernel):
    """If a function is defined again, the next run uses the new function."""
    run(kernel, 'def pick(x: int) -> str:\n    "Pick."\n    return "old"')
    run(kernel, "%%toolloop -t pick --as r\nPick 1")
    run(kernel, 'def pick(x: int) -> str:\n    "Pick."\n    return "new"')
    run(kernel, "%%toolloop -t pick --as r\nPick 1")
    assert run(kernel, "print(r.tool_results[0].value)").stdout == "new\n"


def test_marked_tools_are_the_default(kernel):
    """Without --tools, the functions marked with @tool are the tools."""
    run(kernel, '@tool\ndef marked(x: int) -> int:\n    "Count."\n    return x')
    done = run(kernel, "%%toolloop --as r\nmarked 5")
    assert "marked" in done.text
    run(kernel, "del marked")


def test_defaults_are_set_and_reset(kernel):
    """`%toolloop --…` and `%config` change the same settings."""
    assert "ask" in run(kernel, "%toolloop --permissions ask --tools double").stdout
    assert run(kernel, "%config ToolLoop.permissions").text.strip("'") == "ask"
    run(kernel, "%config ToolLoop.permissions = 'full'")
    assert "permissions" not in run(kernel, "%toolloop").stdout.replace("permissions  full", "")
    run(kernel, "%toolloop reset")
    assert run(kernel, "%config ToolLoop.tools").text == "[]"


def test_help_documents_the_options(kernel):
    """`%%toolloop?` shows the options."""
    done = run(kernel, "%%toolloop?")
    shown = json.dumps(done.reply.get("payload"))
    assert "--permissions" in shown
    assert "--api-key" in shown


def test_run_cell_magic_and_time(kernel):
    """The registered magic works in sync code, for example inside `%%time`."""
    done = run(
        kernel, "x = get_ipython().run_cell_magic('toolloop', '-t double', 'Double 8')\nprint(x.stop_reason)"
    )
    assert "done\n" in done.stdout
    assert "`double` says: `16`" in done.text
    timed = run(kernel, "%%time\n%%toolloop -t double --as t\nDouble 9")
    assert timed.status == "ok", timed.text
    assert "Wall time" in timed.text
    assert run(kernel, "print(t.stop_reason)").stdout == "done\n"


@pytest.mark.parametrize("where", ["approval", "tool", "model"])
def test_interrupt_ends_the_turn_in_one_line(kernel, serve, where):
    """■ ends the run with one line. The history is valid, and the same session continues."""
    server = serve(
        [{**answer("late"), "stall": 20} if where == "model" else calls(("slow", {"s": 90})), answer("no")]
    )
    run(kernel, "def slow(s: int) -> str:\n    'Sleep.'\n    time.sleep(s)\n    return 'slept'")
    line = f"--model openai/stub --api-base {server.base_url} --api-key KEY -s cut_{where} --as r -t slow"
    cell = kernel.submit(f"%%toolloop {line} {'-p ask' if where == 'approval' else ''}\ngo", allow_stdin=True)
    after = kernel.submit("print('AFTER', r.stop_reason)")
    if where == "approval":
        kernel.button("Approve")
    else:
        server.wait_for_requests(1)
        kernel.settle(0.7)
    kernel.interrupt()
    kernel.wait(cell, after)
    assert after.stdout == "AFTER cancelled\n", cell.text
    assert kernel.open_widgets() == []
    checked = run(
        kernel,
        f"from toolloop_jupyter.core.conversation import history\nh = %toolloop history cut_{where}\nprint(history.validate(h), len(h))",
    )
    assert checked.stdout.startswith("[]")
    go_on = run(kernel, f"%%toolloop -s cut_{where} --append -t double --as r2\nDouble 1")
    assert "done ·" in go_on.text


def test_a_failed_run_is_an_error_of_the_cell(kernel, serve):
    """If a provider fails for good, one line says what to set. The cell counts as failed."""
    server = serve([{"status": 401, "body": {"error": {"message": "bad key sk-secret-secret-1"}}}])
    done = run(kernel, f"%%toolloop --model openai/stub --api-base {server.base_url} --api-key KEY\nhi")
    assert done.status == "error"
    assert "OPENAI_API_KEY" in done.text
    assert "sk-secret-secret-1" not in done.text
    assert "Traceback" not in done.text


def test_dry_run_sends_nothing(kernel, serve):
    """`--dry-run` shows the first request as it would be sent, and sends nothing."""
    server = serve([answer("never")])
    done = run(
        kernel,
        f"%%toolloop --dry-run --model openai/stub --api-base {server.base_url} --api-key KEY -t double\nhi there",
    )
    assert done.status == "ok", done.text
    assert "would be sent to openai/stub: 1 message, 1 tool" in done.text
    assert "hi there" in done.text
    assert "kkkkkkkk" not in done.html
    assert server.requests == []


def test_step_mode_holds_before_each_call(kernel, serve):
    """With `--step`, a run waits for Next before a model call and before a tool call. It shows exactly what the server then
    gets.
    """
    server = serve([calls(("double", {"x": 4})), answer("It is 8.")])
    cell = kernel.submit(
        f"%%toolloop --step --model openai/stub --api-base {server.base_url} --api-key KEY -t double --as r\nDouble 4",
        allow_stdin=True,
    )
    kernel.button("Next")
    assert server.requests == []
    kernel.click("Next")
    kernel.wait_for_text("next: run double")
    assert len(server.requests) == 1
    kernel.click("Run to end")
    kernel.wait(cell)
    assert cell.status == "ok", cell.text
    assert "to the model: 3 messages, 2 of them new" in cell.text
    assert "the answer above · 10 tokens read, 5 written" in cell.text
    assert kernel.open_widgets() == []


def test_policy_variable_and_a_tool_of_its_own_mind(kernel):
    """`--permissions` takes a variable with a policy. Nobody is asked about a call that the policy allows."""
    run(kernel, "policy = {'double': 'full', '*': 'ask'}")
    done = run(kernel, "%%toolloop -t double -p policy --as r\nDouble 5")
    assert "✓ double(x=5)  approved by the policy" in done.text
    assert run(kernel, "print(r.approvals, r.tool_results[0].value)").stdout == "[] 10\n"


def test_conversation_comes_back_in_a_new_kernel(kernel, start_kernel, tmp_path):
    """--keep-history keeps the messages in the notebook's outputs. `%toolloop resume` continues the conversation."""
    done = run(kernel, "%%toolloop -s diary --keep-history -t double\nDouble 6")
    kept = [o.data for o in done.outputs if "application/vnd.toolloop.conversation+json" in o.data]
    assert len(kept) == 1
    notebook = tmp_path / "n.ipynb"
    notebook.write_text(json.dumps({"cells": [{"outputs": [{"data": kept[0]}]}]}))
    fresh = start_kernel()
    fresh.execute("%load_ext toolloop_jupyter")
    resumed = fresh.execute(f"%toolloop resume diary {notebook.as_posix()}")
    assert "session 'diary' continues with 4 messages" in resumed.stdout, resumed.text
    again = fresh.execute("h = %toolloop history diary\nprint([m['role'] for m in h])")
    assert again.stdout == "['user', 'assistant', 'tool', 'assistant']\n"
    assert (
        "keeps no conversation 'other'" in fresh.execute(f"%toolloop resume other {notebook.as_posix()}").text
    )


def test_export_and_show(kernel, tmp_path):
    """The last run can be shown again, and written as Markdown, HTML and JSON."""
    run(kernel, "%%toolloop -t double\nDouble 21")
    assert "`double` says: `42`" in run(kernel, "%toolloop show").text
    for ending in ("md", "html", "json"):
        target = tmp_path / f"run.{ending}"
        assert run(kernel, f"%toolloop export {target.as_posix()}").status == "ok"
        assert "42" in re.findall(r"`?double`?.* says: .*", target.read_text())[-1]
    assert "must end in .md, .html or .json" in run(kernel, "%toolloop export run.txt").text


def test_save_and_load(kernel, tmp_path):
    """A session's conversation is written to a file, and loaded under another name."""
    run(kernel, "%%toolloop -s keepme -t double\nDouble 2")
    target = tmp_path / "talk.json"
    assert "saved 4 messages" in run(kernel, f"%toolloop save keepme {target.as_posix()}").stdout
    assert "continues with 4 messages" in run(kernel, f"%toolloop load other {target.as_posix()}").stdout


def test_show_renders_streams(kernel):
    """`show()` shows the sync and async streams of the API in the cell, and returns the Result."""
    done = run(
        kernel,
        "a = show(agent(Harness.TOOL_LOOP, 'Double 3', model=M, tools=[double], stream=True))\n"
        "b = await show(aagent(Harness.TOOL_LOOP, 'Double 4', model=M, tools=[double], stream=True))\n"
        "print(a.tool_results[0].value, b.tool_results[0].value)",
    )
    assert "6 8" in done.stdout, done.text
    assert done.text.count("done ·") == 2


def test_show_renders_litellms_own_streams(kernel, serve):
    """A stream of `litellm.aagent` is shown in the cell. Its card decides, its Result is returned, and a second show()
    repeats it.
    """
    pytest.importorskip("litellm.harness", reason="this LiteLLM has no agent API")
    server = serve([calls(("double", {"x": 8})), answer("Sixteen.")])
    keywords = f"model='openai/stub', api_base='{server.base_url}', api_key='{'k' * 8}', tools=[double], permissions='ask'"
    cell = kernel.submit(
        "import litellm\nruns.clear()\n"
        f"theirs = litellm.aagent(litellm.Harness.TOOL_LOOP, 'Go', sandbox=litellm.sandbox.local('.'), stream=True, {keywords})\n"
        "print(type(await show(theirs)).__module__, runs)",
        allow_stdin=True,
    )
    kernel.click("Approve")
    kernel.wait(cell)
    assert "litellm.harness.types [8]" in cell.stdout, cell.text
    for text in (cell.text, run(kernel, "_ = await show(theirs)").text):
        assert "✓ double(x=8)" in text
        assert "Sixteen." in text
    assert "approved by click" in cell.text


def test_sync_agent_asks_by_card_and_shows_nothing_else(kernel):
    """`agent(permissions="ask")` shows only the card in the cell. If the Result is the cell's value, its transcript is shown."""
    cell = kernel.submit(
        "res = agent(Harness.TOOL_LOOP, 'Double 11', model=M, tools=[double], permissions='ask')\nprint(res.tool_results[0].value)",
        allow_stdin=True,
    )
    after = kernel.submit("print('AFTER')")
    kernel.click("Approve")
    kernel.wait(cell, after)
    assert "22\n" in cell.stdout, cell.text
    assert "`double` says" not in cell.text
    assert after.stdout == "AFTER\n"
    assert "`double` says" in run(kernel, "res").text


def test_unload(kernel):
    """`%unload_ext` removes the magics, and `%load_ext` registers them again."""
    assert run(kernel, "%unload_ext toolloop_jupyter").status == "ok"
    assert "not found" in run(kernel, "%toolloop").text
    assert run(kernel, "%load_ext toolloop_jupyter").status == "ok"
    assert "model" in run(kernel, "%toolloop").stdout


def test_record_and_replay(kernel, serve, tmp_path):
    """A recorded cell runs again without its server. It gives the same answer and, except for the times, the same transcript.
    The line above the run says that it is a replay.
    """
    server = serve([calls(("double", {"x": 4}), content="Let me see. "), answer("It is 8.")])
    tape = tmp_path / "lesson.jsonl"
    cell = "%%toolloop {} -t double --as r\nDouble 4"
    live = run(
        kernel, cell.format(f"--record {tape} --model openai/stub --api-base {server.base_url} --api-key KEY")
    )
    server.stop()
    assert "kkkkkkkk" not in tape.read_text()
    again = run(kernel, cell.format(f"--replay {tape}"))
    times = re.compile(r"\d+(\.\d+)? s|\d+:\d\d|· \$\d[\d.]*|· cost not reported")
    assert "openai/stub · tool double · recording to lesson.jsonl" in live.text.replace("tools", "tool")
    as_live = again.text.replace("replayed from lesson.jsonl", "recording to lesson.jsonl")
    assert as_live != again.text
    assert times.sub("", as_live) == times.sub("", live.text)
    changed = run(kernel, f"%%toolloop --replay {tape} -t double\nDouble 5")
    assert changed.status == "error"
    assert "recorded: 'Double 4'" in changed.text


def test_a_tool_without_docstring_is_told_once(kernel):
    """If a tool has no docstring, a note says once that the model gets no description."""
    run(kernel, "def bare(x: int) -> int:\n    return x")
    assert (
        "no docstring, so the model gets no description of: bare"
        in run(kernel, "%%toolloop -t bare\nbare 1").text
    )
    assert "no docstring" not in run(kernel, "%%toolloop -t bare\nbare 1").text


def test_a_very_long_run_stays_small(kernel):
    """In a run of 150 steps, each early call is one line in the saved outputs."""
    run(kernel, "long = ScriptedModel(*[call('double', x=n) for n in range(150)], 'end')")
    done = run(kernel, "%%toolloop --model long -t double --max-model-calls 200\ngo")
    blocks = done.html.split('class="tlj tlj-call"')[1:]
    assert len(blocks) == 150
    assert 100 <= sum("<pre" in block for block in blocks) <= 140
    assert len(done.html) < 300_000


def test_a_cell_never_has_more_outputs_than_a_front_end_shows(kernel):
    """JupyterLab hides all outputs after the 50th. A long run joins its finished outputs, and loses none."""
    run(kernel, "talk = ScriptedModel(*[[f'step {n}. ', call('double', x=n)] for n in range(60)], 'end')")
    done = run(kernel, "%%toolloop --model talk -t double --as r\ngo")
    assert len(done.outputs) <= 41
    for n in range(60):
        assert f"step {n}." in done.text
        assert f"double(x={n})" in done.text
    assert done.text.index("step 5.") < done.text.index("step 50.")
    assert done.text.rstrip().splitlines()[-1].startswith("done ·")


def test_a_session_asks_by_card_only_where_nobody_reads_its_stream(kernel):
    """session.run() shows the card. The reader of session.stream() answers itself. show() asks once."""
    run(
        kernel,
        "def fresh(): return agent_session(Harness.TOOL_LOOP, model=M, tools=[double], permissions='ask')",
    )
    cell = kernel.submit("print(fresh().run('Double 3').tool_results[0].value)", allow_stdin=True)
    kernel.click("Approve")
    kernel.wait(cell)
    assert "6\n" in cell.stdout
    read = run(
        kernel,
        "for event in fresh().stream('Double 4'):\n"
        "    if type(event).__name__ == 'Approval': event.allow()\n"
        "    if type(event).__name__ == 'ToolResult': print(event.value)",
    )
    assert read.stdout == "8\n", read.text
    cell = kernel.submit("print(show(fresh().stream('Double 5')).tool_results[0].value)", allow_stdin=True)
    kernel.click("Approve")
    kernel.wait(cell)
    assert "10\n" in cell.stdout
