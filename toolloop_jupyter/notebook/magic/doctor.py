"""`%toolloop doctor`: what works on this kernel and front-end, found by trying it, and what to do about the rest."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import cache_from_source, find_spec
from pathlib import Path
from typing import Any, Literal

from ...core.events import Host, Mistake
from ...core.session import AsyncSession, collect
from ...core.text import plain
from .. import kernel, live
from ..html import BLOCK, STYLE, TABLE, inline
from ..transcript import Block, mimebundle
from .options import in_flags

NewSession = Callable[[Mapping[str, Any]], AsyncSession]
"""Makes a session of options, by their names."""
WAIT = 15.0
"""Seconds that the doctor waits for a click, unless --wait says otherwise (`asking.GRACE` where there is no keyboard)."""

_FLOORS = {
    "litellm": "1.110",
    "ipykernel": "6.17",
    "IPython": "7.34",
    "ipywidgets": "7.7.1",
    "pydantic": "2.11",
}
_KERNEL_THAT_DELIVERS = "ipykernel>=7.4"
_INSTEAD = {
    "card": "approvals are asked by a button all the same",
    "input": "approvals are typed: y, n REASON, e, a",
    "nobody": "approvals are denied",
}
"""What becomes of approvals, by `asking.means_of_asking()`."""
_BUTTONS = "approval buttons"
_NOT_WAITING = "not tried: a line magic cannot wait inside this kernel's event loop"
_ASYNCIO_LOOP = "start the kernel on asyncio's own event loop; %%toolloop cells and `await aagent(…)` work on this one, too"
_HEED_CTRL_C = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
_UNATTENDED = "--on-unattended allow|error decides otherwise"


@dataclass(frozen=True)
class Finding:
    """One line of the examination."""

    what: str
    state: Literal["ok", "bad", "note"]
    says: str
    remedy: str = ""
    """What to install, switch on or type, for what is missing."""


def run(words: list[str], *, ask: Any, awaits: bool, new_session: NewSession) -> None:
    """Examine, and print a table. Words: `--model MODEL`, `--wait SECONDS`. Raises Mistake for other ones.

    `ask` is the setting of that name; `awaits`: whether the shell's cells may await.
    """
    model, wait = _read_words(words)
    cell = kernel.Cell.here()
    click = _try_buttons(cell, ask, wait)
    findings = [*_list_versions(), *_check_bytecode(), *_describe_kernel(click, awaits=awaits), click]
    if model is not None and not kernel.can_run_sync():
        findings.append(Finding("model", "note", f"{model}: {_NOT_WAITING}", _ASYNCIO_LOOP))
    elif model is not None:
        findings.append(kernel.run_sync(lambda: _ask_model(new_session, model)))
    cell.display(_render(findings))


def _read_words(words: list[str]) -> tuple[str | None, float | None]:
    given = dict(zip(words[::2], words[1::2], strict=False))
    if len(words) % 2 or not given.keys() <= {"--model", "-m", "--wait"}:
        raise Mistake("write: %toolloop doctor [--model MODEL] [--wait SECONDS]")
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


def _list_versions() -> Iterator[Finding]:
    found = [f"Python {platform.python_version()}"]
    for package, floor in _FLOORS.items():
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            yield Finding(package, "bad", "is not installed", f"pip install '{package}>={floor}'")
    yield Finding("versions", "ok", ", ".join(found))


def _check_bytecode() -> Iterator[Finding]:
    """Whether every kernel compiles LiteLLM anew: its files have no bytecode, and an import can write none."""
    spec = find_spec("litellm")
    if spec is None or spec.origin is None:
        return
    kept = Path(cache_from_source(spec.origin))
    folder = next(folder for folder in kept.parents if folder.exists())
    if kept.exists() or (os.access(folder, os.W_OK) and not sys.dont_write_bytecode):
        return
    says = "none for LiteLLM, so each kernel compiles it anew, which takes some seconds: "
    if sys.dont_write_bytecode:
        site = Path(spec.origin).parents[1]
        yield Finding(
            "bytecode",
            "note",
            f"{says}PYTHONDONTWRITEBYTECODE is set",
            f"python -m compileall -q {site}",
        )
    else:
        remedy = "start the kernel with PYTHONPYCACHEPREFIX=FOLDER, one that it may write to"
        yield Finding("bytecode", "note", f"{says}{folder} may not be written to", remedy)


def _describe_kernel(click: Finding, *, awaits: bool) -> Iterator[Finding]:
    """What the kernel says of itself; `click` is what came of the button."""
    if awaits:
        says = "%autoawait is on: a %%toolloop cell is awaited, as in `await …`"
        yield Finding("awaited cells", "ok", says)
    else:
        says = "%autoawait is off: a %%toolloop cell runs as a plain call, and `await aagent(…)` is an error"
        yield Finding("awaited cells", "note", says, "%autoawait on")
    if not kernel.in_kernel():
        yield Finding("kernel", "note", "none: this is IPython in a terminal")
        if kernel.ignores_ctrl_c():
            yield Finding(
                "Ctrl-C", "bad", "this process was started to ignore it: it ends no run", _HEED_CTRL_C
            )
        return
    yield _describe_clicks(came=click.state == "ok")
    if kernel.has_stdin():
        yield Finding("keyboard (stdin)", "ok", "the front-end says that it can be asked by input()")
    else:
        says = "the front-end says that it answers no input() (as an unattended run does)"
        yield Finding("keyboard (stdin)", "note", says)


def _describe_clicks(*, came: bool) -> Finding:
    """How a click overtakes the cell that waits for it: seen by a click, else told from the version."""
    what, way = "clicks while a cell waits", kernel.find_click_route()
    says = {
        "kernel": "the kernel delivers them by itself",
        "queue": "taken out of the kernel's queue while a run goes on",
    }.get(way, "this ipykernel delivers them over subshells only")
    if came:
        return Finding(what, "ok", f"{says} (tried: yours came)")
    says += f" (told from ipykernel {version('ipykernel')}; no click came to try it)"
    if way in ("kernel", "queue"):
        return Finding(what, "note", says)
    return Finding(what, "bad", says, f"pip install '{_KERNEL_THAT_DELIVERS}'")


# --- the button -------------------------------------------------------------------------------------------------


def _try_buttons(cell: kernel.Cell, wish: Any, wait: float | None) -> Finding:
    """Try whether a click comes back, wherever a button may be shown ("ok": it did); else say who is asked instead."""
    means = live.means_of_asking(wish)
    instead = _INSTEAD[means]
    if not kernel.in_kernel():
        return Finding(_BUTTONS, "note", f"a terminal shows none; {instead}")
    if not kernel.has_widgets():
        remedy = f"pip install 'ipywidgets>={_FLOORS['ipywidgets']}'"
        return Finding(_BUTTONS, "bad", f"there are none without ipywidgets; {instead}", remedy)
    if means == "input" and wish == "input":
        says = f"not tried: ToolLoop.ask is 'input'; {instead}"
        return Finding(_BUTTONS, "note", says, "%config ToolLoop.ask = 'auto'")
    if not live.may_have_buttons():
        says = f"not tried: a program runs this notebook; {instead}"
        return Finding(_BUTTONS, "note", says, _UNATTENDED)
    if not kernel.can_run_sync():
        return Finding(_BUTTONS, "note", _NOT_WAITING, _ASYNCIO_LOOP)
    seconds = wait or (live.GRACE if means == "nobody" else WAIT)
    return kernel.run_sync(lambda: _wait_for_click(cell, seconds, means))


async def _wait_for_click(cell: kernel.Cell, wait: float, means: str) -> Finding:
    """Show a button and wait for it to be clicked: the one thing that no message tells."""
    from ..widgets import ClickTest

    loop, clicked = asyncio.get_running_loop(), asyncio.Event()
    card = ClickTest(wait, lambda: loop.call_soon_threadsafe(clicked.set))
    identity = "toolloop-doctor"
    text = f"Click the button within {wait:g} seconds."
    cell.display({"text/plain": text, **card.mimebundle()}, display_id=identity)
    began = loop.time()
    try:
        await asyncio.wait_for(clicked.wait(), wait)
    except asyncio.CancelledError:
        return Finding(_BUTTONS, "note", "not tried: stopped by you before a click")
    except asyncio.TimeoutError:
        says = f"nobody clicked within {wait:g} s"
        if means == "nobody":
            says += f", and nobody can be asked otherwise; {_INSTEAD[means]}"
            return Finding(_BUTTONS, "note", says, _UNATTENDED)
        remedy = "if you did click: %config ToolLoop.ask = 'input' asks by typing instead"
        return Finding(_BUTTONS, "bad", f"{says}, or the click did not come back", remedy)
    finally:
        card.finish()
        cell.update({"text/plain": "", "text/html": ""}, identity)
    live.a_click_came()
    took = loop.time() - began
    return Finding(_BUTTONS, "ok", f"a click came back ({took:.1f} s after the button was shown)")


async def _ask_model(new_session: NewSession, model: str) -> Finding:
    """Ask the model for one word."""
    try:
        session = new_session({"model": model, "tools": [], "permissions": "full", "timeout": 30.0})
    except ValueError as error:
        return Finding("model", "bad", f"{model}: {error}")
    # No run for `%toolloop show`.
    session.config = dataclasses.replace(session.config, host=Host())
    try:
        async with kernel.serving_clicks():
            result = await collect(session.astream("Answer with one word: ready"))
    except asyncio.CancelledError:
        return Finding("model", "note", f"{model}: not tried to the end: stopped by you")
    if result.stop_reason == "done":
        return Finding("model", "ok", f"{model} answers")
    says = f"{model}: {in_flags(result.error or result.stop_reason)}"
    return Finding("model", "bad", says, "set what the line says, then run this again")


_MARKS = {"ok": "✓", "bad": "✗", "note": "·"}


def _render(findings: list[Finding]) -> dict[str, Any]:
    rows, lines = [], []
    for one in findings:
        mark, left = _MARKS[one.state], 'style="text-align:left"'
        code = f"<br>→ <code>{inline(one.remedy)}</code>" if one.remedy else ""
        rows.append(
            f'<tr><td class="tlj-{one.state}">{mark}</td><td {left}><b>{inline(one.what)}</b></td>'
            f"<td {left}>{inline(one.says)}{code}</td></tr>"
        )
        lines.append(f"{mark} {one.what:<26} {plain(one.says)}{f' → {one.remedy}' if one.remedy else ''}")
    html = f'{STYLE}<div class="tlj" style="{BLOCK}"><table style="{TABLE}">{"".join(rows)}</table></div>'
    return mimebundle(Block(html, "\n".join(lines)))
