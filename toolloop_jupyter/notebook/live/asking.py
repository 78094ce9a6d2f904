"""Ask a person about one call. If the person can click, show a card. If the person can only type, use `input()`.

If the person can do neither, the run is unattended: nobody is asked, and the option `--on-unattended` decides.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

from ...core.events import Approval, Decision, HarnessError, Scope
from ...core.execution import is_exactly
from .. import kernel
from ..html import counted, in_a_line, visible, visible_json, visible_text
from ..transcript import REACH, Block, make_bundle, notice, tell_why
from .places import CellOutput

Unattended = Literal["deny", "allow", "error", "leave"]
"""What happens to a request if nobody can be asked. With "leave", the request stays open, and the run's stream decides."""
Means = Literal["auto", "card", "input"]

GRACE = 3.0
"""Seconds that the first card waits for a click if the kernel's client answers no `input()` and is not nbclient. Most such
clients are scripts; some may be front-ends that show widgets. The kernel is not told the kind of its client."""
NOBODY = "nobody is there to approve it (an unattended run)"


class NobodyThere(HarnessError):
    """A call needed an approval, nobody could be asked, and the run had the option `--on-unattended error`."""


class _Clicks:
    """Stores whether the kernel's client sends clicks. Used only if the client answers no `input()`."""

    arrive: bool | None = None
    """True if a click has come back from the client; False if nobody clicked the first card; None before the first card."""


def find_means(means: Means = "auto") -> Literal["card", "input", "nobody"]:
    """Return how a person can be asked here, or "nobody". `means` is the person's setting (`%config ToolLoop.ask`).

    The kernel is never told whether its front-end shows widgets. JupyterLab, Notebook, VS Code and Colab allow stdin; programs
    that run a notebook do not. `%toolloop doctor` is certain, since it shows a button and waits for a click.
    """
    if means == "input" and kernel.has_stdin():
        return "input"
    if kernel.has_widgets() and (means == "card" or kernel.has_stdin() or _Clicks.arrive):
        return "card"
    return "input" if kernel.has_stdin() else "nobody"


async def ask_person(
    approval: Approval,
    show_card: Callable[[Approval], Awaitable[None]],
    *,
    unattended: Unattended = "deny",
    means: Means = "auto",
    reach: Mapping[Scope, str] = REACH,
) -> Decision | None:
    """Ask a person, wait until `approval` is decided, and return the decision. If nobody can be asked, `unattended` decides.

    `reach` maps each scope to its words in the prompt, for example "this run". Returns None if nobody can be asked and
    `unattended` is "leave". If nobody can be asked and `unattended` is "error", the call is denied and NobodyThere is raised.
    """
    if not is_exactly(unattended, "deny", "allow", "error", "leave"):
        unattended = "deny"
    way = find_means(means)
    if way == "card":
        await show_card(approval)
    elif way == "input":
        ask_at_prompt(approval, reach=reach)
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


NO_CARD = "the approval card here works only while its kernel runs; without an answer, the call was not run"


def name_call(approval: Approval, number: int) -> str:
    """Return a card's title. It has the number of the call to approve, or of the running call whose function asks a question."""
    return f"{'asked in ' if approval.question else ''}call {number} of this run"


async def put_card(
    output: CellOutput, approval: Approval, record: Block, position: str, reach: Mapping[Scope, str] = REACH
) -> None:
    """Show the approval card in `output` until `approval` is decided. A front-end without widgets shows `record` instead."""
    from ..widgets import ApprovalCard

    card = ApprovalCard(approval, position=position, reach=reach, comms=kernel.CardComms())
    output.put({**make_bundle([record, notice(NO_CARD)]), **card.make_reference()})
    card.came_up()
    try:
        await approval.wait()
    finally:
        card.finish()


def _may_click() -> bool:
    """Return whether to try a card on a client that answers no `input()`: no card was tried before, and buttons may work here."""
    return _Clicks.arrive is None and may_have_buttons()


def may_have_buttons() -> bool:
    """Return False if a button surely cannot be clicked: outside a kernel, without ipywidgets, or if a program such as nbconvert
    executes the notebook.
    """
    return kernel.has_widgets() and not kernel.executes_notebooks()


def note_click() -> None:
    """Store that a click has come back to this kernel. So a person can click cards, although the client answers no `input()`."""
    _Clicks.arrive = True


async def _try_a_card(approval: Approval, show_card: Callable[[Approval], Awaitable[None]]) -> None:
    """Show a card for `GRACE` seconds. If nobody clicks, deny the call. Later requests are then decided without a card."""
    # This denial has no effect if a person has decided before.
    timer = asyncio.get_running_loop().call_later(GRACE, lambda: approval.deny(NOBODY, by="unattended"))
    try:
        await show_card(approval)
    finally:
        timer.cancel()
    decision = approval.decision
    if decision is not None and decision.by in ("click", "unattended"):
        _Clicks.arrive = decision.by == "click"


def ask_at_prompt(
    approval: Approval, read: Callable[[str], str] = input, reach: Mapping[Scope, str] = REACH
) -> None:
    """Ask with a prompt, until `approval` is decided. A person types one of these letters:

    y to run the call, n and a reason to deny it, e to edit the arguments, a to allow all calls of this tool in this run, s to
    allow all its calls in this session, ? for an explanation. `reach` has the words for "this run" and "this session".
    """
    print(f"\n? {visible(approval.question or f'Run {approval.tool}?')}")  # noqa: T201 - a prompt
    if approval.origin:
        print(f"    {visible(approval.origin)}")  # noqa: T201
    print("\n".join(line for name, value in approval.input.items() for line in _write_argument(name, value)))  # noqa: T201
    if why := tell_why(approval):
        print(f"    {visible(why)}")  # noqa: T201
    keys = _list_keys(approval, reach)
    question = f"  {', '.join(label for label, _ in keys.values())}: "
    try:
        while not approval.answered:
            _take_answer(approval, keys, read, question)
    except _NobodyTypes as reason:
        approval.deny(str(reason), by="prompt")


def _take_answer(
    approval: Approval, keys: Mapping[str, tuple[str, str]], read: Callable[[str], str], question: str
) -> None:
    """Ask once, and do what the person has typed. An unknown answer does nothing."""
    word, _, rest = _read(read, question).partition(" ")
    match _KEY_OF.get(word.lower(), word.lower()):
        case "y":
            approval.allow(by="prompt")
        case "n":
            approval.deny(rest.strip(), by="prompt")
        case "e" if "e" in keys:
            _edit(approval, read)
        case "a" if "a" in keys:
            approval.allow(by="prompt", scope="run")
        case "s" if "s" in keys:
            approval.allow(by="prompt", scope="session")
        case "?":
            lines = [*(f"    {key}  {does}" for key, (_, does) in keys.items()), *_describe_tool(approval)]
            print("\n".join(lines))  # noqa: T201


_KEY_OF = {"yes": "y", "no": "n", "edit": "e", "all": "a", "session": "s"}


def _list_keys(approval: Approval, reach: Mapping[Scope, str]) -> dict[str, tuple[str, str]]:
    """Return letter -> (label, effect): each letter that a person may type, its label in the question, and its effect."""
    tool = visible(approval.tool)
    keys = {
        "y": ("[y]es", "run it with these arguments"),
        "n": (
            "[n]o (n REASON)",
            "do not run it; the model is told so, and the reason that you type after the n",
        ),
        "e": ("[e]dit", "change the arguments, one after the other, and run it"),
        "a": (
            f"[a]ll of this tool in {reach['run']}",
            f"run it, and run every later call of {tool} in {reach['run']} without asking",
        ),
        "s": (
            f"[s]: in {reach['session']}",
            f"run it, and run every later call of {tool} in {reach['session']} without asking",
        ),
        "?": ("[?]", "show these keys, and what the tool does"),
    }
    offered = {"e": approval.editable, "a": "run" in approval.scopes, "s": "session" in approval.scopes}
    return {key: words for key, words in keys.items() if offered.get(key, True)}


def _describe_tool(approval: Approval) -> list[str]:
    """Return the lines of the tool's description and source code."""
    about = f"{approval.description}\n{approval.source}".strip() or "nothing is known of what it does"
    return [f"    {visible(line)}" for line in ("", *about.split("\n"))]


def _write_argument(name: str, value: object) -> list[str]:
    """Return the lines that show one argument in a terminal. A text of several lines keeps its lines. Other values are JSON."""
    if not isinstance(value, str) or "\n" not in value.strip("\n"):
        return [
            f"    {in_a_line(name)} = {visible_json(json.dumps(value, ensure_ascii=False, default=repr))}"
        ]
    lines = visible_text(value).split("\n")
    return [f"    {in_a_line(name)} = {counted(len(lines), 'line')}:", *(f"      | {line}" for line in lines)]


class _NobodyTypes(Exception):
    """`input()` returned no line. The call is denied, and the message of this exception is the reason."""


def _read(read: Callable[[str], str], prompt: str) -> str:
    """Read one line that a person types. Raises _NobodyTypes at the end of the input, and if `read` returns no str."""
    try:
        with kernel.allow_interrupts():
            line: object = read(prompt)
    except EOFError:
        raise _NobodyTypes("nobody answered (end of input)") from None
    if type(line) is not str:
        raise _NobodyTypes("the keyboard gave no text")
    return line.strip()


def _edit(approval: Approval, read: Callable[[str], str]) -> None:
    """Ask for a new value of each argument, then allow the call with the new values. Enter keeps an old value.

    A typed value is read as JSON if it is valid JSON, else as text. If the old value is a text, a new value is read as JSON
    only if it begins with a double quote.
    """
    print("    Enter keeps the value in brackets; type a new value as JSON, or as plain text")  # noqa: T201 - a prompt
    edited: dict[str, object] = {}
    for name, value in approval.input.items():
        shown = visible_json(json.dumps(value, ensure_ascii=False, default=repr))
        answer = _read(read, f"    {in_a_line(name)} [{shown}]: ")
        edited[name] = value if not answer else _read_value(answer, value)
    try:
        approval.allow(edited, by="prompt")
    except ValueError as error:
        print(f"  not valid: {visible(str(error))}")  # noqa: T201 - a prompt


def _read_value(answer: str, before: object) -> object:
    if isinstance(before, str) and not answer.startswith('"'):
        return answer
    try:
        return json.loads(answer)
    except (ValueError, RecursionError):
        return answer
