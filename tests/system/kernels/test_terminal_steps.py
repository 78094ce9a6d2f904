"""Step mode in IPython in a real terminal, where nobody can click: Enter, r and s."""

from __future__ import annotations

import os
import sys

import pytest

from support.terminals import end_terminal

pexpect = pytest.importorskip("pexpect", reason="IPython brings it where there are terminals")

pytestmark = [pytest.mark.kernel, pytest.mark.terminal]

PROMPT = r"In \[\d+\]: "
TOOL = "exec(\"def double(x: int) -> int:\\n    'Double.'\\n    return 2 * x\")"


@pytest.fixture
def terminal(tmp_path):
    """IPython with the extension loaded and a tool, at its prompt."""
    child = pexpect.spawn(
        sys.executable,
        ["-m", "IPython", "--simple-prompt", "--no-banner", "--colors=NoColor"],
        encoding="utf-8",
        timeout=120,
        dimensions=(60, 160),
        cwd=str(tmp_path),
        env={**os.environ, "IPYTHONDIR": str(tmp_path / "ipython"), "PYTHON_COLORS": "0"},
    )
    for line in ("%load_ext toolloop_jupyter", TOOL):
        child.expect(PROMPT)
        child.sendline(line)
    yield child
    end_terminal(child)


def run(child, line, prompt):
    """Type a cell, with the blank lines that end it."""
    child.expect(PROMPT)
    child.sendline(line)
    for text in (prompt, "", ""):
        child.expect(r"\.\.\.: ")
        child.sendline(text)


def test_enter_is_next_then_the_approval_then_r(terminal):
    """Each step waits for a key. In ask mode, the question comes after it. Each block begins a new line."""
    run(terminal, "%%toolloop --step -t double -p ask", "Double 4")
    terminal.expect(r"→ to the model: 1 message, 1 tool\r\n")
    terminal.expect(r"\[Enter\] to call the model, r to run to the end, s to stop: ")
    terminal.sendline("")
    terminal.expect(r"\r\nFirst I'll call `double`\.\r\n← from the model: ")
    terminal.expect(r"\r\n› next: run double\(x=4\)\r\n")
    terminal.expect(r"\[Enter\] to run double, r to run to the end, s to stop: ")
    terminal.sendline("")
    terminal.expect(r"Run double\?.*: ")
    terminal.sendline("y")
    terminal.expect("✓ double")
    terminal.expect("to call the model")
    terminal.sendline("r")
    terminal.expect("done · 2 model calls")


def test_s_stops(terminal):
    """After s, the run ends before the model is called. The next cell can be typed."""
    run(terminal, "%%toolloop --step -t double --as r", "Double 4")
    terminal.expect("s to stop: ")
    terminal.sendline("s")
    terminal.expect(PROMPT)
    terminal.sendline("print('ended', r.stop_reason, r.usage.calls)")
    terminal.expect("ended cancelled 0")
