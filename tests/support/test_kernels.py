"""LiveKernel shows what a front-end would show, and every wait ends."""

from __future__ import annotations

import os
import shutil
import sys
import time

import pytest

from support.kernels import KernelDied, KernelTimeout, LiveKernel

pytestmark = pytest.mark.kernel

BUTTON = """
import asyncio, ipywidgets
def ask(label):
    pressed = asyncio.get_running_loop().create_future()
    button = ipywidgets.Button(description=label)
    button.on_click(lambda _: pressed.get_loop().call_soon_threadsafe(pressed.set_result, True))
    display(button)
    return button, pressed
"""


@pytest.fixture(scope="module")
def kernel():
    with LiveKernel() as live:
        yield live


def test_outputs_of_each_kind(kernel):
    """Streams are joined, displays and the value keep their bundles, and the execution has a status and times."""
    run = kernel.execute(
        "import sys, time; time.sleep(.05); print(1); print(2); print(3, file=sys.stderr); 'v'"
    )
    assert (run.stdout, run.stderr, run.value, run.status, run.error) == ("1\n2\n", "3\n", "'v'", "ok", None)
    assert [o.kind for o in run.outputs] == ["stream", "stream", "execute_result"]
    assert run.sent < run.began < run.ended < run.sent + 10
    assert run.ended - run.sent >= 0.05  # on a busy machine, the message about its begin comes late
    run = kernel.execute("from IPython.display import HTML; display(HTML('<b>x</b>'))")
    assert run.html == "<b>x</b>"


def test_errors_and_abort(kernel):
    """A cell that fails has its error. The cells queued behind it are aborted, unless the request says otherwise."""
    # The last cell was in the queue early enough.
    _, bad, after = kernel.run_all("import time; time.sleep(0.5)", "1/0", "print('after')")
    assert (bad.status, bad.error) == ("error", "ZeroDivisionError: division by zero")
    assert (after.status, after.stdout, after.seconds) == ("aborted", "", 0.0)
    bad, after = kernel.run_all("1/0", "print('after')", stop_on_error=False)
    assert (bad.status, after.status, after.stdout) == ("error", "ok", "after\n")


def test_updates_are_applied_in_place(kernel):
    """update_display_data changes the named output, even from a later cell. clear_output removes the outputs."""
    first = kernel.execute("h = display('old', display_id=True); display('other')")
    kernel.execute("h.update('new')")
    assert [o.text for o in first.outputs] == ["'new'", "'other'"]
    assert first.outputs[0].updates == 1
    cleared = kernel.execute(
        "from IPython.display import clear_output; print(1); clear_output(wait=True); print(2)"
    )
    assert cleared.stdout == "2\n"


def test_click_reaches_a_waiting_cell(kernel):
    """A click is delivered while an awaited cell runs. The queued cell runs after it."""
    if not kernel.has_subshells:
        pytest.skip("before ipykernel 7 a click waits for the cell, unless this package's cell runs")
    kernel.execute(BUTTON)
    run = kernel.submit("b, pressed = ask('Go on'); await pressed; print('pressed')")
    behind = kernel.submit("print('behind'); b.close()")
    button = kernel.click("Go")
    kernel.wait(run, behind)
    assert (run.stdout, behind.stdout) == ("pressed\n", "behind\n")
    assert not button.open
    assert button not in kernel.open_widgets()


def test_click_takes_the_newest_enabled_button(kernel):
    """If several buttons fit, the newest one is clicked. A disabled button is never clicked."""
    kernel.execute("import ipywidgets; hits = []")
    make = "b{0} = ipywidgets.Button(description='Same'); b{0}.on_click(lambda _: hits.append({0})); display(b{0})"
    kernel.run_all(make.format(1), make.format(2), make.format(3), "b3.disabled = True")
    kernel.click("Same")
    assert kernel.execute("hits").value == "[2]"
    kernel.execute("for b in (b1, b2, b3): b.close()")
    with pytest.raises(KernelTimeout, match="a button with 'Same'"):
        kernel.click("Same", timeout=0.1)


def test_subshells(kernel):
    """A cell that is sent to a subshell runs in another thread. A click that is sent to a subshell reaches a waiting cell.

    The kernel chooses where the click is handled: ipykernel 7.4 sends it to the shell that shows the button.
    """
    if not kernel.has_subshells:
        pytest.skip("no subshells in this kernel")
    subshell = kernel.create_subshell()
    where = "import threading; threading.current_thread() is threading.main_thread()"
    assert kernel.execute(where).value == "True"
    assert kernel.execute(where, subshell=subshell).value == "False"
    kernel.execute(BUTTON)
    run = kernel.submit("b, pressed = ask('Sub'); await pressed; print('pressed'); b.close()")
    kernel.click("Sub", subshell=subshell)
    kernel.wait(run)
    assert run.stdout == "pressed\n"
    kernel.delete_subshell(subshell)


def test_a_button_is_clicked_once_it_is_on_the_page(kernel):
    """A button is not clicked before it is on the page. A click on a button that is disabled later, before it is shown, would
    be lost.
    """
    run = kernel.submit(
        "import asyncio, ipywidgets\nseen, state = [], 'made'\nb = ipywidgets.Button(description='Late')\n"
        "b.on_click(lambda _: seen.append(state)); await asyncio.sleep(0.5); b.disabled = True\n"
        "box = ipywidgets.VBox([ipywidgets.HBox([b])]); state = 'shown'; display(box)\n"
        "await asyncio.sleep(0.2); state = 'enabled'; b.disabled = False"
    )
    kernel.click("Late")
    kernel.wait(run)
    kernel.wait_until(lambda: kernel.execute("seen").value == "['enabled']")
    kernel.execute("for part in (b, *box.children, box): part.close()")


def test_widget_state_both_ways(kernel):
    """The test sees values that the kernel sets, and the kernel gets values that the test sets."""
    kernel.execute(
        "import ipywidgets; t = ipywidgets.Text(description='T'); display(t); t.value = 'from kernel'"
    )
    text = next(w for w in kernel.open_widgets("TextModel") if w.description == "T")
    assert text.state["value"] == "from kernel"
    kernel.set_state(text, value="from person")
    assert kernel.execute("t.value").value == "'from person'"
    kernel.execute("t.close()")


def test_interrupt(kernel):
    """An interrupt ends a cell with KeyboardInterrupt, long before it would end."""
    run = kernel.submit("import time; print('started'); time.sleep(300)")
    kernel.wait_for_text("started")
    kernel.interrupt()
    kernel.wait(run)
    assert run.error.startswith("KeyboardInterrupt")


def test_stdin(kernel):
    """If stdin is allowed, on_input answers input(). If not, input() raises an error."""
    kernel.on_input = lambda prompt: f"answer to {prompt}"
    try:
        assert kernel.execute("input('name?')", allow_stdin=True).value == "'answer to name?'"
        assert kernel.prompts[-1] == "name?"
        assert "StdinNotImplementedError" in kernel.execute("input('name?')").error
    finally:
        kernel.on_input = None


def test_other_requests(kernel):
    """A request that is not a cell gets its reply."""
    reply = kernel.request("is_complete_request", {"code": "for n in range(3):"})
    assert (reply["status"], reply["indent"]) == ("incomplete", "    ")


def test_waits_end(kernel):
    """A wait for a cell that does not end raises KernelTimeout, which has the cell's outputs."""
    run = kernel.submit("print('so far'); import time; time.sleep(300)")
    began = time.monotonic()
    with pytest.raises(KernelTimeout, match=r"time\.sleep.*so far"):
        kernel.wait(run, timeout=1)
    assert time.monotonic() - began < 5
    kernel.interrupt()
    kernel.wait(run)


def test_death_is_noticed():
    """If the process dies, a wait raises KernelDied before its time limit."""
    with LiveKernel(env={"LIVE_TEST": "yes", "HOME": os.environ.get("HOME")}) as kernel:
        assert kernel.execute("import os; os.environ['LIVE_TEST']").value == "'yes'"
        run = kernel.submit("import time; time.sleep(300)")
        kernel.settle(0.2)
        kernel.manager.provisioner.process.kill()
        with pytest.raises(KernelDied):
            kernel.wait(run)


def test_starts_apart_from_the_source_tree(kernel):
    """The kernel uses the given Python, in its own folder."""
    run = kernel.execute("import sys, os; print(sys.executable); print(os.listdir())")
    executable, files = run.stdout.splitlines()
    assert os.path.realpath(executable) == os.path.realpath(sys.executable)
    assert "toolloop_jupyter" not in files


@pytest.mark.skipif(not shutil.which("false"), reason="a command that fails, which Unix has")
def test_a_python_without_ipykernel_fails_soon(tmp_path):
    """If a kernel cannot start, an error is raised, and nothing is left behind."""
    with pytest.raises(Exception, match=r"(?i)kernel died|ready"):
        LiveKernel(python=shutil.which("false"), start_timeout=60).start()
