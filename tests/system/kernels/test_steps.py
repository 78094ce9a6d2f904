"""Step mode and dry runs in a live kernel: they show exactly what the server gets, and no step runs without a click."""

from __future__ import annotations

import html
import json
import re

import pytest

from support.kernels import LiveKernel
from support.servers import answer, calls

pytestmark = pytest.mark.kernel

SET_UP = '''
%load_ext toolloop_jupyter
import os
import pydantic
from toolloop_jupyter.teaching.scripted import ScriptedModel
from toolloop_jupyter.teaching.scripted import call
ran = []
STUB_KEY = "sk-not-to-be-seen-1234"

def double(x: int) -> int:
    """Double a number."""
    ran.append(x)
    return 2 * x

class Book(pydantic.BaseModel):
    title: str
'''


@pytest.fixture(scope="module")
def kernel():
    """A kernel for the tests of this module."""
    with LiveKernel() as live:
        assert live.execute(SET_UP).status == "ok"
        live.execute("%%toolloop\nhi", timeout=120)  # imports litellm
        yield live


@pytest.fixture(autouse=True)
def fresh(kernel):
    """Before the test, there are no sessions, defaults or runs of other tests."""
    yield
    kernel.execute("ran.clear()\n%config ToolLoop.ask = 'auto'")
    kernel.execute("%toolloop reset")
    assert kernel.open_widgets() == []


def shown_json(output_html):
    """Return the JSON in a step's `<pre>` elements, without colours and escapes."""
    return [
        json.loads(html.unescape(re.sub(r"<[^>]+>", "", pre)))
        for pre in re.findall(r"<pre[^>]*>(.*?)</pre>", output_html, re.DOTALL)
    ]


def steps(execution, mark):
    """Return the outputs of a cell that begin with this mark: "→" for a request, "←" for a reply."""
    return [output for output in execution.outputs if output.text.startswith(mark)]


def test_what_is_shown_is_what_the_server_got(kernel, serve):
    """The shown JSON of each request has the messages, tools and options that the server logged. So has the shown reply."""
    server = serve([calls(("double", {"x": 4}), content="I ask."), answer("It is 8.")])
    line = f"--model openai/stub --api-base {server.base_url} --api-key STUB_KEY -t double --set temperature=0.3 -i 'Be kind.'"
    done = kernel.execute(f"%%toolloop --step {line}\nDouble 4 <b>&amp;</b>")
    sent = [shown_json(output.data["text/html"])[0] for output in steps(done, "→")]
    assert len(sent) == len(server.requests) == 2
    for shown, request in zip(sent, server.requests, strict=True):
        assert (shown.pop("model"), request.body["model"]) == ("openai/stub", "stub")
        assert shown.pop("api_base") == server.base_url
        assert shown == {key: value for key, value in request.body.items() if key != "model"}
    came = [shown_json(output.data["text/html"])[0] for output in steps(done, "←")]
    assert came[0] == server.requests[1].messages[-2]
    assert came[1]["content"] == "It is 8."
    assert "20 tokens read" in done.text or "tokens read" in done.text
    assert "not-to-be-seen" not in json.dumps([output.data for output in done.outputs])
    assert "api_key" in done.text


def test_the_order_of_what_is_shown(kernel):
    """These are shown in this order: request, text, reply, the call before it runs, the call, the next request."""
    kernel.execute("lesson = ScriptedModel(['I ask.', call('double', x=4)], 'It is 8.')")
    done = kernel.execute("%%toolloop --step --model lesson -t double\nDouble 4")
    firsts = [output.text.split("\n")[0] for output in done.outputs]
    assert [re.sub(r"  \d.*", "", line) for line in firsts] == [
        "lesson · tools double",
        "→ to the model: 1 message, 1 tool",
        "I ask.",
        "← from the model: it asks for 1 tool call · 3 tokens read, 4 written",
        "› next: run double(x=4)",
        "✓ double(x=4)",
        "→ to the model: 3 messages, 2 of them new",
        "It is 8.",
        firsts[8],
        firsts[9],
    ]
    assert firsts[8].startswith("← from the model: the answer above · ")
    assert firsts[9].startswith("done · 2 model calls")


def test_each_step_shows_what_is_new(kernel):
    """Messages, tools and options that a person has seen are not shown again. The answer is shown once."""
    kernel.execute("lesson = ScriptedModel(['I ask.', call('double', x=4)], 'It is 8.', 'Eight, I said.')")
    done = kernel.execute(
        "%%toolloop --step --model lesson -t double -s new -i 'Be kind.' --set temperature=0.5\nDouble 4"
    )
    first, second = [output.text.split("\n    ") for output in steps(done, "→")]
    assert first[1:] == [
        "⚙ system     Be kind.",
        "☺ user       Double 4",
        "tools        double",
        "options      temperature=0.5",
    ]
    assert second[1:] == ["◆ assistant  its own reply, unchanged", "› tool       8"]
    assert done.text.count("It is 8.") == done.text.count("I ask.") == 1
    again = kernel.execute("%%toolloop --step --model lesson -s new\nWhat was it?")
    (third,) = [output.text.split("\n    ") for output in steps(again, "→")]
    assert third == [
        "→ to the model: 6 messages, 1 of them new, 1 tool",
        "☺ user       What was it?",
        "tools        double",
    ]
    sent = shown_json(steps(again, "→")[0].data["text/html"])[0]
    assert len(sent["messages"]) == 6, "the whole request is in the fold"
    kernel.execute("%toolloop reset")


def test_one_stop(kernel):
    """While a step waits, there is only one Stop, in the toolbar."""
    kernel.execute("lesson = ScriptedModel('Hi.')")
    cell = kernel.submit("%%toolloop --step --model lesson\nHello", allow_stdin=True)
    kernel.button("Next")
    labels = [button.description for button in kernel.open_widgets("ButtonModel")]
    assert sorted(labels) == ["Next", "Run to end", "Stop"]
    kernel.click("Next")
    kernel.wait(cell)


def test_nothing_goes_out_before_next(kernel, serve):
    """Each Next lets one step run: one request, then one tool, then one request."""
    server = serve([calls(("double", {"x": 4})), answer("It is 8.")])
    line = f"--model openai/stub --api-base {server.base_url} --api-key STUB_KEY -t double"
    cell = kernel.submit(f"%%toolloop --step {line}\nDouble 4", allow_stdin=True)
    kernel.button("Next")
    kernel.settle(0.5)
    assert server.requests == []
    kernel.click("Next")
    kernel.wait_until(lambda: "› next: run double" in cell.text, 30, "the call to come")
    kernel.settle(0.3)
    assert len(server.requests) == 1
    assert "✓ double" not in cell.text
    kernel.click("Next")
    kernel.wait_until(lambda: "✓ double" in cell.text and "3 messages" in cell.text, 30, "the second request")
    kernel.settle(0.3)
    assert len(server.requests) == 1
    kernel.click("Next")
    kernel.wait(cell)
    assert len(server.requests) == 2
    assert cell.status == "ok"


def test_run_to_end_holds_no_more(kernel):
    """After "Run to end", all further steps are shown as before, but do not wait."""
    kernel.execute("lesson = ScriptedModel(call('double', x=4), 'It is 8.')")
    cell = kernel.submit("%%toolloop --step --model lesson -t double\nDouble 4", allow_stdin=True)
    kernel.click("Run to end")
    kernel.wait(cell)
    assert len(steps(cell, "→")) == 2
    assert len(steps(cell, "›")) == 1


@pytest.mark.parametrize("clicks", [["Stop"], ["Next", "Stop"]])
def test_stop_ends_the_run_before_the_step(kernel, clicks):
    """Stop on the card ends the run. The step that waited does not run, and the history stays valid."""
    kernel.execute("lesson = ScriptedModel(call('double', x=4), 'It is 8.')")
    cell = kernel.submit(
        "%%toolloop --step --model lesson -t double -s held --as r\nDouble 4", allow_stdin=True
    )
    for number, label in enumerate(clicks):
        kernel.wait_until(lambda n=number: len(steps(cell, "→") + steps(cell, "›")) > n, 30, "a step")
        button = kernel.button("Next")
        kernel.click(label)
        kernel.wait_until(lambda b=button: not b.open, 10, "the card to go")
    kernel.wait(cell)
    checked = kernel.execute(
        "from toolloop_jupyter.core.conversation import history\nh = %toolloop history held\n"
        "print(r.stop_reason, ran, len(lesson.requests), history.validate(h))"
    )
    assert checked.stdout == f"cancelled [] {len(clicks) - 1} []\n"


def test_in_ask_mode_the_card_comes_after_next(kernel):
    """First, Next shows the call. Then the person is asked about it, and the edited call runs."""
    kernel.execute("lesson = ScriptedModel(call('double', x=4), 'It is 8.')")
    cell = kernel.submit("%%toolloop --step --model lesson -t double -p ask\nDouble 4", allow_stdin=True)
    kernel.click("Next")
    kernel.wait_until(lambda: "› next: run double" in cell.text, 30, "the call to come")
    kernel.button("Next")
    assert not [b for b in kernel.open_widgets("ButtonModel") if b.description == "Approve"]
    kernel.click("Next")
    kernel.click("Approve")
    kernel.wait_until(lambda: "3 messages" in cell.text, 30, "the second request")
    kernel.click("Run to end")
    kernel.wait(cell)
    assert kernel.execute("print(ran)").stdout == "[4]\n"
    assert len(steps(cell, "›")) == 1


def test_at_a_keyboard(kernel):
    """Without widgets, Enter means Next, r runs to the end, and s stops."""
    kernel.execute("%config ToolLoop.ask = 'input'")
    for answers, outcome in (
        (["", "", "r"], "done [4] 2"),
        (["", "s"], "cancelled [] 1"),
        (["r"], "done [4] 2"),
    ):
        kernel.execute("lesson = ScriptedModel(call('double', x=4), 'It is 8.')\nran.clear()")
        kernel.prompts.clear()
        left = iter(answers)
        kernel.on_input = lambda _, left=left: next(left)
        cell = kernel.execute("%%toolloop --step --model lesson -t double --as r\nDouble 4", allow_stdin=True)
        assert kernel.prompts[0] == "  [Enter] to call the model, r to run to the end, s to stop: "
        assert len(kernel.prompts) == len(answers), cell.text
        assert kernel.execute("print(r.stop_reason, ran, len(lesson.requests))").stdout == f"{outcome}\n"


def test_nobody_there_is_not_waited_for(kernel):
    """An unattended run (nbconvert, papermill) shows all steps, and waits at none."""
    done = kernel.execute("%%toolloop --step -t double\nDouble 4")
    assert len(steps(done, "→")) == 2
    assert "waiting" not in done.text


def test_a_replay_step_by_step(kernel, tmp_path):
    """A replay has the same steps as its model, with the name of the recorded model."""
    tape = tmp_path / "lesson.jsonl"
    first = kernel.execute(f"%%toolloop --step --record {tape} -t double\nDouble 4")
    again = kernel.execute(f"%%toolloop --step --replay {tape} -t double\nDouble 4")
    assert [o.text for o in steps(again, "→")] == [o.text for o in steps(first, "→")]
    assert again.text.startswith("toolloop/demo · tools double")


def test_a_dry_run_changes_nothing(kernel):
    """The first request is shown exactly. Afterwards, there is no new session, turn or variable, and the script has not
    moved.
    """
    kernel.execute("lesson = ScriptedModel('one', 'two')")
    kernel.execute("%%toolloop --model lesson -s talk -i 'Be kind.'\nFirst")
    dry = kernel.execute("%%toolloop --dry-run -s talk --as gone -t double --output Book\nSecond")
    assert dry.text.startswith(
        "→ would be sent to lesson: 4 messages, 1 tool\n    ⚙ system     Be kind.\n    ☺ user       First"
    )
    assert "options      " in dry.text
    assert "title" in json.dumps(shown_json(dry.html)[0]["response_format"])
    other = kernel.execute("%%toolloop --dry-run -s other --model lesson\nhi")
    assert other.status == "ok"
    after = kernel.execute(
        "h = %toolloop history talk\nprint(len(h), 'gone' in globals(), lesson.position)\n%toolloop"
    )
    assert after.stdout.startswith("3 False 1\n")
    assert "other" not in after.stdout
    assert "two" in kernel.execute("%%toolloop -s talk\nSecond").text
    assert "tools" not in kernel.execute("%toolloop show talk").text.split("Second")[0], (
        "no tool of the dry run"
    )


def test_a_dry_run_of_the_gateway_shows_no_key(kernel):
    """The gateway's address and options are shown. Of the key and the headers, only the names are shown."""
    line = "--model litellm_proxy/coder --api-base https://gateway.example --api-key STUB_KEY --metadata course=week-3"
    done = kernel.execute(f"%%toolloop --dry-run {line} -t double\nhi")
    assert "→ would be sent to litellm_proxy/coder: 1 message, 1 tool" in done.text
    assert 'api_base="https://gateway.example"' in done.text
    assert "not shown    api_key, extra_headers" in done.text
    everything = json.dumps([output.data for output in done.outputs])
    assert "not-to-be-seen" not in everything
    assert "week-3" not in everything
