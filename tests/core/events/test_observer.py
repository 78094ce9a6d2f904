"""The two seams around a run: its observers and its host."""

from __future__ import annotations

import contextlib
import subprocess
import sys

import pytest

from support.asking import replace_config
from toolloop_jupyter import Harness, ToolLoopOptions, aagent, aagent_session, agent_session, tool
from toolloop_jupyter.core.events import Host, Observer, Presenter, PrintKeeper
from toolloop_jupyter.teaching import ScriptedModel, call, error


class Notes(Observer):
    """An observer that writes down its name and the arguments of each call."""

    wants_deltas = True

    def __init__(self, name, log):
        self.name, self.log = name, log

    async def before_model(self, request):
        self.log.append((self.name, "before_model"))

    async def after_model(self, reply):
        self.log.append((self.name, "after_model"))

    async def before_call(self, call, arguments):
        self.log.append((self.name, "before_call", dict(arguments)))

    async def before_tool(self, call, arguments):
        self.log.append((self.name, "before_tool", dict(arguments)))

    def delta(self, at, delta):
        self.log.append((self.name, "delta"))


class Hears(Observer):
    """An observer that takes what a tool prints."""

    wants_output = True

    def __init__(self):
        self.heard = []

    def output(self, call, kind, payload):
        self.heard.append((call.name, kind, payload))


def double(x: int) -> int:
    """Twice x."""
    print("doubling")
    return 2 * x


async def test_all_observers_are_called_in_order():
    """A turn's observers are called before those of the session, at each step. A second turn has its own observers."""
    log = []
    model = ScriptedModel(call("double", x=2), "4", "Bye.")
    session = aagent_session(Harness.TOOL_LOOP, model=model, tools=[double], observer=Notes("session", log))
    stream = session.astream("Go.", observers=(Notes("one", log), Notes("two", log)))
    _ = [event async for event in stream]
    steps = [entry[1] for entry in log if entry[0] == "one" and entry[1] != "delta"]
    assert steps == [
        "before_model",
        "after_model",
        "before_call",
        "before_tool",
        "before_model",
        "after_model",
    ]
    assert [entry[0] for entry in log if entry[1] == "before_call"] == ["one", "two", "session"]
    assert {entry[0] for entry in log if entry[1] == "delta"} == {"one", "two", "session"}
    log.clear()
    await session.arun("Again.")
    assert {entry[0] for entry in log} == {"session"}


async def test_the_sum_is_told_after_each_model_call():
    """`spent` is called after each model call, even after a failed one. The last sum is that of the Result."""
    sums = []

    class Sums(Observer):
        def spent(self, usage, cost):
            sums.append((usage, cost))

    models = ScriptedModel(error("no", 500), repeat_last=True), ScriptedModel(call("double", x=2), "4")
    options = ToolLoopOptions(fallback=[models[1]], completion_kwargs={"num_retries": 0})
    keywords = {"model": models[0], "tools": [double], "options": options, "observer": Sums()}
    result = await aagent(Harness.TOOL_LOOP, "Go.", **keywords)
    assert result.text == "4"
    assert len(sums) == 3
    assert sums[-1] == (result.usage, result.cost)


async def test_a_stream_is_observed_until_it_begins():
    """`observe` adds an observer to a stream that has not begun. After the beginning, `observe` returns False."""
    log = []
    stream = aagent(
        Harness.TOOL_LOOP, "Go.", model=ScriptedModel("Hi."), observer=Notes("session", log), stream=True
    )
    assert stream.observe(Notes("late", log))
    _ = [event async for event in stream]
    assert [entry[0] for entry in log if entry[1] == "before_model"] == ["late", "session"]
    assert not stream.observe(Notes("too late", log))


async def test_what_a_tool_prints_goes_to_who_wants_it(capsys):
    """An observer that wants output gets it instead of the screen. Without such an observer, prints are not captured."""
    hears = Hears()
    session = aagent_session(Harness.TOOL_LOOP, model=ScriptedModel(call("double", x=2), "4"), tools=[double])
    _ = [event async for event in session.astream("Go.", observers=(hears,))]
    assert "".join(text for _, _, text in hears.heard) == "doubling\n"
    assert capsys.readouterr().out == ""
    await aagent(Harness.TOOL_LOOP, "Go.", model=ScriptedModel(call("double", x=2), "4"), tools=[double])
    assert capsys.readouterr().out == "doubling\n"


@pytest.mark.parametrize("observed", [False, True])
async def test_kept_prints_reach_the_model(capsys, observed):
    """With `capture_output`, the model gets the prints, even if an observer gets them. If nobody shows them, they are printed."""
    hears = Hears()
    kept = tool(capture_output=True)(double)
    session = aagent_session(Harness.TOOL_LOOP, model=ScriptedModel(call("double", x=2), "4"), tools=[kept])
    _ = [event async for event in session.astream("Go.", observers=(hears,) if observed else ())]
    (result,) = session.results[0].tool_results
    assert (result.output, result.printed, result.returned) == (
        "[printed]\ndoubling\n[returned]\n4",
        "doubling",
        "4",
    )
    assert capsys.readouterr().out == ("" if observed else "doubling\n")


class PlainPresenter(Presenter):
    """A presenter that shows every Result as the same text."""

    def bundle(self, value):
        return {"text/plain": "as this host shows it"}


class Quiet(Host):
    """A host that stores what is printed, and which turns have ended."""

    presenter = PlainPresenter()

    def __init__(self):
        self.log = []

    @contextlib.asynccontextmanager
    async def attend(self, *, may_ask):
        self.log.append(("attend", may_ask))
        yield

    def finished(self, result):
        self.log.append(("finished", result.stop_reason))

    async def ask(self, approval):
        self.log.append(("ask", approval.tool))
        approval.allow(by="click")


@pytest.mark.parametrize("permissions", ["full", "ask"])
async def test_a_run_lives_where_its_host_says(permissions):
    """The host is entered around the turn, asks if nobody else does, is called at the end, and shows the Result."""
    session = aagent_session(
        Harness.TOOL_LOOP,
        model=ScriptedModel(call("double", x=2), "4"),
        tools=[double],
        permissions=permissions,
    )
    host = Quiet()
    replace_config(session, host=host)
    result = await session.arun("Go.")
    asked = [("ask", "double")] if permissions == "ask" else []
    assert host.log == [("attend", permissions == "ask"), *asked, ("finished", "done")]
    assert result._repr_mimebundle_() == {"text/plain": "as this host shows it"}


def test_the_plain_host_runs_sync_sessions():
    """With the plain host, a session runs and streams from sync code, and shows plain text."""
    session = agent_session(Harness.TOOL_LOOP, model=ScriptedModel("One.", "Two."))
    replace_config(session.aio, host=Host())
    plain = type(session)(session.aio)
    assert plain.run("Go.").text == "One."
    assert list(plain.stream("Go on."))[-1].result.text == "Two."
    assert session.results[0]._repr_html_() == ""
    assert str(PrintKeeper()) == ""


def test_nothing_happens_at_import():
    """Importing the API watches no cells and changes no class. This begins with the first session."""
    code = (
        "from toolloop_jupyter.core.events import Result, Presenter\n"
        "before = {name: value for name, value in vars(Result).items()}\n"
        "import toolloop_jupyter.api\n"
        "assert {name: value for name, value in vars(Result).items()} == before\n"
        "from toolloop_jupyter.notebook.kernel import where\n"
        "assert not where.last_cell._watching\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
