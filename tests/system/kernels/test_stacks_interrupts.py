"""On each stack, ■ ends a `%%toolloop` cell at each of its stages: in one line, with a valid history. The next run answers."""

from __future__ import annotations

import time

import pytest

from support.interrupting import ASKS, NOTES, POINTS, arrive, press
from support.pace import Pace
from support.stack_cells import foot, printed, run


@pytest.mark.parametrize("point", list(POINTS))
def test_interrupt(product, serve, point):
    """■ ends the run within two seconds, in one line, without a card left. The queued cell and the session continue."""
    server = serve(POINTS[point][0])
    to = f"--model openai/stub --api-base {server.base_url} --api-key KEY -s cut"
    ask = "-p ask" if point in ASKS else "-p full"
    run(product, "r = None")
    cell = product.submit(
        f"%%toolloop {to} {ask} -t {POINTS[point][1] or 'double'} --as r\nGo.", allow_stdin=True
    )
    after = product.submit("print('AFTER', r.stop_reason, len(runs))")
    arrive(product, server, cell, point)
    with Pace() as pace:
        pressed = press(product, point)
        product.wait(cell, after)
        took = time.monotonic() - pressed
    assert took < 2 * pace.slowdown
    assert (cell.status, after.stdout) == ("ok", "AFTER cancelled 0\n"), cell.text
    assert foot(cell).startswith("stopped · "), cell.text
    assert NOTES.get(point, "") in cell.text
    assert "Traceback" not in cell.text
    run(product, "h = %toolloop history cut")
    assert printed(product, "history.validate(h)") == "[]"
    again = run(
        product, "%%toolloop --model m -s cut --append -p full -t double --as r\nDouble.", allow_stdin=True
    )
    assert "The end." in again.text, again.text
    run(product, "%toolloop reset cut")
