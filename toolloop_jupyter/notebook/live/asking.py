"""Ask a person about one call: a card where widgets can be clicked, a prompt where there is a keyboard, else nobody."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

from ...core.events import Approval, Decision, HarnessError
from ...core.execution import is_exactly
from .. import kernel
from ..html import counted, in_a_line, visible, visible_json, visible_text
from ..transcript import Block, make_bundle, notice, tell_why
from .places import CellOutput

Unattended = Literal["deny", "allow", "error", "leave"]
"""What becomes of a request where nobody can be asked; "leave": it is left to the stream, whose own rule answers it."""
Means = Literal["auto", "card", "input"]

GRACE = 3.0
"""Seconds that the first card waits for a click in a kernel whose client answers no `input()` and is not nbclient. Most
such clients are scripts, but a front-end without a keyboard would look the same: no message says "I show widgets"."""
NOBODY = "nobody is there to approve it (an unattended run)"


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


NO_CARD = "the approval card here works only while its kernel runs; without an answer, the call was not run"


async def put_card(output: CellOutput, approval: Approval, record: Block, position: str) -> None:
    """Show the approval card in an output until it is decided; what cannot show widgets shows the `record` so far."""
    from ..widgets import ApprovalCard

    card = ApprovalCard(approval, position=position, is_clicked=kernel.is_from_front_end)
    output.put({**make_bundle([record, notice(NO_CARD)]), **card.make_reference()})
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
    (or session), ? for these keys and what the tool does.
    """
    print(f"\n? {visible(approval.question or f'Run {approval.tool}?')}")  # noqa: T201 - a prompt
    if approval.origin:
        print(f"    {visible(approval.origin)}")  # noqa: T201
    print("\n".join(line for name, value in approval.input.items() for line in _argument_lines(name, value)))  # noqa: T201
    if why := tell_why(approval):
        print(f"    {visible(why)}")  # noqa: T201
    keys = _keys(approval)
    question = f"  {', '.join(label for label, _ in keys.values())}: "
    try:
        while not approval.answered:
            _take_answer(approval, keys, read, question)
    except _NobodyTypes as reason:
        approval.deny(str(reason), by="prompt")


def _take_answer(
    approval: Approval, keys: Mapping[str, tuple[str, str]], read: Callable[[str], str], question: str
) -> None:
    """Ask once, and do what is typed."""
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
            print("\n".join([*(f"    {key}  {does}" for key, (_, does) in keys.items()), *_about(approval)]))  # noqa: T201


_KEY_OF = {"yes": "y", "no": "n", "edit": "e", "all": "a", "session": "s"}


def _keys(approval: Approval) -> dict[str, tuple[str, str]]:
    """What may be typed: the key, how the question names it, and what it does."""
    tool = visible(approval.tool)
    keys = {
        "y": ("[y]es", "run it with these arguments"),
        "n": (
            "[n]o (n REASON)",
            "do not run it; the model is told so, and the reason that stands behind the n",
        ),
        "e": ("[e]dit", "change the arguments, one after the other, and run it"),
        "a": (
            "[a]ll of this tool in this run",
            f"run it, and every later call of {tool} in this run without a question",
        ),
        "s": (
            "[s]: in this session",
            f"run it, and every later call of {tool} in this session without a question",
        ),
        "?": ("[?]", "show these keys, and what the tool does"),
    }
    offered = {"e": approval.editable, "a": "run" in approval.scopes, "s": "session" in approval.scopes}
    return {key: words for key, words in keys.items() if offered.get(key, True)}


def _about(approval: Approval) -> list[str]:
    """What the tool does, in lines."""
    about = f"{approval.description}\n{approval.source}".strip() or "nothing is known of what it does"
    return [f"    {visible(line)}" for line in ("", *about.split("\n"))]


def _argument_lines(name: str, value: object) -> list[str]:
    """One argument for a terminal: a text of several lines as these, anything else as JSON."""
    if not isinstance(value, str) or "\n" not in value.strip("\n"):
        return [
            f"    {in_a_line(name)} = {visible_json(json.dumps(value, ensure_ascii=False, default=repr))}"
        ]
    lines = visible_text(value).split("\n")
    return [f"    {in_a_line(name)} = {counted(len(lines), 'line')}:", *(f"      | {line}" for line in lines)]


class _NobodyTypes(Exception):
    """The keyboard gives nothing any more; its text is the reason of the denial."""


def _read(read: Callable[[str], str], prompt: str) -> str:
    """One line from the keyboard. Raises _NobodyTypes at the end of input, and for what is no text."""
    try:
        with kernel.allow_interrupts():
            line: object = read(prompt)
    except EOFError:
        raise _NobodyTypes("nobody answered (end of input)") from None
    if type(line) is not str:
        raise _NobodyTypes("the keyboard gave no text")
    return line.strip()


def _edit(approval: Approval, read: Callable[[str], str]) -> None:
    """Ask for each argument; Enter keeps it. Values are JSON, or text where they do not read as JSON."""
    print("    Enter keeps the value in brackets; a value is JSON, or text as it is")  # noqa: T201 - a prompt
    edited: dict[str, object] = {}
    for name, value in approval.input.items():
        shown = visible_json(json.dumps(value, ensure_ascii=False, default=repr))
        answer = _read(read, f"    {in_a_line(name)} [{shown}]: ")
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
