"""Ask a person about one call, by a card or by `input()`. If neither works, the run is unattended: `--on-unattended` decides."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Literal

from ...core.events import Approval, HarnessError
from ...core.execution import is_exactly
from .. import kernel
from ..html import mark_hidden, mark_hidden_and_blanks, mark_hidden_in_json, put_in_a_line, tell_count
from ..transcript import Block, draw_approval, draw_notice, make_bundle, tell_reach, tell_why, write_value
from .column import CellOutput, OutputColumn

Unattended = Literal["deny", "allow", "error", "leave"]
"""What happens to a request if nobody can be asked. With "leave", the request stays open, and the run's stream decides."""
Means = Literal["auto", "card", "input"]

GRACE = 3.0
"""Seconds that the first card waits for a click if the kernel's client answers no `input()` and is not nbclient. Most such
clients are scripts; some may be front-ends that show widgets. The kernel is not told the kind of its client."""
START = 0.02
"""Seconds that a decided card stays on the page, with its buttons disabled. So the call starts first: closing a card takes 3 ms of
the kernel's main thread, and the call's thread would have to wait."""
NOBODY = "nobody is there to approve it (an unattended run)"


class NobodyThere(HarnessError):
    """A call needed an approval, nobody could be asked, and the run had the option `--on-unattended error`."""


class _Clicks:
    """Stores whether the kernel's client sends clicks. Used only if the client answers no `input()`."""

    arrive: bool | None = None
    """True if a click has reached the kernel; False if nobody clicked the first card; None before the first card."""


def find_means(means: Means = "auto") -> Literal["card", "input", "nobody"]:
    """Return how a person can be asked here, or "nobody". `means` is the person's setting (`%config ToolLoop.ask`).

    The kernel is never told whether its front-end shows widgets. JupyterLab, Notebook, VS Code and Colab allow stdin; programs
    that run a notebook do not. Only `%toolloop doctor` finds out for certain: it shows a button and waits for a click.
    """
    if means == "input" and kernel.has_stdin():
        return "input"
    if kernel.has_widgets() and (means == "card" or kernel.has_stdin() or _Clicks.arrive):
        return "card"
    return "input" if kernel.has_stdin() else "nobody"


async def ask_person(
    approval: Approval,
    output: CellOutput,
    record: Block,
    *,
    unattended: Unattended = "deny",
    means: Means = "auto",
) -> None:
    """Ask a person, and wait until `approval` is decided. If nobody can be asked, `unattended` decides.

    A card is shown in `output`; a front-end without widgets shows `record` instead. If nobody can be asked and `unattended` is
    "leave", nothing is decided; if it is "error", the call is denied and NobodyThere is raised.
    """
    if not is_exactly(unattended, "deny", "allow", "error", "leave"):
        unattended = "deny"
    way = find_means(means)
    if way == "card":
        await put_card(output, approval, record)
    elif way == "input":
        ask_at_prompt(approval)
    elif unattended in ("deny", "leave") and _Clicks.arrive is None and may_have_buttons():
        await _try_a_card(output, approval, record)
    elif unattended == "leave":
        return
    elif unattended == "allow":
        approval.allow(by="unattended")
    else:
        approval.deny(NOBODY, by="unattended")
    await approval.wait()
    if way == "nobody" and unattended == "error":
        raise NobodyThere(f"{approval.tool!r} needs an approval and {NOBODY}")


NO_CARD = "the approval card here works only while its kernel runs; without an answer, the call was not run"


async def put_card(output: CellOutput, approval: Approval, record: Block) -> None:
    """Show the approval card in `output` until `approval` is decided."""
    from ..widgets import ApprovalCard

    card = ApprovalCard(approval, kernel.CardComms())
    output.put({**make_bundle([record, draw_notice(NO_CARD)]), **card.make_reference()})
    card.enter_page()
    try:
        await approval.wait()
        await asyncio.sleep(START)
    finally:
        card.finish()


async def ask_in_cell(approval: Approval) -> None:
    """Ask a person in the output of the running cell, not in a tool's output. Then show the decision in the same place."""
    output = OutputColumn(kernel.Cell.outside_tools()).output()
    try:
        await ask_person(approval, output, draw_approval(approval))
    except asyncio.CancelledError:  # Ctrl-C at the prompt: the run is cancelled next, and denies the call
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(approval.wait(), kernel.PATIENCE)
        raise
    finally:
        output.draw(draw_approval(approval))


def may_have_buttons() -> bool:
    """Return False if no button can be clicked: outside a kernel, without ipywidgets, or if a program executes the notebook."""
    return kernel.has_widgets() and not kernel.executes_notebooks()


def note_click() -> None:
    """Store that a click has reached this kernel. So a person can click cards, even if the client answers no `input()`."""
    _Clicks.arrive = True


async def _try_a_card(output: CellOutput, approval: Approval, record: Block) -> None:
    """Show a card for `GRACE` seconds. If nobody clicks, deny the call; then later requests get no card."""
    # This denial has no effect if a person has decided before.
    timer = asyncio.get_running_loop().call_later(GRACE, lambda: approval.deny(NOBODY, by="unattended"))
    try:
        await put_card(output, approval, record)
    finally:  # this also happens if the run goes on meanwhile, and cancels this wait
        timer.cancel()
        decision = approval.decision
        if decision is not None and decision.by in ("click", "unattended"):
            _Clicks.arrive = decision.by == "click"


# --- the prompt of a terminal, and of a front-end without widgets ------------------------------------------------


def ask_at_prompt(approval: Approval) -> None:
    """Ask with a prompt, until `approval` is decided."""
    lines = [f"\n? {mark_hidden(approval.question or f'Run {approval.tool}?')}"]
    lines += [f"    {mark_hidden(approval.origin)}"] if approval.origin else []
    lines += [line for name, value in approval.input.items() for line in _write_argument(name, value)]
    lines += [f"    {mark_hidden(why)}"] if (why := tell_why(approval)) else []
    print("\n".join(lines))  # noqa: T201 - a prompt
    keys = _list_keys(approval)
    question = f"  {', '.join(label for label, _ in keys.values())}: "
    try:
        while not approval.answered:  # an unknown answer does nothing
            word, _, rest = read_line(question).partition(" ")
            match _KEY_OF.get(word.lower(), word.lower()):
                case "y":
                    approval.allow(by="prompt")
                case "n":
                    approval.deny(rest.strip(), by="prompt")
                case "e" if "e" in keys:
                    _edit(approval)
                case "a" if "a" in keys:
                    approval.allow(by="prompt", scope="run")
                case "s" if "s" in keys:
                    approval.allow(by="prompt", scope="session")
                case "?":
                    about = f"{approval.description}\n{approval.source}".strip() or _NOTHING_KNOWN
                    lines = [*(f"{key}  {does}" for key, (_, does) in keys.items()), "", *about.split("\n")]
                    print("\n".join(f"    {mark_hidden(line)}" for line in lines))  # noqa: T201
    except EOFError:
        approval.deny("nobody answered (end of input)", by="prompt")


_NOTHING_KNOWN = "the tool has no description and no source"
_KEY_OF = {"yes": "y", "no": "n", "edit": "e", "all": "a", "session": "s"}


def _list_keys(approval: Approval) -> dict[str, tuple[str, str]]:
    """Return letter -> (label, effect): each letter that a person may type, its label in the question, and its effect."""
    reach = tell_reach(approval)
    run, session = reach["run"], reach["session"]
    later = f"run it, and run every later call of {mark_hidden(approval.tool)} in"
    no = "do not run it; the model is told so, and the reason that you type after the n"
    keys = {
        "y": ("[y]es", "run it with these arguments"),
        "n": ("[n]o (n REASON)", no),
        "e": ("[e]dit", "change the arguments, one after the other, and run it"),
        "a": (f"[a]ll of this tool in {run}", f"{later} {run} without asking"),
        "s": (f"[s]: in {session}", f"{later} {session} without asking"),
        "?": ("[?]", "show these keys, and what the tool does"),
    }
    offered = {"e": approval.editable, "a": "run" in approval.scopes, "s": "session" in approval.scopes}
    return {key: words for key, words in keys.items() if offered.get(key, True)}


def _write_argument(name: str, value: object) -> list[str]:
    """Return the lines that show one argument in a terminal. A text keeps its line breaks. Other values are JSON."""
    if not isinstance(value, str) or "\n" not in value.strip("\n"):
        return [f"    {put_in_a_line(name)} = {_write_json(value)}"]
    lines = mark_hidden_and_blanks(value).split("\n")
    return [
        f"    {put_in_a_line(name)} = {tell_count(len(lines), 'line')}:",
        *(f"      | {line}" for line in lines),
    ]


def _write_json(value: object) -> str:
    return mark_hidden_in_json(write_value(value))


def read_line(prompt: str) -> str:
    """Return the line that a person types. Raises EOFError at the end of the input, or if `input` returns no str.

    The kernel handles no other message meanwhile. ■ and Ctrl-C raise CancelledError.
    """
    with kernel.allow_interrupts():
        line: object = input(prompt)  # ipykernel replaces `input` while a cell runs
    if type(line) is not str:
        raise EOFError
    return line.strip()


def _edit(approval: Approval) -> None:
    """Ask for a new value of each argument, then allow the call with the new values. Enter keeps an old value.

    A typed value that is JSON is read as JSON. If the old value is a text, the typed value must also begin with a quote.
    """
    print("    Enter keeps the value in brackets; type a new value as JSON, or as plain text")  # noqa: T201 - a prompt
    edited: dict[str, object] = {}
    for name, value in approval.input.items():
        answer = read_line(f"    {put_in_a_line(name)} [{_write_json(value)}]: ")
        edited[name] = answer or value
        if answer and (not isinstance(value, str) or answer.startswith('"')):
            with contextlib.suppress(ValueError, RecursionError):
                edited[name] = json.loads(answer)
    try:
        approval.allow(edited, by="prompt")
    except ValueError as error:
        print(f"  not valid: {mark_hidden(str(error))}")  # noqa: T201 - a prompt
