"""`%toolloop doctor`: what works on this kernel and front-end, found by trying it, and what to do about the rest."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Literal

from . import kernel
from .blocks import Block
from .inert import inline, plain
from .options import Mistake
from .style import BLOCK, STYLE, TABLE
from .transcript import mimebundle

if TYPE_CHECKING:
    from .runs import Notebook

WAIT = 15.0
"""Seconds that the doctor waits for a click, unless --wait says otherwise."""

_FLOORS = {
    "litellm": "1.110",
    "ipykernel": "6.17",
    "IPython": "7.34",
    "ipywidgets": "7.7.1",
    "pydantic": "2.10",
}


@dataclass(frozen=True)
class Finding:
    """One line of the examination."""

    what: str
    state: Literal["ok", "bad", "note"]
    says: str
    remedy: str = ""
    """What to install, switch on or type, for what is missing."""


def run(book: Notebook, words: list[str]) -> None:
    """Examine, and print a table. Words: `--model MODEL`, `--wait SECONDS`. Raises Mistake for other ones."""
    model, wait = _wishes(words)
    cell = kernel.Cell.here()
    findings = [*_versions(), *_surroundings()]
    if kernel.has_widget_frontend():
        findings.append(kernel.run_sync(lambda: _click(cell, wait)))
    else:
        findings.append(_nobody())
    if model is not None:
        findings.append(kernel.run_sync(lambda: _answer(book, model)))
    cell.display(_table(findings))


def _wishes(words: list[str]) -> tuple[str | None, float]:
    model, wait, rest = None, WAIT, list(words)
    while rest:
        flag = rest.pop(0)
        if flag not in ("--model", "-m", "--wait") or not rest:
            raise Mistake("write: %toolloop doctor [--model MODEL] [--wait SECONDS]")
        value = rest.pop(0)
        if flag == "--wait":
            try:
                wait = float(value)
            except ValueError:
                raise Mistake(f"--wait takes seconds, got {value!r}") from None
        else:
            model = value
    return model, wait


def _versions() -> Iterator[Finding]:
    found = [f"Python {platform.python_version()}"]
    for package, floor in _FLOORS.items():
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            yield Finding(package, "bad", "is not installed", f"pip install '{package}>={floor}'")
    yield Finding("versions", "ok", ", ".join(found))
    number = tuple(int(part) for part in _version_of("ipykernel").split(".")[:2] if part.isdigit())
    if (7, 0) <= number < (7, 4):
        yield Finding(
            "ipykernel",
            "bad",
            f"{version('ipykernel')} cannot deliver a click to a waiting cell",
            "pip install 'ipykernel>=7.4'",
        )


def _version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _surroundings() -> Iterator[Finding]:
    """What can be told without a person."""
    if not kernel.in_kernel():
        yield Finding(
            "kernel", "note", "none: this is IPython in a terminal; approvals are asked at the prompt"
        )
        return
    ways = {
        "kernel": Finding("clicks while a cell waits", "ok", "the kernel delivers them by itself"),
        "queue": Finding(
            "clicks while a cell waits", "ok", "taken out of the kernel's queue while a run goes on"
        ),
        "subshells only": Finding(
            "clicks while a cell waits",
            "bad",
            "only over subshells on this ipykernel",
            "pip install 'ipykernel>=7.4'",
        ),
    }
    yield ways[kernel.overtaking()]
    yield Finding("awaited cells", "ok", "%%toolloop cells are awaited on the kernel's own loop")
    if kernel.has_subshells():
        yield Finding("subshells", "ok", "the kernel has them; a front-end may send clicks over one")
    stdin = kernel.has_stdin()
    yield Finding(
        "keyboard (stdin)",
        "ok" if stdin else "note",
        "the front-end can be asked"
        if stdin
        else "the front-end answers no questions (an unattended run, as nbconvert's)",
    )


def _nobody() -> Finding:
    if kernel.in_kernel():
        return Finding(
            "approval buttons",
            "note",
            "nobody is there to click; approvals are denied",
            "--on-unattended allow|error decides otherwise",
        )
    return Finding(
        "approval buttons", "note", "a terminal shows none; approvals are typed: y, n REASON, e, a"
    )


async def _click(cell: kernel.Cell, wait: float) -> Finding:
    """Show a button and wait for it to be clicked: the one thing that no message tells."""
    from .widgets import ClickTest

    loop, clicked = asyncio.get_running_loop(), asyncio.Event()
    card = ClickTest(wait, lambda: loop.call_soon_threadsafe(clicked.set))
    identity = "toolloop-doctor"
    cell.display(
        {"text/plain": f"Click the button within {wait:g} seconds.", **card.mimebundle()}, display_id=identity
    )
    began = loop.time()
    try:
        await asyncio.wait_for(clicked.wait(), wait)
    except asyncio.TimeoutError:
        return Finding(
            "approval buttons",
            "bad",
            f"nobody clicked within {wait:g} s, or the click did not come back",
            "if you did click: %config ToolLoop.ask = 'input' asks by typing instead",
        )
    finally:
        card.finish()
        cell.update({"text/plain": "", "text/html": ""}, identity)
    return Finding(
        "approval buttons",
        "ok",
        f"a click came back ({loop.time() - began:.1f} s after the button was shown)",
    )


async def _answer(book: Notebook, model: str) -> Finding:
    """Ask the model for one word."""
    from ..core.session import collect
    from .options import Options

    try:
        session = book.new_session(Options(model=model, tools=[], permissions="full", timeout=30.0))
    except ValueError as error:
        return Finding("model", "bad", f"{model}: {error}")
    result = await collect(session.astream("Answer with one word: ready"))
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
