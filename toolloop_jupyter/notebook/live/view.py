"""LiteLLM's own streams and Results as ours: the one place where its events are turned into those that are shown.

The classes of `litellm.harness.types` (1.110) have our events' names and fewer fields. They are told apart by name, so
that nothing here imports LiteLLM; one that a later release adds is shown as a line of text.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...core.events import (
    Approval,
    HarnessError,
    Observer,
    Result,
    ToolCall,
    ToolResult,
    Usage,
)
from ...core.models import must_load
from .. import kernel
from ..transcript import (
    FULL_STEPS,
    TOO_LARGE,
    Block,
    Room,
    answer_block,
    attachment_block,
    call_block,
    files_block,
    foot,
    mimebundle,
    notice,
    picture,
    retry_block,
)
from .asking import Means, Unattended, ask
from .outputs import CATCH_UP, LiveCall, put_card
from .places import Column, Place
from .writing import Written

if TYPE_CHECKING:
    from ...core.events import Progress, Reply, Request


@dataclass(frozen=True)
class Notice:
    """An event that ours have no place for, in words."""

    text: str


# --- A run's events, as they come, into a cell: blocks that are written once, and the one that is being written. ---
#
# The reader of the stream (`View.take`) owns everything that is shown. The loop's own hooks (`output`, `progress`)
# only put things aside, from whatever thread they come; a tick ten times a second brings them, and the text that has
# come meanwhile, to the screen. So a burst of tokens costs ten messages a second, not thousands.

TICK = 0.1
"""Seconds between two looks at what has to be shown."""
LOADING = "loading litellm (once in a session, some seconds)"
SHOW_RUNNING_AFTER = 0.08
"""Seconds after which a tool that has not ended is shown as running; most end sooner and are shown once."""


class View(Observer):
    """Shows one run in one cell, and asks its approvals there."""

    wants_output = True

    def __init__(
        self,
        cell: kernel.Cell,
        head: Block,
        *,
        name: str | None = None,
        stop: Callable[[], None] | None = None,
        unattended: Unattended = "deny",
        wish: Means = "auto",
        model: str = "",
        foreign: bool = False,
        raised: bool = False,
        owns_cell: bool = False,
        whole_text: bool = False,
    ) -> None:
        """`name` is the variable that the Result goes into; `stop` ends the run (the Stop button); `model` is what it asks, for
        which LiteLLM may have to be imported; `foreign` streams
        do not call the observer's hooks; `raised`: a failed run becomes the cell's error, so it is not said twice; `owns_cell`:
        nothing else is in the cell's output; `whole_text`: text stays one block (it may be an answer's JSON).
        """
        self._column = Column(cell, owns=owns_cell)
        self.cell, self.head, self.name, self.stop = cell, head, name, stop
        self.hint: str | None = ""
        """What to say behind the expression of a whole result, when nothing has that name; None when nothing has the result."""
        self._unattended, self._wish, self.foreign, self._raised = unattended, wish, foreign, raised
        self._began = time.monotonic()
        self._written = Written(self._column, cell, whole=whole_text)
        self._calls: dict[str, LiveCall] = {}
        self._room, self._numbers = Room(), itertools.count()
        self._finished: deque[LiveCall] = deque()
        self._usage = Usage()
        self._cost: float | None = 0.0
        self._state = LOADING if model and must_load(model) else "starting"
        self._bar: Any = None
        self._bar_place = self.place()
        self._ticker: asyncio.Task[None] | None = None
        self.asks = True
        """Whether to ask about approvals here: not where the run's `on_approval` answers them."""
        self.keep: Callable[[], Mapping[str, Any]] | None = None
        """Gives what the last output keeps for a later kernel (the conversation), with --keep-history."""
        self.ended: Callable[[], object] | None = None
        """Called when the turn is over, before its last output: what it has replaced may come back."""

    # --- the run's own hooks: put aside, show later -------------------------------------------------------------

    async def before_model(self, request: Request) -> None:
        if self._state == LOADING and self._bar is None:
            self._bar_place.put(mimebundle([self.head]))
        self._state = "the model answers"

    async def after_model(self, reply: Reply) -> None:
        self._usage += reply.usage
        self._cost = None if self._cost is None or reply.cost is None else self._cost + reply.cost

    async def before_tool(self, call: ToolCall, arguments: Mapping[str, object]) -> None:
        self._state = f"running {call.name}"
        live = self._live(call)
        if live.arguments is None:  # else they were asked about, and edits are the decision's
            live.arguments = arguments
        live.began = time.monotonic()
        live.show_again = functools.partial(self._show_call, live)

    def output(self, call: ToolCall, kind: str, payload: Any) -> None:
        self._live(call).sink(kind, payload)

    def item(self, call: ToolCall, item: object) -> None:
        self._live(call).outputs.add_item(item)

    def progress(self, call: ToolCall, progress: Progress) -> None:
        of = f" of {progress.total:g}" if progress.total is not None else ""
        self._live(call).note = f"{progress.done:g}{of} {progress.note}".strip()

    def _live(self, call: ToolCall) -> LiveCall:
        if call.id not in self._calls:
            self._calls[call.id] = LiveCall(call, self.place(), next(self._numbers))
        return self._calls[call.id]

    def place(self) -> Place:
        """A new place for something in the cell's output."""
        return self._column.place()

    def put(self, block: Block) -> None:
        """Show a block as a new output."""
        self.place().put(mimebundle([block]))

    def show_head(self, head: Block) -> None:
        """Show another line above the run; beside the toolbar it stands from the end of the run on."""
        if head != self.head:
            self.head = head
            if self._bar is None and self.cell.can_update:
                self._bar_place.put(mimebundle([head]))

    async def say(self, text: str, kind: str) -> None:
        """Show a line of our own behind what has come so far."""
        await self.caught_up()
        self.put(notice(text, kind))

    async def caught_up(self) -> None:
        """Wait until what has come is shown; the text that was being written ends here."""
        await asyncio.sleep(CATCH_UP)
        self._written.end_reasoning()
        self._written.end_text()

    def waits(self, *, for_what: str) -> None:
        """Say in the toolbar what the run waits for."""
        self._state = for_what

    # --- the reader ---------------------------------------------------------------------------------------------

    async def __aenter__(self) -> View:
        if self.cell.can_update and kernel.has_widget_frontend() and self.stop is not None:
            from ..widgets import Toolbar

            self._bar = Toolbar(self._stop_clicked)
            self._bar_place.put({**mimebundle([self.head]), **self._bar.mimebundle()})
        elif self._state == LOADING and self.cell.can_update:
            self._bar_place.put(mimebundle([self.head, notice(LOADING)]))
        else:
            self._bar_place.put(mimebundle([self.head]))
        self._ticker = asyncio.ensure_future(self._tick())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
        self._written.end_text()
        for live in self._calls.values():
            if not live.done:
                live.done = True  # another runtime's run may end without the call's result
                self._show_call(live, None)
        if self._bar is not None:
            self._bar.finish()
            self._bar_place.put(mimebundle([self.head]))

    def _stop_clicked(self) -> None:
        self._state = "stopping"
        if self.stop is not None:
            self.stop()

    async def take(self, event: object) -> None:
        """Show one event."""
        kind = type(event).__name__
        if kind not in ("Text", "Retry"):
            self._written.end_text()
        if kind not in ("Reasoning", "Text"):
            self._written.end_reasoning()
        handler = getattr(self, f"_on_{kind.lower()}", None)
        if handler is not None:
            outcome = handler(event)
            if outcome is not None:
                await outcome

    def _on_text(self, event: Any) -> None:
        self._written.end_reasoning()
        self._written.add_text(event.delta)

    def _on_reasoning(self, event: Any) -> None:
        self._written.add_reasoning(event.delta)

    def _on_attachment(self, event: Any) -> None:
        block, key = attachment_block(event), ("attachment", event.name, event.address)
        self.put(block if self._room.holds(key, block) else notice(f"{event.name}: {TOO_LARGE}"))

    def _on_retry(self, event: Any) -> None:
        if event.discard:
            self._written.take_back()
        else:
            self.put(retry_block(event))

    def _on_toolcall(self, event: Any) -> None:
        live = self._live(event)
        live.waiting = False
        if self.foreign:
            live.arguments = event.input  # nobody tells what was made of them
            self._show_call(live, None)

    async def _on_approval(self, approval: Approval) -> None:
        live = self._waiting_call(approval)
        live.waiting = self.asks and not approval.answered
        self._state = "waiting for you" if self.asks else "waiting for on_approval"
        live.arguments = approval.input
        try:
            if not self.asks:
                await approval.wait()
            elif not approval.answered:
                await ask(approval, self._card, unattended=self._unattended, wish=self._wish)
        except asyncio.CancelledError:  # an interrupt; said here, before the stream calls it unanswered
            approval.deny("the turn ended before a decision", by="stop")
            raise
        finally:
            live.waiting = False
            live.decision = approval.decision
        self._show_call(live, None)

    def _waiting_call(self, approval: Approval) -> LiveCall:
        if approval.call_id in self._calls:
            return self._calls[approval.call_id]
        for live in reversed(self._calls.values()):
            if not live.done and live.call.name == approval.tool:
                return live
        return self._live(ToolCall(uuid.uuid4().hex, approval.tool, approval.tool, approval.input))

    async def _card(self, approval: Approval) -> None:
        """Put the card in the call's place, until the approval is decided."""
        live = self._waiting_call(approval)
        fallback = mimebundle([self._block(live, None)])
        await put_card(live.place, approval, fallback, f"call {live.number + 1}")

    def _on_toolresult(self, event: Any) -> None:
        live = self._calls.get(event.id)
        if live is None:
            return
        live.done, live.result = True, event
        live.decision = event.decision or live.decision
        self._show_call(live, event)
        self._finished.append(live)
        if len(self._finished) > FULL_STEPS:
            self._make_brief(self._finished.popleft())

    def _on_notice(self, event: Notice) -> None:
        self.put(notice(event.text))

    def _on_filechange(self, event: Any) -> None:
        block = files_block([event])
        if self._room.holds_file(block):
            self.put(block)

    def _on_done(self, event: Any) -> None:
        result = event.result
        if result.output is not None:
            self._written.last_place.put(mimebundle([answer_block("", result.output)]))
        if self._room.files_left_out:
            self.put(notice(self._room.files_note(f"{self.name or 'result'}.files{self.hint}")))
        if getattr(result, "error", None):
            kind = "error" if result.stop_reason == "runtime_error" else "warning"
            if kind == "warning" or not self._raised:
                self.put(notice(result.error, kind))
        if self.ended is not None:
            self.ended()
        kept = self.keep() if self.keep is not None else {}
        self.place().put({**mimebundle([foot(result, self.name, picture=picture(result))]), **kept})

    # --- showing ------------------------------------------------------------------------------------------------

    def _make_brief(self, live: LiveCall) -> None:
        """Leave one line of a call that is long past: a very long run must not make a file that nobody can open."""
        if self.cell.can_update:
            block = self._block(live, live.result, brief=True)
            self._room.holds(live.number, block)
            live.place.put(mimebundle([block]), soon=False)
        live.outputs.clear()
        live.result = None

    def _block(
        self, live: LiveCall, result: ToolResult | None, *, brief: bool = False, too_large: bool = False
    ) -> Block:
        name = f"{self.name or 'result'}.tool_results[{live.number}].value{self.hint}"
        name = name if self.hint is not None else ""
        state = "done" if result is not None or live.done else "waiting" if live.waiting else "running"
        return call_block(
            live.call,
            arguments=live.arguments,
            result=result,
            decision=live.decision,
            outputs=live.outputs.shown(items=result is None or result.is_error),
            elapsed=time.monotonic() - live.began if result is None else None,
            state=state,
            note=f"{TOO_LARGE}: {name}".rstrip(": ") if too_large else live.note,
            brief=brief or too_large,
            value_name=name,
        )

    def _show_call(self, live: LiveCall, result: ToolResult | None) -> None:
        if result is None and not self.cell.can_update:
            return  # a terminal: one line, when it is done
        block = self._block(live, result)
        if result is not None and not self._room.holds(live.number, block):
            block = self._block(live, result, too_large=True)
        live.place.put(mimebundle([block]))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            if not self.cell.can_update:
                continue
            self._written.show()
            self._show_running()
            if self._bar is not None:
                self._bar.update(self._state, self._usage, self._cost, time.monotonic() - self._began)

    def _show_running(self) -> None:
        """Show the call that runs: at first, when it has said something new, and its seconds as they pass."""
        for live in [live for live in self._calls.values() if not live.done and not live.waiting]:
            if live.arguments is not None and live.has_news(SHOW_RUNNING_AFTER):
                self._show_call(live, None)


async def follow(stream: AsyncIterator[Any], view: View, cancel: Callable[[], None]) -> Result:
    """Read a stream to its end into a view. An interrupt cancels the turn; its end is shown all the same."""
    result: Result | None = None
    async with view:
        while True:
            try:
                event = await stream.__anext__()
                await view.take(event)
            except StopAsyncIteration:
                break
            except asyncio.CancelledError:
                cancel()
                continue
            if type(event).__name__ == "Done":
                result = event.result
    if result is None:
        raise HarnessError(
            "the stream ended without a Done event: it was closed, or somebody else reads it, too; run it again to show it"
        )
    return result
