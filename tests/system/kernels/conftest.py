"""Kernels for this folder: the kernel of the environment that runs the tests ("here"), and a kernel of each stack.

Each stack has one kernel with `LAB` (`live`) and one with the product in it (`product`). All tests that leave nothing behind
share these kernels.
"""

from __future__ import annotations

import ast

import pytest

from support import stacks
from support.kernels import LiveKernel
from support.stack_cells import SET_UP, printed, run

LAB = '''
import asyncio, contextlib, contextvars, functools, io, signal, sys, threading, time
import ipywidgets as widgets
from IPython.display import display
from toolloop_jupyter.notebook import kernel

async def ask(label="Approve", seconds=300):
    """Show a button in this cell and wait for its click."""
    loop, clicked = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()
    button = widgets.Button(description=label)
    button.on_click(lambda _: loop.call_soon_threadsafe(lambda: clicked.done() or clicked.set_result(label)))
    with kernel.Cell.here().outputs():
        display(button)
    try:
        return await asyncio.wait_for(clicked, seconds)
    finally:
        for part in (button.layout, button.style, button):
            part.close()

async def attended(make):
    async with kernel.serving_clicks():
        return await make()

def comms():
    try:
        import comm
        return comm.get_comm_manager().comms
    except ImportError:
        return get_ipython().kernel.comm_manager.comms

# Apart from the lab's own state: what nobody may leave changed.
def as_found():
    ip, loop = get_ipython(), get_ipython().kernel.io_loop.asyncio_loop
    names = ("run_forever", "run_until_complete", "_run_once", "_check_running", "call_soon")
    return {
        "asyncio": (asyncio.Task, asyncio.Future, asyncio.run, asyncio.get_event_loop, asyncio.Handle._run),
        "loop": [getattr(type(loop), name) for name in names] + sorted(vars(loop)),
        "streams": (sys.stdout, sys.stderr, type(sys.stdout).write, hasattr(sys.stdout.write, '_toolloop_hook')),
        "publisher": (ip.display_pub, sorted(vars(ip.display_pub)), type(ip.display_pub).publish),
        "kernel": sorted(set(vars(ip.kernel)) - {"saved_sigint_handler"}),
        "queue": sorted(vars(ip.kernel.msg_queue)) if hasattr(ip.kernel, "msg_queue") else [],
        "input": (input, print, getattr(ip.kernel, 'saved_sigint_handler', None)),
        "contextvars": len(contextvars.copy_context()),
        "comms": sorted(comms()),
        "threads": threading.active_count(),
        "tasks": len(asyncio.all_tasks()),
    }

# Names of what is not as it was.
def left_changed():
    names = ("asyncio", "loop", "streams", "publisher", "kernel", "input")
    found = as_found()
    return [name for name in names if found[name] != pristine[name]]

pristine = as_found()
'''

WAYS = {"awaited": "await attended({})", "sync": "kernel.run_sync({})"}


class RecordingKernel(LiveKernel):
    """A LiveKernel that also keeps all replies, in the order in which they came."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.answered = []

    def _handle(self, message):
        if message["msg_type"].endswith("_reply"):
            self.answered.append(message["parent_header"].get("msg_id"))
        super()._handle(message)


@pytest.fixture(
    scope="session",
    params=[
        pytest.param(None, id="here", marks=pytest.mark.kernel),
        *(pytest.param(stack, id=stack.name, marks=pytest.mark.stacks) for stack in stacks.STACKS),
    ],
)
def python(request):
    """A Python with ipykernel and this package. None means the Python that runs the tests."""
    return request.param and stacks.build(request.param).python


class _Shared:
    """A kernel that many tests use. After a test that left something behind, the next test gets a new kernel."""

    def __init__(self, start):
        self.start, self.kernel = start, None

    def take(self):
        if self.kernel is None:
            self.kernel = self.start()
        return self.kernel

    def drop(self):
        if self.kernel is not None:
            self.kernel.stop()
        self.kernel = None

    def lend(self, prepare=lambda kernel: None, left_changed=lambda kernel: []):
        """Give the kernel to one test. If a cell is still running afterwards, a widget is open or something has changed, end
        the kernel, and fail.
        """
        kernel = self.take()
        before = {widget.comm_id for widget in kernel.open_widgets()}
        try:
            prepare(kernel)
        except BaseException:
            self.drop()
            raise
        yield kernel
        kernel.settle(0.05)
        running = [execution.code for execution in kernel.executions.values() if not execution.done]
        left = [w.description or w.model for w in kernel.open_widgets() if w.comm_id not in before]
        changed = [] if running or left else left_changed(kernel)
        if running or left or changed:
            self.drop()
        assert (running, left, changed) == ([], [], [])


def start_lab(python):
    """Start a kernel with LAB."""
    kernel = RecordingKernel(python).start()
    done = kernel.execute(LAB)
    assert done.status == "ok", done.text
    return kernel


@pytest.fixture(scope="session")
def shared_kernel(python):
    shared = _Shared(lambda: start_lab(python))
    yield shared
    shared.drop()


def find_changed(kernel):
    """Return the names of the things that a test has left changed in the kernel."""
    for _ in range(60):  # a tool that cannot be stopped keeps the streams' hook until it ends
        if (changed := ast.literal_eval(printed(kernel, "left_changed()"))) == []:
            break
        kernel.settle(0.25)
    return changed


@pytest.fixture
def live(shared_kernel):
    """The stack's kernel, with LAB. Fails if the test leaves a widget open or a cell running, or if it has changed streams,
    display, asyncio or the kernel.
    """
    yield from shared_kernel.lend(left_changed=find_changed)


@pytest.fixture(params=list(WAYS))
def way(request):
    """How a cell waits for a coroutine function: takes the function's name, and returns the expression."""
    return WAYS[request.param].format


def start_product(python):
    """Start a kernel with the extension and SET_UP. Check that loading the extension imports no litellm and prints nothing."""
    kernel = LiveKernel(python).start()
    loaded = kernel.execute("%load_ext toolloop_jupyter\nimport sys\nprint('litellm' in sys.modules)")
    assert (loaded.status, loaded.stdout, loaded.stderr) == ("ok", "False\n", "")
    for cell in (
        SET_UP,
        "_ = agent(Harness.TOOL_LOOP, 'Go.', model=scripted(), tools=[double])",
        "LASTING = lasting()",
    ):
        done = kernel.execute(cell, timeout=120)
        assert done.status == "ok", done.text
    return kernel


@pytest.fixture(scope="session")
def stack_kernel(stack):
    shared = _Shared(lambda: start_product(stack.python))
    yield shared
    shared.drop()


@pytest.fixture
def product(stack_kernel):
    """The stack's kernel, with a new model `m`, and without names of other tests. Fails if the test leaves a widget open or a
    cell running, or if it has changed streams, display, asyncio or settings.
    """

    def prepare(kernel):
        assert run(kernel, "begin_test()").status == "ok"

    yield from stack_kernel.lend(prepare, find_changed)
