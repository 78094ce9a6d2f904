"""`asyncio.run(main())` in cells, for code that was written for scripts: nest_asyncio2, and what it lacks in a kernel.

`nest_loop` applies that package, for good, when somebody asks for it: nothing here needs it. It lets asyncio's functions
enter a loop that is running. What it does then is measured in `__init__`: on ipykernel 7 it holds back each handle whose
context is entered, and with it a click. So the kernel's loop gets a `run_until_complete` of ours, which waits as `run_sync`
does: clicks arrive, ■ cancels, the queued cells run.
"""

from __future__ import annotations

import asyncio
import functools
import warnings
from collections.abc import Awaitable
from typing import Any, TypeVar

from ...core.events import Mistake
from .sync import run_sync
from .where import get_kernel

T = TypeVar("T")


def nest_loop() -> None:
    """Let code in cells enter the kernel's loop by `asyncio.run` and `run_until_complete`, until the kernel ends.

    A second time changes nothing. Raises Mistake where there is no kernel, or its loop is not asyncio's own (uvloop).
    """
    loop = find_kernel_loop()
    if loop is None:
        raise Mistake("there is no kernel here: asyncio.run(main()) works as it is, and so does await main()")
    if not isinstance(loop, asyncio.BaseEventLoop):
        kind = f"{type(loop).__module__}.{type(loop).__name__}"
        raise Mistake(f"this kernel's event loop ({kind}) cannot be entered again: write await main()")
    if is_nested():
        return
    import nest_asyncio2

    with warnings.catch_warnings():
        # It warns where nest_asyncio was applied before it (Colab's notebooks do). What it warns of is replaced below.
        warnings.filterwarnings("ignore", "asyncio is already patched", UserWarning)
        # A loop that `asyncio.run` makes for itself (in a thread) is closed afterwards, as without the package (from 3.12 on).
        nest_asyncio2.apply(loop, run_close_loop=True)
    loop.run_until_complete = functools.partial(_run_until_complete, loop)  # type: ignore[method-assign]


def is_nested() -> bool:
    """Whether `nest_loop` was called in this kernel."""
    made = vars(find_kernel_loop() or object).get("run_until_complete")
    return getattr(made, "func", None) is _run_until_complete


def find_kernel_loop() -> asyncio.AbstractEventLoop | None:
    """The loop that runs the kernel's cells; None where there is none, or it is still to come."""
    # ipykernel 6 and 7 keep tornado's loop; `asyncio_loop` is its public attribute.
    return getattr(getattr(get_kernel(), "io_loop", None), "asyncio_loop", None)


def _run_until_complete(loop: Any, future: Awaitable[T]) -> T:
    """What the loop's `run_until_complete` is: also in code that the loop itself runs."""
    if asyncio._get_running_loop() is not loop:
        result: T = type(loop).run_until_complete(loop, future)
        return result
    work = asyncio.ensure_future(future, loop=loop)

    async def wait() -> T:
        return await work

    return run_sync(wait)
