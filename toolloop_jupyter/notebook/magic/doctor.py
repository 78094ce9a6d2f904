"""`%toolloop doctor`: test which features work on this kernel and front-end, and show how to make the others work."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import platform
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Literal

from ...core.events import Host, Mistake
from ...core.models import explain_missing_bytecode
from ...core.text import plain
from ...core.tools import ToolSource
from .. import kernel, live
from ..html import BLOCK, CELL, STYLE, TABLE, inline
from ..live import Means
from ..transcript import Block, make_bundle
from .options import in_flags, refuse_words

if TYPE_CHECKING:
    from .cell import Notebook

WAIT = 15.0
"""Without `--wait`, the doctor waits this many seconds for a click; `live.GRACE` seconds if nobody can be asked."""

_PACKAGES = ("litellm", "ipykernel", "IPython", "pydantic")
_INSTEAD = {
    "card": "approvals are still asked by a button",
    "input": "approvals are typed: y, n REASON, e, a",
    "nobody": "approvals are denied",
}
"""How a person can be asked (a value of `live.find_means()`) -> a text that says what happens to approvals."""
_BUTTONS = "approval buttons"
_NOT_WAITING = "not tried: a line magic cannot wait inside this kernel's event loop"
_ASYNCIO_LOOP = "start the kernel on asyncio's own event loop; %%toolloop cells and `await aagent(…)` work on this one, too"
_HEED_CTRL_C = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
_UNATTENDED = "--on-unattended allow|error decides otherwise"


@dataclass(frozen=True)
class Finding:
    """One row of the doctor's table."""

    what: str
    state: Literal["ok", "bad", "note"]
    says: str
    remedy: str = ""
    """What the person should install, switch on or type; "" if nothing is missing."""


def examine(book: Notebook, *words: str) -> None:
    """Examine the kernel, the front-end, and the notebook's sources of tools, and show a table.

    `words` may be `--model MODEL` and `--wait SECONDS`; other words raise Mistake.
    """
    model, wait = _read_words(words)
    cell = kernel.Cell.here()
    click = _try_buttons(cell, book.complete({})["ask"], wait)
    versions = ", ".join(f"{package} {version(package)}" for package in _PACKAGES)
    findings = [
        Finding("versions", "ok", f"Python {platform.python_version()}, {versions}"),
        *_describe_bytecode(),
        *_describe_kernel(click, awaits=book.autoawait),
        click,
        *(Finding(name, *one.examine()) for name, one in book.names.items() if isinstance(one, ToolSource)),
    ]
    if model is not None and not kernel.can_run_sync():
        findings.append(Finding("model", "note", f"{model}: {_NOT_WAITING}", _ASYNCIO_LOOP))
    elif model is not None:
        findings.append(kernel.run_sync(lambda: _ask_model(book, model)))
    cell.display(_render(findings))


def _read_words(words: Sequence[str]) -> tuple[str | None, float | None]:
    given = dict(zip(words[::2], words[1::2], strict=False))
    if len(words) % 2 or not given.keys() <= {"--model", "-m", "--wait"}:
        raise refuse_words("doctor")
    model, wait = given.get("--model", given.get("-m")), given.get("--wait")
    if wait is None:
        return model, None
    try:
        seconds = float(wait)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise Mistake(f"--wait takes a number of seconds above 0, got {wait!r}; write for example: --wait 30")
    return model, seconds


def _describe_bytecode() -> Iterator[Finding]:
    """Yield a finding if LiteLLM's files have no bytecode, and Python cannot write any."""
    if missing := explain_missing_bytecode():
        folder, cause = missing
        says = f"its files have no bytecode, so each kernel compiles them anew, for some seconds: {cause}"
        remedy = f"python -m compileall -q {shlex.quote(str(folder))}"
        yield Finding("LiteLLM's import", "bad", says, remedy)


def _describe_kernel(click: Finding, *, awaits: bool) -> Iterator[Finding]:
    """Yield the findings about the kernel. `click` is the finding that `_try_buttons` has returned."""
    if awaits:
        yield Finding(
            "awaited cells", "ok", "%autoawait is on: a %%toolloop cell is awaited, as in `await …`"
        )
    else:
        says = "%autoawait is off: a %%toolloop cell runs as a plain call, and `await aagent(…)` is an error"
        yield Finding("awaited cells", "note", says, "%autoawait on")
    if not kernel.in_kernel():
        yield Finding("kernel", "note", "none: this is IPython in a terminal")
        if kernel.ignores_ctrl_c():
            says = "this process was started to ignore Ctrl-C: it does not end an awaited run"
            yield Finding("Ctrl-C", "bad", says, _HEED_CTRL_C)
        return
    clicks = "clicks while a cell waits"
    if click.state == "ok":
        yield Finding(clicks, "ok", "tried: yours came")
    elif kernel.delivers_clicks():
        yield Finding(clicks, "note", "this ipykernel delivers them; no click came to try it")
    else:
        says = "this ipykernel delivers them over subshells only; no click came to try it"
        yield Finding(clicks, "bad", says, "pip install 'ipykernel>=7.4'")
    if kernel.has_stdin():
        yield Finding("keyboard (stdin)", "ok", "the front-end says that it can be asked by input()")
    else:
        says = "the front-end says that it answers no input() (as an unattended run does)"
        yield Finding("keyboard (stdin)", "note", says)


# --- the button -------------------------------------------------------------------------------------------------


def _try_buttons(cell: kernel.Cell, wish: Means, wait: float | None) -> Finding:
    """Show a button if buttons may work here, and wait for a click. Else the finding says why no button is shown."""
    means = live.find_means(wish)
    instead = _INSTEAD[means]
    if not kernel.in_kernel():
        return Finding(_BUTTONS, "note", f"a terminal shows none; {instead}")
    if not kernel.has_widgets():
        says = f"there are none without ipywidgets; {instead}"
        return Finding(_BUTTONS, "bad", says, "pip install 'ipywidgets>=7.7.1'")
    if means == "input" and wish == "input":
        says = f"not tried: ToolLoop.ask is 'input'; {instead}"
        return Finding(_BUTTONS, "note", says, "%config ToolLoop.ask = 'auto'")
    if not live.may_have_buttons():
        return Finding(_BUTTONS, "note", f"not tried: a program runs this notebook; {instead}", _UNATTENDED)
    if not kernel.can_run_sync():
        return Finding(_BUTTONS, "note", _NOT_WAITING, _ASYNCIO_LOOP)
    seconds = wait or (live.GRACE if means == "nobody" else WAIT)
    return kernel.run_sync(lambda: _wait_for_click(cell, seconds, means))


async def _wait_for_click(cell: kernel.Cell, wait: float, means: str) -> Finding:
    """Show a button, and wait for a click. Only a click proves that the front-end sends clicks: it never says so itself."""
    from ..widgets import ClickTest

    loop, clicked = asyncio.get_running_loop(), asyncio.Event()
    card = ClickTest(wait, lambda: loop.call_soon_threadsafe(clicked.set))
    identity = "toolloop-doctor"
    text = f"Click the button within {wait:g} seconds."
    cell.display({"text/plain": text, **card.make_reference()}, display_id=identity)
    began = loop.time()
    try:
        await asyncio.wait_for(clicked.wait(), wait)
    except asyncio.CancelledError:
        return Finding(_BUTTONS, "note", "not tried: stopped by you before a click")
    except asyncio.TimeoutError:
        says = f"nobody clicked within {wait:g} s"
        if means == "nobody":
            says += f", and there is no other way to ask; {_INSTEAD[means]}"
            return Finding(_BUTTONS, "note", says, _UNATTENDED)
        remedy = "if you did click: %config ToolLoop.ask = 'input' asks by typing instead"
        return Finding(_BUTTONS, "bad", f"{says}, or the click did not come back", remedy)
    finally:
        card.finish()
        cell.update({"text/plain": "", "text/html": ""}, identity)
    live.note_click()
    took = loop.time() - began
    return Finding(_BUTTONS, "ok", f"a click came back ({took:.1f} s after the button was shown)")


async def _ask_model(book: Notebook, model: str) -> Finding:
    """Send one short prompt to the model. Return the finding: the model answers, or why it does not."""
    try:
        session = book.new_session({"model": model, "tools": [], "permissions": "full", "timeout": 30.0})
    except ValueError as error:
        return Finding("model", "bad", f"{model}: {error}")
    # With a plain Host, `%toolloop show` skips this run.
    session.configure(dataclasses.replace(session.config, host=Host()))
    try:
        async with kernel.serving_clicks():
            result = await session.arun("Answer with one word: ready")
    except asyncio.CancelledError:
        return Finding("model", "note", f"{model}: you stopped the test before the model had answered")
    if result.stop_reason == "done":
        return Finding("model", "ok", f"{model} answers")
    says = f"{model}: {in_flags(result.error or result.stop_reason)}"
    return Finding("model", "bad", says, "correct what this line names, then run %toolloop doctor again")


_MARKS = {"ok": "✓", "bad": "✗", "note": "·"}


def _render(findings: list[Finding]) -> dict[str, str]:
    rows, lines = [], []
    for one in findings:
        mark, style = _MARKS[one.state], f'style="{CELL}"'
        code = f"<br><code>→ {inline(one.remedy)}</code>" if one.remedy else ""
        rows.append(
            f'<tr><td class="tlj-{one.state}" {style}>{mark}</td><td {style}><b>{inline(one.what)}</b></td>'
            f"<td {style}>{inline(one.says)}{code}</td></tr>"
        )
        lines.append(f"{mark} {one.what:<26} {plain(one.says)}{f' → {one.remedy}' if one.remedy else ''}")
    html = f'{STYLE}<div class="tlj" style="{BLOCK}"><table style="{TABLE}">{"".join(rows)}</table></div>'
    return make_bundle(Block(html, "\n".join(lines)))
