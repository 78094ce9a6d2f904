"""What the API shows in a notebook: `show(stream)`, and the approval card of `agent()` and its sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from ..core.events import Approval, Result
from ..core.pending import Pending
from . import kernel, presenting
from .asking import ask
from .column import Column
from .live import View, follow
from .options import Mistake
from .slots import put_card
from .transcript import approval_record, head, mimebundle


def card_handler() -> Callable[[Approval], Any] | None:
    """An `on_approval` that puts up the approval card in the cell that runs; None where there is no notebook."""
    if not kernel.in_kernel():
        return None

    async def handler(approval: Approval) -> bool:
        place = Column(kernel.Cell.here()).place()

        async def card(asked: Approval) -> None:
            await put_card(place, asked, mimebundle([approval_record(asked, None)]), f"call {asked.number}")

        try:
            decision = await ask(approval, card)
        finally:
            place.put(mimebundle([approval_record(approval, approval.decision)]))
        return decision.allowed

    return handler


def show(stream: Any, name: str | None = None) -> Any:
    """Render a stream of events in the cell as it comes, with its approval cards; gives back its Result.

    `await show(aagent(…, stream=True))` for an async stream, `show(agent(…, stream=True))` for a sync one. Streams of
    LiteLLM's own harnesses (`litellm.aagent(…, stream=True)`) are rendered, too. A Result is shown as it is,
    and None comes back.
    Raises Mistake for anything else.
    """
    if isinstance(stream, Result):
        kernel.Cell.here().display(presenting.bundle(stream))
        return None  # as the cell's value it would be shown a second time
    if not hasattr(stream, "cancel") or not (hasattr(stream, "__anext__") or hasattr(stream, "__next__")):
        raise Mistake(_no_stream(stream))
    watch = getattr(getattr(stream, "aio", stream), "watch", None)  # ours: it tells what a tool prints, too
    if hasattr(stream, "__anext__"):
        return Pending(_show(stream, stream.cancel, name, watch), "show(…)")
    return kernel.run_sync(lambda: _show(_stepwise(stream), stream.cancel, name, watch))


def _no_stream(given: object) -> str:
    what = f"a value of type {type(given).__name__}"
    if isinstance(given, Coroutine):
        given.close()
        what = "a run that was not asked to stream"
    return f"show() takes a stream, not {what}: show(agent(…, stream=True)), or await show(aagent(…, stream=True))"


async def _show(
    stream: AsyncIterator[Any],
    cancel: Callable[[], None],
    name: str | None,
    watch: Callable[[View], bool] | None,
) -> Result:
    view = View(kernel.Cell.here(), head("", (), None, None), name=name, stop=cancel)
    view.foreign = watch is None or not watch(view)
    async with kernel.attending():
        return await kernel.uninterrupted(follow(stream, view, cancel))


async def _stepwise(stream: Any) -> AsyncIterator[Any]:
    """A sync stream as an async one: ours through the async one behind it, another in a thread."""
    inner = getattr(stream, "aio", None)
    if inner is not None:
        async for event in inner:
            yield event
        return
    done = object()
    while (event := await asyncio.to_thread(next, stream, done)) is not done:
        yield event
