"""Guarantees about the card, in a live kernel: forged, late and double clicks, two runs at the same time, a kernel that is
restarted.
"""

from __future__ import annotations

import re
import uuid

import nbformat
import pytest
from nbconvert import HTMLExporter, MarkdownExporter

from support.kernels import LiveKernel, Widget

pytestmark = pytest.mark.kernel

SET_UP = '''
%load_ext toolloop_jupyter
import asyncio, json, pathlib
from toolloop_jupyter import Harness, aagent, agent
from toolloop_jupyter.teaching.scripted import ScriptedModel
from toolloop_jupyter.teaching.scripted import call
ran = []

def f(x: int, note: str = "none") -> str:
    """Note a number."""
    ran.append(x)
    return f"noted {x}"

def script(*turns):
    return ScriptedModel(*turns, "All done.", repeat_last=True)
'''


@pytest.fixture(scope="module")
def kernel():
    with LiveKernel() as live:
        assert live.execute(SET_UP, timeout=120).status == "ok"
        live.execute("%%toolloop -t f\nWarm up.", timeout=120)
        yield live


@pytest.fixture(autouse=True)
def fresh(kernel):
    """Before the test, nothing has run. After the test, no widget may be open."""
    kernel.execute("ran.clear()")
    yield
    kernel.settle(0.1)
    for execution in kernel.executions.values():
        if not execution.done:  # a test failed with its card open
            kernel.interrupt()
            kernel.wait(execution)
    assert kernel.open_widgets() == []


def ask(kernel, turns="call('f', x=1)", options=""):
    """Begin a cell in ask mode, and wait for its card."""
    cell = kernel.submit(
        f"m = script({turns})\nget_ipython().run_cell_magic('toolloop', '-m m -t f -p ask --as r {options}', 'Go.')",
        allow_stdin=True,
    )
    kernel.button("Approve")
    kernel.settle(0.2)
    return cell


def ran(kernel):
    return kernel.execute("print(ran)").stdout.strip()


def test_a_second_click_does_nothing(kernel):
    """Two clicks on Approve and one on Deny come at the same time: the tool runs once, without an error, and nothing is printed."""
    cell = ask(kernel)
    approve, deny = kernel.button("Approve"), kernel.button("Deny")
    for widget in (approve, approve, deny):
        kernel.click_widget(widget)
    kernel.wait(cell)
    assert cell.error is None
    assert cell.stderr == ""
    assert "approved by click" in cell.text
    assert ran(kernel) == "[1]"


@pytest.mark.parametrize("label", ["Approve", "Deny"])
@pytest.mark.parametrize("way", ["button.click()", "button._click_handlers(button)"])
def test_a_click_by_code_is_recorded_as_one(kernel, label, way):
    """A thread of a tool can press a card's button, as any code in the kernel can. The record says that code decided, and
    that nobody clicked.
    """
    kernel.execute(f"""
import threading, time, ipywidgets
from toolloop_jupyter.notebook.widgets import controls
controls.Card.last_click = float("-inf")  # a click of an earlier test would hold the card
def leave() -> str:
    'Leave a thread that waits for the next card.'
    def work():
        while not (found := [w for w in list(ipywidgets.widgets.widget._instances.values())
                             if getattr(w, "description", "") == {label!r} and not w.disabled]):
            time.sleep(0.05)
        button = found[0]
        while not button.disabled:  # it does something once its card is whole
            {way}
            time.sleep(0.05)
    threading.Thread(target=work, daemon=True).start()
    return 'left'
m = script(call('leave'), call('f', x=5))
""")
    kernel.execute("only_f = lambda asked: 'ask' if asked.name == 'f' else 'full'")
    shown = kernel.execute("%%toolloop -m m -t leave f -p only_f --as r\nGo.", allow_stdin=True)
    assert "by code, without a click" in shown.html
    decided = kernel.execute("print(r.approvals[0].decision.by, ran)").stdout.split()
    assert decided == (["code", "[5]"] if label == "Approve" else ["code", "[]"])
    cell = ask(kernel, "call('f', x=6)")
    kernel.click_widget(kernel.button(label))
    kernel.wait(cell)
    assert kernel.execute("print(r.approvals[0].decision.by)").stdout.strip() == "click"


BEGIN_LONG_HOLD = """
from toolloop_jupyter.notebook.widgets import controls
usual = controls.SOON, controls.PAUSE
controls.SOON = controls.PAUSE = 600
controls.Card.last_click = float("-inf")  # a click of an earlier test
"""
END_HOLD = """
import threading, time
def end_hold():
    while not over.exists():
        time.sleep(0.01)
    controls.PAUSE = 0
    for card in tuple(controls.Card.on_page):
        card.hold()
threading.Thread(target=end_hold, daemon=True).start()
"""
"""Ends the hold as soon as the file `over` exists, even while a cell runs."""


@pytest.fixture
def long_hold(kernel, tmp_path):
    """After a click, cards are held until the test makes the file that this fixture returns, or until the test ends."""
    over = tmp_path / "over"
    begun = kernel.execute(f"over = pathlib.Path({str(over)!r})\n{BEGIN_LONG_HOLD}{END_HOLD}")
    assert begun.status == "ok"
    yield over
    over.touch()
    for execution in kernel.executions.values():
        if not execution.done:  # the test failed with its card open
            kernel.interrupt()
            kernel.wait(execution)
    kernel.execute("controls.SOON, controls.PAUSE = usual")


def test_a_double_click_is_not_for_the_next_card(kernel, long_hold):
    """A click on the second card's Approve, right when the card appears, lets nothing run. The button is disabled first, and
    enabled later.
    """
    cell = ask(kernel, "[call('f', x=1), call('f', x=2)]")
    first = kernel.button("Approve")
    kernel.click_widget(first)

    def next_one():
        return [
            b for b in kernel.open_widgets("ButtonModel") if b.description == "Approve" and b is not first
        ]

    kernel.wait_until(next_one)
    second = next_one()[-1]
    kernel.click_widget(second)
    kernel.wait_until(lambda: second.state["disabled"], what="the hold of the second card")
    kernel.settle(0.3)
    assert second.state["disabled"]
    assert not cell.done
    long_hold.touch()
    kernel.click("Approve")
    kernel.wait(cell)
    assert ran(kernel) == "[1, 2]"


def test_a_click_on_a_finished_card_does_nothing(kernel):
    """The buttons of an earlier run's card do nothing, even while another card waits."""
    cell = ask(kernel)
    old = [kernel.button("Approve"), kernel.button("Deny"), kernel.button("Edit")]
    kernel.click_widget(old[0])
    kernel.wait(cell)
    second = ask(kernel, "call('f', x=2)")
    before = len(kernel.messages)
    for widget in old:
        kernel.set_state(widget, disabled=False)
        kernel.click_widget(widget)
    kernel.settle(0.4)
    shown = [m["content"] for m in kernel.messages[before:] if m["msg_type"] in ("stream", "error")]
    assert shown == []
    assert not second.done
    kernel.click("Deny")
    kernel.wait(second)
    assert ran(kernel) == "[1]"


def test_forged_messages_do_nothing(kernel):
    """Clicks on ids that do not exist, and on widgets that are not buttons, neither decide nor print anything."""
    cell = ask(kernel)
    before = len(kernel.messages)
    kernel.click_widget(Widget(uuid.uuid4().hex, {}))
    for widget in [w for w in kernel.open_widgets() if w.model != "ButtonModel"]:
        kernel.click_widget(widget)
    for content in ({"event": "approve"}, {"event": ["click"]}, {}):
        kernel.send_comm(kernel.button("Approve"), {"method": "custom", "content": content})
    kernel.set_state(kernel.open_widgets("DropdownModel")[-1], index=99)
    kernel.settle(0.4)
    assert not cell.done
    shown = [m for m in kernel.messages[before:] if m["msg_type"] in ("stream", "error")]
    assert [m["content"] for m in shown if "index" not in str(m["content"])] == []
    kernel.click("Deny")
    kernel.wait(cell)
    assert ran(kernel) == "[]"


def test_a_click_after_stop_does_nothing(kernel):
    """Stop while a card is open ends the turn. The card's buttons then do nothing, and the next run works as usual."""
    cell = ask(kernel)
    approve = kernel.button("Approve")
    kernel.click("Stop")
    kernel.wait(cell)
    kernel.click_widget(approve)
    kernel.settle(0.3)
    assert "cancelled" in cell.text
    assert "by Stop" in cell.text
    assert ran(kernel) == "[]"
    after = ask(kernel, "call('f', x=3)")
    kernel.click("Approve")
    kernel.wait(after)
    assert ran(kernel) == "[3]"


def test_an_interrupt_approves_nothing(kernel):
    """After ■ while a card is open, the call does not run, and the card's buttons do nothing."""
    cell = ask(kernel)
    approve = kernel.button("Approve")
    kernel.interrupt()
    kernel.wait(cell)
    kernel.click_widget(approve)
    kernel.settle(0.3)
    assert ran(kernel) == "[]"


def test_two_runs_in_one_cell_have_their_own_cards(kernel):
    """`asyncio.gather` runs two turns: each card decides its own turn, whichever is clicked first."""
    cell = kernel.submit(
        "one, two = await asyncio.gather(*(aagent(Harness.TOOL_LOOP, 'Go.', model=script(call('f', x=n)), tools=[f], "
        "permissions='ask') for n in (10, 20)))\nprint([r.approvals[0].decision.allowed for r in (one, two)])",
        allow_stdin=True,
    )
    kernel.wait_until(
        lambda: (
            [
                b.state.get("disabled", False)
                for b in kernel.open_widgets("ButtonModel")
                if b.description == "Approve"
            ]
            == [False, False]
        ),
        60,
    )
    kernel.settle(0.2)
    cards = [w for w in kernel.open_widgets("HTMLModel") if "tlj-title" in w.state.get("value", "")]
    first_is_ten = re.search(r">10</code>", cards[0].state["value"]) is not None
    approve = [b for b in kernel.open_widgets("ButtonModel") if b.description == "Approve"]
    deny = [b for b in kernel.open_widgets("ButtonModel") if b.description == "Deny"]
    kernel.click_widget(approve[1])
    kernel.click_widget(deny[0])
    kernel.wait(cell)
    assert ran(kernel) == ("[20]" if first_is_ten else "[10]")
    assert ("[False, True]" if first_is_ten else "[True, False]") in cell.stdout


def test_running_the_cell_again_approves_nothing(kernel):
    """A person has approved all calls of a run. If the same cell runs again, the person is asked again."""
    for _ in range(2):
        cell = ask(kernel, "[call('f', x=1), call('f', x=2)]")
        kernel.set_state(kernel.open_widgets("DropdownModel")[-1], index=1)
        kernel.click("Approve")
        kernel.wait(cell)
        assert "all calls in this run" in cell.text
    assert ran(kernel) == "[1, 2, 1, 2]"


def test_approve_for_the_session(kernel):
    """Only a named session offers "this session". The approval covers the session's next cell, until the tool is defined
    again.
    """
    cell = ask(kernel)
    assert kernel.open_widgets("DropdownModel")[-1].state["_options_labels"] == [
        "this call only",
        "all calls of f in this run",
    ]
    kernel.click("Approve")
    kernel.wait(cell)
    cell = ask(kernel, options="-s trust")
    choice = kernel.open_widgets("DropdownModel")[-1]
    assert choice.state["_options_labels"][-1] == "all calls of f in this session"
    kernel.set_state(choice, index=2)
    kernel.click("Approve")
    kernel.wait(cell)
    more = kernel.execute(
        "m = script(call('f', x=5))\nget_ipython().run_cell_magic('toolloop', '-s trust -m m', 'More.')"
    )
    assert "approved by click" in more.text
    assert "all calls in this session" in more.text
    kernel.execute(SET_UP[SET_UP.index("def f") : SET_UP.index("def script")])
    again = ask(kernel, "call('f', x=6)", options="-s trust")
    kernel.click("Deny")
    kernel.wait(again)
    assert ran(kernel) == "[1, 1, 5]"


def test_approval_by_a_subshell(kernel):
    """A click that comes on a subshell's thread (JupyterLab with ipykernel 7) works like any other click."""
    if not kernel.has_subshells:
        pytest.skip("this ipykernel has no subshells")
    shell = kernel.create_subshell()
    cell = ask(kernel)
    approve = kernel.button("Approve")
    for _ in range(3):
        kernel.click_widget(approve, subshell=shell)
    kernel.wait(cell)
    kernel.delete_subshell(shell)
    assert cell.stderr == ""
    assert ran(kernel) == "[1]"
    assert kernel.execute("print(r.approvals[0].decision.by)").stdout.strip() == "click"


def test_a_click_does_not_overtake_a_change_on_its_card(kernel):
    """A subshell handles a change slowly. The click on Approve still does not overtake it: the call runs as the card shows
    it.
    """
    if not kernel.has_subshells:
        pytest.skip("this ipykernel has no subshells")
    shell = kernel.create_subshell()
    cell = ask(kernel, "[call('f', x=1), call('f', x=2)]")
    kernel.click("Deny", subshell=shell)
    kernel.wait_for_text("? f(x=2")  # this card is held for a moment, because a click came just before
    kernel.click("Edit", subshell=shell)
    field = kernel.wait_until(
        lambda: [one for one in kernel.open_widgets("TextModel") if one.description == "x"]
    )[0]
    approve = kernel.button("Approve edited")  # enabled again
    busy = kernel.submit("import time; time.sleep(1)", subshell=shell)
    kernel.set_state(field, value="3", subshell=shell)
    kernel.click_widget(approve, subshell=shell)
    kernel.wait(cell, busy)
    kernel.delete_subshell(shell)
    assert ran(kernel) == "[3]"


def test_changes_from_elsewhere_while_the_card_is_open(kernel):
    """While the card is open, a thread of the notebook changes everything that it can reach. The call runs as it was shown."""
    cell = kernel.submit(
        "import threading, gc\n"
        "def meddle():\n"
        "    from toolloop_jupyter.core.events import Approval\n"
        "    global f\n"
        "    for thing in gc.get_objects():\n"
        "        if isinstance(thing, Approval) and not thing.answered:\n"
        "            try:\n                thing.input['x'] = 99\n            except TypeError: pass\n"
        "    f = lambda x, note='': ran.append(-1)\n"
        "meddler = threading.Timer(1.0, meddle)\nmeddler.start()\n"
        "m = script(call('f', x=1))\nget_ipython().run_cell_magic('toolloop', '-m m -t f -p ask --as r', 'Go.')",
        allow_stdin=True,
    )
    kernel.button("Approve")
    kernel.settle(2.5)
    kernel.click("Approve")
    kernel.wait(cell)
    assert ran(kernel) == "[1]"
    assert "x=1" in cell.text
    kernel.execute("meddler.join()")  # visiting all objects takes long on a busy machine
    kernel.execute(SET_UP[SET_UP.index("def f") : SET_UP.index("def script")])


def test_a_kernel_that_dies_approves_nothing(start_kernel, tmp_path):
    """If the kernel dies, the call has not run. The old card's id means nothing to the next kernel."""
    mark = tmp_path / "ran"
    code = SET_UP.replace("ran.append(x)", f"pathlib.Path({str(mark)!r}).write_text('ran')")
    old = start_kernel()
    old.execute(code, timeout=120)
    ask(old)
    approve = old.button("Approve")
    old.stop()
    new = start_kernel()
    new.execute(code, timeout=120)
    before = len(new.messages)
    new.click_widget(approve)
    new.settle(0.5)
    # For the unknown comm, ipykernel writes to its log. This log message belongs to the click, and to no cell.
    outputs = [m["content"] for m in new.messages[before:] if m["msg_type"] in ("stream", "error")]
    logged = "".join(content.get("text", "error") for content in outputs)
    assert logged.replace(f"No such comm: {approve.comm_id}", "").strip() == ""
    assert [cell.code for cell in new.executions.values() if "No such comm" in cell.text] == []
    assert not mark.exists()


def notebook_of(*cells):
    """Return a notebook file as a front-end would save it."""
    notebook = nbformat.v4.new_notebook()
    for cell in cells:
        made = nbformat.v4.new_code_cell(cell.code)
        for output in cell.outputs:
            if output.kind == "stream":
                made.outputs.append(nbformat.v4.new_output("stream", **output.data))
            elif output.kind in ("display_data", "execute_result"):
                data = {
                    k: v for k, v in output.data.items() if not k.startswith("application/vnd.jupyter.widget")
                }
                made.outputs.append(
                    nbformat.v4.new_output("display_data", data=data, metadata=output.metadata)
                )
        notebook.cells.append(made)
    return notebook


def test_the_saved_notebook_tells_the_whole_story(kernel):
    """For an edit, a denial and an approval of all calls, nbconvert's HTML and Markdown say who decided, when, and what
    changed.
    """
    cell = ask(kernel, "[call('f', x=1), call('f', x=2), call('f', x=3)]")
    kernel.click("Edit")
    fields = kernel.wait_until(
        lambda: [one for one in kernel.open_widgets("TextModel") if one.description == "x"], 10
    )
    kernel.set_state(fields[0], value="7")
    kernel.click("Approve edited")
    kernel.wait_for_text("? f(x=2")
    kernel.settle(0.3)
    kernel.set_state(kernel.open_widgets("TextModel")[-1], value="wrong table")
    kernel.click("Deny")
    kernel.wait_for_text("? f(x=3")
    kernel.settle(0.3)
    kernel.click("Approve")
    kernel.wait(cell)
    notebook = notebook_of(cell)
    assert "widget" not in nbformat.writes(notebook).replace("run_cell_magic", "")
    page, _ = HTMLExporter().from_notebook_node(notebook)
    text, _ = MarkdownExporter().from_notebook_node(notebook)
    again = (
        kernel.execute("print(r.to_markdown())").stdout
        + kernel.execute("r._repr_mimebundle_()['text/plain']").text
    )
    for shown in (page, text, cell.text, again):
        for part in (
            "approved with edits by click",
            "edited by a person",
            "7",
            "denied by click",
            "wrong table",
        ):
            assert part in shown, part
        assert "noted 3" in shown
        assert "All done." in shown
    assert re.search(r"x: 1 → 7", cell.text)
    assert ran(kernel) == "[7, 3]"


def test_sizes_are_bounded(kernel):
    """A result of 5 MB and an argument of 300 kB make outputs of some hundred kilobytes. The Result has all of it."""
    kernel.execute("def big(text: str) -> str:\n    'Big.'\n    return 'z' * 5_000_000")
    cell = ask(kernel, "call('big', text='y' * 300_000)", "-t big")
    kernel.click("Approve")
    kernel.wait(cell)
    size = sum(len(str(output.data)) for output in cell.outputs)
    assert size < 500_000, f"{size:,} characters"
    facts = kernel.execute("print(len(r.tool_results[0].value), len(r.approvals[0].input['text']))").stdout
    assert facts == "5000000 300000\n"


def test_a_run_that_a_tool_begins_asks_on_the_page(kernel):
    """A tool calls `agent()`. The card of this inner run can be clicked, although the displays of a tool belong to its call."""
    kernel.execute(
        "def delegate(x: int) -> str:\n"
        "    '''Ask another model.'''\n"
        "    inner = agent(Harness.TOOL_LOOP, 'In.', model=script(call('f', x=x)), tools=[f], permissions='ask')\n"
        "    return inner.text"
    )
    cell = ask(kernel, "call('delegate', x=7)", "-t delegate -p full")
    kernel.click("Approve")
    kernel.wait(cell)
    assert ran(kernel) == "[7]"
    assert kernel.execute("print(r.tool_results[0].output)").stdout.strip() == "All done."
