"""A run is shown while it goes on, and shown again later: both pages have the same blocks, for any events."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolloop_jupyter import Attachment, Harness, aagent, tool
from toolloop_jupyter.core.events import Approval
from toolloop_jupyter.core.events.events import (
    FileChange,
    Reasoning,
    Retry,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)
from toolloop_jupyter.core.events.result import Done, Result
from toolloop_jupyter.notebook.live.column import EMPTY
from toolloop_jupyter.notebook.live.view import CellRun, ViewOptions
from toolloop_jupyter.notebook.transcript.blocks import draw_head
from toolloop_jupyter.notebook.transcript.steps import make_bundle, render
from toolloop_jupyter.teaching.scripted import ScriptedModel, call

PNG = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class Cell:
    """A notebook cell in memory. `outputs` is what a front-end would save."""

    can_update = True

    def __init__(self):
        self.outputs = {}

    def display(self, bundle, display_id):
        self.outputs[display_id] = bundle

    update = display

    def clear(self):
        self.outputs.clear()

    @property
    def blocks(self):
        """The blocks below the head."""
        return [bundle for bundle in self.outputs.values() if bundle != EMPTY][1:]


async def stream_of(events):
    for event in events:
        yield event


async def live(events, *, has_hooks):
    """Show a run in a cell while it goes on. Return its blocks."""
    cell = Cell()
    run = CellRun(cell, draw_head("m", []), ViewOptions(name="r"))
    if not has_hooks:
        run.do_without_hooks()
    await run.follow(stream_of(events), lambda: None)
    return cell.blocks


def again(result):
    """Show a run again. Return its blocks below the head."""
    return [make_bundle(block) for block in render(result, "r")][1:]


words = st.text("ab *`\n<$\u202e\x1b", max_size=12)


@st.composite
def calls(draw, number, *, ends):
    """The events of one call. A call of another harness may have no result."""
    made = ToolCall(f"c{number}", "look", "look", {"q": draw(words)})
    events = [made]
    allowed = draw(st.sampled_from([None, True, False]))
    if allowed is not None:
        asked = Approval("look", {"q": "as validated"}, call_id=made.id)
        asked.allow(by="click") if allowed else asked.deny("no", by="click")
        events.append(asked)
    value = draw(st.one_of(words, st.lists(words, max_size=2)))
    failed = allowed is False or draw(st.booleans())
    if ends or draw(st.booleans()):
        events.append(ToolResult(made.id, str(value), is_error=failed, value=value, ran=allowed is not False))
    return events


@st.composite
def runs(draw, *, has_hooks):
    """The Result of a whole run, with its events."""
    events: list = []
    for number in range(draw(st.integers(0, 6))):
        match draw(st.sampled_from(["text", "thought", "call", "retry", "begin again", "picture", "file"])):
            case "text":
                events += [Text(draw(words)) for _ in range(3)]
            case "thought":
                events += [Reasoning(draw(words)) for _ in range(2)]
            case "call":
                events += draw(calls(number, ends=has_hooks))
            case "retry":
                again = Retry(1, "cut", of_answer=draw(st.booleans()))
                events += [Text("Half an "), again, Text("answer.")]
            case "begin again":
                events += [
                    Text("Ha"),
                    Text("lf"),
                    Retry(1, "cut"),
                    Retry(0, "differs", "Half"),
                    Text("Whole."),
                ]
            case "picture":
                events.append(Attachment("picture", f"p{number}", draw(st.sampled_from([PNG, ""]))))
            case "file":
                events.append(FileChange(f"f{number}", "modified", draw(st.sampled_from(["-x\n+y\n", None]))))
    output = draw(st.sampled_from([None, {"n": 1}]))
    error = draw(st.sampled_from([None, "out of time"]))
    files = [one for one in events if isinstance(one, FileChange)] or draw(
        st.sampled_from([[], [FileChange("only told at the end", "created", "+x\n")]])
    )
    stop = "runtime_error" if error else "done"
    return Result('{"n": 1}', output, files, events, Usage(1, 2, 3), None, stop, "s", error, "m", "Go")


@pytest.mark.asyncio
@pytest.mark.parametrize("has_hooks", [True, False], ids=["ours", "another runtime's"])
@settings(max_examples=100, deadline=None)
@given(data=st.data())
async def test_each_block_is_the_same(has_hooks, data):
    """For any events, both pages have the same blocks in the same order."""
    run = data.draw(runs(has_hooks=has_hooks))
    assert await live([*run.events, Done(run)], has_hooks=has_hooks) == again(run)


@tool(capture_output=True)
def count(text: str) -> int:
    """Count the words."""
    print("counting", text)
    return len(text.split())


def fail() -> None:
    """Fail."""
    raise ValueError("no such thing")


SCRIPTS = {
    "an answer": ["Hello **you**."],
    "calls": [call("count", text="a b"), call("fail"), "Two."],
    "wrong calls": [call("count"), call("nothing", x=1), "I cannot."],
    "a long answer": ["A paragraph of words.\n\n" * 300],
}


@pytest.mark.parametrize("name", SCRIPTS)
async def test_a_scripted_run_says_the_same(name):
    """A run of our own loop, with hooks: both pages have the same words. While the run goes on, a long text has several outputs."""
    cell = Cell()
    stream = aagent(
        Harness.TOOL_LOOP, "Go", stream=True, model=ScriptedModel(*SCRIPTS[name]), tools=[count, fail]
    )
    run = CellRun(cell, draw_head("m", []), ViewOptions(name="r"))
    stream.observe(run.hooks)
    result = await run.follow(stream, stream.cancel)
    shown, expected = (
        " ".join(one["text/plain"] for one in blocks) for blocks in (cell.blocks, again(result))
    )
    assert shown.split() == expected.split()


async def test_a_terminal_says_the_same(capsys):
    """In a terminal, an answer that begins again after a retry has a line of its own, and hidden characters are visible."""
    cell = Cell()
    cell.can_update = False
    run = CellRun(cell, draw_head("m", []), ViewOptions(name="r"))
    events = [Text("no"), Text("\u202epe"), Retry(1, "it does not fit", of_answer=True), Text("no")]
    await run.follow(
        stream_of([*events, Done(Result("no", None, [], events, Usage(), None, "done", "s"))]), lambda: None
    )
    assert capsys.readouterr().out == "no⟨U+202E⟩pe\nno\n"
