"""A run whose diagram has each kind of row: calls of the model, an approval, tools, an error, a hostile name."""

from __future__ import annotations

from toolloop_jupyter import Result, Usage
from toolloop_jupyter.core.events.events import Span

HOSTILE = '\uffff\x00\ud800\u202e"/><script>alert(1)</script>&#0;]]>'


def a_run(**more) -> Result:
    """Return a finished run of 3.4 seconds."""
    from toolloop_jupyter.api import NOTEBOOK

    spans = (
        Span("model", "openai/gpt-4o-mini", 0.0, 0.9),
        Span("approval", "delete_file", 0.9, 1.6),
        Span("tool", "delete_file", 1.6, 1.72),
        Span("model", "openai/gpt-4o-mini", 1.72, 2.3),
        Span("tool", HOSTILE, 2.3, 2.4, is_error=True),
        Span("model", "openai/gpt-4o-mini", 2.4, 3.4),
    )
    facts = {
        "spans": spans,
        "model": "openai/gpt-4o-mini",
        "prompt": "Tidy up.",
        "presenter": NOTEBOOK.presenter,
        **more,
    }
    return Result("Done.", None, [], [], Usage(10, 20, 3), 0.01, "done", "s", **facts)
