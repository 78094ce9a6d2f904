"""What the API shows in a notebook: `show(stream)`, and the approval card of `agent()` and its sessions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

from ..core.events import Approval, Result
from ..core.pending import Pending
from . import kernel, presenting
from .adopting import Adopted, adopt, is_result
from .asking import ask
from .blocks import head
from .calls import approval_record
from .column import Column
from .live import View, follow
from .options import Mistake
from .slots import put_card
from .transcript import mimebundle


def card_handler() -> Callable[[Approval], Any] | None:
    """An `on_approval` that asks in the cell that runs: by a card, or at a terminal's prompt. None where neither can be."""
    if not (kernel.in_kernel() or kernel.terminal()):
        return None

    async def handler(approval: Approval) -> bool:
        place = Column(kernel.Cell.here()).place()

        async def card(asked: Approval) -> None:
            await put_card(place, asked, mimebundle([approval_record(asked, None)]), f"call {asked.number}")

        try:
            decision = await ask(approval, card)
        except asyncio.CancelledError:  # by Ctrl-C at the prompt: the run itself is told right after
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(approval.wait(), kernel.PATIENCE)
            raise
        finally:
            place.put(mimebundle([approval_record(approval, approval.decision)]))
        return decision is not None and decision.allowed

    return handler


def show(stream: Any, name: str | None = None) -> Any:
    """Render a stream of events in the cell as it comes, with its approval cards; gives back its Result.

    `await show(aagent(…, stream=True))` for an async stream, `show(agent(…, stream=True))` for a sync one. Streams of
    LiteLLM's own harnesses (`litellm.aagent(…, stream=True)`) are rendered, too, and give back LiteLLM's Result. A stream
    that has been read to its end has its Result shown once more. A Result is shown as it is, and None comes back.
    Raises Mistake for anything else.
    """
    if isinstance(stream, Result) or is_result(stream):
        kernel.Cell.here().display(presenting.bundle(adopt(stream)))
        return None  # as the cell's value it would be shown a second time
    if not hasattr(stream, "cancel") or not (hasattr(stream, "__anext__") or hasattr(stream, "__next__")):
        raise Mistake(_no_stream(stream))
    if hasattr(stream, "__anext__"):
        return Pending(_show(stream, name), "show(…)")
    return kernel.run_sync(lambda: _show(stream, name))


def _no_stream(given: object) -> str:
    what = f"a value of type {type(given).__name__}"
    if isinstance(given, Coroutine):
        given.close()
        what = "a run that was not asked to stream"
    return f"show() takes a stream, not {what}: show(agent(…, stream=True)), or await show(aagent(…, stream=True))"


async def _show(stream: Any, name: str | None) -> Any:
    ours = getattr(stream, "aio", stream)  # the async stream behind a sync one of ours
    watch = getattr(ours, "watch", None)  # ours: it tells what a tool prints, too
    if getattr(stream, "result", None) is not None:
        kernel.Cell.here().display(presenting.bundle(adopt(stream.result)))
        result = stream.result
    elif watch is None:
        adopted = Adopted(stream)
        view = View(
            kernel.Cell.here(), _HEAD, name=name, stop=adopted.cancel, unattended="leave", foreign=True
        )
        view.hint = None
        presenting.keep(await _follow(adopted, view))  # for %toolloop show; ours are kept as they end
        return adopted.result
    else:
        view = View(kernel.Cell.here(), _HEAD, name=name, stop=ours.cancel)
        view.foreign, view.asks = not watch(view), not ours.answers_itself
        result = await _follow(ours, view)
    if isinstance(result, Result):
        presenting.mark_shown(result)
    return result


_HEAD = head("", (), None, None)


async def _follow(stream: Any, view: View) -> Result:
    async with kernel.attending():
        return await kernel.uninterrupted(follow(stream, view, stream.cancel))
