"""One live kernel for each stack, with the product in it, for all tests that leave it as they found it."""

from __future__ import annotations

import pytest

from support.kernels import LiveKernel
from support.stack_cells import SET_UP, run


@pytest.fixture(scope="session")
def stack_kernel(stack):
    """A kernel of the stack, with the extension and SET_UP; loading imports no litellm and says nothing."""
    with LiveKernel(stack.python) as live:
        loaded = live.execute("%load_ext toolloop_jupyter\nimport sys\nprint('litellm' in sys.modules)")
        assert (loaded.status, loaded.stdout, loaded.stderr) == ("ok", "False\n", "")
        for cell in (SET_UP, "agent(Harness.TOOL_LOOP, 'Go.', model=scripted(), tools=[double])"):
            done = live.execute(cell, timeout=120)  # the second one waits for litellm's import
            assert done.status == "ok", done.text
        yield live


@pytest.fixture
def product(stack_kernel):
    """The stack's kernel, with a fresh model `m`; fails the test that leaves a widget open or a cell running."""
    before = {widget.comm_id for widget in stack_kernel.open_widgets()}
    run(stack_kernel, "runs.clear(); m = scripted()")
    yield stack_kernel
    left = [w.description or w.model for w in stack_kernel.open_widgets() if w.comm_id not in before]
    running = [execution.code for execution in stack_kernel.executions.values() if not execution.done]
    assert (left, running) == ([], [])
