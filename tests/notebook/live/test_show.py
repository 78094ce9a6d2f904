"""`show()` shows the streams of LiteLLM's own harnesses as it shows ours: events, approvals, Results, failures."""

from __future__ import annotations

import asyncio
import re
import time

import pytest

from support.servers import answer, calls
from toolloop_jupyter import Harness, aagent, agent, show
from toolloop_jupyter.api import NOTEBOOK
from toolloop_jupyter.core.events.errors import HarnessError
from toolloop_jupyter.notebook import kernel
from toolloop_jupyter.notebook.live import asking, presenter
from toolloop_jupyter.teaching.scripted import ScriptedModel, call

theirs = pytest.importorskip("litellm.harness", reason="this LiteLLM has no agent API")
import litellm  # noqa: E402 - after the check


class Cell:
    """A cell in memory. `text` is the text of all its outputs."""

    can_update, cell_id, execution = True, None, "one"

    def __init__(self):
        self.outputs = {}

    def display(self, bundle, display_id=None):
        self.outputs[display_id or f"own-{len(self.outputs)}"] = bundle

    update = display

    @property
    def text(self):
        return "\n".join(str(bundle.get("text/plain", "")) for bundle in self.outputs.values())


@pytest.fixture
def cell(monkeypatch):
    """The cell that show() writes to."""
    made = Cell()
    monkeypatch.setattr(kernel.Cell, "here", classmethod(lambda cls: made))
    return made


@pytest.fixture
def person(monkeypatch):
    """After `person(function)`, each card calls the function with its request. Return a list, which gets these requests."""
    seen = []

    def sits_there(decide):
        async def put_card(output, approval, fallback):
            seen.append(approval)
            decide(approval)
            await approval.wait()

        monkeypatch.setattr(asking, "put_card", put_card)
        monkeypatch.setattr(asking, "find_means", lambda means="auto": "card")
        return seen

    return sits_there


class Stream:
    """A stream of LiteLLM's events, written down. An exception among them is raised."""

    def __init__(self, *events):
        self.events, self.result = iter(events), None

    def cancel(self):
        pass

    async def __anext__(self):
        event = next(self.events, None)
        if event is None:
            raise StopAsyncIteration
        if isinstance(event, Exception):
            raise event
        return event


def result(text="", stop="done", **more):
    given = {"output": None, "files": [], "events": [], "usage": theirs.Usage(10, 5, 1), "cost": 0.0, **more}
    return theirs.Result(text=text, stop_reason=stop, session_id="s", **given)


def loop(function, server, **more):
    """LiteLLM's own Tool Loop on a scripted server, as a stream."""
    keywords = {"model": "openai/stub", "api_base": server.base_url, "api_key": "sk-test", **more}
    return function(litellm.Harness.TOOL_LOOP, "Go", stream=True, sandbox=keywords.pop("box"), **keywords)


@pytest.fixture
def box(tmp_path):
    return litellm.sandbox.local(tmp_path)


@pytest.fixture
def double():
    """A tool that keeps its arguments in `.ran`."""

    def double(x: int) -> int:
        """Double a number."""
        double.ran.append(x)
        return 2 * x

    double.ran = []
    return double


CALL = calls(("double", {"x": 4}))


# --- LiteLLM's own Tool Loop --------------------------------------------------------------------------------------


async def test_litellms_tool_loop_async(serve, box, double, cell):
    """`await show(litellm.aagent(…, stream=True))` shows the run, and returns LiteLLM's own Result."""
    made = await show(loop(litellm.aagent, serve([CALL, answer("Eight.")]), box=box, tools=[double]))
    assert isinstance(made, theirs.Result)
    assert (made.text, double.ran) == ("Eight.", [4])
    assert presenter.get_last().calls[0].name == "double"  # `%toolloop show` and `export` use this Result
    assert re.search(r"✓ double\(x=4\)  \d+\.\d\d s · ", cell.text), cell.text
    assert "Eight." in cell.text
    assert "done · 2 model calls · 1 tool call · 30 tokens · cost not reported" in cell.text


def test_litellms_tool_loop_sync(serve, box, double, cell):
    """`show(litellm.agent(…, stream=True))` does the same. Its events come from a thread."""
    made = show(loop(litellm.agent, serve([CALL, answer("Eight.")]), box=box, tools=[double]))
    assert (type(made), made.text, double.ran) == (theirs.Result, "Eight.", [4])
    assert "✓ double(x=4)" in cell.text


async def test_a_run_that_fails_says_why(serve, box, cell):
    """LiteLLM's Result has no field for an error. The error at the end of its text is shown as the reason of the failure."""
    gone = serve([])
    gone.stop()
    made = await show(loop(litellm.aagent, gone, box=box))
    assert made.stop_reason == "runtime_error"
    assert "✗ " in cell.text
    assert "Error" in cell.text
    assert "\nfailed" in cell.text


# --- each of its event classes ------------------------------------------------------------------------------------


async def test_one_of_each_event(cell):
    """Each of LiteLLM's event classes is shown. An event of an unknown class is shown as a line, and is not an error."""

    class Plan:
        def __repr__(self):
            return "Plan(steps=3)"

    diff = theirs.FileChange("a.py", "modified", "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-1\n+2\n")
    end = result("The end.", files=[diff])
    made = await show(
        Stream(
            theirs.Reasoning("Hm."),
            theirs.Text("Hello "),
            theirs.ToolCall("1", "bash", "Bash", {"command": "ls"}),
            theirs.ToolResult("1", "a.py"),
            theirs.Compaction(1000, 100),
            Plan(),
            theirs.ToolCall("2", "write", "Write", {"path": "a.py"}),
            theirs.ToolResult("2", "PermissionError: no", True),
            diff,
            theirs.ToolResult("7", "from nowhere"),
            theirs.Done(end),
        )
    )
    assert made is end
    for wanted in (
        "(thought) Hm.",
        "Hello",
        '✓ bash(command="ls")',
        "a.py",
        "1,000 tokens before, 100 after",
        "Plan(steps=3)",
        '✗ write(path="a.py")',
        "PermissionError: no",
        "~ a.py modified",
        "from nowhere",
        "The end.",
        "done · 1 model call · 2 tool calls (1 error) · 15 tokens · cost not reported",
    ):
        assert wanted in cell.text, wanted


@pytest.mark.parametrize("text", ["partial\n\nTurnError: not logged in", "TurnError: not logged in"])
async def test_the_reason_of_a_failure(cell, text):
    """The text and the reason of a failure are shown apart, even if the text is empty."""
    await show(Stream(theirs.Text("partial"), theirs.Done(result(text, "runtime_error"))))
    assert "✗ TurnError: not logged in" in cell.text
    assert cell.text.count("partial") == 1


async def test_only_a_done_event(cell):
    """A stream may have nothing but its Done event."""
    assert (await show(Stream(theirs.Done(result("All.", cost=0.5))))).text == "All."
    assert "All." in cell.text
    assert "$0.50" in cell.text


async def test_what_litellm_raises_comes_through(cell):
    """An error that LiteLLM raises after its Done event is raised unchanged. The run is shown before."""
    invalid = theirs.OutputInvalid("no match", "x", result())
    with pytest.raises(theirs.OutputInvalid) as raised:
        await show(Stream(theirs.Text("x"), theirs.Done(result("x")), invalid))
    assert raised.value is invalid
    assert "done ·" in cell.text


# --- approvals ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [litellm.aagent, litellm.agent])
@pytest.mark.parametrize("allowed", [True, False])
def test_the_card_decides(serve, box, double, cell, person, function, allowed):
    """A click on the card allows or denies LiteLLM's request, and the record says so."""
    person(lambda asked: asked.allow(by="click") if allowed else asked.deny("no", by="click"))
    stream = loop(function, serve([CALL, answer("ok")]), box=box, tools=[double], permissions="ask")
    made = show(stream)
    if function is litellm.aagent:
        made = asyncio.run(_awaited(made))
    assert made.stop_reason == "done"
    assert double.ran == ([4] if allowed else [])
    assert ("✓ double(x=4)  approved by click" if allowed else "⊘ double(x=4)  denied by click") in cell.text
    assert ("(1 approved)" if allowed else "(1 denied)") in cell.text


async def _awaited(awaitable):
    return await awaitable


async def test_litellms_request_cannot_be_edited(serve, box, double, cell, person):
    """A person can neither edit LiteLLM's request nor decide for more than one call. If code tries an edit, nothing is decided."""
    errors = []

    def tries_to_edit(asked):
        try:
            asked.allow({"x": 1}, by="click")
        except ValueError as error:
            errors.append(str(error))
        assert not asked.answered
        asked.allow(by="click")

    seen = person(tries_to_edit)
    await show(loop(litellm.aagent, serve([CALL, answer("ok")]), box=box, tools=[double], permissions="ask"))
    assert "cannot be run with other arguments" in errors[0]
    assert (seen[0].editable, seen[0].scopes, double.ran) == (False, ("call",), [4])
    assert "edit" not in cell.text


@pytest.mark.parametrize("allowed", [True, False])
async def test_on_approval_decides_without_a_card(serve, box, double, cell, person, allowed):
    """If `on_approval` answers at once, no card is shown. The record says who has decided."""
    seen = person(lambda asked: None)  # nobody clicks
    server = serve([CALL, answer("ok")])
    keywords = {"tools": [double], "permissions": "ask", "on_approval": lambda asked: allowed}
    made = await asyncio.wait_for(show(loop(litellm.aagent, server, box=box, **keywords)), 20)
    assert (made.stop_reason, seen, double.ran) == ("done", [], [4] if allowed else [])
    assert f"{'approved' if allowed else 'denied'} by on_approval" in cell.text


@pytest.mark.parametrize("with_handler", [True, False])
async def test_nobody_there(serve, box, double, cell, monkeypatch, with_handler):
    """If nobody can be asked, `on_approval` decides. Without `on_approval`, the call is denied, and the run ends."""
    monkeypatch.setattr(asking, "find_means", lambda means="auto": "nobody")

    def handler(asked):
        time.sleep(0.4)
        return True

    more = {"on_approval": handler} if with_handler else {}
    server = serve([CALL, answer("ok")])
    await asyncio.wait_for(
        show(loop(litellm.aagent, server, box=box, tools=[double], permissions="ask", **more)), 20
    )
    assert double.ran == ([4] if with_handler else [])
    assert ("approved by on_approval" if with_handler else "denied because nobody") in cell.text


@pytest.mark.parametrize("means", ["card", "nobody"])
async def test_our_own_on_approval_decides(cell, person, double, monkeypatch, means):
    """If our own stream has an `on_approval`, it decides, and no card is shown, whether or not a person is there."""
    seen = person(lambda asked: asked.deny("clicked", by="click"))
    monkeypatch.setattr(asking, "find_means", lambda means="auto": means)
    model = ScriptedModel(call("double", x=4), "ok")

    def handler(asked):
        time.sleep(0.3)
        return True

    keywords = {"model": model, "tools": [double], "permissions": "ask", "on_approval": handler}
    await show(aagent(Harness.TOOL_LOOP, "Go", stream=True, **keywords))
    assert (double.ran, seen) == ([4], [])
    assert "approved by on_approval" in cell.text


async def test_stop_while_the_card_waits(serve, box, double, cell, person):
    """If the run is stopped while LiteLLM's request waits, the request is denied, and the run ends as cancelled."""
    stream = loop(litellm.aagent, serve([CALL, answer("ok")]), box=box, tools=[double], permissions="ask")
    person(lambda asked: stream.cancel())
    running = asyncio.ensure_future(_awaited(show(stream)))
    await asyncio.wait([running], timeout=20)  # `wait_for` would cancel the wait for the card
    assert running.done()
    made = running.result()
    assert (made.stop_reason, double.ran) == ("cancelled", [])
    assert "⊘ double(x=4)  denied by Stop" in cell.text
    assert "running" not in cell.text


async def test_a_request_that_comes_after_a_stop(cell, person):
    """After the run was stopped, LiteLLM's stream brings one more request: it is denied, without a card."""
    shown = person(lambda asked: None)

    class Slow(Stream):
        async def __anext__(self):
            await asyncio.sleep(0.1)
            return await super().__anext__()

    call = theirs.ToolCall("1", "rm", "rm", {"x": 1})
    done = theirs.Done(result(stop="cancelled"))
    running = asyncio.ensure_future(_awaited(show(Slow(call, theirs.Approval("rm", {"x": 1}), done))))
    await asyncio.sleep(0.15)
    running.cancel()
    await asyncio.wait([running], timeout=10)
    assert (running.done(), shown) == (True, [])
    assert "denied by Stop" in cell.text


async def test_an_answer_of_litellms_own_handler_ends_the_wait_for_a_person(serve, box, double, cell, person):
    """LiteLLM's `on_approval` answers after the card has appeared: it decides, and the card ends."""
    person(lambda asked: None)

    async def handler(asked):
        await asyncio.sleep(1.0)
        return True

    keywords = {"tools": [double], "permissions": "ask", "on_approval": handler}
    stream = loop(litellm.aagent, serve([CALL, answer("ok")]), box=box, **keywords)
    running = asyncio.ensure_future(_awaited(show(stream)))
    await asyncio.wait([running], timeout=20)
    assert running.done()
    assert (running.result().text, double.ran) == ("ok", [4])


async def test_an_interrupt_ends_with_litellms_result(serve, box, cell):
    """An interrupt while LiteLLM's model answers cancels the turn. The Result is still returned."""
    stream = loop(litellm.aagent, serve([answer("late", stall=10)]), box=box)
    running = asyncio.ensure_future(_awaited(show(stream)))
    await asyncio.sleep(1.0)
    running.cancel()
    made = await asyncio.wait_for(running, 8)
    assert made.stop_reason == "cancelled"
    assert "stopped ·" in cell.text


# --- once more ----------------------------------------------------------------------------------------------------


async def test_a_finished_stream_is_shown_again(serve, box, double, cell):
    """If a stream was read before, `show()` shows and returns its Result: for LiteLLM's streams and ours."""
    server = serve([CALL, answer("Eight.")] * 2)
    keywords = {"model": "openai/stub", "api_base": server.base_url, "api_key": "sk-test", "tools": [double]}
    for stream in (
        loop(litellm.aagent, server, box=box, tools=[double]),
        aagent(Harness.TOOL_LOOP, "Go", stream=True, **keywords),
    ):
        first = await show(stream)
        cell.outputs.clear()
        assert await show(stream) is first
        assert "✓ double(x=4)" in cell.text
        assert "Eight." in cell.text


def test_results_are_shown(serve, box, double, cell, person):
    """`show()` also shows a Result of LiteLLM, with the decisions about its calls."""
    person(lambda asked: asked.deny("no", by="click"))
    made = show(loop(litellm.agent, serve([CALL, answer("ok")]), box=box, tools=[double], permissions="ask"))
    cell.outputs.clear()
    assert show(made) is None
    assert "⊘ double(x=4)" in cell.text
    assert "ok" in cell.text


async def test_a_closed_stream_says_so(cell):
    """If a stream was closed before, `show()` raises an error that says what to do."""
    stream = aagent(Harness.TOOL_LOOP, "Go", stream=True, model="toolloop/demo")
    await stream.aclose()
    with pytest.raises(HarnessError, match="start the run again to show it"):
        await show(stream)


def test_a_result_is_hidden_only_in_the_cell_that_showed_it(cell):
    """A Result is not shown again as the value of the cell that has shown the run. As the value of a later cell, it is shown."""
    made = show(agent(Harness.TOOL_LOOP, "Hi", stream=True, model="toolloop/demo"))
    cell.outputs.clear()
    NOTEBOOK.presenter.display(made)
    assert not cell.outputs
    show(agent(Harness.TOOL_LOOP, "Hi", stream=True, model="toolloop/demo"))
    cell.execution = "two"
    cell.outputs.clear()
    NOTEBOOK.presenter.display(made)
    assert cell.outputs
