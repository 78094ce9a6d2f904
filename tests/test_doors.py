"""Guarantee: every text that leaves a run contains no key. Each way in which a text can leave (a "door") is listed here, and
tried with a known key.
"""

from __future__ import annotations

import itertools
import json
import logging
import pathlib
import traceback
from types import SimpleNamespace

import pytest

from toolloop_jupyter import Harness, ToolLoopOptions, aagent_session
from toolloop_jupyter.api import NOTEBOOK
from toolloop_jupyter.core.events import Decision, Row, Rows, RowsProgress, errors
from toolloop_jupyter.core.events.errors import Mistake
from toolloop_jupyter.core.events.events import FileChange, Reply, Retry, Span, Usage
from toolloop_jupyter.core.loop.permissions import PolicyCall
from toolloop_jupyter.core.models.failures import explain, log_unexpected
from toolloop_jupyter.core.models.providers import ProviderRequest
from toolloop_jupyter.core.text import keys
from toolloop_jupyter.notebook.live import stepper
from toolloop_jupyter.notebook.live.column import OutputColumn, TerminalWriter
from toolloop_jupyter.notebook.magic import commands, sessions
from toolloop_jupyter.notebook.magic.options import ToolLoop
from toolloop_jupyter.notebook.magic.rows import LinesNowAndThen, RenewedLine
from toolloop_jupyter.notebook.magic.sessions import NamedSession
from toolloop_jupyter.notebook.transcript import blocks, draw_running_rows, steps
from toolloop_jupyter.notebook.transcript.steps import Page, TextStep, make_bundle
from toolloop_jupyter.teaching.recording import Recorder
from toolloop_jupyter.teaching.scripted import ScriptedModel, call, reasoning

KEY = "opaque+Q7/x9.Zp3wVtAB"


@pytest.fixture
async def run(tmp_path, monkeypatch):
    """Run a turn with a key. A prompt, the model, its reasoning, a tool, an error, a file and an approval repeat the key."""
    monkeypatch.setattr(keys, "_known", {})
    monkeypatch.chdir(tmp_path)

    def leak(x: str) -> str:
        """Return the key."""
        pathlib.Path("notes.txt").write_text(f"the key is {x}\n")
        return f"You said {x}"

    def fail() -> str:
        """Fail."""
        raise RuntimeError(f"no access with {KEY}")

    def refuse(approval):
        return approval.tool != "refused" or approval.deny(f"not with {KEY}")

    def refused(x: str) -> str:
        """Never run."""
        return x

    model = ScriptedModel(
        [reasoning(f"I have {KEY}"), call(leak, x=KEY)],
        call(fail),
        call(refused, x=KEY),
        f"The key is {KEY}.",
    )
    session = aagent_session(
        Harness.TOOL_LOOP,
        model=model,
        api_key=KEY,
        tools=[leak, fail, refused],
        permissions="ask",
        on_approval=refuse,
        sandbox=str(tmp_path),
        instructions=f"Use {KEY}.",
        options=ToolLoopOptions({"user": KEY}),
        observer=Recorder(tmp_path / "tape.jsonl"),
    )
    result = await session.arun(f"Go with {KEY}.")
    assert result.stop_reason == "done", result.error
    assert KEY in str(await session.history()), "the conversation itself has it"
    request = await session.preview(f"Once more with {KEY}.")
    return SimpleNamespace(session=session, result=result, request=request, folder=tmp_path)


def message_of(code, *arguments, **keywords):
    """Return everything that a person sees of an error: its text, its repr, its traceback."""
    with pytest.raises(Exception) as caught:
        code(*arguments, **keywords)
    shown = "".join(traceback.format_exception_only(caught.value))
    line = getattr(caught.value, "_render_traceback_", list)()
    return "\n".join([str(caught.value), repr(caught.value), shown, *line])


def raise_(error):
    raise error


def exported(run, name):
    return steps.write(run.result, str(run.folder / name)).read_text()


def saved(run):
    run.session.save(run.folder / "session.json")
    return (run.folder / "session.json").read_text()


def logged(caplog):
    try:
        raise RuntimeError(f"with {KEY}")
    except RuntimeError as error:
        line = log_unexpected(error)
    return f"{line}\n{caplog.text}"


def printed(capsys, code, *arguments):
    code(*arguments)
    return capsys.readouterr().out


def streamed(capsys):
    cell = SimpleNamespace(can_update=False)
    writer, step = TerminalWriter(OutputColumn(cell), Page()), TextStep(is_thought=False)
    for start in range(0, 50, 7):
        step.pieces.append(f"It is {KEY}, I think.            "[start : start + 7])
        writer.grow(step)
    writer.end(step)
    return capsys.readouterr().out


def book(run):
    return SimpleNamespace(sessions={"s": NamedSession(run.session)}, settings=ToolLoop(session="s"))


REPRS = {
    "decision": lambda _: Decision(True, KEY, {"x": KEY}),
    "retry": lambda _: Retry(1, KEY, KEY),
    "file change": lambda _: FileChange("a", "created", KEY),
    "span": lambda _: Span("tool", KEY, 0, 1),
    "request": lambda run: run.request,
    "reply": lambda _: Reply({"content": KEY}, "stop", Usage(), None),
    "policy call": lambda _: PolicyCall("leak", {"x": KEY}),
    "provider's request": lambda run: ProviderRequest(run.request.model, run.request.messages),
    "config": lambda run: run.session.config,
    "options": lambda run: run.session.config.options,
    "bound call": lambda run: run.session.config.tools[0].bind({"x": KEY}),
}
ERRORS = {
    "model call": lambda: errors.ModelCallFailed(f"refused {KEY}", "try"),
    "output": lambda: errors.OutputInvalid(f"not {KEY}", KEY),
    "history": lambda: errors.HistoryInvalid([KEY]),
    "definition": lambda: errors.ToolDefinitionError([KEY, KEY]),
    "argument": lambda: errors.ArgumentInvalid(KEY),
    "mistake": lambda: Mistake(KEY),
}


def rows_of(run):
    """Return rows with the key in their cells, column names, answers and errors."""
    row = Row(0, "k", {KEY: KEY, "text": f"with {KEY}"}, run.result, f"no access with {KEY}")
    done = Row(1, "k", {"text": KEY}, run.result)
    progress = RowsProgress(2, 1, 1, last=(row, done), message=f"stopped with {KEY}")
    return Rows({0: row, 1: done}, progress, message=f"stopped with {KEY}", presenter=NOTEBOOK.presenter)


def rows_in_a_terminal(run, capsys):
    RenewedLine().show(rows_of(run).progress, KEY)
    LinesNowAndThen(clock=itertools.count(0, 60).__next__).show(rows_of(run).progress, KEY)
    return capsys.readouterr().out


DOORS = {
    "rows": lambda run, **_: str(rows_of(run)._repr_mimebundle_()),
    "repr of rows": lambda run, **_: repr(rows_of(run)),
    "rows that run": lambda run, **_: str(make_bundle(draw_running_rows(rows_of(run).progress, KEY))),
    "rows in a terminal": lambda run, capsys, **_: rows_in_a_terminal(run, capsys),
    "cell": lambda run, **_: str(run.result._repr_mimebundle_()),
    "HTML": lambda run, **_: run.result._repr_html_(),
    "repr of a result": lambda run, **_: repr(run.result),
    "Markdown": lambda run, **_: run.result.to_markdown(),
    **{f"repr of {name}": lambda run, make=make, **_: repr(make(run)) for name, make in REPRS.items()},
    **{f"error: {name}": lambda make=make, **_: message_of(raise_, make()) for name, make in ERRORS.items()},
    "provider's error": lambda run, **_: str(explain(RuntimeError(f"no {KEY}"), run.request)),
    "never called": lambda run, **_: message_of(run.result.assert_called, "leak", x="other"),
    "called so often": lambda run, **_: message_of(run.result.assert_called, "leak", times=3),
    "not as wanted": lambda run, **_: message_of(run.result.assert_called, "none", x=KEY) + "[key]",
    "called": lambda run, **_: message_of(run.result.assert_not_called, "leak"),
    "order": lambda run, **_: message_of(run.result.assert_order, KEY),
    "edit that does not fit": lambda run, **_: message_of(run.result.approvals[0].allow, {KEY: 1}),
    "no scope": lambda run, **_: message_of(lambda: run.result.approvals[0].allow(scope=KEY)),
    "nobody": lambda run, **_: message_of(lambda: run.result.approvals[0].deny(by=KEY)),
    "no dict": lambda run, **_: message_of(run.result.assert_called, "leak", [KEY]),
    "no tool": lambda run, **_: message_of(run.result.assert_called, [KEY]),
    "export: md": lambda run, **_: exported(run, "run.md"),
    "export: html": lambda run, **_: exported(run, "run.html"),
    "export: json": lambda run, **_: exported(run, "run.json"),
    "recording": lambda run, **_: (run.folder / "tape.jsonl").read_text(),
    "saved conversation": lambda run, **_: saved(run),
    "kept history": lambda run, **_: json.dumps(sessions.bundle_conversation("s", NamedSession(run.session))),
    "log": lambda caplog, **_: logged(caplog),
    "notice": lambda **_: str(make_bundle([blocks.draw_notice(f"with {KEY}", "warning")])),
    "retry": lambda **_: str(make_bundle([blocks.draw_retry(Retry(1, KEY, KEY))])),
    "dry run": lambda run, **_: str(make_bundle([stepper.draw_request(run.request, sent=False)])),
    "doctor": lambda **_: str(commands._render([commands.Finding("model", "bad", f"no {KEY}", KEY)])),
    "terminal": lambda capsys, **_: streamed(capsys),
    "%toolloop": lambda capsys, **_: printed(capsys, commands._say, f"with {KEY}"),
    "%toolloop history": lambda run, **_: str(commands.history(book(run))),
}


async def test_no_text_leaves_with_a_key(run, caplog, capsys):
    """Every form in which a run is shown, printed, logged, recorded, saved or exported has [key] in place of the key."""
    with caplog.at_level(logging.DEBUG):
        texts = {name: door(run=run, caplog=caplog, capsys=capsys) for name, door in DOORS.items()}
    assert [name for name, text in texts.items() if KEY[:8] in text or KEY[-8:] in text] == []
    assert [name for name, text in texts.items() if "[key]" not in text] == []
