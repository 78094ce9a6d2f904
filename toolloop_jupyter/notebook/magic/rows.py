"""Show a rows run in its cell. A rows run runs the prompt once for each row of a table.

One block shows all rows. Below the block is at most one approval card at a time. A timer draws the progress ten times per
second. So the notebook gets at most ten messages per second, even if a thousand rows end per second.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...core.events import Approval, Observer, Request, RowsProgress
from ...core.models import is_ready
from ...core.rows import RowsRun
from ...core.text import hide
from .. import kernel
from ..html import tell_count
from ..live import LOADING, CellOutput, Means, OutputColumn, Unattended, ask_person, find_means
from ..transcript import (
    Block,
    draw_finished_rows,
    draw_notice,
    draw_running_rows,
    join_blocks,
    make_bundle,
    remove_style,
    tell_running_rows,
)

if TYPE_CHECKING:
    from ..widgets import Toolbar

TICK = 0.1
"""Seconds between two drawings of the progress."""
FIRST_LINE = 10.0
"""`LinesNowAndThen` prints its first line after this many seconds. Each further wait is twice as long as the one before."""
LONGEST_WAIT = 300.0
"""`LinesNowAndThen` waits at most this many seconds between two lines."""


class RowsPage(Observer):
    """Shows one rows run in one cell, with the approval cards of its tool calls.

    The page also observes the run. So it can show that the rows wait for LiteLLM's import.
    """

    def __init__(
        self,
        cell: kernel.Cell,
        above: Sequence[Block],
        *,
        name: str | None = None,
        unattended: Unattended = "deny",
        means: Means = "auto",
        finish: Callable[[], Sequence[Block]] = tuple,
    ) -> None:
        """`above`: the blocks above the rows. `name`: the notebook's variable that gets the Rows. `finish` is called at the end
        of the run, and returns the blocks below the rows.
        """
        column = OutputColumn(cell, owns=True)
        self._above, self._name, self._finish = above, name, finish
        self._unattended, self._means = unattended, means
        self._block, self._card = column.output(), column.output()
        self._screen = _choose_screen(column, self._block, above)
        self._find_progress: Callable[[], RowsProgress] = RowsProgress
        self._state = ""
        self._is_loading = False

    def before_import(self) -> bool:
        self._is_loading = True
        return isinstance(self._screen, BlockInCell)  # True: only this screen shows the wait

    async def follow(self, run: RowsRun) -> None:
        """Run the rows to the end and show them. An interrupt of the kernel ends the run, like a click on Stop."""

        def stop() -> None:
            self._state = "stopping"
            run.cancel()

        self._find_progress = lambda: run.progress
        self._screen.begin(stop)
        ticker = asyncio.ensure_future(self._tick())
        record = None  # stays None after an error: the cell shows the error
        try:
            with contextlib.suppress(asyncio.CancelledError):  # the last line says that the run was stopped
                await run.collect()
            head, *notes = self._above
            end = draw_finished_rows(run.rows, self._name)
            record = join_blocks([remove_style(head), *notes, end, *self._finish()])
        finally:
            ticker.cancel()
            self._screen.end()
            self._block.draw(record)

    async def _tick(self) -> None:
        # Let the run begin first: in a terminal, it may print a line about LiteLLM's import.
        await asyncio.sleep(0)
        while True:
            self._is_loading = self._is_loading and not is_ready()
            state = self._state or (LOADING if self._is_loading else "")
            self._screen.show(self._find_progress(), state)
            await asyncio.sleep(TICK)

    async def ask(self, approval: Approval) -> None:
        """Ask a person to approve a tool call of a row. Then remove the card: the row's Result has the decision."""
        record = draw_notice(f"{approval.row}: {approval.tool} waits for a decision")
        self._state = waiting = f"waiting for you: {approval.row}"
        self._screen.show(self._find_progress(), waiting)
        self._screen.leave()
        try:
            await ask_person(approval, self._card, record, unattended=self._unattended, means=self._means)
        finally:
            self._state = "" if self._state == waiting else self._state  # the run may be stopping by now
            self._card.draw(None)


CHARACTERS_OF_A_TOKEN = 4
"""The average number of characters per token in English text. The real number depends on the model."""


def tell_size_of_rows(request: Request, total: int | None) -> str:
    """Return a sentence with the number of rows, and an estimate of the tokens in their first requests.

    `request`: the request of the first row. The estimate assumes that the other requests are as long. `total` is None if the
    number of rows is not known.
    """
    sent = [request.messages, request.tools, request.options.get("response_format")]
    tokens = max(1, len(json.dumps(sent, ensure_ascii=False, default=str)) // CHARACTERS_OF_A_TOKEN)
    about = f"the first request has about {tell_count(tokens, 'token')}"
    if total is None:
        return f"how many rows there are is not known; {about}"
    each = f", the first requests of all rows together about {total * tokens:,}" if total > 1 else ""
    return f"{tell_count(total, 'row')}; {about}{each} (estimated by characters, without tools' results)"


# --- the places that show the progress -------------------------------------------------------------------------------


class Screen:
    """Shows the progress of a rows run. Each subclass writes to another kind of output."""

    def begin(self, stop: Callable[[], None]) -> None:
        """Prepare the output when the run begins. The function `stop` ends the run."""

    def show(self, progress: RowsProgress, state: str) -> None:
        """Show the progress. `state` says what the run does, such as "stopping"; "" if rows simply run."""

    def leave(self) -> None:
        """Prepare the output for other text, such as a question to a person."""

    def end(self) -> None:
        """Close the output when the run is over. After that, the finished rows are drawn."""


def _choose_screen(column: OutputColumn, output: CellOutput, head: Sequence[Block]) -> Screen:
    if kernel.is_in_terminal():
        return RenewedLine()
    if not column.can_update or kernel.executes_notebooks():
        return LinesNowAndThen()
    return BlockInCell(output, head)


class BlockInCell(Screen):
    """Shows the progress as a block in a cell. If the front-end can show widgets, there is also a Stop button."""

    def __init__(self, output: CellOutput, head: Sequence[Block]) -> None:
        self._output, self._head = output, head
        self._toolbar: Toolbar | None = None

    def begin(self, stop: Callable[[], None]) -> None:
        if find_means() == "card":
            from ..widgets import Toolbar

            self._toolbar = Toolbar(stop, "Stop all rows")

    def show(self, progress: RowsProgress, state: str) -> None:
        block = draw_running_rows(progress, state)
        if self._toolbar is not None:
            self._toolbar.show(make_bundle(block)["text/html"])
        if self._toolbar is None or not self._output.is_there:
            widget = {} if self._toolbar is None else self._toolbar.make_reference()
            self._output.put({**make_bundle([*self._head, block]), **widget})

    def end(self) -> None:
        if self._toolbar is not None:
            self._toolbar.finish()


class RenewedLine(Screen):
    """Shows the progress in one line of a terminal. Each update overwrites the line."""

    def __init__(self) -> None:
        self._line = ""

    def show(self, progress: RowsProgress, state: str) -> None:
        line = hide(tell_running_rows(progress, shutil.get_terminal_size().columns - 1))
        if line != self._line:
            print(f"\r{line:<{len(self._line)}}", end="", flush=True)  # noqa: T201 - a terminal
            self._line = line

    def leave(self) -> None:
        if self._line:
            print()  # noqa: T201 - a terminal
            self._line = ""

    end = leave


class LinesNowAndThen(Screen):
    """Prints the progress in lines, after longer and longer waits. For nbconvert, and for output that cannot be replaced."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due, self._wait = clock() + FIRST_LINE, FIRST_LINE

    def show(self, progress: RowsProgress, state: str) -> None:
        if self._clock() >= self._due:
            self._wait = min(2 * self._wait, LONGEST_WAIT)
            self._due = self._clock() + self._wait
            print(hide(tell_running_rows(progress)), flush=True)  # noqa: T201 - the cell's own output
