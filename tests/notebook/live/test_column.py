"""In a terminal, the model's text and our other lines do not run together."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from types import SimpleNamespace

from toolloop_jupyter.notebook.live.column import TerminalWriter
from toolloop_jupyter.notebook.transcript import TextStep


def test_a_line_in_a_terminal_does_not_begin_within_a_text():
    """Before another output, the text's line is ended. If no line is open, no line is added."""
    drawn: list[object] = []
    output = SimpleNamespace(draw=drawn.append)
    writer = TerminalWriter(SimpleNamespace(output=lambda: output), SimpleNamespace(draw=lambda step: step))
    step, shown = TextStep(is_thought=False), io.StringIO()
    with redirect_stdout(shown):
        writer.show()
        for piece in ("I will ", "go. " * 30, "\n"):
            step.pieces.append(piece)
            writer.grow(step)
        writer.show()
        step.pieces.append("More " * 30)
        writer.grow(step)
        writer.show()
        writer.show()
        writer.end(step)
    assert shown.getvalue() == f"I will {'go. ' * 30}\n{'More ' * 30}\n"
