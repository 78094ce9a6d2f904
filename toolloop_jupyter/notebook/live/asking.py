"""Ask a person about one call: a card where widgets can be clicked, a prompt where there is a keyboard, else nobody."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

from ...core.events import Approval, Decision, HarnessError
from ...core.execution import is_exactly
from .. import kernel
from ..html import visible, visible_json
from .places import CellOutput

Unattended = Literal["deny", "allow", "error", "leave"]
"""What becomes of a request where nobody can be asked; "leave": it is left to the stream, whose own rule answers it."""
Means = Literal["auto", "card", "input"]

GRACE = 3.0
"""Seconds that the first card waits for a click in a kernel whose client answers no `input()` and is not nbclient. Most
such clients are scripts, but a front-end without a keyboard would look the same: no message says "I show widgets"."""
NOBODY = "nobody is there to approve it (no widgets and no keyboard: an unattended run)"


class NobodyThere(HarnessError):
    """An approval was needed in an unattended run, and `--on-unattended error` was asked for."""


class _Clicks:
    """Whether clicks come back from this kernel's client, where it has no keyboard."""

    arrive: bool | None = None
    """None before the first card has been tried."""


def means_of_asking(means: Means = "auto") -> Literal["card", "input", "nobody"]:
    """How somebody can be asked here. `means` is the person's setting (`%config ToolLoop.ask`)."""
    if means == "input" and kernel.has_stdin():
        return "input"
    if (
        kernel.in_kernel()
        and kernel.has_widgets()
        and (means == "card" or kernel.has_stdin() or _Clicks.arrive)
    ):
        return "card"
    return "input" if kernel.has_stdin() else "nobody"


async def ask(
    approval: Approval,
    show_card: Callable[[Approval], Awaitable[None]],
    *,
    unattended: Unattended = "deny",
    means: Means = "auto",
) -> Decision | None:
    """Wait until `approval` is decided, and return the decision. Never waits where nobody can answer.

    None for a request that is left to its stream.

    Raises NobodyThere in an unattended run with `unattended="error"`; the call is denied then, too.
    """
    if not is_exactly(unattended, "deny", "allow", "error", "leave"):
        unattended = "deny"
    way = means_of_asking(means)
    if way == "card":
        await show_card(approval)
    elif way == "input":
        ask_at_prompt(approval)
    elif unattended in ("deny", "leave") and _may_click():
        await _try_a_card(approval, show_card)
    elif unattended == "leave":
        return None
    elif unattended == "allow":
        approval.allow(by="unattended")
    else:
        approval.deny(NOBODY, by="unattended")
    await approval.wait()
    if way == "nobody" and unattended == "error":
        raise NobodyThere(f"{approval.tool!r} needs an approval and {NOBODY}")
    return approval.decision


async def put_card(
    output: CellOutput, approval: Approval, fallback: Mapping[str, object], position: str
) -> None:
    """Show the approval card in an output until it is decided; what cannot show widgets shows `fallback`."""
    from ..widgets import ApprovalCard

    card = ApprovalCard(approval, position=position, is_clicked=kernel.is_from_front_end)
    output.put({**fallback, **card.mimebundle()})
    card.came_up()
    try:
        await approval.wait()
    finally:
        card.finish()


def _may_click() -> bool:
    """Whether a card is worth a try where there is no keyboard."""
    return _Clicks.arrive is None and may_have_buttons()


def may_have_buttons() -> bool:
    """Whether a button may be shown and clicked here, for all that is known before it is tried."""
    return kernel.in_kernel() and kernel.has_widgets() and not kernel.executes_notebooks()


def a_click_came() -> None:
    """A click came back in this kernel: somebody is there, also where the client has no keyboard."""
    _Clicks.arrive = True


async def _try_a_card(approval: Approval, show_card: Callable[[Approval], Awaitable[None]]) -> None:
    """Show a card for `GRACE` seconds; without a click nobody is there, and no later call waits again."""
    timer = asyncio.get_running_loop().call_later(
        GRACE, lambda: approval.deny(NOBODY, by="unattended")
    )  # only counts when nobody has decided
    try:
        await show_card(approval)
    finally:
        timer.cancel()
    decision = approval.decision
    if decision is not None and decision.by in ("click", "unattended"):
        _Clicks.arrive = decision.by == "click"


def ask_at_prompt(approval: Approval, read: Callable[[str], str] = input) -> None:
    """Ask at a keyboard: y, n with a reason, e to edit the arguments, a (or s) for all calls of this tool in this run
    (or session), ? for what the tool does.
    """
    question = approval.question or f"Run {approval.tool} with exactly this?"
    print(f"\n? {visible(question)}")  # noqa: T201 - a prompt
    if approval.origin:
        print(f"    {visible(approval.origin)}")  # noqa: T201
    for name, value in approval.input.items():
        print(f"    {visible(name)} = {visible_json(json.dumps(value, ensure_ascii=False, default=repr))}")  # noqa: T201
    if approval.why:
        print(f"    asked because {visible(approval.why)}")  # noqa: T201
    run = ", [a]ll of this tool in this run" if "run" in approval.scopes else ""
    session = ", [s]: in this session" if "session" in approval.scopes else ""
    edit = ", [e]dit" if approval.editable else ""
    while not approval.answered:
        with kernel.allow_interrupts():
            answer = _read(read, f"  [y]es, [n]o (n REASON){edit}{run}{session}, [?]: ")
        word, _, rest = answer.partition(" ")
        if word.lower() in ("y", "yes"):
            approval.allow(by="prompt")
        elif word.lower() in ("a", "all") and run:
            approval.allow(by="prompt", scope="run")
        elif word.lower() in ("s", "session") and session:
            approval.allow(by="prompt", scope="session")
        elif word == "?":
            about = f"{approval.description}\n{approval.source}".strip() or "nothing is known of what it does"
            print("\n".join(f"    {visible(line)}" for line in about.split("\n")))  # noqa: T201
        elif word.lower() in ("n", "no"):
            approval.deny(rest.strip(), by="prompt")
        elif word.lower() in ("e", "edit") and edit:
            _edit(approval, read)


def _read(read: Callable[[str], str], prompt: str) -> str:
    """One line from the keyboard; the end of input is a no: nobody is there any more."""
    try:
        line: object = read(prompt)
        return line.strip() if type(line) is str else "n the keyboard gave no text"
    except EOFError:
        return "n nobody answered (end of input)"


def _edit(approval: Approval, read: Callable[[str], str]) -> None:
    """Ask for each argument; Enter keeps it. Values are JSON, or text where they do not read as JSON."""
    edited: dict[str, object] = {}
    for name, value in approval.input.items():
        shown = visible_json(json.dumps(value, ensure_ascii=False, default=repr))
        with kernel.allow_interrupts():
            answer = _read(read, f"    {visible(name)} [{shown}]: ")
        edited[name] = value if not answer else _json_or_text(answer, value)
    try:
        approval.allow(edited, by="prompt")
    except ValueError as error:
        print(f"  not valid: {visible(str(error))}")  # noqa: T201 - a prompt


def _json_or_text(answer: str, before: object) -> object:
    if isinstance(before, str) and not answer.startswith('"'):
        return answer
    try:
        return json.loads(answer)
    except (ValueError, RecursionError):
        return answer
