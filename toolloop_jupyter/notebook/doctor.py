"""`%toolloop doctor`: what works on this kernel and front-end, found by trying it, and what to do about the rest."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import platform
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Literal

from . import asking, kernel
from .blocks import Block
from .inert import inline, plain
from .options import Mistake
from .style import BLOCK, STYLE, TABLE
from .transcript import mimebundle

if TYPE_CHECKING:
    from .runs import Notebook

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
_UNATTENDED = "--on-unattended allow|error decides otherwise"


@dataclass(frozen=True)
class Finding:
    """One line of the examination."""

    what: str
    state: Literal["ok", "bad", "note"]
    says: str
    remedy: str = ""
    """What to install, switch on or type, for what is missing."""


@dataclass
class Click:
    """What came of the button that the doctor shows."""

    finding: Finding
    seconds: float | None = None
    """From the button to its click; None when none came."""
    subshell: bool = False
    """Whether it came over one."""


def run(book: Notebook, words: list[str]) -> None:
    """Examine, and print a table. Words: `--model MODEL`, `--wait SECONDS`. Raises Mistake for other ones."""
    model, wait = _wishes(words)
    cell = kernel.Cell.here()
    click = _buttons(cell, book.settings.ask, wait)
    findings = [*_versions(), *_surroundings(click, awaits=book.autoawait), click.finding]
    if model is not None:
        findings.append(kernel.run_sync(lambda: _answer(book, model)))
    cell.display(_table(findings))


def _wishes(words: list[str]) -> tuple[str | None, float | None]:
    model, wait, rest = None, None, list(words)
    while rest:
        flag = rest.pop(0)
        if flag not in ("--model", "-m", "--wait") or not rest:
            raise Mistake("write: %toolloop doctor [--model MODEL] [--wait SECONDS]")
        value = rest.pop(0)
        if flag == "--wait":
            wait = _seconds(value)
        else:
            model = value
    return model, wait


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise Mistake(
            f"--wait takes a number of seconds above 0, got {value!r}; write for example: --wait 30"
        )
    return seconds


def _versions() -> Iterator[Finding]:
    found = [f"Python {platform.python_version()}"]
    for package, floor in _FLOORS.items():
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            yield Finding(package, "bad", "is not installed", f"pip install '{package}>={floor}'")
    yield Finding("versions", "ok", ", ".join(found))


def _surroundings(click: Click, *, awaits: bool) -> Iterator[Finding]:
    """What the kernel says of itself, and what the click has shown."""
    if awaits:
        yield Finding(
            "awaited cells", "ok", "%autoawait is on: a %%toolloop cell is awaited, as in `await …`"
        )
    else:
        yield Finding(
            "awaited cells",
            "note",
            "%autoawait is off: a %%toolloop cell runs as a plain call, and `await aagent(…)` is an error",
            "%autoawait on",
        )
    if not kernel.in_kernel():
        yield Finding("kernel", "note", "none: this is IPython in a terminal")
        return
    yield _overtaking(click)
    if kernel.has_subshells():
        over = "over one" if click.subshell else "without one"
        yield Finding(
            "subshells",
            "note" if click.seconds is None else "ok",
            "the kernel has them; "
            + (
                "no click came to show if they are used"
                if click.seconds is None
                else f"your click came {over}"
            ),
        )
    stdin = kernel.has_stdin()
    yield Finding(
        "keyboard (stdin)",
        "ok" if stdin else "note",
        "the front-end says that it can be asked by input()"
        if stdin
        else "the front-end says that it answers no input() (as an unattended run does)",
    )


def _overtaking(click: Click) -> Finding:
    """How a click overtakes the cell that waits for it: seen by a click, else told from the version."""
    what, way = "clicks while a cell waits", kernel.overtaking()
    says = {
        "kernel": "the kernel delivers them by itself",
        "queue": "taken out of the kernel's queue while a run goes on",
    }.get(way, "this ipykernel delivers them over subshells only")
    if click.seconds is not None:
        return Finding(what, "ok", f"{says} (tried: yours came)")
    told = f"{says} (told from ipykernel {_version_of('ipykernel')}; no click came to try it)"
    if way in ("kernel", "queue"):
        return Finding(what, "note", told)
    return Finding(what, "bad", told, f"pip install '{_KERNEL_THAT_DELIVERS}'")


def _version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "?"


# --- the button -------------------------------------------------------------------------------------------------


def _buttons(cell: kernel.Cell, wish: Any, wait: float | None) -> Click:
    """Try whether a click comes back, wherever a button may be shown; else say who is asked instead, and how."""
    what, means = "approval buttons", asking.means_of_asking(wish)
    instead = _INSTEAD[means]
    if not kernel.in_kernel():
        return Click(Finding(what, "note", f"a terminal shows none; {instead}"))
    if not kernel.has_widgets():
        remedy = f"pip install 'ipywidgets>={_FLOORS['ipywidgets']}'"
        return Click(Finding(what, "bad", f"there are none without ipywidgets; {instead}", remedy))
    if means == "input" and wish == "input":
        return Click(
            Finding(
                what,
                "note",
                f"not tried: ToolLoop.ask is 'input'; {instead}",
                "%config ToolLoop.ask = 'auto'",
            )
        )
    if not asking.may_have_buttons():
        return Click(
            Finding(what, "note", f"not tried: a program runs this notebook; {instead}", _UNATTENDED)
        )
    seconds = wait or (asking.GRACE if means == "nobody" else WAIT)
    return kernel.run_sync(lambda: _click(cell, seconds, means))


async def _click(cell: kernel.Cell, wait: float, means: str) -> Click:
    """Show a button and wait for it to be clicked: the one thing that no message tells."""
    from .widgets import ClickTest

    what = "approval buttons"
    loop, clicked = asyncio.get_running_loop(), asyncio.Event()
    came_on: list[threading.Thread] = []

    def on_click() -> None:
        came_on.append(threading.current_thread())
        loop.call_soon_threadsafe(clicked.set)

    card = ClickTest(wait, on_click)
    identity = "toolloop-doctor"
    cell.display(
        {"text/plain": f"Click the button within {wait:g} seconds.", **card.mimebundle()}, display_id=identity
    )
    began = loop.time()
    try:
        await asyncio.wait_for(clicked.wait(), wait)
    except asyncio.CancelledError:
        return Click(Finding(what, "note", "not tried: stopped by you before a click"))
    except asyncio.TimeoutError:
        return Click(_no_click(what, wait, means))
    finally:
        card.finish()
        cell.update({"text/plain": "", "text/html": ""}, identity)
    asking.a_click_came()
    took, there = loop.time() - began, came_on[0] is not threading.main_thread()
    says = f"a click came back ({took:.1f} s after the button was shown)"
    return Click(Finding(what, "ok", says), took, there)


def _no_click(what: str, wait: float, means: str) -> Finding:
    if means == "nobody":
        says = f"nobody clicked within {wait:g} s, and nobody can be asked otherwise; {_INSTEAD[means]}"
        return Finding(what, "note", says, _UNATTENDED)
    return Finding(
        what,
        "bad",
        f"nobody clicked within {wait:g} s, or the click did not come back",
        "if you did click: %config ToolLoop.ask = 'input' asks by typing instead",
    )


async def _answer(book: Notebook, model: str) -> Finding:
    """Ask the model for one word."""
    from ..core.session import collect
    from .options import Options

    try:
        session = book.new_session(Options(model=model, tools=[], permissions="full", timeout=30.0))
    except ValueError as error:
        return Finding("model", "bad", f"{model}: {error}")
    # No run for `%toolloop show`.
    session.config = dataclasses.replace(session.config, on_result=lambda _: None)
    try:
        result = await collect(session.astream("Answer with one word: ready"))
    except asyncio.CancelledError:
        return Finding("model", "note", f"{model}: not tried to the end: stopped by you")
    if result.stop_reason == "done":
        return Finding("model", "ok", f"{model} answers")
    return Finding(
        "model",
        "bad",
        f"{model}: {result.error or result.stop_reason}",
        "set what the line says, then run this again",
    )


_MARKS = {"ok": "✓", "bad": "✗", "note": "·"}


def _table(findings: list[Finding]) -> dict[str, Any]:
    rows, lines = [], []
    for one in findings:
        remedy = f" → {one.remedy}" if one.remedy else ""
        rows.append(
            f'<tr><td class="tlj-{one.state}">{_MARKS[one.state]}</td><td style="text-align:left"><b>{inline(one.what)}</b></td>'
            f'<td style="text-align:left">{inline(one.says)}{f"<br>→ <code>{inline(one.remedy)}</code>" if one.remedy else ""}</td></tr>'
        )
        lines.append(f"{_MARKS[one.state]} {one.what:<26} {plain(one.says)}{remedy}")
    html = f'{STYLE}<div class="tlj" style="{BLOCK}"><table style="{TABLE}">{"".join(rows)}</table></div>'
    block = Block(html, "\n".join(lines))
    return mimebundle(block)
