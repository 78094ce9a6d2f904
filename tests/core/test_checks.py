"""Checks for exercises say what happened instead."""

from __future__ import annotations

import pytest

from toolloop_jupyter import Result, ToolCall, Usage
from toolloop_jupyter.core.checks import ANY


def result(*calls: tuple[str, dict[str, object]]) -> Result:
    events = [ToolCall(str(n), name, name, given) for n, (name, given) in enumerate(calls)]
    return Result("", None, [], events, Usage(), 0.0, "done", "s")


RUN = result(
    ("search", {"query": "retry", "path": "."}), ("read", {"path": "a.py"}), ("search", {"query": "x"})
)


def test_passes() -> None:
    """What happened passes, and the call comes back."""
    assert RUN.assert_called("search", query="retry").id == "0"
    assert RUN.assert_called("search", times=2).id == "0"
    assert RUN.assert_called("read", path=ANY).id == "1"
    RUN.assert_not_called("delete")
    RUN.assert_order("search", "read")


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (
            lambda r: r.assert_called("delete"),
            "the model never called delete. It called: search, read, search.",
        ),
        (
            lambda r: r.assert_called("read", path="b.py"),
            'read was called, but never with path="b.py". It was called as: read(path="a.py")',
        ),
        (
            lambda r: r.assert_called("search", times=1),
            'search was called twice, expected once: search(query="retry", path="."); search(query="x")',
        ),
        (
            lambda r: r.assert_not_called("read"),
            'read should not have been called, but it was: read(path="a.py")',
        ),
        (
            lambda r: r.assert_order("read", "read"),
            "expected read → read; read is missing at its place. The order was: search, read, search",
        ),
        (lambda _: result().assert_called("f"), "the model never called f. It called no tool at all."),
    ],
)
def test_failures_say_what_happened(check, message) -> None:
    """A failed check names what was expected and what was there."""
    with pytest.raises(AssertionError) as caught:
        check(RUN)
    assert str(caught.value) == message
