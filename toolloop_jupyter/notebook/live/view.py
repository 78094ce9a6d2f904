"""Show a run in its cell. An event is drawn once, when it comes.

Ten times a second, `CellRun` draws the growing text, and the facts that `RunHooks` has collected about the run. So even
thousands of tokens a second cause only ten updates a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ...core.events import NO_DECISION, Approval, Compaction, Done, Event, HarnessError, Result
from .. import kernel
from ..transcript import (
    Block,
    CallStep,
    Notice,
    Page,
    Step,
    Steps,
    TextStep,
    draw_notice,
    draw_progress,
    draw_running,
    make_bundle,
    remove_style,
)
from .asking import Means, Unattended, ask_person, find_means
from .column import CellOutput, CellWriter, OutputColumn, TerminalWriter
from .outputs import LOADING, RunHooks

if TYPE_CHECKING:
    from ..widgets import Toolbar

TICK = 0.1
"""Seconds between two updates of the page."""
CATCH_UP = 0.05
"""Seconds that an observer of the run waits before it shows something. Meanwhile, the view shows earlier events."""
SHOW_RUNNING_AFTER = 0.08
"""Seconds after which a call is shown as running. Most calls end sooner, and are shown only once."""
SHOW_SECONDS_AFTER = 0.5
"""Seconds after which a running call's time is shown below its row. If the tool prints something, it is shown sooner."""


@dataclass(frozen=True)
class ViewOptions:
    """Options for how a run is shown, and how a person is asked about its calls."""

    name: str | None = None
    """The notebook's variable that gets the Result."""
    model: str = ""
    """The name of the run's model. If the model needs LiteLLM, the page can say that LiteLLM is being imported."""
    hint: str | None = ""
    """Words that follow an expression on the page, such as `result.files`, for example " (with --as result)". None: no variable
    can hold the Result, so the page has no such expressions."""
    unattended: Unattended = "deny"
    means: Means = "auto"
    asks: bool = True
    """True if a person is asked in the cell; False if the run's `on_approval` answers the requests."""
    raises: bool = False
    """True if the cell raises the error of a failed run. Then the page does not show the error a second time."""
    owns_cell: bool = False
    """True if the cell shows nothing but this run."""
    finish: Callable[[], Mapping[str, object]] = dict
    """Called at the end of the turn. Returns MIME data for the run's last output. The saved notebook keeps the data, and a later
    kernel can read it."""


class RunHead:
    """The run's first output. It shows the head, or the toolbar while the run lasts."""

    def __init__(self, output: CellOutput, block: Block, hooks: RunHooks) -> None:
        self.block = block
        self._output, self._hooks = output, hooks
        self._toolbar: Toolbar | None = None

    def begin(self, stop: Callable[[], None]) -> None:
        """Show the output. The toolbar's button calls `stop`."""
        if self._hooks.is_on_page and find_means() == "card":
            from ..widgets import Toolbar

            self._toolbar = Toolbar(stop)
        self.update()

    def replace(self, block: Block) -> None:
        """Replace the head by `block`. If the run has a toolbar, the head is first seen when the run has ended."""
        self.block = block
        self.update()

    def update(self) -> None:
        hooks, blocks, widget = self._hooks, [self.block], {}
        if self._toolbar is not None:
            self._toolbar.show(draw_running(hooks.doing, hooks.usage, hooks.cost, hooks.seconds))
            widget = self._toolbar.make_reference()
        elif hooks.is_on_page and hooks.doing == LOADING:
            blocks.append(draw_notice(LOADING))
        self._output.put({**make_bundle(blocks), **widget})

    def end(self, *, has_foot: bool) -> None:
        """Remove the toolbar; show the head. If `has_foot` is True, the line below the run has the style sheet, not the head."""
        if self._toolbar is not None:
            self._toolbar.finish()
            self._toolbar = None
        self._hooks.say("ended")
        self.replace(remove_style(self.block) if has_foot else self.block)


class _Row(NamedTuple):
    """The outputs of a call: its row and, below it, the progress of the running call."""

    row: CellOutput
    progress: CellOutput


class CellRun:
    """Shows one run in one cell, and asks a person there about its calls."""

    def __init__(self, cell: kernel.Cell, head: Block, options: ViewOptions | None = None) -> None:
        self._options = options = options or ViewOptions()
        self._column = OutputColumn(cell, owns=options.owns_cell)
        self.hooks = RunHooks(options.model, is_on_page=cell.can_update)
        """The caller must add these to the run's observers, or call `do_without_hooks`."""
        self._has_hooks = True
        self.head = RunHead(self.output(), head, self.hooks)
        self._steps, self._page = Steps(), Page(options.name, options.hint)
        writer = CellWriter if cell.can_update else TerminalWriter
        self._writer: CellWriter | TerminalWriter = writer(self._column, self._page)
        self._rows: dict[CallStep, _Row] = {}
        self._cancel: Callable[[], None] | None = None
        """Cancels the run whose stream is being read."""

    def output(self) -> CellOutput:
        return self._column.output()

    def put(self, block: Block) -> None:
        """Show a block as a new output."""
        self.output().draw(block)

    async def say(self, text: str, kind: str) -> None:
        """Show `text` as a notice below all earlier outputs of the run. `kind` is "info", "warning" or "error"."""
        await self.caught_up()
        self.put(draw_notice(text, kind))

    async def caught_up(self) -> None:
        """Wait until all earlier events are shown. End the text that is being written, so that later text begins a new block."""
        await asyncio.sleep(CATCH_UP)
        self._show(self._steps.end_text())

    def do_without_hooks(self) -> None:
        """Expect no call of `hooks`. This is for a run of LiteLLM's own harnesses, and for a run that has begun already."""
        self._has_hooks = False

    def stop(self) -> None:
        """Cancel the run whose stream is being read."""
        self.hooks.say("stopping")
        if self._cancel is not None:
            self._cancel()

    async def follow(self, stream: AsyncIterator[Event | Notice], cancel: Callable[[], None]) -> Result:
        """Read a stream to its end, and return its Result. An interrupt cancels the turn; its end is still shown.

        Raises HarnessError if the stream ends without a Done event.
        """
        self._cancel = cancel
        self.head.begin(self.stop)
        ticker = asyncio.ensure_future(self._tick())
        result: Result | None = None
        try:
            while True:
                try:
                    event = await stream.__anext__()
                    await self.take(event)
                except StopAsyncIteration:
                    break
                except asyncio.CancelledError:
                    cancel()
                    continue
                if isinstance(event, Done):
                    result = event.result
        finally:
            ticker.cancel()
            self._show([*self._steps.end_text(), *self._steps.end_calls()])
            self.head.end(has_foot=result is not None)
        if result is None:
            raise HarnessError(
                "the stream ended without a Done event: it was closed, or other code reads it, too; "
                "start the run again to show it"
            )
        return result

    async def take(self, event: Event | Compaction | Notice) -> None:
        """Show one event. If it is a request for approval, ask a person, and wait for the decision."""
        changed = self._steps.take(event)
        self._show(changed)
        if isinstance(event, Approval):
            step = next(step for step in changed if isinstance(step, CallStep))
            await self._ask(event, step)

    # --- requests ---------------------------------------------------------------------------------------------

    async def _ask(self, approval: Approval, step: CallStep) -> None:
        """Ask a person about a call, or wait for the run's `on_approval`. Then show the decision."""
        options = self._options
        self.hooks.say("waiting for you" if options.asks else "waiting for on_approval")
        try:
            if not options.asks:
                await approval.wait()
            elif not approval.answered:
                output, means = self._row(step).row, options.means
                await ask_person(
                    approval, output, self._draw(step), unattended=options.unattended, means=means
                )
        except asyncio.CancelledError:
            # An interrupt ended the wait. We deny the call here, because the stream would give another reason: not answered.
            approval.deny(NO_DECISION, by="stop")
            raise
        finally:
            if not self._has_hooks and not approval.question:
                self.hooks.begin(step.call.id)
            self._show_call(step)

    # --- showing ----------------------------------------------------------------------------------------------

    def _show(self, steps: Iterable[Step]) -> None:
        for step in steps:
            match step:
                case TextStep(is_whole=False):
                    self._writer.grow(step)
                case TextStep():
                    self._writer.end(step)
                case CallStep():
                    self._call_changed(step)
                case Done():
                    kept = self._options.finish()
                    self.output().put({**make_bundle(self._page.draw(step) or ()), **kept})
                case Notice(kind="error") if self._options.raises:
                    pass  # the cell's error has this text
                case _:
                    self._writer.show()  # the text so far is shown first; after a retry it may still grow
                    self.output().draw(self._page.draw(step))

    def _call_changed(self, step: CallStep) -> None:
        running = self.hooks.of(step.call.id)
        if not step.is_over:
            # Without hooks, no observer reports the start of the call.
            if step.approval is None and not self._has_hooks:
                self.hooks.begin(step.call.id)
                self._show_call(step)
            return
        self._show_call(step)
        if running is not None and step.is_brief:
            running.clear()
        elif running is not None:
            running.end(lambda: self._show_call(step))

    def _row(self, step: CallStep) -> _Row:
        if step not in self._rows:
            self._rows[step] = _Row(self.output(), self.output())
        return self._rows[step]

    def _show_call(self, step: CallStep) -> None:
        if not self._column.can_update and (step.is_brief or not step.is_over):
            return  # a terminal gets one line, when the call is over
        row = self._row(step)
        row.row.draw(self._draw(step), soon=not step.is_brief)
        if step.is_over:
            row.progress.draw(None)

    def _draw(self, step: CallStep) -> Block:
        running = self.hooks.of(step.call.id)
        if running is None or not step.is_over:
            return self._page.draw_call(step)
        items = step.result is None or step.result.is_error
        return self._page.draw_call(step, running.shown(items=items))

    async def _tick(self) -> None:
        while self._column.can_update:
            await asyncio.sleep(TICK)
            self._writer.show()
            self._show_running()
            self.head.update()

    def _show_running(self) -> None:
        """Show the row of each running call once. Below the row, show the call's output and time whenever they change."""
        for step in self._steps.open_calls:
            running = self.hooks.of(step.call.id)
            if running is None or step.state == "waiting" or running.seconds < SHOW_RUNNING_AFTER:
                continue
            row = self._row(step)
            if not row.row.is_there:
                self._show_call(step)
            is_due = running.seconds >= SHOW_SECONDS_AFTER or running.note or running.taken
            if is_due and running.has_news():
                outputs = running.shown(items=True)
                row.progress.draw(draw_progress(running.seconds, running.note, outputs))
